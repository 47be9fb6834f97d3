//! Exit codes: what a script can tell from the outcome.
//! Owns: the codes and their meaning.      Never: ends the process (`main` does).
//! In: how a command ended.  Out: the number.
//! Tests: below, and `tests/config.rs` as a shell sees them.

use std::process::ExitCode;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It did what was asked.
    Success,
    /// Something else went wrong.
    Failure,
    /// The command line makes no sense, or names a server, a tool or an argument that is not there.
    Usage,
    /// The configuration cannot be used.
    Config,
    /// The server could not be reached.
    Unavailable,
    /// The tool ran and answered with an error.
    ToolError,
}

impl Exit {
    /// Every code with its meaning, for help and reference.
    pub(crate) const ALL: [(Exit, &'static str); 6] = [
        (Exit::Success, "success"),
        (Exit::Failure, "something failed; the message says what"),
        (Exit::Usage, "the command line makes no sense, or names what is not there"),
        (Exit::Config, "no config file, or one that cannot be used"),
        (
            Exit::Unavailable,
            "the server could not be reached, or the outcome of the call is not known",
        ),
        (Exit::ToolError, "the tool answered with an error"),
    ];

    /// The number a shell sees. Stable: scripts depend on it.
    pub(crate) fn code(self) -> u8 {
        match self {
            Exit::Success => 0,
            Exit::Failure => 1,
            Exit::Usage => 2,
            Exit::Config => 3,
            Exit::Unavailable => 4,
            Exit::ToolError => 5,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use super::Exit;

    #[test]
    fn codes_are_in_order_and_complete() {
        let codes: Vec<u8> = Exit::ALL.iter().map(|(exit, _)| exit.code()).collect();
        assert_eq!(codes, [0, 1, 2, 3, 4, 5]);
    }
}
