//! Reading all pages of a server's `tools/list`.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use metamcp_calls::failure::Fact;
use metamcp_tools::tool::{Listing, Next, ServerTools, Tool, ToolListDefect};
use metamcp_types::secret::Redactor;
use metamcp_types::text;
use metamcp_wire::modern::headers;
use metamcp_wire::write;

use super::{Connection, Reply};
use crate::compute;

/// Pages up to this size parse in a hundred microseconds; longer ones are parsed on another thread.
const SHORT_PAGE: usize = 4 * 1024;

/// Timeout for a server that announces no tools: it may not answer unknown methods at all.
const UNANNOUNCED_TIMEOUT: Duration = Duration::from_secs(5);

const UNREADABLE: &str = "sent a list of tools that cannot be parsed";
const METHOD_NOT_FOUND: i64 = -32601;

#[derive(Debug)]
pub enum ListError {
    /// Text that follows the server's name.
    Words(String),
    /// A JSON-RPC error: code and message.
    Refused(i64, String),
    /// It requires a login first.
    Login(Fact),
}

impl From<String> for ListError {
    fn from(words: String) -> ListError {
        ListError::Words(words)
    }
}

/// Lists the tools of a server, at most so many. Secrets are redacted here, because the list is cached on disk and shown in
/// many places.
pub async fn read(
    connection: &Connection,
    most: usize,
    secrets: &Arc<Redactor>,
) -> Result<Arc<ServerTools>, ListError> {
    let peer = connection.peer.get();
    let title = peer.map(|peer| secrets.redact_text(peer.title.as_deref().unwrap_or(&peer.name)));
    let version = peer.map(|peer| secrets.redact_text(&peer.version));
    let (title, version) = (title.as_deref(), version.as_deref());
    let said = peer.and_then(|peer| peer.description.as_deref().or(peer.instructions.as_deref()));
    let said = said.map(|said| secrets.redact_text(said).into_owned());
    let mut listing = Listing::at_most(most);
    // Some servers have tools although they announce none, so all are asked; most answer at once that they have none.
    let announced = peer.is_none_or(|peer| peer.can("tools") || !peer.capabilities.is_object());
    let mut params = BytesMut::new();
    loop {
        let asked = connection.ask("tools/list", if params.is_empty() { b"{}" } else { &params });
        let answered = if announced {
            asked.await
        } else {
            match tokio::time::timeout(UNANNOUNCED_TIMEOUT, asked).await {
                Ok(answered) => answered,
                Err(_) => return Ok(Arc::new(listing.finish(title, version))),
            }
        };
        let page = match answered {
            Ok(Reply::Result(page)) => page,
            Ok(Reply::Error(error)) => {
                let (code, message) = metamcp_wire::handshake::error_parts(&error);
                if !announced && code == METHOD_NOT_FOUND {
                    return Ok(Arc::new(listing.finish(title, version)));
                }
                return Err(ListError::Refused(code, message));
            }
            Ok(Reply::Malformed(defect)) => {
                return Err(format!("sent an invalid response to tools/list: {defect}").into());
            }
            Ok(Reply::Oversize(bytes)) => {
                let words = format!(
                    "listed its tools in one message of {bytes} bytes, which is over the line limit"
                );
                return Err(words.into());
            }
            Ok(Reply::Broke { fact: fact @ Fact::LoginNeeded { .. }, .. }) => {
                return Err(ListError::Login(fact));
            }
            Ok(Reply::Broke { fact, .. }) => return Err(fact.to_string().into()),
            Err(_) => return Err("ended while its tools were listed".to_owned().into()),
        };
        if connection.is_stateless() && !connection.tells_of_changes() {
            // The first page speaks for all: they come from one listing.
            let (ttl, _) = metamcp_wire::modern::result::cache_hints(&page);
            connection.list_ttl.get_or_init(|| ttl);
        }
        let next;
        (listing, next) = parse_page(listing, page, secrets).await?;
        match next.map_err(|defect| format!("sent an invalid response to tools/list: {defect}"))? {
            Next::Done => {
                let (title, version) = (title.map(str::to_owned), version.map(str::to_owned));
                let must_fit = connection.transport.repeats_arguments_in_headers()
                    && connection.is_stateless();
                let name = connection.name.clone();
                let finished = compute::run(move || {
                    let tools = listing.finish(title.as_deref(), version.as_deref());
                    let tools = tools.with_about(said.as_deref());
                    if must_fit {
                        tools.filtered(|tool| fits_into_headers(tool, &name))
                    } else {
                        tools
                    }
                });
                let tools = finished.await.map_err(|_| UNREADABLE.to_owned())?;
                for skipped in &tools.skipped {
                    tracing::warn!("server {:?} lists more: {skipped}", connection.name);
                }
                return Ok(Arc::new(tools));
            }
            Next::More(cursor) => {
                params.clear();
                params.put_slice(b"{\"cursor\":");
                write::json_string(&mut params, &cursor);
                params.put_u8(b'}');
            }
        }
        tokio::task::yield_now().await;
    }
}

/// The same where each page is asked for on another node, which knows more of the server than its tools.
#[cfg(feature = "fleet")]
pub async fn forwarded<F, A>(
    most: usize,
    secrets: &Arc<Redactor>,
    ask: F,
) -> Result<Arc<ServerTools>, ListError>
where
    F: Fn(Bytes) -> A,
    A: Future<Output = Result<Bytes, ListError>>,
{
    let mut listing = Listing::at_most(most);
    let mut params = BytesMut::from(&b"{}"[..]);
    loop {
        let page = ask(params.clone().freeze()).await?;
        let next;
        (listing, next) = parse_page(listing, page, secrets).await?;
        match next.map_err(|defect| format!("sent an invalid response to tools/list: {defect}"))? {
            Next::Done => {
                let finished = compute::run(move || listing.finish(None, None)).await;
                return Ok(Arc::new(finished.map_err(|_| UNREADABLE.to_owned())?));
            }
            Next::More(cursor) => {
                params.clear();
                params.put_slice(b"{\"cursor\":");
                write::json_string(&mut params, &cursor);
                params.put_u8(b'}');
            }
        }
        tokio::task::yield_now().await;
    }
}

/// Whether calls of a tool can be sent over HTTP: the parameters that its schema maps to headers must fit into headers.
fn fits_into_headers(tool: &Tool, server: &str) -> bool {
    let schema = tool.input_schema().filter(|schema| schema.contains("x-mcp-header"));
    let schema = schema.and_then(|schema| serde_json::from_str(schema).ok());
    match schema.map(|schema| headers::mirrors(&schema)) {
        Some(Err(why)) => {
            let name = text::clean_line(&tool.name, 100);
            tracing::warn!("the tool {name:?} of server {server:?} is skipped: {why}");
            false
        }
        _ => true,
    }
}

/// Parses one page; a long one on another thread, so that calls do not wait for it.
async fn parse_page(
    mut listing: Listing,
    page: Bytes,
    secrets: &Arc<Redactor>,
) -> Result<(Listing, Result<Next, ToolListDefect>), String> {
    let (short, secrets) = (page.len() <= SHORT_PAGE, Arc::clone(secrets));
    let read = move || {
        let page = match secrets.redact(&page).json {
            Cow::Borrowed(_) => page,
            Cow::Owned(clean) => Bytes::from(clean),
        };
        let next = listing.page(&page);
        (listing, next)
    };
    if short {
        return Ok(read());
    }
    let reading = compute::run(read).await;
    reading.map_err(|_| UNREADABLE.to_owned())
}
