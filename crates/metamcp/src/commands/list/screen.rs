//! Servers and tools on a terminal: fitted columns, colours, the first sentence of each description. Text from servers
//! is sanitized before it is shown; plain text for programs comes from `metamcp_surface::discover`.

use std::io::{self, Write};

use anstyle::Style;
use metamcp_engine::surface::discover::Discovered;
use metamcp_types::text;
use serde_json::Value;

use crate::render::{BOLD, Cell, DIM, GREEN, RED, YELLOW, columns, plural, styled, wrapped};

const PLAIN: Style = Style::new();

/// Hits shown with their signature; the others get a line each.
const IN_FULL: usize = 5;

/// Longest first sentence.
const SENTENCE: usize = 240;

/// The servers, one per line. `knows_state`: their states are those of all there are, not only of this process.
pub(super) fn servers(
    out: &mut dyn Write,
    found: &Value,
    width: usize,
    knows_state: bool,
) -> io::Result<()> {
    let all = list(found, "servers");
    if all.is_empty() {
        return writeln!(out, "No servers are configured; `metamcp add` adds one.");
    }
    let head = |word: &str| Cell::new(word, DIM);
    let mut rows =
        vec![vec![head("server"), head("from"), head("state"), head("tools"), head("about")]];
    for server in all {
        let state = said(server, "state");
        let style = match &*state {
            "failed" => RED,
            "disabled" => YELLOW,
            "enabled" | "idle" | "active" => GREEN,
            _ => PLAIN,
        };
        let tools =
            server["tools"].as_u64().map_or_else(String::new, |count| format!("{count:>5}"));
        // Why it is unavailable matters more than what it is for.
        let (about, quiet) = match said(server, "reason") {
            reason if reason.is_empty() => (said(server, "description"), PLAIN),
            reason => (reason, DIM),
        };
        rows.push(vec![
            Cell::new(said(server, "name"), BOLD),
            Cell::new(said(server, "origin"), DIM),
            Cell::new(state, style),
            Cell::new(tools, PLAIN),
            Cell::new(about, quiet),
        ]);
    }
    columns(out, &rows, width)?;
    let runs =
        |server: &&Value| matches!(&*said(server, "state"), "idle" | "active" | "connecting");
    let running = knows_state.then(|| all.iter().filter(runs).count());
    let disabled = all.iter().filter(|server| server["state"] == "disabled").count();
    let disabled = if disabled == 0 { String::new() } else { format!(", {disabled} disabled") };
    let words = match running {
        Some(running) => format!("{}{disabled}, {running} running.", plural(all.len(), "server")),
        None => format!("{}{disabled}. Running ones are not marked.", plural(all.len(), "server")),
    };
    writeln!(out)?;
    for line in wrapped(&words, width) {
        writeln!(out, "{}", styled(DIM, &line))?;
    }
    Ok(())
}

/// Tools by server. Without a width, one line each, for programs.
pub(super) fn tools(out: &mut dyn Write, found: &Value, width: Option<usize>) -> io::Result<()> {
    let (servers, all) = (list(found, "servers"), list(found, "tools"));
    let mut is_first = true;
    for server in servers {
        let of_it: Vec<&Value> =
            all.iter().filter(|tool| tool["server"] == server["name"]).collect();
        let Some(width) = width else {
            for tool in of_it {
                writeln!(out, "{}", plain(tool))?;
            }
            continue;
        };
        if of_it.is_empty() && servers.len() > 1 {
            continue;
        }
        if !std::mem::take(&mut is_first) {
            writeln!(out)?;
        }
        let about = said(server, "description");
        let about = if about.is_empty() { about } else { format!(", {about}") };
        let state = match &*said(server, "state") {
            "disabled" => format!(", {}", said(server, "reason")),
            _ => String::new(),
        };
        let words = format!("  {}{about}{state}", plural(of_it.len(), "tool"));
        let name = said(server, "name");
        let words = text::cut(&words, width.saturating_sub(name.chars().count()));
        writeln!(out, "{}{}", styled(BOLD, &name), styled(DIM, &words))?;
        let rows: Vec<Vec<Cell>> = of_it
            .into_iter()
            .map(|tool| {
                let name = format!("  {}", said(tool, "tool"));
                vec![Cell::new(name, GREEN), Cell::new(sentence(tool), PLAIN)]
            })
            .collect();
        columns(out, &rows, width)?;
    }
    remarks(out, found, width)
}

/// The hits of a search: the best with their signatures, then the others.
pub(super) fn hits(out: &mut dyn Write, found: &Discovered, width: usize) -> io::Result<()> {
    let all = list(&found.json, "tools");
    let sure = all.first().and_then(|hit| hit["confidence"].as_f64());
    if let Some(chance) = sure.filter(|chance| *chance < f64::from(metamcp_search::search::FITS)) {
        let words = format!(
            "Nothing matches well (confidence of the first hit: {:.0}%). The nearest:",
            chance * 100.0
        );
        writeln!(out, "{}", styled(YELLOW, &words))?;
    }
    for hit in all.iter().take(IN_FULL) {
        let (id, signature) = (said(hit, "id"), said(hit, "signature"));
        let takes = signature.split_once('(').map_or("", |(_, takes)| takes);
        let takes = takes.rsplit_once(')').map_or(takes, |(takes, _)| takes);
        writeln!(out, "{}{}", styled(BOLD, &id), flag(hit))?;
        for line in wrapped(&sentence(hit), width.saturating_sub(2)) {
            writeln!(out, "  {line}")?;
        }
        if !takes.is_empty() {
            for line in wrapped(takes, width.saturating_sub(2)) {
                writeln!(out, "  {}", styled(DIM, &line))?;
            }
        }
    }
    let rest: Vec<Vec<Cell>> = all
        .iter()
        .skip(IN_FULL)
        .map(|hit| vec![Cell::new(said(hit, "id"), PLAIN), Cell::new(sentence(hit), DIM)])
        .collect();
    if !rest.is_empty() {
        writeln!(out)?;
        columns(out, &rest, width)?;
    }
    let total = found.json["total"].as_u64().unwrap_or_default();
    if total > all.len() as u64 {
        let words = format!("{} of {total}; --limit N shows more", all.len());
        writeln!(out, "{}", styled(DIM, &words))?;
    }
    if let Some(offers) = &found.offers {
        writeln!(out, "{}", styled(DIM, &text::clean(offers, usize::MAX)))?;
    }
    remarks(out, &found.json, Some(width))
}

/// Servers missing from the result, and other remarks on it.
fn remarks(out: &mut dyn Write, found: &Value, width: Option<usize>) -> io::Result<()> {
    let label = |style, word: &str| match width {
        Some(_) => styled(style, word),
        None => word.to_owned(),
    };
    if let Some(note) = found["note"].as_str() {
        writeln!(out, "{} {}", label(BOLD, "note:"), text::clean_line(note, SENTENCE))?;
    }
    for failed in list(found, "failed") {
        let (name, reason) = (said(failed, "server"), said(failed, "reason"));
        writeln!(out, "{} {name} ({reason})", label(RED, "failed:"))?;
    }
    for name in list(found, "pending").iter().filter_map(Value::as_str) {
        let name = text::clean_line(name, SENTENCE);
        writeln!(
            out,
            "{} {name} (still starting; try again in a moment)",
            label(YELLOW, "pending:")
        )?;
    }
    Ok(())
}

/// A tool on one line, independent of the terminal.
fn plain(tool: &Value) -> String {
    let sentence = sentence(tool);
    let dash = if sentence.is_empty() { "" } else { " - " };
    let (server, signature) = (said(tool, "server"), said(tool, "signature"));
    format!("{server}:{signature}{dash}{sentence}")
}

fn flag(tool: &Value) -> String {
    match said(tool, "flagged") {
        reason if reason.is_empty() => String::new(),
        reason => {
            let words = text::flag_in_words(&reason);
            format!(" {}", styled(RED, &format!("[flagged: {words}]")))
        }
    }
}

fn sentence(tool: &Value) -> String {
    let described =
        text::first_sentence(tool["description"].as_str().unwrap_or_default(), SENTENCE);
    if described.is_empty() {
        said(tool, "title")
    } else {
        text::clean_line(&described, SENTENCE).into_owned()
    }
}

fn list<'a>(found: &'a Value, key: &str) -> &'a [Value] {
    found[key].as_array().map_or(&[], Vec::as_slice)
}

/// Text from a file or a server, on one line and without escape codes.
fn said(of: &Value, key: &str) -> String {
    text::clean_line(of[key].as_str().unwrap_or_default(), usize::MAX).into_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(show: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        show(&mut out).unwrap();
        let out = anstream::adapter::strip_bytes(&out).into_vec();
        String::from_utf8(out).unwrap()
    }

    fn found() -> Value {
        let tool = |server: &str, name: &str, about: &str| {
            json!({
                "id": format!("{server}:{name}"), "server": server, "tool": name,
                "description": about, "signature": format!("{name}(path: string, head?: number)"),
                "confidence": 0.9,
            })
        };
        json!({
            "servers": [
                { "name": "files", "state": "enabled", "tools": 2, "description": "Reads\u{1b}[2J and writes files" },
                { "name": "a server with quite a long name, indeed", "state": "disabled", "reason": "environment variable GITHUB_PERSONAL_ACCESS_TOKEN is not set" },
                { "name": "broken", "state": "enabled" },
            ],
            "tools": [
                tool("files", "read_text_file", "Read the complete contents of a file from the file system as text. Handles encodings."),
                tool("files", "write", "Write.\u{202e}"),
            ],
            "total": 2, "pending": [], "note": null,
            "failed": [{ "server": "broken", "reason": "no such program" }],
        })
    }

    #[test]
    fn servers_in_columns() {
        for width in [60, 100] {
            let told = told(|out| servers(out, &found(), width, width == 60));
            insta::assert_snapshot!(format!("servers_{width}"), told);
        }
    }

    #[test]
    fn tools_by_server() {
        insta::assert_snapshot!("tools_70", told(|out| tools(out, &found(), Some(70))));
        insta::assert_snapshot!("tools_plain", told(|out| tools(out, &found(), None)));
    }

    #[test]
    fn hits_with_what_they_take() {
        let found =
            Discovered { text: String::new(), json: found(), ids: Vec::new(), offers: None };
        insta::assert_snapshot!("hits_60", told(|out| hits(out, &found, 60)));
    }
}
