//! Turns a script as a model writes it, TypeScript or JavaScript, into the body of an async function.
//! Owns: what is blanked, lowered and rejected, the script's value.      Never: checks types, runs code, moves a line.
//! In: source text.  Out: `PreparedScript`, or a `SyntaxError` with its position.
//! Tests: `tests/` of this crate, and beside the code.

mod culprit;
mod edits;
mod ending;
mod error;
mod nesting;
mod parse;
mod position;
mod scan;
mod scope;
mod walk;

pub use culprit::{Complaint, Culprit, Origin, culprits};
pub use error::SyntaxError;
pub use position::Position;

/// Longest source, in bytes. A longer script is data in disguise.
pub const MAX_SOURCE_BYTES: usize = 64 * 1024;

/// Most brackets open at once, `<` and `?` among them. Hand-written code stays below 30; the parser's look-ahead is
/// cubic in this, which is a tenth of a second here.
pub const MAX_NESTING: usize = 200;

/// Where the value of a script comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The script has its own `return`.
    Return,
    /// The last statement is an expression, which is now returned.
    LastExpression,
    /// A function nobody called is now called: the whole script, or one named `main`.
    CalledFunction,
    /// Nothing: the value is `undefined`. Worth reporting to the author of the script.
    Nothing,
}

/// A script ready to run.
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
    /// The source position of a position in `code`. Lines are always the same; columns differ only on a line with an
    /// insertion.
    pub fn position(&self, in_code: Position) -> Position {
        self.shifts.back(in_code)
    }
}

/// Makes `source` runnable, or reports where and why it cannot be.
///
/// # Errors
/// The source is too long, nested too deeply, not TypeScript, or uses what a script cannot use.
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

/// The fuzz target: any source gets a result, and prepared code has as many lines as its source.
#[doc(hidden)]
pub fn fuzz_script(data: &[u8]) {
    let Ok(source) = std::str::from_utf8(data) else { return };
    match prepare(source) {
        Ok(script) => {
            let lines = |text: &str| text.split('\n').count();
            // A lone object or anonymous function is wrapped in parentheses, the closing one on its own line.
            assert!(lines(&script.code) <= lines(source) + 1);
            // This parse has only the current stack.
            if source.len() < 1024 {
                assert!(parse::reads(&script.code), "not JavaScript: {}", script.code);
            }
        }
        Err(error) => {
            assert!(error.line >= 1 && error.column >= 1 && !error.to_string().is_empty());
        }
    }
}
