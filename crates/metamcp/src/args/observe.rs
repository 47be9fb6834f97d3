//! The arguments of the commands that look at what the daemon does: top, calls, logs, restart.

use std::time::Duration;

use clap::{Args as ClapArgs, Subcommand};

pub(super) const TOP_HELP: &str = "\
Refreshed once a second. Keys: arrows or j and k move, Tab changes between servers, sessions and events, Enter or l opens \
the log of a server, c its calls, r restarts it, d disables or enables it, s sorts, / filters, ? explains, q quits. \
Restarting and disabling ask first.

Exits with 4 if no daemon runs at the start; one that ends later is waited for.

Examples:
  metamcp top
  metamcp top --json               one line a second, for a program
  metamcp top --json --once | jq '.serverCalls[] | select(.failed > 0)'";

pub(super) const CALLS_HELP: &str = "\
The daemon keeps the last 4,000 calls, of all clients, without arguments and results. Times are local. A call that failed \
is one whose tool reported an error, or that got no result.

Exits with 4 if no daemon runs.

Examples:
  metamcp calls                       the last twenty
  metamcp calls -f                    and each as it ends, until Ctrl-C
  metamcp calls --failed --server github
  metamcp calls --slow 250ms          those that took at least that long
  metamcp calls show 17               where the time of one went
  metamcp calls -f --json | jq -r 'select(.outcome != \"ok\") | .tool'";

pub(super) const CALLS_SHOW_HELP: &str = "\
A call waits for a place in the pool, for its server to start and for the handshake, then runs; a long result takes time to \
arrive. What was sent again says why.

Examples:
  metamcp calls show 17
  metamcp calls show 17 --json";

pub(super) const LOGS_HELP: &str = "\
With a server: what its processes wrote to stderr, as far as the daemon keeps it (the last 64 KB of each process). Without: \
starts and ends of servers, circuit breakers, waits for the pool, sign-ins. The log of the daemon itself is `metamcp daemon \
logs`. Secrets are redacted.

Exits with 4 if no daemon runs.

Examples:
  metamcp logs                  what happened lately
  metamcp logs github           stderr of one server
  metamcp logs github -n 20 -f  the last 20 lines, and more as they come
  metamcp logs -f --json        events, one JSON object per line";

pub(super) const RESTART_HELP: &str = "\
Every process of the server finishes its calls and ends, for all clients; the next call starts it anew. An open circuit \
breaker is closed. The daemon itself: metamcp daemon restart.

Exits with 2 if no client uses such a server, with 4 if no daemon runs.

Examples:
  metamcp restart github
  metamcp restart github --json";

/// Arguments of `metamcp top`.
#[derive(Debug, Clone, Copy, ClapArgs)]
pub(crate) struct TopArgs {
    /// Print one line of JSON per second instead
    #[arg(long)]
    pub(crate) json: bool,
    /// With --json: one line, then end
    #[arg(long, requires = "json")]
    pub(crate) once: bool,
}

/// Arguments of `metamcp calls`.
#[derive(Debug, ClapArgs)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct CallsArgs {
    #[command(subcommand)]
    pub(crate) command: Option<CallsCommand>,
    #[command(flatten)]
    pub(crate) filter: CallsFilter,
}

/// The subcommands of `metamcp calls`.
#[derive(Debug, Subcommand)]
pub(crate) enum CallsCommand {
    /// Show one call: its timeline, and why it took as long as it did
    #[command(after_help = CALLS_SHOW_HELP)]
    Show(CallsShowArgs),
}

/// Which calls, and how.
#[derive(Debug, Clone, Default, ClapArgs)]
pub(crate) struct CallsFilter {
    /// Go on printing calls as they end, until Ctrl-C
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Begin with this many of the last calls
    #[arg(long, short = 'n', value_name = "N", default_value_t = 20)]
    pub(crate) lines: usize,
    /// Only calls of this server
    #[arg(long, value_name = "SERVER")]
    pub(crate) server: Option<String>,
    /// Only calls of this tool
    #[arg(long, value_name = "TOOL")]
    pub(crate) tool: Option<String>,
    /// Only calls of this session, by its number in `metamcp status`
    #[arg(long, value_name = "N")]
    pub(crate) session: Option<u64>,
    /// Only calls that failed
    #[arg(long)]
    pub(crate) failed: bool,
    /// Only calls that took at least this long, such as 250ms or 5s; without a value one second
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "1s", value_parser = length)]
    pub(crate) slow: Option<Duration>,
    /// Print JSON; with --follow one object per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `metamcp calls show`.
#[derive(Debug, Clone, Copy, ClapArgs)]
pub(crate) struct CallsShowArgs {
    /// Its number in the list
    #[arg(value_name = "ID")]
    pub(crate) id: u64,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `metamcp logs`.
#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct LogsArgs {
    /// Which server; without one, events of the gateway
    #[arg(value_name = "SERVER")]
    pub(crate) server: Option<String>,
    /// Go on printing what is added, until Ctrl-C
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Begin with this many lines from the end
    #[arg(long, short = 'n', value_name = "N", default_value_t = 100)]
    pub(crate) lines: usize,
    /// Print JSON; with --follow one object per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `metamcp restart`.
#[derive(Debug, ClapArgs)]
pub(crate) struct RestartArgs {
    /// Which server
    #[arg(value_name = "SERVER")]
    pub(crate) server: String,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// A length of time as people write it: `250ms`, `5s`, `2m`, and plain seconds.
pub(super) fn length(text: &str) -> Result<Duration, String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let seconds = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        _ => return Err("write a length of time such as 250ms, 5s or 2m".to_owned()),
    };
    let number: f64 =
        number.parse().map_err(|_| "begin with a number, such as 250ms, 5s or 2m".to_owned())?;
    Duration::try_from_secs_f64(number * seconds).map_err(|_| "that is too long".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_read_as_people_write_them() {
        for (text, millis) in
            [("250ms", 250), ("5s", 5_000), ("2", 2_000), ("0.5s", 500), ("2m", 120_000)]
        {
            assert_eq!(length(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for wrong in ["", "soon", "ms", "5 s", "-1s", "1e9", "99999999999999999999999m", "1.2.3s"] {
            assert!(length(wrong).is_err(), "{wrong}");
        }
    }
}
