//! The result of a script as a model reads it: value, console output, calls.
//! Owns: how much is shown and how.      Never: runs anything, classifies errors.
//! In: JSON text of a value, lines, calls.  Out: text.
//! Tests: below; `metamcp/tests/hazards/scripts.rs`.

use std::borrow::Cow;
use std::fmt::Write;

use serde_json::Value;

use metamcp_types::nearest::nearest;
use metamcp_types::text;

/// Longest source line shown with an error; a script may be one line of 64 KiB.
const MAX_LINE: usize = 160;
/// Tools named in the line about calls.
const MAX_NAMED: usize = 8;

/// What scripts are given beside the language and the servers.
const GIVEN: [&str; 18] = [
    "servers",
    "tools",
    "results",
    "parallel",
    "sleep",
    "progress",
    "console",
    "setTimeout",
    "setInterval",
    "clearTimeout",
    "clearInterval",
    "structuredClone",
    "crypto",
    "URL",
    "URLSearchParams",
    "TextEncoder",
    "TextDecoder",
    "ToolError",
];
/// Ways to the network that scripts have elsewhere.
const NETWORK: [&str; 8] =
    ["fetch", "XMLHttpRequest", "WebSocket", "EventSource", "axios", "http", "https", "Request"];
/// What scripts have elsewhere of the machine they run on.
const MACHINE: [&str; 11] = [
    "require",
    "module",
    "exports",
    "process",
    "fs",
    "Deno",
    "Bun",
    "window",
    "document",
    "localStorage",
    "__dirname",
];

/// What people write to call a tool where there is another way.
const CALLS: [&str; 12] = [
    "callTool",
    "call_tool",
    "call",
    "mcp",
    "mcp_call",
    "mcpCall",
    "run_tool",
    "runTool",
    "executeTool",
    "execute_tool",
    "invoke",
    "client",
];
/// How a tool is called.
const CALL: &str =
    "A tool is called with `await servers.NAME.call(\"tool\", {…})` or `await NAME.tool({…})`.";
/// For a script that ended without a value.
pub const NOTHING: &str = "nothing was returned: end the script with `return …`, or with the value as its last expression";

/// The output of a script, as far as it is shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Logs {
    /// Lines, the level in front where it is not the usual one.
    pub lines: Vec<String>,
}

/// Output cut to a limit: beginning and end are shown, since the end says what happened last.
pub fn logs<'a>(
    lines: impl Iterator<Item = (&'a str, &'a str)>,
    dropped: usize,
    bound: usize,
) -> Logs {
    let mut all: Vec<String> = lines
        .map(|(level, line)| {
            let line = text::clean(line, bound.max(1));
            if level.is_empty() { line.into_owned() } else { format!("{level}: {line}") }
        })
        .collect();
    if dropped > 0 {
        all.push(format!("[{dropped} more bytes were printed and dropped]"));
    }
    if all.iter().map(String::len).sum::<usize>() <= bound {
        return Logs { lines: all };
    }
    let (mut head, mut used) = (0, 0);
    while head < all.len() && used + all[head].len() <= bound / 2 {
        used += all[head].len();
        head += 1;
    }
    let mut tail = all.len();
    while tail > head && used + all[tail - 1].len() <= bound {
        tail -= 1;
        used += all[tail].len();
    }
    let left_out = tail - head;
    if left_out > 0 {
        all.splice(head..tail, [format!("[{left_out} lines are not shown]")]);
    }
    Logs { lines: all }
}

/// A value as text: strings as they are, everything else as the JSON it is.
pub fn value_text(json: &str) -> Cow<'_, str> {
    if json.starts_with('"')
        && let Ok(text) = serde_json::from_str::<String>(json)
    {
        return Cow::Owned(text);
    }
    Cow::Borrowed(json)
}

/// What follows the value or the error: output, and which calls were made. `has_limit` if a limit ended the script.
pub fn footer(logs: &Logs, calls: &[Value], has_limit: bool) -> String {
    let mut text = String::new();
    if !logs.lines.is_empty() {
        text.push_str("\n\nconsole:");
        for line in &logs.lines {
            text.push('\n');
            text.push_str(line);
        }
    }
    if calls.is_empty() {
        return text;
    }
    let mut tools: Vec<(String, usize)> = Vec::new();
    for call in calls {
        let word = |name: &str| call[name].as_str().unwrap_or_default();
        let id = format!("{}:{}", word("server"), word("tool"));
        match tools.iter_mut().find(|(known, _)| *known == id) {
            Some((_, times)) => *times += 1,
            None => tools.push((id, 1)),
        }
    }
    let named: Vec<String> = tools
        .iter()
        .take(MAX_NAMED)
        .map(|(id, times)| if *times > 1 { format!("{id} x{times}") } else { id.clone() })
        .collect();
    let more = tools.len().saturating_sub(MAX_NAMED);
    let failed = calls.iter().filter(|call| call["ok"] == false && call["dropped"] != true).count();
    let dropped = calls.iter().filter(|call| call["dropped"] == true).count();
    let all_failed = failed == calls.len();
    let label = if all_failed { "calls that failed" } else { "calls made" };
    let _infallible = write!(text, "\n\n{label}: {}", named.join(", "));
    if more > 0 {
        let _infallible = write!(text, " and {more} other tools");
    }
    if failed > 0 && !all_failed {
        let _infallible = write!(text, "; {failed} failed");
    }
    if dropped > 0 {
        let _infallible = write!(text, "; {dropped} {}", called_off(has_limit));
    }
    text
}

/// What became of a call that was under way when its script ended.
pub fn called_off(has_limit: bool) -> &'static str {
    match has_limit {
        true => "cancelled by the limit, which may have run",
        false => "not awaited and cancelled, which may have run",
    }
}

/// What is called at a place where the engine says that it is no function: a name, or names with dots between.
pub fn callee(source: &str, line: u32, column: u32) -> Option<String> {
    let line: Vec<char> = source.lines().nth(line.checked_sub(1)? as usize)?.chars().collect();
    let is_part = |at: usize| {
        line.get(at).is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '$' | '.'))
    };
    let at = (column as usize).checked_sub(1)?;
    // The place may be that of the bracket behind it.
    let at = [Some(at), at.checked_sub(1)].into_iter().flatten().find(|at| is_part(*at))?;
    let from = (0..at).rev().take_while(|at| is_part(*at)).last().unwrap_or(at);
    let until = (at..line.len()).take_while(|at| is_part(*at)).last().unwrap_or(at);
    let name: String = line[from..=until].iter().collect();
    let name = name.trim_matches('.');
    let is_name = name.starts_with(|c: char| c.is_alphabetic() || matches!(c, '_' | '$'));
    (is_name && name.chars().count() <= MAX_LINE).then(|| name.to_owned())
}

/// What to write instead of calling something that is no function; `servers` are the names scripts have for them.
pub fn instead_of_calling<'a>(name: &str, mut servers: impl Iterator<Item = &'a str>) -> String {
    let first = name.split('.').next().unwrap_or(name);
    let more = match first {
        "tools" => format!("`tools` has search, describe, list and types. {CALL}"),
        "results" => "`results` has get and put.".to_owned(),
        "servers" => format!("`servers` holds the servers by their names. {CALL}"),
        _ if servers.any(|server| server == name) => {
            format!(
                "`{name}` is a server, so name a tool of it: `await {name}.tool({{…}})`; `await tools.list(\"{name}\")` lists them."
            )
        }
        _ => String::new(),
    };
    format!("`{name}` is no function. {more}").trim_end().to_owned()
}

/// The name in an engine's complaint about one that is not there.
pub fn undefined(message: &str) -> Option<&str> {
    let name = message.strip_suffix(" is not defined")?.trim_matches('\'');
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
    (!name.is_empty() && name.chars().all(is_part)).then_some(name)
}

/// The names that a script declares, by a scan of its tokens.
pub fn declared(source: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
    let words = source.split(move |c| !is_part(c)).filter(|word| !word.is_empty());
    let mut declares = false;
    words.filter(move |word| {
        let was = declares;
        declares = matches!(*word, "const" | "let" | "var" | "function" | "class");
        was && !declares
    })
}

/// What a script can use in place of a name that is not there; `own` are names it has for servers and for its own.
pub fn instead_of<'a>(name: &str, own: impl Iterator<Item = &'a str>) -> Option<String> {
    if NETWORK.contains(&name) {
        return Some(format!(
            "Scripts have no network, so there is no `{name}`; they reach servers alone. `await tools.search(\"fetch a web page\")` finds a tool that can."
        ));
    }
    if CALLS.contains(&name) {
        return Some(format!("There is no `{name}` in scripts. {CALL}"));
    }
    match name {
        "Buffer" => {
            return Some("There is no `Buffer`: `btoa` and `atob` are for base64, `TextEncoder` and `TextDecoder` for bytes.".to_owned());
        }
        "AbortController" | "AbortSignal" => {
            return Some(format!(
                "There is no `{name}`: what is under way ends with the script. `Promise.race([call, sleep(ms)])` waits no longer than that."
            ));
        }
        _ => {}
    }
    if MACHINE.contains(&name) {
        return Some(format!(
            "Scripts have no files, modules or variables of the machine, so there is no `{name}`; they reach servers alone. `await tools.search(\"read a file\")` finds a tool that can."
        ));
    }
    let near = nearest(name, GIVEN.into_iter().chain(own), 2);
    (!near.is_empty()).then(|| format!("Did you mean `{}`?", near.join("` or `")))
}

/// A place in a script: the line and a mark below the column.
pub fn caret(line: u32, column: u32, source: &str) -> String {
    let column = column.max(1) as usize - 1;
    // A window around the column where the line is long.
    let skip = column.saturating_sub(MAX_LINE / 2);
    let shown: String = source
        .chars()
        .skip(skip)
        .take(MAX_LINE)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let number = line.to_string();
    format!(
        "{number} | {shown}\n{} | {}^",
        " ".repeat(number.len()),
        " ".repeat((column - skip).min(shown.chars().count()))
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn output_keeps_its_beginning_and_its_end() {
        let lines: Vec<String> = (0..100).map(|n| format!("line {n:02}")).collect();
        let given = || lines.iter().map(|line| ("", line.as_str()));
        assert_eq!(logs(given(), 0, 10_000).lines, lines);
        let cut = logs(given(), 7, 100).lines;
        assert_eq!(cut[0], "line 00");
        assert!(cut.contains(&"[7 more bytes were printed and dropped]".to_owned()));
        assert!(cut.iter().any(|line| line.ends_with("lines are not shown]")));
        assert!(cut.iter().map(String::len).sum::<usize>() < 200);
        assert_eq!(logs([("warn", "a\u{1b}[31mb")].into_iter(), 0, 100).lines.len(), 1);
    }

    #[test]
    fn a_name_that_is_not_there_gets_another_in_its_place() {
        assert_eq!(undefined("'isues' is not defined"), Some("isues"));
        assert_eq!(undefined("isues is not defined"), Some("isues"));
        assert_eq!(undefined("a.b is not defined"), None);
        assert_eq!(undefined("x is not a function"), None);
        let source = "const issues = 1; async function all() { let $one = issues; }";
        assert_eq!(declared(source).collect::<Vec<_>>(), ["issues", "all", "$one"]);
        let instead = |name| instead_of(name, declared(source).chain(["github"]));
        assert_eq!(instead("isues").as_deref(), Some("Did you mean `issues`?"));
        assert_eq!(instead("gitHub").as_deref(), Some("Did you mean `github`?"));
        assert_eq!(instead("paralel").as_deref(), Some("Did you mean `parallel`?"));
        assert!(instead("fetch").unwrap().contains("no network"));
        assert!(instead("require").unwrap().contains("no files, modules"));
        assert_eq!(instead("zebra"), None);
    }

    #[test]
    fn what_is_no_function_is_named() {
        let source = "const a = 1;\n  await tools.call('x', {});";
        for column in [9, 14, 19] {
            assert_eq!(callee(source, 2, column).as_deref(), Some("tools.call"), "{column}");
        }
        assert_eq!(callee(source, 9, 1), None);
        assert_eq!(callee("(1)()", 1, 4), None);
        let instead = |name| instead_of_calling(name, ["fetch"].into_iter());
        assert!(instead("tools.call").contains("`await servers.NAME.call("));
        assert!(instead("servers.get").contains("by their names"));
        assert!(instead("fetch").contains("is a server"));
        assert_eq!(instead("x.y"), "`x.y` is no function.");
        assert!(instead_of("callTool", [].into_iter()).unwrap().contains("servers.NAME.call"));
        assert!(instead_of("Buffer", [].into_iter()).unwrap().contains("TextEncoder"));
    }

    #[test]
    fn strings_are_shown_as_they_are() {
        assert_eq!(value_text("\"a\\nb\""), "a\nb");
        assert_eq!(value_text("{\"a\":1e400}"), "{\"a\":1e400}");
    }

    #[test]
    fn calls_are_counted_by_tool() {
        let call = |tool: &str, ok: bool| json!({"server": "s", "tool": tool, "ms": 1, "ok": ok});
        let mut dropped = call("b", false);
        dropped["dropped"] = true.into();
        let calls = [call("a", true), call("a", false), dropped];
        assert!(footer(&Logs::default(), &calls, true).contains("1 cancelled by the limit"));
        assert_eq!(
            footer(&Logs::default(), &calls, false),
            "\n\ncalls made: s:a x2, s:b; 1 failed; 1 not awaited and cancelled, which may have run"
        );
        assert_eq!(footer(&Logs { lines: vec!["hi".into()] }, &[], false), "\n\nconsole:\nhi");
    }

    #[test]
    fn the_caret_stands_below_its_column() {
        assert_eq!(caret(3, 5, "let x = ;"), "3 | let x = ;\n  |     ^");
        let long = "x".repeat(5000);
        assert!(caret(1, 4000, &long).len() < 400);
        assert_eq!(caret(1, 99, "ab"), "1 | \n  | ^");
    }
}
