//! Mapping of error positions to the script's source, and repair of lone surrogates.

use crate::protocol::ScriptError;

/// The file name of the script in a stack.
pub const FILE: &str = "script";

/// Lines of the wrapper before the script.
const BEFORE: u32 = 1;

/// The script as the body of an async function. The wrapper is on its own line, so it shifts lines but not columns.
pub fn wrapped(code: &str) -> String {
    format!("(async () => {{\n{code}\n}})")
}

/// An error with positions in the source. Frames of the prelude are omitted, and those of the engine but for the one that
/// threw: `[1].map(2)` is a mistake of what `map` was given.
pub fn located(
    name: String,
    message: String,
    stack: &str,
    tool_error: Option<String>,
    lines: u32,
) -> ScriptError {
    let mut frames = String::new();
    let (mut line, mut column) = (None, None);
    for text in stack.lines() {
        if frames.is_empty() && line.is_none() && text.ends_with(" (native)") {
            frames.push_str(text.trim());
            continue;
        }
        let Some((before, at)) = text.trim_end_matches(')').rsplit_once(&format!("{FILE}:")) else {
            continue;
        };
        let mut numbers = at.split(':').map_while(|number| number.parse::<u32>().ok());
        let (Some(row), place) = (numbers.next(), numbers.next()) else { continue };
        // A syntax error may be detected only at the wrapper's end; it is shown at the end of the script.
        let row = row.saturating_sub(BEFORE).clamp(1, lines.max(1));
        if line.is_none() {
            (line, column) = (Some(row), place);
        }
        if !frames.is_empty() {
            frames.push('\n');
        }
        frames.push_str(before.trim());
        frames.push_str(if before.trim() == "at" { " " } else { "" });
        frames.push_str(&format!("{FILE}:{row}"));
        if let Some(place) = place {
            frames.push_str(&format!(":{place}"));
        }
        if before.contains('(') {
            frames.push(')');
        }
    }
    ScriptError { name, message, line, column, stack: frames, tool_error }
}

/// Replaces lone surrogates in JSON. The engine writes them as escapes, which many parsers reject; valid pairs
/// it does not escape.
pub fn without_lone_surrogates(json: String) -> String {
    if !json.contains("\\ud") {
        return json;
    }
    let mut out = String::with_capacity(json.len());
    let mut rest = json.as_str();
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let escape = &rest[at..];
        let length = if escape[1..].starts_with('u') { 6 } else { 2 };
        let is_half = escape[1..].starts_with("ud")
            && escape.as_bytes().get(3).is_some_and(|digit| b"89abcdef".contains(digit));
        let (escape, after) = escape.split_at_checked(length).unwrap_or((escape, ""));
        out.push_str(if is_half { "\\ufffd" } else { escape });
        rest = after;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_those_of_the_code_as_given() {
        let stack = "    at f (script:4:11)\n    at inner (metamcp:prelude:10:1)\n    at native\n    at <anonymous> (script:9:2)\n    at <eval> (<input>:1:1)\n";
        let error = located("Error".into(), "no".into(), stack, None, 8);
        assert_eq!((error.line, error.column), (Some(3), Some(11)));
        assert_eq!(error.stack, "at f (script:3:11)\nat <anonymous> (script:8:2)");
    }

    #[test]
    fn what_the_engine_itself_threw_says_so() {
        let stack = "    at map (native)\n    at f (script:2:3)\n";
        let error = located("TypeError".into(), "not a function".into(), stack, None, 8);
        assert_eq!(
            (error.line, error.stack.as_str()),
            (Some(1), "at map (native)\nat f (script:1:3)")
        );
    }

    #[test]
    fn a_mistake_of_syntax_has_a_frame_without_a_name() {
        let error = located("SyntaxError".into(), "no".into(), "    at script:3:7\n", None, 1);
        assert_eq!((error.line, error.column), (Some(1), Some(7)));
        assert_eq!(error.stack, "at script:1:7");
    }

    #[test]
    fn a_stack_that_says_nothing_gives_nothing() {
        for stack in ["", "at x", "script:", "script:x:1", "at f (script:99999999999:1)"] {
            let error = located("E".into(), String::new(), stack, None, 1);
            assert_eq!(
                (error.line, error.column, error.stack.as_str()),
                (None, None, ""),
                "{stack}"
            );
        }
    }

    #[test]
    fn halves_of_pairs_are_replaced_and_nothing_else() {
        let mended = |text: &str| without_lone_surrogates(text.to_owned());
        assert_eq!(mended(r#""a\ud800b""#), r#""a\ufffdb""#);
        assert_eq!(mended(r#""\\ud800""#), r#""\\ud800""#);
        assert_eq!(mended(r#""\\\udc00\n""#), r#""\\\ufffd\n""#);
        assert_eq!(mended(r#""\u00e9\ud7ff😀\ude""#), r#""\u00e9\ud7ff😀\ufffd"#);
    }
}
