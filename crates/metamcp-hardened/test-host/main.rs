//! Workers with the engine as WASM, without a gateway, for the tests: as each system has them, and without the lockdown.

use std::process::ExitCode;

use metamcp_hardened::worker;

fn main() -> ExitCode {
    let code = match std::env::args().nth(1).as_deref() {
        Some("unlocked") => worker::unlocked_worker_main(),
        Some("piped") => worker::piped_worker_main(),
        _ => 64,
    };
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
