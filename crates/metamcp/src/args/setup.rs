//! The arguments of the commands that set things up: init, add, remove, import, enable, disable, doctor.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueEnum};

pub(super) const INIT_HELP: &str = "\
Finds the MCP clients on this machine, imports their servers into ~/.metamcp/mcp.json, and gives each client one entry for \
metamcp instead. All changes are shown first, and nothing is changed before you confirm. Backups of every file are in \
~/.metamcp/backups; comments and everything else in the files are preserved.

A server that would not start from here (its program or a variable is missing) is shown with the reason and stays with its \
client; --server imports it anyway. At a terminal you can choose clients and servers from a list.

A file that cannot be read is skipped, with the reason. That is no failure (exit code 0) unless its client was named with \
--client (1). Without confirmation nothing is done (1).

Examples:
  metamcp init --dry-run                only show the changes
  metamcp init --client cursor --yes    one client, without asking
  metamcp init --server git --yes       one server, whichever client has it
  metamcp init --keep                   leave the servers in the clients too
  metamcp init --http                   address and token of a gateway over HTTP
  metamcp init --undo                   revert everything
  metamcp init --undo --last            revert only the last init";

pub(super) const ADD_HELP: &str = "\
The syntax is that of `claude mcp add`: options first, then the name, then the command after `--`, or a URL. The command is \
not passed to a shell. A running gateway picks the server up by itself.

Without a command or URL, the name is that of a server of the gallery or of one in a registry. The plan is shown, you \
are asked for the values it needs, and after your approval it is installed: pinned to hashes, in a folder of its own, \
sandboxed where the system can.

In place of a name, say in quotes what you need: the servers of the gallery that do it are shown with what installing \
one would do, without asking anybody else, and you choose. With --json they are only shown.

Examples:
  metamcp add memory
  metamcp add \"what is on my calendar tomorrow\"
  metamcp add -e directory=/home/me/notes --yes filesystem
  metamcp add -e GITHUB_PERSONAL_ACCESS_TOKEN=op://work/github/token github
  metamcp add files -- npx -y @modelcontextprotocol/server-filesystem ~/notes
  metamcp add -e API_KEY='${API_KEY}' search -- uvx some-search-server
  metamcp add docs --url https://mcp.example.com/mcp --header 'X-Key: ${KEY}'
  metamcp add --transport sse old https://mcp.example.com/sse";

pub(super) const ADD_JSON_HELP: &str = "\
The JSON is one server as clients write it: an object with `command` or `url`. A whole file with `mcpServers` that has one \
server is accepted too. `-` reads it from stdin.

Examples:
  metamcp add-json time '{\"command\": \"uvx\", \"args\": [\"mcp-server-time\"]}'
  metamcp add-json docs '{\"type\": \"http\", \"url\": \"https://mcp.example.com/mcp\"}'
  pbpaste | metamcp add-json docs -";

pub(super) const IMPORT_HELP: &str = "\
The client keeps its servers. A server that you already have is skipped; if another server has its name, the client's name \
is appended. metamcp itself is never imported.

Examples:
  metamcp import cursor
  metamcp import ~/work/.mcp.json --dry-run
  metamcp import ~/.codex/config.toml --json";

pub(super) const DOCTOR_HELP: &str = "\
Checks the configuration, its variables, the programs your servers need, and your clients; starts every server and lists \
its tools; checks the cache, and looks for orphaned processes. --fix does what is safe: it makes files with secrets private, \
and removes what crashes left in the cache.

Exits with 0 if there is no problem (warnings do not count), with 1 if there is one, with 3 if the configuration cannot be used.

Examples:
  metamcp doctor
  metamcp doctor github slack           these servers, and what they need
  metamcp doctor --fix
  metamcp doctor --json | jq '.findings[] | select(.level == \"problem\")'";

/// Common to all commands that write.
#[derive(Debug, Clone, Copy, ClapArgs)]
pub(crate) struct WriteArgs {
    /// Only show what would be done
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
    /// Which file to change: your own (default, or the one that --config names) or the project's
    #[arg(long, short, value_enum)]
    pub(crate) scope: Option<Scope>,
    /// The project's file, .mcp.json in the working directory
    #[arg(long, conflicts_with = "scope")]
    pub(crate) project: bool,
}

impl ScopeArgs {
    /// The same as `--scope`.
    pub(crate) fn of(scope: Scope) -> ScopeArgs {
        ScopeArgs { scope: Some(scope), project: false }
    }

    /// The file chosen on the command line, if any.
    pub(crate) fn wanted(self) -> Option<Scope> {
        if self.project { Some(Scope::Project) } else { self.scope }
    }
}

/// Arguments of `metamcp trust`.
#[derive(Debug, ClapArgs)]
pub(crate) struct TrustArgs {
    /// The folder with the .mcp.json; without it the working directory
    #[arg(value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// List your decisions so far
    #[arg(long, conflicts_with_all = ["folder", "yes"])]
    pub(crate) list: bool,
    /// Approve without asking; needs --sha256
    #[arg(long, short, requires = "sha256")]
    pub(crate) yes: bool,
    /// The hash of the file you have seen; if the file has changed since, nothing is approved
    #[arg(long, value_name = "HASH", requires = "yes")]
    pub(crate) sha256: Option<String>,
    /// Print JSON; without --yes it only shows what would be approved
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `metamcp untrust`.
#[derive(Debug, ClapArgs)]
pub(crate) struct UntrustArgs {
    /// The folder with the .mcp.json; without it the working directory
    #[arg(value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

pub(super) const TRUST_HELP: &str = "\
The .mcp.json of a folder may come from a stranger, so nothing of it is used before you approve it: no server, no setting. \
After every change it has to be approved again. A file that you name with --config is trusted and needs no approval.

Examples:
  metamcp trust                    show what the file here would do, and ask
  metamcp trust ~/work/site        the same for another folder
  metamcp trust --json             the same and the hash, for scripts
  metamcp trust --list             your decisions so far
  metamcp untrust                  revoke the approval";

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
    /// Only this server, even if it would not start; may be given several times
    #[arg(long, value_name = "NAME")]
    pub(crate) server: Vec<String>,
    /// Every server but this one; may be given several times
    #[arg(long, value_name = "NAME")]
    pub(crate) except: Vec<String>,
    /// Write the URL and token of a gateway over HTTP instead of a program to start; imports no servers
    #[arg(
        long,
        value_name = "URL",
        num_args = 0..=1,
        default_missing_value = "http://127.0.0.1:8080/mcp",
        conflicts_with_all = ["keep", "server", "except"]
    )]
    pub(crate) http: Option<String>,
    /// Revert every init, back to the first
    #[arg(long, conflicts_with_all = ["client", "keep", "server", "except", "http"])]
    pub(crate) undo: bool,
    /// With --undo: revert only the last init
    #[arg(long, requires = "undo")]
    pub(crate) last: bool,
    #[command(flatten)]
    pub(crate) write: WriteArgs,
}

/// Arguments of `metamcp add`.
#[derive(Debug, ClapArgs)]
pub(crate) struct AddArgs {
    /// The name for the server; without a command or URL, the name of a known server to install, or in quotes what is
    /// needed
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// The command with its arguments, after `--`; or the URL of a remote server
    #[arg(value_name = "COMMAND", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) command: Vec<String>,
    /// A variable for the server, or a value that its plan needs: KEY=VALUE; may be given several times
    #[arg(long, short, value_name = "KEY=VALUE")]
    pub(crate) env: Vec<String>,
    /// The URL of a remote server
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
    /// A flag of ours among the words of the command. To pass it to the command itself, write `--` first.
    pub(super) fn swallowed(&self) -> Option<&str> {
        const OWN: [&str; 7] =
            ["--dry-run", "--json", "--force", "--scope", "--project", "--header", "--env"];
        let is_own = |word: &&str| OWN.contains(&word.split('=').next().unwrap_or_default());
        self.command.iter().map(String::as_str).find(is_own)
    }
}

/// A line of `add` with a URL where a command would be: the URL becomes `--url`, so that flags after it are ours and
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
    // The name comes first; what follows a flag is most likely its value.
    let place = (add + 2..end).find(|&at| is_address(&words[at]) && !is_flag(&words[at - 1]));
    if let Some(place) = place {
        words.insert(place, "--url".into());
    }
    words
}

/// Arguments of `metamcp add-json`.
#[derive(Debug, ClapArgs)]
pub(crate) struct AddJsonArgs {
    /// The name for the server
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// The server as JSON; `-` reads it from stdin
    #[arg(value_name = "JSON", allow_hyphen_values = true)]
    pub(crate) entry: String,
    /// Replace a server of that name
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) scope: ScopeArgs,
    #[command(flatten)]
    pub(crate) write: WriteArgs,
}

/// Arguments of `metamcp remove`, `enable` and `disable`.
#[derive(Debug, ClapArgs)]
pub(crate) struct NamesArgs {
    /// Which servers
    #[arg(value_name = "NAME", required = true)]
    pub(crate) names: Vec<String>,
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
    /// Only these servers; without a name, everything
    #[arg(value_name = "SERVER")]
    pub(crate) servers: Vec<String>,
    /// Fix what can be fixed safely
    #[arg(long)]
    pub(crate) fix: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

pub(super) const TOKEN_HELP: &str = "\
Clients of `metamcp --transport http` need a bearer token. Unless you configured your own (--token-file, --token-env, \
--jwks), it is the one in ~/.metamcp/http-token, which only you can read. This prints it, and generates it if needed.

Examples:
  metamcp token
  metamcp token --rotate      a new one; the old one is rejected from then on
  metamcp token --metrics     another one, which reads /metrics and nothing else
  curl -H \"Authorization: Bearer $(metamcp token)\" …";

/// Arguments of `metamcp token`.
#[derive(Debug, ClapArgs)]
pub(crate) struct TokenArgs {
    /// Replace it with a new one
    #[arg(long)]
    pub(crate) rotate: bool,
    /// The read-only token, for whatever scrapes /metrics
    #[arg(long)]
    pub(crate) metrics: bool,
    /// Print JSON: the token and its file
    #[arg(long)]
    pub(crate) json: bool,
}
