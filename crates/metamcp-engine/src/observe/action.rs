//! What is decided or changed beside calls: approvals, installations, trust, the configuration, and who was not let in.

use super::Identity;

/// A decision or a change, with how it ended.
#[derive(Clone, Copy, Debug)]
pub struct Action<'a> {
    /// Who did it, where a session did; else the owner, by a command or a file.
    pub identity: Option<&'a Identity>,
    pub subject: Subject<'a>,
    /// In one word: `approved`, `declined`, `installed`, `failed`.
    pub verdict: &'static str,
}

#[derive(Clone, Copy, Debug)]
pub enum Subject<'a> {
    /// The installation of a server was decided on.
    Approval { server: &'a str, package: &'a str, plan: &'a str },
    /// A call was decided on, or an answer about such calls was given or revoked; with the digest of its arguments,
    /// `*` for all.
    Call { server: &'a str, tool: &'a str, arguments: &'a str },
    /// A server was installed or removed, or was not.
    Installation { server: &'a str, package: &'a str, plan: &'a str },
    /// It was decided whether the file of a project may be used.
    Trust { file: &'a str, sha256: &'a str },
    /// The configuration in force changed, or one of its files.
    Config {
        /// The file, where a command changed one.
        file: Option<&'a str>,
        added: &'a [String],
        changed: &'a [String],
        removed: &'a [String],
        /// Whether settings or toolsets changed as well.
        settings: bool,
    },
    /// Somebody was not let in.
    Refusal { at: &'static str, reason: &'a str },
}

impl<'a> Action<'a> {
    pub fn new(subject: Subject<'a>, verdict: &'static str) -> Action<'a> {
        Action { identity: None, subject, verdict }
    }

    #[must_use]
    pub fn by(self, identity: &'a Identity) -> Action<'a> {
        Action { identity: Some(identity), ..self }
    }
}
