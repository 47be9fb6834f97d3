//! Exit codes: how a script learns the outcome.
//! Owns: the codes and their meaning.      Never: ends the process (`main` does).
//! In: how a command ended, or its error.  Out: the number.
//! Tests: below, and `tests/config.rs` as a shell sees them.

use std::fmt;
use std::process::ExitCode;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Success,
    /// Any other failure.
    Failure,
    /// The command line is invalid, or names a file, a server, a tool or an argument that does not exist.
    Usage,
    /// The configuration cannot be used.
    Config,
    /// The server could not be reached.
    Unavailable,
    /// The tool ran and returned an error.
    ToolError,
    /// The audit log was changed, or part of it is missing.
    AuditBroken,
}

impl Exit {
    /// Every code with its meaning, for help and reference.
    pub(crate) const ALL: [(Exit, &'static str); 7] = [
        (Exit::Success, "success"),
        (Exit::Failure, "something failed; the message says what"),
        (
            Exit::Usage,
            "the input is wrong: a flag, a file, or the name of a server, tool or client",
        ),
        (Exit::Config, "no config file, or one that cannot be used"),
        (
            Exit::Unavailable,
            "server or required daemon not reached, or the outcome of the call not known",
        ),
        (Exit::ToolError, "the tool answered with an error, or the script ended with one"),
        (Exit::AuditBroken, "the audit log was changed, or part of it is missing"),
    ];

    /// The exit code for a command that returned an error.
    pub(crate) fn of(error: &anyhow::Error) -> Exit {
        let is_misuse = error.chain().any(<dyn std::error::Error>::is::<Misuse>);
        if is_misuse { Exit::Usage } else { Exit::Failure }
    }

    /// The exit of a command that ran elsewhere, by its code.
    pub(crate) fn from_code(code: u8) -> Exit {
        let known = Exit::ALL.into_iter().find(|(exit, _)| exit.code() == code);
        known.map_or(Exit::Failure, |(exit, _)| exit)
    }

    /// The number the shell sees. Stable: scripts depend on it.
    pub(crate) fn code(self) -> u8 {
        match self {
            Exit::Success => 0,
            Exit::Failure => 1,
            Exit::Usage => 2,
            Exit::Config => 3,
            Exit::Unavailable => 4,
            Exit::ToolError => 5,
            Exit::AuditBroken => 6,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit.code())
    }
}

/// A usage error: only a different command line helps. It displays as the error inside it.
#[derive(Debug)]
pub(crate) struct Misuse(anyhow::Error);

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.0)
    }
}

impl std::error::Error for Misuse {}

pub(crate) fn misuse(words: impl Into<String>) -> anyhow::Error {
    anyhow::Error::new(Misuse(anyhow::Error::msg(words.into())))
}

/// Marks failures as usage errors.
pub(crate) trait OrMisuse<T> {
    /// The same failure, as a usage error.
    fn or_misuse(self) -> anyhow::Result<T>;
}

impl<T, E: Into<anyhow::Error>> OrMisuse<T> for Result<T, E> {
    fn or_misuse(self) -> anyhow::Result<T> {
        self.map_err(|error| anyhow::Error::new(Misuse(error.into())))
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::{Exit, OrMisuse, misuse};

    #[test]
    fn codes_are_in_order_and_complete() {
        let codes: Vec<u8> = Exit::ALL.iter().map(|(exit, _)| exit.code()).collect();
        assert_eq!(codes, [0, 1, 2, 3, 4, 5, 6]);
        assert!(Exit::ALL.iter().all(|(exit, _)| Exit::from_code(exit.code()) == *exit));
        assert_eq!(Exit::from_code(77), Exit::Failure);
    }

    #[test]
    fn input_errors_are_distinguished_and_keep_their_text() {
        let broken = || -> anyhow::Result<()> { anyhow::bail!("broken") };
        assert_eq!(Exit::of(&broken().unwrap_err()), Exit::Failure);
        let error = broken().context("the file x").or_misuse().context("eval").unwrap_err();
        assert_eq!(
            (Exit::of(&error), format!("{error:#}")),
            (Exit::Usage, "eval: the file x: broken".to_owned())
        );
        assert_eq!(Exit::of(&misuse("no")), Exit::Usage);
    }
}
