//! Reading all pages of a server's `tools/list`.

use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use metamcp_core::tool::{Listing, Next, ServerTools};
use metamcp_wire::write;

use super::{Connection, Reply};

/// The tools of a server, or why they cannot be had, in words that follow the server's name.
pub async fn read(connection: &Connection) -> Result<Arc<ServerTools>, String> {
    let peer = connection.peer.get();
    let (title, version) = (
        peer.map(|peer| peer.title.as_deref().unwrap_or(&peer.name)),
        peer.map(|peer| peer.version.as_str()),
    );
    let mut listing = Listing::new();
    if peer.is_some_and(|peer| !peer.can("tools") && peer.capabilities.is_object()) {
        return Ok(Arc::new(listing.finish(title, version)));
    }
    let mut params = BytesMut::new();
    loop {
        let asked = connection.request("tools/list", (!params.is_empty()).then_some(&params));
        let page = match asked.await {
            Ok(Reply::Result(page)) => page,
            Ok(Reply::Error(error)) => {
                let refused = metamcp_wire::handshake::refused(&error);
                return Err(format!("answered tools/list with an error: {refused}"));
            }
            Ok(Reply::Malformed(defect)) => {
                return Err(format!("answered tools/list with nonsense: {defect}"));
            }
            Ok(Reply::Oversize(bytes)) => {
                return Err(format!(
                    "listed its tools in one message of {bytes} bytes, which is over the line limit"
                ));
            }
            Err(_) => return Err("ended while its tools were listed".to_owned()),
        };
        match listing
            .page(&page)
            .map_err(|defect| format!("answered tools/list with nonsense: {defect}"))?
        {
            Next::Done => return Ok(Arc::new(listing.finish(title, version))),
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
