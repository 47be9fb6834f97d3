//! One connection on the local socket: its hello, and what it is for.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use metamcp_config::settings::{DaemonMode, Transport};
use metamcp_types::text;
use metamcp_wire::local::{
    Accepted, Code, CommandLine, HELLO_TIMEOUT, Hello, Kind, LocalError, MAX_HELLO, Refusal, Reply,
};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{Notify, mpsc, watch};

use super::contexts::OpenContext;
use super::local::{Stream, Watch, first_line};
use super::{
    ClientContext, Command, Connected, Daemon, Ticket, VERSION, admin, listening, number, report,
};
use crate::env::Variables;
use crate::serve::client_roots;
use crate::serve::stdio::{Options, Served};
use crate::task;

/// Longest part of a stranger's words in an answer.
const MAX_QUOTED: usize = 200;
/// How long a reply may take to be read.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves one connection to its end.
pub(super) async fn serve(daemon: Arc<Daemon>, mut stream: Stream) {
    let hello = match tokio::time::timeout(HELLO_TIMEOUT, first_line(&mut stream, MAX_HELLO)).await
    {
        Ok(Ok(Some(line))) => Hello::parse(&line),
        // Whoever connected to see whether anybody listens.
        Ok(Ok(None)) => return,
        Ok(Err(error)) => {
            return tracing::debug!("a local connection ended before its hello: {error}");
        }
        Err(_) => {
            let words = format!("no hello came within {}", text::duration(HELLO_TIMEOUT));
            return refuse(&mut stream, Refusal::new(VERSION, Code::Protocol, words)).await;
        }
    };
    let hello = match hello {
        Ok(hello) => hello,
        Err(error) => {
            let mut refusal = Refusal::new(VERSION, Code::Protocol, clean(&error.to_string()));
            if matches!(error, LocalError::Protocol { .. }) {
                let hint = "update metamcp so that both are of one version, then run `metamcp daemon restart`";
                refusal.hint = Some(hint.to_owned());
            }
            return refuse(&mut stream, refusal).await;
        }
    };
    match hello.kind.clone() {
        Kind::Session => session(daemon, hello, stream).await,
        Kind::Command(line) => command(daemon, hello, line, stream).await,
        Kind::Status => {
            let status = daemon.status();
            // Reading what processes use takes milliseconds each.
            let status = tokio::task::spawn_blocking(|| report::with_memory(status)).await;
            let status = status.ok().and_then(|status| serde_json::to_string(&status).ok());
            accept(&mut stream, Accepted { status, ..accepted() }).await;
        }
        Kind::Stop => stop(&daemon, stream).await,
        Kind::Drain => match daemon.step_aside() {
            Ok(socket) => {
                let address = Some(socket.display().to_string());
                accept(&mut stream, Accepted { address, ..accepted() }).await;
            }
            Err(error) => {
                let words = format!("the socket could not be handed over: {error}");
                refuse(&mut stream, Refusal::new(VERSION, Code::Internal, words)).await;
            }
        },
        Kind::Listen => listening::serve(daemon, hello, stream).await,
        Kind::Admin => {
            if accept(&mut stream, accepted()).await {
                admin::serve(&daemon, &hello, stream).await;
            }
        }
        Kind::Listeners => listening::hand_over(&daemon, stream).await,
    }
}

pub(super) fn accepted() -> Accepted {
    Accepted {
        version: VERSION.to_owned(),
        pid: std::process::id(),
        remarks: Vec::new(),
        address: None,
        status: None,
        follow: 0,
    }
}

fn clean(words: &str) -> String {
    text::clean_line(words, MAX_QUOTED).into_owned()
}

async fn say(stream: &mut Stream, reply: Reply) -> bool {
    let line = reply.to_line();
    matches!(tokio::time::timeout(REPLY_TIMEOUT, stream.write_all(&line)).await, Ok(Ok(())))
}

pub(super) async fn accept(stream: &mut Stream, accepted: Accepted) -> bool {
    say(stream, Reply::Accepted(accepted)).await
}

pub(super) async fn refuse(stream: &mut Stream, refusal: Refusal) {
    say(stream, Reply::Refused(refusal)).await;
}

/// The client's part of a hello.
pub(super) fn client_of(hello: &Hello) -> Result<ClientContext, Refusal> {
    let folder = PathBuf::from(&hello.folder);
    if !folder.is_absolute() {
        let words = format!("the folder {:?} is not an absolute path", clean(&hello.folder));
        return Err(Refusal::new(VERSION, Code::Protocol, words));
    }
    let variables: BTreeMap<String, String> = hello.env.iter().cloned().collect();
    let variables = Variables::of(variables);
    Ok(ClientContext { folder, flags: hello.flags.clone(), variables })
}

/// The context of a hello, and a ticket for its connection.
pub(super) async fn admitted(
    daemon: &Arc<Daemon>,
    hello: &Hello,
    kind: &'static str,
    session: u64,
) -> Result<(Arc<OpenContext>, Ticket), Refusal> {
    if daemon.is_draining.load(std::sync::atomic::Ordering::Relaxed) {
        let words = "this daemon takes no new clients: it is ending or being replaced";
        return Err(Refusal::new(VERSION, Code::Draining, words));
    }
    let client = client_of(hello)?;
    let variables = client.variables.clone();
    let context = daemon.context(client).await?;
    if context.loaded().config.settings.daemon.mode == DaemonMode::Off {
        context.left(daemon.now());
        let words = "the configuration of this client says `daemon.mode: off`";
        return Err(Refusal::new(VERSION, Code::Off, words));
    }
    let connected = Connected {
        session,
        kind,
        pid: hello.pid,
        folder: hello.folder.clone(),
        since: daemon.now(),
        client: Mutex::new(None),
        context: Some(Arc::clone(&context)),
        variables,
        listener: Mutex::new(None),
        leave: Notify::new(),
    };
    match daemon.enter(connected) {
        Some(ticket) => Ok((context, ticket)),
        None => {
            context.left(daemon.now());
            let words = "the daemon serves too many clients already";
            Err(Refusal::new(VERSION, Code::Busy, words))
        }
    }
}

async fn session(daemon: Arc<Daemon>, hello: Hello, mut stream: Stream) {
    let number = number();
    let (context, ticket) = match admitted(&daemon, &hello, "stdio", number).await {
        Ok(admitted) => admitted,
        Err(refusal) => return refuse(&mut stream, refusal).await,
    };
    let (gateway, loaded) = (Arc::clone(&context.gateway), context.loaded());
    if loaded.config.settings.serve.transport != Transport::Stdio {
        let words = "the configuration of this client says that it listens on HTTP";
        return refuse(&mut stream, Refusal::new(VERSION, Code::Http, words)).await;
    }
    let mut remarks = daemon.host.remarks(&loaded);
    remarks.extend(daemon.differences(&loaded.config.settings));
    if !accept(&mut stream, Accepted { remarks, ..accepted() }).await {
        return;
    }
    let (Ok(watch), Ok(closable)) = (Watch::of(&stream), Watch::of(&stream)) else { return };
    let settings = &loaded.config.settings;
    let (knows, known) = watch::channel(false);
    let options = Options {
        line_limit: settings.limits.line_bytes,
        drain: settings.timeouts.drain,
        ends_lines: true,
        roots: Some(known),
        can_answer: Arc::new(move || watch.has_reader()),
    };
    let view = gateway.session_view_of(number);
    gateway.warm(&view, settings.pool.min_size as usize);
    let seat = Arc::clone(&view.seat);
    let (input, output) = stream.into_split();
    let served = Served::begin(view, output);
    let (tell, mut stop) = mpsc::channel(4);
    let told = task::spawn("end of a session", {
        let outbox = Arc::clone(&served.outbox);
        let (mut stopping, connected) =
            (daemon.stopping.subscribe(), Arc::clone(&ticket.connected));
        async move {
            let is_sent_away = tokio::select! {
                _ = stopping.wait_for(|stops| *stops) => false,
                () = connected.leave.notified() => true,
            };
            if is_sent_away {
                closable.send_away(&outbox);
                drop(stopping.wait_for(|stops| *stops).await);
            }
            let _ended_by_itself = tell.send(()).await;
            // A second word would not wait for calls in flight.
            std::future::pending::<()>().await;
        }
    });
    *ticket.connected.client.lock() = Some(Arc::downgrade(&served.session));
    let roots = task::spawn(
        "client roots",
        client_roots::follow(Arc::clone(&served.session), Arc::clone(&seat), knows),
    );
    served.until_over(input, options, &mut stop).await;
    told.abort();
    roots.abort();
    served.session.stop();
    served.flushed().await;
    served.session.abandon();
    seat.give_up();
    drop(ticket);
}

async fn command(daemon: Arc<Daemon>, hello: Hello, line: CommandLine, mut stream: Stream) {
    let (context, ticket) = match admitted(&daemon, &hello, "command", number()).await {
        Ok(admitted) => admitted,
        Err(refusal) => return refuse(&mut stream, refusal).await,
    };
    if accept(&mut stream, accepted()).await {
        let (loaded, gateway) = (context.loaded(), Arc::clone(&context.gateway));
        daemon.host.command(Command { hello, line, loaded, gateway }, stream).await;
    }
    drop(ticket);
}

/// Answers, and keeps the connection until the process ends, so that its end can be waited for.
async fn stop(daemon: &Arc<Daemon>, mut stream: Stream) {
    accept(&mut stream, accepted()).await;
    daemon.begin_end();
    let mut ignored = [0; 64];
    while matches!(stream.read(&mut ignored).await, Ok(1..)) {}
}
