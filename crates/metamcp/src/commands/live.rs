//! Looking at a daemon again and again: what it answers, and what happens when it ends and another comes.
//! Owns: the connection, how often to ask, words on stderr about a daemon that ended.      Never: starts a daemon, keeps rows.
//! In: requests of the admin API.  Out: answers, or that nobody is there right now.
//! Tests: `tests/daemon/calls.rs`.

use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::daemon_client::{Absent, Admin, Answered, Refused};
use crate::exit::Exit;
use crate::render::{DIM, styled};
use crate::{console, terminal};

/// How often whoever follows something asks for more.
pub(crate) const LOOK: Duration = Duration::from_millis(250);

/// What an answer may be.
pub(crate) enum Heard<T> {
    Answer(T),
    Refused(Refused),
    /// No daemon is there. The next one counts anew.
    Gone,
}

/// A connection that is made again when it breaks.
pub(crate) struct Live<'a> {
    home: &'a Path,
    admin: Option<Admin>,
    /// How many daemons it has spoken to.
    daemons: u64,
}

impl<'a> Live<'a> {
    /// Connects to the daemon, which has to be there at first.
    pub(crate) fn open(home: &'a Path) -> anyhow::Result<Result<Live<'a>, Absent>> {
        Ok(Admin::connect(home)?.map(|admin| Live { home, admin: Some(admin), daemons: 1 }))
    }

    /// Which daemon answered last: numbers of rows of another one mean nothing.
    pub(crate) fn daemon(&self) -> u64 {
        self.daemons
    }

    /// Asks once. An answer that cannot be read is an error; a daemon that is gone is not.
    pub(crate) fn ask<T: DeserializeOwned>(
        &mut self,
        request: &str,
        params: &Value,
    ) -> anyhow::Result<Heard<T>> {
        if self.admin.is_none() {
            // One that begins or ends right now is not there yet, or not any more.
            let Ok(Ok(admin)) = Admin::connect(self.home) else { return Ok(Heard::Gone) };
            self.admin = Some(admin);
            self.daemons += 1;
        }
        let Some(admin) = &mut self.admin else { return Ok(Heard::Gone) };
        match admin.ask(request, params) {
            Ok(Answered::Value(value)) => Ok(Heard::Answer(serde_json::from_value(value)?)),
            Ok(Answered::Refused(refused)) => Ok(Heard::Refused(refused)),
            Err(_) => {
                self.admin = None;
                Ok(Heard::Gone)
            }
        }
    }
}

/// Tells a person once that the daemon ended, and once that another is there.
pub(crate) struct Watch {
    daemon: u64,
    is_gone: bool,
}

impl Watch {
    pub(crate) fn new(live: &Live<'_>) -> Watch {
        Watch { daemon: live.daemon(), is_gone: false }
    }

    /// After an answer: whether it came from another daemon than the one before.
    pub(crate) fn is_another(&mut self, live: &Live<'_>) -> io::Result<bool> {
        self.is_gone = false;
        if self.daemon == live.daemon() {
            return Ok(false);
        }
        self.daemon = live.daemon();
        say("Another daemon is there.")?;
        Ok(true)
    }

    pub(crate) fn gone(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.is_gone, true) {
            return Ok(());
        }
        say("The daemon has ended; waiting for the next one.")
    }
}

/// Words about the following itself, beside what is followed.
pub(crate) fn say(words: &str) -> io::Result<()> {
    if terminal::is_quiet() {
        return Ok(());
    }
    writeln!(console::stderr(), "{}", styled(DIM, words))
}

/// That there is no daemon to ask: in words or as JSON.
pub(crate) fn absent(absent: &Absent, json: bool, out: &mut dyn Write) -> io::Result<Exit> {
    if json {
        let told = json!({ "running": false, "reason": absent.to_string() });
        writeln!(out, "{told:#}")?;
    } else {
        let mut stderr = console::stderr();
        writeln!(stderr, "{absent}")?;
        let hint = "The first client starts it, and so does `metamcp call`.";
        writeln!(stderr, "{}", styled(DIM, hint))?;
    }
    Ok(Exit::Unavailable)
}
