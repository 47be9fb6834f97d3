//! A client over stdin and stdout: one session for the life of the process.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use metamcp_calls::shutdown::{Event, Phase, Shutdown};
use metamcp_wire::frame::{Line, Lines};
use metamcp_wire::glance::{Glance, glance};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::response_streams::ResponseStreams;
use super::stateless::SuspendedCalls;
use super::{DRAIN_LOOK, Ended, Session, project_approval, wind_up};
use crate::gateway::Gateway;
use crate::outbox::{Outbox, WriteEnd};
use crate::stream::{ReadBudget, read_lines};
use crate::surface::View;
use crate::task;

/// Backpressure: while a client has this much left to read, no further requests of it are read.
const READ_BACKLOG: u64 = 16 * 1024 * 1024;
/// What is read ahead all the same, to notice the end of its input.
const READ_AHEAD: usize = 1024 * 1024;
/// How long handshakes and lists may still take after the client's input ended.
const LAST_LISTS: Duration = Duration::from_secs(1);
/// How long the last responses may take to be written when the process ends.
const LAST_FLUSH: Duration = Duration::from_millis(200);

/// How one client is served.
#[derive(Clone)]
pub struct Options {
    /// Its longest line.
    pub line_limit: usize,
    /// How long calls in flight may take when it ends.
    pub drain: Duration,
    /// Whether each of its lines has a newline: one without it is half a line, and may come whole another way.
    pub ends_lines: bool,
    /// Whether its roots are known, where they decide which servers it gets: its requests wait for that.
    pub roots: Option<watch::Receiver<bool>>,
    /// Whether anybody could still read what is written.
    pub can_answer: Arc<dyn Fn() -> bool + Send + Sync>,
}

/// Serves one client until it disconnects or `stop` fires; then lets calls in flight finish, within limits, answers the
/// rest and ends every child. A second `stop` does not wait for the calls, a third kills the children.
pub async fn serve<R, W>(
    gateway: &Gateway,
    input: R,
    output: W,
    options: Options,
    mut stop: mpsc::Receiver<()>,
) -> Ended
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let (served, drain) = (Served::begin(gateway.view.clone(), output), options.drain);
    let (ended, shutdown) = served.until_over(input, options, &mut stop).await;
    served.session.stop();
    gateway.machine.drain_fleet(drain);
    gateway.machine.left_fleet(drain).await;
    gateway.router.stop_now();
    tokio::join!(served.flushed(), wind_up(&gateway.machine, &mut stop, shutdown));
    ended
}

/// One client with a session of its own, over a pair of byte streams.
pub(super) struct Served {
    pub(super) session: Arc<Session>,
    pub(super) outbox: Arc<Outbox>,
    writer: Mutex<Option<JoinHandle<WriteEnd>>>,
    asking: JoinHandle<()>,
}

impl Served {
    pub(super) fn begin<W>(view: View, output: W) -> Served
    where
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let outbox = Arc::new(Outbox::default());
        let response_streams = ResponseStreams::Pipe(Arc::clone(&outbox));
        let session = Session::new(view.clone(), response_streams, &SuspendedCalls::new(None));
        view.surface.router.attach(&session.client());
        // Only a client on this very machine, started by its user, may ask that user to trust a project's file.
        let asking =
            task::spawn("project file", project_approval::follow(Arc::clone(&session), view));
        let writing = Arc::clone(&outbox);
        let writer =
            task::spawn("client writer", async move { writing.write_to(output, None).await });
        Served { session, outbox, writer: Mutex::new(Some(writer)), asking }
    }

    /// Serves until nothing more is to be waited for.
    pub(super) async fn until_over<R: AsyncRead + Unpin>(
        &self,
        input: R,
        options: Options,
        stop: &mut mpsc::Receiver<()>,
    ) -> (Ended, Shutdown) {
        let (session, outbox) = (&self.session, &self.outbox);
        let now = || session.clock().now();
        let mut writer = self.writer.lock().take();
        let mut reading = pin!(async {
            read(session, outbox, input, &options).await;
            session.input_ended();
            // A client that pipes a handshake in and closes its end still reads the response.
            drop(tokio::time::timeout(LAST_LISTS, session.answered_lists()).await);
        });
        let mut shutdown = Shutdown::new(options.drain);
        let (mut reads, mut ended) = (true, Ended::ClientGone);
        while shutdown.phase() < Phase::Ending {
            let is_draining = shutdown.phase() != Phase::Serving;
            let lost = async {
                match &mut writer {
                    Some(writer) => drop(writer.await),
                    None => std::future::pending().await,
                }
            };
            let event = tokio::select! {
                // Answers to server requests and cancellations are read to the end.
                () = &mut reading, if reads => {
                    reads = false;
                    Event::InputEnded
                }
                // A client that no longer reads is gone, whatever it still writes.
                () = lost => {
                    writer = None;
                    Event::OutputLost
                }
                Some(()) = stop.recv() => {
                    if !is_draining {
                        ended = Ended::Requested;
                    }
                    Event::Signal
                }
                () = sleep(DRAIN_LOOK), if is_draining => drain_state(session, outbox, &options),
            };
            let phase = shutdown.hear(event, now());
            if !is_draining && matches!(phase, Phase::Draining { .. }) {
                session.drain();
                // With nothing in flight it does not wait for the next check.
                shutdown.hear(drain_state(session, outbox, &options), now());
            }
        }
        self.asking.abort();
        *self.writer.lock() = writer;
        (ended, shutdown)
    }

    /// Writes what there is to write, for a moment, and no more.
    pub(super) async fn flushed(&self) {
        self.outbox.close();
        let writer = self.writer.lock().take();
        if let Some(writer) = writer {
            drop(tokio::time::timeout(LAST_FLUSH, writer).await);
        }
    }
}

/// What the drain waits for: responses, and that they are written.
fn drain_state(session: &Session, outbox: &Outbox, options: &Options) -> Event {
    Event::Looked {
        in_flight: session.in_flight() > 0 || outbox.backlog() > 0,
        can_answer: (options.can_answer)(),
    }
}

async fn read<R: AsyncRead + Unpin>(
    session: &Session,
    outbox: &Outbox,
    mut input: R,
    options: &Options,
) {
    let mut lines = Lines::new(options.line_limit);
    let mut read_budget = ReadBudget::default();
    let mut held = Held { roots: options.roots.clone(), lines: Vec::new(), size: 0 };
    let mut ended = false;
    while !ended {
        tokio::select! {
            read = read_lines(&mut input, &mut lines) => ended = !matches!(read, Ok(1..)),
            () = held.released(), if !held.lines.is_empty() => held.release(session),
        }
        while let Some(line) = lines.next_line() {
            held.take(session, line);
            read_budget.heard().await;
        }
        if outbox.backlog() > READ_BACKLOG && !ended {
            // Its further input waits, but the end of its input must be noticed.
            tokio::select! {
                () = outbox.drained(READ_BACKLOG / 2) => {}
                () = end_of(&mut input, &mut lines) => ended = true,
            }
            while let Some(line) = lines.next_line() {
                held.take(session, line);
            }
        }
    }
    held.release(session);
    if let Some(line) = lines.finish().filter(|_| !options.ends_lines) {
        take(session, line);
    }
}

/// Lines that wait, in order, until the client has said its roots: which servers it gets depends on them.
struct Held {
    roots: Option<watch::Receiver<bool>>,
    lines: Vec<Line>,
    size: usize,
}

impl Held {
    fn take(&mut self, session: &Session, line: Line) {
        let Line::Message(bytes) = &line else { return take(session, line) };
        let waits = !self.lines.is_empty() || self.is_due(session);
        // Its answers are what is waited for.
        if !waits || matches!(glance(bytes), Glance::Response { .. }) {
            return take(session, line);
        }
        self.size += bytes.len();
        // The read buffer is used again.
        self.lines.push(Line::Message(Bytes::copy_from_slice(bytes)));
        if self.size > READ_AHEAD {
            self.release(session);
        }
    }

    fn is_due(&mut self, session: &Session) -> bool {
        let Some(roots) = &self.roots else { return false };
        if *roots.borrow() {
            self.roots = None;
            return false;
        }
        // Nobody is asked before the handshake is over.
        *session.steps().borrow() > 0 && session.peer().is_some_and(|peer| peer.can("roots"))
    }

    async fn released(&mut self) {
        if let Some(roots) = &mut self.roots {
            // Whoever would have said it is gone: there is nothing to wait for.
            drop(roots.wait_for(|is_known| *is_known).await);
        }
    }

    fn release(&mut self, session: &Session) {
        self.roots = None;
        self.size = 0;
        for line in std::mem::take(&mut self.lines) {
            take(session, line);
        }
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
