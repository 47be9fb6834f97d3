//! What a caller must be told for each misbehaviour, however many calls are under way.
//! Owns: the table of expectations and their reasons.  Never: runs anything.
//! In: an item, an outcome.  Out: whether that outcome is right, and why if it is not.
//! Tests: below; the gateway is held to it in its own matrix.

use std::ops::RangeInclusive;

use crate::call_outcome::CallOutcome;

/// How many calls the second column of the matrix makes at once.
pub const MANY: usize = 64;

/// The verdict on one misbehaviour. Whatever happens here, calls to other servers must be fine.
#[derive(Debug)]
pub struct Expectation {
    /// The hazard's name.
    pub hazard: &'static str,
    /// The amount to use, where the misbehaviour's own default does not suit.
    pub amount: Option<u64>,
    /// The amount of the ordinary run, where the full one would take too long on two cores. It still crosses every
    /// limit the full one crosses.
    pub scaled: Option<u64>,
    /// The `timeoutMs` to give the server: short where the call must time out, long where it must not.
    pub timeout_ms: u64,
    /// For one call of `effect`, which nobody may run twice.
    pub one: ExpectedOutcome,
    /// For each of many concurrent calls of `effect`; none may have run more than once.
    pub many: ExpectedOutcome,
    /// For one call of `effect_idempotent`, which may be replayed on a fresh process.
    pub idempotent: ExpectedOutcome,
    /// How often the single call of `effect` has run.
    pub executions: RangeInclusive<usize>,
    /// How often the single call of `effect_idempotent` may have run.
    pub idempotent_executions: RangeInclusive<usize>,
    /// Whether a fine answer is sure to be the call's own; false where the child lies about its own calls.
    pub own_text: bool,
    /// Why this is the right verdict.
    pub why: &'static str,
}

impl Expectation {
    /// What to put after `--do`: in full, or scaled for the ordinary run.
    pub fn selection(&self, full: bool) -> String {
        match self.scaled.filter(|_| !full).or(self.amount) {
            Some(amount) => format!("{}={amount}", self.hazard),
            None => self.hazard.to_owned(),
        }
    }
}

/// The outcomes that are right.
#[derive(Clone, Copy, Debug)]
pub struct ExpectedOutcome {
    /// Whether the tool's own result is.
    pub success: bool,
    /// Which of the gateway's codes are.
    pub codes: &'static [&'static str],
    /// Words of which the gateway's message must hold at least one; none means any message.
    pub says: &'static [&'static str],
}

impl ExpectedOutcome {
    /// Says what is wrong with an outcome.
    pub fn check(&self, outcome: &CallOutcome) -> Result<(), String> {
        let right = match outcome {
            CallOutcome::Success => self.success,
            CallOutcome::GatewayError(error) => {
                let message = error.message.to_lowercase();
                self.codes.contains(&error.code.as_str())
                    && (self.says.is_empty() || self.says.iter().any(|word| message.contains(word)))
            }
            CallOutcome::ToolError | CallOutcome::Protocol { .. } => false,
        };
        if right { Ok(()) } else { Err(format!("got {outcome}; expected {self:?}")) }
    }

    const fn or_success(self) -> Self {
        Self { success: true, ..self }
    }

    const fn saying(self, says: &'static [&'static str]) -> Self {
        Self { says, ..self }
    }
}

/// Long enough that nothing times out which need not, on a busy machine.
pub const LONG_TIMEOUT_MS: u64 = 30_000;

/// Short enough to wait for, long enough that the handshake and the call itself get through.
const SHORT_TIMEOUT_MS: u64 = 2_000;

const SUCCESS: ExpectedOutcome = ExpectedOutcome { success: true, codes: &[], says: &[] };

/// The child never became usable, so nothing was sent.
const UNAVAILABLE: ExpectedOutcome = only(&["server_unavailable"]);

/// The child died or went deaf after the call was sent.
const UNKNOWN: ExpectedOutcome = only(&["outcome_unknown"]);

/// Nobody answered in time.
const TIMEOUT: ExpectedOutcome = only(&["timeout"]);

/// An answer came but it is not one; the tool has most likely run.
const BAD_ANSWER: ExpectedOutcome =
    only(&["execution_failed", "outcome_unknown", "limit_exceeded", "timeout"]);

/// An answer came whose id could be read, and which must not be passed on.
const REFUSED_ANSWER: ExpectedOutcome =
    only(&["execution_failed"]).saying(&["not a valid message"]);

/// With many calls the breaker opens and the restart limiter closes while some still wait.
const UNAVAILABLE_MANY: ExpectedOutcome = only(&["server_unavailable", "circuit_open"]);
const UNKNOWN_MANY: ExpectedOutcome =
    only(&["outcome_unknown", "circuit_open", "server_unavailable"]);
const TIMEOUT_MANY: ExpectedOutcome = only(&["timeout", "circuit_open"]);
const BAD_ANSWER_MANY: ExpectedOutcome = only(&[
    "execution_failed",
    "outcome_unknown",
    "limit_exceeded",
    "timeout",
    "circuit_open",
    "server_unavailable",
]);

/// Every item at least once, in order.
pub const EXPECTATIONS: &[Expectation] = &[
    unavailable("exit-at-start", "nothing was sent, and the stderr tail says why"),
    Expectation {
        one: UNKNOWN_MANY.or_success(),
        many: UNKNOWN_MANY.or_success(),
        idempotent: UNKNOWN_MANY.or_success(),
        executions: 0..=1,
        idempotent_executions: 0..=2,
        ..succeeds("exit-later", "the death may fall before, into or after the call")
    },
    unavailable("exit-on-initialize", "the handshake failed, so nothing was sent"),
    unavailable("never-initialize", "the wait ends, and the call was never sent"),
    succeeds("answer-initialize-late", "a slow handshake is not a failure"),
    Expectation {
        one: UNAVAILABLE.saying(&["revision"]),
        idempotent: UNAVAILABLE.saying(&["revision"]),
        ..unavailable(
            "wrong-protocol-version",
            "a revision nobody knows is refused by name, before anything is sent",
        )
    },
    succeeds("initialize-twice", "the second answer to a request is dropped"),
    succeeds("capabilities-null", "null capabilities are no reason to refuse tools that are there"),
    succeeds("banner", "lines that are not messages are kept as diagnostics"),
    succeeds("log-lines", "lines that are not messages are dropped, even those that are JSON"),
    succeeds("partial-line", "a line is whole when its newline has come"),
    succeeds("one-byte-writes", "reads may end anywhere"),
    succeeds("odd-line-ends", "blank lines, carriage returns and byte order marks mean nothing"),
    refused_answer("invalid-utf8", "what is not UTF-8 is not JSON and must not reach a client"),
    bad_answer("nul-bytes", "what holds NUL bytes is not JSON and must not reach a client"),
    Expectation {
        // More than the gateway reads of one line before it gives the child up.
        scaled: Some(1_000_000_000),
        timeout_ms: SHORT_TIMEOUT_MS,
        one: BAD_ANSWER.or_success(),
        many: BAD_ANSWER_MANY.or_success(),
        idempotent: BAD_ANSWER_MANY.or_success(),
        ..bad_answer(
            "endless-line",
            "memory stays bounded; whether the child is killed or its noise outlasted is open",
        )
    },
    Expectation {
        // Over the line limit as well.
        scaled: Some(40_000_000),
        timeout_ms: LONG_TIMEOUT_MS,
        one: only(&["limit_exceeded"]).saying(&["line", "limit", "mib", "bytes"]),
        many: BAD_ANSWER_MANY.or_success(),
        idempotent: only(&["limit_exceeded"]).saying(&["line", "limit", "mib", "bytes"]),
        idempotent_executions: 1..=1,
        ..bad_answer(
            "long-line",
            "the id can be read, so the caller learns which limit the answer broke",
        )
    },
    refused_answer("deep-json", "deeper than any parser downstream is safe with"),
    refused_answer("duplicate-keys", "two meanings in one message: neither is passed on"),
    succeeds("unknown-id", "answers to nothing are counted and dropped"),
    succeeds("answer-twice", "the first answer counts"),
    Expectation {
        own_text: false,
        ..succeeds(
            "foreign-id",
            "a child can lie about its own calls, but each still has one answer and others' are untouched",
        )
    },
    Expectation {
        timeout_ms: SHORT_TIMEOUT_MS,
        one: TIMEOUT,
        many: TIMEOUT_MANY,
        idempotent: TIMEOUT,
        ..succeeds("bent-id", "an id of another type is another id")
    },
    succeeds("answer-notification", "an answer without an id answers nothing"),
    refused_answer("result-and-error", "an answer is a result or an error; both is neither"),
    Expectation {
        scaled: Some(20_000),
        ..succeeds("list-changed-flood", "refreshes are coalesced")
    },
    Expectation {
        scaled: Some(50_000),
        ..succeeds("progress-flood", "progress is thinned out, the answer comes")
    },
    Expectation {
        scaled: Some(2_000),
        ..succeeds("request-flood", "questions beyond a few are refused, the answer comes")
    },
    Expectation { scaled: Some(20_000), ..succeeds("ping-flood", "pings cost the pinger most") },
    succeeds("reuse-our-id", "ids of the two directions have nothing to do with each other"),
    succeeds("cancel-unknown", "cancelling what is not under way does nothing"),
    Expectation {
        scaled: Some(20_000),
        ..succeeds("many-tools", "the first tools of the list are kept, and its own are among them")
    },
    succeeds("looping-cursor", "a cursor that comes again ends the listing"),
    Expectation {
        // Over the line limit as well.
        scaled: Some(20_000_000),
        one: only(&["limit_exceeded", "server_unavailable"]).or_success(),
        many: only(&["limit_exceeded", "server_unavailable", "circuit_open"]).or_success(),
        idempotent: only(&["limit_exceeded", "server_unavailable"]).or_success(),
        executions: 0..=1,
        idempotent_executions: 0..=1,
        ..succeeds(
            "monstrous-schema",
            "a list beyond the line limit is an error that names the limit, not a missing tool",
        )
    },
    Expectation {
        amount: Some(0),
        ..succeeds("monstrous-schema", "references are not followed, recursion is not unrolled")
    },
    succeeds("rug-pull", "a declared server may change its mind; it is noted, not blocked"),
    succeeds("confusing-names", "names are data; the honest tool keeps its own"),
    Expectation { executions: 1..=1, ..lost("die-before-reply", "it may have run: it did, once") },
    times_out(
        "hang-after-effect",
        "never replayed, not even an idempotent one: it may still be running",
    ),
    Expectation {
        many: UNKNOWN_MANY.or_success(),
        ..succeeds("reply-then-die", "an answer that came counts, whatever came after")
    },
    times_out("reply-late", "the late answer is dropped"),
    Expectation {
        many: UNKNOWN_MANY.or_success(),
        ..succeeds("die-on-nth-call", "the first call is answered; those after it are lost")
    },
    lost("close-stdout", "a child without stdout can answer nothing"),
    Expectation {
        timeout_ms: SHORT_TIMEOUT_MS,
        many: only(&["timeout", "outcome_unknown", "circuit_open", "server_unavailable"])
            .or_success(),
        ..succeeds(
            "close-stdin",
            "answered before anything went wrong; the next call finds the pipe broken and goes to a new process",
        )
    },
    Expectation {
        one: only(&["timeout", "outcome_unknown"]),
        many: only(&["timeout", "outcome_unknown", "circuit_open", "server_unavailable"]),
        ..times_out("stop-reading", "the pipe took the call, the child never will")
    },
    Expectation {
        scaled: Some(64_000_000),
        ..succeeds("stderr-flood", "stderr is always drained")
    },
    succeeds("ignore-end-of-input", "deafness shows at shutdown only"),
    succeeds("ignore-signals", "deafness shows at shutdown only"),
    times_out("stop-itself", "a stopped child answers nothing"),
    succeeds("session-grandchild", "the grandchild shows at shutdown only"),
    lost("daemon-holds-pipe", "the death of the process counts, not the end of its pipe"),
    succeeds("fork-bomb", "the processes show at shutdown only"),
    Expectation {
        scaled: Some(128_000_000),
        one: UNKNOWN.or_success(),
        many: UNKNOWN_MANY.or_success(),
        idempotent: UNKNOWN.or_success(),
        idempotent_executions: 1..=2,
        ..succeeds("eat-memory", "fine unless a memory limit kills the child")
    },
    Expectation {
        scaled: Some(8_000_000),
        ..succeeds("fill-directory", "its own directory is its own affair")
    },
    Expectation {
        one: UNKNOWN.or_success(),
        many: UNKNOWN_MANY.or_success(),
        idempotent: UNKNOWN_MANY.or_success(),
        idempotent_executions: 1..=2,
        ..succeeds(
            "kill-parent",
            "fine where the parent is out of reach, lost where it is not; others are unaffected either way",
        )
    },
    succeeds("zombies", "zombies are reaped when the child is gone"),
    Expectation {
        amount: Some(3_000),
        ..succeeds("slow-installer", "an installer that shows life is left alone")
    },
    lost("exit-politely", "code 0 is no answer"),
    lost("dump-core", "a crash is a death, and leaves no core file"),
    succeeds("move-away", "its directory and mask are its own"),
    succeeds("look-around", "it finds only what it was given"),
];

const fn only(codes: &'static [&'static str]) -> ExpectedOutcome {
    ExpectedOutcome { success: false, codes, says: &[] }
}

const fn succeeds(hazard: &'static str, why: &'static str) -> Expectation {
    Expectation {
        hazard,
        amount: None,
        scaled: None,
        timeout_ms: LONG_TIMEOUT_MS,
        one: SUCCESS,
        many: SUCCESS,
        idempotent: SUCCESS,
        executions: 1..=1,
        idempotent_executions: 1..=1,
        own_text: true,
        why,
    }
}

const fn unavailable(hazard: &'static str, why: &'static str) -> Expectation {
    Expectation {
        one: UNAVAILABLE,
        many: UNAVAILABLE_MANY,
        idempotent: UNAVAILABLE,
        executions: 0..=0,
        idempotent_executions: 0..=0,
        ..succeeds(hazard, why)
    }
}

const fn lost(hazard: &'static str, why: &'static str) -> Expectation {
    Expectation {
        one: UNKNOWN,
        many: UNKNOWN_MANY,
        // Every fresh process is as bad as the first, so the one replay is lost as well.
        idempotent: UNKNOWN,
        idempotent_executions: 2..=2,
        ..succeeds(hazard, why)
    }
}

const fn times_out(hazard: &'static str, why: &'static str) -> Expectation {
    Expectation {
        timeout_ms: SHORT_TIMEOUT_MS,
        one: TIMEOUT,
        many: TIMEOUT_MANY,
        idempotent: TIMEOUT,
        ..succeeds(hazard, why)
    }
}

const fn refused_answer(hazard: &'static str, why: &'static str) -> Expectation {
    Expectation {
        one: REFUSED_ANSWER,
        many: REFUSED_ANSWER,
        idempotent: REFUSED_ANSWER,
        ..succeeds(hazard, why)
    }
}

const fn bad_answer(hazard: &'static str, why: &'static str) -> Expectation {
    Expectation {
        timeout_ms: SHORT_TIMEOUT_MS,
        one: BAD_ANSWER,
        many: BAD_ANSWER_MANY,
        idempotent: BAD_ANSWER,
        idempotent_executions: 1..=2,
        ..succeeds(hazard, why)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::chaos::{HAZARDS, SelectedHazard};

    #[test]
    fn every_hazard_has_an_expectation() {
        for hazard in HAZARDS {
            assert!(
                EXPECTATIONS.iter().any(|expectation| expectation.hazard == hazard.name),
                "{}",
                hazard.name
            );
        }
        assert!(EXPECTATIONS.is_sorted_by_key(|expectation| {
            HAZARDS.iter().position(|known| known.name == expectation.hazard)
        }));
    }

    #[test]
    fn the_child_understands_what_an_expectation_selects() {
        for expectation in EXPECTATIONS {
            for full in [false, true] {
                let selected = SelectedHazard::parse(&expectation.selection(full)).unwrap();
                assert_eq!(selected.hazard.name, expectation.hazard);
            }
        }
    }

    #[test]
    fn nothing_that_is_not_idempotent_runs_twice() {
        for expectation in EXPECTATIONS {
            assert!(*expectation.executions.end() <= 1, "{}", expectation.hazard);
            assert!(*expectation.idempotent_executions.end() <= 2, "{}", expectation.hazard);
            let times_out_only =
                expectation.idempotent.codes == ["timeout"] && !expectation.idempotent.success;
            assert!(
                !times_out_only || *expectation.idempotent_executions.end() <= 1,
                "{}",
                expectation.hazard
            );
        }
    }

    #[test]
    fn a_failed_check_names_what_came_and_what_should_have() {
        let outcome = |code: &str, message: &str| {
            CallOutcome::of(&json!({"result": {"isError": true, "structuredContent":
                {"code": code, "message": message, "retryable": false}}}))
        };
        let expected = only(&["limit_exceeded"]).saying(&["mib"]);
        assert_eq!(expected.check(&outcome("limit_exceeded", "a line over 16 MiB")), Ok(()));
        assert!(expected.check(&outcome("limit_exceeded", "too much")).is_err());
        assert!(
            expected
                .check(&outcome("timeout", "16 MiB"))
                .unwrap_err()
                .contains("got timeout: 16 MiB")
        );
        assert!(expected.check(&CallOutcome::Success).is_err());
        assert_eq!(SUCCESS.check(&CallOutcome::Success), Ok(()));
    }
}
