//! The pages of docs/reference that are generated from the code.
//! Owns: which pages exist, and the command-line page.      Never: decides where they are written.
//! In: the command line and the tables of settings and keys.  Out: file names with their content.
//! Tests: below; the committed pages are compared with these.

use metamcp_config::config::{config_markdown, json_schema};
use metamcp_config::settings::settings_markdown;
use metamcp_engine::surface::reply::Code;

use crate::args;
use crate::exit::Exit;

/// Every generated file by name.
pub(crate) fn pages() -> Vec<(&'static str, String)> {
    vec![
        ("settings.md", settings_markdown()),
        ("config.md", config_markdown()),
        ("cli.md", cli_markdown()),
        ("errors.md", errors_markdown()),
        ("mcp.schema.json", format!("{:#}\n", json_schema())),
    ]
}

/// The manual pages of section 1: one of metamcp, one of each command.
pub(crate) fn manual() -> std::io::Result<Vec<(String, Vec<u8>)>> {
    let mut command = args::command();
    command.build();
    let mut pages = Vec::new();
    manual_of(&command, "metamcp", &mut pages)?;
    Ok(pages)
}

fn manual_of(
    command: &clap::Command,
    name: &str,
    pages: &mut Vec<(String, Vec<u8>)>,
) -> std::io::Result<()> {
    // Pages are cited by name, and a page of `metamcp call` is called metamcp-call.
    let own = command.clone().display_name(name);
    let mut page = Vec::new();
    // Without a date, so that the same program always makes the same page.
    clap_mangen::Man::new(own).title(name).date("").render(&mut page)?;
    pages.push((format!("{name}.1"), page));
    let shown = |sub: &&clap::Command| !sub.is_hide_set() && sub.get_name() != "help";
    for sub in command.get_subcommands().filter(shown) {
        manual_of(sub, &format!("{name}-{}", sub.get_name()), pages)?;
    }
    Ok(())
}

fn cli_markdown() -> String {
    let mut page = "\
<!-- Made from the code by `UPDATE_DOCS=1 cargo test -p metamcp reference`. Do not edit. -->
# The command line

stdout carries data, or the protocol while serving; everything for people goes to stderr.
Colours and columns appear on a terminal only, colours not when `NO_COLOR` is set; progress appears on stderr where that is a terminal, and not with `--quiet` or `--json`.
`metamcp COMMAND --help` is short, `metamcp help COMMAND` is what this page has.

With `--json` stdout is JSON in every case: a command that fails prints `{ \"ok\": false, \"errors\": [{ \"message\": … }], \"warnings\": [] }`, with `file`, `line` and `hint` where it is about a config file.
`call` prints the result, and an error of metamcp itself is a result with `isError`; `run` has the same keys whether the script succeeds or fails.

## Exit codes

| code | meaning |
|---|---|
"
    .to_owned();
    for (exit, meaning) in Exit::ALL {
        page.push_str(&format!("| {} | {meaning} |\n", exit.code()));
    }
    for (path, help) in helps() {
        page.push_str(&format!("\n## {path}\n\n```text\n{}\n```\n", help.trim_end()));
    }
    page
}

fn errors_markdown() -> String {
    let mut page = "\
<!-- Made from the code by `UPDATE_DOCS=1 cargo test -p metamcp reference`. Do not edit. -->
# Errors

A request that is malformed is answered with a JSON-RPC error: -32700 not JSON, -32600 not a request, -32601 an unknown method, -32602 parameters that cannot be used (an unknown meta-tool, a bad or stale cursor).
Every other failure is the result of the tool, with `isError: true`, one readable line as text, and this object as `structuredContent`:

```text
{ code, message, hint?, tool_id?, server?, op?, step_index?, retryable, retry_after_ms?, details? }
```

Tools of the [full surface](../tool_surfaces.md) have an output schema, so there it is the member `error` of the response, which is `null` on success; `op` names the tool.

`details.category` is `auth`, `offline`, `http`, `stdio-exit` or `other` where a server was involved, and `details.stderr` holds the end of its stderr, if there is any.
With `mcp_call` a server's own result, `isError` included, is passed on unchanged and never becomes one of these; `run_tool`, `run_chain` and scripts turn a result into a value, and a failed one into `tool_error`.

| code | meaning |
|---|---|
"
    .to_owned();
    for (code, meaning) in Code::ALL {
        page.push_str(&format!("| `{}` | {meaning} |\n", code.word()));
    }
    page
}

/// The long help of every visible command, in the order of the help, at a fixed width.
pub(crate) fn helps() -> Vec<(String, String)> {
    let mut command = args::command().term_width(100).disable_help_subcommand(true);
    command.build();
    let mut helps = Vec::new();
    collect(&mut command, "metamcp", &mut helps);
    helps
}

fn collect(command: &mut clap::Command, path: &str, helps: &mut Vec<(String, String)>) {
    let help = command.render_long_help().to_string();
    let trimmed: Vec<&str> = help.lines().map(str::trim_end).collect();
    helps.push((path.to_owned(), trimmed.join("\n")));
    for sub in
        command.get_subcommands_mut().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help")
    {
        let path = format!("{path} {}", sub.get_name());
        collect(sub, &path, helps);
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests start, wait and measure for themselves")]
mod tests {
    use std::path::Path;

    use super::pages;

    /// `UPDATE_DOCS=1` writes the pages instead of comparing them.
    #[test]
    fn the_committed_reference_is_what_the_code_says() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
        let update = std::env::var_os("UPDATE_DOCS").is_some_and(|value| value == "1");
        for (name, page) in pages() {
            let path = folder.join(name);
            if update {
                std::fs::create_dir_all(&folder).unwrap();
                std::fs::write(&path, page).unwrap();
                continue;
            }
            let committed = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(
                committed == page,
                "docs/reference/{name} is stale: run UPDATE_DOCS=1 cargo test -p metamcp reference"
            );
        }
    }
}
