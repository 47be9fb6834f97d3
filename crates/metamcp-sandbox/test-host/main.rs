//! A worker without a gateway, for the tests; or, selected by its first argument, a hostile one.

#![expect(
    clippy::disallowed_methods,
    reason = "programs of tests start, wait and measure for themselves"
)]

#[cfg(target_os = "linux")]
mod hostile;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let first = arguments.next().unwrap_or_default();
    ExitCode::from(u8::try_from(start(first.to_str().unwrap_or_default(), arguments)).unwrap_or(1))
}

#[cfg(target_os = "linux")]
fn start(first: &str, arguments: impl Iterator<Item = std::ffi::OsString>) -> i32 {
    match first {
        "worker" => metamcp_sandbox::worker::worker_main(arguments),
        other => hostile::main(other, arguments),
    }
}

#[cfg(not(target_os = "linux"))]
fn start(_first: &str, _arguments: impl Iterator<Item = std::ffi::OsString>) -> i32 {
    64
}
