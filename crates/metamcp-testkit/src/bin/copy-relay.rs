//! The minimal proxy: copies bytes. The baseline of the benchmarks.
use std::process::ExitCode;

fn main() -> ExitCode {
    metamcp_testkit::relay::main(std::env::args_os().skip(1))
}
