//! `mcp_call`: arguments checked against what is known of the tool, then one call through the router.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use metamcp_core::arguments;
use metamcp_core::config::{Retry, SWITCHED_OFF, ServerConfig, ServerState};
use metamcp_core::discover::split_id;
use metamcp_core::dispatch::Verdict;
use metamcp_core::nearest::nearest;
use metamcp_core::next::{Advice, Next};
use metamcp_core::replay::{Rule, is_harmless};
use metamcp_core::tool::Tool;
use metamcp_wire::scan::{Defect, MAX_DEPTH, check};
use metamcp_wire::{object, write};
use serde_json::Value;

use super::reply::{Code, ErrorObject, from_verdict};
use super::{Finished, Step, View, kept};
use crate::catalog::Known;
use crate::clock::unix_millis;
use crate::router::{Caller, Dress, Entry, Request, Steps};

/// Arguments longer than this are not checked against the schema here: building them as a tree would cost more
/// than the server's own check, which follows anyway.
const MAX_CHECKED: usize = 1024 * 1024;
/// What is said below arguments that were refused by what is known.
const NOT_CONTACTED: &str = "The server was not contacted. Correct the arguments and call again.";
/// The same where its list was read for this call: what is remembered from disk is no reason to refuse a call that the
/// server might take today.
const ASKED_FIRST: &str = "The call was not sent: the server listed its tools just now, and this is what it wants. Correct the arguments and call again.";
/// Names offered for one that does not exist.
const NEAR: usize = 5;

/// A call that is wanted, before it is known whether its tool exists.
pub(super) struct Wish {
    pub(super) entry: Entry,
    pub(super) tool: Arc<str>,
    pub(super) arguments: Option<Bytes>,
    meta: Option<Bytes>,
    progress: Option<Bytes>,
    /// What is told of its progress, where somebody wants to know.
    steps: Option<Arc<Steps>>,
    /// What is made of the outcome.
    pub(super) dress: Option<Dress>,
}

/// What is asked for, as it was written.
pub(super) struct Asked<'a> {
    /// The tool that asks, for messages.
    pub(super) by: &'static str,
    /// Where it has a place of its own.
    pub(super) server: Option<String>,
    /// A name, or an id.
    pub(super) tool: String,
    /// An object, or a string that holds one; raw, inside the line.
    pub(super) args: Option<&'a [u8]>,
    pub(super) meta: Option<&'a [u8]>,
}

/// Why there is no such call.
pub(super) enum Unwanted {
    /// The request itself is wrong.
    Invalid(String),
    /// It cannot be made.
    Refused(Box<ErrorObject>),
    /// It is about a value that is kept here.
    Kept(String, Value),
}

/// How a call begins.
pub(super) enum Begun {
    /// The router has it.
    Handed,
    /// It cannot be made.
    Refused(Box<ErrorObject>),
    /// The list of tools has to be read first.
    Later(Pin<Box<dyn Future<Output = Result<(), ErrorObject>> + Send>>),
}

/// What the catalog says about a wish.
enum Judged {
    /// It can go.
    Go { harmless: bool },
    /// It cannot, as far as is known.
    No(Box<ErrorObject>),
    /// Nothing is known of the server's tools.
    Unknown,
}

impl View {
    pub(super) fn mcp_call(
        &self,
        arguments: Option<&[u8]>,
        meta: Option<&[u8]>,
        line: &Bytes,
        caller: &Arc<dyn Caller>,
        tag: &Bytes,
    ) -> Step {
        if let Some(step) = arguments.and_then(|raw| self.offered_call(raw, caller, tag)) {
            return step;
        }
        let asked = match decode(arguments, meta) {
            Ok(asked) => asked,
            Err(finished) => return Step::Now(finished),
        };
        let mut wish = match self.wish(asked, line) {
            Ok(wish) => wish,
            Err(Unwanted::Invalid(message)) => return Step::Now(Finished::invalid(message)),
            Err(Unwanted::Refused(refused)) => return Step::Now(Finished::Refused(refused)),
            Err(Unwanted::Kept(tool, arguments)) => {
                let view = self.clone();
                return Step::Later(Box::pin(async move { view.kept(&tool, &arguments).await }));
            }
        };
        wish.dress = self.shortening();
        self.tell_steps(&mut wish, caller, tag);
        match self.begin(wish, caller, tag) {
            Begun::Handed => Step::Handed,
            Begun::Refused(refused) => Step::Now(Finished::Refused(refused)),
            Begun::Later(later) => Step::Later(Box::pin(async move {
                match later.await {
                    Ok(()) => Finished::Handed,
                    Err(refused) => Finished::Refused(Box::new(refused)),
                }
            })),
        }
    }

    /// Sees to it that a caller with a progress token hears of begin and end, unless the server tells it more.
    pub(super) fn tell_steps(&self, wish: &mut Wish, caller: &Arc<dyn Caller>, tag: &Bytes) {
        if let Some(token) = &wish.progress {
            let name = format!("{}:{}", wish.entry.name, wish.tool);
            let steps = Steps::new(caller, tag, token, &name);
            self.router.watch_silence(&steps);
            wish.steps = Some(steps);
        }
    }

    /// Makes a call, or says why not.
    pub(super) fn begin(&self, wish: Wish, caller: &Arc<dyn Caller>, tag: &Bytes) -> Begun {
        let Some(steps) = wish.steps.clone() else { return self.handed(wish, caller, tag) };
        // What is refused has no end in the router.
        match self.handed(wish, caller, tag) {
            Begun::Handed => Begun::Handed,
            Begun::Refused(refused) => {
                steps.end(true);
                Begun::Refused(refused)
            }
            Begun::Later(later) => Begun::Later(Box::pin(async move {
                let handed = later.await;
                if handed.is_err() {
                    steps.end(true);
                }
                handed
            })),
        }
    }

    fn handed(&self, wish: Wish, caller: &Arc<dyn Caller>, tag: &Bytes) -> Begun {
        if let Err(refused) = permitted(&wish) {
            return Begun::Refused(refused);
        }
        let snapshot = self.snapshot();
        let known = snapshot.known(wish.entry.id);
        match self.judge(&wish, known) {
            Judged::Go { harmless } => {
                self.go(wish, harmless, caller, tag);
                Begun::Handed
            }
            // What a live server said in this process needs no second look, nor do arguments that break a schema of the
            // last hour; and what can be read in two ways is refused by every list.
            Judged::No(refused)
                if known.is_some_and(|known| settles(known, &refused))
                    || unambiguous(&wish).is_err() =>
            {
                Begun::Refused(refused)
            }
            _ => {
                let (view, caller, tag) = (self.clone(), Arc::clone(caller), tag.clone());
                Begun::Later(Box::pin(async move { view.look_again(wish, &caller, &tag).await }))
            }
        }
    }

    /// The list is missing, or old enough that it may be wrong about this call: it is read from the server first.
    async fn look_again(
        &self,
        wish: Wish,
        caller: &Arc<dyn Caller>,
        tag: &Bytes,
    ) -> Result<(), ErrorObject> {
        self.catalog.loaded().await;
        let snapshot = self.snapshot();
        let known = snapshot.known(wish.entry.id);
        match self.judge(&wish, known) {
            Judged::Go { harmless } => {
                self.go(wish, harmless, caller, tag);
                return Ok(());
            }
            Judged::No(refused) if known.is_some_and(|known| settles(known, &refused)) => {
                return Err(*refused);
            }
            _ => {}
        }
        if let Err(refused) = self.listed(&wish.entry).await {
            if refused.code() == Code::AuthRequired {
                self.router.offer_login(wish.entry.id, caller, tag);
            }
            return Err(refused);
        }
        let snapshot = self.snapshot();
        match self.judge(&wish, snapshot.known(wish.entry.id)) {
            Judged::Go { harmless } => self.go(wish, harmless, caller, tag),
            // A server that cannot list its tools may still have this one; it knows best.
            Judged::Unknown => {
                unambiguous(&wish).map_err(|refused| *refused)?;
                self.go(wish, false, caller, tag);
            }
            Judged::No(refused) if refused.code() == Code::ValidationInput => {
                return Err(refused.hint(ASKED_FIRST));
            }
            Judged::No(refused) => return Err(*refused),
        }
        Ok(())
    }

    /// Waits until the tools of the server of that name are known, however long it takes to install and start it.
    /// What keeps them from being known is said by whoever asks next.
    pub async fn make_known(&self, name: &str) {
        self.catalog.loaded().await;
        let Some(entry) = self.server(name).filter(|entry| entry.config.is_enabled()) else {
            return;
        };
        if self.snapshot().known(entry.id).is_none() {
            drop(self.listed(&entry).await);
        }
    }

    /// Starts a server and reads its tools, whatever is known of it; the error says what went wrong.
    pub async fn try_out(&self, name: &str) -> Result<(), ErrorObject> {
        self.catalog.loaded().await;
        match self.server(name) {
            Some(entry) => self.listed(&entry).await,
            None => Err(self.no_such_server(name)),
        }
    }

    /// The configuration with the secrets that were looked up when the server started, which must not be told.
    fn config_now(&self, entry: &Entry) -> Arc<ServerConfig> {
        self.router.entry(entry.id).map_or_else(|| Arc::clone(&entry.config), |now| now.config)
    }

    /// Waits until a live server has listed its tools, or has failed to.
    pub(super) async fn listed(&self, entry: &Entry) -> Result<(), ErrorObject> {
        let mut seen = self.router.stir.now();
        let started = self.router.clock.now();
        let refused = |verdict| {
            let config = self.config_now(entry);
            from_verdict(&entry.name, &verdict, &[], Some(&config)).at(&entry.name, None)
        };
        self.router.wake(entry.id).map_err(refused)?;
        loop {
            let snapshot = self.snapshot();
            let listed = snapshot.known(entry.id).and_then(|known| known.listed_at);
            if listed.is_some() || snapshot.failure(entry.id).is_some() {
                return Ok(());
            }
            let view = self.router.view(entry.id);
            let on_its_way = view
                .as_ref()
                .is_some_and(|view| view.state.is_some() || view.waiting_since.is_some());
            if !on_its_way {
                // It failed meanwhile. Waking it again would be another start for each of those who wait.
                return match self.router.why_not(entry.id) {
                    Some(verdict) => Err(refused(verdict)),
                    None => Ok(()),
                };
            }
            // In line for a slot it waits no longer than any other call would.
            let in_line = view.and_then(|view| view.waiting_since.filter(|_| view.state.is_none()));
            let limit = match in_line {
                Some(since) => started.max(since) + self.options.pool_wait,
                None => started + self.options.list_wait,
            };
            tokio::select! {
                () = self.router.stir.moved_on(&mut seen) => {}
                () = self.router.clock.sleep_until(limit) => {
                    if in_line.is_none() {
                        return Ok(());
                    }
                    let waited = self.router.clock.now().since(started);
                    let verdict = Verdict::PoolExhausted { waited, holders: Vec::new() };
                    let holders = self.router.holders();
                    let config = self.config_now(entry);
                    return Err(from_verdict(&entry.name, &verdict, &holders, Some(&config))
                        .at(&entry.name, None));
                }
            }
        }
    }

    fn judge(&self, wish: &Wish, known: Option<&Known>) -> Judged {
        let Some(known) = known else { return Judged::Unknown };
        let Some(tool) = known.tool(&wish.tool) else {
            if self.catalog.is_blocked(wish.entry.id, &wish.tool) {
                return Judged::No(Box::new(blocked(&wish.entry.name, &wish.tool)));
            }
            return Judged::No(Box::new(no_such_tool(wish, known)));
        };
        if let Err(refused) = checked(wish, tool) {
            return Judged::No(refused);
        }
        let rule = match (self.options.replay, wish.entry.config.retry.for_tool(&wish.tool)) {
            (Rule::Never, _) | (_, Retry::Never) => Rule::Never,
            (_, Retry::Always) => Rule::Always,
            (_, Retry::Annotated) => Rule::Annotated,
        };
        let hints = tool.hints;
        let harmless =
            is_harmless(rule, hints.read_only.unwrap_or(false), hints.idempotent.unwrap_or(false));
        Judged::Go { harmless }
    }

    fn go(&self, wish: Wish, harmless: bool, caller: &Arc<dyn Caller>, tag: &Bytes) {
        let Wish { entry, tool, arguments, meta, progress, steps, dress } = wish;
        caller.calling(tag, &entry.name, &tool);
        let input = caller.input();
        let request = Request {
            server: entry.id,
            tool,
            arguments,
            meta,
            progress,
            steps,
            harmless,
            input,
            verbatim: None,
            dress,
        };
        self.router.call(request, Arc::clone(caller), tag.clone());
    }

    /// The call that is asked for. `line` holds the arguments.
    pub(super) fn wish(&self, asked: Asked<'_>, line: &Bytes) -> Result<Wish, Unwanted> {
        let Asked { by, server, tool, args, meta } = asked;
        let (server, tool) = match server {
            Some(server) => {
                // Models like to give both; the id's own server part must then agree.
                let own = split_id(&tool)
                    .filter(|(part, _)| *part == server)
                    .map(|(_, name)| name.to_owned());
                (server, own.unwrap_or(tool))
            }
            None => match split_id(&tool) {
                Some((server, tool)) => (server.to_owned(), tool.to_owned()),
                None => return Err(Unwanted::Refused(Box::new(self.which_server(&tool)))),
            },
        };
        let arguments = decode_args(by, args, line)?;
        let Some(entry) = self.server(&server) else {
            if server == kept::SERVER {
                let arguments = arguments.as_deref().unwrap_or(b"{}");
                let arguments = object::strict_value(arguments, MAX_DEPTH).unwrap_or_default();
                return Err(Unwanted::Kept(tool, arguments));
            }
            return Err(Unwanted::Refused(Box::new(self.no_such_server(&server))));
        };
        let at = |refused: Box<ErrorObject>| {
            let tool = Arc::from(tool.as_str());
            Unwanted::Refused(Box::new(refused.at(&entry.name, Some(&tool))))
        };
        self.permits(&entry, &tool).map_err(at)?;
        let meta = meta.filter(|meta| meta.starts_with(b"{"));
        let progress = meta.and_then(|meta| object::pick(meta, ["progressToken"]).ok()?[0]);
        Ok(Wish {
            entry,
            tool: tool.into(),
            arguments,
            meta: meta.map(Bytes::copy_from_slice),
            progress: progress.map(Bytes::copy_from_slice),
            steps: None,
            dress: None,
        })
    }

    /// The ids of all tools of that name, as far as tools are known.
    pub fn owners(&self, tool: &str) -> Vec<String> {
        let (servers, snapshot) = (self.servers(), self.snapshot());
        let has = |entry: &&Entry| snapshot.known(entry.id)?.tool(tool).map(|_| ());
        let owners = servers.iter().filter(|entry| has(entry).is_some());
        owners.map(|entry| format!("{}:{tool}", entry.name)).collect()
    }

    /// What a tool takes, if that is known: its signature, and its JSON Schema.
    pub fn takes(&self, server: &str, tool: &str) -> Option<(String, Value)> {
        let (entry, snapshot) = (self.server(server)?, self.snapshot());
        let tool = snapshot.known(entry.id)?.tool(tool)?;
        let schema = serde_json::from_str(tool.input_schema()?).ok()?;
        Some((tool.signature().to_owned(), schema))
    }

    pub(super) fn which_server(&self, tool: &str) -> ErrorObject {
        let owners = self.owners(tool);
        let object = ErrorObject::new(
            Code::ServerNotFound,
            format!("the tool {tool:?} is named without its server"),
        );
        if let Some(entry) = self.server(tool.trim_end_matches(':')) {
            let list = Next::ToolsOf(entry.name.to_string());
            object
                .hint(Advice::from("It is the name of a server; ").step(list, " lists its tools."))
        } else if owners.is_empty() {
            let write = Advice::from("Write it as SERVER:TOOL; ");
            object.hint(write.step(Next::Search, " finds it."))
        } else {
            object.hint(format!("Did you mean {}?", owners.join(" or "))).detail("nearest", owners)
        }
    }

    pub(super) fn no_such_server(&self, name: &str) -> ErrorObject {
        let servers = self.servers();
        let names: Vec<&str> = servers.iter().map(|entry| &*entry.name).collect();
        let near = nearest(name, names.iter().copied(), NEAR);
        let hint = if near.is_empty() {
            Advice::default().step(Next::Servers, " lists the servers.")
        } else {
            format!("Did you mean {}?", near.join(" or ")).into()
        };
        ErrorObject::new(Code::ServerNotFound, format!("no server {name:?} is configured"))
            .hint(hint)
            .detail("nearest", near.into_iter().map(str::to_owned).collect::<Vec<_>>())
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
            let hint = "The call was not sent. Mend the configuration; a variable has to be set where metamcp is started.";
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

/// Whether the configuration lets this call through at all.
fn permitted(wish: &Wish) -> Result<(), Box<ErrorObject>> {
    let config = &wish.entry.config;
    let at = |object: ErrorObject| Box::new(object.at(&wish.entry.name, Some(&wish.tool)));
    usable(&wish.entry).map_err(|object| at(*object))?;
    if !config.tools.permits(&wish.tool) {
        return Err(at(ErrorObject::new(
            Code::Denied,
            format!(
                "the configuration of the server {:?} does not permit the tool {:?}",
                wish.entry.name, &*wish.tool
            ),
        )
        .hint("The call was not sent. Only the owner of the configuration can change that.")));
    }
    Ok(())
}

fn decode<'a>(arguments: Option<&'a [u8]>, meta: Option<&'a [u8]>) -> Result<Asked<'a>, Finished> {
    let Some(arguments) = arguments else {
        return Err(Finished::invalid(
            "mcp_call needs arguments: {\"server\": …, \"tool\": …, \"args\": {…}}",
        ));
    };
    let [server, tool, args, alias] =
        object::pick(arguments, ["server", "tool", "args", "arguments"]).map_err(|defect| {
            Finished::invalid(format!("the arguments of mcp_call cannot be used: {defect}"))
        })?;
    // The protocol's own word for it, which models slip into.
    let args = match (args, alias) {
        (Some(_), Some(_)) => {
            return Err(Finished::invalid("mcp_call takes `args` or `arguments`, not both"));
        }
        (args, alias) => args.or(alias),
    };
    let word = |raw: Option<&[u8]>, name: &str| match raw {
        None | Some(b"null") => Ok(None),
        Some(raw) => match object::text(raw) {
            Some(text) => Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty())),
            None => Err(Finished::invalid(format!("`{name}` of mcp_call must be a string"))),
        },
    };
    let (server, tool) = (word(server, "server")?, word(tool, "tool")?);
    let Some(tool) = tool else {
        return Err(Finished::invalid(
            "mcp_call needs `tool`: a tool's name, or its id SERVER:TOOL",
        ));
    };
    Ok(Asked { by: "mcp_call", server, tool, args, meta })
}

/// `args` as an object: as written, or inside a string, as some models write it.
fn decode_args(by: &str, args: Option<&[u8]>, line: &Bytes) -> Result<Option<Bytes>, Unwanted> {
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
        _ => Err(Unwanted::Invalid(format!(
            "`args` of {by} must be an object, or a string that holds one as JSON"
        ))),
    }
}

/// The arguments against the tool's schema.
fn checked(wish: &Wish, tool: &Tool) -> Result<(), Box<ErrorObject>> {
    let raw = wish.arguments.as_deref().unwrap_or(b"{}");
    if raw.len() > MAX_CHECKED {
        return unambiguous(wish);
    }
    if tool.checker().surely_fits(raw) {
        return Ok(());
    }
    let refuse = |message: String| {
        ErrorObject::new(Code::ValidationInput, message)
            .at(&wish.entry.name, Some(&wish.tool))
            .hint(NOT_CONTACTED)
    };
    let value = object::strict_value(raw, MAX_DEPTH).map_err(|defect| ambiguous(wish, &defect))?;
    tool.checker().check(&value).map_err(|violations| {
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

/// Whether a call is refused by what is known of its server, without asking it first.
fn settles(known: &Known, refused: &ErrorObject) -> bool {
    let of_arguments = refused.code() == Code::ValidationInput;
    known.listed_at.is_some() || of_arguments && known.is_recent(unix_millis())
}

/// Arguments that are not checked any further can be read in one way only.
fn unambiguous(wish: &Wish) -> Result<(), Box<ErrorObject>> {
    let raw = wish.arguments.as_deref().unwrap_or(b"{}");
    object::unambiguous(raw, MAX_DEPTH).map_err(|defect| ambiguous(wish, &defect))
}

fn ambiguous(wish: &Wish, defect: &Defect) -> Box<ErrorObject> {
    let message =
        format!("the arguments of {}:{} are ambiguous: {defect}", wish.entry.name, wish.tool);
    let object = ErrorObject::new(Code::ValidationInput, message);
    Box::new(object.at(&wish.entry.name, Some(&wish.tool)).hint(NOT_CONTACTED))
}

/// A tool of an installed server that is not what it was when the server was agreed to.
pub(super) fn blocked(name: &Arc<str>, tool: &Arc<str>) -> ErrorObject {
    ErrorObject::new(
        Code::Denied,
        format!("the tool {tool:?} of the installed server {name:?} changed since it was agreed to"),
    )
    .at(name, Some(tool))
    .hint(format!(
        "The call was not sent. The user can look at it and run `metamcp provisioned accept {name}` in a terminal."
    ))
}

fn no_such_tool(wish: &Wish, known: &Known) -> ErrorObject {
    let names = known.tools.tools.iter().map(|tool| &*tool.name);
    let near: Vec<String> =
        nearest(&wish.tool, names, NEAR).into_iter().map(str::to_owned).collect();
    let left_out = known.tools.left_out().map_or(String::new(), |words| format!(" {words}"));
    let hint = if near.is_empty() {
        let all = format!(" lists its {} tools.{left_out}", known.tools.tools.len());
        Advice::default().step(Next::ToolsOf(wish.entry.name.to_string()), all)
    } else {
        format!("Did you mean {}?{left_out}", near.join(" or ")).into()
    };
    let message = if left_out.is_empty() {
        format!("the server {:?} has no tool {:?}", wish.entry.name, &*wish.tool)
    } else {
        format!("no tool {:?} is known of the server {:?}", &*wish.tool, wish.entry.name)
    };
    ErrorObject::new(Code::ToolNotFound, message)
        .at(&wish.entry.name, Some(&wish.tool))
        .hint(hint)
        .detail("nearest", near)
}
