//! `metamcp completions`: a script that completes our command line.

use std::io::Write;

use crate::args::{self, CompletionsArgs};
use crate::exit::Exit;

pub(crate) fn run(arguments: &CompletionsArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    // The generator panics when it cannot write; a closed pipe is our caller's right.
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut args::command(), "metamcp", &mut script);
    out.write_all(&script)?;
    Ok(Exit::Success)
}
