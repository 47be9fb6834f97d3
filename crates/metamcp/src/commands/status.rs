//! `metamcp status`: the daemon on one screen: its clients, the servers that run, and who uses what.
//! Owns: how it reads.      Never: starts a daemon or a server.
//! In: the daemon's own report.  Out: text, or the same as JSON.
//! Tests: below, `tests/config/daemon.rs` without a daemon, `tests/daemon/status.rs` with one.

use std::io::{self, Write};

use anstyle::Style;
use metamcp_engine::serve::daemon_status::{
    DaemonStatus, InstanceStatus, ServerStatus, SessionStatus,
};
use metamcp_types::text;
use serde_json::{Value, json};

use super::daemon_client::{self, Absent};
use crate::args::StatusArgs;
use crate::exit::Exit;
use crate::render::{BOLD, Cell, DIM, GREEN, RED, YELLOW, columns, plural, styled, wrapped};
use crate::terminal;

const PLAIN: Style = Style::new();

/// Columns where there is no terminal: nothing is cut.
const UNBOUNDED: usize = 10_000;

pub(crate) fn run(
    home: &std::path::Path,
    args: &StatusArgs,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    match daemon_client::status(home)? {
        Ok(status) if args.json => writeln!(out, "{:#}", running_json(&status))?,
        Ok(status) => show(out, &status, terminal::width())?,
        Err(absent) if args.json => writeln!(out, "{:#}", absent_json(&absent))?,
        Err(absent) => {
            writeln!(out, "{absent}")?;
            let words = "The first client starts it, and so does `metamcp call`; `metamcp list` lists your servers.";
            writeln!(out, "{}", styled(DIM, words))?;
        }
    }
    Ok(Exit::Success)
}

/// `metamcp daemon status`: only the first lines of it, and an exit code that a script can use.
pub(crate) fn brief(
    home: &std::path::Path,
    args: &StatusArgs,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    match daemon_client::status(home)? {
        Ok(status) => {
            if args.json {
                writeln!(out, "{:#}", running_json(&status))?;
            } else {
                head(out, &status, terminal::width())?;
            }
            Ok(Exit::Success)
        }
        Err(absent) => {
            if args.json {
                writeln!(out, "{:#}", absent_json(&absent))?;
            } else {
                writeln!(out, "{absent}")?;
            }
            Ok(Exit::Unavailable)
        }
    }
}

fn running_json(status: &DaemonStatus) -> Value {
    let mut told = json!({ "running": true });
    if let (Some(told), Ok(Value::Object(status))) =
        (told.as_object_mut(), serde_json::to_value(status))
    {
        told.extend(status);
    }
    told
}

fn absent_json(absent: &Absent) -> Value {
    json!({ "running": false, "reason": absent.to_string(), "sessions": [], "servers": [] })
}

fn show(out: &mut dyn Write, status: &DaemonStatus, width: Option<usize>) -> io::Result<()> {
    head(out, status, width)?;
    let width = width.unwrap_or(UNBOUNDED);
    let label = |word: &str| Cell::new(word, DIM);
    if !status.sessions.is_empty() {
        writeln!(out)?;
        let mut rows = vec![vec![
            label("#"),
            label("client"),
            label("since"),
            label("calls"),
            label("folder"),
        ]];
        rows.extend(status.sessions.iter().map(session));
        columns(out, &rows, width)?;
    }
    if !status.servers.is_empty() {
        writeln!(out)?;
        let mut rows = vec![vec![
            label("server"),
            label("shared by"),
            label("state"),
            label("process"),
            label("memory"),
            label("used by"),
        ]];
        for server in &status.servers {
            if server.instances.is_empty() {
                rows.push(resting(server));
            }
            rows.extend(server.instances.iter().map(|one| instance(server, one, status)));
        }
        columns(out, &rows, width)?;
    }
    Ok(())
}

/// The daemon itself, in a line or two.
fn head(out: &mut dyn Write, status: &DaemonStatus, width: Option<usize>) -> io::Result<()> {
    let mut facts = vec![
        format!("version {}", said(&status.version)),
        format!("process {}", status.pid),
        format!("up {}", age(status.uptime_ms)),
    ];
    facts.extend(status.memory_bytes.map(megabytes));
    facts.push(plural(status.sessions.len(), "session"));
    let running = status.servers.iter().flat_map(|server| &server.instances);
    let running = running.filter(|one| is_running(one)).count();
    let processes = if running == 1 { "process" } else { "processes" };
    facts.push(format!("{running} server {processes} running"));
    writeln!(out, "{}  {}", styled(BOLD, "metamcp daemon"), facts.join(", "))?;
    let mut more = Vec::new();
    if status.draining {
        more.push("it takes no new sessions, and ends with its last one".to_owned());
    } else if let Some(idle) = status.idle_exit_ms {
        more.push(format!("it ends {} after its last session", age(idle)));
    }
    if !status.listeners.is_empty() {
        let all: Vec<String> = status.listeners.iter().map(|one| said(one)).collect();
        more.push(format!("HTTP on {}", all.join(", ")));
    }
    if !status.log.is_empty() {
        more.push(format!("log: {}", said(&status.log)));
    }
    for line in more.iter().flat_map(|line| match width {
        Some(width) => wrapped(line, width),
        None => vec![line.clone()],
    }) {
        writeln!(out, "{}", styled(DIM, &line))?;
    }
    Ok(())
}

fn session(session: &SessionStatus) -> Vec<Cell> {
    let name = match &*said(&session.client) {
        "" => said(&session.kind),
        client if session.kind == "stdio" => client.to_owned(),
        client => format!("{client} ({})", said(&session.kind)),
    };
    let open = match session.in_flight {
        0 => String::new(),
        open => format!(", {open} open"),
    };
    vec![
        Cell::new(session.id.to_string(), DIM),
        Cell::new(name, BOLD),
        Cell::new(age(session.age_ms), PLAIN),
        Cell::new(format!("{}{open}", session.calls), PLAIN),
        Cell::new(said(&session.folder), PLAIN),
    ]
}

/// A server without a process.
fn resting(server: &ServerStatus) -> Vec<Cell> {
    let state = match server.queued {
        0 => "not running".to_owned(),
        queued => format!("not running, {} waiting", plural(queued as usize, "call")),
    };
    vec![
        Cell::new(said(&server.name), BOLD),
        Cell::new(said(&server.scope), DIM),
        Cell::new(state, DIM),
    ]
}

fn instance(server: &ServerStatus, one: &InstanceStatus, status: &DaemonStatus) -> Vec<Cell> {
    let style = match &*one.state {
        "failed" => RED,
        "active" | "idle" => GREEN,
        _ => YELLOW,
    };
    let open = if one.in_flight > 1 { format!(" ({})", one.in_flight) } else { String::new() };
    let scope = match &*said(&one.of) {
        "" => said(&server.scope),
        of => format!("{} {of}", said(&server.scope)),
    };
    let named = |id: &u64| match status.sessions.iter().find(|session| session.id == *id) {
        Some(session) if !session.client.is_empty() => {
            format!("{id} {}", said(session.client.split(' ').next().unwrap_or_default()))
        }
        _ => id.to_string(),
    };
    let users: Vec<String> = one.sessions.iter().map(named).collect();
    let last = match &one.failure {
        // Why it is not there matters more than who would use it.
        Some(failure) if !is_running(one) => Cell::new(said(failure), DIM),
        _ => Cell::new(users.join(", "), PLAIN),
    };
    vec![
        Cell::new(said(&server.name), BOLD),
        Cell::new(scope, DIM),
        Cell::new(format!("{}{open}", said(&one.state)), style),
        Cell::new(one.pid.map(|pid| pid.to_string()).unwrap_or_default(), PLAIN),
        Cell::new(one.memory_bytes.map(megabytes).unwrap_or_default(), PLAIN),
        last,
    ]
}

fn is_running(one: &InstanceStatus) -> bool {
    matches!(&*one.state, "active" | "idle" | "connecting")
}

/// A length of time in its largest unit that still says something.
fn age(millis: u64) -> String {
    match millis / 1_000 {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

fn megabytes(bytes: u64) -> String {
    match bytes {
        0..10_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.0} MB", bytes as f64 / 1e6),
    }
}

/// Text of clients and servers on one line, without escape codes.
fn said(words: &str) -> String {
    text::clean_line(words, usize::MAX).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy() -> DaemonStatus {
        let session = |id, client: &str, kind: &str, folder: &str| SessionStatus {
            id,
            client: client.to_owned(),
            kind: kind.to_owned(),
            folder: folder.to_owned(),
            age_ms: 754_000,
            calls: 34,
            in_flight: u32::from(id == 1),
            pid: Some(100),
        };
        let instance = |of: &str, state: &str, pid, sessions: &[u64]| InstanceStatus {
            of: of.to_owned(),
            state: state.to_owned(),
            pid,
            memory_bytes: pid.map(|_| 81_200_000),
            sessions: sessions.to_vec(),
            ..InstanceStatus::default()
        };
        let server = |name: &str, scope: &str, instances| ServerStatus {
            name: name.to_owned(),
            scope: scope.to_owned(),
            queued: 0,
            instances,
        };
        let failed = InstanceStatus {
            state: "failed".to_owned(),
            failure: Some("its process ended with code 1".to_owned()),
            ..InstanceStatus::default()
        };
        DaemonStatus {
            version: "0.1.0".to_owned(),
            pid: 77,
            uptime_ms: 7_500_000,
            memory_bytes: Some(9_140_000),
            idle_exit_ms: Some(600_000),
            log: "/home/me/.metamcp/daemon.log".to_owned(),
            sessions: vec![
                session(1, "claude-code 2.0.1", "stdio", "/home/me/work/site"),
                session(2, "evil\u{1b}[2Jclient 1", "http", "/home/me"),
                session(3, "", "command", "/tmp"),
            ],
            servers: vec![
                server("github", "machine", vec![instance("", "idle", Some(1234), &[1, 2])]),
                server(
                    "browser",
                    "session",
                    vec![
                        instance("claude-code", "active", Some(1240), &[1]),
                        instance("client", "connecting", Some(1250), &[2]),
                    ],
                ),
                server("broken", "machine", vec![failed]),
                server("time", "machine", Vec::new()),
            ],
            ..DaemonStatus::default()
        }
    }

    fn told(status: &DaemonStatus, width: Option<usize>) -> String {
        let mut out = Vec::new();
        show(&mut out, status, width).unwrap();
        let out = anstream::adapter::strip_bytes(&out).into_vec();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_whole_on_a_screen() {
        insta::assert_snapshot!("status_100", told(&busy(), Some(100)));
        insta::assert_snapshot!("status_plain", told(&busy(), None));
    }

    #[test]
    fn a_daemon_without_sessions_is_a_few_lines() {
        let idle = DaemonStatus { sessions: Vec::new(), servers: Vec::new(), ..busy() };
        insta::assert_snapshot!("status_idle", told(&idle, Some(80)));
    }

    #[test]
    fn a_daemon_of_another_version_is_understood_as_far_as_it_goes() {
        let status: DaemonStatus =
            serde_json::from_value(json!({ "version": "9.0.0", "pid": 5, "weather": "fine" }))
                .unwrap();
        assert!(told(&status, None).contains("version 9.0.0, process 5"));
        let again = running_json(&busy());
        assert_eq!(again["running"], true);
        assert_eq!(serde_json::from_value::<DaemonStatus>(again).unwrap(), busy());
    }
}
