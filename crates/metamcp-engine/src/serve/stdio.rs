//! A client over stdin and stdout: one session for the life of the process.

use std::sync::Arc;
use std::time::Duration;

use metamcp_wire::frame::{Line, Lines};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

use super::lanes::Lanes;
use super::{Ended, Session, wind_up};
use crate::gateway::Gateway;
use crate::outbox::Outbox;
use crate::stream::{Turn, read_lines};
use crate::task;

/// A client with this much to read gets no further requests read until it has caught up.
const READ_BACKLOG: u64 = 16 * 1024 * 1024;
/// What is read of it all the same, to see whether it is still there.
const READ_AHEAD: usize = 1024 * 1024;
/// How long what runs nothing may still take when the client has said all it has to say.
const LAST_LISTS: Duration = Duration::from_secs(1);
/// How long the last answers may take to leave when the process ends.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// Serves one client until it goes or `stop` says so; then answers what is open and ends every child. A third
/// word of `stop` ends them without ceremony.
pub async fn serve<R, W>(
    gateway: &Gateway,
    input: R,
    output: W,
    line_limit: usize,
    mut stop: mpsc::Receiver<()>,
) -> Ended
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let outbox = Arc::new(Outbox::default());
    let session = Session::new(gateway.view.clone(), Lanes::One(Arc::clone(&outbox)));
    gateway.router.attach(&session.caller());
    let writing = Arc::clone(&outbox);
    let mut writer =
        task::spawn("client writer", async move { writing.write_to(output, None).await });
    let ended = tokio::select! {
        () = async {
            read(&session, &outbox, input, line_limit).await;
            // Whoever pipes a handshake in and closes it is still there to read the answer.
            drop(tokio::time::timeout(LAST_LISTS, session.answered_lists()).await);
        } => Ended::ClientGone,
        // A client that does not listen any more is gone, whatever it still writes.
        _ = &mut writer => Ended::ClientGone,
        Some(()) = stop.recv() => Ended::Asked,
    };
    session.stop();
    gateway.router.stop_now();
    outbox.close();
    let flushed = async {
        if !writer.is_finished() {
            drop(tokio::time::timeout(LAST_WORDS, &mut writer).await);
        }
    };
    tokio::join!(flushed, wind_up(gateway, &mut stop));
    ended
}

async fn read<R: AsyncRead + Unpin>(
    session: &Session,
    outbox: &Outbox,
    mut input: R,
    line_limit: usize,
) {
    let mut lines = Lines::new(line_limit);
    let mut turn = Turn::default();
    let mut ended = false;
    while !ended {
        ended = !matches!(read_lines(&mut input, &mut lines).await, Ok(1..));
        while let Some(line) = lines.next_line() {
            take(session, line);
            turn.heard().await;
        }
        if outbox.backlog() > READ_BACKLOG && !ended {
            // What it writes meanwhile waits, but that it is gone must show.
            tokio::select! {
                () = outbox.drained(READ_BACKLOG / 2) => {}
                () = end_of(&mut input, &mut lines) => ended = true,
            }
            while let Some(line) = lines.next_line() {
                take(session, line);
            }
        }
    }
    if let Some(line) = lines.finish() {
        take(session, line);
    }
}

/// Resolves when the input ends; reads ahead for that, but not without bounds.
async fn end_of<R: AsyncRead + Unpin>(input: &mut R, lines: &mut Lines) {
    while lines.buffer().len() < READ_AHEAD {
        if !matches!(read_lines(input, lines).await, Ok(1..)) {
            return;
        }
    }
    std::future::pending::<()>().await;
}

fn take(session: &Session, line: Line) {
    match line {
        Line::Message(line) => session.hear(&line),
        Line::Oversize { id, request, length } => session.oversize(id.as_deref(), request, length),
    }
}
