//! `@resources` and `@prompts`: two built-in servers whose tools reach the resources and prompts of servers.

use std::sync::Arc;

use memchr::memmem;
use metamcp_surface::direct::{self, Kind};
use metamcp_tools::names;
use metamcp_types::nearest::nearest;
use metamcp_types::next::{Advice, Next};
use metamcp_types::text;
use metamcp_wire::object;
use metamcp_wire::scan::MAX_DEPTH;
use serde_json::{Value, json};

use super::discover::GENERAL_WAIT;
use super::reply::{Code, ErrorObject};
use super::sub_request::SubRequests;
use super::{Finished, Step, View};
use crate::router::{CallOutcome, Caller, Entry};

/// Their names, which cannot collide with a configured server's.
const RESOURCES: &str = "@resources";
const PROMPTS: &str = "@prompts";
/// Lines of a list that are shown at once.
const MAX_LINES: usize = 100;
/// Longest URI or name that is shown, and longest description.
const MAX_KEY: usize = 300;
const MAX_DESCRIPTION: usize = 160;

/// A call of one of their tools.
struct VirtualCall {
    of_prompts: bool,
    tool: String,
    args: Value,
}

impl View {
    /// A call of `mcp_call` that is meant for them; `None` if it is for a server.
    pub(super) fn virtual_server_call(&self, arguments: &[u8], caller: &Caller) -> Option<Step> {
        // For most calls a scan of the bytes is enough.
        let is_named = |name: &[u8]| memmem::find(arguments, name).is_some();
        memchr::memchr(b'@', arguments)?;
        if !is_named(b"@resources") && !is_named(b"@prompts") {
            return None;
        }
        let value = object::strict_value(arguments, MAX_DEPTH).ok()?;
        let tool = value["tool"].as_str().unwrap_or_default().trim();
        let (server, tool) = match value["server"].as_str() {
            Some(server) => (server.trim(), tool),
            None => names::built_in(tool)?,
        };
        if !matches!(server, RESOURCES | PROMPTS) || self.server(server).is_some() {
            return None;
        }
        let args = if value["args"].is_null() { &value["arguments"] } else { &value["args"] };
        let args = match args {
            Value::String(inner) => serde_json::from_str(inner).unwrap_or_default(),
            args => args.clone(),
        };
        let virtual_call =
            VirtualCall { of_prompts: server == PROMPTS, tool: tool.to_owned(), args };
        let (view, sub_requests) = (self.clone(), SubRequests::new(caller));
        Some(Step::Later(Box::pin(async move {
            view.run_virtual_call(virtual_call, &sub_requests).await
        })))
    }

    async fn run_virtual_call(
        &self,
        virtual_call: VirtualCall,
        sub_requests: &Arc<SubRequests>,
    ) -> Finished {
        let string = |name: &str| virtual_call.args[name].as_str().filter(|text| !text.is_empty());
        let entry = match string("server") {
            None => None,
            Some(name) => match self.server_meant(name) {
                Ok(entry) if entry.config.is_enabled() && self.has_all_of(&entry) => Some(entry),
                Ok(entry) if entry.config.is_enabled() => {
                    let why = format!(
                        "the toolset of this session has only tools of the server {:?}",
                        entry.name
                    );
                    let hint =
                        "Nothing was sent. Only the owner of the configuration can change that.";
                    let denied = ErrorObject::new(Code::Denied, why).hint(hint);
                    return Finished::error(&denied.at(&entry.name, None));
                }
                Ok(_) => return Finished::error(&self.no_such_server(name)),
                Err(unknown) => return Finished::Refused(unknown),
            },
        };
        if let Some(wrong) = unknown_argument(&virtual_call) {
            return invalid(virtual_call.of_prompts, &wrong);
        }
        match (virtual_call.of_prompts, virtual_call.tool.as_str()) {
            (of_prompts, "list") => {
                let servers = entry.map_or_else(|| self.offering(), |entry| vec![entry]);
                self.offers_listed(of_prompts, &servers, string("cursor"), sub_requests).await
            }
            (false, "read") => {
                let (Some(entry), Some(uri)) = (&entry, string("uri")) else {
                    return invalid(virtual_call.of_prompts, "`read` needs `server` and `uri`");
                };
                let params = json!({ "uri": uri }).to_string();
                self.forward_as_tool(entry, "resources/read", uri, &params, sub_requests, contents)
                    .await
            }
            (true, "get") => {
                let (Some(entry), Some(name)) = (&entry, string("name")) else {
                    return invalid(virtual_call.of_prompts, "`get` needs `server` and `name`");
                };
                let mut params = json!({ "name": name });
                if virtual_call.args["arguments"].is_object() {
                    params["arguments"] = virtual_call.args["arguments"].clone();
                }
                let params = params.to_string();
                self.forward_as_tool(entry, "prompts/get", name, &params, sub_requests, messages)
                    .await
            }
            (of_prompts, other) => invalid(of_prompts, &format!("there is no tool {other:?}")),
        }
    }

    /// Sends a request to a server, and returns its result as tool content.
    async fn forward_as_tool(
        &self,
        entry: &Entry,
        method: &'static str,
        about: &str,
        params: &str,
        sub_requests: &Arc<SubRequests>,
        shown: fn(&[u8]) -> Option<Vec<u8>>,
    ) -> Finished {
        let request = self.request(entry, method, about.into(), Some(params.as_bytes()), None);
        match sub_requests.send(&self.surface.router, request).await {
            CallOutcome::Result(result) => match shown(&result) {
                Some(content) => {
                    let mut whole = b"{\"content\":[".to_vec();
                    whole.extend_from_slice(&content);
                    whole.extend_from_slice(b"]}");
                    Finished::Result(whole)
                }
                None => {
                    let why = format!(
                        "the server {:?} answered {method} with an invalid result",
                        entry.name
                    );
                    let object = ErrorObject::new(Code::ExecutionFailed, why);
                    Finished::error(&object.at(&entry.name, None))
                }
            },
            CallOutcome::Failed(error) => {
                Finished::error(&ErrorObject::from_call(&error, Some(&entry.config)))
            }
            CallOutcome::Cancelled => Finished::Dispatched,
        }
    }

    /// The lists of some servers, a line each.
    async fn offers_listed(
        &self,
        of_prompts: bool,
        servers: &[Entry],
        cursor: Option<&str>,
        sub_requests: &Arc<SubRequests>,
    ) -> Finished {
        let kinds: &[Kind] = match of_prompts {
            true => &[Kind::Prompts],
            false => &[Kind::Resources, Kind::Templates],
        };
        for entry in servers.iter().filter(|entry| self.surface.router.peer(entry.id).is_none()) {
            // Why one cannot be started is part of the result below.
            drop(self.surface.router.wake(entry.id));
        }
        let mut lines: Vec<String> = Vec::new();
        let mut notes: Vec<String> = Vec::new();
        for entry in servers {
            let patience = self.surface.options.discover_budget.min(GENERAL_WAIT);
            let Some(peer) = self.introduced(entry, patience).await else {
                notes.push(format!("{}: {}", entry.name, self.absence(entry)));
                continue;
            };
            if !peer.can(kinds[0].capability()) {
                continue;
            }
            // A cursor belongs to the first list of the one server it came from.
            let own = cursor.filter(|_| servers.len() == 1);
            for &kind in if own.is_some() { &kinds[..1] } else { kinds } {
                let page = match self.list_at(entry, kind, own, sub_requests).await {
                    CallOutcome::Result(page) => page,
                    CallOutcome::Failed(_) if kind == Kind::Templates => continue,
                    CallOutcome::Failed(error) => {
                        let object = ErrorObject::from_call(&error, Some(&entry.config));
                        notes.push(format!("{}: {}", entry.name, object.to_line()));
                        continue;
                    }
                    CallOutcome::Cancelled => return Finished::Dispatched,
                };
                let Some(page) = direct::page(kind, &page) else {
                    notes.push(format!("{}: no list", entry.name));
                    continue;
                };
                let room = MAX_LINES.saturating_sub(lines.len());
                let left = page.elements.len().saturating_sub(room);
                let shown = page.elements.iter().take(room);
                lines.extend(shown.map(|(key, raw)| line(&entry.name, key, raw)));
                if left > 0 {
                    notes.push(format!("{}: {left} more are not shown", entry.name));
                }
                if let Some(next) = page.next {
                    notes.push(format!("{}: more with \"cursor\": {}", entry.name, json!(next)));
                }
            }
        }
        if lines.is_empty() && notes.is_empty() {
            let what = if of_prompts { "prompts" } else { "resources" };
            notes.push(format!("no {what}"));
        }
        lines.append(&mut notes);
        lines.push(usage(of_prompts).words(self.audience));
        let result = json!({ "content": [{ "type": "text", "text": lines.join("\n") }] });
        Finished::Result(result.to_string().into_bytes())
    }
}

impl View {
    /// The note about them below a list of servers.
    pub(super) fn offers_note(&self, servers: &[Entry]) -> Option<String> {
        let having = |capability: &str| -> Vec<&str> {
            let has = |entry: &&Entry| {
                let peer = self.surface.router.peer(entry.id);
                self.has_all_of(entry) && peer.is_some_and(|peer| peer.can(capability))
            };
            servers.iter().filter(has).map(|entry| &*entry.name).collect()
        };
        let part = |what: &str, of: &[&str], of_prompts: bool| {
            let server = Some(of).filter(|of| of.len() == 1).map(|of| of[0].to_owned());
            let list = Next::Offers { of_prompts, server }.words(self.audience);
            (!of.is_empty()).then(|| format!("{what} of {}: {list}", of.join(", ")))
        };
        let resources = part("Resources", &having("resources"), false);
        let prompts = part("Prompts", &having("prompts"), true);
        let both: Vec<String> = resources.into_iter().chain(prompts).collect();
        (!both.is_empty()).then(|| both.join("\n"))
    }
}

/// An argument that the tool does not have: dropped, it would change what is answered.
fn unknown_argument(virtual_call: &VirtualCall) -> Option<String> {
    let known: &[&str] = match (virtual_call.of_prompts, virtual_call.tool.as_str()) {
        (_, "list") => &["server", "cursor"],
        (false, "read") => &["server", "uri"],
        (true, "get") => &["server", "name", "arguments"],
        _ => return None,
    };
    let mut given = virtual_call.args.as_object()?.keys();
    let name = given.find(|name| !known.contains(&name.as_str()))?;
    let near = nearest(name, known.iter().copied(), 1);
    let hint = match near.first() {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("it takes {}", known.join(", ")),
    };
    let (tool, name) = (&virtual_call.tool, text::shown(name));
    Some(format!("`{tool}` has no argument `{name}`; {hint}"))
}

fn usage(of_prompts: bool) -> Advice {
    let begin = if of_prompts { "Get one: " } else { "Read one: " };
    Advice::from(begin).step(Next::Offer { of_prompts }, ".")
}

fn invalid(of_prompts: bool, what: &str) -> Finished {
    let begin = if of_prompts { "Get one: " } else { "Read one: " };
    let hint = Advice::from(format!("`list` takes an optional `server`. {begin}"))
        .step(Next::Offer { of_prompts }, ".");
    Finished::error(&ErrorObject::new(Code::ValidationInput, what).hint(hint))
}

/// `server uri - description`; untrusted text is cleaned and cut.
fn line(server: &str, key: &str, raw: &[u8]) -> String {
    let [name, description] = object::pick(raw, ["name", "description"]).unwrap_or([None; 2]);
    let string = |raw: Option<&[u8]>| raw.and_then(object::text).unwrap_or_default().into_owned();
    let (name, description) = (string(name), string(description));
    let about = if description.is_empty() { name } else { description };
    let mut line = format!("{server} {}", text::clean_line(key, MAX_KEY));
    if !about.is_empty() && about != key {
        line.push_str(" - ");
        line.push_str(&text::clean_line(&about, MAX_DESCRIPTION));
    }
    line
}

/// The contents of a resource, each as a block.
fn contents(result: &[u8]) -> Option<Vec<u8>> {
    let [contents] = object::pick(result, ["contents"]).ok()?;
    let contents = contents.filter(|contents| contents.starts_with(b"["))?;
    let blocks: Vec<Vec<u8>> = object::elements(contents)
        .filter(|one| one.starts_with(b"{"))
        .map(|one| [b"{\"type\":\"resource\",\"resource\":", one, b"}"].concat())
        .collect();
    Some(blocks.join(&b','))
}

/// The messages of a prompt: who speaks, and what is said.
fn messages(result: &[u8]) -> Option<Vec<u8>> {
    let [messages] = object::pick(result, ["messages"]).ok()?;
    let messages = messages.filter(|messages| messages.starts_with(b"["))?;
    let mut blocks: Vec<Vec<u8>> = Vec::new();
    for message in object::elements(messages) {
        let Ok([role, Some(content)]) = object::pick(message, ["role", "content"]) else {
            continue;
        };
        if content.starts_with(b"{") {
            let role = role.and_then(object::text).unwrap_or_default();
            let role = text::clean_line(&role, 40).into_owned();
            blocks.push(
                json!({ "type": "text", "text": format!("{role}:") }).to_string().into_bytes(),
            );
            blocks.push(content.to_vec());
        }
    }
    Some(blocks.join(&b','))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_answers_becomes_content_as_it_is() {
        let read = contents(br#"{"contents":[{"uri":"a","text":"x","n": 1.50},7,{"uri":"b"}]}"#);
        assert_eq!(
            read.unwrap(),
            br#"{"type":"resource","resource":{"uri":"a","text":"x","n": 1.50}},{"type":"resource","resource":{"uri":"b"}}"#
        );
        let got = messages(
            br#"{"messages":[{"role":"user","content":{"type":"text","text":"x"}},{"role":7},3]}"#,
        );
        assert_eq!(
            String::from_utf8(got.unwrap()).unwrap(),
            r#"{"type":"text","text":"user:"},{"type":"text","text":"x"}"#
        );
        for nonsense in ["7", "{}", r#"{"contents":{},"messages":7}"#] {
            assert!(
                contents(nonsense.as_bytes()).is_none() && messages(nonsense.as_bytes()).is_none()
            );
        }
    }

    #[test]
    fn a_line_shows_what_a_stranger_wrote_on_one_line() {
        let raw = br#"{"uri":"a","name":"n","description":"one\ntwo"}"#;
        assert_eq!(line("s", "a\nb", raw), "s a b - one two");
        assert_eq!(line("s", "a", br#"{"uri":"a","name":"a"}"#), "s a");
    }
}
