//! `metamcp calls`: the last calls of all clients, as they come, and one of them in detail.
//! Owns: how rows read, filters as the API has them.      Never: keeps a call.
//! In: rows of the admin API.  Out: text or JSON.
//! Tests: below, `calls/timeline.rs`, `tests/daemon/calls.rs`.

mod timeline;

use std::io::{self, Write};
use std::path::Path;

use anstyle::Style;
use console::measure_text_width;
use metamcp_engine::clock::unix_millis;
use metamcp_engine::history::{CallDetail, CallRow, Outcome};
use metamcp_types::text;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::daemon_client::{Admin, Answered};
use super::live::{self, Heard, LOOK, Live, Watch};
use crate::args::{CallsArgs, CallsCommand, CallsFilter, CallsShowArgs};
use crate::exit::{Exit, misuse};
use crate::render::{BOLD, Cell, DIM, GREEN, RED, YELLOW, columns, grouped, micros, styled};
use crate::{local_time, terminal};

const PLAIN: Style = Style::new();

/// Columns where there is no terminal: nothing is cut.
const UNBOUNDED: usize = 10_000;

/// Rows that are asked for at once while they are followed: as many as the API gives.
const MOST: usize = 1_000;

/// Least widths of columns.
const LEAST: [usize; 5] = [8, 5, 15, 9, 32];

/// Some rows, and the number to go on after.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Page {
    calls: Vec<CallRow>,
    last: u64,
    skipped: u64,
}

pub(crate) fn run(home: &Path, args: &CallsArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    match &args.command {
        Some(CallsCommand::Show(args)) => show(home, *args, out),
        None => list(home, &args.filter, out),
    }
}

fn list(home: &Path, args: &CallsFilter, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let mut live = match Live::open(home)? {
        Ok(live) => live,
        Err(absent) => return Ok(live::absent(&absent, args.json, out)?),
    };
    let page: Page = match live.ask("calls", &params(args, 0, args.lines))? {
        Heard::Answer(page) => page,
        Heard::Refused(refused) => anyhow::bail!("{refused}"),
        Heard::Gone => anyhow::bail!("the daemon has ended"),
    };
    if args.follow {
        return follow(live, args, &page, out);
    }
    if args.json {
        writeln!(out, "{:#}", serde_json::to_value(page)?)?;
    } else if page.calls.is_empty() {
        writeln!(out, "{}", nothing(args, page.last))?;
    } else {
        header(out)?;
        rows(out, &page.calls)?;
    }
    Ok(Exit::Success)
}

fn follow(
    mut live: Live<'_>,
    args: &CallsFilter,
    first: &Page,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let mut watch = Watch::new(&live);
    let mut last = first.last;
    if !args.json {
        header(out)?;
    }
    print(out, args, first)?;
    loop {
        out.flush()?;
        std::thread::sleep(LOOK);
        match live.ask::<Page>("calls", &params(args, last, MOST))? {
            Heard::Answer(page) if watch.is_another(&live)? => {
                // Its numbers begin anew, so what it has is asked for from the beginning.
                last = 0;
                drop(page);
            }
            Heard::Answer(page) => {
                print(out, args, &page)?;
                last = page.last;
            }
            Heard::Refused(refused) => anyhow::bail!("{refused}"),
            Heard::Gone => watch.gone()?,
        }
    }
}

fn print(out: &mut dyn Write, args: &CallsFilter, page: &Page) -> anyhow::Result<()> {
    if page.skipped > 0 && args.json {
        writeln!(out, "{}", json!({ "skipped": page.skipped }))?;
    } else if page.skipped > 0 {
        live::say(&format!("{} calls in between are not shown.", grouped(page.skipped)))?;
    }
    if args.json {
        for row in &page.calls {
            writeln!(out, "{}", serde_json::to_string(row)?)?;
        }
        return Ok(());
    }
    Ok(rows(out, &page.calls)?)
}

fn params(args: &CallsFilter, after: u64, most: usize) -> Value {
    json!({
        "after": after,
        "most": most,
        "server": args.server,
        "tool": args.tool,
        "session": args.session,
        "failed": args.failed,
        "slowerThanMs": args.slow.map(|least| u64::try_from(least.as_millis()).unwrap_or(u64::MAX)),
    })
}

/// Why the list is empty.
fn nothing(args: &CallsFilter, seen: u64) -> String {
    let is_filtered = args.failed
        || args.slow.is_some()
        || args.server.is_some()
        || args.tool.is_some()
        || args.session.is_some();
    match seen {
        0 => "No calls yet.".to_owned(),
        _ if is_filtered => "None of the calls that are kept is like that.".to_owned(),
        _ => "No calls.".to_owned(),
    }
}

fn header(out: &mut dyn Write) -> io::Result<()> {
    let words = ["ended", "    #", "outcome", "     took", "tool", "client"];
    line(out, words.map(|word| Cell::new(word, DIM)).to_vec())
}

fn rows(out: &mut dyn Write, rows: &[CallRow]) -> io::Result<()> {
    let now = unix_millis();
    rows.iter().try_for_each(|row| line(out, cells(row, now)))
}

/// Columns of a fixed least width, so that rows that come one by one line up.
fn line(out: &mut dyn Write, mut cells: Vec<Cell>) -> io::Result<()> {
    for (cell, least) in cells.iter_mut().zip(LEAST) {
        let missing = least.saturating_sub(measure_text_width(&cell.text));
        cell.text.push_str(&" ".repeat(missing));
    }
    columns(out, &[cells], terminal::width().unwrap_or(UNBOUNDED))
}

fn cells(row: &CallRow, now_ms: u64) -> Vec<Cell> {
    let mut by = said(row.client.split(' ').next().unwrap_or_default());
    if by.is_empty() {
        by = said(&row.origin).replace('_', " ");
    }
    if let Some(script) = row.script {
        by.push_str(&format!(", script {script}"));
    }
    if row.attempts > 1 {
        by.push_str(&format!(", sent {} times", row.attempts));
    }
    let (word, style) = outcome(row);
    vec![
        Cell::new(local_time::moment(row.at_ms, now_ms), DIM),
        Cell::new(format!("{:>5}", row.id), PLAIN),
        Cell::new(word, style),
        Cell::new(format!("{:>9}", micros(row.took_us)), PLAIN),
        Cell::new(format!("{}:{}", said(&row.server), said(&row.tool)), BOLD),
        Cell::new(by, DIM),
    ]
}

/// How a call ended, in a word and its colour.
pub(crate) fn outcome(row: &CallRow) -> (String, Style) {
    match row.outcome {
        Outcome::Ok => ("ok".to_owned(), GREEN),
        Outcome::ToolError => ("tool error".to_owned(), YELLOW),
        Outcome::Failed => (said(&row.verdict), RED),
        Outcome::Other => (said(&row.verdict).replace('_', " "), DIM),
    }
}

fn show(home: &Path, args: CallsShowArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let mut admin = match Admin::connect(home)? {
        Ok(admin) => admin,
        Err(absent) => return Ok(live::absent(&absent, args.json, out)?),
    };
    match admin.ask("call", &json!({ "id": args.id }))? {
        Answered::Value(value) if args.json => writeln!(out, "{value:#}")?,
        Answered::Value(value) => {
            let detail: CallDetail = serde_json::from_value(value)?;
            timeline::show(out, &detail, unix_millis(), terminal::width())?;
        }
        Answered::Refused(refused) if refused.code == "not_found" => {
            return Err(misuse(refused.to_string()));
        }
        Answered::Refused(refused) => anyhow::bail!("{refused}"),
    }
    Ok(Exit::Success)
}

/// Text of clients and servers on one line, without escape codes.
fn said(words: &str) -> String {
    text::clean_line(words, usize::MAX).into_owned()
}

/// A title and a sentence in dim letters.
fn titled(out: &mut dyn Write, title: &str, rest: &str) -> io::Result<()> {
    writeln!(out, "{}  {rest}", styled(BOLD, title))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: u64, outcome: Outcome, verdict: &str) -> CallRow {
        CallRow {
            id,
            at_ms: 5,
            server: "git\u{1b}[2Jhub".to_owned(),
            tool: "search".to_owned(),
            origin: "mcp_call".to_owned(),
            client: "claude-code 2.0.1".to_owned(),
            outcome,
            verdict: verdict.to_owned(),
            took_us: 12_345,
            attempts: 1,
            ..CallRow::default()
        }
    }

    #[test]
    fn rows_line_up_one_by_one() {
        let all = [
            row(7, Outcome::Ok, "ok"),
            CallRow {
                attempts: 2,
                script: Some(3),
                ..row(12_345, Outcome::Failed, "circuit_open")
            },
            CallRow { client: String::new(), ..row(9, Outcome::ToolError, "tool_error") },
            row(10, Outcome::Other, "input_required"),
        ];
        let mut out = Vec::new();
        for row in &all {
            line(&mut out, cells(row, 6)).unwrap();
        }
        let told = String::from_utf8(anstream::adapter::strip_bytes(&out).into_vec()).unwrap();
        assert!(!told.contains('\u{1b}'));
        let at: Vec<_> = told.lines().map(|line| line.find("12 ms").unwrap()).collect();
        assert!(at.iter().all(|one| *one == at[0]), "{told}");
        assert!(told.contains("claude-code, script 3, sent 2 times"), "{told}");
        assert!(told.contains("mcp call"), "{told}");
    }

    #[test]
    fn an_empty_list_says_why() {
        let all = CallsFilter::default();
        assert_eq!(nothing(&all, 0), "No calls yet.");
        let failed = CallsFilter { failed: true, ..CallsFilter::default() };
        assert_eq!(nothing(&failed, 3), "None of the calls that are kept is like that.");
        assert_eq!(params(&failed, 7, 9)["after"], 7);
    }
}
