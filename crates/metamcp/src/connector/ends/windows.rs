//! Pipes, and a client's streams of any kind, which here can be waited for by threads only: the runtime has those.

use std::io::{self, Write as _};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use metamcp_engine::runtime_folder::{Stream, clients};
use metamcp_wire::local::{COME_ANEW, INPUT_ENDED};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf, Stdin, Stdout};
use tokio::signal::windows::{ctrl_break, ctrl_c, ctrl_close, ctrl_logoff, ctrl_shutdown};
use tokio::sync::Notify;

use super::{Seen, Wanted};

/// Bytes read or written at once.
const PART: usize = 64 * 1024;

/// Both directions at once.
pub(in super::super) trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}

/// The other end: a daemon, or the gateway of this very process.
pub(in super::super) struct Link {
    stream: Box<dyn Duplex>,
    /// What is written may end while what is read goes on.
    has_half_close: bool,
}

pub(in super::super) fn link(stream: Stream) -> Link {
    // A pipe's own flush waits for its reader, which nothing here may do.
    Link { stream: Box::new(stream.into_pipe()), has_half_close: false }
}

/// Two ends in this process.
pub(in super::super) fn pair() -> (Link, DuplexStream) {
    let (ours, theirs) = tokio::io::duplex(PART);
    (Link { stream: Box::new(ours), has_half_close: true }, theirs)
}

pub(in super::super) struct Ends {
    signals: Signals,
    input: Input<Stdin>,
    output: Output<Stdout>,
    /// None while nobody needs one.
    daemon: Option<Daemon>,
}

struct Daemon {
    input: Input<tokio::io::ReadHalf<Box<dyn Duplex>>>,
    output: Output<tokio::io::WriteHalf<Box<dyn Duplex>>>,
    is_sent_away: bool,
    /// The daemon's word is read, and the end of its line is yet to come.
    is_in_word: bool,
}

impl Ends {
    pub(in super::super) fn open() -> io::Result<Ends> {
        let signals = Signals::new()?;
        let (input, output) = (tokio::io::stdin(), tokio::io::stdout());
        Ok(Ends { signals, input: Input::new(input), output: Output::new(output), daemon: None })
    }

    pub(in super::super) fn has_daemon(&self) -> bool {
        self.daemon.is_some()
    }

    #[expect(clippy::unnecessary_wraps, reason = "elsewhere it may fail")]
    pub(in super::super) fn attach(&mut self, daemon: Link) -> io::Result<()> {
        let (input, output) = tokio::io::split(daemon.stream);
        let (input, mut output) = (Input::new(input), Output::new(output));
        output.has_half_close = daemon.has_half_close;
        self.daemon = Some(Daemon { input, output, is_sent_away: false, is_in_word: false });
        Ok(())
    }

    pub(in super::super) fn leave_daemon(&mut self) {
        self.daemon = None;
    }

    pub(in super::super) fn wait(&mut self, wanted: Wanted) -> io::Result<Option<Seen>> {
        clients()?.block_on(async {
            let Ends { signals, input, output, daemon } = self;
            let mut signal = std::pin::pin!(signals.arrives());
            let waited = std::future::poll_fn(|cx| {
                let mut seen =
                    Seen { signal: signal.as_mut().poll(cx).is_ready(), ..Seen::default() };
                // What was taken is written whatever is waited for.
                match output.poll_done(cx) {
                    Poll::Ready(Ok(())) => seen.client_out = wanted.client_out,
                    Poll::Ready(Err(_)) => seen.client_is_gone = true,
                    Poll::Pending => {}
                }
                seen.client_in = wanted.client_in && input.poll_filled(cx).is_ready();
                let mut has_room = false;
                if let Some(daemon) = daemon {
                    match daemon.output.poll_done(cx) {
                        Poll::Ready(Ok(())) => has_room = wanted.daemon_out,
                        // The next write says so too, and a read what is left.
                        Poll::Ready(Err(_)) => has_room = wanted.daemon_out,
                        Poll::Pending => {}
                    }
                    if wanted.daemon_in {
                        seen.daemon_in = daemon.poll_filled(cx).is_ready();
                        seen.is_sent_away = std::mem::take(&mut daemon.is_sent_away);
                    }
                }
                let is_any = seen.signal
                    || seen.client_out
                    || seen.client_is_gone
                    || seen.client_in
                    || seen.daemon_in
                    || has_room;
                if is_any { Poll::Ready(seen) } else { Poll::Pending }
            });
            Ok(Some(match wanted.at_most {
                Some(limit) => tokio::time::timeout(limit, waited).await.unwrap_or_default(),
                None => waited.await,
            }))
        })
    }

    /// How many signals arrived since this was last asked.
    pub(in super::super) fn signals(&self) -> usize {
        self.signals.arrived()
    }

    pub(in super::super) fn read_client(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let _inside = clients()?.enter();
        self.input.read(into)
    }

    /// Writes what there is room for.
    pub(in super::super) fn write_client(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _inside = clients()?.enter();
        self.output.write(bytes)
    }

    /// Whether a write to the client may only follow the word that there is room.
    pub(in super::super) fn must_be_asked(&self) -> bool {
        false
    }

    pub(in super::super) fn read_daemon(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let _inside = clients()?.enter();
        self.daemon.as_mut().map_or_else(none, |daemon| daemon.input.read(into))
    }

    /// Writes what there is room for.
    pub(in super::super) fn write_daemon(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _inside = clients()?.enter();
        self.daemon.as_mut().map_or_else(none, |daemon| daemon.output.write(bytes))
    }

    /// Tells the daemon that nothing more comes.
    pub(in super::super) fn end_daemon_input(&mut self) -> io::Result<()> {
        let _inside = clients()?.enter();
        self.daemon.as_mut().map_or(Ok(()), |daemon| daemon.output.end())
    }
}

impl Drop for Ends {
    /// What the client was given reaches it before this process ends.
    fn drop(&mut self) {
        /// As long as the last lines may take.
        const LIMIT: std::time::Duration = std::time::Duration::from_secs(2);
        let Ok(clients) = clients() else { return };
        clients.block_on(async {
            let done = std::future::poll_fn(|cx| self.output.poll_done(cx));
            drop(tokio::time::timeout(LIMIT, done).await);
        });
    }
}

fn none<T>() -> io::Result<T> {
    Err(io::ErrorKind::NotConnected.into())
}

impl Daemon {
    /// Reads what there is, and takes the daemon's own word out of it.
    fn poll_filled(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let was_empty = self.input.is_empty();
        let filled = self.input.poll_filled(cx);
        if filled.is_ready() && was_empty {
            let read = &mut self.input.read;
            let before = read.len();
            if std::mem::take(&mut self.is_in_word) && read.first() == Some(&b'\n') {
                read.remove(0);
            }
            if let Some(at) = memchr::memchr(COME_ANEW, read) {
                self.is_sent_away = true;
                self.is_in_word = at + 1 == read.len();
                read.drain(at..read.len().min(at + 2));
            }
            self.input.has_news = before > 0 && read.is_empty();
        }
        filled
    }
}

/// What was read and not asked for yet.
struct Input<R> {
    from: R,
    read: Vec<u8>,
    ended: Option<io::Result<()>>,
    /// Something was read that is not for who asks.
    has_news: bool,
}

impl<R: AsyncRead + Unpin> Input<R> {
    fn new(from: R) -> Input<R> {
        Input { from, read: Vec::new(), ended: None, has_news: false }
    }

    fn is_empty(&self) -> bool {
        self.read.is_empty() && self.ended.is_none()
    }

    /// Ready once there is something to read, be it the end.
    fn poll_filled(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.is_empty() {
            return Poll::Ready(());
        }
        let mut part = vec![0; PART];
        let mut buffer = ReadBuf::new(&mut part);
        match Pin::new(&mut self.from).poll_read(cx, &mut buffer) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Err(error)) => self.ended = Some(Err(error)),
            Poll::Ready(Ok(())) if buffer.filled().is_empty() => self.ended = Some(Ok(())),
            Poll::Ready(Ok(())) => self.read.extend_from_slice(buffer.filled()),
        }
        Poll::Ready(())
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.is_empty() {
            if std::mem::take(&mut self.has_news) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let _later = self.poll_filled(&mut Context::from_waker(Waker::noop()));
        }
        if self.read.is_empty() {
            return match &self.ended {
                None => Err(io::ErrorKind::WouldBlock.into()),
                Some(Ok(())) => Ok(0),
                Some(Err(error)) => Err(error.kind().into()),
            };
        }
        let count = self.read.len().min(into.len());
        into[..count].copy_from_slice(&self.read[..count]);
        self.read.drain(..count);
        Ok(count)
    }
}

/// What was taken and not written yet.
struct Output<W> {
    to: W,
    taken: Vec<u8>,
    written: usize,
    is_flushed: bool,
    has_ended: bool,
    has_half_close: bool,
    broken: Option<io::ErrorKind>,
}

impl<W: AsyncWrite + Unpin> Output<W> {
    fn new(to: W) -> Output<W> {
        let taken = Vec::new();
        Output {
            to,
            taken,
            written: 0,
            is_flushed: true,
            has_ended: false,
            has_half_close: false,
            broken: None,
        }
    }

    /// Ready once everything that was taken is written.
    fn poll_done(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(kind) = self.broken {
            return Poll::Ready(Err(kind.into()));
        }
        let done = self.poll_through(cx);
        if let Poll::Ready(Err(error)) = &done {
            self.broken = Some(error.kind());
        }
        done
    }

    fn poll_through(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.taken.len() {
            let rest = &self.taken[self.written..];
            match std::task::ready!(Pin::new(&mut self.to).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.written += count,
            }
        }
        self.taken.clear();
        self.written = 0;
        if !self.is_flushed {
            if self.has_ended && self.has_half_close {
                std::task::ready!(Pin::new(&mut self.to).poll_shutdown(cx))?;
            } else {
                std::task::ready!(Pin::new(&mut self.to).poll_flush(cx))?;
            }
            self.is_flushed = true;
        }
        Poll::Ready(Ok(()))
    }

    /// Takes what there is room for, and begins to write it.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut unseen = Context::from_waker(Waker::noop());
        match self.poll_done(&mut unseen) {
            Poll::Pending => return Err(io::ErrorKind::WouldBlock.into()),
            Poll::Ready(done) => done?,
        }
        if self.has_ended {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let count = bytes.len().min(PART);
        self.taken.extend_from_slice(&bytes[..count]);
        self.is_flushed = false;
        match self.poll_done(&mut unseen) {
            Poll::Ready(Err(error)) => Err(error),
            _ => Ok(count),
        }
    }

    /// The byte that says that nothing more comes follows what was taken.
    fn end(&mut self) -> io::Result<()> {
        if !std::mem::replace(&mut self.has_ended, true) {
            if !self.has_half_close {
                self.taken.push(INPUT_ENDED);
            }
            self.is_flushed = false;
            if let Poll::Ready(done) = self.poll_done(&mut Context::from_waker(Waker::noop())) {
                return done;
            }
        }
        Ok(())
    }
}

/// The words by which the system asks a process to end: Ctrl-C, Ctrl-Break, a closed window, logoff and shutdown.
#[derive(Debug)]
pub(in super::super) struct Signals {
    count: Arc<AtomicUsize>,
    news: Arc<Notify>,
}

impl Signals {
    /// A thread waits for them, since nothing else may run while the relay does something.
    pub(in super::super) fn new() -> io::Result<Signals> {
        let (count, news) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let signals = Signals { count: Arc::clone(&count), news: Arc::clone(&news) };
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let mut all = {
            let _inside = runtime.enter();
            (ctrl_c()?, ctrl_break()?, ctrl_close()?, ctrl_logoff()?, ctrl_shutdown()?)
        };
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            runtime.block_on(async {
                loop {
                    let heard = tokio::select! {
                        heard = all.0.recv() => heard,
                        heard = all.1.recv() => heard,
                        heard = all.2.recv() => heard,
                        heard = all.3.recv() => heard,
                        heard = all.4.recv() => heard,
                    };
                    if heard.is_none() {
                        return;
                    }
                    count.fetch_add(1, Ordering::Relaxed);
                    news.notify_one();
                }
            });
        })?;
        Ok(signals)
    }

    async fn arrives(&self) {
        self.news.notified().await;
    }

    /// How many arrived since this was last asked.
    pub(in super::super) fn arrived(&self) -> usize {
        self.count.swap(0, Ordering::Relaxed)
    }
}

/// Why waiting for a daemon's end stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Stop {
    Signal,
    DaemonGone,
}

impl Stop {
    /// Waits for a signal or the end of the daemon, which says nothing.
    pub(in super::super) fn wait(stream: &Stream, signals: &Signals) -> io::Result<Stop> {
        clients()?.block_on(async {
            let mut ignored = [0; 64];
            loop {
                tokio::select! {
                    () = signals.arrives() => return Ok(Stop::Signal),
                    read = stream.read_some(&mut ignored) => if !matches!(read, Ok(1..)) {
                        return Ok(Stop::DaemonGone);
                    },
                }
            }
        })
    }
}

/// Tells a daemon that nothing more comes.
pub(in super::super) fn no_more(mut stream: &Stream) -> io::Result<()> {
    stream.write_all(&[INPUT_ENDED])
}
