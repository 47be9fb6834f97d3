//! A child server that misbehaves as told; `chaos-child --list` names the ways.
use std::process::ExitCode;

fn main() -> ExitCode {
    metamcp_testkit::chaos::main(std::env::args_os().skip(1))
}
