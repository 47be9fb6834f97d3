//! What can be wrong with a JSON text.
//! Owns: the names of defects.      Never: finds them.
//! In: a kind and an offset.  Out: the text of an error.
//! Tests: `scan/tests.rs`, `envelope/tests.rs`.

/// What is wrong with a text, and at which byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{kind} at byte {at}")]
pub struct Defect {
    /// What is wrong.
    pub kind: Kind,
    /// Offset of the byte where it was noticed.
    pub at: usize,
}

/// The ways in which a text can fail to be JSON, or a JSON text to be a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Kind {
    /// The text ends inside a value.
    #[error("unexpected end")]
    End,
    /// A byte that cannot stand here.
    #[error("unexpected character")]
    Unexpected,
    /// Something follows the value.
    #[error("text after the value")]
    Trailing,
    /// `\` followed by something JSON does not know.
    #[error("invalid escape")]
    Escape,
    /// A control character inside a string.
    #[error("control character in a string")]
    Control,
    /// A number not written the way JSON writes numbers.
    #[error("invalid number")]
    Number,
    /// The text is not UTF-8.
    #[error("invalid UTF-8")]
    Encoding,
    /// Nested beyond the limit.
    #[error("nested too deeply")]
    Depth,
    /// The same member twice in one object.
    #[error("duplicate member")]
    Duplicate,
    /// A member that a careless parser takes for a known one: other case, or a NUL at its end.
    #[error("member that looks like a known one")]
    LookAlike,
    /// More members than a message can have.
    #[error("too many members")]
    Members,
    /// An object was needed.
    #[error("not an object")]
    NotObject,
    /// JSON, but neither an object nor an array: no message.
    #[error("not a message")]
    NotMessage,
    /// No `jsonrpc` member: noise such as a log line rather than a broken message.
    #[error("no jsonrpc member")]
    VersionMissing,
    /// `jsonrpc` is not `"2.0"`.
    #[error("jsonrpc is not \"2.0\"")]
    VersionWrong,
    /// `id` is neither a string nor a number where one is needed.
    #[error("id is neither a string nor a number")]
    Id,
    /// A result without an id.
    #[error("result without an id")]
    IdMissing,
    /// `method` is not a string.
    #[error("method is not a string")]
    Method,
    /// `params` is neither an object nor an array.
    #[error("params is neither an object nor an array")]
    Params,
    /// `error` is not an object.
    #[error("error is not an object")]
    Error,
    /// More than one of `method`, `result` and `error`.
    #[error("more than one of method, result and error")]
    Mixed,
    /// None of `method`, `result` and `error`.
    #[error("none of method, result and error")]
    Shapeless,
    /// A batch without elements.
    #[error("empty batch")]
    BatchEmpty,
    /// A batch with more elements than allowed.
    #[error("too many messages in one batch")]
    BatchLong,
}

impl Kind {
    /// Whether the text is not JSON at all, as opposed to JSON that is no proper message.
    pub fn is_syntax(self) -> bool {
        matches!(
            self,
            Kind::End
                | Kind::Unexpected
                | Kind::Trailing
                | Kind::Escape
                | Kind::Control
                | Kind::Number
                | Kind::Encoding
        )
    }
}
