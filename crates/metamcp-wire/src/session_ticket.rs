//! A session as its own id: what another gateway has to know to go on with it, sealed.
//! Owns: what an id says, its text form, its bounds.      Never: reads a clock, knows who its owner is.
//! In: a ticket, a sealer, bytes that name its owner; an id and the same.  Out: an id; the ticket again, or why not.
//! Tests: `session_ticket/tests.rs`.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

use crate::cluster_key::{RANDOM, SealError, Sealer};
use crate::era::{Era, Revision};
use crate::handshake::{Peer, relayed_capabilities};

/// Longest id. It is in the head of every request, and proxies refuse heads of 8 KiB.
pub const MAX_TEXT: usize = 3 * 1024;

/// The format version; others are not accepted.
const FORMAT: u8 = 1;

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionTicket {
    /// Its random part, which names it.
    pub id: [u8; 16],
    /// The process it began in.
    pub gateway: u64,
    /// When it expires, in milliseconds since 1970.
    pub expires: u64,
    pub revision: Revision,
    /// The client's name and version, for records.
    pub name: String,
    pub version: String,
    /// Those that are relayed to servers.
    pub capabilities: Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TicketError {
    #[error("it is no sealed session id")]
    Form,
    /// Of another fleet, of another owner, or changed.
    #[error("the session id does not open: {0}")]
    Sealed(#[from] SealError),
    #[error("the session has expired")]
    Expired,
}

impl SessionTicket {
    /// What another gateway has to know of this client.
    pub fn of(peer: &Peer, id: [u8; 16], gateway: u64, expires: u64) -> SessionTicket {
        SessionTicket {
            id,
            gateway,
            expires,
            revision: peer.era.revision().unwrap_or(Revision::LATEST),
            name: peer.name.clone(),
            version: peer.version.clone(),
            capabilities: relayed_capabilities(&peer.capabilities),
        }
    }

    /// The client as the session that goes on has it.
    pub fn peer(&self) -> Peer {
        Peer {
            era: Era::Initialize(self.revision),
            name: self.name.clone(),
            title: None,
            version: self.version.clone(),
            capabilities: self.capabilities.clone(),
            description: None,
            instructions: None,
        }
    }

    /// The id. `None` if the client says more of itself than fits into one.
    pub fn seal(&self, sealer: &Sealer, random: [u8; RANDOM], owner: &[u8]) -> Option<String> {
        let sealed = sealer.seal(random, owner, &self.encode()?);
        let text = URL_SAFE_NO_PAD.encode(sealed);
        (text.len() <= MAX_TEXT).then_some(text)
    }

    /// Opens an id, if it is this owner's and not expired.
    pub fn open(
        text: &str,
        sealer: &Sealer,
        owner: &[u8],
        now: u64,
    ) -> Result<SessionTicket, TicketError> {
        if text.len() > MAX_TEXT {
            return Err(TicketError::Form);
        }
        let sealed = URL_SAFE_NO_PAD.decode(text).map_err(|_| TicketError::Form)?;
        let plain = sealer.open(owner, &sealed)?;
        let ticket = SessionTicket::decode(&plain).ok_or(TicketError::Form)?;
        if now >= ticket.expires {
            return Err(TicketError::Expired);
        }
        Ok(ticket)
    }

    fn encode(&self) -> Option<Vec<u8>> {
        let mut out = vec![FORMAT];
        out.extend_from_slice(&self.id);
        out.extend_from_slice(&self.gateway.to_be_bytes());
        out.extend_from_slice(&self.expires.to_be_bytes());
        let place = Revision::ALL.iter().position(|known| *known == self.revision);
        out.push(u8::try_from(place?).ok()?);
        for text in [&self.name, &self.version] {
            out.extend_from_slice(&u16::try_from(text.len()).ok()?.to_be_bytes());
            out.extend_from_slice(text.as_bytes());
        }
        out.extend_from_slice(self.capabilities.to_string().as_bytes());
        Some(out)
    }

    fn decode(plain: &[u8]) -> Option<SessionTicket> {
        let (&format, rest) = plain.split_first()?;
        (format == FORMAT).then_some(())?;
        let (&id, rest) = rest.split_first_chunk::<16>()?;
        let (&gateway, rest) = rest.split_first_chunk::<8>()?;
        let (&expires, rest) = rest.split_first_chunk::<8>()?;
        let (&place, rest) = rest.split_first()?;
        let revision = *Revision::ALL.get(usize::from(place))?;
        let (name, rest) = take(rest)?;
        let (version, rest) = take(rest)?;
        Some(SessionTicket {
            id,
            gateway: u64::from_be_bytes(gateway),
            expires: u64::from_be_bytes(expires),
            revision,
            name,
            version,
            capabilities: serde_json::from_slice(rest).ok()?,
        })
    }
}

fn take(bytes: &[u8]) -> Option<(String, &[u8])> {
    let (&length, rest) = bytes.split_first_chunk::<2>()?;
    let (text, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(length)))?;
    Some((String::from_utf8(text.to_vec()).ok()?, rest))
}

#[cfg(test)]
mod tests;
