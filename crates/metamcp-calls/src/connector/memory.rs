//! What the client told its session, to be told to the next daemon.
//! Owns: the lines of the handshake, the log level and the subscriptions that a daemon accepted.      Never: sends them.
//! In: lines with their outcome.  Out: the same lines, in the order a new session needs.
//! Tests: `connector/tests.rs`.

/// Longest handshake remembered.
const MAX_HANDSHAKE: usize = 256 * 1024;
/// Most subscriptions, and the bytes of their lines in all: beyond that they end with the daemon.
const MAX_SUBSCRIPTIONS: usize = 1024;
const MAX_KEPT: usize = 1024 * 1024;

/// Address and line.
type Subscription = (Box<[u8]>, Box<[u8]>);

#[derive(Debug, Default)]
pub(super) struct Memory {
    handshake: Option<Box<[u8]>>,
    initialized: Option<Box<[u8]>>,
    level: Option<Box<[u8]>>,
    subscriptions: Vec<Subscription>,
    kept: usize,
    /// Whether the client ever began a handshake.
    has_begun: bool,
    /// Whether a handshake succeeded that cannot be repeated.
    is_incomplete: bool,
}

/// What follows a repeated handshake.
pub(super) struct Repeated {
    pub(super) initialized: Option<Box<[u8]>>,
    pub(super) level: Option<Box<[u8]>>,
    pub(super) subscriptions: Vec<Subscription>,
}

impl Memory {
    pub(super) fn is_stateless(&self) -> bool {
        !self.has_begun
    }

    pub(super) fn is_incomplete(&self) -> bool {
        self.is_incomplete
    }

    pub(super) fn handshake(&self) -> Option<Box<[u8]>> {
        self.handshake.clone()
    }

    /// A handshake was sent.
    pub(super) fn begins(&mut self) {
        self.has_begun = true;
        self.initialized = None;
    }

    pub(super) fn shook_hands(&mut self, line: Option<Box<[u8]>>) {
        let line = line.filter(|line| line.len() <= MAX_HANDSHAKE);
        self.is_incomplete = line.is_none();
        self.handshake = line;
    }

    pub(super) fn initialized(&mut self, line: &[u8]) {
        if line.len() <= MAX_HANDSHAKE {
            self.initialized = Some(line.into());
        }
    }

    pub(super) fn level(&mut self, line: Option<Box<[u8]>>) {
        self.level = line;
    }

    pub(super) fn subscribed(&mut self, subject: Box<[u8]>, line: Option<Box<[u8]>>) {
        self.unsubscribed(&subject);
        let Some(line) = line else { return };
        if self.subscriptions.len() < MAX_SUBSCRIPTIONS && self.kept + line.len() <= MAX_KEPT {
            self.kept += line.len();
            self.subscriptions.push((subject, line));
        }
    }

    pub(super) fn unsubscribed(&mut self, subject: &[u8]) {
        if let Some(at) = self.subscriptions.iter().position(|(known, _)| **known == *subject) {
            let (_, line) = self.subscriptions.remove(at);
            self.kept -= line.len();
        }
    }

    pub(super) fn after_handshake(&self) -> Repeated {
        // Without a handshake there was nothing that could follow it.
        let is_greeted = self.handshake.is_some();
        Repeated {
            initialized: self.initialized.clone().filter(|_| is_greeted),
            level: self.level.clone().filter(|_| is_greeted),
            subscriptions: if is_greeted { self.subscriptions.clone() } else { Vec::new() },
        }
    }
}
