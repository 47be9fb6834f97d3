//! Clients over HTTP: Streamable HTTP on `/mcp`, and the older pair `/sse` and `/messages`.
//! Owns: the listener, connections, admission, sessions by their ids.      Never: knows what a message says.
//! In: connections.  Out: responses, each one JSON document or a stream of server-sent events.
//! Tests: beside each part, and `metamcp/tests/http`.

pub mod access;
mod body;
mod connection_timer;
mod continuation;
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
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use hyper::header::{CONNECTION, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use metamcp_calls::shutdown::{self, Shutdown};
use metamcp_types::moment::Moment;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, watch};
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

/// Connections at once. A client has one for its GET stream and one or two for requests.
const MAX_CONNECTIONS: usize = 2048;
/// Time for a request's head to arrive, and for an idle connection to send the next one.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a client may leave a response unread before its connection is closed.
const WRITE_TIMEOUT: Duration = Duration::from_mins(1);
const TLS_HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Size of a request's head: tokens are long, but not that long. hyper limits the number of headers to 100 by itself.
const MAX_HEAD: usize = 64 * 1024;
/// Time for the final writes of a connection: rejections and the ends of streams. Responses have the drain period.
const FINAL_WRITES: Duration = Duration::from_millis(200);
/// Pause after a failed `accept`, as when the process has no file descriptors left.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);
/// Longest interval between sweeps of idle sessions.
const SWEEP: Duration = Duration::from_secs(30);

/// What a gateway of a fleet has left to say when its drain took all of its time.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The state of the server, as every connection sees it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Serving,
    /// No further requests: connections close once nothing is in flight on them.
    Draining,
    Ended,
}

/// Serves clients until the first message on `stop`; then drains requests in flight for up to `drain` and ends every
/// child. A second message cuts the drain short, a third kills the children.
pub async fn serve(
    gateway: &Gateway,
    listener: TcpListener,
    plan: Plan,
    drain: Duration,
    mut stop: mpsc::Receiver<()>,
) -> Ended {
    let stays = Notify::new();
    let shutdown =
        listen(gateway, listener, plan, drain, &mut stop, &stays, Ending::WithServers).await;
    wind_up(&gateway.machine, &mut stop, shutdown).await;
    Ended::Requested
}

/// What ends with a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// Every server: the process ends too.
    WithServers,
    /// Its sessions: others use the servers.
    SessionsOnly,
}

/// Serves clients until the first message on `stop`; then drains, and ends their sessions. Once it has `moved`, another
/// process listens there: nobody is refused here, and it is over when the last connection is.
pub(super) async fn listen(
    gateway: &Gateway,
    listener: TcpListener,
    plan: Plan,
    drain: Duration,
    stop: &mut mpsc::Receiver<()>,
    moved: &Notify,
    ending: Ending,
) -> Shutdown {
    let Plan { mut http_config, tls, keys, .. } = plan;
    // A gateway restricted to one toolset serves no endpoints for others.
    let served = gateway.scopes.iter().filter(|_| gateway.view.scope.is_none());
    let (names, scopes) = served.cloned().unzip();
    http_config.rules.toolsets = names;
    let sweep = (http_config.session_timeout / 4).clamp(Duration::from_millis(50), SWEEP);
    let handler = Handler::new(gateway.view.clone(), scopes, &gateway.machine, http_config);
    let (tell, phase) = watch::channel(Phase::Serving);
    let most = most_connections();
    let room = Arc::new(Semaphore::new(most));
    let sweeping = task::spawn("session sweeper", sweeper(Arc::clone(&handler), sweep));
    let refreshing =
        keys.map(|source| task::spawn("key refresher", source.refresh(Arc::clone(&handler))));
    let mut shutdown = Shutdown::new(drain);
    let now = || gateway.router.clock.now();
    // A client may reconnect and resume a stream that nobody reads now, so answers always have a recipient.
    let looked = || {
        let is_connected = handler.has_moved() && room.available_permits() < most;
        let in_flight = is_connected || handler.in_flight() > 0;
        shutdown::Event::Looked { in_flight, can_answer: true }
    };
    let mut listener = Some(listener);
    let mut drained = Moment::NEVER;
    // Ticks on its own: a steady stream of new connections must not delay the shutdown.
    let mut looks = interval(DRAIN_LOOK);
    while shutdown.phase() < shutdown::Phase::Ending {
        let is_draining = shutdown.phase() != shutdown::Phase::Serving;
        let event = tokio::select! {
            // Also while draining: a call in flight may wait for its client's response to a server request, which
            // arrives as a request of its own.
            accepted = next_connection(listener.as_ref()) => {
                accept(accepted, &handler, tls.as_ref(), &room, &phase).await;
                continue;
            }
            () = moved.notified(), if !handler.has_moved() => {
                listener = None;
                handler.move_away();
                shutdown::Event::Signal
            }
            Some(()) = stop.recv() => shutdown::Event::Signal,
            _ = looks.tick(), if is_draining => looked(),
        };
        let begun = shutdown.hear(event, now());
        if !is_draining && matches!(begun, shutdown::Phase::Draining { .. }) {
            drained = now() + drain;
            if ending == Ending::WithServers {
                gateway.machine.drain_fleet(drain);
            }
            if !handler.has_moved() {
                handler.close();
            }
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
    let _no_connections = tell.send(Phase::Draining);
    for session in handler.awake() {
        session.stop();
    }
    if ending == Ending::WithServers {
        // Others may still wait for what runs here. A second signal does not.
        let left = gateway.machine.left_fleet(drained.since(now()).max(LAST_WORDS));
        tokio::select! {
            () = left => {}
            Some(()) = stop.recv() => {
                shutdown.hear(shutdown::Event::Signal, now());
            }
        }
    }
    match ending {
        Ending::WithServers => gateway.router.stop_now(),
        Ending::SessionsOnly => handler.awake().iter().for_each(|session| session.abandon()),
    }
    for session in handler.awake() {
        session.response_streams.close();
    }
    let gone = async {
        let all = u32::try_from(most).unwrap_or(u32::MAX);
        let _cut_short = timeout(FINAL_WRITES, room.acquire_many(all)).await;
        let _no_connections = tell.send(Phase::Ended);
    };
    gone.await;
    shutdown
}

async fn next_connection(
    listener: Option<&TcpListener>,
) -> io::Result<(TcpStream, std::net::SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => std::future::pending().await,
    }
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
            return sleep(ACCEPT_BACKOFF).await;
        }
    };
    // Without TCP_NODELAY a response in two writes waits 40 ms for the acknowledgement of the first.
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
                let shaken = timeout(TLS_HANDSHAKE_TIMEOUT, acceptor.accept(socket)).await;
                match shaken.map_err(tls::failed).and_then(|shaken| shaken) {
                    Ok(stream) => connection(stream, handler, phase, permit).await,
                    Err(error) => tracing::debug!("{}", error.to_string()),
                }
            });
        }
    }
}

/// Serves the requests of one connection in order: on the fast path as long as they fit it, then by hyper.
async fn connection<S>(
    stream: S,
    handler: Arc<Handler>,
    mut phase: watch::Receiver<Phase>,
    _permit: OwnedSemaphorePermit,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let connection_timer = ConnectionTimer::default();
    let mut stream = WriteTimeout::new(stream, WRITE_TIMEOUT);
    let mut handover = Handover::default();
    if handler.http_config.fast_path {
        let draining = AtomicBool::new(false);
        let fast_path =
            fast_path::serve(&mut stream, &handler, &connection_timer, HEAD_TIMEOUT, &draining);
        let drain = |_: Pin<&mut _>| draining.store(true, Ordering::Relaxed);
        let served = until_ended(&mut phase, pin!(fast_path), drain).await;
        match served {
            Some(Some(unserved)) => handover = unserved,
            Some(None) => return drop(timeout(FINAL_WRITES, stream.shutdown()).await),
            None => return,
        }
    }
    serve_with_hyper(stream, handover, handler, connection_timer, phase).await;
}

async fn serve_with_hyper<S>(
    stream: WriteTimeout<S>,
    mut handover: Handover,
    handler: Arc<Handler>,
    connection_timer: ConnectionTimer,
    mut phase: watch::Receiver<Phase>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let pending_writes = stream.pending_writes();
    let stream = SmugglingGuard::new(handover.rewind(stream));
    let timer = connection_timer.clone().heads(handover.head_deadline);
    let first = Arc::new(Mutex::new(handover.response));
    let service = service_fn(move |request| {
        let (handler, connection_timer, pending_writes) =
            (Arc::clone(&handler), connection_timer.clone(), pending_writes.clone());
        let first = first.lock().take();
        async move {
            let mut response = match first {
                Some(response) => {
                    body::discard(&mut request.into_body()).await;
                    response
                }
                None => handler.answer(request, &connection_timer).await,
            };
            if handler.has_moved() {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            response.body_mut().leave_by(&pending_writes);
            Ok::<_, Infallible>(response)
        }
    });
    let connection = http1::Builder::new()
        .timer(timer)
        .header_read_timeout(HEAD_TIMEOUT)
        .max_header_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), service);
    let drain = |connection: Pin<&mut http1::Connection<_, _>>| connection.graceful_shutdown();
    // An error is the client's: it broke the connection or the protocol, and hyper has told it.
    drop(until_ended(&mut phase, pin!(connection), drain).await);
}

/// Runs a connection until it is over or the server has ended; `drain` tells it to take no further requests.
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
                // The waker is the same each time: once it is registered, comparing versions is enough.
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

/// Answers a connection beyond the limit with 503.
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
    // Best effort: a client that does not read is not waited for.
    drop(timeout(FINAL_WRITES, told).await);
}

/// The limit of connections, which leaves half of the file descriptors to the servers behind the gateway.
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
