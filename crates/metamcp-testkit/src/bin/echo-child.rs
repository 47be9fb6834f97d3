//! The fastest child server we can write, for benchmarks.
use std::process::ExitCode;

fn main() -> ExitCode {
    metamcp_testkit::echo::main(std::env::args_os().skip(1))
}
