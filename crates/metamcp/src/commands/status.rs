//! `metamcp status`: the daemon on one screen: how much goes on, its clients, the servers that run, and who uses what.
//! Owns: how it reads.      Never: starts a daemon or a server.
//! In: the daemon's own report, its traffic and last warnings.  Out: text, or the same as JSON.
//! Tests: below, `tests/config/daemon.rs` without a daemon, `tests/daemon/status.rs` with one.

use std::io::{self, Write};

use anstyle::Style;
use anyhow::bail;
use metamcp_engine::clock::unix_millis;
use metamcp_engine::download::Folder;
use metamcp_engine::history::{EventRow, Severity};
use metamcp_engine::serve::daemon_status::{
    DaemonStatus, InstanceStatus, Overview, ServerStatus, SessionStatus,
};
use metamcp_types::text;
use serde_json::{Value, json};

use super::daemon_client::{self, Absent, Admin, Answered};
use super::logs::Events;
use super::server_rows::{self, is_running};
use crate::args::{FullStatusArgs, StatusArgs};
use crate::exit::{Exit, OrMisuse};
use crate::render::{
    BOLD, Cell, DIM, GREEN, RED, YELLOW, age, columns, grouped, megabytes, micros, per_second,
    plural, styled, wrapped,
};
use crate::terminal;

const PLAIN: Style = Style::new();

/// Columns where there is no terminal: nothing is cut.
const UNBOUNDED: usize = 10_000;

/// Seconds that the traffic is of.
const SECONDS: usize = 60;
/// Warnings that are shown, of so many events that are looked through.
const WARNINGS: usize = 5;
const EVENTS: usize = 1_000;
/// The longest answer to the question whether a listener is ready.
const MAX_READY: usize = 4096;
/// From this many on, servers without a process share a line.
const RESTING: usize = 6;

/// What goes on, beside who is there.
#[derive(Debug, Clone, Default, PartialEq)]
struct Traffic {
    overview: Overview,
    /// The newest last.
    warnings: Vec<EventRow>,
}

/// The traffic of a daemon; none where it is of a version that does not tell.
fn traffic(home: &std::path::Path) -> Option<Traffic> {
    let mut admin = Admin::connect(home).ok()?.ok()?;
    let mut ask = |request: &str, params: Value| match admin.ask(request, &params).ok()? {
        Answered::Value(value) => Some(value),
        Answered::Refused(_) => None,
    };
    let overview = ask("overview", json!({ "seconds": SECONDS }))?;
    let events = ask("events", json!({ "most": EVENTS }))?;
    let Events { events, .. } = serde_json::from_value(events).ok()?;
    let is_warning = |event: &EventRow| event.severity == Severity::Warning;
    let mut warnings: Vec<EventRow> = events.into_iter().filter(is_warning).collect();
    warnings.drain(..warnings.len().saturating_sub(WARNINGS));
    Some(Traffic { overview: serde_json::from_value(overview).ok()?, warnings })
}

pub(crate) fn run(
    home: &std::path::Path,
    args: &FullStatusArgs,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    if args.metrics {
        return metrics(home, out);
    }
    if let Some(listener) = &args.listener {
        return ready(listener, out);
    }
    let args = &args.usual;
    match daemon_client::status(home)? {
        Ok(status) if args.json => {
            let mut told = running_json(&status);
            if let (Some(told), Some(traffic)) = (told.as_object_mut(), traffic(home)) {
                told.extend(traffic_json(&traffic));
            }
            writeln!(out, "{told:#}")?;
        }
        Ok(status) => show(out, &status, traffic(home).as_ref(), terminal::width())?,
        Err(absent) if args.json => writeln!(out, "{:#}", absent_json(&absent))?,
        Err(absent) => {
            writeln!(out, "{absent}")?;
            let words = "The first client starts it, and so does `metamcp call`; `metamcp list` lists your servers.";
            writeln!(out, "{}", styled(DIM, words))?;
        }
    }
    Ok(Exit::Success)
}

/// `metamcp status --listener`: for a container, which may have no other program that could ask.
fn ready(listener: &str, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let listener = Folder::parse(listener).or_misuse()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let asked = runtime.block_on(listener.fetch("readyz", MAX_READY));
    if let Err(error) = asked {
        writeln!(out, "not ready: {:#}", anyhow::Error::new(error))?;
        return Ok(Exit::Unavailable);
    }
    writeln!(out, "ready")?;
    Ok(Exit::Success)
}

/// `metamcp status --metrics`: for a scraper that cannot connect, because nothing listens on HTTP.
fn metrics(home: &std::path::Path, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let mut admin = match Admin::connect(home)? {
        Ok(admin) => admin,
        Err(absent) => bail!("{absent}; the first client starts the daemon"),
    };
    match admin.ask("metrics", &Value::Null)? {
        Answered::Value(answer) => {
            write!(out, "{}", answer["text"].as_str().unwrap_or_default())?;
            Ok(Exit::Success)
        }
        Answered::Refused(refused) => bail!("{refused}"),
    }
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

fn traffic_json(traffic: &Traffic) -> serde_json::Map<String, Value> {
    let Traffic { overview, warnings } = traffic;
    let (calls, failed) = sums(overview);
    let told = json!({
        "traffic": {
            "calls": overview.calls,
            "searches": overview.searches,
            "seconds": overview.rates.len(),
            "callsInThem": calls,
            "failedInThem": failed,
            "p50Us": overview.p50_us,
            "p99Us": overview.p99_us,
        },
        "pool": overview.pool,
        "serverCalls": overview.server_calls,
        "warnings": warnings,
    });
    if let Value::Object(told) = told { told } else { serde_json::Map::new() }
}

/// Calls and failures of the last seconds.
fn sums(overview: &Overview) -> (u64, u64) {
    overview
        .rates
        .iter()
        .fold((0, 0), |(calls, failed), one| (calls + u64::from(one.0), failed + u64::from(one.1)))
}

fn show(
    out: &mut dyn Write,
    status: &DaemonStatus,
    traffic: Option<&Traffic>,
    width: Option<usize>,
) -> io::Result<()> {
    head(out, status, width)?;
    if let Some(traffic) = traffic {
        going_on(out, &traffic.overview)?;
    }
    broken(out, status)?;
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
    servers(out, status, traffic, width)?;
    match traffic {
        Some(traffic) if !traffic.warnings.is_empty() => {
            writeln!(out)?;
            warnings(out, &traffic.warnings, unix_millis(), width)
        }
        _ => Ok(()),
    }
}

/// How much was called lately, how long it took, how full the pool is.
fn going_on(out: &mut dyn Write, overview: &Overview) -> io::Result<()> {
    let (calls, failed) = sums(overview);
    let seconds = overview.rates.len().max(1) as f64;
    let mut facts = vec![format!(
        "{} since it started, {} a second in the last minute",
        if overview.calls == 1 {
            "1 call".to_owned()
        } else {
            format!("{} calls", grouped(overview.calls))
        },
        per_second(calls as f64 / seconds)
    )];
    if failed > 0 {
        facts.push(styled(RED, &format!("{} failed", grouped(failed))));
    }
    if let (Some(p50), Some(p99)) = (overview.p50_us, overview.p99_us) {
        facts.push(format!("p50 {}, p99 {}", micros(p50), micros(p99)));
    }
    writeln!(out, "{}", facts.join(", "))?;
    let pool = overview.pool;
    if pool.size > 0 {
        let waiting = match pool.waiting {
            0 => String::new(),
            waiting => styled(
                YELLOW,
                &format!(", {} waiting for a place", plural(waiting as usize, "server")),
            ),
        };
        writeln!(out, "pool: {} of {} places in use{waiting}", pool.used, pool.size)?;
    }
    Ok(())
}

/// Servers whose circuit breaker refuses calls.
fn broken(out: &mut dyn Write, status: &DaemonStatus) -> io::Result<()> {
    let open: Vec<String> = status
        .servers
        .iter()
        .filter(|server| matches!(&*server.breaker, "open" | "probing"))
        .map(|server| said(&server.name))
        .collect();
    if open.is_empty() {
        return Ok(());
    }
    let hint = "`metamcp logs NAME` shows why, `metamcp restart NAME` closes it";
    writeln!(
        out,
        "{} {}  {}",
        styled(RED, "circuit breaker open:"),
        open.join(", "),
        styled(DIM, hint)
    )
}

fn servers(
    out: &mut dyn Write,
    status: &DaemonStatus,
    traffic: Option<&Traffic>,
    width: usize,
) -> io::Result<()> {
    if status.servers.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    let label = |word: &str| Cell::new(word, DIM);
    let mut titles = vec![
        label("server"),
        label("shared by"),
        label("state"),
        label("process"),
        label("memory"),
    ];
    titles.extend(traffic.map(|_| label("calls")));
    titles.push(label("used by"));
    let mut all = status.servers.clone();
    server_rows::by_importance(&mut all);
    let is_resting = |server: &&ServerStatus| {
        server.instances.is_empty()
            && server.queued == 0
            && !matches!(&*server.breaker, "open" | "probing")
    };
    let resting: Vec<String> =
        all.iter().filter(is_resting).map(|server| said(&server.name)).collect();
    let shares_line = resting.len() >= RESTING;
    let mut rows = vec![titles];
    for server in all.iter().filter(|server| !shares_line || !is_resting(server)) {
        let calls = traffic.map(|traffic| calls_of(server, &traffic.overview));
        if server.instances.is_empty() {
            rows.push(resting_row(server, calls.clone()));
        }
        rows.extend(server.instances.iter().enumerate().map(|(at, one)| {
            // They are counted for all of its processes together.
            let calls =
                calls.as_ref().map(|calls| if at == 0 { calls.clone() } else { Cell::default() });
            instance(server, one, status, calls)
        }));
    }
    if rows.len() > 1 {
        columns(out, &rows, width)?;
    }
    if shares_line {
        let line = format!("not running: {}", resting.join(", "));
        wrapped(&line, width).iter().try_for_each(|line| writeln!(out, "{}", styled(DIM, line)))?;
    }
    Ok(())
}

fn calls_of(server: &ServerStatus, overview: &Overview) -> Cell {
    let known = overview.server_calls.iter().find(|one| one.name == server.name);
    match known.map_or((0, 0), |one| (one.calls, one.failed)) {
        (0, _) => Cell::default(),
        (calls, 0) => Cell::new(grouped(calls), PLAIN),
        (calls, failed) => {
            Cell::new(format!("{}, {} failed", grouped(calls), grouped(failed)), YELLOW)
        }
    }
}

fn warnings(out: &mut dyn Write, all: &[EventRow], now_ms: u64, width: usize) -> io::Result<()> {
    let mut rows = vec![vec![Cell::new("last warnings", DIM)]];
    rows.extend(all.iter().rev().map(|event| {
        vec![
            Cell::new(format!("{} ago", age(now_ms.saturating_sub(event.at_ms))), DIM),
            Cell::new(event.server.as_deref().map(said).unwrap_or_default(), BOLD),
            Cell::new(said(&event.words), PLAIN),
        ]
    }));
    columns(out, &rows, width)
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
    if let Some(audit) = &status.audit {
        more.push(match &audit.failing {
            None => format!("audit log: {} written", plural(audit.lines as usize, "line")),
            Some(why) => format!("audit log: CANNOT BE WRITTEN: {}", said(why)),
        });
        if audit.lost > 0 {
            more.push(format!(
                "audit log: {} could not be recorded",
                plural(audit.lost as usize, "event")
            ));
        }
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
fn resting_row(server: &ServerStatus, calls: Option<Cell>) -> Vec<Cell> {
    let state = match server.queued {
        0 => "not running".to_owned(),
        queued => format!("not running, {} waiting", plural(queued as usize, "call")),
    };
    let mut cells = vec![
        Cell::new(said(&server.name), BOLD),
        Cell::new(said(&server.scope), DIM),
        Cell::new(state, DIM),
    ];
    if let Some(calls) = calls.filter(|calls| !calls.text.is_empty()) {
        cells.extend([Cell::default(), Cell::default(), calls]);
    }
    cells
}

fn instance(
    server: &ServerStatus,
    one: &InstanceStatus,
    status: &DaemonStatus,
    calls: Option<Cell>,
) -> Vec<Cell> {
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
    let mut cells = vec![
        Cell::new(said(&server.name), BOLD),
        Cell::new(scope, DIM),
        Cell::new(format!("{}{open}", said(&one.state)), style),
        Cell::new(one.pid.map(|pid| pid.to_string()).unwrap_or_default(), PLAIN),
        Cell::new(one.memory_bytes.map(megabytes).unwrap_or_default(), PLAIN),
    ];
    cells.extend(calls);
    cells.push(last);
    cells
}

/// Text of clients and servers on one line, without escape codes.
fn said(words: &str) -> String {
    text::clean_line(words, usize::MAX).into_owned()
}

#[cfg(test)]
mod tests {
    use metamcp_engine::serve::daemon_status::{PoolUse, ServerCalls};

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
            instances,
            ..ServerStatus::default()
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
        with_traffic(status, None, width)
    }

    fn with_traffic(
        status: &DaemonStatus,
        traffic: Option<&Traffic>,
        width: Option<usize>,
    ) -> String {
        let mut out = Vec::new();
        show(&mut out, status, traffic, width).unwrap();
        let out = anstream::adapter::strip_bytes(&out).into_vec();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_whole_on_a_screen() {
        insta::assert_snapshot!("status_100", told(&busy(), Some(100)));
        insta::assert_snapshot!("status_plain", told(&busy(), None));
    }

    fn traffic() -> Traffic {
        let calls = |name: &str, calls, failed| ServerCalls {
            name: name.to_owned(),
            calls,
            failed,
            ..ServerCalls::default()
        };
        let warning = EventRow {
            at_ms: unix_millis().saturating_sub(3_600_000),
            severity: Severity::Warning,
            server: Some("broken".to_owned()),
            words: "the circuit breaker opened: calls are refused for a while".to_owned(),
            ..EventRow::default()
        };
        Traffic {
            overview: Overview {
                rates: vec![(30, 1, 900); 60],
                p50_us: Some(1_230),
                p99_us: Some(41_000),
                calls: 12_345,
                server_calls: vec![calls("github", 12_000, 0), calls("broken", 345, 60)],
                pool: PoolUse { used: 4, size: 20, waiting: 1 },
                ..Overview::default()
            },
            warnings: vec![warning],
        }
    }

    #[test]
    fn traffic_breakers_and_warnings_are_on_the_screen() {
        let mut status = busy();
        status.servers[2].breaker = "open".to_owned();
        let many = (0..8).map(|number| ServerStatus {
            name: format!("resting-{number}"),
            ..ServerStatus::default()
        });
        status.servers.extend(many);
        insta::assert_snapshot!(
            "status_traffic",
            with_traffic(&status, Some(&traffic()), Some(100))
        );
        let told = traffic_json(&traffic());
        assert_eq!(told["traffic"]["callsInThem"], 1_800);
        assert_eq!(told["warnings"][0]["server"], "broken");
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
