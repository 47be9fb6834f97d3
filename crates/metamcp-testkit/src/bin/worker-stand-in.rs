//! Replays frames recorded by a test in place of a sandbox worker.
use std::process::ExitCode;

fn main() -> ExitCode {
    metamcp_testkit::stand_in::main(std::env::args_os().skip(1))
}
