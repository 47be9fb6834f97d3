//! Validates arguments against a tool's input schema before the call is sent.
//! Owns: validation, and the messages of violations.      Never: rejects what JSON Schema accepts.
//! In: a schema once, then arguments.  Out: nothing wrong, or up to five violations.
//! Tests: `arguments/tests.rs` (against the `jsonschema` crate as the oracle).
//!
//! Written by hand because the schema is untrusted: compiling and checking each cost a bounded
//! number of steps whatever it says, no pattern is ever run, nothing is fetched, and a call whose
//! arguments are fine costs no allocation. Unsupported keywords count as "unknown", and only a
//! certain violation is reported; the server decides the rest.

mod compile;
mod explain;
mod flat;
mod mistyped;
mod node;
mod validate;

use std::fmt;

use serde_json::Value;

use node::{Node, NodeId};
use validate::{Validator, Validity};

#[cfg(test)]
mod tests;

/// Violations reported at once: enough to fix a call in one go, few enough to read.
pub const MAX_VIOLATIONS: usize = 5;

/// Steps one check may take, about a tenth of a millisecond. Past it the arguments pass and the child decides.
const MAX_STEPS: u32 = 20_000;

/// One thing wrong with the arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Where, as `options.tags[2]`; empty for the arguments as a whole.
    pub path: String,
    /// What the schema wants there, as a phrase.
    pub expected: String,
    /// What was there, shortened.
    pub got: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() { "arguments" } else { &self.path };
        write!(f, "{path}: expected {}, got {}", self.expected, self.got)
    }
}

/// A schema made ready for checking.
#[derive(Debug, Clone)]
pub struct Checker {
    nodes: Box<[Node]>,
    old_integers: bool,
    flat: Option<flat::Flat>,
}

impl Checker {
    /// Reads a schema; takes a bounded number of steps and never fails.
    pub fn new(schema: &Value) -> Self {
        Checker { flat: flat::Flat::of(schema), ..compile::compile(schema) }
    }

    /// Whether these arguments, valid JSON as written, certainly pass and hold no member twice: the common case,
    /// told without building anything. `false` is no verdict.
    pub fn surely_fits(&self, raw: &[u8]) -> bool {
        self.flat.as_ref().is_some_and(|flat| flat.fits(raw))
    }

    /// Says what is certainly wrong with `arguments`.
    pub fn check(&self, arguments: &Value) -> Result<(), Vec<Violation>> {
        if Validator::new(self).validate(NodeId::ROOT, arguments) != Validity::No {
            return Ok(());
        }
        Err(explain::explain(self, arguments))
    }

    /// Whether every object passes, so that the arguments need not be parsed at all.
    pub fn is_trivial(&self) -> bool {
        self.node(NodeId::ROOT).accepts_any_object()
    }

    fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }
}

/// What went wrong and the signature to go by, one line each.
pub fn render(violations: &[Violation], signature: &str) -> String {
    let mut text = String::new();
    for violation in violations {
        text.push_str(&violation.to_string());
        text.push('\n');
    }
    text.push_str("signature: ");
    text.push_str(signature);
    text
}
