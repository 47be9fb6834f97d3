//! Names of servers and tools as JavaScript identifiers.

use std::borrow::Cow;

use metamcp_types::text;

/// Longest identifier made of a name.
const MAX_IDENTIFIER_CHARS: usize = 64;

/// Words that cannot be the name of a variable in strict code.
const RESERVED: [&str; 50] = [
    "arguments",
    "async",
    "await",
    "break",
    "case",
    "catch",
    "class",
    "const",
    "continue",
    "debugger",
    "default",
    "delete",
    "do",
    "else",
    "enum",
    "eval",
    "export",
    "extends",
    "false",
    "finally",
    "for",
    "function",
    "if",
    "implements",
    "import",
    "in",
    "instanceof",
    "interface",
    "let",
    "new",
    "null",
    "package",
    "private",
    "protected",
    "public",
    "return",
    "static",
    "super",
    "switch",
    "this",
    "throw",
    "true",
    "try",
    "typeof",
    "undefined",
    "var",
    "void",
    "while",
    "with",
    "yield",
];

/// A variable's name for a server: `my-server` becomes `myServer`, `7zip` becomes `_7zip`, `new` becomes `new_`.
/// Different servers can get the same one; whoever hands them out decides who keeps it.
pub fn identifier(server: &str) -> String {
    let mut name = camel(server);
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        name.insert(0, '_');
    }
    if RESERVED.binary_search(&name.as_str()).is_ok() {
        name.push('_');
    }
    name
}

/// A tool's name in camel case: `create_issue`, `create-issue` and `create.issue` become `createIssue`.
/// Only letters, digits, `_` and `$` of ASCII are kept; everything else parts words. A leading `_` stays.
pub fn camel(tool: &str) -> String {
    let mut name: String = tool.chars().take_while(|c| *c == '_').take(2).collect();
    let mut starts_word = false;
    for c in tool.trim_start_matches('_').chars() {
        if !(c.is_ascii_alphanumeric() || c == '$') {
            starts_word = !name.trim_start_matches('_').is_empty();
        } else if starts_word {
            name.push(c.to_ascii_uppercase());
            starts_word = false;
        } else {
            name.push(c);
        }
        if name.len() >= MAX_IDENTIFIER_CHARS {
            break;
        }
    }
    // `GetIssue` is written `getIssue`; `URL_fetch` stays, because only its author knows where the word ends.
    let mut letters = name.chars();
    if let (Some(first), Some(second)) = (letters.next(), letters.next())
        && first.is_ascii_uppercase()
        && second.is_ascii_lowercase()
    {
        name.replace_range(..1, &first.to_ascii_lowercase().to_string());
    }
    name
}

/// The tool meant by a name written in code: the one of exactly that name, else the only one whose camel case it is.
pub fn resolve_tool<'a>(
    written: &str,
    names: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let mut like = None;
    let mut several = false;
    for name in names {
        if name == written {
            return Some(name);
        }
        if camel(name) == written {
            several |= like.is_some();
            like = Some(name);
        }
    }
    like.filter(|_| !several)
}

/// A member's name: bare where it is an identifier, else quoted.
pub(super) fn member(name: &str) -> Cow<'_, str> {
    if is_identifier(name) { Cow::Borrowed(name) } else { Cow::Owned(quoted(name)) }
}

/// A text as a literal in which nothing is unseen.
pub(super) fn quoted(words: &str) -> String {
    let mut quoted = String::new();
    for c in serde_json::Value::from(words).to_string().chars() {
        if c.is_control() || text::is_hidden(c) || matches!(c, '\u{2028}' | '\u{2029}') {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                quoted.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            quoted.push(c);
        }
    }
    quoted
}

/// Whether a name can be written without quotes.
pub(super) fn is_identifier(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '$'))
}
