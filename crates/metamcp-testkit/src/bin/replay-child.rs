//! A server that lists what a real one listed when it was recorded.
use std::process::ExitCode;

fn main() -> ExitCode {
    metamcp_testkit::replay::main(std::env::args_os().skip(1))
}
