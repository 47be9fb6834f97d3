//! Responses as text: few tokens, one line where one will do, and every text of a server marked or indented.

use serde_json::{Value, json};

use super::{Detail, DiscoverRequest, DiscoverResponse, FITS, ServerLine};
use crate::direct;
use metamcp_search::search::Hit;
use metamcp_tools::names;
use metamcp_tools::tool::Tool;
use metamcp_types::next::{Audience, Next};
use metamcp_types::strategy::Strategy;
use metamcp_types::text;

/// Hits shown in full before the rest gets one line each.
const IN_FULL: usize = 5;

/// Longest first sentence of a hit in full, and of a hit on one line.
const FULL_SENTENCE: usize = 240;
const LINE_SENTENCE: usize = 100;

/// Longest sentence about a parameter of a tool in full, and the most of them.
const PARAMETER_SENTENCE: usize = 100;
const MAX_PARAMETERS: usize = 12;

/// Longest signature of a hit on one line.
const LINE_SIGNATURE: usize = 120;

/// Longest description of a server.
const SERVER_DESCRIPTION: usize = 120;

/// Longest reason for a failure: it may quote a process's stderr.
const REASON: usize = 400;

/// Largest schema shown among several hits; a tool requested by name shows its whole schema.
const LISTED_SCHEMA_BYTES: usize = 8 * 1024;

/// The answer as a model reads it.
pub fn to_text(request: &DiscoverRequest, answer: &DiscoverResponse<'_>) -> String {
    let mut out = String::new();
    if request.tool.is_some() {
        for hit in answer.hits {
            tool_in_full(&mut out, hit, request.detail);
        }
    } else if let Some(query) = &request.query {
        if answer.hits.is_empty() {
            nothing_found(&mut out, query, request, answer);
        }
        doubt(&mut out, request, answer);
        for (index, hit) in answer.hits.iter().enumerate() {
            if index < IN_FULL && request.offset == 0 {
                hit_in_full(&mut out, hit, request.detail);
            } else {
                hit_on_a_line(&mut out, hit, request.detail);
            }
        }
    } else if request.server.is_some() {
        answer.servers.iter().for_each(|server| server_line(&mut out, server, answer.audience));
        for hit in answer.hits {
            if request.detail == Detail::Schema {
                hit_in_full(&mut out, hit, request.detail);
            } else {
                hit_on_a_line(&mut out, hit, request.detail);
            }
        }
    } else {
        answer.servers.iter().for_each(|server| server_line(&mut out, server, answer.audience));
        if answer.servers.is_empty() {
            out.push_str("no servers are configured\n");
        }
    }
    footer(&mut out, request, answer);
    out.truncate(out.trim_end().len());
    out
}

/// The same answer for programs.
pub fn to_json(request: &DiscoverRequest, answer: &DiscoverResponse<'_>) -> Value {
    let server = |server: &ServerLine<'_>| {
        json!({
            "name": server.name,
            "origin": server.origin,
            "state": server.state.word(answer.audience),
            "reason": server.reason.map(|reason| text::clean_line(reason, REASON)),
            "tools": server.tools,
            "description": server.description.map(|words| text::clean_line(words, SERVER_DESCRIPTION)),
        })
    };
    let failed = answer.failed.iter().map(
        |failed| json!({"server": failed.name, "reason": text::clean_line(failed.reason, REASON)}),
    );
    json!({
        "servers": answer.servers.iter().map(server).collect::<Vec<_>>(),
        "tools": answer.hits.iter().map(|hit| hit_json(hit, request.detail)).collect::<Vec<_>>(),
        "total": answer.total,
        "nextCursor": answer.next_cursor,
        "pending": answer.pending,
        "failed": failed.collect::<Vec<_>>(),
        "note": answer.note,
        "strategy": answer.strategy.map(Strategy::name),
    })
}

fn hit_json(hit: &Hit, detail: Detail) -> Value {
    let tool = hit.tool();
    let mut value = json!({
        "id": hit.id(),
        "server": &*hit.server,
        "tool": &*tool.name,
        "title": tool.title,
        "description": &*tool.description,
        "signature": tool.signature(),
        "readOnly": tool.hints.read_only,
        "destructive": tool.hints.destructive,
        "idempotent": tool.hints.idempotent,
        "openWorld": tool.hints.open_world,
        "flagged": tool.flag(),
        "score": hit.score,
        "confidence": hit.confidence,
    });
    if detail == Detail::Schema {
        let parsed = |schema: Option<&str>| {
            let schema = direct::cleaned(schema?);
            serde_json::from_str::<Value>(&schema).ok()
        };
        value["inputSchema"] = parsed(tool.input_schema()).unwrap_or_default();
        value["outputSchema"] = parsed(tool.output_schema()).unwrap_or_default();
    }
    value
}

fn server_line(out: &mut String, server: &ServerLine<'_>, audience: Audience) {
    let name = text::clean_line(server.name, 128);
    push(out, &[&name]);
    // Which file to look into is a person's concern.
    if audience == Audience::Shell {
        push(out, &[" (", server.origin, ")"]);
    }
    push(out, &[": ", server.state.word(audience)]);
    if let Some(reason) = server.reason {
        push(out, &[" (", &text::clean_line(reason, REASON), ")"]);
    }
    match server.tools {
        Some(1) => out.push_str(", 1 tool"),
        Some(count) => push(out, &[", ", &count.to_string(), " tools"]),
        None => {}
    }
    if let Some(description) = server.description {
        push(out, &[" - ", &text::clean_line(description, SERVER_DESCRIPTION)]);
    }
    out.push('\n');
}

fn hit_in_full(out: &mut String, hit: &Hit, detail: Detail) {
    let tool = hit.tool();
    if detail == Detail::Brief {
        return hit_on_a_line(out, hit, detail);
    }
    push(out, &[&hit.server, ":", tool.signature()]);
    flag(out, tool);
    out.push('\n');
    let sentence = sentence(tool, FULL_SENTENCE);
    if !sentence.is_empty() {
        push(out, &["  ", &sentence, "\n"]);
    }
    if detail == Detail::Schema {
        match tool.input_schema() {
            Some(schema) if schema.len() <= LISTED_SCHEMA_BYTES => {
                push(out, &["input schema: ", &text::escaped_json(schema), "\n"]);
            }
            Some(schema) => {
                let size = schema.len().to_string();
                push(
                    out,
                    &["input schema: ", &size, " bytes; ask with tool \"", &hit.id(), "\"\n"],
                );
            }
            None => {}
        }
    }
}

fn hit_on_a_line(out: &mut String, hit: &Hit, detail: Detail) {
    let tool = hit.tool();
    push(out, &[&hit.server, ":"]);
    match detail {
        Detail::Brief => out.push_str(&tool.name),
        Detail::Signature | Detail::Schema => {
            out.push_str(&text::cut(tool.signature(), LINE_SIGNATURE));
        }
    }
    flag(out, tool);
    let sentence = sentence(tool, LINE_SENTENCE);
    if !sentence.is_empty() {
        push(out, &[" - ", &sentence]);
    }
    out.push('\n');
}

/// One tool that was requested by name. The description keeps its lines, indented, so that none of
/// them can pass for one of ours.
fn tool_in_full(out: &mut String, hit: &Hit, detail: Detail) {
    let tool = hit.tool();
    if detail == Detail::Brief {
        return hit_on_a_line(out, hit, detail);
    }
    push(out, &[&hit.server, ":", &tool.signature_in_full()]);
    flag(out, tool);
    out.push('\n');
    for line in tool.description.lines().map(str::trim_end).filter(|line| !line.is_empty()) {
        push(out, &["  ", line, "\n"]);
    }
    if detail == Detail::Signature {
        parameters(out, tool);
    }
    let claims = claims(tool);
    if !claims.is_empty() {
        push(out, &["the server says: ", &claims.join(", "), "\n"]);
    }
    if detail == Detail::Schema {
        if let Some(schema) = tool.input_schema() {
            push(out, &["input schema: ", &text::escaped_json(schema), "\n"]);
        }
        if let Some(schema) = tool.output_schema() {
            push(out, &["output schema: ", &text::escaped_json(schema), "\n"]);
        }
    }
}

/// What a tool says of its parameters, where that is short and more than the name.
fn parameters(out: &mut String, tool: &Tool) {
    let said = tool.parameters().filter_map(|(name, about)| {
        let sentence = text::first_sentence(about, PARAMETER_SENTENCE);
        let tells = !sentence.is_empty() && !names::same(sentence.trim_end_matches('.'), name);
        tells.then_some((name, sentence))
    });
    for (name, sentence) in said.take(MAX_PARAMETERS) {
        push(out, &["  ", name, ": ", &sentence, "\n"]);
    }
}

pub(crate) fn claims(tool: &Tool) -> Vec<&'static str> {
    let hints = tool.hints;
    let claims = [
        (hints.read_only, "read-only", "changes things"),
        (hints.destructive, "destructive", "not destructive"),
        (hints.idempotent, "safe to repeat", "not safe to repeat"),
    ];
    claims
        .iter()
        .filter_map(|(hint, yes, no)| hint.map(|hint| if hint { *yes } else { *no }))
        .collect()
}

fn nothing_found(
    out: &mut String,
    query: &str,
    request: &DiscoverRequest,
    answer: &DiscoverResponse<'_>,
) {
    let query = Value::from(text::clean_line(query, 80).as_ref()).to_string();
    push(out, &["no tool matches ", &query]);
    match &request.server {
        Some(server) => push(out, &[" on ", &text::clean_line(server, 128)]),
        None => {
            let tools: usize = answer.servers.iter().filter_map(|server| server.tools).sum();
            push(out, &[" among ", &tools.to_string(), " known tools"]);
        }
    }
    out.push_str("; try other words, or list a server's tools with ");
    match answer.audience {
        Audience::Shell => out.push_str(&Next::ToolsOf("SERVER".to_owned()).words(Audience::Shell)),
        Audience::Compact | Audience::Full => out.push_str("{\"server\": name}"),
    }
    out.push('\n');
    if request.server.is_none() {
        answer.servers.iter().for_each(|server| server_line(out, server, answer.audience));
    }
}

/// A first hit that is hardly the right one is announced as what it is.
fn doubt(out: &mut String, request: &DiscoverRequest, answer: &DiscoverResponse<'_>) {
    let first = answer.hits.first().and_then(|hit| hit.confidence);
    if request.offset == 0
        && let Some(chance) = first.filter(|chance| *chance < FITS)
    {
        let percent = format!("{:.0}", chance * 100.0);
        push(
            out,
            &["nothing matches well (", &percent, "% confidence of the first); the nearest are:\n"],
        );
    }
}

fn footer(out: &mut String, request: &DiscoverRequest, answer: &DiscoverResponse<'_>) {
    let shown = request.offset + answer.hits.len();
    if let Some(cursor) = answer.next_cursor {
        push(out, &[&shown.to_string(), " of ", &answer.total.to_string(), "; more with "]);
        match answer.audience {
            Audience::Shell => out.push_str("`--limit N`\n"),
            Audience::Compact | Audience::Full => push(out, &["cursor \"", cursor, "\"\n"]),
        }
    }
    if let Some(note) = answer.note {
        push(out, &["note: ", &text::clean_line(note, REASON), "\n"]);
    }
    if !answer.pending.is_empty() {
        push(
            out,
            &[
                "pending: ",
                &answer.pending.join(", "),
                match answer.audience {
                    Audience::Shell => " (still starting; try again in a moment)\n",
                    Audience::Compact | Audience::Full => {
                        " (still starting; ask again in a moment)\n"
                    }
                },
            ],
        );
    }
    // A server whose line is there already said why on it.
    let is_told = request.tool.is_none()
        && match (&request.query, &request.server) {
            (Some(_), None) => answer.hits.is_empty(),
            (Some(_), Some(_)) => false,
            (None, _) => true,
        };
    for failed in answer.failed.iter().filter(|_| !is_told) {
        push(
            out,
            &["failed: ", failed.name, " (", &text::clean_line(failed.reason, REASON), ")\n"],
        );
    }
}

fn flag(out: &mut String, tool: &Tool) {
    if let Some(reason) = tool.flag() {
        push(out, &[" [flagged: ", text::flag_in_words(reason), "]"]);
    }
}

fn sentence(tool: &Tool, max_chars: usize) -> String {
    let described = text::first_sentence(&tool.description, max_chars);
    match &tool.title {
        Some(title) if described.is_empty() => text::cut(title, max_chars).into_owned(),
        _ => described,
    }
}

fn push(out: &mut String, parts: &[&str]) {
    for part in parts {
        out.push_str(part);
    }
}
