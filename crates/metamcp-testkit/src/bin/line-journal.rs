//! A server that writes down every byte it is sent.
use std::process::ExitCode;

fn main() -> ExitCode {
    metamcp_testkit::line_journal::main(std::env::args_os().skip(1))
}
