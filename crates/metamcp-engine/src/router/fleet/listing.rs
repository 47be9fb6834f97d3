//! The tools of servers that run on another node: asked for like anything else, through a call.

use std::sync::Arc;

use bytes::Bytes;
use metamcp_calls::dispatch::DispatchError;
use metamcp_calls::pool::{ConnId, ServerId};
use metamcp_tools::tool::Hints;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::oneshot;

use super::super::{
    CallOutcome, Caller, Client, Pending, Responder, Router, ServerRequest, UpstreamRequest,
    Verbatim,
};
use super::CallPlace;
use crate::catalog::ListFailure;
use crate::observe::{CallRecord, ClientLink, Identity, Origin};
use crate::task;
use crate::upstream::listing::{self, ListError};

/// Waits for one answer; stands for a client that can do nothing.
struct Lister {
    identity: Arc<Identity>,
    answer: Mutex<Option<oneshot::Sender<CallOutcome>>>,
}

impl Router {
    /// Whether the tools of a server have to be asked for elsewhere, and are: then nothing is started here.
    pub(in crate::router) fn is_listed_elsewhere(&self, server: ServerId) -> bool {
        let Some(fleet) = self.fleet() else { return false };
        let Some(placed) = self.placed(server) else { return false };
        if fleet.grant(placed.instance).is_some_and(|grant| grant.is_open()) {
            return false;
        }
        {
            let mut under_way = self.fleet.listing.lock();
            if under_way.contains(&server) {
                return true;
            }
            under_way.push(server);
        }
        if let Some(me) = self.me.upgrade() {
            task::spawn("fleet listing", me.list_elsewhere(server));
        }
        true
    }

    /// Whether that is under way.
    pub(in crate::router) fn is_listing_elsewhere(&self, server: ServerId) -> bool {
        self.fleet().is_some() && self.fleet.listing.lock().contains(&server)
    }

    async fn list_elsewhere(self: Arc<Self>, server: ServerId) {
        let secrets = Arc::new(self.values());
        let reading = listing::forwarded(self.timing.tools, &secrets, |params| {
            let me = Arc::clone(&self);
            async move { me.ask_for_page(server, &params).await }
        });
        let read = match self.clock.timeout(self.timing.list * 2, reading).await {
            Some(Ok(tools)) => Ok(tools),
            Some(Err(ListError::Words(why))) => Err(why.into()),
            Some(Err(ListError::Refused(code, message))) => {
                Err(ListFailure::refused(code, message))
            }
            Some(Err(ListError::Login(fact))) => Err(fact.to_string().into()),
            None => Err("did not list its tools through the fleet in time".to_owned().into()),
        };
        if let Some(definition) = self.instance_at(server).map(|one| one.definition) {
            for context in definition.contexts() {
                let now = self.clock.now();
                context.catalog.listed(definition.id, read.clone(), None, now).await;
                context.tools_changed();
            }
        }
        self.fleet.listing.lock().retain(|one| *one != server);
        self.state_changes.step();
    }

    async fn ask_for_page(&self, server: ServerId, params: &[u8]) -> Result<Bytes, ListError> {
        let (sender, answer) = oneshot::channel();
        let identity = Arc::new(Identity::owner());
        let lister =
            Arc::new(Lister { identity: Arc::clone(&identity), answer: Mutex::new(Some(sender)) });
        let server_name = self.name_of(server);
        let request = UpstreamRequest {
            server,
            server_name: Arc::clone(&server_name),
            tool: Arc::from("tools/list"),
            arguments: None,
            meta: None,
            progress: None,
            call_progress: None,
            harmless: true,
            hints: Hints::default(),
            input: None,
            verbatim: Some(Verbatim::new("tools/list", Some(params))),
            rewritten: None,
            as_task: false,
            result_mapper: None,
        };
        let caller = Caller {
            responder: Arc::clone(&lister) as Arc<dyn Responder>,
            tag: Bytes::from_static(b"0"),
            client: Arc::clone(&lister) as Arc<dyn Client>,
            request: Bytes::from_static(b"0"),
            origin: Origin::Direct,
            arrived: None,
            trace: None,
        };
        let now = self.clock.now();
        let names = (server_name, Arc::clone(&request.tool));
        let record = CallRecord::arriving(identity, Origin::Direct, names, "tools/list", None, now);
        let fleet = CallPlace { is_own: true, ..CallPlace::default() };
        self.enter(Pending::of(request, caller, record, fleet), now);
        match answer.await {
            Ok(CallOutcome::Result(page)) => Ok(page),
            Ok(CallOutcome::Failed(error)) => Err(match error.kind {
                super::CallErrorKind::Rpc(error) => {
                    let (code, message) = metamcp_wire::handshake::error_parts(&error);
                    ListError::Refused(code, message)
                }
                super::CallErrorKind::Dispatch {
                    error:
                        DispatchError::Unavailable { failure, .. }
                        | DispatchError::OutcomeUnknown { failure },
                    ..
                } => failure.fact.to_string().into(),
                other => format!("did not list its tools: {other:?}").into(),
            }),
            Ok(CallOutcome::Cancelled) | Err(_) => {
                Err("ended while its tools were listed".to_owned().into())
            }
        }
    }
}

impl Responder for Lister {
    fn respond(&self, _tag: &Bytes, outcome: CallOutcome) {
        if let Some(answer) = self.answer.lock().take() {
            drop(answer.send(outcome));
        }
    }

    fn progress(&self, _tag: &Bytes, _params: &[u8]) {}
}

impl Client for Lister {
    fn identity(&self) -> Arc<Identity> {
        Arc::clone(&self.identity)
    }

    fn link(&self) -> ClientLink {
        ClientLink::default()
    }

    fn uses(&self, _server: ServerId) -> bool {
        false
    }

    fn capabilities(&self) -> Value {
        Value::Object(serde_json::Map::new())
    }

    fn log(&self, _request: Option<&Bytes>, _params: &[u8]) {}

    fn ask(&self, _: Option<&Bytes>, server_request: ServerRequest) -> Result<(), ServerRequest> {
        Err(server_request)
    }

    fn cancel_ask(&self, _conn: ConnId, _id: Option<&[u8]>) {}
}
