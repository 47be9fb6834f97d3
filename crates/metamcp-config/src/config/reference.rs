//! The config file as a page of the reference.

use std::fmt::Write;

use super::keys::{FOREIGN_SERVER_KEYS, SERVER_KEYS, TRANSPORTS};
use super::{Approve, LONGEST_NAME, Retry};

/// `docs/reference/config.md`.
pub fn config_markdown() -> String {
    let mut page = INTRODUCTION.to_owned();
    page.push_str("\n## Keys of a server\n\n| key | also read as | meaning |\n|---|---|---|\n");
    for known in SERVER_KEYS {
        let aliases: Vec<String> =
            known.key.aliases.iter().map(|alias| format!("`{alias}`")).collect();
        row(&mut page, &[&format!("`{}`", known.key.name), &aliases.join(", "), known.help]);
    }
    page.push_str("\nA key given under two of its names is fine while both say the same.\n");
    page.push_str("\n### Transports\n\n| `type` | also read as |\n|---|---|\n");
    for (name, aliases) in TRANSPORTS {
        let aliases: Vec<String> = aliases.iter().map(|alias| format!("`{alias}`")).collect();
        row(&mut page, &[&format!("`{name}`"), &aliases.join(", ")]);
    }
    page.push_str("\nCase, hyphens and underscores are ignored.\n");
    page.push_str(
        "A server with a `url` needs no `type`: transport and protocol revision are detected.\n",
    );
    page.push_str("\n### Retry\n\n| `retry` | a call whose server died before answering is sent again |\n|---|---|\n");
    for known in Retry::WORDS {
        row(&mut page, &[&format!("`{}`", known.word), known.meaning]);
    }
    page.push_str(RETRY_EXAMPLE);
    page.push_str("\n### Approvals\n\n| `approve` | calls that a person has to approve before they are sent |\n|---|---|\n");
    for known in Approve::WORDS {
        row(&mut page, &[&format!("`{}`", known.word), known.meaning]);
    }
    page.push_str(APPROVE_EXAMPLE);
    page.push_str("\n### Overrides\n\nUnder `overrides`, by the tool's own name; see [tools.md](../tools.md).\n\n| key | meaning |\n|---|---|\n");
    for (name, help) in super::server::overrides::KEYS {
        row(&mut page, &[&format!("`{name}`"), help]);
    }
    page.push_str("\n### Keys of other programs\n\nThese are recognized and ignored, with a note in `metamcp config check`.\n\n| key | here |\n|---|---|\n");
    for known in FOREIGN_SERVER_KEYS {
        row(&mut page, &[&format!("`{}`", known.name), known.reason]);
    }
    page.push_str("\n## Toolsets\n\nUnder `toolsets`, each under its name; `--toolset NAME` shows clients nothing else. Without `servers` and `tags` every server belongs to it.\n\n| key | meaning |\n|---|---|\n");
    for (name, help) in super::toolset::KEYS {
        row(&mut page, &[&format!("`{name}`"), help]);
    }
    page.push_str("\nKeys that begin with `_`, `#`, `//` or `x-` are comments.\n");
    let _infallible = write!(page, "\n{}", NAMES.replace("{LONGEST}", &LONGEST_NAME.to_string()));
    page.push_str(VARIABLES);
    page
}

/// One row of a table; a bar inside a cell would end it.
fn row(page: &mut String, cells: &[&str]) {
    for cell in cells {
        let _infallible = write!(page, "| {} ", cell.replace('|', "\\|"));
    }
    page.push_str("|\n");
}

const INTRODUCTION: &str = r#"<!-- Made from the code by `UPDATE_DOCS=1 cargo test -p metamcp reference`. Do not edit. -->
# The config file

metamcp reads the same file your MCP client does.

```jsonc
{
  "mcpServers": {
    // a local server: a program that speaks MCP over stdin and stdout
    "files": { "command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "${HOME}/notes"] },
    // a remote server
    "tickets": { "url": "https://mcp.example.com/mcp", "headers": { "Authorization": "Bearer ${TICKETS_TOKEN}" } },
  },
  "pool": { "poolSize": 10 },
}
```

## Which file is read

1. The file named by `--config` or `METAMCP_CONFIG`, and no other.
2. Else `mcp.json` (or `.mcp.json`) in `~/.metamcp`, or wherever `METAMCP_HOME` points.
3. And on top of that `.mcp.json` in the working directory, once you approved it with `metamcp trust`; after every change it has to be approved again.

Servers of an approved project are added to your own; one with the same name replaces yours, and its settings override yours.
Before approval nothing of a project's file applies.
A file whose only entry is this gateway, as clients write it, needs no approval, since it would do nothing.

An invalid entry disables that server alone.
A toolset with an invalid rule is empty, and an invalid setting falls back to its default, unless that would grant access it was meant to deny: then the file is rejected.

Comments and trailing commas are fine.
`mcpServers` and `servers` are both read; a name may be in one of them only.
Every other key of the file is a [setting](settings.md).

A file that cannot be used is an error with line and column, never an empty list of servers.
A running gateway follows its files: servers are added, changed and removed as you save, calls in flight finish, and an invalid file changes nothing until it is fixed.
Settings take effect with the next start.
`metamcp add`, `remove`, `enable`, `disable` and `import` change the file and preserve every other byte of it; `metamcp config check` shows what is read; `metamcp config schema` prints the JSON Schema for your editor.
An unknown key is a warning that names the nearest known one; in `toolsets` and `tools`, and where a rule such as `deniedTools` was probably meant, it is an error, since ignoring it would allow what it was meant to deny.
"#;

const RETRY_EXAMPLE: &str = r#"
With exceptions by tool: `"retry": { "default": "annotated", "tools": { "send_*": "never" } }`.
An exact name takes precedence over a pattern; among patterns the first match counts.
"#;

const APPROVE_EXAMPLE: &str = r#"
With exceptions by tool: `"approve": { "default": "destructive", "tools": { "send_*": "always", "delete_draft": "never" } }`.
An exact name takes precedence over a pattern; among patterns the first match counts.
Names are those that the server gives its tools, also where an override shows another.
In an approved project's file the key only makes things stricter: see [approvals.md](../approvals.md).
"#;

const NAMES: &str = r"## Names

A server's name is the part before the colon in `server:tool`.
It has at most {LONGEST} characters, no colon, no control or invisible characters, does not begin with `@` or `mcp.`, and is none of the gateway's own tools.
Two names that differ only in case are a warning.

An entry that starts `metamcp` itself on the same file is skipped: your client's `.mcp.json` names the gateway, and the gateway reads that file.
";

const VARIABLES: &str = r"
## Variables

In `command`, `args`, `env`, `cwd`, `url` and `headers`:

| written | becomes |
|---|---|
| `${NAME}`, `${env:NAME}` | the value of the environment variable; an empty value is a value |
| `${NAME:-default}` | the value, or `default` where the variable is not set or empty; a default may hold variables itself |
| `$${` | a plain `${` |

Any other `$` is literal: there is no shell.
A variable that is not set disables its server, and only that one: it stays in lists, with the reason.
So does a reference that only another program can resolve, such as `${input:token}`.

## Secrets

A value of `env` or `headers` can refer to a secret instead of holding it.
The reference is resolved each time the server starts; the secret goes into the server's environment or the request's header, and never into a log, an error or a command line.

| written | is |
|---|---|
| `file:/run/secrets/key`, `file:~/key` | the content of a file, without the line break at its end |
| `cmd:pass show work/key` | the output of a program; no shell, quotes group words |
| `op://vault/item/field` | an item of 1Password, read by its program `op` |
| `keychain://service/account` | an entry of the system's keychain: `security` on macOS, `secret-tool` on Linux, the Credential Manager (the entry `service/account`) on Windows |
| `secretref:env:NAME`, `secretref:` before any of the above | the same, in full |
| `literal:…` | the rest as it is, for a value that only looks like one of these |

`file:./dev.db` and `file:///…` are passed on unchanged: servers interpret them themselves.
If a secret cannot be read, its server does not start, and the error says why; other servers are not affected.

## Redaction

Values of `env` and `headers`, and variables with names like `API_KEY` or `TOKEN`, are redacted from logs and errors: they are replaced with `[secret API_KEY]`.
";
