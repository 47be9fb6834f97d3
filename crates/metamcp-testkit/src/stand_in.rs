//! Stands in for a sandbox worker: replays bytes recorded by a test, and nothing of its own.
//! Owns: when they are sent.      Never: interprets them, except for frame boundaries.
//! In: a folder with `ready` and files of frames.  Out: their bytes, on the socket that is its stdin.
//! Tests: used by `metamcp/tests/hazards/frames.rs`.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read as _};
use std::path::Path;
use std::process::ExitCode;

/// The prefix of its file number, which it finds in the script it is given.
pub const WORD: &str = "frames-";

/// The frame kind of a reply to a worker's request.
const REPLY: u8 = 2;

/// A file of frames: this many replies are awaited between the two parts.
pub fn file(replies: u32, first: &[u8], second: &[u8]) -> Vec<u8> {
    let length = u32::try_from(first.len()).unwrap_or(u32::MAX);
    [&replies.to_le_bytes()[..], &length.to_le_bytes(), first, second].concat()
}

/// The entry point. Its argument is the folder.
pub fn main(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let folder = arguments.next().unwrap_or_default();
    match play(Path::new(&folder)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn play(folder: &Path) -> io::Result<()> {
    say(&fs::read(folder.join("ready"))?)?;
    let Some(job) = frame()? else { return Ok(()) };
    let job = String::from_utf8_lossy(&job).into_owned();
    let number: String = match job.split_once(WORD) {
        Some((_, rest)) => rest.chars().take_while(char::is_ascii_digit).collect(),
        None => return Ok(()),
    };
    let file = fs::read(folder.join(number))?;
    let (replies, rest) = number_at_front(&file)?;
    let (length, rest) = number_at_front(rest)?;
    let (first, second) =
        rest.split_at_checked(length as usize).ok_or(io::ErrorKind::InvalidData)?;
    say(first)?;
    let mut heard = 0;
    while heard < replies {
        let Some(frame) = frame()? else { return Ok(()) };
        heard += u32::from(frame.first() == Some(&REPLY));
    }
    say(second)?;
    nix::sys::socket::shutdown(0, nix::sys::socket::Shutdown::Write)?;
    while frame()?.is_some() {}
    Ok(())
}

fn number_at_front(bytes: &[u8]) -> io::Result<(u32, &[u8])> {
    let (number, rest) = bytes.split_first_chunk().ok_or(io::ErrorKind::InvalidData)?;
    Ok((u32::from_le_bytes(*number), rest))
}

/// The next frame, `None` at the end of the stream.
fn frame() -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    match io::stdin().lock().read_exact(&mut length) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let mut frame = vec![0; u32::from_le_bytes(length) as usize];
    io::stdin().lock().read_exact(&mut frame)?;
    Ok(Some(frame))
}

fn say(mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let count = nix::unistd::write(io::stdin(), bytes)?;
        bytes = &bytes[count..];
    }
    Ok(())
}
