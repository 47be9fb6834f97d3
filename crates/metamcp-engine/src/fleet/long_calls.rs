//! Calls that are longer than one message of the bus: their bytes are put down there, and the message says where.
//! Owns: which were put down.      Never: holds up other messages.
//! In: bodies of calls.  Out: the same in a form that fits, and back.
//! Tests: `metamcp/tests/fleet/nodes.rs`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use metamcp_fleet::identity::NodeRef;
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use super::Fleet;
use super::bus::{BusError, Objects};
use super::words::Body;

/// In front of a body that is here, and of the name of one that is not.
const HERE: u8 = 0;
const ELSEWHERE: u8 = 1;
/// What a message says besides the body.
const AROUND: usize = 512;
/// The longest call that is fetched: no gateway takes a longer line by default.
const LONGEST: usize = 128 << 20;
/// How long it lies there: longer than a call is sent again.
const KEPT: Duration = Duration::from_mins(5);
/// Names that are remembered, so that a call that is sent again is not put down again.
const MOST: usize = 1024;

#[derive(Default)]
pub(super) struct LongCalls {
    objects: OnceCell<Objects>,
    put: Mutex<BTreeSet<u64>>,
}

/// Whether a body fits into a message.
pub(super) fn fits(fleet: &Fleet, body: &Body) -> bool {
    body.0.len() + AROUND <= fleet.bus.max_payload()
}

/// One that fits.
pub(super) fn here(body: &Body) -> Body {
    let mut all = Vec::with_capacity(body.0.len() + 1);
    all.push(HERE);
    all.extend_from_slice(&body.0);
    Body(all.into())
}

/// One that does not, put down.
pub(super) async fn elsewhere(
    fleet: &Arc<Fleet>,
    me: &NodeRef,
    number: u64,
    body: &Body,
) -> Result<Body, BusError> {
    let name = format!("{}.{}.{number}", me.name.as_str(), me.incarnation.revision);
    if !fleet.long_calls.put.lock().contains(&number) {
        objects(fleet).await?.put(&name, &body.0).await?;
        let mut put = fleet.long_calls.put.lock();
        put.insert(number);
        while put.len() > MOST {
            put.pop_first();
        }
    }
    Ok(Body([&[ELSEWHERE], name.as_bytes()].concat().into()))
}

/// The name of a body that has to be fetched, or the body.
pub(super) fn opened(body: &Body) -> Option<Result<Body, String>> {
    match body.0.split_first()? {
        (&HERE, _) => Some(Ok(Body(body.0.slice(1..)))),
        (&ELSEWHERE, name) => Some(Err(std::str::from_utf8(name).ok()?.to_owned())),
        _ => None,
    }
}

pub(super) async fn fetched(fleet: &Arc<Fleet>, name: &str) -> Option<Body> {
    let fetched = async { objects(fleet).await?.get(name, LONGEST).await };
    match fetched.await {
        Ok(bytes) => bytes.map(|bytes: Bytes| Body(bytes)),
        Err(error) => {
            tracing::warn!("a long call of another gateway cannot be fetched: {error}");
            None
        }
    }
}

async fn objects(fleet: &Fleet) -> Result<&Objects, BusError> {
    fleet.long_calls.objects.get_or_try_init(|| fleet.bus.objects("calls", KEPT)).await
}
