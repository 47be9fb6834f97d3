//! The page: what the daemon does, for a browser on this machine.
//! Owns: its listener on loopback, who may see it, its HTTP.      Never: knows servers or calls (`admin` does), serves another machine.
//! In: links that `metamcp ui` asks for, requests of a browser.  Out: static files, and the answers of `admin` as JSON.
//! Tests: `page/access.rs`, `page/guard.rs`; `metamcp/tests/daemon/page.rs` byte by byte, `metamcp/tests/real/page.rs` in Chromium.
//!
//! `commands/ui.rs` asks for a link over the local socket, with the hello of its context; `page.rs` opens the port and keeps
//! who opened it. The browser exchanges the link (`access`), and asks `/api/NAME` from then on: `guard` looks at the head,
//! `routes` at both halves of the session, and `admin/contextual.rs` answers in the context of whoever opened it.

mod access;
mod assets;
mod guard;
mod routes;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tower_service::Service as _;

use self::access::{Access, Token};
use metamcp_wire::local::Hello;
use serde_json::{Value, json};

use super::Daemon;
use super::admin::contextual::Opener;
use super::admin::{AdminError, Answer};
use super::connection::client_of;
use crate::task;

/// The request for a link, which only the local socket takes.
pub(super) const OPEN: &str = "page.open";

/// Connections at once: a browser opens six, and a person looks with a few.
const MAX_CONNECTIONS: usize = 64;
/// How long a connection may take to send a head, or stay open between requests.
const HEAD_TIMEOUT: Duration = Duration::from_secs(20);
/// Pause after a failed `accept`, as when the process has no file descriptors left.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// See the module.
#[derive(Default)]
pub(super) struct Page {
    access: Mutex<Access>,
    /// Where it listens; nowhere before the first link.
    port: tokio::sync::Mutex<Option<u16>>,
}

impl Page {
    /// Whether somebody looked at it in the last minute.
    pub(super) fn is_watched(&self, now: metamcp_types::moment::Moment) -> bool {
        self.access.lock().is_watched(now)
    }
}

/// Makes a link for whoever sent this hello: the page is of its context.
pub(super) async fn asked(daemon: &Arc<Daemon>, hello: &Hello, params: &Value) -> Answer {
    let refused = |refusal: metamcp_wire::local::Refusal| {
        let error = AdminError::refused(refusal.error);
        match refusal.hint {
            Some(hint) => error.hint(hint),
            None => error,
        }
    };
    let client = client_of(hello).map_err(refused)?;
    // What is wrong with its configuration is said here, where somebody reads it.
    let context = daemon.context(client.clone()).await.map_err(refused)?;
    context.left(daemon.now());
    let opener = Opener { hello: hello.clone(), client, is_person: params["person"] == true };
    let url = open(daemon, opener).await?;
    Ok(json!({ "url": url, "validForMs": access::LINK_LIFETIME.as_millis() as u64 }))
}

/// Makes a link; the first one opens the port.
async fn open(daemon: &Arc<Daemon>, opener: Opener) -> Result<String, AdminError> {
    let wanted = daemon.settings.daemon.ui_port;
    let mut port = daemon.page.port.lock().await;
    let bound = match *port {
        Some(bound) => bound,
        None => {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, wanted));
            let cannot = |error: std::io::Error| {
                AdminError::failed(format!("the page cannot listen on {address}: {error}"))
                    .hint("`ui.port` in your config file chooses another port; 0 takes a free one")
            };
            let listener = TcpListener::bind(address).await.map_err(cannot)?;
            let bound = listener.local_addr().map_err(cannot)?.port();
            task::spawn("page", serve(Arc::clone(daemon), listener, bound));
            *port = Some(bound);
            bound
        }
    };
    drop(port);
    let token = Token::random().map_err(|()| AdminError::failed("there is no randomness"))?;
    // Behind `#`, which no browser sends anywhere and no server logs.
    let url = format!("http://127.0.0.1:{bound}/enter#{}", token.text());
    daemon.page.access.lock().link(&token, Arc::new(opener), daemon.now());
    Ok(url)
}

/// Serves browsers until the daemon ends.
async fn serve(daemon: Arc<Daemon>, listener: TcpListener, port: u16) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let router = routes::router(Arc::clone(&daemon), port);
    let mut stopping = daemon.stopping.subscribe();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopping.wait_for(|stops| *stops) => return,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!("the page cannot take a connection: {error}");
                tokio::time::sleep(ACCEPT_BACKOFF).await;
                continue;
            }
        };
        // What is beyond the limit is closed at once: a browser tries again.
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
        if !peer.ip().is_loopback() {
            continue;
        }
        let (router, mut stopping) = (router.clone(), daemon.stopping.subscribe());
        task::spawn("page connection", async move {
            tokio::select! {
                () = connection(stream, router) => {}
                _ = stopping.wait_for(|stops| *stops) => {}
            }
            drop(place);
        });
    }
}

async fn connection(stream: TcpStream, router: axum::Router) {
    stream.set_nodelay(true).ok();
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_headers(64)
        .max_buf_size(64 * 1024)
        .serve_connection(
            TokioIo::new(stream),
            service_fn(move |request| router.clone().call(request)),
        );
    // A browser that goes away is none of our business.
    drop(served.await);
}
