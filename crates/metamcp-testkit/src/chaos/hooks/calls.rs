//! The tool has run, and then the response goes wrong.

use std::fs::File;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use nix::unistd::{dup2_stdin, dup2_stdout};

use super::Next;
use crate::chaos::honest;
use crate::chaos::message::Call;
use crate::chaos::server_state::{ServerState, die};

pub(in crate::chaos) fn die_before_reply(_: &Arc<ServerState>, _: u64, _: &Call) -> Next {
    die(1)
}

pub(in crate::chaos) fn hang(_: &Arc<ServerState>, _: u64, _: &Call) -> Next {
    Next::Done
}

pub(in crate::chaos) fn reply_then_die(server: &ServerState, _: u64, _: &Call, line: &str) -> Next {
    server.send(line);
    die(1)
}

pub(in crate::chaos) fn reply_late(
    server: &Arc<ServerState>,
    milliseconds: u64,
    call: &Call,
) -> Next {
    let (server, call) = (Arc::clone(server), call.clone());
    thread::spawn(move || {
        // Ignores cancellation: responding to a cancelled request is part of the hazard.
        thread::sleep(Duration::from_millis(milliseconds));
        honest::perform(&server, call);
    });
    Next::Done
}

pub(in crate::chaos) fn die_on_nth(_: &Arc<ServerState>, nth: u64, call: &Call) -> Next {
    if call.number >= nth {
        die(1);
    }
    Next::Honest
}

pub(in crate::chaos) fn close_stdout(_: &Arc<ServerState>, _: u64, _: &Call) -> Next {
    let closed = null().and_then(|null| Ok(dup2_stdout(null)?));
    if closed.is_err() {
        die(4);
    }
    // The correct response would go to /dev/null; reading on keeps the process alive.
    Next::Done
}

pub(in crate::chaos) fn close_stdin(server: &Arc<ServerState>, _: u64, call: &Call) -> Next {
    let closed = null().and_then(|null| Ok(dup2_stdin(null)?));
    if closed.is_err() {
        die(4);
    }
    honest::perform(server, call.clone());
    Next::StopReading
}

pub(in crate::chaos) fn stop_reading(_: &Arc<ServerState>, _: u64, _: &Call) -> Next {
    Next::StopReading
}

pub(in crate::chaos) fn exit_politely(_: &Arc<ServerState>, _: u64, _: &Call) -> Next {
    die(0)
}

fn null() -> std::io::Result<File> {
    File::options().read(true).write(true).open("/dev/null")
}
