//! `metamcp --transport http`: the daemon listens, for as long as this process lives.
//! Owns: that the address stays the same whatever becomes of the daemon.      Never: accepts a connection.
//! In: a launcher.  Out: an exit code, or that this process has to listen by itself.
//! Tests: `tests/daemon/listening.rs`.

use std::time::Duration;

use metamcp_wire::local::{Code, Hello};

use super::ends::{Signals, Stop, no_more};
use super::launch::{Found, Launcher, Trouble};
use super::{say, tell};
use crate::exit::Exit;

/// Tries to be listened for again, while the port of a daemon that died is not free yet.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(100);

/// Has the daemon listen until a signal comes.
pub(super) fn run(mut launcher: Launcher, mut hello: Hello, found: Found) -> Exit {
    let Ok(signals) = Signals::new() else { return Exit::Failure };
    let address = found.accepted.address.clone().unwrap_or_default();
    say(&format!("listening on {address}"));
    tell(&found.accepted.remarks);
    // The system may have chosen the port; from now on it is this one.
    if let Some(port) = port_of(&address) {
        with_port(&mut hello.flags, port);
    }
    let mut found = found;
    let mut is_renamed = false;
    loop {
        if matches!(Stop::wait(&found.stream, &signals), Ok(Stop::Signal)) {
            return drained(&found, &signals);
        }
        found = match again(&mut launcher, &mut is_renamed, &hello, &signals) {
            Ok(Some(next)) => next,
            // A signal came meanwhile.
            Ok(None) => return Exit::Success,
            Err(trouble) => {
                say(&format!("the daemon ended and no other listens on {address}: {trouble}"));
                return Exit::Unavailable;
            }
        };
    }
}

/// The next daemon: the one that took the listener over knows it by the flags of the first hello, any other gets the port.
fn again(
    launcher: &mut Launcher,
    is_renamed: &mut bool,
    hello: &Hello,
    signals: &Signals,
) -> Result<Option<Found>, Trouble> {
    let mut tried = 0;
    loop {
        if signals.arrived() > 0 {
            return Ok(None);
        }
        if !*is_renamed {
            launcher.say_instead(hello.to_line());
            *is_renamed = true;
        }
        match launcher.find() {
            Ok(found) => return Ok(Some(found)),
            Err(Trouble::Refused(refusal)) if refusal.code == Code::Internal && tried < TRIES => {
                tried += 1;
                std::thread::sleep(PAUSE);
            }
            Err(trouble) => return Err(trouble),
        }
    }
}

/// Lets requests in flight finish; a second signal does not wait for them.
fn drained(found: &Found, signals: &Signals) -> Exit {
    // Where it is gone already, nothing is in flight.
    no_more(&found.stream).ok();
    // However that ends, so does this.
    Stop::wait(&found.stream, signals).ok();
    Exit::Success
}

fn port_of(address: &str) -> Option<u16> {
    let authority = address.split("://").nth(1)?.split('/').next()?;
    authority.rsplit(':').next()?.parse().ok()
}

fn with_port(flags: &mut Vec<String>, port: u16) {
    let mut kept = Vec::with_capacity(flags.len() + 1);
    let mut words = std::mem::take(flags).into_iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--port" => drop(words.next()),
            word if word.starts_with("--port=") => {}
            _ => kept.push(word),
        }
    }
    kept.push(format!("--port={port}"));
    *flags = kept;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_stays_what_it_was() {
        assert_eq!(port_of("http://127.0.0.1:4321/mcp"), Some(4321));
        assert_eq!(port_of("https://[::1]:80/mcp"), Some(80));
        assert_eq!(port_of("nonsense"), None);
        let mut flags: Vec<String> =
            ["--transport", "http", "--port", "0", "--port=5"].map(str::to_owned).into();
        with_port(&mut flags, 4321);
        assert_eq!(flags, ["--transport", "http", "--port=4321"]);
    }
}
