//! Calls of tools whose server the user overrides: the request becomes what that server expects. This is the one place
//! where that happens, so it holds on every road.
//! Owns: the rewritten request, and secrets in it once it is written.      Never: puts a secret into a record; those have the request as its caller made it.
//! In: a request, a server's overrides.  Out: what is sent in its place, or why the caller's arguments do not do.
//! Tests: `metamcp/tests/surface/overrides.rs`, `metamcp-tools::overrides` for the rewriting.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use metamcp_tools::overrides::{self, Mismatch};
use metamcp_types::tool_override::ToolOverrides;
use metamcp_wire::{object, write};

use super::{Router, UpstreamRequest};

/// What is sent in place of a request.
#[derive(Debug)]
pub(crate) struct Rewritten {
    /// The tool, as its server calls it.
    tool: Arc<str>,
    /// The arguments, or the params of a request that is forwarded as it was; names in the place of secrets.
    body: Bytes,
}

impl Router {
    /// Rewrites a call by the overrides of its server, if there are any.
    pub(super) fn rewrite(&self, request: &mut UpstreamRequest) -> Result<(), Mismatch> {
        if request.method() != "tools/call" {
            return Ok(());
        }
        let Some(config) = self.ruled(request.server) else { return Ok(()) };
        let overrides = &config.overrides;
        let tool = overrides.original(&request.tool);
        let one = overrides.for_tool(tool);
        if one.is_none() && *tool == *request.tool {
            return Ok(());
        }
        let rewrite = |arguments: &[u8]| match one {
            Some(one) => overrides::sent(one, arguments),
            None => Ok(arguments.to_vec()),
        };
        let body = match &request.verbatim {
            None => rewrite(request.arguments.as_deref().unwrap_or(b"{}"))?,
            Some(verbatim) => {
                let arguments = rewrite(arguments_in(&verbatim.params))?;
                let params = object::set_member(&verbatim.params, "arguments", &arguments);
                let mut name = Vec::new();
                write::json_string(&mut name, tool);
                object::set_member(&params, "name", &name)
            }
        };
        request.rewritten = Some(Rewritten { tool: tool.into(), body: Bytes::from(body) });
        Ok(())
    }
}

impl UpstreamRequest {
    /// The tool, as its server calls it.
    pub(super) fn sent_tool(&self) -> &str {
        self.rewritten.as_ref().map_or(&self.tool, |rewritten| &rewritten.tool)
    }

    /// The arguments as they would be sent, with names in the place of secrets.
    pub(super) fn sent_arguments(&self) -> Cow<'_, [u8]> {
        let rewritten = self.rewritten.as_ref().map(|rewritten| &rewritten.body);
        let Some(verbatim) = &self.verbatim else {
            let arguments = rewritten.or(self.arguments.as_ref());
            return Cow::Borrowed(arguments.map_or(&b"{}"[..], |arguments| &arguments[..]));
        };
        let params = rewritten.unwrap_or(&verbatim.params);
        let is_plain =
            object::members(params).all(|(name, _)| matches!(&*name, "name" | "arguments"));
        // Whatever else a client sends, the server may read.
        Cow::Borrowed(if is_plain { arguments_in(params) } else { &params[..] })
    }

    /// The part of it that may be long, as it is written to the server. `known` are the overrides with the secrets that
    /// were looked up when the server started.
    pub(super) fn sent_body(&self, known: &ToolOverrides) -> Option<Cow<'_, Bytes>> {
        let Some(rewritten) = &self.rewritten else { return self.body().map(Cow::Borrowed) };
        let one = known.for_tool(&rewritten.tool);
        let Some(one) = one.filter(|one| !one.hidden.is_empty()) else {
            return Some(Cow::Borrowed(&rewritten.body));
        };
        let body = match &self.verbatim {
            None => overrides::filled(one, &rewritten.body),
            Some(_) => {
                let arguments = overrides::filled(one, arguments_in(&rewritten.body));
                object::set_member(&rewritten.body, "arguments", &arguments)
            }
        };
        Some(Cow::Owned(Bytes::from(body)))
    }
}

/// The arguments in the params of a call.
fn arguments_in(params: &[u8]) -> &[u8] {
    let arguments = object::pick(params, ["arguments"]).ok().and_then(|[raw]| raw);
    arguments.filter(|raw| raw.starts_with(b"{")).unwrap_or(b"{}")
}
