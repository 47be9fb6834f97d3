//! Servers and tools as callers write them, resolved within a view. What is resolved has still to be permitted.

use std::sync::Arc;

use metamcp_surface::discover::{DiscoverRequest, split_id};
use metamcp_tools::names::{self, Listed, Meant, MeantServer};
use metamcp_types::nearest::nearest;
use metamcp_types::next::{Advice, Next};

use super::View;
use super::reply::{Code, ErrorObject};
use crate::catalog::{Known, Snapshot};
use crate::router::Entry;

/// Most similar names suggested for one that does not exist.
pub(super) const NEAR: usize = 5;
/// Most of these written out as calls; the first is nearly always the one.
const NEAR_CALLS: usize = 2;

impl View {
    /// The server meant by a name: the one called so, else the only one that differs in case and separators alone.
    pub(super) fn server_meant(&self, written: &str) -> Result<Entry, Box<ErrorObject>> {
        if let Some(entry) = self.server(written) {
            return Ok(entry);
        }
        let servers = self.servers();
        match names::server(written, servers.iter().map(|entry| &*entry.name)) {
            MeantServer::One(name) => {
                servers.named(name).cloned().ok_or_else(|| Box::new(self.no_such_server(written)))
            }
            MeantServer::Several(like) => {
                let message = format!("the name {written:?} fits several servers");
                let object = ErrorObject::new(Code::ServerNotFound, message);
                let hint = format!("Write one of them exactly: {}.", like.join(", "));
                let like: Vec<String> = like.into_iter().map(str::to_owned).collect();
                Err(Box::new(object.hint(hint).detail("nearest", like)))
            }
            MeantServer::Nothing => Err(Box::new(self.no_such_server(written))),
        }
    }

    /// The server and tool meant by what a caller wrote. The name of a tool stays as written while its server's tools are
    /// unknown.
    pub(super) fn tool_named(
        &self,
        server: Option<&str>,
        tool: &str,
    ) -> Result<(Entry, Arc<str>), Box<ErrorObject>> {
        if let Some(server) = server {
            let entry = self.server_meant(server)?;
            let tool = self.tool_within(&entry, tool)?;
            return Ok((entry, tool));
        }
        if let Some((server, name)) = split_id(tool)
            && let Some(entry) = self.server(server)
        {
            let tool = self.tool_within(&entry, name)?;
            return Ok((entry, tool));
        }
        let (servers, snapshot) = (self.servers(), self.snapshot());
        let listed: Vec<Listed<'_>> = servers
            .iter()
            .map(|entry| Listed {
                server: &entry.name,
                tools: snapshot.known(entry.definition).map(|known| &*known.tools),
            })
            .collect();
        match names::tool(tool, &listed) {
            Meant::Tool { server, tool: name } => match servers.named(server) {
                Some(entry) => Ok((entry.clone(), name.into())),
                None => Err(Box::new(self.no_such_server(server))),
            },
            Meant::Several(ids) => Err(Box::new(several(tool, ids))),
            Meant::Nothing => Err(Box::new(match split_id(tool) {
                Some((server, _)) => self.no_such_server(server),
                _ => self.which_server(tool),
            })),
        }
    }

    /// The tool of a server meant by a name.
    pub(super) fn tool_within(
        &self,
        entry: &Entry,
        written: &str,
    ) -> Result<Arc<str>, Box<ErrorObject>> {
        let whole = self.surface.catalog.snapshot();
        let Some(known) = whole.known(entry.definition) else {
            let unknown = Listed { server: &entry.name, tools: None };
            return Ok(names::within(written, unknown).tool_or(written).into());
        };
        // A tool that is called so is meant, whether or not it may be called; that is told by whoever checks it.
        if known.tool(written).is_some()
            || entry.config.tools.denies(entry.config.overrides.original(written))
            || self.surface.catalog.is_blocked(entry.definition, written)
        {
            return Ok(written.into());
        }
        let snapshot = self.snapshot();
        let tools = snapshot.known(entry.definition).map(|known| &*known.tools);
        match names::within(written, Listed { server: &entry.name, tools }) {
            Meant::Tool { tool, .. } => Ok(tool.into()),
            Meant::Several(ids) => {
                Err(Box::new(several(written, ids).at(&entry.name, Some(&written.into()))))
            }
            Meant::Nothing => Ok(written.into()),
        }
    }

    /// Puts the real names into a request to discover. A tool's name without its server stays where several servers have
    /// a tool called so: all of them are shown.
    pub(super) fn resolve_names(
        &self,
        request: &mut DiscoverRequest,
    ) -> Result<(), Box<ErrorObject>> {
        let written = match (&request.server, &request.tool) {
            (None, Some(tool)) if self.owners(tool).is_empty() => tool.clone(),
            (Some(server), Some(tool)) => match self.server_meant(server) {
                Ok(entry) => {
                    request.tool = Some(self.tool_within(&entry, tool)?.to_string());
                    request.server = Some(entry.name.to_string());
                    return Ok(());
                }
                // It was taken apart at a colon, which may be part of a name.
                Err(unknown) => match self.tool_named(None, &format!("{server}:{tool}")) {
                    Ok((entry, tool)) => {
                        request.server = Some(entry.name.to_string());
                        request.tool = Some(tool.to_string());
                        return Ok(());
                    }
                    Err(_) => return Err(unknown),
                },
            },
            (Some(server), None) => {
                request.server = Some(self.server_meant(server)?.name.to_string());
                return Ok(());
            }
            _ => return Ok(()),
        };
        // What nobody is called is told by whoever looks for it, after servers had time to list their tools.
        if let Ok((entry, tool)) = self.tool_named(None, &written) {
            request.server = Some(entry.name.to_string());
            request.tool = Some(tool.to_string());
        }
        Ok(())
    }

    /// The ids of all tools of that name, as far as tools are known.
    pub fn owners(&self, tool: &str) -> Vec<String> {
        let (servers, snapshot) = (self.servers(), self.snapshot());
        let has = |entry: &&Entry| snapshot.known(entry.definition)?.tool(tool).map(|_| ());
        let owners = servers.iter().filter(|entry| has(entry).is_some());
        owners.map(|entry| format!("{}:{tool}", entry.name)).collect()
    }

    /// The id of the one tool meant by a text, if there is one; for commands.
    pub fn id_meant(&self, written: &str) -> Option<String> {
        let (entry, tool) = self.tool_named(None, written).ok()?;
        Some(format!("{}:{tool}", entry.name))
    }

    pub(super) fn which_server(&self, tool: &str) -> ErrorObject {
        let object = ErrorObject::new(
            Code::ServerNotFound,
            format!("the tool {tool:?} is named without its server"),
        );
        if let Ok(entry) = self.server_meant(tool.trim_end_matches(':')) {
            let list = Next::ToolsOf(entry.name.to_string());
            return object.hint(
                Advice::from("It is the name of a server; ").step(list, " lists its tools."),
            );
        }
        let near = nearest_ids(tool, self.servers().iter(), &self.snapshot());
        if near.is_empty() {
            let write = Advice::from("Write it as SERVER:TOOL; ");
            return object.hint(write.step(Next::Search, " finds it."));
        }
        object.hint(nearest_calls(&near)).detail("nearest", near)
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

/// A tool that the server does not have, as far as is known.
pub(super) fn no_such_tool(entry: &Entry, tool: &Arc<str>, known: &Known) -> ErrorObject {
    let names = known.tools.tools.iter().map(|tool| &*tool.name);
    let near: Vec<String> = nearest(tool, names, NEAR).into_iter().map(str::to_owned).collect();
    let skipped = known.tools.left_out().map_or(String::new(), |note| format!(" {note}"));
    let message = if skipped.is_empty() {
        format!("the server {:?} has no tool {:?}", entry.name, &**tool)
    } else {
        format!("no tool {:?} is known of the server {:?}", &**tool, entry.name)
    };
    let hint = if near.is_empty() {
        let all = format!(" lists its {} tools.{skipped}", known.tools.tools.len());
        Advice::default().step(Next::ToolsOf(entry.name.to_string()), all)
    } else {
        let ids: Vec<String> = near.iter().map(|name| format!("{}:{name}", entry.name)).collect();
        nearest_calls(&ids).and(skipped)
    };
    ErrorObject::new(Code::ToolNotFound, message)
        .at(&entry.name, Some(tool))
        .hint(hint)
        .detail("nearest", near)
}

/// A name that fits several tools.
fn several(written: &str, ids: Vec<String>) -> ErrorObject {
    let is_bare = ids.iter().all(|id| id.ends_with(&format!(":{written}")));
    let (code, message) = if is_bare {
        (Code::ServerNotFound, format!("several servers have a tool {written:?}"))
    } else {
        (Code::ToolNotFound, format!("the name {written:?} fits several tools"))
    };
    let hint = Advice::did_you_mean(ids.iter().cloned());
    ErrorObject::new(code, message).hint(hint).detail("nearest", ids)
}

fn nearest_calls(ids: &[String]) -> Advice {
    Advice::did_you_mean(ids.iter().take(NEAR_CALLS).cloned())
}

/// The ids of tools of these servers whose names are nearest to one that does not exist.
pub(super) fn nearest_ids<'a>(
    tool: &str,
    servers: impl Iterator<Item = &'a Entry>,
    snapshot: &Snapshot,
) -> Vec<String> {
    let ids: Vec<String> = servers
        .filter_map(|entry| Some((entry, snapshot.known(entry.definition)?)))
        .flat_map(|(entry, known)| {
            known.tools.tools.iter().map(move |tool| format!("{}:{}", entry.name, tool.name))
        })
        .collect();
    let names = ids.iter().filter_map(|id| id.split_once(':').map(|(_, name)| name));
    let near = nearest(tool, names, NEAR);
    let is_near = |id: &&String| near.iter().any(|name| id.ends_with(&format!(":{name}")));
    ids.iter().filter(is_near).take(NEAR).cloned().collect()
}
