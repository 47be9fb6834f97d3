//! A server that records every byte it receives.
use std::process::ExitCode;

fn main() -> ExitCode {
    metamcp_testkit::line_journal::main(std::env::args_os().skip(1))
}
