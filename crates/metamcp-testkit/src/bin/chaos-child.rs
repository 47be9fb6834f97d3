//! A child server that misbehaves on demand; `chaos-child --list` names the hazards.
use std::process::ExitCode;

fn main() -> ExitCode {
    metamcp_testkit::chaos::main(std::env::args_os().skip(1))
}
