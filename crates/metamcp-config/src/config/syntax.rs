//! Messages for JSON syntax errors.

use std::borrow::Cow;

use jsonc_parser::ParseStringErrorKind;
use jsonc_parser::errors::{ParseError, ParseErrorKind};

/// Message and hint for a syntax error.
pub(super) fn syntax_words(text: &str, error: &ParseError) -> (Cow<'static, str>, Option<String>) {
    let hint = |text: &str| Some(text.to_owned());
    let (message, hint) = match error.kind() {
        ParseErrorKind::ExpectedComma => ("a comma is missing here", None),
        ParseErrorKind::UnterminatedObject => {
            ("this `{` is never closed", hint("add the missing `}`"))
        }
        ParseErrorKind::UnterminatedArray => {
            ("this `[` is never closed", hint("add the missing `]`"))
        }
        ParseErrorKind::UnterminatedCommentBlock => {
            ("this comment is never closed", hint("add the missing `*/`"))
        }
        ParseErrorKind::ExpectedColonAfterObjectKey => ("expected a colon after the key", None),
        ParseErrorKind::ExpectedObjectValue => ("expected a value after the colon", None),
        ParseErrorKind::ExpectedStringObjectProperty | ParseErrorKind::UnexpectedTokenInObject => {
            ("expected a key in double quotes", None)
        }
        ParseErrorKind::SingleQuotedStringsNotAllowed => ("strings stand in double quotes", None),
        ParseErrorKind::UnexpectedWord => (
            "expected a value",
            hint("words other than `true`, `false` and `null` need double quotes"),
        ),
        ParseErrorKind::UnexpectedCloseBrace => ("`}` cannot stand here", None),
        ParseErrorKind::UnexpectedCloseBracket => ("`]` cannot stand here", None),
        ParseErrorKind::UnexpectedComma => {
            ("expected a value, found a comma", hint("remove the comma"))
        }
        ParseErrorKind::UnexpectedColon => ("expected a value, found a colon", None),
        ParseErrorKind::MultipleRootJsonValues => (
            "the file goes on after its end",
            hint("the file is one object: check for a `}` too many"),
        ),
        ParseErrorKind::NestingDepthExceeded => ("nested too deeply", None),
        ParseErrorKind::String(ParseStringErrorKind::UnterminatedStringLiteral) => (
            "this string is never closed",
            hint("add the missing `\"`; a string cannot span lines"),
        ),
        ParseErrorKind::String(
            ParseStringErrorKind::InvalidEscape
            | ParseStringErrorKind::InvalidEscapeInDoubleQuoteString
            | ParseStringErrorKind::InvalidEscapeInSingleQuoteString,
        ) => ("not a valid escape", hint("a backslash in a string is written `\\\\`")),
        ParseErrorKind::String(_) => ("not a valid escape", None),
        _ if text.trim_start().starts_with('<') => ("this is not JSON", None),
        other => return (Cow::Owned(lowercase_first(&other.to_string())), None),
    };
    (Cow::Borrowed(message), hint)
}

fn lowercase_first(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| first.to_lowercase().chain(chars).collect())
}
