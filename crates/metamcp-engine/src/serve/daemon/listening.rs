//! HTTP listeners of the daemon: each lives as long as the connection that asked for it, and moves to a newer daemon.
//! Owns: listeners, and how they move: sockets with their queues, or on Windows addresses.      Never: knows what a request says.
//! In: a connection that asks for one, a daemon that takes over.  Out: requests to `serve/http`.
//! Tests: `metamcp/tests/daemon/listening.rs`.

#[cfg_attr(unix, path = "listening/sockets.rs")]
#[cfg_attr(windows, path = "listening/addresses.rs")]
mod handing_over;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use metamcp_wire::local::{Accepted, Code, Hello, Refusal};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc};

use super::connection::{accept, accepted, admitted, client_of, refuse};
use super::local::Stream;
use super::{Daemon, VERSION, number};
use crate::serve::http::{self, Ending};
use crate::task;

/// How long a daemon may take to hand over its listeners: it only writes a few lines.
const HAND_OVER: Duration = Duration::from_secs(5);
/// Most listeners taken over.
#[cfg(unix)]
const MOST: u32 = 64;

/// A listening socket, and for whom it listens.
pub(super) struct Listener {
    socket: handing_over::Socket,
    pub(super) address: String,
    folder: String,
    flags: Vec<String>,
    /// Where it listens, once it was taken over.
    port: Option<u16>,
    /// Says that another daemon has it now.
    moved: Arc<Notify>,
}

/// Listens for clients until the connection ends.
pub(super) async fn serve(daemon: Arc<Daemon>, hello: Hello, mut stream: Stream) {
    let (context, ticket) = match admitted(&daemon, &hello, "http", number()).await {
        Ok(admitted) => admitted,
        Err(refusal) => return refuse(&mut stream, refusal).await,
    };
    let loaded = context.loaded();
    let plan = client_of(&hello).and_then(|client| daemon.host.plan(&loaded, &client));
    let (plan, remarks) = match plan {
        Ok(plan) => plan,
        Err(refusal) => return refuse(&mut stream, refusal).await,
    };
    let opened = match daemon.adopted(&hello) {
        Some((listener, bound)) => Ok((listener, plan.address(bound))),
        None => plan.listen().await.map_err(|error| format!("{error:#}")),
    };
    let ready = opened.and_then(|(listener, address)| {
        let socket = handing_over::socket(&listener).map_err(|error| error.to_string())?;
        Ok((listener, address, socket))
    });
    let (listener, address, socket) = match ready {
        Ok(ready) => ready,
        Err(words) => {
            return refuse(&mut stream, Refusal::new(VERSION, Code::Internal, words)).await;
        }
    };
    let (tell, mut stop) = mpsc::channel(4);
    let moved = Arc::new(Notify::new());
    let has_moved = Arc::new(Notify::new());
    *ticket.connected.listener.lock() = Some(Listener {
        socket,
        address: address.clone(),
        folder: hello.folder.clone(),
        flags: hello.flags.clone(),
        port: None,
        moved: Arc::clone(&moved),
    });
    if !accept(&mut stream, Accepted { remarks, address: Some(address), ..accepted() }).await {
        return;
    }
    let told = task::spawn("end of a listener", {
        let mut stopping = daemon.stopping.subscribe();
        let connected = Arc::clone(&ticket.connected);
        let (moved, has_moved) = (Arc::clone(&moved), Arc::clone(&has_moved));
        async move {
            let mut ignored = [0; 64];
            let gone = async { while matches!(stream.read(&mut ignored).await, Ok(1..)) {} };
            let moves = tokio::select! {
                () = gone => false,
                _ = stopping.wait_for(|stops| *stops) => false,
                () = connected.leave.notified() => false,
                () = moved.notified() => true,
            };
            if moves {
                has_moved.notify_one();
                // Its connector goes to the daemon that has the listener now, while requests here are answered.
                drop(stream);
                drop(stopping.wait_for(|stops| *stops).await);
            }
            let _ended_by_itself = tell.send(()).await;
            // The connection ends with the service, so that its end can be waited for.
            std::future::pending::<()>().await;
        }
    });
    let drain = loaded.config.settings.timeouts.drain;
    let gateway = Arc::clone(&context.gateway);
    let ending = Ending::SessionsOnly;
    http::listen(&gateway, listener, plan, drain, &mut stop, &has_moved, ending).await;
    ticket.connected.listener.lock().take();
    told.abort();
    drop(ticket);
}

/// Gives every listener to a newer daemon: the sockets stay open, with whoever waits in their queues.
pub(super) async fn hand_over(daemon: &Arc<Daemon>, mut stream: Stream) {
    if !daemon.is_draining.load(std::sync::atomic::Ordering::Relaxed) {
        let words = "this daemon does not step aside; ask it to drain first";
        return refuse(&mut stream, Refusal::new(VERSION, Code::Denied, words)).await;
    }
    let connections = daemon.connections.lock().clone();
    let given: Vec<Listener> =
        connections.iter().filter_map(|one| one.listener.lock().take()).collect();
    let follow = handing_over::follow(&given);
    if !accept(&mut stream, Accepted { follow, ..accepted() }).await {
        return;
    }
    let moved: Vec<_> = given.iter().map(|one| Arc::clone(&one.moved)).collect();
    if let Err(error) = handing_over::give(stream, given).await {
        tracing::warn!("the HTTP listeners could not be handed over: {error}");
    }
    for moved in moved {
        moved.notify_one();
    }
}

impl Daemon {
    /// Takes the listeners of a daemon that steps aside. Blocks for a moment; what fails is logged, for their clients come
    /// back by themselves.
    pub fn take_over(&self, old: &Path) {
        match handing_over::take(self, old) {
            Ok(count) => tracing::info!("{count} HTTP listeners were taken over"),
            Err(error) => tracing::warn!("no HTTP listener could be taken over: {error}"),
        }
    }

    /// The listener that a predecessor had for the same client.
    fn adopted(&self, hello: &Hello) -> Option<(TcpListener, std::net::SocketAddr)> {
        let listener = {
            let mut adopted = self.adopted.lock();
            // Its connector insists on the port that the first daemon got.
            let is_its = |one: &Listener| {
                let flag = one.port.map(|port| format!("--port={port}"));
                one.folder == hello.folder
                    && (one.flags == hello.flags
                        || flag.is_some_and(|flag| hello.flags.contains(&flag)))
            };
            let at = adopted.iter().position(is_its)?;
            adopted.swap_remove(at)
        };
        let listener = handing_over::reopened(listener.socket)?;
        let bound = listener.local_addr().ok()?;
        Some((listener, bound))
    }
}
