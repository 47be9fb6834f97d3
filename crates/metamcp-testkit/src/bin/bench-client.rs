//! Measures one path to a server, for `cargo xtask bench`.
use std::process::ExitCode;

fn main() -> ExitCode {
    metamcp_testkit::bench::main(std::env::args().skip(1))
}
