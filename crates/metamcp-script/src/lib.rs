//! A script as a model writes it, TypeScript or JavaScript, made into the body of an async function.
//! Owns: what is blanked, what is lowered, what is refused, what the script's value is.      Never: checks types, runs anything, moves a line.
//! In: source text.  Out: `PreparedScript`, or a `SyntaxError` that points at the place.
//! Tests: `tests/` of this crate, and beside the code.

mod edits;
mod ending;
mod error;
mod nesting;
mod parse;
mod position;
mod scan;
mod scope;
mod walk;

pub use error::SyntaxError;
pub use position::Position;

/// Longest source, in bytes. A script that needs more is data in disguise.
pub const MAX_SOURCE_BYTES: usize = 64 * 1024;

/// Most brackets open at once, `<` and `?` among them. What people write stays below 30; the parser looks ahead in
/// ways that take the cube of this, which is a tenth of a second here.
pub const MAX_NESTING: usize = 200;

/// Where the value of a script comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The script says `return` itself.
    Return,
    /// The last statement is an expression, and was made to return.
    LastExpression,
    /// A function nobody called was called: the whole script, or one named `main`.
    CalledFunction,
    /// Nothing: the value is `undefined`. Worth a word to whoever wrote the script.
    Nothing,
}

/// A script that can run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreparedScript {
    /// The body of an async function. It may end in a line comment, so a newline must follow it.
    pub code: String,
    /// Every free identifier, and every `X` of `servers.X` and `servers["X"]`, each once, in order of appearance.
    pub names: Vec<String>,
    /// Where its value comes from.
    pub ending: Ending,
    shifts: position::Shifts,
}

impl PreparedScript {
    /// Where a place in `code` is in the source. Lines are always the same; columns differ only on a line
    /// where something had to be inserted.
    pub fn position(&self, in_code: Position) -> Position {
        self.shifts.back(in_code)
    }
}

/// Makes `source` runnable, or says where and why it cannot be.
///
/// # Errors
/// The source is too long, nested too deeply, not TypeScript, or uses what a script cannot have.
pub fn prepare(source: &str) -> Result<PreparedScript, SyntaxError> {
    if source.len() > MAX_SOURCE_BYTES {
        return Err(SyntaxError::at(
            source,
            0,
            format!("the source has {} bytes; the limit is {MAX_SOURCE_BYTES}", source.len()),
        ));
    }
    parse::prepare(source)
}

/// What fuzzing runs: whatever the source, there is an answer, and what is said to run has as many lines.
#[doc(hidden)]
pub fn fuzz_script(data: &[u8]) {
    let Ok(source) = std::str::from_utf8(data) else { return };
    match prepare(source) {
        Ok(script) => {
            let lines = |text: &str| text.split('\n').count();
            // An object or a nameless function alone is put into brackets, the last on a line of its own.
            assert!(lines(&script.code) <= lines(source) + 1);
            // This parse has only the stack at hand.
            if source.len() < 1024 {
                assert!(parse::reads(&script.code), "not JavaScript: {}", script.code);
            }
        }
        Err(error) => {
            assert!(error.line >= 1 && error.column >= 1 && !error.to_string().is_empty());
        }
    }
}
