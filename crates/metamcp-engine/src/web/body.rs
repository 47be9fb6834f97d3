//! A request body that records whether it was read: what the transport never took, the server cannot have received.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

#[derive(Debug, Default)]
pub struct Outgoing {
    bytes: Option<Bytes>,
    taken: Arc<AtomicBool>,
}

/// Reports whether a body was taken, after it is gone.
#[derive(Debug, Clone)]
pub(super) struct Watch {
    taken: Arc<AtomicBool>,
    empty: bool,
}

impl Outgoing {
    pub fn of(bytes: Bytes) -> Outgoing {
        Outgoing { bytes: Some(bytes).filter(|bytes| !bytes.is_empty()), taken: Arc::default() }
    }

    pub(super) fn watch(&self) -> Watch {
        Watch { taken: Arc::clone(&self.taken), empty: self.bytes.is_none() }
    }
}

impl Watch {
    /// Whether the server may have it. For a request without a body this is unknown, so true.
    pub(super) fn may_be_sent(&self) -> bool {
        self.empty || self.taken.load(Ordering::Relaxed)
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let bytes = self.bytes.take();
        if bytes.is_some() {
            self.taken.store(true, Ordering::Relaxed);
        }
        Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}
