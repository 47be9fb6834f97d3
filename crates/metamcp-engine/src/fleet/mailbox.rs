//! What the task of the fleet has to hear, in order.
//! Owns: the queue and its bound.      Never: drops a result, a lease's answer or a verdict.
//! In: inputs, from any thread and without waiting.  Out: the same, in batches.
//! Tests: through everything in `metamcp/tests/fleet`.

use std::collections::VecDeque;
use std::time::Duration;

use metamcp_fleet::drain::Target;
use metamcp_fleet::identity::{InstanceId, NodeRef, Stamp};
use metamcp_fleet::lease::{Answer, Entry};
use metamcp_fleet::message::{Message, Part};
use metamcp_fleet::node::{CallId, Request, Run};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use super::FleetStatus;
use super::words::Body;

/// Inputs that wait, above which calls are refused and notifications dropped. What ends a call is always taken: of these
/// there are no more than calls.
const MOST: usize = 16 * 1024;

#[derive(Debug)]
pub(super) enum Input {
    Call {
        id: CallId,
        request: Request<Body>,
    },
    Cancel(CallId),
    Answer {
        call: CallId,
        rerun: u32,
        body: Body,
    },
    Output {
        run: Run,
        part: Part<Body>,
    },
    Ended {
        instance: InstanceId,
        epoch: Stamp,
    },
    /// The bus answered a write.
    Written {
        instance: InstanceId,
        attempt: u64,
        answer: Answer,
    },
    /// A key, from the watch or a look.
    Key {
        instance: InstanceId,
        revision: Stamp,
        entry: Option<Entry>,
    },
    /// A look found nothing.
    Absent {
        instance: InstanceId,
        attempt: u64,
    },
    Bucket {
        bucket: u64,
        is_ready: bool,
    },
    Heard {
        from: NodeRef,
        message: Message<Body>,
    },
    NotDelivered(u64),
    Link {
        is_up: bool,
    },
    Drain {
        within: Duration,
    },
    Leave {
        instance: InstanceId,
        to: Option<Target>,
        within: Duration,
    },
    Status(oneshot::Sender<FleetStatus>),
    /// Nothing more is heard; what is to be sent is sent.
    Stop(oneshot::Sender<()>),
}

#[derive(Default)]
pub(super) struct Mailbox {
    inputs: Mutex<VecDeque<Input>>,
    arrived: Notify,
    taken: Notify,
}

impl Mailbox {
    pub(super) fn push(&self, input: Input) {
        self.inputs.lock().push_back(input);
        self.arrived.notify_one();
    }

    /// False, and it is dropped, if too many wait.
    pub(super) fn offer(&self, input: Input) -> bool {
        let mut inputs = self.inputs.lock();
        if inputs.len() >= MOST {
            return false;
        }
        inputs.push_back(input);
        drop(inputs);
        self.arrived.notify_one();
        true
    }

    /// Waits while too many wait: for what comes from the bus, which then keeps the rest.
    pub(super) async fn push_slowly(&self, input: Input) {
        loop {
            let taken = self.taken.notified();
            if self.inputs.lock().len() < MOST {
                return self.push(input);
            }
            taken.await;
        }
    }

    pub(super) async fn arrived(&self) {
        if self.inputs.lock().is_empty() {
            self.arrived.notified().await;
        }
    }

    pub(super) fn take(&self) -> VecDeque<Input> {
        let taken = std::mem::take(&mut *self.inputs.lock());
        self.taken.notify_waiters();
        taken
    }
}
