//! Prompts at the terminal.
//! Owns: terminal detection, prompts, hidden input.      Never: takes silence or a pipe for consent, stores input.
//! In: a prompt, and a `Write` for it.  Out: confirmed or not, a line, a secret.
//! Tests: below, and `tests/real/provision.rs` in a pseudo-terminal.

use std::io::{self, BufRead, Write};

use anyhow::{Context, bail};

use crate::console;

/// Whether there is a terminal to prompt at.
pub(crate) fn is_there() -> bool {
    console::is_stdin_terminal()
}

/// Asks for confirmation, which `--yes` (`yes`) gives in advance. With neither `--yes` nor a terminal it fails, and the
/// error begins with `undone`: what did not happen.
pub(crate) fn agrees(
    out: &mut dyn Write,
    question: &str,
    yes: bool,
    undone: &str,
) -> anyhow::Result<bool> {
    if !has_to_ask(yes, is_there(), undone)? {
        return Ok(true);
    }
    let answer = line(out, &format!("{question} [y/N] "))?;
    Ok(matches!(answer.to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// Asks for confirmation, with yes as the default. End of input counts as no.
pub(crate) fn agrees_unless_no(out: &mut dyn Write, question: &str) -> anyhow::Result<bool> {
    write!(out, "{question} [Y/n] ")?;
    out.flush()?;
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line)?;
    let line = line.trim().to_ascii_lowercase();
    Ok(read > 0 && matches!(line.as_str(), "" | "y" | "yes"))
}

fn has_to_ask(yes: bool, is_there: bool, undone: &str) -> anyhow::Result<bool> {
    if !yes && !is_there {
        bail!("{undone}: there is no terminal to ask at; --yes applies exactly what is shown");
    }
    Ok(!yes)
}

/// One line of input, trimmed.
pub(crate) fn line(out: &mut dyn Write, prompt: &str) -> anyhow::Result<String> {
    write!(out, "{prompt}")?;
    out.flush()?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    Ok(line.trim().to_owned())
}

/// The same for secrets: the input is not echoed, so that nobody reads it over a shoulder or in the scrollback.
#[cfg(windows)]
pub(crate) fn secret(out: &mut dyn Write, prompt: &str) -> anyhow::Result<String> {
    // Keys are read one by one from the console, which shows none of them.
    let terminal = ::console::Term::stderr();
    if !terminal.is_term() {
        bail!("{CANNOT_HIDE}");
    }
    write!(out, "{prompt} [not shown]: ")?;
    out.flush()?;
    match terminal.read_secure_line() {
        Ok(line) => Ok(line.trim().to_owned()),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
            writeln!(out)?;
            bail!("interrupted: nothing was done")
        }
        Err(error) => Err(error).context(CANNOT_HIDE),
    }
}

const CANNOT_HIDE: &str = "this terminal cannot hide what is typed; give a reference instead, with -e NAME=file:/path or NAME=cmd:...";

/// The same for secrets: the input is not echoed, so that nobody reads it over a shoulder or in the scrollback.
#[cfg(unix)]
pub(crate) fn secret(out: &mut dyn Write, prompt: &str) -> anyhow::Result<String> {
    let silence = silence::begin(&io::stdin()).context(CANNOT_HIDE)?;
    let typed = write!(out, "{prompt} [not shown]: ")
        .and_then(|()| out.flush())
        .and_then(|()| typed(&mut io::stdin().lock()));
    drop(silence);
    match typed? {
        Some(line) => Ok(line),
        None => {
            writeln!(out)?;
            bail!("interrupted: nothing was done")
        }
    }
}

/// The byte that Ctrl-C sends while the terminal raises no signal for it.
#[cfg(unix)]
const INTERRUPT: u8 = 3;

/// One line of typed input, trimmed; `None` if it was interrupted.
#[cfg(unix)]
fn typed(input: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    loop {
        let more = match input.fill_buf() {
            // A signal that does not end the process does not end the line either: a resized window, say.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            more => more?,
        };
        let end = more.iter().position(|byte| matches!(*byte, b'\n' | INTERRUPT));
        let taken = end.unwrap_or(more.len());
        line.extend_from_slice(&more[..taken]);
        let last = end.map(|end| more[end]);
        let is_over = last.is_some() || more.is_empty();
        input.consume(taken + usize::from(last.is_some()));
        if last == Some(INTERRUPT) {
            return Ok(None);
        }
        if is_over {
            return Ok(Some(String::from_utf8_lossy(&line).trim().to_owned()));
        }
    }
}

#[cfg(unix)]
mod silence {
    use std::io;
    use std::os::fd::{AsFd, OwnedFd};

    use nix::sys::termios::{
        LocalFlags, SetArg, SpecialCharacterIndices, Termios, tcgetattr, tcsetattr,
    };

    use super::INTERRUPT;

    /// While this lives, the terminal does not echo input.
    pub(super) struct EchoOff {
        terminal: OwnedFd,
        before: Termios,
    }

    pub(super) fn begin(terminal: &impl AsFd) -> io::Result<EchoOff> {
        let terminal = terminal.as_fd().try_clone_to_owned()?;
        let before = tcgetattr(&terminal)?;
        let mut silent = before.clone();
        // Ctrl-C ends the line instead of the process: a process that is gone cannot turn the echo back on.
        silent.local_flags.remove(LocalFlags::ECHO | LocalFlags::ISIG);
        silent.control_chars[SpecialCharacterIndices::VEOL as usize] = INTERRUPT;
        // Echo the newline, so that later output does not follow the prompt on its line.
        silent.local_flags.insert(LocalFlags::ECHONL);
        // Keep what was typed ahead: it answers the prompts that follow.
        tcsetattr(&terminal, SetArg::TCSADRAIN, &silent)?;
        Ok(EchoOff { terminal, before })
    }

    impl Drop for EchoOff {
        fn drop(&mut self) {
            // A terminal that is gone needs no restoring.
            tcsetattr(&self.terminal, SetArg::TCSADRAIN, &self.before).ok();
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use nix::pty::openpty;
    use nix::sys::termios::{LocalFlags, tcgetattr};

    use super::*;

    #[test]
    fn a_terminal_is_silent_for_as_long_as_a_secret_is_typed() {
        let pair = openpty(None, None).unwrap();
        let shows = || tcgetattr(&pair.slave).unwrap().local_flags.contains(LocalFlags::ECHO);
        assert!(shows());
        let silence = silence::begin(&pair.slave).unwrap();
        assert!(!shows());
        drop(silence);
        assert!(shows());
    }

    #[test]
    fn an_interrupted_secret_is_none_and_the_terminal_shows_things_again() {
        let pair = openpty(None, None).unwrap();
        let silence = silence::begin(&pair.slave).unwrap();
        let mut keys = std::fs::File::from(pair.master);
        let mut terminal = io::BufReader::new(std::fs::File::from(pair.slave));
        keys.write_all(b"hunter2\nhun\x03 later \n").unwrap();
        assert_eq!(typed(&mut terminal).unwrap().as_deref(), Some("hunter2"));
        assert_eq!(typed(&mut terminal).unwrap(), None);
        assert_eq!(typed(&mut terminal).unwrap().as_deref(), Some("later"));
        drop(silence);
        let flags = tcgetattr(terminal.get_ref()).unwrap().local_flags;
        assert!(flags.contains(LocalFlags::ECHO | LocalFlags::ISIG));
        assert_eq!(typed(&mut &b"no line break"[..]).unwrap().as_deref(), Some("no line break"));
    }

    #[test]
    fn a_signal_ends_no_line() {
        struct Interrupted(io::BufReader<&'static [u8]>, bool);
        impl io::Read for Interrupted {
            fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
                self.0.read(into)
            }
        }
        impl BufRead for Interrupted {
            fn fill_buf(&mut self) -> io::Result<&[u8]> {
                if std::mem::take(&mut self.1) {
                    return Err(io::ErrorKind::Interrupted.into());
                }
                self.0.fill_buf()
            }
            fn consume(&mut self, amount: usize) {
                self.0.consume(amount);
            }
        }
        let mut terminal = Interrupted(io::BufReader::new(&b"hunter2\n"[..]), true);
        assert_eq!(typed(&mut terminal).unwrap().as_deref(), Some("hunter2"));
    }

    #[test]
    fn what_is_no_terminal_cannot_be_silenced() {
        assert!(silence::begin(&std::fs::File::open("/dev/null").unwrap()).is_err());
    }

    #[test]
    fn without_a_terminal_only_the_flag_counts_as_approval() {
        let undone = "nothing was done";
        assert!(!has_to_ask(true, false, undone).unwrap());
        assert!(!has_to_ask(true, true, undone).unwrap());
        assert!(has_to_ask(false, true, undone).unwrap());
        let refused = has_to_ask(false, false, undone).unwrap_err().to_string();
        assert!(
            refused.starts_with("nothing was done: there is no terminal to ask at"),
            "{refused}"
        );
    }
}
