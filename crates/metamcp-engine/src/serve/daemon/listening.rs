//! HTTP listeners of the daemon: each lives as long as the connection that asked for it, and moves to a newer daemon
//! with its queue of clients.

use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use metamcp_wire::local::{Accepted, Code, Hello, Kind, MAX_HELLO, Refusal, Reply};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, UnixStream};
use tokio::sync::{Notify, mpsc};

use super::connection::{accept, accepted, admitted, client_of, refuse};
use super::{Daemon, VERSION, number};
use crate::runtime_folder::Places;
use crate::serve::http::{self, Ending};
use crate::task;

/// How long a daemon may take to hand over its listeners: it only writes a few lines.
const HAND_OVER: Duration = Duration::from_secs(5);
/// Most listeners taken over.
const MOST: u32 = 64;

/// A listening socket, and for whom it listens.
pub(super) struct Listener {
    socket: OwnedFd,
    pub(super) address: String,
    folder: String,
    flags: Vec<String>,
    /// Where it listens, once it was taken over.
    port: Option<u16>,
    /// Says that another daemon has it now.
    moved: Arc<Notify>,
}

/// Listens for clients until the connection ends.
pub(super) async fn serve(daemon: Arc<Daemon>, hello: Hello, mut stream: UnixStream) {
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
        let socket = listener.as_fd().try_clone_to_owned().map_err(|error| error.to_string())?;
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
pub(super) async fn hand_over(daemon: &Arc<Daemon>, mut stream: UnixStream) {
    if !daemon.is_draining.load(std::sync::atomic::Ordering::Relaxed) {
        let words = "this daemon does not step aside; ask it to drain first";
        return refuse(&mut stream, Refusal::new(VERSION, Code::Denied, words)).await;
    }
    let connections = daemon.connections.lock().clone();
    let given: Vec<Listener> =
        connections.iter().filter_map(|one| one.listener.lock().take()).collect();
    let follow = u32::try_from(given.len()).unwrap_or(u32::MAX);
    if !accept(&mut stream, Accepted { follow, ..accepted() }).await {
        return;
    }
    let moved: Vec<_> = given.iter().map(|one| Arc::clone(&one.moved)).collect();
    let sent = match stream.into_std() {
        Ok(stream) => tokio::task::spawn_blocking(move || send(&stream, &given)).await,
        Err(error) => Ok(Err(error)),
    };
    if let Ok(Err(error)) = sent {
        tracing::warn!("the HTTP listeners could not be handed over: {error}");
    }
    for moved in moved {
        moved.notify_one();
    }
}

fn send(mut stream: &StdStream, given: &[Listener]) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(HAND_OVER))?;
    for listener in given {
        // The socket travels with one byte, which the line that says whose it is follows.
        let sockets = [listener.socket.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut attached = SendAncillaryBuffer::new(&mut space);
        attached.push(SendAncillaryMessage::ScmRights(&sockets));
        sendmsg(stream, &[IoSlice::new(b"L")], &mut attached, SendFlags::empty())?;
        let mut hello = Hello::plain(VERSION, Kind::Listen, std::process::id());
        hello.folder.clone_from(&listener.folder);
        hello.flags.clone_from(&listener.flags);
        stream.write_all(&hello.to_line())?;
    }
    Ok(())
}

/// One line, byte by byte: the socket that follows it must not be read past.
fn read_line(mut stream: &StdStream) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    loop {
        let mut next = [0];
        stream.read_exact(&mut next)?;
        if next[0] == b'\n' || line.len() > MAX_HELLO {
            return Ok(line);
        }
        line.push(next[0]);
    }
}

fn receive(stream: &StdStream) -> io::Result<Listener> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut attached = RecvAncillaryBuffer::new(&mut space);
    #[cfg(target_os = "linux")]
    let flags = RecvFlags::CMSG_CLOEXEC;
    #[cfg(not(target_os = "linux"))]
    let flags = RecvFlags::empty();
    recvmsg(stream, &mut [IoSliceMut::new(&mut byte)], &mut attached, flags)?;
    let socket = attached.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut sockets) => sockets.next(),
        _ => None,
    });
    let socket = socket.ok_or_else(|| io::Error::other("no socket came"))?;
    // Set on arrival where the system can.
    #[cfg(not(target_os = "linux"))]
    nix::fcntl::fcntl(&socket, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC))?;
    let line = read_line(stream)?;
    let hello = Hello::parse(&line).map_err(io::Error::other)?;
    let Hello { folder, flags, .. } = hello;
    let listener = std::net::TcpListener::from(socket);
    let port = listener.local_addr().ok().map(|bound| bound.port());
    let (socket, address) = (OwnedFd::from(listener), String::new());
    Ok(Listener { socket, address, folder, flags, port, moved: Arc::default() })
}

impl Daemon {
    /// Takes the listeners of a daemon that steps aside. Blocks for a moment; what fails is logged, for their clients come
    /// back by themselves.
    pub fn take_over(&self, old: &Path) {
        match self.taken_over(old) {
            Ok(count) => tracing::info!("{count} HTTP listeners were taken over"),
            Err(error) => tracing::warn!("no HTTP listener could be taken over: {error}"),
        }
    }

    fn taken_over(&self, old: &Path) -> io::Result<usize> {
        let mut stream = Places::connect_to(old)?;
        stream.set_read_timeout(Some(HAND_OVER))?;
        stream.set_write_timeout(Some(HAND_OVER))?;
        let hello = Hello::plain(VERSION, Kind::Listeners, std::process::id());
        stream.write_all(&hello.to_line())?;
        let line = read_line(&stream)?;
        let follow = match Reply::parse(&line).map_err(io::Error::other)? {
            Reply::Accepted(accepted) => accepted.follow.min(MOST),
            Reply::Refused(refusal) => return Err(io::Error::other(refusal.error)),
        };
        for _ in 0..follow {
            let listener = receive(&stream)?;
            self.adopted.lock().push(listener);
        }
        Ok(follow as usize)
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
        let listener = std::net::TcpListener::from(listener.socket);
        listener.set_nonblocking(true).ok()?;
        let listener = TcpListener::from_std(listener).ok()?;
        let bound = listener.local_addr().ok()?;
        Some((listener, bound))
    }
}
