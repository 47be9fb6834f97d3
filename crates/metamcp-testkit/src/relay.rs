//! The byte-copy baseline: a proxy that interprets nothing.
//! Owns: two blocking copy threads.  Never: interprets a byte.
//! In: a command.  Out: its bytes, its exit code.
//! Tests: `tests/it/programs.rs`.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::process::{Command, ExitCode, Stdio};
use std::thread;

use anyhow::{Context, Result, bail};

/// One pipe buffer: a single read of a pipe cannot fill more.
const CHUNK: usize = 64 * 1024;

/// Runs the command in `arguments` and copies both directions until it exits.
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    match relay(arguments) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            // With stderr closed as well there is nowhere left to report to.
            drop(writeln!(io::stderr(), "copy-relay: {error:#}"));
            ExitCode::from(2)
        }
    }
}

fn relay(mut arguments: impl Iterator<Item = OsString>) -> Result<u8> {
    let Some(program) = arguments.next() else { bail!("usage: copy-relay COMMAND [ARGUMENTS]") };
    let mut child = Command::new(&program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {}", program.display()))?;
    let to_child = child.stdin.take().context("the child has no stdin")?;
    let from_child = child.stdout.take().context("the child has no stdout")?;
    // Not joined: once the child has exited, further client input has no reader.
    thread::spawn(move || copy(unbuffered(io::stdin()), to_child));
    copy(from_child, unbuffered(io::stdout())).ok();
    Ok(child.wait()?.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

fn copy(mut from: impl Read, mut to: impl Write) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK];
    loop {
        match from.read(&mut chunk)? {
            0 => return Ok(()),
            length => to.write_all(&chunk[..length])?,
        }
    }
}

/// Rust's own stdin and stdout are buffered; a duplicate of the descriptor is not.
pub(crate) fn unbuffered(stream: impl std::os::fd::AsFd) -> std::fs::File {
    stream
        .as_fd()
        .try_clone_to_owned()
        .map(Into::into)
        .expect("a standard stream can be duplicated")
}
