//! Event streams: the response to one request, the general stream, and resumption of both.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use metamcp_calls::failure::Fact;
use metamcp_wire::sse::{Event, Events};
use tokio::time::{sleep, timeout};

use super::Remote;
use super::exchange::{Kind, kind_of};
use super::post::Broken;
use crate::clock;
use crate::stream::ReadBudget;
use crate::task;
use crate::upstream::connection::Garbage;
use crate::upstream::{Connection, Listener, Reply};

/// How long a general stream may be silent before it is reopened: a dead peer is silent too.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(90);
/// Delay before a stream is reopened, unless the server names one; doubled with each failure.
const REOPEN_DELAY: Duration = Duration::from_secs(1);
/// The longest such delay, also if the server names one.
const MAX_REOPEN_DELAY: Duration = Duration::from_secs(30);
/// How often in a row the stream of a request is reopened without receiving anything.
const MAX_RESUMPTIONS: u32 = 5;
/// How long the end of a stream is awaited after its response: then its connection can be reused.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(250);
/// After this time a stream counts as stable, and the delay is reset.
const STABLE_AFTER: Duration = Duration::from_secs(10);

/// How a stream ended.
pub(in crate::upstream) enum End {
    /// After the response.
    Answered,
    /// Before the response.
    Dropped,
    Oversize(u64),
    /// Too much that is not the protocol.
    Garbage(u64),
}

/// Where to resume.
#[derive(Default)]
pub(in crate::upstream) struct ResumePoint {
    pub(super) last: Option<String>,
    pub(super) pause: Option<Duration>,
}

impl Remote {
    /// Reads the stream of a request until its response has come, resuming it where the server allows.
    pub(super) async fn answer_in_stream(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        listener: &Arc<dyn Listener>,
        number: u64,
        body: Incoming,
    ) -> Option<Reply> {
        let mut place = ResumePoint::default();
        let mut body = Some(body);
        let mut silent = 0;
        loop {
            let before = place.last.clone();
            let end = match body.take() {
                Some(body) => {
                    self.follow(connection, &**listener, Some(number), body, None, &mut place).await
                }
                None => End::Dropped,
            };
            let broke =
                |fact| Some(Reply::Broke { fact, delivery: metamcp_calls::replay::Delivery::Sent });
            match end {
                End::Answered => return None,
                End::Oversize(bytes) => return Some(Reply::Oversize(bytes)),
                End::Garbage(lines) => return broke(Fact::Garbage { lines }),
                End::Dropped => {}
            }
            silent = if place.last == before { silent + 1 } else { 0 };
            if place.last.is_none() || connection.is_stateless() || silent > MAX_RESUMPTIONS {
                return broke(Fact::StreamDropped);
            }
            sleep(place.pause.unwrap_or(REOPEN_DELAY)).await;
            match self.fetch_stream(connection, place.last.as_deref()).await {
                Ok(post_response) if is_stream(&post_response.response) => {
                    body = Some(post_response.response.into_body());
                }
                // It may be restarting; if not, the number of attempts is limited.
                Err(Broken { fact: Fact::Unreachable { .. }, .. }) => {}
                _ => return broke(Fact::StreamDropped),
            }
        }
    }

    /// Opens the general stream, for messages that belong to no request, in place of the one before.
    pub(super) fn listen(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        listener: &Arc<dyn Listener>,
    ) {
        if self.is_sse() || connection.is_stateless() {
            return;
        }
        let (remote, connection) = (Arc::clone(self), Arc::clone(connection));
        let listener = Arc::clone(listener);
        let listening =
            task::spawn(
                "listen",
                async move { remote.keep_listening(&connection, &listener).await },
            );
        let before = self.state().listening.replace(listening.abort_handle());
        if let Some(before) = before {
            before.abort();
        }
    }

    async fn keep_listening(&self, connection: &Arc<Connection>, listener: &Arc<dyn Listener>) {
        let mut place = ResumePoint::default();
        let mut pause = REOPEN_DELAY;
        loop {
            let opened = clock::instant();
            match self.fetch_stream(connection, place.last.as_deref()).await {
                Ok(post_response) if is_stream(&post_response.response) => {
                    let (body, patience) =
                        (post_response.response.into_body(), Some(SILENCE_TIMEOUT));
                    self.follow(connection, &**listener, None, body, patience, &mut place).await;
                }
                // It has no such stream, or has lost the session, which the next request finds out.
                Ok(post_response) if post_response.response.status().is_client_error() => return,
                _ => {}
            }
            if opened.elapsed() >= STABLE_AFTER {
                pause = REOPEN_DELAY;
            }
            sleep(place.pause.unwrap_or(pause)).await;
            pause = (pause * 2).min(MAX_REOPEN_DELAY);
        }
    }

    /// Reads a stream to its end, or until its request is answered.
    pub(in crate::upstream) async fn follow(
        &self,
        connection: &Arc<Connection>,
        listener: &dyn Listener,
        asked: Option<u64>,
        mut body: Incoming,
        patience: Option<Duration>,
        place: &mut ResumePoint,
    ) -> End {
        let mut events = Events::new(self.site.line_bytes);
        let mut garbage = Garbage::new();
        let mut read_budget = ReadBudget::default();
        let mut end = End::Dropped;
        'stream: while let Some(data) = next_data(&mut body, patience).await {
            events.push(&data);
            read_budget.read(data.len()).await;
            while let Some(event) = events.next_event() {
                read_budget.heard().await;
                match self.hear(connection, listener, asked, event, &mut garbage) {
                    None => {}
                    Some(ended) => {
                        end = ended;
                        break 'stream;
                    }
                }
            }
        }
        if let Some(last) = events.last_id() {
            place.last = Some(last.to_owned());
        }
        if let Some(wish) = events.retry() {
            place.pause = Some(Duration::from_millis(wish).min(MAX_REOPEN_DELAY));
        }
        if matches!(end, End::Answered) {
            // What follows does not matter, but the connection can be reused after it.
            drop(
                timeout(DRAIN_TIMEOUT, async {
                    while next_data(&mut body, None).await.is_some() {}
                })
                .await,
            );
        }
        end
    }

    fn hear(
        &self,
        connection: &Arc<Connection>,
        listener: &dyn Listener,
        asked: Option<u64>,
        event: Event,
        garbage: &mut Garbage,
    ) -> Option<End> {
        let data = match event {
            Event::Oversize { bytes } => return asked.map(|_| End::Oversize(bytes)),
            Event::Message { kind, data } if kind.is_empty() || kind == "message" => data,
            Event::Message { .. } => return garbage.one_more().map(End::Garbage),
        };
        match connection.message(&data, &data, asked, listener) {
            Ok(true) => Some(End::Answered),
            Ok(false) => {
                garbage.sense();
                None
            }
            Err(defect) if connection.fail_answered(&data, defect, listener) => {
                asked.map(|_| End::Answered)
            }
            Err(_) => {
                connection.record_stray_line(&data);
                garbage.one_more().map(End::Garbage)
            }
        }
    }

    /// Passes on the events of a stream until `done` accepts one.
    pub(super) async fn read_events(
        &self,
        mut body: Incoming,
        patience: Option<Duration>,
        mut done: impl FnMut(&Bytes) -> bool,
    ) {
        let mut events = Events::new(self.site.line_bytes);
        while let Some(data) = next_data(&mut body, patience).await {
            events.push(&data);
            while let Some(event) = events.next_event() {
                if let Event::Message { data, .. } = event
                    && done(&data)
                {
                    return;
                }
            }
        }
    }
}

pub(in crate::upstream) fn is_stream(response: &hyper::Response<Incoming>) -> bool {
    response.status() == hyper::StatusCode::OK && kind_of(response) == Kind::Stream
}

/// The next bytes; nothing at the end, after an error, or after too long a silence.
pub(in crate::upstream) async fn next_data(
    body: &mut Incoming,
    patience: Option<Duration>,
) -> Option<Bytes> {
    loop {
        let frame = match patience {
            Some(limit) => timeout(limit, body.frame()).await.ok()??,
            None => body.frame().await?,
        };
        // Trailers are ignored.
        if let Ok(data) = frame.ok()?.into_data() {
            return Some(data);
        }
    }
}
