//! The form of a result on its way to its caller.

use super::{CallOutcome, LongCall, TakenOver};

/// Results up to this size are read as a whole in well under 100 us.
const SHORT_RESULT: usize = 8 * 1024;

/// Follows a call to its end: maps its outcome on its way to the caller, which makes another form of the same response and
/// never another response; and says what happens to the call if it takes long.
pub struct ResultMapper {
    pub(super) follow: Box<dyn Follow>,
    /// Results up to this size take it well under 100 us; longer ones are mapped off the thread that relays calls.
    pub(super) cheap_up_to: usize,
}

/// See [`ResultMapper`].
pub trait Follow: Send {
    fn map(self: Box<Self>, outcome: CallOutcome) -> CallOutcome;
    /// Whether the call is to be taken over by another caller after it was under way for so long.
    fn outlives(&mut self, _call: &LongCall<'_>) -> Option<TakenOver> {
        None
    }
}

struct ByFunction<F>(F);

impl<F: FnOnce(CallOutcome) -> CallOutcome + Send> Follow for ByFunction<F> {
    fn map(self: Box<Self>, outcome: CallOutcome) -> CallOutcome {
        (self.0)(outcome)
    }
}

impl ResultMapper {
    /// By a function that reads the whole result and must not block.
    pub fn new(map: impl FnOnce(CallOutcome) -> CallOutcome + Send + 'static) -> ResultMapper {
        ResultMapper::following(ByFunction(map))
    }

    pub fn following(follow: impl Follow + 'static) -> ResultMapper {
        ResultMapper { follow: Box::new(follow), cheap_up_to: SHORT_RESULT }
    }

    /// The same for one that only looks at the length of results up to this size.
    #[must_use]
    pub fn cheap_up_to(self, bytes: usize) -> ResultMapper {
        ResultMapper { cheap_up_to: bytes.max(SHORT_RESULT), ..self }
    }
}

impl std::fmt::Debug for ResultMapper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ResultMapper")
    }
}
