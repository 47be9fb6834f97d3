//! `mcp_call`: arguments checked against what is known of the tool, then one call through the router.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use metamcp_calls::dispatch::DispatchError;
use metamcp_calls::lifecycle::State;
use metamcp_calls::replay::{Rule, is_harmless};
use metamcp_config::config::{Retry, SWITCHED_OFF, ServerConfig, ServerState};
use metamcp_surface::discover::split_id;
use metamcp_tools::arguments;
use metamcp_tools::names;
use metamcp_tools::tool::{Hints, Tool};
use metamcp_types::nearest::mistaken_argument;
use metamcp_types::next::{Advice, Next};
use metamcp_types::text;
use metamcp_wire::scan::{Defect, MAX_DEPTH, check};
use metamcp_wire::{object, write};
use serde_json::Value;

use super::names::no_such_tool;
use super::reply::{Code, ErrorObject, from_dispatch_error};
use super::{Finished, Step, View, result_store, tasks};
use crate::catalog::{Known, Snapshot};
use crate::clock::unix_millis;
use crate::router::{CallProgress, Caller, Entry, ResultMapper, UpstreamRequest};

/// Arguments longer than this are not checked against the schema here: building them as a tree would cost more
/// than the server's own check, which follows anyway.
const MAX_CHECKED: usize = 1024 * 1024;
/// The hint for arguments that the catalog's schema refuses.
const NOT_CONTACTED: &str = "The server was not contacted. Correct the arguments and call again.";
/// The same after the list was read again for this call: a schema cached on disk is no reason to refuse a call that the
/// server might accept today.
const RELISTED: &str = "The call was not sent: the server listed its tools just now, and this is the schema it gave. Correct the arguments and call again.";

/// The servers of ours that are called like any other.
const BUILT_IN: [&str; 2] = [result_store::SERVER, tasks::SERVER];

/// A requested call, before it is known whether its tool exists.
pub(super) struct CallRequest {
    pub(super) entry: Entry,
    pub(super) tool: Arc<str>,
    /// The tool as it was written, for when the server's list says what that means.
    written: Arc<str>,
    pub(super) arguments: Option<Bytes>,
    meta: Option<Bytes>,
    progress: Option<Bytes>,
    /// Reports its progress, if the caller sent a token.
    call_progress: Option<Arc<CallProgress>>,
    pub(super) result_mapper: Option<ResultMapper>,
}

/// A requested call as it was written.
pub(super) struct RawCall<'a> {
    /// The meta-tool that makes it, for messages.
    pub(super) by: &'static str,
    /// The server, where it has an argument of its own.
    pub(super) server: Option<String>,
    /// A name, or an id.
    pub(super) tool: String,
    /// An object, or a string that holds one; raw, inside the line.
    pub(super) args: Option<&'a [u8]>,
    pub(super) meta: Option<&'a [u8]>,
}

/// Why a call cannot be made through the router.
pub(super) enum Rejected {
    /// The request itself is wrong.
    Invalid(String),
    /// It cannot be made.
    Refused(Box<ErrorObject>),
    /// It is for a server of ours.
    BuiltIn(BuiltIn),
}

/// A call of a tool of a server of ours.
pub(super) struct BuiltIn {
    server: &'static str,
    tool: String,
    arguments: Value,
}

impl View {
    pub(super) async fn call_built_in(&self, call: &BuiltIn) -> Finished {
        match call.server {
            tasks::SERVER => self.task_tool(&call.tool, &call.arguments).await,
            _ => self.read_result(&call.tool, &call.arguments).await,
        }
    }
}

/// How far the start of a call got.
pub(super) enum Dispatched {
    /// The router has it.
    Sent,
    /// It cannot be made.
    Refused(Box<ErrorObject>),
    /// The list of tools has to be read first.
    Later(Pin<Box<dyn Future<Output = Result<(), ErrorObject>> + Send>>),
}

/// What the catalog says about how a call is sent.
#[derive(Debug, Clone, Copy, Default)]
struct SendOptions {
    harmless: bool,
    as_task: bool,
    hints: Hints,
}

/// A requested call checked against the catalog.
enum Validation {
    Valid(SendOptions),
    /// Wrong as far as the catalog knows.
    Invalid(Box<ErrorObject>),
    /// Nothing is known of the server's tools.
    Unknown,
}

impl View {
    pub(super) fn mcp_call(
        &self,
        arguments: Option<&[u8]>,
        meta: Option<&[u8]>,
        line: &Bytes,
        caller: Caller,
    ) -> Step {
        if let Some(step) = arguments.and_then(|raw| self.virtual_server_call(raw, &caller)) {
            return step;
        }
        let raw_call = match decode(arguments, meta) {
            Ok(raw_call) => raw_call,
            Err(finished) => return Step::Now(finished),
        };
        let mut call_request = match self.resolve_call(&raw_call, line, &caller) {
            Ok(call_request) => call_request,
            Err(Rejected::Invalid(message)) => return Step::Now(Finished::invalid(message)),
            Err(Rejected::Refused(refused)) => return Step::Now(Finished::Refused(refused)),
            Err(Rejected::BuiltIn(call)) => {
                let view = self.clone();
                return Step::Later(Box::pin(async move { view.call_built_in(&call).await }));
            }
        };
        call_request.result_mapper = self.call_follower();
        self.report_progress(&mut call_request, &caller);
        match self.begin(call_request, caller) {
            Dispatched::Sent => Step::Dispatched,
            Dispatched::Refused(refused) => Step::Now(Finished::Refused(refused)),
            Dispatched::Later(later) => Step::Later(Box::pin(async move {
                match later.await {
                    Ok(()) => Finished::Dispatched,
                    Err(refused) => Finished::Refused(Box::new(refused)),
                }
            })),
        }
    }

    /// Reports start and end to a caller with a progress token, unless the server reports progress itself.
    pub(super) fn report_progress(&self, call_request: &mut CallRequest, caller: &Caller) {
        if let Some(token) = &call_request.progress {
            let name = format!("{}:{}", call_request.entry.name, call_request.tool);
            let call_progress = CallProgress::new(caller, token, &name);
            self.surface.router.watch_silence(&call_progress);
            call_request.call_progress = Some(call_progress);
        }
    }

    /// Makes a call; one that is refused gets its record and the end of its progress here.
    pub(super) fn begin(&self, call_request: CallRequest, mut caller: Caller) -> Dispatched {
        if let Err(refused) = permitted(&call_request) {
            return self.refuse(&call_request, &caller, refused);
        }
        let snapshot = self.snapshot_for(&call_request);
        let known = snapshot.known(call_request.entry.definition);
        match self.validate(&call_request, known) {
            Validation::Valid(options) => {
                self.send(call_request, options, caller);
                Dispatched::Sent
            }
            // A list that this process read from the live server needs no refresh, nor does one of the last hour for
            // arguments that break its schema. Ambiguous arguments are refused by every list.
            Validation::Invalid(refused)
                if known.is_some_and(|known| settles(known, &refused))
                    || unambiguous(&call_request).is_err() =>
            {
                self.refuse(&call_request, &caller, refused)
            }
            _ => {
                let view = self.clone();
                caller.arrived.get_or_insert(self.surface.router.clock.now());
                Dispatched::Later(Box::pin(async move {
                    let call_progress = call_request.call_progress.clone();
                    let server = Arc::clone(&call_request.entry.name);
                    let tool = Arc::clone(&call_request.tool);
                    let dispatched = view.relist_and_dispatch(call_request, &caller).await;
                    if let Err(error) = &dispatched {
                        view.surface.refused(&caller, (&server, &tool), error);
                        if let Some(call_progress) = &call_progress {
                            call_progress.end(true);
                        }
                    }
                    dispatched
                }))
            }
        }
    }

    /// What is refused here has neither a record nor an end of its progress in the router.
    fn refuse(
        &self,
        call_request: &CallRequest,
        caller: &Caller,
        error: Box<ErrorObject>,
    ) -> Dispatched {
        let names = (&*call_request.entry.name, &*call_request.tool);
        self.surface.refused(caller, names, &error);
        if let Some(call_progress) = &call_request.call_progress {
            call_progress.end(true);
        }
        Dispatched::Refused(error)
    }

    /// The catalog to validate against. That the tool is one of this view was seen before, so its part of the catalog
    /// need not be made for it.
    fn snapshot_for(&self, call_request: &CallRequest) -> Arc<Snapshot> {
        let whole = self.surface.catalog.snapshot();
        let has = |known: &Known| known.tool(&call_request.tool).is_some();
        if self.scope.is_none() || whole.known(call_request.entry.definition).is_some_and(has) {
            return whole;
        }
        self.snapshot()
    }

    /// The list is missing, or old enough that it may be wrong about this call: it is read from the server first.
    async fn relist_and_dispatch(
        &self,
        mut call_request: CallRequest,
        caller: &Caller,
    ) -> Result<(), ErrorObject> {
        self.surface.catalog.loaded().await;
        self.name_again(&mut call_request).map_err(|refused| *refused)?;
        let snapshot = self.snapshot();
        let known = snapshot.known(call_request.entry.definition);
        match self.validate(&call_request, known) {
            Validation::Valid(options) => {
                self.send(call_request, options, caller.clone());
                return Ok(());
            }
            Validation::Invalid(refused) if known.is_some_and(|known| settles(known, &refused)) => {
                return Err(*refused);
            }
            _ => {}
        }
        if let Err(refused) = self.listed(&call_request.entry).await {
            if refused.code() == Code::AuthRequired {
                self.surface.router.offer_login(call_request.entry.id, caller);
            }
            return Err(refused);
        }
        self.name_again(&mut call_request).map_err(|refused| *refused)?;
        let snapshot = self.snapshot();
        match self.validate(&call_request, snapshot.known(call_request.entry.definition)) {
            Validation::Valid(options) => self.send(call_request, options, caller.clone()),
            // A server that cannot list its tools may still have this one; it knows best.
            Validation::Unknown => {
                unambiguous(&call_request).map_err(|refused| *refused)?;
                self.send(call_request, SendOptions::default(), caller.clone());
            }
            Validation::Invalid(refused) if refused.code() == Code::ValidationInput => {
                return Err(refused.hint(RELISTED));
            }
            Validation::Invalid(refused) => return Err(*refused),
        }
        Ok(())
    }

    /// Finds the tool again in the list that was just read, and checks the name found as that of any call is.
    fn name_again(&self, call_request: &mut CallRequest) -> Result<(), Box<ErrorObject>> {
        let of_server = match split_id(&call_request.written) {
            Some((server, tool)) if self.server(server).is_some() => tool,
            _ => &call_request.written,
        };
        let tool = self.tool_within(&call_request.entry, of_server)?;
        if tool == call_request.tool {
            return Ok(());
        }
        call_request.tool = tool;
        self.permits(&call_request.entry, &call_request.tool)
            .and_then(|()| permitted(call_request))
            .map_err(|refused| {
                Box::new(refused.at(&call_request.entry.name, Some(&call_request.tool)))
            })
    }

    /// Waits until the tools of the server of that name are known, however long it takes to install and start it.
    /// A failure is reported to the next caller.
    pub async fn make_known(&self, name: &str) {
        self.surface.catalog.loaded().await;
        let Some(entry) = self.server(name).filter(|entry| entry.config.is_enabled()) else {
            return;
        };
        if self.snapshot().known(entry.definition).is_none() {
            drop(self.listed(&entry).await);
        }
    }

    /// Starts a server and reads its tools, whatever is known of it; the error says what went wrong.
    pub async fn try_out(&self, name: &str) -> Result<(), ErrorObject> {
        self.surface.catalog.loaded().await;
        match self.server(name) {
            Some(entry) => self.listed(&entry).await,
            None => Err(self.no_such_server(name)),
        }
    }

    /// The configuration with the secrets that were resolved when the server started, for redaction.
    fn config_now(&self, entry: &Entry) -> Arc<ServerConfig> {
        self.surface
            .router
            .entry(entry.id)
            .map_or_else(|| Arc::clone(&entry.config), |now| now.config)
    }

    /// Waits until a live server has listed its tools, or has failed to.
    pub(super) async fn listed(&self, entry: &Entry) -> Result<(), ErrorObject> {
        let mut seen = self.surface.router.state_changes.now();
        let started = self.surface.router.clock.now();
        let refused = |error| {
            let config = self.config_now(entry);
            from_dispatch_error(&entry.name, &error, &[], Some(&config)).at(&entry.name, None)
        };
        self.surface.router.wake(entry.id).map_err(refused)?;
        let mut is_asked = false;
        loop {
            let snapshot = self.snapshot();
            let listed = snapshot.known(entry.definition).and_then(|known| known.listed_at);
            if listed.is_some() || snapshot.failure(entry.definition).is_some() {
                return Ok(());
            }
            let view = self.surface.router.view(entry.id);
            let state = view.as_ref().and_then(|view| view.state);
            // It was running before this client came, and has listed its tools to others.
            if matches!(state, Some(State::Active { .. } | State::Idle))
                && self.context().catch_up(entry.definition).await
            {
                continue;
            }
            // They are all gone, and their lists with them.
            if state == Some(State::Idle) && !std::mem::replace(&mut is_asked, true) {
                self.surface.router.relist(entry.id);
            }
            let is_starting = view
                .as_ref()
                .is_some_and(|view| view.state.is_some() || view.waiting_since.is_some());
            if !is_starting {
                // It failed meanwhile. Waking it again would start it once more for every waiting call.
                return match self.surface.router.why_not(entry.id) {
                    Some(error) => Err(refused(error)),
                    None => Ok(()),
                };
            }
            // In the queue for a pool slot it waits no longer than any other call would.
            let queued_since =
                view.and_then(|view| view.waiting_since.filter(|_| view.state.is_none()));
            let limit = match queued_since {
                Some(since) => started.max(since) + self.surface.options.pool_wait,
                None => started + self.surface.options.list_wait,
            };
            tokio::select! {
                () = self.surface.router.state_changes.moved_on(&mut seen) => {}
                () = self.surface.router.clock.sleep_until(limit) => {
                    if queued_since.is_none() {
                        return Ok(());
                    }
                    let waited = self.surface.router.clock.now().since(started);
                    let error = DispatchError::PoolExhausted { waited, holders: Vec::new() };
                    let holders = self.surface.router.holders();
                    let config = self.config_now(entry);
                    return Err(from_dispatch_error(&entry.name, &error, &holders, Some(&config))
                        .at(&entry.name, None));
                }
            }
        }
    }

    fn validate(&self, call_request: &CallRequest, known: Option<&Known>) -> Validation {
        let Some(known) = known else { return Validation::Unknown };
        let Some(tool) = known.tool(&call_request.tool) else {
            if self.surface.catalog.is_blocked(call_request.entry.definition, &call_request.tool) {
                return Validation::Invalid(Box::new(blocked(
                    &call_request.entry.name,
                    &call_request.tool,
                )));
            }
            return Validation::Invalid(Box::new(no_such_tool(
                &call_request.entry,
                &call_request.tool,
                known,
            )));
        };
        if let Err(refused) = checked(call_request, tool) {
            return Validation::Invalid(refused);
        }
        let rule = match (
            self.surface.options.replay,
            call_request
                .entry
                .config
                .retry
                .for_tool(call_request.entry.config.overrides.original(&call_request.tool)),
        ) {
            (Rule::Never, _) | (_, Retry::Never) => Rule::Never,
            (_, Retry::Always) => Rule::Always,
            (_, Retry::Annotated) => Rule::Annotated,
        };
        let hints = tool.hints;
        let harmless =
            is_harmless(rule, hints.read_only.unwrap_or(false), hints.idempotent.unwrap_or(false));
        Validation::Valid(SendOptions { harmless, as_task: tool.is_task_only(), hints })
    }

    fn send(&self, mut call_request: CallRequest, options: SendOptions, caller: Caller) {
        let result_mapper = call_request.result_mapper.take();
        let CallRequest { entry, tool, arguments, meta, progress, call_progress, .. } =
            call_request;
        let input = caller.responder.input();
        let request = UpstreamRequest {
            server: entry.id,
            server_name: entry.name,
            tool,
            arguments,
            meta,
            progress,
            call_progress,
            harmless: options.harmless,
            input,
            hints: options.hints,
            verbatim: None,
            as_task: options.as_task,
            rewritten: None,
            result_mapper,
        };
        self.surface.router.call(request, caller);
    }

    /// Resolves server and tool of a requested call. `line` holds the arguments.
    pub(super) fn resolve_call(
        &self,
        raw_call: &RawCall<'_>,
        line: &Bytes,
        caller: &Caller,
    ) -> Result<CallRequest, Rejected> {
        let resolved = self.resolve(raw_call, line);
        if let Err(Rejected::Refused(error)) = &resolved {
            let RawCall { server, tool, .. } = raw_call;
            let written = match server {
                Some(server) => (server.as_str(), tool.as_str()),
                None => split_id(tool).unwrap_or(("", tool)),
            };
            self.surface.refused(caller, written, error);
        }
        resolved
    }

    fn resolve(&self, raw_call: &RawCall<'_>, line: &Bytes) -> Result<CallRequest, Rejected> {
        let &RawCall { by, ref server, ref tool, args, meta } = raw_call;
        let arguments = decode_args(by, args, line)?;
        let built_in = match server {
            Some(server) => Some((server.as_str(), tool.as_str())),
            None => names::built_in(tool),
        };
        if let Some((server, tool)) = built_in
            && let Some(server) = BUILT_IN.into_iter().find(|known| *known == server)
        {
            let arguments = arguments.as_deref().unwrap_or(b"{}");
            let arguments = object::strict_value(arguments, MAX_DEPTH).unwrap_or_default();
            let tool = tool.to_owned();
            return Err(Rejected::BuiltIn(BuiltIn { server, tool, arguments }));
        }
        let written: Arc<str> = tool.as_str().into();
        let (entry, tool) =
            self.tool_named(server.as_deref(), &written).map_err(Rejected::Refused)?;
        let at = |refused: Box<ErrorObject>| {
            Rejected::Refused(Box::new(refused.at(&entry.name, Some(&tool))))
        };
        self.permits(&entry, &tool).map_err(at)?;
        let meta = meta.filter(|meta| meta.starts_with(b"{"));
        let progress = meta.and_then(|meta| object::pick(meta, ["progressToken"]).ok()?[0]);
        Ok(CallRequest {
            entry,
            tool,
            written,
            arguments,
            meta: meta.map(Bytes::copy_from_slice),
            progress: progress.map(Bytes::copy_from_slice),
            call_progress: None,
            result_mapper: None,
        })
    }

    /// The signature and input schema of a tool, if it is known.
    pub fn takes(&self, server: &str, tool: &str) -> Option<(String, Value)> {
        let (entry, snapshot) = (self.server(server)?, self.snapshot());
        let tool = snapshot.known(entry.definition)?.tool(tool)?;
        let schema = serde_json::from_str(tool.input_schema()?).ok()?;
        Some((tool.signature().to_owned(), schema))
    }
}

/// Whether a server may be used at all.
pub(super) fn usable(entry: &Entry) -> Result<(), Box<ErrorObject>> {
    let (how, reason, hint) = match &entry.config.state {
        ServerState::Enabled => return Ok(()),
        ServerState::Disabled { reason } if *reason == SWITCHED_OFF => {
            let enable = Next::Enable(entry.name.to_string());
            let hint =
                Advice::from("The call was not sent. ").step(enable, " lets it be used again.");
            ("disabled", reason, hint)
        }
        ServerState::Disabled { reason } => {
            let hint = "The call was not sent. Fix the configuration; a variable has to be set where metamcp is started.";
            ("disabled", reason, hint.into())
        }
        ServerState::Invalid { reason } => {
            let hint = "The call was not sent. The user has to fix the server's entry in the config file; `metamcp config check` shows the line.";
            ("disabled", reason, hint.into())
        }
        ServerState::Withheld { reason, cure } => {
            ("withheld", reason, format!("The call was not sent. {cure}").into())
        }
    };
    Err(Box::new(
        ErrorObject::new(
            Code::ServerUnavailable,
            format!("the server {:?} is {how}: {reason}", entry.name),
        )
        .hint(hint)
        .at(&entry.name, None),
    ))
}

/// Whether the configuration permits this call at all.
fn permitted(call_request: &CallRequest) -> Result<(), Box<ErrorObject>> {
    let config = &call_request.entry.config;
    let at = |object: ErrorObject| {
        Box::new(object.at(&call_request.entry.name, Some(&call_request.tool)))
    };
    usable(&call_request.entry).map_err(|object| at(*object))?;
    if !config.permits(&call_request.tool) {
        return Err(at(ErrorObject::new(
            Code::Denied,
            format!(
                "the configuration of the server {:?} does not permit the tool {:?}",
                call_request.entry.name, &*call_request.tool
            ),
        )
        .hint("The call was not sent. Only the owner of the configuration can change that.")));
    }
    Ok(())
}

fn decode<'a>(
    arguments: Option<&'a [u8]>,
    meta: Option<&'a [u8]>,
) -> Result<RawCall<'a>, Finished> {
    let Some(arguments) = arguments else {
        return Err(Finished::invalid(
            "mcp_call needs arguments: {\"server\": …, \"tool\": …, \"args\": {…}}",
        ));
    };
    let mut unknown: Option<String> = None;
    let note = |name: &[u8]| {
        unknown.get_or_insert_with(|| String::from_utf8_lossy(name).into_owned());
    };
    let picked = object::pick_noting(arguments, ["server", "tool", "args", "arguments"], note);
    let [server, tool, args, alias] = picked.map_err(|defect| {
        Finished::invalid(format!("the arguments of mcp_call cannot be used: {defect}"))
    })?;
    if let Some(name) = unknown {
        misplaced(&name, args.or(alias).is_some())?;
    }
    // The protocol's own name for it, which models use by mistake.
    let args = match (args, alias) {
        (Some(_), Some(_)) => {
            return Err(Finished::invalid("mcp_call takes `args` or `arguments`, not both"));
        }
        (args, alias) => args.or(alias),
    };
    let string = |raw: Option<&[u8]>, name: &str| match raw {
        None | Some(b"null") => Ok(None),
        Some(raw) => match object::text(raw) {
            Some(text) => Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty())),
            None => Err(Finished::invalid(format!("`{name}` of mcp_call must be a string"))),
        },
    };
    let (server, tool) = (string(server, "server")?, string(tool, "tool")?);
    let Some(tool) = tool else {
        return Err(Finished::invalid(
            "mcp_call needs `tool`: a tool's name, or its id SERVER:TOOL",
        ));
    };
    Ok(RawCall { by: "mcp_call", server, tool, args, meta })
}

/// Refuses an argument that `mcp_call` does not have where dropping it would change the call: a slip of the pen, or an
/// argument of the tool itself.
fn misplaced(name: &str, has_args: bool) -> Result<(), Finished> {
    let wrong = match mistaken_argument("mcp_call", name, &["server", "tool", "args"]) {
        Some(wrong) => wrong,
        None if has_args => return Ok(()),
        None => format!("mcp_call has no argument `{}`", text::shown(name)),
    };
    let hint = "The call was not sent. What the tool takes goes into `args`: {\"tool\": \"server:tool\", \"args\": {…}}.";
    Err(Finished::error(&ErrorObject::new(Code::ValidationInput, wrong).hint(hint)))
}

/// `args` as an object: as written, or inside a string, as some models write it.
fn decode_args(by: &str, args: Option<&[u8]>, line: &Bytes) -> Result<Option<Bytes>, Rejected> {
    let Some(args) = args.filter(|args| *args != b"null") else { return Ok(None) };
    if args.starts_with(b"{") {
        return Ok(Some(line.slice_ref(args)));
    }
    let inner = object::text(args).map(|text| text.into_owned().into_bytes());
    match inner {
        Some(inner) if inner.trim_ascii().is_empty() => Ok(None),
        Some(inner)
            if inner.trim_ascii_start().starts_with(b"{") && check(&inner, MAX_DEPTH).is_ok() =>
        {
            // A line break between members is legal JSON but would break the line it is sent on.
            Ok(Some(Bytes::from(write::one_line(&inner).into_owned())))
        }
        _ => Err(Rejected::Invalid(format!(
            "`args` of {by} must be an object, or a string that holds one as JSON"
        ))),
    }
}

/// Validates the arguments against the tool's schema.
fn checked(call_request: &CallRequest, tool: &Tool) -> Result<(), Box<ErrorObject>> {
    let raw = call_request.arguments.as_deref().unwrap_or(b"{}");
    if raw.len() > MAX_CHECKED {
        return unambiguous(call_request);
    }
    if tool.checker().surely_fits(raw) {
        return Ok(());
    }
    let refuse = |message: String| {
        ErrorObject::new(Code::ValidationInput, message)
            .at(&call_request.entry.name, Some(&call_request.tool))
            .hint(NOT_CONTACTED)
    };
    let value =
        object::strict_value(raw, MAX_DEPTH).map_err(|defect| ambiguous(call_request, &defect))?;
    let checker = tool.checker();
    let mistyped = || checker.mistyped(&value).map_or(Ok(()), |violation| Err(vec![violation]));
    checker.check(&value).and_then(|()| mistyped()).map_err(|violations| {
        let listed: Vec<serde_json::Value> = violations
            .iter()
            .map(|v| serde_json::json!({ "path": v.path, "expected": v.expected, "got": v.got }))
            .collect();
        Box::new(
            refuse(arguments::render(&violations, tool.signature()))
                .detail("violations", listed)
                .detail("signature", tool.signature()),
        )
    })
}

/// Whether a call can be refused by the known list, without reading it again from the server.
fn settles(known: &Known, refused: &ErrorObject) -> bool {
    let of_arguments = refused.code() == Code::ValidationInput;
    known.listed_at.is_some() || of_arguments && known.is_recent(unix_millis())
}

/// Refuses arguments that two JSON parsers could read differently; the only check where there is no schema check.
fn unambiguous(call_request: &CallRequest) -> Result<(), Box<ErrorObject>> {
    let raw = call_request.arguments.as_deref().unwrap_or(b"{}");
    object::unambiguous(raw, MAX_DEPTH).map_err(|defect| ambiguous(call_request, &defect))
}

fn ambiguous(call_request: &CallRequest, defect: &Defect) -> Box<ErrorObject> {
    let message = format!(
        "the arguments of {}:{} are ambiguous: {defect}",
        call_request.entry.name, call_request.tool
    );
    let object = ErrorObject::new(Code::ValidationInput, message);
    Box::new(object.at(&call_request.entry.name, Some(&call_request.tool)).hint(NOT_CONTACTED))
}

/// A tool of an installed server that differs from its pinned definition.
pub(super) fn blocked(name: &Arc<str>, tool: &Arc<str>) -> ErrorObject {
    ErrorObject::new(
        Code::Denied,
        format!("the tool {tool:?} of the installed server {name:?} changed since it was approved"),
    )
    .at(name, Some(tool))
    .hint(format!(
        "The call was not sent. The user can review it and run `metamcp provisioned accept {name}` in a terminal."
    ))
}
