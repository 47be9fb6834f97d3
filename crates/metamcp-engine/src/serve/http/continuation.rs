//! Sessions that any gateway of a fleet goes on with: their ids say what has to be known of them.
//! Owns: sealing such ids and opening them, sessions that were ended here.      Never: keeps a session, knows who may use it.
//! In: a client, an id, bytes that name its owner.  Out: a header's text, or what it says.
//! Tests: below; `metamcp/tests/http/fleet.rs`, with several gateways.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use metamcp_wire::cluster_key::Purpose;
use metamcp_wire::handshake::Peer;
use metamcp_wire::session_ticket::{SessionTicket, TicketError};
use parking_lot::Mutex;

use super::sessions::SessionId;
use super::stream;
use crate::cluster_key::{self, Keyring};
use crate::{clock, serve};

/// Sessions that their clients ended, of which it is remembered that they are over. Beyond it the oldest is forgotten:
/// its client has said that it will not come back.
const MAX_ENDED: usize = 10_000;

/// See the module.
pub struct Continuation {
    pub keyring: Arc<Keyring>,
    lifetime: Duration,
    ended: Mutex<VecDeque<SessionId>>,
}

impl Continuation {
    /// Sessions that begin here can be continued for so long.
    pub fn new(keyring: Arc<Keyring>, lifetime: Duration) -> Arc<Continuation> {
        // Numbers of streams and of server requests come back to any gateway. Each counts in a range of its own, so that
        // none is taken for another's.
        stream::count_from(keyring.gateway());
        serve::session::count_from(keyring.gateway());
        Arc::new(Continuation { keyring, lifetime, ended: Mutex::default() })
    }

    /// The id of a session that begins. `None` if its client says more of itself than fits into one.
    pub fn seal(&self, id: SessionId, peer: &Peer, owner: &[u8]) -> Option<String> {
        let lifetime = u64::try_from(self.lifetime.as_millis()).unwrap_or(u64::MAX);
        let expires = clock::unix_millis().saturating_add(lifetime);
        let ticket = SessionTicket::of(peer, id.bytes(), self.keyring.gateway(), expires);
        let sealer = self.keyring.sealer(Purpose::SessionIds);
        let sealed = ticket.seal(&sealer, cluster_key::random(), owner);
        if sealed.is_none() {
            tracing::debug!(
                "a client declares more than fits into a session id; other gateways cannot go on with its session"
            );
        }
        sealed
    }

    /// What an id says, if a gateway of this fleet made it for this owner.
    pub fn open(&self, text: &str, owner: &[u8]) -> Option<SessionTicket> {
        let sealer = self.keyring.sealer(Purpose::SessionIds);
        match SessionTicket::open(text, &sealer, owner, clock::unix_millis()) {
            Ok(ticket) => Some(ticket),
            Err(TicketError::Form) => None,
            Err(error) => {
                // The client hears only that there is no such session.
                tracing::debug!("refused a session id: {error}");
                None
            }
        }
    }

    /// Whether a session cannot be continued any more.
    pub fn is_over(&self, ticket: &SessionTicket) -> bool {
        let is_it = |id: &SessionId| *id == SessionId::new(ticket.id);
        clock::unix_millis() >= ticket.expires || self.ended.lock().iter().any(is_it)
    }

    /// The client has ended this session.
    pub fn end(&self, id: SessionId) {
        let mut ended = self.ended.lock();
        if ended.len() >= MAX_ENDED {
            ended.pop_front();
        }
        ended.push_back(id);
    }
}

#[cfg(all(test, unix))]
mod tests {
    use metamcp_wire::era::{Era, Revision};

    use super::*;

    const KEY: &str = "u8uBlFpHbYuV6J1m0bD2cQ3nS8X7kZ5yTqWvEo4fGhI=";
    const OTHER: &str = "3a7f0c91d4e852b6af13c0de9972461b58ee0f7da4c3b21966850a4fd1e7c39b";

    fn gateway(key: &str) -> Arc<Continuation> {
        Continuation::new(Keyring::fixed(key), Duration::from_hours(1))
    }

    fn peer() -> Peer {
        Peer {
            era: Era::Initialize(Revision::LATEST),
            name: "someone".into(),
            title: None,
            version: "1".into(),
            description: None,
            capabilities: serde_json::json!({ "roots": {} }),
            instructions: None,
        }
    }

    #[test]
    fn every_gateway_with_the_key_goes_on_with_it_for_its_owner() {
        let (one, two) = (gateway(KEY), gateway(KEY));
        let id = SessionId::new([3; 16]);
        let text = one.seal(id, &peer(), b"ada").unwrap();
        let ticket = two.open(&text, b"ada").unwrap();
        assert_eq!((ticket.id, ticket.gateway), ([3; 16], one.keyring.gateway()));
        assert!(ticket.peer().can("roots") && !two.is_over(&ticket));
        assert!(two.open(&text, b"bob").is_none());
        assert!(gateway(OTHER).open(&text, b"ada").is_none());
        assert!(gateway(&format!("{OTHER}\n{KEY}")).open(&text, b"ada").is_some());
    }

    #[test]
    fn what_was_ended_or_has_expired_is_over() {
        let one = gateway(KEY);
        let id = SessionId::new([3; 16]);
        let text = one.seal(id, &peer(), b"ada").unwrap();
        let ticket = one.open(&text, b"ada").unwrap();
        one.end(id);
        assert!(one.is_over(&ticket));
        for other in 0..MAX_ENDED {
            let mut bytes = [9; 16];
            bytes[..8].copy_from_slice(&(other as u64).to_be_bytes());
            one.end(SessionId::new(bytes));
        }
        assert!(!one.is_over(&ticket), "there is a bound");
        let expired = SessionTicket { expires: clock::unix_millis(), ..ticket };
        assert!(one.is_over(&expired));
    }
}
