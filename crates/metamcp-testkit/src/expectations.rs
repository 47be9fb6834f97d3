//! The outcome a caller must get for each hazard, however many calls are in flight.
//! Owns: the table of expectations and their reasons.  Never: runs anything.
//! In: a hazard, an outcome.  Out: whether that outcome is right, and why if it is not.
//! Tests: below; the gateway is checked against it by its own matrix.

use std::ops::RangeInclusive;

use crate::call_outcome::CallOutcome;

/// Number of concurrent calls in the second column of the matrix.
pub const MANY: usize = 64;

/// The expected outcomes of one hazard. In every case, calls to other servers must succeed.
#[derive(Debug)]
pub struct Expectation {
    pub hazard: &'static str,
    /// The amount to use, where the hazard's own default does not suit.
    pub amount: Option<u64>,
    /// The amount of the ordinary run, where the full one would take too long on two cores. It still exceeds every
    /// limit the full one exceeds.
    pub scaled: Option<u64>,
    /// The `timeoutMs` of the server: short where the call must time out, long where it must not.
    pub timeout_ms: u64,
    /// For one call of `effect`, which must never be executed twice.
    pub one: ExpectedOutcome,
    /// For each of many concurrent calls of `effect`; none may have run more than once.
    pub many: ExpectedOutcome,
    /// How many of these succeed.
    pub many_successes: RangeInclusive<usize>,
    /// For one call of `effect_idempotent`, which may be replayed on a fresh process.
    pub idempotent: ExpectedOutcome,
    /// How often the single call of `effect` is executed.
    pub executions: RangeInclusive<usize>,
    /// How often the single call of `effect_idempotent` may be executed.
    pub idempotent_executions: RangeInclusive<usize>,
    /// Whether a successful result is sure to be the call's own; false where the child lies about its own calls.
    pub own_text: bool,
    /// Why this is the right outcome.
    pub why: &'static str,
}

impl Expectation {
    /// The argument of `--do`: in full, or scaled for the ordinary run.
    pub fn selection(&self, full: bool) -> String {
        match self.scaled.filter(|_| !full).or(self.amount) {
            Some(amount) => format!("{}={amount}", self.hazard),
            None => self.hazard.to_owned(),
        }
    }
}

/// The allowed outcomes.
#[derive(Clone, Copy, Debug)]
pub struct ExpectedOutcome {
    /// Whether the tool's own result is allowed.
    pub success: bool,
    /// The gateway's error codes that are allowed; several only where a race decides that the gateway cannot control.
    pub codes: &'static [&'static str],
    /// Text that the gateway's message must contain.
    pub says: &'static str,
}

impl ExpectedOutcome {
    /// Explains what is wrong with an outcome.
    pub fn check(&self, outcome: &CallOutcome) -> Result<(), String> {
        let right = match outcome {
            CallOutcome::Success => self.success,
            CallOutcome::GatewayError(error) => {
                self.codes.contains(&error.code.as_str()) && error.message.contains(self.says)
            }
            CallOutcome::ToolError | CallOutcome::Protocol { .. } => false,
        };
        if right { Ok(()) } else { Err(format!("got {outcome}; expected {self:?}")) }
    }

    const fn or_success(self) -> Self {
        Self { success: true, ..self }
    }

    const fn saying(self, says: &'static str) -> Self {
        Self { says, ..self }
    }
}

/// Long enough to avoid spurious timeouts on a busy machine.
pub const LONG_TIMEOUT_MS: u64 = 30_000;

/// Short enough to wait for, long enough that the handshake and the call itself get through.
const SHORT_TIMEOUT_MS: u64 = 2_000;

const SUCCESS: ExpectedOutcome = ExpectedOutcome { success: true, codes: &[], says: "" };

/// The child never became ready, so nothing was sent.
const UNAVAILABLE: ExpectedOutcome = only(&["server_unavailable"]);

/// The child died or became unresponsive after the call was sent.
const UNKNOWN: ExpectedOutcome = only(&["outcome_unknown"]);

/// No response in time.
const TIMEOUT: ExpectedOutcome = only(&["timeout"]);

/// A response with a readable id arrived that must not be forwarded.
const REFUSED_ANSWER: ExpectedOutcome = only(&["execution_failed"]).saying("not a valid message");

/// A response with a readable id arrived that is too long.
const OVERLONG_ANSWER: ExpectedOutcome =
    only(&["limit_exceeded"]).saying("bytes, and the limit is");

/// Every hazard at least once, in order.
pub const EXPECTATIONS: &[Expectation] = &[
    unavailable("exit-at-start", "nothing was sent, and the stderr tail says why"),
    Expectation {
        one: EXIT_LATER,
        many: EXIT_LATER,
        many_successes: 0..=MANY,
        idempotent: EXIT_LATER,
        executions: 0..=1,
        idempotent_executions: 0..=2,
        ..succeeds(
            "exit-later",
            "a clock of the child's own decides: it may end in the handshake, into the call or after it",
        )
    },
    unavailable("exit-on-initialize", "the handshake failed, so nothing was sent"),
    unavailable("never-initialize", "the wait ends, and the call was never sent"),
    succeeds("answer-initialize-late", "a slow handshake is not a failure"),
    Expectation {
        one: UNAVAILABLE.saying("revision"),
        many: UNAVAILABLE.saying("revision"),
        idempotent: UNAVAILABLE.saying("revision"),
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
    Expectation {
        many: UNKNOWN.saying("that are not the protocol"),
        ..times_out(
            "nul-bytes",
            "what holds NUL bytes is a line like any other that is no message: one answers nothing, hundreds end the child",
        )
    },
    Expectation {
        // More than the gateway reads of one line before it gives up on the child.
        scaled: Some(1_000_000_000),
        one: UNKNOWN.saying("over the line limit"),
        many: UNKNOWN.saying("over the line limit"),
        idempotent: UNKNOWN.saying("over the line limit"),
        ..lost(
            "endless-line",
            "memory stays bounded, and a child that never ends its line is given up",
        )
    },
    Expectation {
        // Over the line limit as well.
        scaled: Some(40_000_000),
        one: OVERLONG_ANSWER,
        many: OVERLONG_ANSWER.or_success(),
        // Only the first response of a process is long.
        many_successes: MANY - 1..=MANY - 1,
        idempotent: OVERLONG_ANSWER,
        ..succeeds(
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
    times_out("bent-id", "an id of another type is another id"),
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
        ..succeeds(
            "monstrous-schema",
            "what cannot be listed can be called by its name all the same; only its arguments go unchecked",
        )
    },
    Expectation {
        amount: Some(0),
        ..succeeds("monstrous-schema", "references are not followed, recursion is not unrolled")
    },
    succeeds("rug-pull", "a declared server may change its mind; it is noted, not blocked"),
    succeeds("confusing-names", "names are data; the honest tool keeps its own"),
    lost("die-before-reply", "it may have run: it did, once"),
    times_out(
        "hang-after-effect",
        "never replayed, not even an idempotent one: it may still be running",
    ),
    Expectation {
        many: UNKNOWN.or_success(),
        many_successes: ONE_AT_LEAST,
        ..succeeds("reply-then-die", "an answer that came counts, whatever came after")
    },
    times_out("reply-late", "the late answer is dropped"),
    Expectation {
        many: UNKNOWN.or_success(),
        many_successes: ONE_AT_LEAST,
        ..succeeds("die-on-nth-call", "the first call is answered; those after it are lost")
    },
    lost("close-stdout", "a child without stdout can answer nothing"),
    Expectation {
        timeout_ms: SHORT_TIMEOUT_MS,
        many: CLOSED_INPUT,
        many_successes: ONE_AT_LEAST,
        ..succeeds(
            "close-stdin",
            "answered before anything went wrong; the next call finds the pipe broken and goes to a new process",
        )
    },
    times_out("stop-reading", "the pipe took the call, the child never will"),
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
        ..succeeds("eat-memory", "its memory is its own affair where no limit was set")
    },
    Expectation {
        scaled: Some(8_000_000),
        ..succeeds("fill-directory", "its own directory is its own affair")
    },
    Expectation {
        one: UNKNOWN.or_success(),
        many: UNKNOWN.or_success(),
        many_successes: 0..=MANY,
        idempotent: UNKNOWN.or_success(),
        idempotent_executions: 1..=2,
        ..succeeds(
            "kill-parent",
            "in a namespace the parent is out of reach; elsewhere its answer races the signal that takes it along",
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

/// A race: it exits during the handshake and again during the immediate retry; it exits during the call; or it
/// responds in time.
const EXIT_LATER: ExpectedOutcome = only(&["server_unavailable", "outcome_unknown"]).or_success();

/// A race: a write after the input is closed fails, which ends the calls sent before with an error; without another
/// write, they time out.
const CLOSED_INPUT: ExpectedOutcome = only(&["timeout", "outcome_unknown"]).or_success();

/// A race: calls not yet written when the child exits go to the next process, which answers its first call too.
const ONE_AT_LEAST: RangeInclusive<usize> = 1..=MANY - 1;

const fn only(codes: &'static [&'static str]) -> ExpectedOutcome {
    ExpectedOutcome { success: false, codes, says: "" }
}

const fn succeeds(hazard: &'static str, why: &'static str) -> Expectation {
    Expectation {
        hazard,
        amount: None,
        scaled: None,
        timeout_ms: LONG_TIMEOUT_MS,
        one: SUCCESS,
        many: SUCCESS,
        many_successes: MANY..=MANY,
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
        many: UNAVAILABLE,
        many_successes: 0..=0,
        idempotent: UNAVAILABLE,
        executions: 0..=0,
        idempotent_executions: 0..=0,
        ..succeeds(hazard, why)
    }
}

const fn lost(hazard: &'static str, why: &'static str) -> Expectation {
    Expectation {
        one: UNKNOWN,
        many: UNKNOWN,
        many_successes: 0..=0,
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
        many: TIMEOUT,
        many_successes: 0..=0,
        idempotent: TIMEOUT,
        ..succeeds(hazard, why)
    }
}

const fn refused_answer(hazard: &'static str, why: &'static str) -> Expectation {
    Expectation {
        one: REFUSED_ANSWER,
        many: REFUSED_ANSWER,
        many_successes: 0..=0,
        idempotent: REFUSED_ANSWER,
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
    fn only_races_leave_more_than_one_failure_open() {
        for expectation in EXPECTATIONS {
            let Expectation { hazard, one, many, idempotent, many_successes, .. } = expectation;
            for outcome in [one, many, idempotent] {
                let is_race = ["exit-later", "close-stdin"].contains(hazard);
                assert!(outcome.codes.len() <= 1 || is_race, "{hazard}");
            }
            assert_eq!(many.success, *many_successes.end() > 0, "{hazard}");
            assert_eq!(many.codes.is_empty(), *many_successes.start() == MANY, "{hazard}");
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
        let expected = only(&["limit_exceeded"]).saying("MiB");
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
