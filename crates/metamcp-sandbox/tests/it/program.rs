//! The workers of these tests: the native engine, locked down.

use metamcp_sandbox::host::{Launch, Profile};

pub(crate) const PROFILE: Profile = Profile::Standard;

pub(crate) fn launch(args: &[&str]) -> Launch {
    Launch {
        program: env!("CARGO_BIN_EXE_sandbox-worker").into(),
        args: args.iter().map(Into::into).collect(),
        env: Vec::new(),
        // A hostile stand-in for a worker is started directly, not forked by the zygote.
        forks: args == ["worker"],
    }
}

/// Whether a script may end so.
pub(crate) fn fits(expected: &str, status: &str) -> bool {
    expected == status
}
