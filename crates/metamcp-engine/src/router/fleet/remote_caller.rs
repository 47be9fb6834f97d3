//! Who makes a call of another node here: both the responder and the client, at the other end of the bus.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use metamcp_calls::pool::{ConnId, ServerId};
use metamcp_tools::tool::Hints;
use metamcp_types::text;
use parking_lot::Mutex;
use serde_json::Value;

use super::super::{
    CallOutcome, Caller, Client, Input, Pending, Responder, Router, ServerRequest, UpstreamRequest,
    Verbatim,
};
use super::CallPlace;
use super::placed::Placed;
use super::wire::{self, Answered, Call, METHODS, Replied, Said};
use crate::fleet::{Body, Fleet, Grant, Part, Run};
use crate::observe::{CallRecord, ClientInfo, ClientLink, Identity, Origin};
use crate::upstream::Reply;

/// Longest name of a principal or a client that is repeated.
const MAX_NAME: usize = 200;
/// A token that stands for the caller's own, which never leaves its node.
const TOKEN: &[u8] = b"0";

pub(in crate::router) struct RemoteCaller {
    router: Arc<Router>,
    fleet: Arc<Fleet>,
    run: Run,
    grant: Arc<Grant>,
    server: ServerId,
    identity: Arc<Identity>,
    capabilities: Value,
    is_stateless: bool,
    /// Its caller does not want it any more.
    is_abandoned: AtomicBool,
    last: AtomicU64,
    asks: Mutex<HashMap<u64, ServerRequest>>,
}

/// The call of another node, as the dispatch takes it. `None` if its method is none that is forwarded.
pub(super) fn pending(
    router: &Arc<Router>,
    fleet: &Arc<Fleet>,
    run: &Run,
    placed: &Placed,
    grant: &Arc<Grant>,
    call: Call,
) -> Option<Pending> {
    let verbatim = match call.verbatim {
        Some((method, params)) => {
            let method = METHODS.iter().find(|known| **known == method)?;
            Some(Verbatim { method, params: params.0 })
        }
        None => None,
    };
    let server_name = router.name_of(placed.server);
    let mut request = UpstreamRequest {
        server: placed.server,
        server_name: Arc::clone(&server_name),
        tool: call.tool.as_str().into(),
        arguments: call.arguments.map(|body| body.0),
        meta: call.meta.map(|body| body.0),
        progress: call.wants_progress.then(|| Bytes::from_static(TOKEN)),
        call_progress: None,
        harmless: call.harmless,
        input: call.input.map(|(responses, state)| {
            let state = state.map(|state| state.0);
            Arc::new(Input { responses: responses.0, state, is_sealed: false })
        }),
        verbatim,
        result_mapper: None,
        // Its caller's record has them.
        hints: Hints::default(),
        as_task: call.as_task,
        rewritten: None,
    };
    // Here, where the secrets are that it may put in.
    router.rewrite(&mut request).ok()?;
    let name = |name: &str| text::clean_line(name, MAX_NAME).into_owned();
    let identity = Identity {
        client: call
            .client
            .map(|(client, version)| ClientInfo { name: name(&client), version: name(&version) }),
        session: session_of(run, call.session),
        ..Identity::new(u64::MAX, name(&call.principal).as_str().into())
    };
    let whose = Arc::new(RemoteCaller {
        router: Arc::clone(router),
        fleet: Arc::clone(fleet),
        run: run.clone(),
        grant: Arc::clone(grant),
        server: placed.server,
        identity: Arc::new(identity),
        capabilities: serde_json::from_str(&call.capabilities).unwrap_or_default(),
        is_stateless: call.is_stateless,
        is_abandoned: AtomicBool::new(false),
        last: AtomicU64::new(0),
        asks: Mutex::default(),
    });
    router.fleet.foreign.lock().insert(run.clone(), Arc::clone(&whose));
    let caller = Caller {
        responder: Arc::clone(&whose) as Arc<dyn Responder>,
        tag: Bytes::from_static(b"0"),
        client: Arc::clone(&whose) as Arc<dyn Client>,
        request: Bytes::from_static(b"0"),
        origin: Origin::Direct,
        arrived: None,
        trace: None,
    };
    let now = router.clock.now();
    let names = (server_name, Arc::clone(&request.tool));
    let (method, body) = (request.method(), request.body());
    let identity = Arc::clone(&whose.identity);
    let record = CallRecord::arriving(identity, Origin::Direct, names, method, body, now);
    let fleet =
        CallPlace { grant: Some(Arc::clone(grant)), is_foreign: true, ..CallPlace::default() };
    Some(Pending::of(request, caller, record, fleet))
}

/// A number for a session of another node, by which its calls take turns with others.
fn session_of(run: &Run, session: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    if let Run::Foreign(call) = run {
        call.caller.hash(&mut hasher);
    }
    session.hash(&mut hasher);
    // Above every number of a session here.
    hasher.finish() | 1 << 63
}

impl RemoteCaller {
    /// The client at the other node answered a request of the server.
    pub(super) fn replied(&self, ask: u64, replied: Replied) {
        let Some(server_request) = self.asks.lock().remove(&ask) else { return };
        match replied {
            Replied::Result(result) => server_request.answer(&Reply::Result(result.0)),
            Replied::Error(error) => server_request.answer(&Reply::Error(error.0)),
            Replied::Unreadable => server_request.answer(&Reply::Oversize(0)),
            Replied::Refused(why) => server_request.refuse(&text::clean_line(&why, MAX_NAME)),
        }
    }

    pub(super) fn abandon(&self) {
        self.is_abandoned.store(true, Ordering::Relaxed);
        self.asks.lock().clear();
    }

    fn say(&self, said: &Said) {
        self.fleet.output(&self.run, Part::Notification(wire::written(said)));
    }
}

impl Responder for RemoteCaller {
    fn respond(&self, _tag: &Bytes, outcome: CallOutcome) {
        self.router.fleet.foreign.lock().remove(&self.run);
        self.asks.lock().clear();
        // What a process says after its lease is over counts for nothing, and nobody hears of it.
        if self.is_abandoned.load(Ordering::Relaxed) || !self.grant.may_act() {
            return;
        }
        self.fleet.result(&self.run, &wire::written(&Answered::of(outcome)).0);
    }

    fn progress(&self, _tag: &Bytes, params: &[u8]) {
        self.say(&Said::Progress(Body(Bytes::copy_from_slice(params))));
    }

    fn is_stateless(&self) -> bool {
        self.is_stateless
    }
}

impl Client for RemoteCaller {
    fn identity(&self) -> Arc<Identity> {
        Arc::clone(&self.identity)
    }

    fn link(&self) -> ClientLink {
        ClientLink { transport: Some("tcp"), version: None }
    }

    fn uses(&self, server: ServerId) -> bool {
        server == self.server
    }

    fn capabilities(&self) -> Value {
        self.capabilities.clone()
    }

    fn log(&self, _request: Option<&Bytes>, params: &[u8]) {
        self.say(&Said::Log(Body(Bytes::copy_from_slice(params))));
    }

    fn ask(
        &self,
        _request: Option<&Bytes>,
        server_request: ServerRequest,
    ) -> Result<(), ServerRequest> {
        let ask = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let said = Said::Asked {
            ask,
            method: server_request.method.clone(),
            params: server_request.params.clone().map(Body),
        };
        self.asks.lock().insert(ask, server_request);
        self.fleet.output(&self.run, Part::Request(wire::written(&said)));
        Ok(())
    }

    fn cancel_ask(&self, conn: ConnId, id: Option<&[u8]>) {
        let withdrawn: Vec<u64> = {
            let mut asks = self.asks.lock();
            asks.extract_if(|_, request| request.is_from(conn, id)).map(|(ask, _)| ask).collect()
        };
        for ask in withdrawn {
            self.say(&Said::Withdrawn { ask });
        }
    }
}
