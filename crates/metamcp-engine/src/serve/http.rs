//! Clients over HTTP: Streamable HTTP on `/mcp`, and the older pair `/sse` and `/messages`.
//! Owns: the listener, who may come in, sessions by their ids.      Never: knows what a message says.
//! In: connections.  Out: answers as one document or as a stream of events.
//! Tests: beside each part, and `metamcp/tests/http`.

pub mod access;
mod body;
mod connection_timer;
pub mod fast_path;
pub mod guard;
pub mod handler;
mod limits;
mod pending_writes;
pub mod plan;
pub mod post_body;
pub mod reply;
pub mod sessions;
mod smuggling_guard;
mod sse;
mod stateless;
pub mod stream;
pub mod tls;
mod write_timeout;

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use metamcp_calls::shutdown::{self, Shutdown};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::{interval, sleep, timeout};

use super::{DRAIN_LOOK, Ended, wind_up};
use crate::gateway::Gateway;
use crate::task;
use connection_timer::ConnectionTimer;
use fast_path::Handover;
use handler::Handler;
pub use plan::{Plan, PlanError};
use smuggling_guard::SmugglingGuard;
use tls::Tls;
use write_timeout::WriteTimeout;

/// Connections at once. A client holds one for listening and one or two for asking.
const MAX_CONNECTIONS: usize = 2048;
/// How long a request's head may take, and how long a connection may wait for the next request.
const HEAD_PATIENCE: Duration = Duration::from_secs(30);
/// How long a client may leave an answer unread before its connection is given up.
const WRITE_PATIENCE: Duration = Duration::from_secs(60);
/// How long a TLS handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// All headers of a request together: tokens are long, but not that long. There may be a hundred, which is what the
/// library keeps on the stack.
const MAX_HEAD: usize = 64 * 1024;
/// How long what is said at the very end may take to leave: refusals, and the ends of streams. Answers have the drain.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// How long nobody is let in after the system could not give us another connection.
const NO_SOCKETS: Duration = Duration::from_millis(100);
/// How often sessions are looked at.
const SWEEP: Duration = Duration::from_secs(30);

/// What the connections are told.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Serving,
    /// No further requests: connections end as soon as nothing is under way on them.
    Draining,
    /// It is over.
    Ended,
}

/// Serves clients until `stop` says so; then finishes what is under way, for up to `drain`, and ends every child. A
/// second word of `stop` does not wait for that, a third ends children without ceremony.
pub async fn serve(
    gateway: &Gateway,
    listener: TcpListener,
    plan: Plan,
    drain: Duration,
    mut stop: mpsc::Receiver<()>,
) -> Ended {
    let Plan { mut http_config, tls, keys, .. } = plan;
    // Who is kept to one toolset cannot choose another.
    let served = gateway.scopes.iter().filter(|_| gateway.view.scope.is_none());
    let (names, scopes) = served.cloned().unzip();
    http_config.rules.toolsets = names;
    let sweep = (http_config.session_timeout / 4).clamp(Duration::from_millis(50), SWEEP);
    let handler =
        Handler::new(gateway.view.clone(), scopes, Arc::clone(&gateway.router), http_config);
    let (tell, phase) = watch::channel(Phase::Serving);
    let most = most_connections();
    let room = Arc::new(Semaphore::new(most));
    let sweeping = task::spawn("session sweeper", sweeper(Arc::clone(&handler), sweep));
    let refreshing =
        keys.map(|source| task::spawn("key refresher", source.refresh(Arc::clone(&handler))));
    let mut shutdown = Shutdown::new(drain);
    let now = || gateway.router.clock.now();
    // A stream that nobody reads may be read again by a client that comes back, so there is always somebody.
    let looked =
        || shutdown::Event::Looked { in_flight: handler.in_flight() > 0, can_answer: true };
    // Beside the loop: clients that come all the time must not put the end off.
    let mut looks = interval(DRAIN_LOOK);
    while shutdown.phase() < shutdown::Phase::Ending {
        let is_draining = shutdown.phase() != shutdown::Phase::Serving;
        let event = tokio::select! {
            // Also while it drains: what is under way may need an answer of its client, which comes in a request of
            // its own.
            accepted = listener.accept() => {
                accept(accepted, &handler, tls.as_ref(), &room, &phase).await;
                continue;
            }
            Some(()) = stop.recv() => shutdown::Event::Signal,
            _ = looks.tick(), if is_draining => looked(),
        };
        let begun = shutdown.hear(event, now());
        if !is_draining && matches!(begun, shutdown::Phase::Draining { .. }) {
            handler.close();
            for session in handler.awake() {
                session.stateless.end_subscriptions(&session.response_streams);
            }
            shutdown.hear(looked(), now());
        }
    }
    sweeping.abort();
    if let Some(refreshing) = refreshing {
        refreshing.abort();
    }
    drop(listener);
    // Nobody is listening for the other end any more when nobody is left.
    let _nobody = tell.send(Phase::Draining);
    for session in handler.awake() {
        session.stop();
    }
    gateway.router.stop_now();
    for session in handler.awake() {
        session.response_streams.close();
    }
    let gone = async {
        let all = u32::try_from(most).unwrap_or(u32::MAX);
        let _cut_short = timeout(LAST_WORDS, room.acquire_many(all)).await;
        let _nobody = tell.send(Phase::Ended);
    };
    tokio::join!(gone, wind_up(gateway, &mut stop, shutdown));
    Ended::Requested
}

async fn sweeper(handler: Arc<Handler>, every: Duration) {
    loop {
        handler.router.clock.doze(every).await;
        handler.sweep();
    }
}

async fn accept(
    accepted: io::Result<(TcpStream, std::net::SocketAddr)>,
    handler: &Arc<Handler>,
    tls: Option<&Arc<Tls>>,
    room: &Arc<Semaphore>,
    phase: &watch::Receiver<Phase>,
) {
    let socket = match accepted {
        Ok((socket, _)) => socket,
        Err(error) => {
            tracing::warn!("cannot take a connection: {error}");
            return sleep(NO_SOCKETS).await;
        }
    };
    // Without it an answer in two pieces waits 40 ms for the other side to acknowledge the first.
    let _slower = socket.set_nodelay(true);
    let Ok(permit) = Arc::clone(room).try_acquire_owned() else {
        task::spawn("too many", turn_away(socket, tls.is_some()));
        return;
    };
    let (handler, phase) = (Arc::clone(handler), phase.clone());
    match tls {
        None => {
            task::spawn("http", connection(socket, handler, phase, permit));
        }
        Some(tls) => {
            let acceptor = tls.acceptor();
            task::spawn("https", async move {
                let shaken = timeout(HANDSHAKE, acceptor.accept(socket)).await;
                match shaken.map_err(tls::failed).and_then(|shaken| shaken) {
                    Ok(stream) => connection(stream, handler, phase, permit).await,
                    Err(error) => tracing::debug!("{}", error.to_string()),
                }
            });
        }
    }
}

/// Requests of one connection, one after the other: those in the usual form by `plain`, and from the first other one on
/// all of them by the library.
async fn connection<S>(
    stream: S,
    handler: Arc<Handler>,
    mut phase: watch::Receiver<Phase>,
    _permit: OwnedSemaphorePermit,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let connection_timer = ConnectionTimer::default();
    let mut stream = WriteTimeout::new(stream, WRITE_PATIENCE);
    let ending = AtomicBool::new(false);
    let served = {
        let usual = pin!(fast_path::serve(
            &mut stream,
            &handler,
            &connection_timer,
            HEAD_PATIENCE,
            &ending
        ));
        let drain = |_: Pin<&mut _>| ending.store(true, Ordering::Relaxed);
        until_ended(&mut phase, usual, drain).await
    };
    match served {
        Some(Some(rest)) => by_library(stream, rest, handler, connection_timer, phase).await,
        // The other side is told that it was all.
        Some(None) => drop(timeout(LAST_WORDS, stream.shutdown()).await),
        None => {}
    }
}

/// The same by the library, with what was read of it before.
async fn by_library<S>(
    mut stream: WriteTimeout<S>,
    rest: Handover,
    handler: Arc<Handler>,
    connection_timer: ConnectionTimer,
    mut phase: watch::Receiver<Phase>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    stream.put_back(rest.read);
    let own = connection_timer.clone();
    let pending_writes = stream.pending_writes();
    let first = Arc::new(Mutex::new(rest.answer));
    let service = service_fn(move |request| {
        let (handler, connection_timer, pending_writes) =
            (Arc::clone(&handler), own.clone(), pending_writes.clone());
        let first = first.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        async move {
            let mut response = match first {
                Some(answer) => {
                    body::discard(&mut request.into_body()).await;
                    answer
                }
                None => handler.answer(request, &connection_timer).await,
            };
            response.body_mut().leave_by(&pending_writes);
            Ok::<_, Infallible>(response)
        }
    });
    let connection = http1::Builder::new()
        .timer(connection_timer.heads(rest.until))
        .header_read_timeout(HEAD_PATIENCE)
        .max_header_size(MAX_HEAD)
        .serve_connection(TokioIo::new(SmugglingGuard::new(stream)), service);
    let drain = |connection: Pin<&mut http1::Connection<_, _>>| connection.graceful_shutdown();
    // Whoever broke it knows.
    drop(until_ended(&mut phase, pin!(connection), drain).await);
}

/// Runs a connection until it is over, or all of them are; `drain` tells it that no further requests are taken.
async fn until_ended<C: Future>(
    phase: &mut watch::Receiver<Phase>,
    mut connection: Pin<&mut C>,
    mut drain: impl FnMut(Pin<&mut C>),
) -> Option<C::Output> {
    let seen = phase.clone();
    loop {
        let step = {
            let mut changed = pin!(phase.changed());
            let mut listens = false;
            poll_fn(|cx| {
                if let Poll::Ready(over) = connection.as_mut().poll(cx) {
                    return Poll::Ready(Err(over));
                }
                // The task is the same each time: once it is known whom to wake, a look is enough.
                if listens && matches!(seen.has_changed(), Ok(false)) {
                    return Poll::Pending;
                }
                listens = true;
                changed.as_mut().poll(cx).map(Ok)
            })
            .await
        };
        let changed = match step {
            Ok(changed) => changed,
            Err(over) => return Some(over),
        };
        match *phase.borrow_and_update() {
            Phase::Serving if changed.is_ok() => {}
            Phase::Draining if changed.is_ok() => drain(connection.as_mut()),
            _ => return None,
        }
    }
}

/// Tells a client that comes on top of all others.
async fn turn_away(mut socket: TcpStream, is_tls: bool) {
    const BODY: &str = "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32000,\"message\":\"too many connections; nothing was run\"}}";
    if is_tls {
        return;
    }
    let response = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{BODY}",
        BODY.len()
    );
    let told = async {
        socket.write_all(response.as_bytes()).await?;
        socket.shutdown().await
    };
    // A client that does not listen is not waited for.
    drop(timeout(LAST_WORDS, told).await);
}

/// As many as we take, but never so many that none are left for the servers behind us.
fn most_connections() -> usize {
    #[cfg(unix)]
    {
        use nix::sys::resource::{Resource, getrlimit};
        if let Ok((soft, _)) = getrlimit(Resource::RLIMIT_NOFILE) {
            let half = usize::try_from(soft / 2).unwrap_or(usize::MAX);
            return half.clamp(16, MAX_CONNECTIONS);
        }
    }
    MAX_CONNECTIONS
}
