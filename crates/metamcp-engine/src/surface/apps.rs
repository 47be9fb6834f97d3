//! MCP Apps for hosts that show pages: tools with a page listed directly, their pages served, calls of a page passed on to
//! its own server.
//! Owns: which tool and page a name or address of the host means.      Never: reads a page, lets one reach another server.
//! In: requests of hosts.  Out: `Step`, as for every other surface.
//! Tests: `metamcp/tests/surface/apps.rs`, `metamcp_surface::apps`.

use std::sync::Arc;

use bytes::Bytes;
use metamcp_surface::apps::{self, AppTool, Audience};
use metamcp_surface::direct;
use metamcp_wire::{object, write};
use serde_json::{Value, json};

use super::{Finished, Step, View};
use crate::router::{CallOutcome, Caller, Entry, ResultMapper};

/// A tool of a server, as far as pages are concerned.
struct Found {
    entry: Entry,
    /// As it is shown here; a user may have given it another name than its server has.
    shown: Arc<str>,
    own_name: String,
    tool: AppTool,
}

impl View {
    /// The definitions of tools with a page, and of those that pages call.
    pub(super) async fn app_definitions(&self) -> Vec<Value> {
        self.surface.catalog.loaded().await;
        let (mut definitions, mut of_pages) = (Vec::new(), Vec::<(String, Value)>::new());
        let mut tokens = 0;
        for found in self.app_tools() {
            let (server, tool) = (&*found.entry.name, &found.tool);
            if tool.is_for_model && tool.page.is_some() {
                let name = direct::name(server, &found.shown);
                let definition = tool.definition(&name, server, Audience::Model);
                let more = apps::tokens(&definition);
                if tokens + more > self.surface.options.pin_tokens {
                    tracing::warn!(
                        "the tool {:?} of the server {server:?} is not listed with its page: pins.maxTokens leaves no room",
                        found.shown
                    );
                    continue;
                }
                tokens += more;
                definitions.push(definition);
            }
            // A name that two servers have is listed once; which of them a page means is known when it calls.
            if tool.is_for_pages && !of_pages.iter().any(|(name, _)| *name == found.own_name) {
                let definition = tool.definition(&found.own_name, server, Audience::Page);
                of_pages.push((found.own_name, definition));
            }
        }
        definitions.extend(of_pages.into_iter().map(|(_, definition)| definition));
        definitions
    }

    /// A call of a tool by a name that `app_definitions` listed; nothing if it listed none of that name.
    pub(super) fn app_call(&self, name: &str, params: &[u8], caller: &Caller) -> Option<Step> {
        if !apps::shown_by(&caller.client.capabilities()) {
            return None;
        }
        let tools = self.app_tools();
        let of_model = tools.iter().find(|found| {
            found.tool.is_for_model
                && found.tool.page.is_some()
                && direct::name(&found.entry.name, &found.shown) == name
        });
        if let Some(found) = of_model {
            return Some(self.call_shown(&found.entry, &found.shown, name, Some(params), caller));
        }
        let mut of_pages: Vec<&Found> = tools
            .iter()
            .filter(|found| found.tool.is_for_pages && found.own_name == name)
            .collect();
        // A page was read before it can call anything, so its server is among those whose pages were.
        let opened = self.seat.opened_apps();
        if of_pages.iter().any(|found| opened.contains(&found.entry.name)) {
            of_pages.retain(|found| opened.contains(&found.entry.name));
        }
        match of_pages[..] {
            [] => None,
            [found] => {
                Some(self.call_shown(&found.entry, &found.shown, name, Some(params), caller))
            }
            _ => {
                let servers: Vec<&str> = of_pages.iter().map(|found| &*found.entry.name).collect();
                Some(Step::Now(Finished::invalid(format!(
                    "the pages of several servers call a tool {name:?} ({}), and a call does not say whose page it comes from; it was not sent. Give the tool of one of them another name with `overrides`.",
                    servers.join(", ")
                ))))
            }
        }
    }

    /// Reads a page: only those that a listed tool names, and what its server has beside them under `ui://`.
    pub fn app_resource(&self, params: Option<&[u8]>, caller: &Caller) -> Step {
        let params = params.unwrap_or(b"{}");
        let uri = object::pick(params, ["uri"]).ok().and_then(|[uri]| uri).and_then(object::text);
        let Some(uri) = uri else {
            return Step::Now(Finished::invalid("resources/read needs uri, a string"));
        };
        let tools = self.app_tools();
        let servers = tools.iter().map(|found| &*found.entry.name);
        let meant = apps::meant(&uri, servers).and_then(|(server, page)| {
            let found = tools.iter().find(|found| *found.entry.name == *server)?;
            Some((found.entry.clone(), page))
        });
        let Some((entry, page)) = meant.or_else(|| self.only_app_server(&tools, &uri)) else {
            return Step::Now(Finished::invalid(format!(
                "no server has the page {uri:?}; other resources are read with mcp_call and @resources"
            )));
        };
        if !self.has_all_of(&entry) {
            return Step::Now(Finished::invalid(format!(
                "the toolset of this session has no page {uri:?}"
            )));
        }
        self.seat.open_app(&entry.name);
        let mut quoted = Vec::with_capacity(page.len() + 2);
        write::json_string(&mut quoted, &page);
        let params = object::replace_member(params, "uri", &quoted);
        let input = caller.responder.input();
        let mut request =
            self.request(&entry, "resources/read", page.as_str().into(), Some(&params), input);
        request.result_mapper = Some(addressed_as(&page, &uri));
        self.surface.router.call(request, caller.clone());
        Step::Dispatched
    }

    /// The pages there are, for hosts that list them first.
    pub fn app_resources(&self) -> Finished {
        let mut resources: Vec<Value> = Vec::new();
        for found in self.app_tools() {
            let Some(page) = &found.tool.page else { continue };
            let uri = apps::address(&found.entry.name, page);
            if resources.iter().all(|known| known["uri"] != uri.as_str()) {
                let name = format!("{}: {}", found.entry.name, found.shown);
                resources.push(json!({ "uri": uri, "name": name, "mimeType": apps::MIME_TYPE }));
            }
        }
        Finished::Result(json!({ "resources": resources }).to_string().into_bytes())
    }

    /// A page may name what its own server has by that server's address; with one such server it is clear whose.
    fn only_app_server(&self, tools: &[Found], uri: &str) -> Option<(Entry, String)> {
        if !uri.starts_with("ui://") {
            return None;
        }
        let opened = self.seat.opened_apps();
        let mut having = tools.iter().filter(|found| {
            found.tool.page.as_deref() == Some(uri) || opened.contains(&found.entry.name)
        });
        let first = having.next()?;
        let is_alone = having.all(|other| other.entry.definition == first.entry.definition);
        is_alone.then(|| (first.entry.clone(), uri.to_owned()))
    }

    fn app_tools(&self) -> Vec<Found> {
        let (servers, snapshot) = (self.servers(), self.snapshot());
        let mut tools = Vec::new();
        for entry in servers.iter().filter(|entry| entry.config.is_enabled()) {
            let Some(known) = snapshot.known(entry.definition) else { continue };
            for tool in known.tools.all() {
                let Some(app) = AppTool::of(tool) else { continue };
                let own_name = entry.config.overrides.original(&tool.name).to_owned();
                tools.push(Found {
                    entry: entry.clone(),
                    shown: (*tool.name).into(),
                    own_name,
                    tool: app,
                });
            }
        }
        // Pages are for nothing without a tool that shows one.
        let has_page = |entry: &Entry, tools: &[Found]| {
            tools
                .iter()
                .any(|one| one.entry.definition == entry.definition && one.tool.page.is_some())
        };
        let with_page: Vec<bool> = tools.iter().map(|one| has_page(&one.entry, &tools)).collect();
        let mut with_page = with_page.into_iter();
        tools.retain(|_| with_page.next().unwrap_or(false));
        tools
    }
}

/// Gives a page the address that its host asked for.
fn addressed_as(page: &str, here: &str) -> ResultMapper {
    let (page, here) = (page.to_owned(), here.to_owned());
    ResultMapper::new(move |outcome| match outcome {
        CallOutcome::Result(result) => CallOutcome::Result(readdressed(result, &page, &here)),
        outcome => outcome,
    })
}

fn readdressed(result: Bytes, page: &str, here: &str) -> Bytes {
    let Ok([Some(contents)]) = object::pick(&result, ["contents"]) else { return result };
    if !contents.starts_with(b"[") {
        return result;
    }
    let mut quoted = Vec::new();
    write::json_string(&mut quoted, here);
    let mut renamed = vec![b'['];
    for (at, one) in object::elements(contents).enumerate() {
        if at > 0 {
            renamed.push(b',');
        }
        let uri = object::pick(one, ["uri"]).ok().and_then(|[uri]| uri).and_then(object::text);
        match uri.is_some_and(|uri| uri == page) {
            true => renamed.extend(object::replace_member(one, "uri", &quoted)),
            false => renamed.extend_from_slice(one),
        }
    }
    renamed.push(b']');
    Bytes::from(object::replace_member(&result, "contents", &renamed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_keeps_everything_but_its_address() {
        let read = br#"{"contents":[{"uri":"ui://a","text":"<p>","_meta":{"ui":{"csp":{}}}},{"uri":"ui://b"}],"x": 1.50}"#;
        let seen = readdressed(Bytes::from_static(read), "ui://a", "ui://maps/a");
        assert_eq!(
            String::from_utf8(seen.to_vec()).unwrap(),
            r#"{"contents":[{"uri":"ui://maps/a","text":"<p>","_meta":{"ui":{"csp":{}}}},{"uri":"ui://b"}],"x": 1.50}"#
        );
        let odd = Bytes::from_static(br#"{"contents":7}"#);
        assert_eq!(readdressed(odd.clone(), "ui://a", "ui://b"), odd);
    }
}
