//! Why a script cannot run, with the position, the source line and a hint what to write instead.
//! Owns: how an error is shown.      Never: detects one.
//! In: a source, a byte offset and a message.  Out: `SyntaxError`.
//! Tests: the rejected snippets in `tests/`.

use std::fmt;

use crate::position::Position;

/// Longest part of a source line that is shown.
const MAX_SHOWN_CHARS: usize = 120;

/// A syntax error, reported the way a compiler would.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyntaxError {
    /// What is wrong, as a lowercase fragment.
    pub message: String,
    /// Counted from one.
    pub line: u32,
    /// In characters, counted from one.
    pub column: u32,
    /// The line, or the part of it around the position; no control characters.
    pub source_line: String,
    /// What to write instead, if known.
    pub hint: Option<String>,
    /// Characters of `source_line` before the position.
    caret: usize,
}

impl SyntaxError {
    pub(crate) fn at(source: &str, offset: usize, message: impl Into<String>) -> Self {
        let place = Position::of(source, offset);
        let index = usize::try_from(place.line).unwrap_or(usize::MAX) - 1;
        let line = source.split('\n').nth(index).unwrap_or_default();
        let before = usize::try_from(place.column).unwrap_or(usize::MAX) - 1;
        // A long line is shown from a little before the position.
        let skipped = if line.chars().count() > MAX_SHOWN_CHARS {
            before.saturating_sub(MAX_SHOWN_CHARS / 2)
        } else {
            0
        };
        let shown = line.chars().skip(skipped).take(MAX_SHOWN_CHARS);
        Self {
            message: message.into(),
            line: place.line,
            column: place.column,
            source_line: shown.map(|c| if c.is_control() { ' ' } else { c }).collect(),
            hint: None,
            caret: before - skipped,
        }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { message, line, column, source_line, .. } = self;
        let number = line.to_string();
        writeln!(f, "line {line}, column {column}: {message}")?;
        writeln!(f, "  {number} | {}", source_line.trim_end())?;
        write!(f, "  {:>1$} | {2:>3$}", "", number.len(), "^", self.caret + 1)?;
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for SyntaxError {}
