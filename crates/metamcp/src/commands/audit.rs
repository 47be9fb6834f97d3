//! `metamcp audit`: the audit log, read without a daemon: tail, query, export, verify, head.
//! Owns: how lines read.      Never: writes to the log.
//! In: the files in the home.  Out: text, the lines as they are, or a table; an exit code that says whether the log is whole.
//! Tests: `tests/audit/`.

mod export;
mod verify;

use std::collections::VecDeque;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use metamcp_audit::{Filter, Kind, Line, moment};
use metamcp_engine::audit::{AuditError, Position, Reading};
use metamcp_engine::clock::unix_millis;
use metamcp_types::nearest::nearest;
use serde_json::{Value, json};

use crate::args::{AuditCommand, AuditFilterArgs, AuditHeadArgs, AuditTailArgs};
use crate::exit::{Exit, misuse};
use crate::render::{BOLD, DIM, GREEN, RED, styled, visible};

/// How often `tail -f` looks.
const LOOK: Duration = Duration::from_millis(250);

const NOTHING: &str = "Nothing was recorded yet. The audit log is on with \"audit\": { \"enabled\": true } in ~/.metamcp/mcp.json, and `metamcp daemon restart`.";

pub(crate) fn run(
    home: &Path,
    command: &AuditCommand,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    match command {
        AuditCommand::Tail(args) => tail(home, args, out),
        AuditCommand::Query(args) => {
            let filter = filter(&args.filter)?;
            let Some(reading) = reading(home, out, args.json)? else { return Ok(Exit::Success) };
            each(&reading, Position::default(), &filter, |raw, line| {
                show(out, raw, line, args.json)
            })?;
            Ok(Exit::Success)
        }
        AuditCommand::Export(args) => export::run(home, args, out),
        AuditCommand::Verify(args) => verify::run(home, args, out),
        AuditCommand::Head(args) => head(home, args, out),
    }
}

/// The log; a word instead if there is none.
fn reading(home: &Path, out: &mut dyn Write, is_quiet: bool) -> anyhow::Result<Option<Reading>> {
    let reading = Reading::of(home).map_err(told)?;
    if reading.is_none() && !is_quiet {
        writeln!(out, "{NOTHING}")?;
    }
    Ok(reading)
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn told(error: AuditError) -> anyhow::Error {
    anyhow::anyhow!("{}", error.told())
}

/// The conditions, as typed.
fn filter(args: &AuditFilterArgs) -> anyhow::Result<Filter> {
    let now = unix_millis();
    let time = |text: &Option<String>| match text {
        None => Ok(None),
        Some(text) => match moment(text, now) {
            Some(at) => Ok(Some(at)),
            None => Err(misuse(format!(
                "{} is no time: use 2026-11-18, 2026-11-18T10:00:00Z, or an age such as 15m, 2h, 7d",
                visible(text)
            ))),
        },
    };
    let kinds = args.kind.iter().map(|word| {
        Kind::from_word(word).ok_or_else(|| {
            let all = Kind::ALL.map(Kind::word);
            let near = nearest(word, all, 1);
            let hint = near.first().map(|near| format!("; did you mean {near}?"));
            let hint = hint.unwrap_or_else(|| format!("; there are {}", all.join(", ")));
            misuse(format!("there is no kind {}{hint}", visible(word)))
        })
    });
    Ok(Filter {
        since: time(&args.since)?,
        until: time(&args.until)?,
        kinds: kinds.collect::<anyhow::Result<_>>()?,
        verdicts: args.verdict.clone(),
        servers: args.server.clone(),
        tools: args.tool.clone(),
        clients: args.client.clone(),
        principals: args.principal.clone(),
        failed: args.failed,
    })
}

/// Every line behind a position that meets the conditions, as it is and as it is read.
fn each(
    reading: &Reading,
    from: Position,
    filter: &Filter,
    mut each: impl FnMut(&[u8], &Line) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut done = Ok(());
    let read = reading.lines(from, |raw| {
        if let Some(line) = Line::read(raw.bytes).filter(|line| raw.ended && filter.takes(line)) {
            done = each(raw.bytes, &line);
        }
        done.is_ok()
    });
    done.and(read.map_err(told))
}

fn tail(home: &Path, args: &AuditTailArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let filter = filter(&args.filter)?;
    let mut position = Position::default();
    if let Some(reading) = reading(home, out, args.json || args.follow)? {
        for (raw, line) in last(&reading, &filter, args.lines)? {
            show(out, &raw, &line, args.json)?;
        }
        position = reading.end();
    }
    loop {
        if !args.follow {
            return Ok(Exit::Success);
        }
        out.flush()?;
        std::thread::sleep(LOOK);
        let Some(reading) = Reading::of(home).map_err(told)? else { continue };
        // Only whole lines are passed; the rest is read again.
        let mut end = position;
        let mut done = Ok(());
        let read = reading.lines(position, |raw| {
            if end.file != raw.file.0 {
                end = Position { file: raw.file.0, bytes: 0 };
            }
            if raw.ended {
                end.bytes += raw.bytes.len() as u64 + 1;
                if let Some(line) = Line::read(raw.bytes).filter(|line| filter.takes(line)) {
                    done = show(out, raw.bytes, &line, args.json);
                }
            }
            done.is_ok()
        });
        done.and(read.map_err(told))?;
        position = end;
    }
}

/// The last lines that meet the conditions, from as few files as needed.
fn last(reading: &Reading, filter: &Filter, count: usize) -> anyhow::Result<Vec<(Vec<u8>, Line)>> {
    let mut all: VecDeque<(Vec<u8>, Line)> = VecDeque::new();
    let files: Vec<u64> = reading.files().map(|file| file.0).collect();
    for file in files.into_iter().rev() {
        let mut of_file: VecDeque<(Vec<u8>, Line)> = VecDeque::new();
        let wanted = count - all.len();
        let read = reading.lines(Position { file, bytes: 0 }, |raw| {
            if raw.file.0 != file {
                return false;
            }
            if let Some(line) = Line::read(raw.bytes).filter(|line| raw.ended && filter.takes(line))
            {
                of_file.push_back((raw.bytes.to_vec(), line));
                if of_file.len() > wanted {
                    of_file.pop_front();
                }
            }
            true
        });
        read.map_err(told)?;
        of_file.extend(all);
        all = of_file;
        if all.len() >= count {
            break;
        }
    }
    Ok(all.into())
}

/// A line, for people or as it is.
fn show(out: &mut dyn Write, raw: &[u8], line: &Line, json: bool) -> anyhow::Result<()> {
    if json {
        out.write_all(raw)?;
        writeln!(out)?;
        return Ok(());
    }
    let kind = line.0["kind"].as_str().unwrap_or("?");
    let fine = !Filter { failed: true, ..Filter::default() }.takes(line);
    let verdict = styled(if fine { GREEN } else { RED }, &visible(line.verdict()));
    let who = match line.who("client") {
        "" => line.who("principal").to_owned(),
        client => format!("{} {client}", line.who("principal")),
    };
    writeln!(
        out,
        "{} {:>6}  {}  {}  {verdict}  {}",
        styled(DIM, line.time()),
        line.seq(),
        styled(BOLD, &visible(kind)),
        visible(&subject(line)),
        styled(DIM, &visible(&who))
    )?;
    Ok(())
}

/// What a line is about, in a few words.
fn subject(line: &Line) -> String {
    let (server, tool) = (line.what("server"), line.what("tool"));
    if !tool.is_empty() {
        let took = line.0["what"]["ms"].as_f64();
        let took = took.map(|ms| format!(" in {ms:.1} ms")).unwrap_or_default();
        return format!("{server}:{tool}{took}");
    }
    let facts = line.0["what"].as_object().into_iter().flatten().map(|(name, value)| match value {
        Value::String(text) => format!("{name} {text}"),
        other => format!("{name} {other}"),
    });
    facts.collect::<Vec<_>>().join(", ")
}

fn head(home: &Path, args: &AuditHeadArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let note = reading(home, out, args.json)?.and_then(|reading| reading.note);
    match note {
        Some(note) if args.json => {
            let head = note.head;
            let told =
                json!({ "head": head.to_string(), "seq": head.seq, "hash": head.hash.to_string() });
            writeln!(out, "{told:#}")?;
        }
        Some(note) => writeln!(out, "{}", note.head)?,
        None if args.json => writeln!(out, "{:#}", json!({ "head": null }))?,
        None => {}
    }
    Ok(Exit::Success)
}
