//! The least a process in the middle can do: copy bytes. Benchmarks measure us against it.
use std::process::ExitCode;

fn main() -> ExitCode {
    metamcp_testkit::relay::main(std::env::args_os().skip(1))
}
