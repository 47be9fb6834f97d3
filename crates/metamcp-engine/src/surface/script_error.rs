//! Why a script failed, as its author reads it: what ended it, where, and about which value the engine complains.
//! Owns: the words.      Never: runs a script, decides how it ended.
//! In: the source and the outcome of a run.  Out: an `ErrorObject`.
//! Tests: below; `metamcp/tests/hazards/scripts.rs`.

use std::borrow::Cow;

use bytes::Bytes;
use metamcp_sandbox::host::{ScriptError, ScriptOutcome, Status};
use metamcp_script::{Complaint, Culprit, Position, culprits};
use metamcp_surface::execution;
use metamcp_tools::declarations::identifier;
use metamcp_types::text;
use metamcp_wire::object;
use serde::Deserialize;
use serde_json::{Value, json};

use super::View;
use super::reply::{Code, ErrorObject};

/// Longest message of a script's error that is quoted.
const MAX_MESSAGE: usize = 4000;
/// Longest stack that is quoted; the position says the same for most.
const MAX_STACK: usize = 1000;
/// Longest `ToolError` of a script that is quoted, in bytes of JSON; ours has names, a message and details.
const MAX_TOOL_ERROR: usize = 32 * 1024;
/// Longest name, key or beginning of a result that is quoted.
const MAX_QUOTED: usize = 80;
/// Methods of strings and arrays that people use: what is called so on one is a function.
const STRING_METHODS: [&str; 30] = [
    "at",
    "charAt",
    "charCodeAt",
    "codePointAt",
    "concat",
    "endsWith",
    "includes",
    "indexOf",
    "lastIndexOf",
    "localeCompare",
    "match",
    "matchAll",
    "normalize",
    "padEnd",
    "padStart",
    "repeat",
    "replace",
    "replaceAll",
    "search",
    "slice",
    "split",
    "startsWith",
    "substr",
    "substring",
    "toLowerCase",
    "toString",
    "toUpperCase",
    "trim",
    "trimEnd",
    "trimStart",
];
const ARRAY_METHODS: [&str; 35] = [
    "at",
    "concat",
    "copyWithin",
    "entries",
    "every",
    "fill",
    "filter",
    "find",
    "findIndex",
    "findLast",
    "findLastIndex",
    "flat",
    "flatMap",
    "forEach",
    "includes",
    "indexOf",
    "join",
    "keys",
    "lastIndexOf",
    "map",
    "pop",
    "push",
    "reduce",
    "reduceRight",
    "reverse",
    "shift",
    "slice",
    "some",
    "sort",
    "splice",
    "toReversed",
    "toSorted",
    "toString",
    "unshift",
    "values",
];

impl View {
    /// What ended a script, and what may help. What had finished of a `parallel` is stored, and named in it.
    pub(super) fn script_error(&self, source: &str, outcome: &ScriptOutcome) -> ErrorObject {
        let error = outcome.error.clone().unwrap_or_default();
        let hit = outcome.limit.as_ref();
        let limit = hit.map_or(String::new(), |hit| format!(" ({} = {})", hit.name, hit.value));
        let said = || {
            let message = explained(source, &error).unwrap_or_else(|| error.message.clone());
            text::clean(&format!("{}: {message}", error.name), MAX_MESSAGE).into_owned()
        };
        let (code, what, hint): (_, _, Cow<'static, str>) = match outcome.status {
            Status::Ok | Status::Error if hit.is_some() => (
                Code::LimitExceeded,
                said(),
                "A script can catch a LimitError (e.limit, e.value) and go on.".into(),
            ),
            Status::Ok | Status::Error => {
                (Code::CodeError, said(), self.fix_hint(source, &error, outcome))
            }
            Status::Timeout => (
                Code::Timeout,
                format!("the script ran out of time{limit}"),
                "Do less in one script, or make calls concurrently with parallel().".into(),
            ),
            Status::CpuLimit => (
                Code::LimitExceeded,
                format!("the script used up its CPU time{limit}"),
                "Look for a loop that does not end.".into(),
            ),
            Status::MemoryLimit => (
                Code::LimitExceeded,
                format!("the script used up its memory{limit}{}", kept_words(&error)),
                "Keep only what you need of each result.".into(),
            ),
            Status::CallLimit => (
                Code::LimitExceeded,
                match &error.name[..] {
                    "LimitError" => said(),
                    _ => format!("the script made too many tool calls{limit}"),
                },
                "Catch the LimitError to return what there is, use a tool that takes many items at once, or split the work into several scripts.".into(),
            ),
            Status::Deadlock => (
                Code::CodeError,
                "the script waits for a promise that nothing can settle".to_owned(),
                "Every `new Promise` must be resolved by a call, a sleep or a timer.".into(),
            ),
            Status::Cancelled => (
                Code::Cancelled,
                "the script was cancelled".to_owned(),
                "Calls it had made may have run.".into(),
            ),
        };
        let mut message = what;
        let mut object_position = None;
        if let (Some(line), column) = (error.line, error.column.unwrap_or(1)) {
            let shown = source.lines().nth(line.saturating_sub(1) as usize).unwrap_or_default();
            message.push_str(&format!(
                " (line {line}, column {column})\n{}",
                execution::caret(line, column, shown)
            ));
            object_position = Some((line, column));
        }
        let mut partial = Vec::new();
        for kept in &outcome.partial {
            let json = Bytes::copy_from_slice(kept.json.as_bytes());
            let handle = self.surface.results.put(&self.owner(), json);
            message.push_str(&format!(
                "\n{} of {} items of parallel had finished: results.get(\"{handle}\") has them",
                kept.finished, kept.total
            ));
            partial
                .push(json!({ "handle": handle, "finished": kept.finished, "total": kept.total }));
        }
        let mut object = ErrorObject::new(code, message)
            .hint(hint.into_owned())
            .detail("status", outcome.status.word());
        if !partial.is_empty() {
            object = object.detail("partial", partial);
        }
        if let Some((line, column)) = object_position {
            object = object.detail("line", line).detail("column", column);
        }
        if let Some(hit) = hit {
            object = object.detail("limit", hit.name).detail("limit_value", hit.value.clone());
        }
        if let Some(tool_error) = tool_error(&error) {
            object = object.detail("tool_error", tool_error);
        }
        // One frame says no more than the position.
        if error.stack.contains('\n') {
            object = object.detail("stack", text::clean(&error.stack, MAX_STACK).into_owned());
        }
        object
    }

    /// The hint for an error of the script's own.
    fn fix_hint(
        &self,
        source: &str,
        error: &ScriptError,
        outcome: &ScriptOutcome,
    ) -> Cow<'static, str> {
        // A call that was refused here never reached its server.
        let refused = ["server_not_found", "tool_not_found", "validation_input", "denied"];
        let code = error
            .tool_error
            .as_deref()
            .and_then(|raw| object::pick(raw.as_bytes(), ["code"]).ok()?[0]);
        let code = code.and_then(object::text).unwrap_or_default();
        let unsent = usize::from(refused.contains(&&*code));
        let again = match outcome.calls.len() <= unsent {
            true => "No call was made.",
            false => "The listed calls were made; fix the script and do not repeat them blindly.",
        };
        let servers: Vec<String> =
            self.servers().iter().map(|entry| identifier(&entry.name)).collect();
        if let [only] = &found(source, error)[..]
            && complaint(&error.message) == Some(Complaint::NotAFunction)
            && let Some(instead) =
                execution::instead_of_calling(&only.expression, servers.iter().map(String::as_str))
        {
            return format!("{instead} {again}").into();
        }
        let Some(name) = execution::undefined(&error.message) else { return again.into() };
        let own = execution::declared(source).chain(servers.iter().map(String::as_str));
        match execution::instead_of(name, own) {
            Some(instead) => format!("{instead} {again}").into(),
            None => again.into(),
        }
    }
}

/// What an error says about items of `parallel` that were kept before it was thrown on.
fn kept_words(error: &ScriptError) -> String {
    let kept = error.message.split_once("; ").map(|(_, kept)| kept);
    match kept.filter(|kept| kept.contains("items of parallel had finished")) {
        Some(kept) => format!("; {}", text::clean(kept, MAX_MESSAGE)),
        None => String::new(),
    }
}

/// The facts of a `ToolError`, without its message, which is said already. A script can forge it, so it may be no longer
/// than our own.
fn tool_error(error: &ScriptError) -> Option<Value> {
    let raw = error.tool_error.as_deref().filter(|raw| raw.len() <= MAX_TOOL_ERROR)?;
    let mut facts = serde_json::from_str::<Value>(raw).ok()?;
    let members = facts.as_object_mut()?;
    members.contains_key("code").then(|| members.remove("message"))?;
    Some(facts)
}

/// What the last results of a tool were, as the worker says.
#[derive(Deserialize)]
struct Seen {
    server: String,
    tool: String,
    times: u64,
    mixed: bool,
    kind: String,
    size: Option<u64>,
    start: Option<String>,
    keys: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct AllSeen {
    seen: Vec<Seen>,
}

fn complaint(message: &str) -> Option<Complaint<'_>> {
    match message {
        "not a function" => return Some(Complaint::NotAFunction),
        "value is not iterable" => return Some(Complaint::NotIterable),
        _ => {}
    }
    let rest = message
        .strip_prefix("cannot read property '")
        .or_else(|| message.strip_prefix("cannot set property '"))?;
    let (name, of) = rest.rsplit_once("' of ")?;
    match (name, of) {
        ("Symbol.iterator", _) => Some(Complaint::NotIterable),
        (name, "undefined" | "null") => Some(Complaint::NoMember(name)),
        _ => None,
    }
}

fn found(source: &str, error: &ScriptError) -> Vec<Culprit> {
    let place = error.line.zip(error.column);
    match (complaint(&error.message), place) {
        (Some(complaint), Some((line, column))) if !error.stack.contains(" (native)") => {
            culprits(source, Position { line, column }, complaint)
        }
        _ => Vec::new(),
    }
}

/// A complaint of the engine with the name of what it is about, and what that was. Only what is sure is said.
fn explained(source: &str, error: &ScriptError) -> Option<String> {
    let complaint = complaint(&error.message)?;
    if let Some(function) =
        error.stack.strip_prefix("at ").and_then(|at| at.split_once(" (native)"))
        && complaint == Complaint::NotAFunction
    {
        return Some(format!("what {} was given is not a function", quoted(function.0)));
    }
    let all: Vec<Seen> = error
        .tool_error
        .as_deref()
        .and_then(|raw| serde_json::from_str::<AllSeen>(raw).ok())
        .map_or(Vec::new(), |all| all.seen);
    let candidates = found(source, error);
    let seen = |culprit: &Culprit| {
        let origin = culprit.origin.as_ref()?;
        all.iter().find(|seen| {
            !seen.mixed
                && seen.tool == origin.tool
                && (seen.server == origin.server || identifier(&seen.server) == origin.server)
        })
    };
    let is_result =
        |culprit: &Culprit| culprit.origin.as_ref().is_some_and(|origin| origin.path.is_empty());
    if complaint == Complaint::NotAFunction {
        for culprit in &candidates {
            if let (Some((object, method)), true, Some(seen)) =
                (&culprit.member, is_result(culprit), seen(culprit))
                && !seen.has_method(method)
            {
                let called = quoted(&culprit.expression);
                return Some(format!(
                    "{called} is not a function: {} is {}",
                    quoted(object),
                    seen.words()
                ));
            }
        }
        let [only] = &candidates[..] else { return None };
        return Some(format!("{} is not a function", quoted(&only.expression)));
    }
    let [only] = &candidates[..] else { return None };
    let subject = quoted(&only.expression);
    let value = match error.message.rsplit_once(" of ") {
        Some((_, value @ ("undefined" | "null"))) => Some(value),
        _ => None,
    };
    let of_result = seen(only).filter(|_| is_result(only));
    let more = match (&only.member, of_result) {
        (Some((object, _)), Some(seen)) => format!(": {} is {}", quoted(object), seen.words()),
        (None, Some(seen)) if value.is_none() => format!(": it is {}", seen.words()),
        (None, Some(seen)) => format!(", the result of {}", seen.id()),
        (_, None) => String::new(),
    };
    Some(match (complaint, value) {
        (Complaint::NoMember(name), Some(value)) => {
            let name = text::clean_line(name, MAX_QUOTED).into_owned();
            format!("cannot read `{name}` of {subject}, which is {value}{more}")
        }
        (_, Some(value)) => format!("{subject} is not iterable, it is {value}{more}"),
        _ => format!("{subject} is not iterable{more}"),
    })
}

impl Seen {
    /// Whether a value of this kind has a function of that name.
    fn has_method(&self, name: &str) -> bool {
        match self.kind.as_str() {
            "string" => STRING_METHODS.contains(&name),
            "array" => ARRAY_METHODS.contains(&name),
            _ => ["toString", "valueOf", "hasOwnProperty", "toFixed"].contains(&name),
        }
    }

    fn id(&self) -> String {
        text::clean_line(&format!("{}:{}", self.server, self.tool), 2 * MAX_QUOTED).into_owned()
    }

    /// What it is: `a string from sqlite:read_query, starting …`.
    fn words(&self) -> String {
        let id = self.id();
        let size = self.size.unwrap_or_default();
        let last = if self.times > 1 { "the last one " } else { "" };
        match self.kind.as_str() {
            "string" if size == 0 => format!("an empty string from {id}"),
            "string" => {
                let start = self.start.as_deref().unwrap_or_default();
                let mark = if start.chars().count() as u64 >= size { "" } else { "…" };
                let shown = text::clean_line(start, MAX_QUOTED);
                format!("a string from {id}, {last}starting `{shown}{mark}`")
            }
            "array" => format!("an array of {size} from {id}"),
            "object" => {
                let keys = self.keys.as_deref().unwrap_or_default();
                let named: Vec<_> =
                    keys.iter().map(|key| text::clean_line(key, MAX_QUOTED)).collect();
                let more = match size.saturating_sub(keys.len() as u64) {
                    0 => String::new(),
                    more => format!(" and {more} more"),
                };
                format!("an object from {id} with the keys {}{more}", named.join(", "))
            }
            "null" => format!("null, the result of {id}"),
            kind => format!("a {} from {id}", text::clean_line(kind, MAX_QUOTED)),
        }
    }
}

fn quoted(expression: &str) -> String {
    format!("`{}`", text::clean_line(expression, MAX_QUOTED))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said about an error at the mark `^`.
    fn said(marked: &str, message: &str, seen: &Value) -> Option<String> {
        let offset = marked.find('^').unwrap();
        let source = marked.replacen('^', "", 1);
        let place = Position::of(&source, offset);
        let error = ScriptError {
            name: "TypeError".into(),
            message: message.into(),
            line: Some(place.line),
            column: Some(place.column),
            tool_error: Some(json!({ "seen": seen }).to_string()),
            ..ScriptError::default()
        };
        explained(&source, &error)
    }

    fn text_result(mixed: bool) -> Value {
        json!([{"server": "sqlite", "tool": "read_query", "times": 1, "mixed": mixed, "kind": "string", "size": 900, "start": "[{'id': 1", "keys": null}])
    }

    #[test]
    fn the_receiver_is_named_with_its_type_and_how_it_begins() {
        let code = "const cust = await sqlite.read_query({}); cust.map(^k => k.id)";
        assert_eq!(
            said(code, "not a function", &text_result(false)).as_deref(),
            Some(
                "`cust.map` is not a function: `cust` is a string from sqlite:read_query, starting `[{'id': 1…`"
            )
        );
        // Not where results differed, nor where nothing came.
        for seen in [text_result(true), json!([])] {
            assert_eq!(
                said(code, "not a function", &seen).as_deref(),
                Some("`cust.map` is not a function")
            );
        }
        // A method that strings have is not what failed.
        let code = "const t = await sqlite.read_query({}); t.match(f(^1))";
        assert_eq!(said(code, "not a function", &text_result(false)), None);
    }

    #[test]
    fn what_was_kept_before_memory_ran_out_is_named() {
        let of = |message: &str| {
            kept_words(&ScriptError { message: message.into(), ..ScriptError::default() })
        };
        let kept = "2 of 3 items of parallel had finished: results.get(\"r1\") has them";
        assert_eq!(of(&format!("out of memory; {kept}")), format!("; {kept}"));
        assert_eq!(of("out of memory; something else"), "");
    }

    #[test]
    fn members_of_nothing_and_what_is_not_iterable_are_named() {
        let object = json!([{"server": "my-fs", "tool": "read", "times": 2, "mixed": false, "kind": "object", "size": 1, "start": null, "keys": ["content"]}]);
        let code = "const d = await myFs.read({}); return ^d.lines.map(l => l)";
        assert_eq!(
            said(code, "cannot read property 'map' of undefined", &object).as_deref(),
            Some(
                "cannot read `map` of `d.lines`, which is undefined: `d` is an object from my-fs:read with the keys content"
            )
        );
        let code = "const d = await myFs.read({}); for (const line of ^d) {}";
        assert_eq!(
            said(code, "value is not iterable", &object).as_deref(),
            Some("`d` is not iterable: it is an object from my-fs:read with the keys content")
        );
        assert_eq!(
            said(
                "rows.map(r => ^r.name.first)",
                "cannot read property 'first' of undefined",
                &object
            )
            .as_deref(),
            Some("cannot read `first` of `r.name`, which is undefined")
        );
        assert_eq!(said("^x()", "something else", &object), None);
    }
}
