//! The workers of these tests: the engine as WASM, with nothing around it but limits that every system has.

use metamcp_sandbox::host::{Launch, Profile};

pub(crate) const PROFILE: Profile = Profile::Wasm;

pub(crate) fn launch(args: &[&str]) -> Launch {
    let args: &[&str] = if args == ["worker"] { &["unlocked"] } else { args };
    Launch {
        program: env!("CARGO_BIN_EXE_wasm-worker").into(),
        args: args.iter().map(Into::into).collect(),
        env: Vec::new(),
        forks: false,
    }
}

/// Whether a script may end so. This engine takes longer to fill a heap.
pub(crate) fn fits(expected: &str, status: &str) -> bool {
    match expected {
        "memory_limit" => ["memory_limit", "cpu_limit"].contains(&status),
        expected => expected == status,
    }
}
