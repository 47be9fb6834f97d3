//! What nodes say to each other.
//! Owns: the messages and their words for a refusal.      Never: chooses how they are encoded.
//! In: nothing.  Out: values.
//! Tests: `tests/sim.rs`.
//!
//! A forwarded call is known by its caller (node and incarnation) and the caller's number. `B` is the bytes of a message,
//! which are passed on and not looked into.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::directory::Heartbeat;
use crate::identity::{InstanceId, Stamp};
use crate::placement::Requirements;

/// Why an owner did not run a call. It certainly did not, and will not run another copy of it either.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Refusal {
    /// It does not own the instance under that epoch.
    NotMine,
    /// The instance is about to move, or the node to stop: it will be somewhere else soon.
    Moving,
    /// As many calls as it takes are there already.
    Full,
    /// The caller took it back before it came.
    Cancelled,
}

/// Why a node does not want to own an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Declined {
    Draining,
    Full,
    /// It lacks a label that the instance requires.
    Labels,
    /// Its configuration does not have the server.
    Unknown,
    /// It has no bus, or the bucket is too new for claims.
    NotReady,
    /// Somebody owns it: whoever asks has not seen that yet.
    Owned,
}

/// Something that comes of a call, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part<B> {
    /// Progress or a log line: may be dropped where too many wait.
    Notification(B),
    /// A request of the server to the client.
    Request(B),
    /// A piece of the result that is not the last.
    Chunk(B),
    /// The end of the result.
    Last(B),
}

impl<B> Part<B> {
    pub fn is_last(&self) -> bool {
        matches!(self, Part::Last(_))
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Message<B> {
    Heartbeat(Heartbeat),
    /// Own this instance, somebody needs it.
    Own {
        instance: InstanceId,
        #[serde(with = "crate::identity::shared")]
        requirements: Arc<Requirements>,
    },
    Declined {
        instance: InstanceId,
        why: Declined,
    },
    /// To the owner of an instance under an epoch.
    Call {
        number: u64,
        instance: InstanceId,
        epoch: Stamp,
        body: B,
    },
    Accepted {
        number: u64,
    },
    Refused {
        number: u64,
        why: Refusal,
    },
    /// The owner knows nothing of that call any more; it may have run.
    Forgotten {
        number: u64,
    },
    /// To the caller.
    Output {
        number: u64,
        sequence: u64,
        part: Part<B>,
    },
    OutputSeen {
        number: u64,
        next: u64,
    },
    /// To the owner: the client's answers to the server's requests.
    Input {
        number: u64,
        sequence: u64,
        body: B,
    },
    InputSeen {
        number: u64,
        next: u64,
    },
    /// Does the owner still have that call?
    Poll {
        number: u64,
    },
    Cancel {
        number: u64,
    },
}
