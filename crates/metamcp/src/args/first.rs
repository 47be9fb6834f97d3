//! The arguments of the commands that set things up: init, add, remove, import, enable, disable, doctor.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueEnum};

pub(super) const INIT_HELP: &str = "\
Looks for the MCP clients on this machine, takes over the servers they have into ~/.metamcp/mcp.json, and writes metamcp \
into each in their place. What would change is shown first, and nothing is changed without a yes. Every file is kept as it \
was in ~/.metamcp/backups; comments and everything else in the files stay.

A file that cannot be read is left alone, and the reason is shown. That is no failure (exit code 0) unless its client was \
named with --client (1). Without a yes nothing is done (1).

Examples:
  metamcp init --dry-run                only show it
  metamcp init --client cursor --yes    one client, without a question
  metamcp init --keep                   leave the servers with the clients too
  metamcp init --undo                   put everything back";

pub(super) const ADD_HELP: &str = "\
The grammar is that of `claude mcp add`: options first, then the name, then the command behind `--`, or an address. \
The command is not given to a shell. A gateway that runs picks the server up by itself.

Without a command or an address, the name is that of a well-known server or of one in a registry. What would be installed is \
shown, values it needs are asked for, and after a yes it is installed: pinned to its hashes, in a folder of its own, behind \
walls where the system has them.

Examples:
  metamcp add memory
  metamcp add -e directory=/home/me/notes --yes filesystem
  metamcp add -e GITHUB_PERSONAL_ACCESS_TOKEN=op://work/github/token github
  metamcp add files -- npx -y @modelcontextprotocol/server-filesystem ~/notes
  metamcp add -e API_KEY='${API_KEY}' search -- uvx some-search-server
  metamcp add docs --url https://mcp.example.com/mcp --header 'X-Key: ${KEY}'
  metamcp add --transport sse old https://mcp.example.com/sse";

pub(super) const IMPORT_HELP: &str = "\
Reads only; the client keeps its servers. A server that is there already under the same name and means the same is left \
out; one that means something else gets the client's name behind its own. metamcp itself is never taken over.

Examples:
  metamcp import cursor
  metamcp import ~/work/.mcp.json --dry-run
  metamcp import ~/.codex/config.toml --json";

pub(super) const DOCTOR_HELP: &str = "\
Looks at the configuration, its variables, the programs your servers need, and the clients; starts every server and lists \
its tools; looks at the cache and for processes left behind. --fix does what can be done safely: file modes, and what a \
crash left in the cache.

Exits with 0 if there is no problem (warnings are none), with 1 if there is one, with 3 if the configuration cannot be used.

Examples:
  metamcp doctor
  metamcp doctor --fix
  metamcp doctor --json | jq '.findings[] | select(.level == \"problem\")'";

/// How a command that writes does so.
#[derive(Debug, Clone, Copy, ClapArgs)]
pub(crate) struct WriteArgs {
    /// Show what would be done, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which file is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scope {
    /// Your own, in the home of metamcp
    User,
    /// .mcp.json in the working directory
    Project,
}

/// Which file a command changes.
#[derive(Debug, Clone, Copy, ClapArgs)]
pub(crate) struct ScopeArgs {
    /// Which file: your own, or the project's; without it the one `metamcp config path` prints
    #[arg(long, short, value_enum)]
    pub(crate) scope: Option<Scope>,
}

/// Arguments of `metamcp init`.
#[derive(Debug, ClapArgs)]
pub(crate) struct InitArgs {
    /// Only this client; may be given several times
    #[arg(long, value_name = "NAME")]
    pub(crate) client: Vec<String>,
    /// Do it without asking
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Leave the servers in the clients' files as well
    #[arg(long)]
    pub(crate) keep: bool,
    /// Take back what the last init did
    #[arg(long, conflicts_with_all = ["client", "keep"])]
    pub(crate) undo: bool,
    #[command(flatten)]
    pub(crate) write: WriteArgs,
}

/// Arguments of `metamcp add`.
#[derive(Debug, ClapArgs)]
pub(crate) struct AddArgs {
    /// What the server is to be called; without a command or an address, which one is meant
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// The command with its arguments, behind `--`; or the address of a remote server
    #[arg(value_name = "COMMAND", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) command: Vec<String>,
    /// A variable for the server, or a value it asks for: KEY=VALUE; may be given several times
    #[arg(long, short, value_name = "KEY=VALUE")]
    pub(crate) env: Vec<String>,
    /// The address of a remote server
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// A header for a remote server: 'Name: value'; may be given several times
    #[arg(long, short = 'H', value_name = "HEADER")]
    pub(crate) header: Vec<String>,
    /// Replace a server of that name
    #[arg(long)]
    pub(crate) force: bool,
    /// Install a server by its name without asking
    #[arg(long, short)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) scope: ScopeArgs,
    #[command(flatten)]
    pub(crate) write: WriteArgs,
}

impl AddArgs {
    /// A flag of ours among the words of the command. Whoever means the command's own says so with `--`.
    pub(super) fn swallowed(&self) -> Option<&str> {
        const OWN: [&str; 6] = ["--dry-run", "--json", "--force", "--scope", "--header", "--env"];
        let is_own = |word: &&str| OWN.contains(&word.split('=').next().unwrap_or_default());
        self.command.iter().map(String::as_str).find(is_own)
    }
}

/// A line of `add` whose address stands where a command would: it becomes `--url`, so that flags behind it are ours and
/// not arguments of a program.
pub(super) fn addresses_named(arguments: &[OsString]) -> Vec<OsString> {
    let mut words = arguments.to_vec();
    let Some(add) = words.iter().position(|word| word == "add") else { return words };
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let is_address = |word: &OsString| {
        let word = word.to_string_lossy();
        word.starts_with("http://") || word.starts_with("https://")
    };
    let is_flag = |word: &OsString| word.to_string_lossy().starts_with('-');
    // The name comes first; what stands behind a flag is most likely its value.
    let place = (add + 2..end).find(|&at| is_address(&words[at]) && !is_flag(&words[at - 1]));
    if let Some(place) = place {
        words.insert(place, "--url".into());
    }
    words
}

/// Arguments of `metamcp remove`, `enable` and `disable`.
#[derive(Debug, ClapArgs)]
pub(crate) struct NameArgs {
    /// Which server
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) scope: ScopeArgs,
    #[command(flatten)]
    pub(crate) write: WriteArgs,
}

/// Arguments of `metamcp import`.
#[derive(Debug, ClapArgs)]
pub(crate) struct ImportArgs {
    /// A client, such as cursor, or a file
    #[arg(value_name = "CLIENT|FILE")]
    pub(crate) from: PathBuf,
    #[command(flatten)]
    pub(crate) scope: ScopeArgs,
    #[command(flatten)]
    pub(crate) write: WriteArgs,
}

/// Arguments of `metamcp doctor`.
#[derive(Debug, ClapArgs)]
pub(crate) struct DoctorArgs {
    /// Mend what can be mended safely
    #[arg(long)]
    pub(crate) fix: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
