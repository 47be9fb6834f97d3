//! The arguments of `metamcp audit`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand};

pub(super) const AUDIT_HELP: &str = "\
The audit log has one JSON line for each call, approval, installation, sign-in, trust decision, change of the configuration \
and refusal: who, what, when, how it ended, and digests of arguments and result. Each line has the hash of the line before. \
It is off until you switch it on, in ~/.metamcp/mcp.json, and run `metamcp daemon restart`:

    \"audit\": { \"enabled\": true }

These commands read the files in audit/ in the home of metamcp; no daemon is needed.

Examples:
  metamcp audit tail -f
  metamcp audit query --since 1d --failed
  metamcp audit verify
  metamcp audit head                     note this line elsewhere, and later:
  metamcp audit verify --expect 1042:9f86d081884c7d65…";

const QUERY_HELP: &str = "\
Times are a date (UTC), a moment as in the log, or an age: 90s, 15m, 2h, 7d, 3w. Names may contain *. A condition that is \
given several times is met by any of its values.

Kinds: call, begun, approval, installation, login, trust, config, refusal, gateway, lost, resumed, file.

Examples:
  metamcp audit query --since 2h --server github
  metamcp audit query --failed --since 7d --json
  metamcp audit query --kind approval --kind installation
  metamcp audit query --client 'claude*' --tool 'delete_*' --verdict ok";

const EXPORT_HELP: &str = "\
The lines are written as they are in the log, so whoever gets them can check their hashes. With --output, a second file, \
FILE.manifest.json, says what was exported, its SHA-256, and where the chain ended.

Examples:
  metamcp audit export --since 2026-11-01 --until 2026-12-01 --output nov.jsonl
  metamcp audit export --csv --kind call > calls.csv";

const VERIFY_HELP: &str = "\
Reads the whole log and says what was changed and what is missing. A line that is only cut, because metamcp was killed \
while writing it, is no damage, and is told apart from a change. Old files that the limit removed are not missed.

Whoever can write your files can also write all of the log anew, with hashes that fit. Against that, note what \
`metamcp audit head` prints in a place they cannot reach, and give it to --expect.

Exits with 0 if the log is whole, with 6 if a line was changed or is missing.

Examples:
  metamcp audit verify
  metamcp audit verify --json | jq .findings
  metamcp audit verify --expect \"$(cat /media/usb/audit-head)\"";

/// The subcommands of `metamcp audit`.
#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Print the last lines
    #[command(after_help = "\
Examples:
  metamcp audit tail
  metamcp audit tail -n 100 --server github
  metamcp audit tail -f --failed")]
    Tail(AuditTailArgs),
    /// Print the lines that meet conditions
    #[command(after_help = QUERY_HELP)]
    Query(AuditQueryArgs),
    /// Write lines to a file or to stdout, as they are or as CSV
    #[command(after_help = EXPORT_HELP)]
    Export(AuditExportArgs),
    /// Check that no line was changed and none is missing
    #[command(after_help = VERIFY_HELP)]
    Verify(AuditVerifyArgs),
    /// Print the number and hash of the last line, to note it elsewhere
    Head(AuditHeadArgs),
}

/// Which lines.
#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct AuditFilterArgs {
    /// From this time on
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Before this time
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,
    /// Of this server
    #[arg(long, value_name = "NAME")]
    pub(crate) server: Vec<String>,
    /// Of this tool
    #[arg(long, value_name = "NAME")]
    pub(crate) tool: Vec<String>,
    /// Of this kind
    #[arg(long, value_name = "KIND")]
    pub(crate) kind: Vec<String>,
    /// That ended so: ok, timeout, cancelled, denied and the like
    #[arg(long, value_name = "WORD")]
    pub(crate) verdict: Vec<String>,
    /// Of this client, by the name it gives
    #[arg(long, value_name = "NAME")]
    pub(crate) client: Vec<String>,
    /// Of this principal: owner, token:NAME, sub:NAME
    #[arg(long, value_name = "NAME")]
    pub(crate) principal: Vec<String>,
    /// Only what did not go well
    #[arg(long)]
    pub(crate) failed: bool,
}

/// Arguments of `metamcp audit tail`.
#[derive(Debug, ClapArgs)]
pub(crate) struct AuditTailArgs {
    /// Go on printing what is added, until Ctrl-C
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// How many lines
    #[arg(long, short = 'n', value_name = "N", default_value_t = 20)]
    pub(crate) lines: usize,
    #[command(flatten)]
    pub(crate) filter: AuditFilterArgs,
    /// Print the lines as they are in the log
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `metamcp audit query`.
#[derive(Debug, ClapArgs)]
pub(crate) struct AuditQueryArgs {
    #[command(flatten)]
    pub(crate) filter: AuditFilterArgs,
    /// Print the lines as they are in the log
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `metamcp audit export`.
#[derive(Debug, ClapArgs)]
pub(crate) struct AuditExportArgs {
    #[command(flatten)]
    pub(crate) filter: AuditFilterArgs,
    /// The file to write; must not exist
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// A table instead of JSON lines
    #[arg(long)]
    pub(crate) csv: bool,
}

/// Arguments of `metamcp audit verify`.
#[derive(Debug, ClapArgs)]
pub(crate) struct AuditVerifyArgs {
    /// A line that was noted elsewhere, as `metamcp audit head` printed it
    #[arg(long, value_name = "NUMBER:HASH")]
    pub(crate) expect: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `metamcp audit head`.
#[derive(Debug, ClapArgs)]
pub(crate) struct AuditHeadArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
