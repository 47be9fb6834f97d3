//! The arguments of the commands about the daemon: status, daemon, service.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand};

pub(super) const STATUS_HELP: &str = "\
One daemon serves all MCP clients of a user; the first client or `metamcp call` starts it, and it ends ten minutes after \
the last (daemon.idleExit). This shows who is connected, which servers run, for whom, and what they take. It starts nothing.

Exits with 0 whether or not a daemon runs; `metamcp daemon status` exits with 4 if none does.

Examples:
  metamcp status
  metamcp status --json | jq '.servers[] | select(.instances != [])'
  metamcp status --metrics        what /metrics of an HTTP gateway shows
  metamcp list --why              why a server is shared the way it is
  metamcp top                     the same live";

pub(super) const DAEMON_HELP: &str = "\
Clients start the daemon when they need it, so there is nothing to start by hand. A client that was connected when it is \
stopped or restarted finds or starts the next one by itself; its calls in progress are finished first, as far as \
drainTimeoutMs allows.

Without a daemon, each client by itself: --daemon off, METAMCP_DAEMON=off, or \"daemon\": { \"mode\": \"off\" } in the file.

Examples:
  metamcp daemon status
  metamcp daemon restart          after an upgrade, or if something is stuck
  metamcp daemon logs -f          what it logs, as it comes";

pub(super) const SERVICE_HELP: &str = "\
Nobody needs this: clients start the daemon by themselves. As a service it is there before the first client, stays when \
all are gone, and is started again after a crash. Linux: a systemd unit of the user; macOS: a launchd agent; Windows: a \
task at logon. What is written and run is shown; installing twice changes nothing.

Examples:
  metamcp service install --dry-run
  metamcp service install
  metamcp service uninstall";

pub(super) const UI_HELP: &str = "\
The daemon serves the page on 127.0.0.1, and nothing of it before this command asks. The link works once and for a minute; \
the browser that opens it is let in until it was idle for twelve hours or the daemon ends. The page shows the folder that \
this is run in: its configuration, its servers.

On a page that was opened from a terminal you can approve installations and project files; one that a program opened can \
only look, decline and do what is not an approval.

Examples:
  metamcp ui
  metamcp ui --no-open            prints the link, for a browser that is open
  metamcp ui --no-open --json | jq -r .url
  metamcp --ui-port 7777 daemon restart";

/// Arguments of `metamcp ui`.
#[derive(Debug, ClapArgs)]
pub(crate) struct UiArgs {
    /// Print the link instead of opening a browser
    #[arg(long)]
    pub(crate) no_open: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `metamcp status`.
#[derive(Debug, ClapArgs)]
pub(crate) struct FullStatusArgs {
    /// Print what the daemon counts, as `/metrics` shows it
    #[arg(long, conflicts_with = "json")]
    pub(crate) metrics: bool,
    /// Only ask a gateway over HTTP whether it is ready, as the health check of a container does; 4 if it is not
    #[arg(long, value_name = "URL", conflicts_with_all = ["json", "metrics"])]
    pub(crate) listener: Option<String>,
    #[command(flatten)]
    pub(crate) usual: StatusArgs,
}

/// Arguments of `metamcp status` and `metamcp daemon status`.
#[derive(Debug, ClapArgs)]
pub(crate) struct StatusArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The subcommands of `metamcp daemon`.
#[derive(Debug, Subcommand)]
pub(crate) enum DaemonCommand {
    /// Be the daemon; clients start this
    #[command(hide = true)]
    Run(DaemonRunArgs),
    /// Show whether it runs: process, version, sessions
    #[command(after_help = "\
Exits with 0 if it runs, with 4 if not. `metamcp status` shows all of it.")]
    Status(StatusArgs),
    /// Stop it, once the calls in progress are finished
    #[command(after_help = "\
Clients that are connected start it again when they next need it.")]
    Stop(DaemonStopArgs),
    /// Stop it, and start it again
    Restart(DaemonStopArgs),
    /// Print its log
    #[command(after_help = "\
The log is daemon.log in the home of metamcp. How much is in it: --log-level, METAMCP_LOG_LEVEL or logLevel.

Examples:
  metamcp daemon logs
  metamcp daemon logs -n 20 -f")]
    Logs(DaemonLogsArgs),
}

/// Arguments of `metamcp daemon run`.
#[derive(Debug, ClapArgs)]
pub(crate) struct DaemonRunArgs {
    /// The socket of a daemon that drains, whose listeners are taken over
    #[arg(long, value_name = "SOCKET")]
    pub(crate) take_over: Option<PathBuf>,

    /// Start it without the console of this process, and end
    #[cfg(windows)]
    #[arg(long)]
    pub(crate) apart: bool,
}

/// Arguments of `metamcp daemon stop` and `restart`.
#[derive(Debug, ClapArgs)]
pub(crate) struct DaemonStopArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `metamcp daemon logs`.
#[derive(Debug, ClapArgs)]
pub(crate) struct DaemonLogsArgs {
    /// Go on printing what is added, until Ctrl-C
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Begin with this many lines from the end
    #[arg(long, short = 'n', value_name = "N", default_value_t = 100)]
    pub(crate) lines: usize,
}

/// The subcommands of `metamcp service`.
#[derive(Debug, Subcommand)]
pub(crate) enum ServiceCommand {
    /// Start the daemon at login, and again after a crash
    Install(ServiceArgs),
    /// Remove what install wrote; the daemon is stopped
    Uninstall(ServiceArgs),
}

/// Arguments of `metamcp service install` and `uninstall`.
#[derive(Debug, Clone, Copy, ClapArgs)]
pub(crate) struct ServiceArgs {
    /// Only show what would be written and run
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
