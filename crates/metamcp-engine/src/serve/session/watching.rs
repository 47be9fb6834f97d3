//! Change notifications in direct mode: of lists, and of resources that the client subscribed to.

use std::sync::Weak;

use bytes::Bytes;
use metamcp_calls::notify::List;
use metamcp_calls::pool::ServerId;
use metamcp_wire::modern::listen;
use metamcp_wire::{object, write};

use super::Session;
use crate::change_notifier::ChangeListener;

/// Resources one client may subscribe to.
const MAX_WATCHED: usize = 1000;

impl Session {
    /// Registers the client for change notifications; only direct mode has them.
    pub fn watch_changes(&self) {
        let first = !std::mem::replace(&mut self.lock().is_notified, true);
        if first && self.view.is_direct() {
            let me: Weak<dyn ChangeListener> = self.me.clone();
            self.view.context().change_notifier.watch(me);
        }
    }

    /// Subscribes the client to a resource. A single server answers for itself.
    pub(super) fn subscribe(&self, id: Bytes, params: Option<&[u8]>) {
        let Some(uri) = uri(params) else {
            return self.refuse(&id, -32602, "resources/subscribe needs `uri`, a string");
        };
        let router = &self.view.surface.router;
        // Without a server the response says so.
        if !self.view.offers_any() {
            let step = self.view.pass_on("resources/subscribe", params, &self.caller(&id));
            return self.advance(id, step);
        }
        let at_server = self.view.subscribes_at_server();
        let mut state = self.lock();
        if state.watched.contains_key(&uri) {
            drop(state);
        } else {
            if state.watched.len() >= MAX_WATCHED {
                drop(state);
                return self.refuse(&id, -32000, "too many resources are subscribed to");
            }
            let owners = self.view.owners_of(&uri);
            state.watched.insert(uri.clone(), owners.clone());
            drop(state);
            for owner in owners {
                router.watch(owner, &uri, !at_server);
            }
        }
        if at_server {
            let step = self.view.pass_on("resources/subscribe", params, &self.caller(&id));
            return self.advance(id, step);
        }
        self.result(&id, b"{}");
    }

    pub(super) fn unsubscribe(&self, id: &Bytes, params: Option<&[u8]>) {
        let Some(uri) = uri(params) else {
            return self.refuse(id, -32602, "resources/unsubscribe needs `uri`, a string");
        };
        let owners = self.lock().watched.remove(&uri);
        for owner in owners.into_iter().flatten() {
            self.view.surface.router.unwatch(owner, &uri);
        }
        self.result(id, b"{}");
    }

    pub(super) fn unwatch_all(&self) {
        let watched = std::mem::take(&mut self.lock().watched);
        for (uri, owners) in watched {
            for owner in owners {
                self.view.surface.router.unwatch(owner, &uri);
            }
        }
    }
}

impl ChangeListener for Session {
    fn changed(&self, list: List) {
        if self.peer().is_some() && self.response_streams.has_room(None) {
            self.response_streams.tell(None, |out| write::notification(out, list.method(), None));
        }
        self.stateless.notify(&self.response_streams, list.method(), None, None);
    }

    fn updated(&self, server: ServerId, uri: &str, params: &[u8]) {
        const METHOD: &str = "notifications/resources/updated";
        // The id of our own subscription at the server means nothing to the client.
        let params = listen::untagged(params);
        let params = self.view.surface.clean(&params);
        // Another session's instance may have a resource of the same name.
        if !self.view.seat.uses(server) {
            return;
        }
        if self.lock().watched.contains_key(uri) {
            self.notify(None, METHOD, &params);
        }
        self.stateless.notify(&self.response_streams, METHOD, Some(uri), Some(&params));
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.unwatch_all();
        self.view.session_ended();
    }
}

fn uri(params: Option<&[u8]>) -> Option<String> {
    let [uri] = object::pick(params?, ["uri"]).ok()?;
    object::text(uri?).map(std::borrow::Cow::into_owned)
}
