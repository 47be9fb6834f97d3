//! What a caller must be told for each misbehaviour, however many calls are under way.
//! Owns: the table of expectations and their reasons.  Never: runs anything.
//! In: an item, an outcome.  Out: whether that outcome is right, and why if it is not.
//! Tests: below; the gateway is held to it in its own matrix.

use std::ops::RangeInclusive;

use crate::outcome::Outcome;

/// How many calls the second column of the matrix makes at once.
pub const MANY: usize = 64;

/// The verdict on one misbehaviour. Whatever happens here, calls to other servers must be fine.
#[derive(Debug)]
pub struct Verdict {
    /// The misbehaviour's number.
    pub item: u8,
    /// The amount to use, where the misbehaviour's own default does not suit.
    pub amount: Option<u64>,
    /// The amount of the ordinary run, where the full one would take too long on two cores. It still crosses every
    /// limit the full one crosses.
    pub scaled: Option<u64>,
    /// The `timeoutMs` to give the server: short where the call must time out, long where it must not.
    pub timeout_ms: u64,
    /// For one call of `effect`, which nobody may run twice.
    pub one: Expected,
    /// For each of many concurrent calls of `effect`; none may have run more than once.
    pub many: Expected,
    /// For one call of `effect_idempotent`, which may be replayed on a fresh process.
    pub idempotent: Expected,
    /// How often the single call of `effect` has run.
    pub executions: RangeInclusive<usize>,
    /// How often the single call of `effect_idempotent` may have run.
    pub idempotent_executions: RangeInclusive<usize>,
    /// Whether a fine answer is sure to be the call's own; false where the child lies about its own calls.
    pub own_text: bool,
    /// Why this is the right verdict.
    pub why: &'static str,
}

impl Verdict {
    /// What to put after `--do`: in full, or scaled for the ordinary run.
    pub fn told(&self, full: bool) -> String {
        match self.scaled.filter(|_| !full).or(self.amount) {
            Some(amount) => format!("{}={amount}", self.item),
            None => self.item.to_string(),
        }
    }
}

/// The outcomes that are right.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    /// Whether the tool's own result is.
    pub fine: bool,
    /// Which of the gateway's codes are.
    pub codes: &'static [&'static str],
    /// Words of which the gateway's message must hold at least one; none means any message.
    pub says: &'static [&'static str],
}

impl Expected {
    /// Says what is wrong with an outcome.
    pub fn judge(&self, outcome: &Outcome) -> Result<(), String> {
        let right = match outcome {
            Outcome::Fine => self.fine,
            Outcome::Refused(error) => {
                let message = error.message.to_lowercase();
                self.codes.contains(&error.code.as_str())
                    && (self.says.is_empty() || self.says.iter().any(|word| message.contains(word)))
            }
            Outcome::ToolError | Outcome::Protocol { .. } => false,
        };
        if right { Ok(()) } else { Err(format!("got {outcome}; expected {self:?}")) }
    }

    const fn or_fine(self) -> Self {
        Self { fine: true, ..self }
    }

    const fn saying(self, says: &'static [&'static str]) -> Self {
        Self { says, ..self }
    }
}

/// Long enough that nothing times out which need not, on a busy machine.
pub const PATIENT: u64 = 30_000;

/// Short enough to wait for, long enough that the handshake and the call itself get through.
const HASTY: u64 = 2_000;

const FINE: Expected = Expected { fine: true, codes: &[], says: &[] };

/// The child never became usable, so nothing was sent.
const UNAVAILABLE: Expected = only(&["server_unavailable"]);

/// The child died or went deaf after the call was sent.
const UNKNOWN: Expected = only(&["outcome_unknown"]);

/// Nobody answered in time.
const TIMEOUT: Expected = only(&["timeout"]);

/// An answer came but it is not one; the tool has most likely run.
const BAD_ANSWER: Expected =
    only(&["execution_failed", "outcome_unknown", "limit_exceeded", "timeout"]);

/// An answer came whose id could be read, and which must not be passed on.
const REFUSED_ANSWER: Expected = only(&["execution_failed"]).saying(&["not a valid message"]);

/// With many calls the breaker opens and the restart limiter closes while some still wait.
const UNAVAILABLE_MANY: Expected = only(&["server_unavailable", "circuit_open"]);
const UNKNOWN_MANY: Expected = only(&["outcome_unknown", "circuit_open", "server_unavailable"]);
const TIMEOUT_MANY: Expected = only(&["timeout", "circuit_open"]);
const BAD_ANSWER_MANY: Expected = only(&[
    "execution_failed",
    "outcome_unknown",
    "limit_exceeded",
    "timeout",
    "circuit_open",
    "server_unavailable",
]);

/// Every item at least once, in order.
pub const VERDICTS: &[Verdict] = &[
    unavailable(1, "nothing was sent, and the stderr tail says why"),
    Verdict {
        one: UNKNOWN_MANY.or_fine(),
        many: UNKNOWN_MANY.or_fine(),
        idempotent: UNKNOWN_MANY.or_fine(),
        executions: 0..=1,
        idempotent_executions: 0..=2,
        ..fine(2, "the death may fall before, into or after the call")
    },
    unavailable(3, "the handshake failed, so nothing was sent"),
    unavailable(4, "the wait ends, and the call was never sent"),
    fine(5, "a slow handshake is not a failure"),
    Verdict {
        one: UNAVAILABLE.saying(&["revision"]),
        idempotent: UNAVAILABLE.saying(&["revision"]),
        ..unavailable(6, "a revision nobody knows is refused by name, before anything is sent")
    },
    fine(7, "the second answer to a request is dropped"),
    fine(8, "null capabilities are no reason to refuse tools that are there"),
    fine(9, "lines that are not messages are kept as diagnostics"),
    fine(10, "lines that are not messages are dropped, even those that are JSON"),
    fine(11, "a line is whole when its newline has come"),
    fine(12, "reads may end anywhere"),
    fine(13, "blank lines, carriage returns and byte order marks mean nothing"),
    refused_answer(14, "what is not UTF-8 is not JSON and must not reach a client"),
    bad_answer(15, "what holds NUL bytes is not JSON and must not reach a client"),
    Verdict {
        // More than the gateway reads of one line before it gives the child up.
        scaled: Some(1_000_000_000),
        timeout_ms: HASTY,
        one: BAD_ANSWER.or_fine(),
        many: BAD_ANSWER_MANY.or_fine(),
        idempotent: BAD_ANSWER_MANY.or_fine(),
        ..bad_answer(
            16,
            "memory stays bounded; whether the child is killed or its noise outlasted is open",
        )
    },
    Verdict {
        // Over the line limit as well.
        scaled: Some(40_000_000),
        timeout_ms: PATIENT,
        one: only(&["limit_exceeded"]).saying(&["line", "limit", "mib", "bytes"]),
        many: BAD_ANSWER_MANY.or_fine(),
        idempotent: only(&["limit_exceeded"]).saying(&["line", "limit", "mib", "bytes"]),
        idempotent_executions: 1..=1,
        ..bad_answer(17, "the id can be read, so the caller learns which limit the answer broke")
    },
    refused_answer(18, "deeper than any parser downstream is safe with"),
    refused_answer(19, "two meanings in one message: neither is passed on"),
    fine(20, "answers to nothing are counted and dropped"),
    fine(21, "the first answer counts"),
    Verdict {
        own_text: false,
        ..fine(
            22,
            "a child can lie about its own calls, but each still has one answer and others' are untouched",
        )
    },
    Verdict {
        timeout_ms: HASTY,
        one: TIMEOUT,
        many: TIMEOUT_MANY,
        idempotent: TIMEOUT,
        ..fine(23, "an id of another type is another id")
    },
    fine(24, "an answer without an id answers nothing"),
    refused_answer(25, "an answer is a result or an error; both is neither"),
    Verdict { scaled: Some(20_000), ..fine(26, "refreshes are coalesced") },
    Verdict { scaled: Some(50_000), ..fine(27, "progress is thinned out, the answer comes") },
    Verdict {
        scaled: Some(2_000),
        ..fine(28, "questions beyond a few are refused, the answer comes")
    },
    Verdict { scaled: Some(20_000), ..fine(29, "pings cost the pinger most") },
    fine(30, "ids of the two directions have nothing to do with each other"),
    fine(31, "cancelling what is not under way does nothing"),
    Verdict {
        scaled: Some(20_000),
        ..fine(32, "the first tools of the list are kept, and its own are among them")
    },
    fine(33, "a cursor that comes again ends the listing"),
    Verdict {
        // Over the line limit as well.
        scaled: Some(20_000_000),
        one: only(&["limit_exceeded", "server_unavailable"]).or_fine(),
        many: only(&["limit_exceeded", "server_unavailable", "circuit_open"]).or_fine(),
        idempotent: only(&["limit_exceeded", "server_unavailable"]).or_fine(),
        executions: 0..=1,
        idempotent_executions: 0..=1,
        ..fine(
            34,
            "a list beyond the line limit is an error that names the limit, not a missing tool",
        )
    },
    Verdict {
        amount: Some(0),
        ..fine(34, "references are not followed, recursion is not unrolled")
    },
    fine(35, "a declared server may change its mind; it is noted, not blocked"),
    fine(36, "names are data; the honest tool keeps its own"),
    Verdict { executions: 1..=1, ..lost(37, "it may have run: it did, once") },
    times_out(38, "never replayed, not even an idempotent one: it may still be running"),
    Verdict {
        many: UNKNOWN_MANY.or_fine(),
        ..fine(39, "an answer that came counts, whatever came after")
    },
    times_out(40, "the late answer is dropped"),
    Verdict {
        many: UNKNOWN_MANY.or_fine(),
        ..fine(41, "the first call is answered; those after it are lost")
    },
    lost(42, "a child without stdout can answer nothing"),
    Verdict {
        timeout_ms: HASTY,
        many: only(&["timeout", "outcome_unknown", "circuit_open", "server_unavailable"]).or_fine(),
        ..fine(
            43,
            "answered before anything went wrong; the next call finds the pipe broken and goes to a new process",
        )
    },
    Verdict {
        one: only(&["timeout", "outcome_unknown"]),
        many: only(&["timeout", "outcome_unknown", "circuit_open", "server_unavailable"]),
        ..times_out(44, "the pipe took the call, the child never will")
    },
    Verdict { scaled: Some(64_000_000), ..fine(45, "stderr is always drained") },
    fine(46, "deafness shows at shutdown only"),
    fine(47, "deafness shows at shutdown only"),
    times_out(48, "a stopped child answers nothing"),
    fine(49, "the grandchild shows at shutdown only"),
    lost(50, "the death of the process counts, not the end of its pipe"),
    fine(51, "the processes show at shutdown only"),
    Verdict {
        scaled: Some(128_000_000),
        one: UNKNOWN.or_fine(),
        many: UNKNOWN_MANY.or_fine(),
        idempotent: UNKNOWN.or_fine(),
        idempotent_executions: 1..=2,
        ..fine(52, "fine unless a memory limit kills the child")
    },
    Verdict { scaled: Some(8_000_000), ..fine(53, "its own directory is its own affair") },
    Verdict {
        one: UNKNOWN.or_fine(),
        many: UNKNOWN_MANY.or_fine(),
        idempotent: UNKNOWN_MANY.or_fine(),
        idempotent_executions: 1..=2,
        ..fine(
            54,
            "fine where the parent is out of reach, lost where it is not; others are unaffected either way",
        )
    },
    fine(55, "zombies are reaped when the child is gone"),
    Verdict { amount: Some(3_000), ..fine(56, "an installer that shows life is left alone") },
    lost(57, "code 0 is no answer"),
    lost(58, "a crash is a death, and leaves no core file"),
    fine(59, "its directory and mask are its own"),
    fine(60, "it finds only what it was given"),
];

const fn only(codes: &'static [&'static str]) -> Expected {
    Expected { fine: false, codes, says: &[] }
}

const fn fine(item: u8, why: &'static str) -> Verdict {
    Verdict {
        item,
        amount: None,
        scaled: None,
        timeout_ms: PATIENT,
        one: FINE,
        many: FINE,
        idempotent: FINE,
        executions: 1..=1,
        idempotent_executions: 1..=1,
        own_text: true,
        why,
    }
}

const fn unavailable(item: u8, why: &'static str) -> Verdict {
    Verdict {
        one: UNAVAILABLE,
        many: UNAVAILABLE_MANY,
        idempotent: UNAVAILABLE,
        executions: 0..=0,
        idempotent_executions: 0..=0,
        ..fine(item, why)
    }
}

const fn lost(item: u8, why: &'static str) -> Verdict {
    Verdict {
        one: UNKNOWN,
        many: UNKNOWN_MANY,
        // Every fresh process is as bad as the first, so the one replay is lost as well.
        idempotent: UNKNOWN,
        idempotent_executions: 2..=2,
        ..fine(item, why)
    }
}

const fn times_out(item: u8, why: &'static str) -> Verdict {
    Verdict {
        timeout_ms: HASTY,
        one: TIMEOUT,
        many: TIMEOUT_MANY,
        idempotent: TIMEOUT,
        ..fine(item, why)
    }
}

const fn refused_answer(item: u8, why: &'static str) -> Verdict {
    Verdict {
        one: REFUSED_ANSWER,
        many: REFUSED_ANSWER,
        idempotent: REFUSED_ANSWER,
        ..fine(item, why)
    }
}

const fn bad_answer(item: u8, why: &'static str) -> Verdict {
    Verdict {
        timeout_ms: HASTY,
        one: BAD_ANSWER,
        many: BAD_ANSWER_MANY,
        idempotent: BAD_ANSWER,
        idempotent_executions: 1..=2,
        ..fine(item, why)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::chaos::{MISBEHAVIOURS, Told};

    #[test]
    fn every_misbehaviour_has_a_verdict() {
        for misbehaviour in MISBEHAVIOURS {
            assert!(
                VERDICTS.iter().any(|verdict| verdict.item == misbehaviour.number),
                "{}",
                misbehaviour.number
            );
        }
        assert!(VERDICTS.is_sorted_by_key(|verdict| verdict.item));
    }

    #[test]
    fn what_a_verdict_tells_the_child_the_child_understands() {
        for verdict in VERDICTS {
            for full in [false, true] {
                let told = Told::parse(&verdict.told(full)).unwrap();
                assert_eq!(told.item.number, verdict.item);
            }
        }
    }

    #[test]
    fn nothing_that_is_not_idempotent_runs_twice() {
        for verdict in VERDICTS {
            assert!(*verdict.executions.end() <= 1, "item {}", verdict.item);
            assert!(*verdict.idempotent_executions.end() <= 2, "item {}", verdict.item);
            let times_out_only =
                verdict.idempotent.codes == ["timeout"] && !verdict.idempotent.fine;
            assert!(
                !times_out_only || *verdict.idempotent_executions.end() <= 1,
                "item {}",
                verdict.item
            );
        }
    }

    #[test]
    fn a_judgement_names_what_came_and_what_should_have() {
        let outcome = |code: &str, message: &str| {
            Outcome::of(&json!({"result": {"isError": true, "structuredContent":
                {"code": code, "message": message, "retryable": false}}}))
        };
        let expected = only(&["limit_exceeded"]).saying(&["mib"]);
        assert_eq!(expected.judge(&outcome("limit_exceeded", "a line over 16 MiB")), Ok(()));
        assert!(expected.judge(&outcome("limit_exceeded", "too much")).is_err());
        assert!(
            expected
                .judge(&outcome("timeout", "16 MiB"))
                .unwrap_err()
                .contains("got timeout: 16 MiB")
        );
        assert!(expected.judge(&Outcome::Fine).is_err());
        assert_eq!(FINE.judge(&Outcome::Fine), Ok(()));
    }
}
