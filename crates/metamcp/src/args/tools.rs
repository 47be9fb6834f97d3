//! The arguments of the commands that use servers and tools: list, tools, get, search, call, run.

use std::path::PathBuf;

use clap::Args as ClapArgs;

pub(super) const LIST_HELP: &str = "\
It starts no server. While a daemon runs, the state is that of its servers; otherwise `enabled` means that a server may be \
used.

Examples:
  metamcp list               every server, its state and how many tools it has
  metamcp list github        the tools of one server
  metamcp list --why         who shares each server's processes, and why
  metamcp list --json        the same for scripts";

pub(super) const TOOLS_HELP: &str = "\
Servers whose tools are not cached yet are started to list them.

Examples:
  metamcp tools
  metamcp tools github slack
  metamcp tools --json | jq -r '.tools[].id'";

pub(super) const GET_HELP: &str = "\
Values of variables and headers are not shown, and no server is started.

Examples:
  metamcp get github
  metamcp get github --json";

pub(super) const SEARCH_HELP: &str = "\
Examples:
  metamcp search \"read a file\"
  metamcp search issue --server github --limit 5
  metamcp search \"send a message\" --why
  metamcp search browser --json | jq -r '.tools[].id'";

pub(super) const CALL_HELP: &str = "\
Examples:
  metamcp call time:get_current_time timezone=Europe/Zurich
  metamcp call read_text_file path=notes.md head:=10
  metamcp call github:create_issue title=Crash body=@log.md labels=a labels=b
  echo '{\"path\": \"notes.md\"}' | metamcp call files:read_text_file --args -

How arguments are read: metamcp help call";

pub(super) const CALL_LONG_HELP: &str = "\
Arguments:
  key=value     converted by the schema: a number, true or false, a string
  key:=JSON     exactly this JSON: tags:='[\"a\", \"b\"]', limit:=5, x:=null
  key=@FILE     the content of a file; key:=@FILE as JSON; @- is stdin
  a.b=value     a member of an object: options.depth=2
  key= key=     a key given twice is a list; so is one whose schema is a list

A string that begins with @ is written @@. A key with a dot in its own name takes precedence if the schema has it. With --args \
the pairs are merged into the object and override it.

Secrets of the configuration are redacted from the output, as for a model; --scrub false shows them.

Examples:
  metamcp call time:get_current_time timezone=Europe/Zurich
  metamcp call read_text_file path=notes.md head:=10
  metamcp call github:create_issue title=Crash body=@log.md labels=a labels=b
  metamcp call files:list_allowed_directories --json
  echo '{\"path\": \"notes.md\"}' | metamcp call files:read_text_file --args -";

pub(super) const RUN_HELP: &str = "\
The script is TypeScript or JavaScript and runs in a sandbox without files and network; it can only call your servers. \
Top-level await works; the returned value or last expression is printed to stdout, the console to stderr.

  await github.listIssues({ owner: \"me\" })            any server by its name
  await servers[\"my-server\"].call(\"a_tool\", {})       for any name
  await parallel(urls, url => web.get({ url }), 8)    eight at a time
  await tools.search(\"create an invoice\")             what tools there are

Examples:
  metamcp run report.ts
  echo 'return await time.getCurrentTime({ timezone: \"UTC\" })' | metamcp run -
  metamcp run report.ts --timeout-ms 10000 --json";

/// Arguments of `metamcp list`.
#[derive(Debug, ClapArgs)]
pub(crate) struct ListArgs {
    /// Only this server, with its tools
    #[arg(value_name = "SERVER")]
    pub(crate) server: Option<String>,
    /// Who shares the processes of each server, and why
    #[arg(long)]
    pub(crate) why: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `metamcp search`.
#[derive(Debug, ClapArgs)]
pub(crate) struct SearchArgs {
    /// What the tool should do, in your words
    #[arg(value_name = "QUERY", required = true)]
    pub(crate) query: Vec<String>,
    /// Only tools of this server
    #[arg(long, value_name = "NAME")]
    pub(crate) server: Option<String>,
    /// Explain the rank of each hit
    #[arg(long)]
    pub(crate) why: bool,
    /// Most hits to print
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) limit: u32,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `metamcp tools`.
#[derive(Debug, ClapArgs)]
pub(crate) struct ToolsArgs {
    /// Only the tools of these servers
    #[arg(value_name = "SERVER")]
    pub(crate) servers: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `metamcp get`.
#[derive(Debug, ClapArgs)]
pub(crate) struct GetArgs {
    /// Which server
    #[arg(value_name = "SERVER")]
    pub(crate) name: String,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `metamcp call`.
#[derive(Debug, ClapArgs)]
pub(crate) struct CallArgs {
    /// The tool, as in `github:create_issue`; its name alone is enough where only one server has it
    #[arg(value_name = "SERVER:TOOL")]
    pub(crate) tool: String,
    /// Its arguments: key=value, key:=JSON, or key=@FILE; a key given twice makes a list
    #[arg(value_name = "KEY=VALUE")]
    pub(crate) pairs: Vec<String>,
    /// Its arguments as a JSON object; `-` reads them from stdin
    #[arg(long = "args", value_name = "JSON", allow_hyphen_values = true)]
    pub(crate) arguments: Option<String>,
    /// Print the whole result as JSON instead of its text
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `metamcp run`.
#[derive(Debug, ClapArgs)]
pub(crate) struct RunArgs {
    /// The script; `-` reads it from stdin
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// End it after this many milliseconds; never more than code.timeoutMs
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) timeout_ms: Option<u64>,
    /// Print status, value, console and calls as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
