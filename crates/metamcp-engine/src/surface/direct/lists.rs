//! Lists in direct mode: tools from the catalog, resources and prompts page by page from their servers.

use std::sync::Arc;

use metamcp_calls::notify::List;
use metamcp_surface::direct::fit::{self, Reader};
use metamcp_surface::direct::{self, Kind, MAX_PAGES, Place};
use metamcp_wire::{object, write};

use super::capabilities::INTRODUCTION;
use super::renamed;
use crate::catalog::Snapshot;
use crate::compute;
use crate::router::{CallErrorKind, CallOutcome, Entry};
use crate::surface::sub_request::SubRequests;
use crate::surface::{Finished, View};

/// Tools on a page. Most hosts read all pages, some only the first: it is as long as a list of a sane size.
const PAGE_TOOLS: usize = 1000;
/// A page ends when it has this many bytes.
const PAGE_BYTES: usize = 2 * 1024 * 1024;

impl View {
    /// The result of `tools/list`.
    pub async fn tools_page(
        &self,
        cursor: Option<String>,
        reader: Reader,
        shows_apps: bool,
    ) -> Finished {
        if !self.is_direct() {
            if self.seat.lists_first() {
                self.surface.router.observer.totals().listed_in_place_of(self.list_bytes());
            }
            return Finished::Result(self.tools(shows_apps).await.into_bytes());
        }
        self.shown_tools(cursor.as_deref(), reader).await
    }

    /// What the lists of all its servers would take, as far as they are known.
    fn list_bytes(&self) -> u64 {
        let snapshot = self.snapshot();
        let servers = self.enabled();
        let known = servers.iter().filter_map(|entry| snapshot.known(entry.definition));
        known.flat_map(|known| &known.tools.tools).map(|tool| tool.raw().len() as u64).sum()
    }

    /// The `instructions` of the gateway: in direct mode those of the one server.
    pub async fn server_instructions(&self) -> String {
        if !self.is_direct() {
            return self.instructions();
        }
        if let Some(only) = self.only() {
            let instructions = match self.surface.router.peer(only.id) {
                Some(peer) => peer.instructions.clone(),
                // It takes longer to start than a client waits; they have hardly changed since the last start.
                None => self.surface.router.launcher.instructions_cache.known(&only.config).await,
            };
            return direct::visible(&instructions.unwrap_or_default()).into_owned();
        }
        if self.enabled().is_empty() {
            let why = self.without_servers();
            return format!("{}{}.", why[..1].to_ascii_uppercase(), &why[1..]);
        }
        let digest = self.digest().await;
        format!("Tools of several servers, each named SERVER__TOOL.\n{digest}")
    }
}

impl View {
    /// All tools as their servers define them, under the names they are called by here.
    async fn shown_tools(&self, cursor: Option<&str>, reader: Reader) -> Finished {
        self.surface.catalog.loaded().await;
        let (only, servers) = (self.only(), self.enabled());
        if let Some(only) = &only {
            if self.snapshot().known(only.definition).is_none()
                && let Err(refused) = self.listed(only).await
            {
                return Finished::Protocol { code: -32000, message: refused.to_line() };
            }
            if self.snapshot().known(only.definition).is_none() {
                let failure = self.snapshot().failure(only.definition).cloned();
                // The server's own error is passed on, here as everywhere.
                if let Some((code, message)) = failure.as_ref().and_then(|why| why.error.clone()) {
                    return Finished::Protocol { code, message };
                }
                let why = failure.map(|why| why.to_string());
                let why = why.unwrap_or_else(|| "did not list its tools in time".to_owned());
                let message = format!("the server {:?} {why}", only.name);
                return Finished::Protocol { code: -32000, message };
            }
        } else {
            self.wake_enabled().await;
        }
        let snapshot = self.latest_snapshot().await;
        let binding = "tools/list as they are";
        let stamp = self.list_stamp(&snapshot);
        let offset = match cursor {
            None => 0,
            Some(cursor) => match self.surface.cursor_key().decode(cursor, stamp, binding) {
                Ok(offset) => offset as usize,
                Err(error) => {
                    return Finished::invalid(format!("the cursor cannot be used: {error}"));
                }
            },
        };
        let (view, from) = (self.clone(), Arc::clone(&snapshot));
        let only = only.is_some();
        let writing = compute::run(move || {
            view.page_of_tools(&servers, only, &from, (offset, binding), reader)
        });
        let json = match writing.await {
            Ok(json) => json,
            Err(failed) => {
                return Finished::Protocol { code: -32603, message: failed.to_string() };
            }
        };
        let context = self.context();
        context.change_notifier.given(List::Tools, context.tools_digest(&snapshot));
        Finished::Result(json)
    }

    /// One page of all tools. It may be megabytes.
    fn page_of_tools(
        &self,
        servers: &[Entry],
        only: bool,
        snapshot: &Snapshot,
        (offset, binding): (usize, &str),
        reader: Reader,
    ) -> Vec<u8> {
        let tools = servers.iter().flat_map(|entry| {
            let known = snapshot.known(entry.definition).into_iter();
            known.flat_map(|known| known.tools.all()).map(move |tool| (entry, tool))
        });
        let mut json = b"{\"tools\":[".to_vec();
        let (mut seen, mut shown) = (0, 0);
        let mut more = false;
        for (entry, tool) in tools.skip(offset) {
            if shown == PAGE_TOOLS || json.len() >= PAGE_BYTES {
                more = true;
                break;
            }
            seen += 1;
            let raw = match fit::tool(tool.raw().as_bytes(), reader) {
                Ok(raw) => raw,
                Err(why) => {
                    self.surface.log_skipped(entry, "tool", &tool.name, why);
                    continue;
                }
            };
            if shown > 0 {
                json.push(b',');
            }
            shown += 1;
            let name = match only {
                true => direct::own_name(&tool.name),
                false => direct::name(&entry.name, &tool.name).into(),
            };
            if *name == *tool.name {
                json.extend_from_slice(&raw);
            } else {
                json.extend_from_slice(&renamed(&raw, "name", &name));
            }
        }
        json.push(b']');
        if more {
            let next = u32::try_from(offset + seen).unwrap_or(u32::MAX);
            json.extend_from_slice(b",\"nextCursor\":");
            let next = self.surface.cursor_key().encode(self.list_stamp(snapshot), next, binding);
            write::json_string(&mut json, &next);
        }
        json.push(b'}');
        json
    }

    /// Starts every server whose tools were never listed, and waits for them, but for each only once.
    pub(super) async fn wake_enabled(&self) {
        let servers = self.enabled();
        let (missed, awaited): (Vec<Entry>, Vec<Entry>) =
            servers.into_iter().partition(|entry| self.surface.router.is_missed(entry.id));
        for entry in missed {
            // Why it cannot be started is known from the last time.
            drop(self.surface.router.wake(entry.id));
        }
        self.wake_unknown(&awaited, INTRODUCTION).await;
        let snapshot = self.snapshot();
        for entry in awaited.iter().filter(|entry| snapshot.known(entry.definition).is_none()) {
            self.surface.router.missed(entry.id);
        }
    }

    /// One page of a list over several servers: a page of one of them, and the cursor of the next.
    pub(super) async fn page_among(
        &self,
        kind: Kind,
        cursor: Option<&str>,
        sub_requests: &Arc<SubRequests>,
    ) -> Finished {
        let servers = self.offering();
        let position = |name: &str| servers.iter().position(|entry| *entry.name == *name);
        let begin = Place { server: String::new(), pages: 0, cursor: None };
        let found = match cursor {
            None => Some((0, begin)),
            Some(cursor) => Place::decode(cursor)
                .and_then(|place| Some((position(&place.server)?, place)))
                .filter(|(_, place)| place.pages <= MAX_PAGES),
        };
        let Some((mut at, mut place)) = found else {
            let why = "the cursor cannot be used; repeat the request without a cursor";
            return Finished::invalid(why);
        };
        if cursor.is_none() {
            // All at once, so that their start times do not add up.
            for entry in servers.iter().filter(|entry| self.surface.router.peer(entry.id).is_none())
            {
                drop(self.surface.router.wake(entry.id));
            }
        }
        loop {
            let Some(entry) = servers.get(at) else { return page_of(kind, &[], None) };
            let (shown, more) = self
                .page_at(entry, kind, place.cursor.take(), sub_requests)
                .await
                .unwrap_or_default();
            place.pages += 1;
            if more.is_some() && place.pages < MAX_PAGES {
                place = Place { server: entry.name.to_string(), pages: place.pages, cursor: more };
            } else {
                at += 1;
                let server = servers.get(at).map(|next| next.name.to_string());
                place = Place { server: server.unwrap_or_default(), pages: 0, cursor: None };
            }
            if !shown.is_empty() {
                let next = (at < servers.len()).then(|| place.encode());
                return page_of(kind, &shown, next);
            }
        }
    }

    /// One page of one server, with the names used here. `None` if it has none or cannot list them.
    async fn page_at(
        &self,
        entry: &Entry,
        kind: Kind,
        cursor: Option<String>,
        sub_requests: &Arc<SubRequests>,
    ) -> Option<(Vec<Vec<u8>>, Option<String>)> {
        let Some(peer) = self.introduced(entry, INTRODUCTION).await else {
            self.surface.router.missed(entry.id);
            return None;
        };
        if !peer.can(kind.capability()) && peer.capabilities.is_object() {
            return None;
        }
        let page = match self.list_at(entry, kind, cursor.as_deref(), sub_requests).await {
            CallOutcome::Result(page) => page,
            CallOutcome::Failed(error) => {
                if !matches!(error.kind, CallErrorKind::Rpc(_)) {
                    self.surface.router.missed(entry.id);
                }
                return None;
            }
            CallOutcome::Cancelled => return None,
        };
        let page = direct::page(kind, &page)?;
        let shown = page.elements.into_iter().filter_map(|(key, raw)| {
            let fitted = fit::element(kind, raw);
            let raw = fitted
                .inspect_err(|why| self.surface.log_skipped(entry, kind.word(), &key, *why))
                .ok()?;
            let mut owners = self.surface.owners();
            if kind != Kind::Prompts {
                owners.listed(kind, key, entry.id);
                return Some(raw.into_owned());
            }
            let name = direct::name(&entry.name, &key);
            owners.listed_prompt(name.clone(), entry.id, key);
            Some(renamed(&raw, "name", &name))
        });
        Some((shown.collect(), page.next))
    }

    /// One page of one server, unchanged.
    pub(in crate::surface) async fn list_at(
        &self,
        entry: &Entry,
        kind: Kind,
        cursor: Option<&str>,
        sub_requests: &Arc<SubRequests>,
    ) -> CallOutcome {
        let mut params = b"{}".to_vec();
        if let Some(cursor) = cursor {
            let mut quoted = Vec::new();
            write::json_string(&mut quoted, cursor);
            params = object::set_member(&params, "cursor", &quoted);
        }
        let about: Arc<str> = kind.method().into();
        let request = self.request(entry, kind.method(), about, Some(&params), None);
        sub_requests.send(&self.surface.router, request).await
    }
}

fn page_of(kind: Kind, elements: &[Vec<u8>], next: Option<String>) -> Finished {
    let mut json = format!("{{\"{}\":[", kind.member()).into_bytes();
    json.extend_from_slice(&elements.join(&b','));
    json.push(b']');
    if let Some(next) = next {
        json.extend_from_slice(b",\"nextCursor\":");
        write::json_string(&mut json, &next);
    }
    json.push(b'}');
    Finished::Result(json)
}
