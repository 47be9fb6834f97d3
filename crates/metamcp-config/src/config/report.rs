//! Diagnostics with their position in the file: errors, warnings, the line with a caret.

use std::fmt;

use jsonc_parser::common::Range;

use metamcp_types::secret::names_a_secret;

/// Most diagnostics per file; a file with more has one cause, and an endless list helps nobody.
pub(super) const MOST_FINDINGS: usize = 100;
/// Width of the source line in a report; minified files have lines of any length.
const EXCERPT_WIDTH: usize = 100;

/// A place in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The key, as in `mcpServers.github.args[1]`; empty for the file as a whole.
    pub path: String,
}

/// Something wrong enough that the file, or the entry it is about, is not used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub place: Place,
    /// What, as a fragment without a full stop.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// The source line and a caret under the place, on two lines.
    pub excerpt: String,
}

/// Something the user should know, though the file is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    pub place: Place,
    pub severity: Severity,
    /// What, as a fragment without a full stop.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// How serious a warning is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// What it is about cannot be used; the rest is.
    Error,
    /// Probably not what was meant.
    Warning,
    /// Harmless; said so that nobody wonders.
    Note,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)?;
        if self.path.is_empty() { Ok(()) } else { write!(f, ": {}", self.path) }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

/// The file cannot be used. Holds every problem found, at least one, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    pub problems: Vec<Problem>,
    /// What else was seen; a misspelt key is often why another one is missing.
    pub warnings: Vec<Warning>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.problems.as_slice() {
            [] => f.write_str("the file cannot be used"),
            [only] => only.fmt(f),
            [first, rest @ ..] => write!(f, "{first} (and {} more)", rest.len()),
        }
    }
}

impl ConfigError {
    /// A single problem with the file as a whole.
    pub(super) fn whole_file(message: impl Into<String>, hint: impl Into<String>) -> Self {
        let place = Place { line: 1, column: 1, path: String::new() };
        let (message, hint) = (message.into(), Some(hint.into()));
        let problem = Problem { place, message, hint, excerpt: String::new() };
        Self { problems: vec![problem], warnings: Vec::new() }
    }
}

/// What has been found so far in one text.
pub(super) struct Report<'a> {
    text: &'a str,
    line_starts: Vec<usize>,
    pub(super) problems: Vec<Problem>,
    pub(super) warnings: Vec<Warning>,
}

impl<'a> Report<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let newlines = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let line_starts = std::iter::once(0).chain(newlines.map(|(at, _)| at + 1)).collect();
        Self { text, line_starts, problems: Vec::new(), warnings: Vec::new() }
    }

    pub(super) fn problem(&mut self, range: Range, path: &str, message: impl Into<String>) {
        self.problem_with(range, path, message, None::<String>);
    }

    pub(super) fn problem_with(
        &mut self,
        range: Range,
        path: &str,
        message: impl Into<String>,
        hint: impl Into<Option<String>>,
    ) {
        if self.problems.len() < MOST_FINDINGS {
            let place = self.place(range, path);
            let excerpt = self.excerpt(range);
            self.problems.push(Problem {
                place,
                message: message.into(),
                hint: hint.into(),
                excerpt,
            });
        }
    }

    pub(super) fn warn(
        &mut self,
        range: Range,
        path: &str,
        message: impl Into<String>,
        hint: impl Into<Option<String>>,
    ) {
        self.remark(Severity::Warning, range, path, message.into(), hint.into());
    }

    pub(super) fn note(&mut self, range: Range, path: &str, message: impl Into<String>) {
        self.remark(Severity::Note, range, path, message.into(), None);
    }

    pub(super) fn is_full(&self) -> bool {
        self.warnings.len() >= MOST_FINDINGS
    }

    pub(super) fn line(&self, range: Range) -> usize {
        self.line_starts.partition_point(|&start| start <= range.start)
    }

    fn remark(
        &mut self,
        severity: Severity,
        range: Range,
        path: &str,
        message: String,
        hint: Option<String>,
    ) {
        if !self.is_full() {
            let place = self.place(range, path);
            self.warnings.push(Warning { place, severity, message, hint });
        }
    }

    fn place(&self, range: Range, path: &str) -> Place {
        let line = self.line(range);
        let column = 1 + self.before(range, line).chars().count();
        Place { line, column, path: path.to_owned() }
    }

    /// The text of the line up to the place.
    fn before(&self, range: Range, line: usize) -> &'a str {
        let start = self.line_starts.get(line - 1).copied().unwrap_or(0);
        self.text.get(start..range.start.min(self.text.len())).unwrap_or("")
    }

    /// The line, what may be secret in it starred out, with a caret under the place.
    fn excerpt(&self, range: Range) -> String {
        let line = self.line(range);
        let start = self.line_starts.get(line - 1).copied().unwrap_or(0);
        let whole =
            self.text.get(start..).unwrap_or("").split('\n').next().unwrap_or("").trim_end();
        let shown: Vec<char> = starred(whole)
            .chars()
            .map(|c| if c == '\t' { ' ' } else { c })
            .map(|c| if c.is_control() { '?' } else { c })
            .collect();
        let column = self.before(range, line).chars().count().min(shown.len());
        let from =
            if shown.len() <= EXCERPT_WIDTH { 0 } else { column.saturating_sub(EXCERPT_WIDTH / 2) };
        let to = shown.len().min(from + EXCERPT_WIDTH);
        let visible: String = shown[from..to].iter().collect();
        let number = line.to_string();
        let (margin, gap) = (" ".repeat(number.len()), " ".repeat(column - from));
        format!("{number} | {visible}\n{margin} | {gap}^")
    }
}

/// The line with the inside of strings that may be secret replaced by stars, one for each character.
/// The report of a misplaced comma must not carry the token beside it into a log.
fn starred(line: &str) -> String {
    let mut shown = String::with_capacity(line.len());
    let mut key: Option<&str> = None;
    let mut last = "";
    let mut open_lists = 0_usize;
    for (at, piece) in line.split('"').enumerate() {
        if at > 0 {
            shown.push('"');
        }
        let is_inside = at % 2 == 1;
        if is_inside {
            if key.is_some_and(names_a_secret) || looks_secret(piece) {
                shown.extend(piece.chars().map(|_| '*'));
            } else {
                shown.push_str(piece);
            }
            last = piece;
            continue;
        }
        shown.push_str(piece);
        if piece.trim_start().starts_with(':') {
            key = Some(last);
            open_lists = 0;
        }
        open_lists =
            (open_lists + piece.matches('[').count()).saturating_sub(piece.matches(']').count());
        if !piece.trim_start().starts_with(':') && open_lists == 0 {
            key = None;
        }
    }
    shown
}

/// A long run of letters and digits mixed, such as access tokens are made of.
fn looks_secret(text: &str) -> bool {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '+' | '=' | '.')))
        .any(|word| {
            word.len() >= 20
                && word.bytes().any(|byte| byte.is_ascii_digit())
                && word.bytes().any(|byte| byte.is_ascii_alphabetic())
        })
}

/// The path of a key inside `path`.
pub(crate) fn under(path: &str, key: &str) -> String {
    let plain =
        !key.is_empty() && key.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '$'));
    if !plain {
        format!("{path}[{key:?}]")
    } else if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}

#[cfg(test)]
mod tests {
    use super::{Report, starred, under};
    use jsonc_parser::common::Range;

    #[test]
    fn places_count_lines_and_characters() {
        let text = "{\n  \"ä\": 1,\r\n\t\"b\": x\n}";
        let at = |needle: &str| {
            let start = text.find(needle).unwrap();
            Report::new(text).place(Range::new(start, start), "p").to_string()
        };
        assert_eq!(at("{"), "1:1: p");
        assert_eq!(at(": 1"), "2:6: p");
        assert_eq!(at("x"), "3:7: p");
        assert_eq!(at("}"), "4:1: p");
    }

    #[test]
    fn the_caret_stands_under_the_place_also_in_endless_lines() {
        let text = format!("[{}x{}]", "1,".repeat(500), ",1".repeat(500));
        let start = text.find('x').unwrap();
        let excerpt = Report::new(&text).excerpt(Range::new(start, start));
        let (line, caret) = excerpt.split_once('\n').unwrap();
        assert!(line.chars().count() <= 110);
        assert_eq!(line.find('x'), caret.find('^'));
    }

    #[test]
    fn secrets_do_not_show_in_excerpts() {
        let check = |line: &str, expect: &str| assert_eq!(starred(line), expect);
        check(r#""API_KEY": "hunter2" "x": 1"#, r#""API_KEY": "*******" "x": 1"#);
        check(r#""TOKEN": "abc", "LEVEL": "debug""#, r#""TOKEN": "***", "LEVEL": "debug""#);
        check(
            r#"["--with", "ghp_abcdefghij0123456789"]"#,
            r#"["--with", "************************"]"#,
        );
        check(r#""args": ["-y", "@scope/server"]"#, r#""args": ["-y", "@scope/server"]"#);
        check(
            r#""keys": {"API_KEY": ["a", "b"], "c": "d"}"#,
            r#""keys": {"API_KEY": ["*", "*"], "c": "d"}"#,
        );
        check(r#""TOKEN": "never closed"#, r#""TOKEN": "************"#);
    }

    #[test]
    fn paths_quote_what_is_not_a_word() {
        assert_eq!(under("mcpServers", "github"), "mcpServers.github");
        assert_eq!(under("", "pool"), "pool");
        assert_eq!(under("mcpServers", "my server"), r#"mcpServers["my server"]"#);
        assert_eq!(under("a", "\u{1b}"), r#"a["\u{1b}"]"#);
    }
}
