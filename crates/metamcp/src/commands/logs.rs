//! `metamcp logs`: stderr of a server's processes, or what happened in the gateway.
//! Owns: how lines and events read, which process a line is of.      Never: reads the daemon's own log (`daemon logs` does).
//! In: lines and events of the admin API.  Out: text or JSON.
//! Tests: below, `tests/daemon/calls.rs`.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use anstyle::Style;
use metamcp_config::settings::Given;
use metamcp_engine::clock::unix_millis;
use metamcp_engine::history::{EventRow, Severity};
use metamcp_types::text;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::live::{self, Heard, LOOK, Live, Watch};
use super::restart::{self, NotInUse};
use crate::args::LogsArgs;
use crate::exit::Exit;
use crate::local_time;
use crate::render::{BOLD, DIM, YELLOW, grouped, styled, visible};

/// Rows that are asked for at once while they are followed: as many as the API gives.
const MOST: usize = 1_000;

/// What servers wrote, by process.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Logs {
    pub(crate) server: String,
    pub(crate) instances: Vec<ProcessLog>,
}

/// What one process wrote.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ProcessLog {
    pub(crate) instance: String,
    /// None where it has ended.
    pub(crate) pid: Option<u32>,
    pub(crate) lines: Vec<String>,
    /// The number of bytes to go on after.
    pub(crate) last: u64,
    /// Whether lines before these are missing.
    pub(crate) cut: bool,
}

/// Some events.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Events {
    pub(crate) events: Vec<EventRow>,
    pub(crate) last: u64,
}

pub(crate) fn run(
    home: &Path,
    given: Vec<Given>,
    args: &LogsArgs,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let live = match Live::open(home)? {
        Ok(live) => live,
        Err(absent) => return Ok(live::absent(&absent, args.json, out)?),
    };
    match &args.server {
        Some(server) => of_server(live, server, given, args, out),
        None => of_gateway(live, args, out),
    }
}

fn of_gateway(mut live: Live<'_>, args: &LogsArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let mut watch = Watch::new(&live);
    let (mut last, mut most, mut is_first) = (0, args.lines, true);
    loop {
        match live.ask::<Events>("events", &json!({ "after": last, "most": most }))? {
            Heard::Answer(_) if watch.is_another(&live)? => {
                last = 0;
                continue;
            }
            Heard::Answer(page) if !args.follow => {
                return all_events(&page, args, out);
            }
            Heard::Answer(page) => {
                let skipped = if is_first { 0 } else { missing(&page, last) };
                say_skipped(skipped, "events", args.json, out)?;
                for event in &page.events {
                    if args.json {
                        writeln!(out, "{}", serde_json::to_string(event)?)?;
                    } else {
                        write_event(out, event, unix_millis())?;
                    }
                }
                (last, most, is_first) = (page.last, MOST, false);
            }
            Heard::Refused(refused) => anyhow::bail!("{refused}"),
            Heard::Gone if !args.follow => anyhow::bail!("the daemon has ended"),
            Heard::Gone => watch.gone()?,
        }
        out.flush()?;
        std::thread::sleep(LOOK);
    }
}

fn all_events(page: &Events, args: &LogsArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    if args.json {
        writeln!(out, "{:#}", serde_json::to_value(page)?)?;
    } else if page.events.is_empty() {
        writeln!(out, "Nothing has happened yet.")?;
    } else {
        let now = unix_millis();
        page.events.iter().try_for_each(|event| write_event(out, event, now))?;
    }
    Ok(Exit::Success)
}

/// How many events came that are not among the answer's: the oldest of too many.
fn missing(page: &Events, after: u64) -> u64 {
    let first = page.events.first().map_or(page.last + 1, |event| event.number);
    first.saturating_sub(after + 1)
}

fn say_skipped(count: u64, what: &str, json: bool, out: &mut dyn Write) -> io::Result<()> {
    match count {
        0 => Ok(()),
        count if json => writeln!(out, "{}", json!({ "skipped": count })),
        count => live::say(&format!("{} {what} in between are not shown.", grouped(count))),
    }
}

fn write_event(out: &mut dyn Write, event: &EventRow, now_ms: u64) -> io::Result<()> {
    let style = match event.severity {
        Severity::Warning => YELLOW,
        Severity::Info => Style::new(),
    };
    let server = event.server.as_deref().map(said).unwrap_or_default();
    let (at, words) = (local_time::moment(event.at_ms, now_ms), said(&event.words));
    writeln!(out, "{}  {}  {}", styled(DIM, &at), styled(BOLD, &server), styled(style, &words))
}

fn of_server(
    mut live: Live<'_>,
    server: &str,
    given: Vec<Given>,
    args: &LogsArgs,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let mut watch = Watch::new(&live);
    let mut reader = Reader::default();
    let mut most = args.lines;
    // Only at first: later it may be in use, and then not any more.
    let mut given = Some(given);
    loop {
        match live.ask::<Logs>("logs", &reader.params(server, most))? {
            Heard::Answer(_) if watch.is_another(&live)? => {
                reader = Reader::default();
                continue;
            }
            Heard::Answer(logs) if !args.follow => return all_lines(&logs, args, out),
            Heard::Answer(logs) => {
                for (mark, lines) in reader.read(&logs) {
                    if lines.cut && !reader.is_first {
                        live::say(&format!(
                            "Lines of {} in between are not shown.",
                            visible(server)
                        ))?;
                    }
                    write_lines(out, &mark, lines, args.json)?;
                }
                (reader.is_first, most, given) = (false, MOST, None);
            }
            Heard::Refused(refused) => {
                if let Some(given) = given.take() {
                    let NotInUse = restart::unknown(server, given, &refused)?;
                    not_started(server, args, out)?;
                }
                if !args.follow {
                    return Ok(Exit::Success);
                }
                reader.is_first = false;
                most = MOST;
            }
            Heard::Gone if !args.follow => anyhow::bail!("the daemon has ended"),
            Heard::Gone => watch.gone()?,
        }
        out.flush()?;
        std::thread::sleep(LOOK);
    }
}

fn not_started(server: &str, args: &LogsArgs, out: &mut dyn Write) -> io::Result<()> {
    match (args.json, args.follow) {
        (true, true) => Ok(()),
        (true, false) => {
            writeln!(out, "{:#}", json!({ "server": server, "instances": [] }))
        }
        (false, follow) => {
            let rest = if follow { "; waiting" } else { "" };
            let words = format!("{} has not been started{rest}.", visible(server));
            if follow { live::say(&words) } else { writeln!(out, "{words}") }
        }
    }
}

fn all_lines(logs: &Logs, args: &LogsArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    if args.json {
        writeln!(out, "{:#}", serde_json::to_value(logs)?)?;
        return Ok(Exit::Success);
    }
    let server = visible(&logs.server);
    if logs.instances.is_empty() {
        writeln!(out, "{server} has not been started.")?;
    } else if logs.instances.iter().all(|one| one.lines.is_empty()) {
        writeln!(out, "{server} has written nothing to stderr.")?;
    }
    for (mark, lines) in Reader::default().read(logs) {
        write_lines(out, &mark, lines, false)?;
    }
    Ok(Exit::Success)
}

/// Where the lines of each process were read to, and how processes are told apart.
#[derive(Debug)]
pub(crate) struct Reader {
    after: BTreeMap<String, u64>,
    /// Nothing has been printed yet.
    is_first: bool,
    /// The process of each instance, also after it has ended.
    pids: BTreeMap<String, u32>,
    /// From the second process on, lines say whose they are.
    is_marked: bool,
}

impl Default for Reader {
    fn default() -> Reader {
        Reader { after: BTreeMap::new(), is_first: true, pids: BTreeMap::new(), is_marked: false }
    }
}

impl Reader {
    pub(crate) fn params(&self, server: &str, most: usize) -> Value {
        json!({ "server": server, "after": self.after, "most": most })
    }

    /// Each process with new lines, and the mark in front of them. What is gone is forgotten.
    pub(crate) fn read<'a>(&mut self, logs: &'a Logs) -> Vec<(String, &'a ProcessLog)> {
        let known = self.after.len().max(logs.instances.len());
        self.is_marked |= known > 1 || self.after.keys().any(|key| !is_among(key, logs));
        self.after = logs.instances.iter().map(|one| (one.instance.clone(), one.last)).collect();
        self.pids.retain(|key, _| is_among(key, logs));
        for one in &logs.instances {
            self.pids.extend(one.pid.map(|pid| (one.instance.clone(), pid)));
        }
        let new = logs.instances.iter().filter(|one| !one.lines.is_empty());
        new.map(|one| (self.mark(one), one)).collect()
    }

    fn mark(&self, one: &ProcessLog) -> String {
        if !self.is_marked {
            return String::new();
        }
        match self.pids.get(&one.instance) {
            Some(pid) => format!("[{pid}] "),
            None => format!("[ended, {}] ", visible(&one.instance)),
        }
    }
}

fn is_among(key: &str, logs: &Logs) -> bool {
    logs.instances.iter().any(|one| one.instance == key)
}

fn write_lines(out: &mut dyn Write, mark: &str, lines: &ProcessLog, json: bool) -> io::Result<()> {
    for line in &lines.lines {
        let line = said(line);
        if json {
            let told = json!({ "instance": lines.instance, "pid": lines.pid, "line": line });
            writeln!(out, "{told}")?;
        } else {
            writeln!(
                out,
                "{}{line}",
                if mark.is_empty() { String::new() } else { styled(DIM, mark) }
            )?;
        }
    }
    Ok(())
}

/// Text of servers on one line, without escape codes.
fn said(words: &str) -> String {
    text::clean_line(words, usize::MAX).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logs(all: &[(&str, Option<u32>, &[&str], u64)]) -> Logs {
        let instances = all.iter().map(|(instance, pid, lines, last)| ProcessLog {
            instance: (*instance).to_owned(),
            pid: *pid,
            lines: lines.iter().map(|line| (*line).to_owned()).collect(),
            last: *last,
            cut: false,
        });
        Logs { server: "s".to_owned(), instances: instances.collect() }
    }

    fn read(reader: &mut Reader, logs: &Logs) -> Vec<String> {
        let all = reader.read(logs);
        all.iter()
            .flat_map(|(mark, one)| one.lines.iter().map(move |line| format!("{mark}{line}")))
            .collect()
    }

    #[test]
    fn lines_say_whose_they_are_once_there_are_several_processes() {
        let mut reader = Reader::default();
        assert_eq!(read(&mut reader, &logs(&[("1-5", Some(10), &["a"], 2)])), ["a"]);
        assert_eq!(reader.params("s", 9)["after"]["1-5"], 2);
        // It ended, and said something before.
        assert_eq!(read(&mut reader, &logs(&[("1-5", None, &["b"], 4)])), ["b"]);
        // The next process of the same instance.
        assert_eq!(read(&mut reader, &logs(&[("1-9", Some(11), &["c"], 2)])), ["[11] c"]);
        assert_eq!(reader.params("s", 9)["after"].as_object().unwrap().len(), 1);
        let both = logs(&[("1-9", None, &["d"], 4), ("2-1", Some(12), &["e"], 2)]);
        assert_eq!(read(&mut reader, &both), ["[11] d", "[12] e"]);
        let mut at_once = Reader::default();
        assert_eq!(read(&mut at_once, &both), ["[ended, 1-9] d", "[12] e"]);
    }

    #[test]
    fn events_that_came_too_fast_are_counted() {
        let event = |number| EventRow { number, ..EventRow::default() };
        let page = Events { events: vec![event(8), event(9)], last: 9 };
        assert_eq!((missing(&page, 7), missing(&page, 4)), (0, 3));
        assert_eq!(missing(&Events { events: Vec::new(), last: 4 }, 4), 0);
    }

    #[test]
    fn events_are_lines() {
        let event = EventRow {
            at_ms: 5,
            severity: Severity::Warning,
            server: Some("a\u{1b}[2Jb".to_owned()),
            words: "failed\u{7}".to_owned(),
            ..EventRow::default()
        };
        let mut out = Vec::new();
        write_event(&mut out, &event, 6).unwrap();
        let told = String::from_utf8(anstream::adapter::strip_bytes(&out).into_vec()).unwrap();
        assert!(told.ends_with("  failed\n") && !told.contains('\u{1b}'), "{told:?}");
    }
}
