//! How a run ended: the status, error and limit a client is told.

use std::process::ExitStatus;
use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::admission::LimitKind;
use super::json_depth::json_depth;
use super::process::Death;
use super::{LimitHit, Limits, ScriptError, Status};
use crate::limits::{DEPTH, QUESTIONS};
use crate::protocol::{End, ProtocolViolation};

/// Bytes of the name of an error. The prelude truncates it to 128 characters.
const MAX_NAME: usize = 1024;
/// Bytes of any other text of an error. The prelude truncates it to 8,192 characters.
pub(super) const MAX_TEXT: usize = 64 * 1024;

/// How a run ended: status, value, error, limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Completion {
    pub(super) status: Status,
    pub(super) value: Option<String>,
    pub(super) error: Option<ScriptError>,
    pub(super) limit: Option<LimitHit>,
}

impl Completion {
    fn failed(status: Status, error: ScriptError) -> Completion {
        Completion { status, value: None, error: Some(error), limit: None }
    }

    fn limit_exceeded(
        status: Status,
        name: &'static str,
        value: String,
        error: ScriptError,
    ) -> Completion {
        Completion { limit: Some(LimitHit { name, value }), ..Completion::failed(status, error) }
    }

    /// As the worker reported.
    pub(super) fn from_end(end: End, limits: &Limits) -> Completion {
        match end {
            End::Ok { value } if value.len() <= limits.result => match json_depth(&value) {
                levels if levels > DEPTH => too_deep(levels),
                _ if !is_json(&value) => Completion::from_protocol_violation(&ProtocolViolation::Json { field: "value" }),
                _ => Completion { status: Status::Ok, value: Some(value), error: None, limit: None },
            },
            End::Ok { value } => too_long(value.len() as u64, limits),
            End::ResultLimit { bytes } => too_long(bytes, limits),
            End::Error(error) => uncaught(bounded(error)),
            End::Deadlock => Completion::failed(
                Status::Deadlock,
                named(
                    "Deadlock",
                    "the script waits for a promise that nothing can settle: no call, timer or other work is left".to_owned(),
                ),
            ),
            End::MemoryLimit(error) => memory(limits, bounded(error)),
            End::CpuLimit => cpu(limits),
        }
    }

    /// The gateway found a limit exceeded.
    pub(super) fn from_limit(limit_kind: LimitKind, limits: &Limits) -> Completion {
        match limit_kind {
            LimitKind::Wall => {
                let wall = seconds(limits.wall);
                let error = named("Timeout", format!("the script was not done after {wall}"));
                Completion::limit_exceeded(Status::Timeout, "wall", wall, error)
            }
            LimitKind::Cpu => cpu(limits),
            LimitKind::Calls => {
                let error = named(
                    "CallLimit",
                    format!("the script made more than {} tool calls", limits.calls),
                );
                Completion::limit_exceeded(
                    Status::CallLimit,
                    "calls",
                    limits.calls.to_string(),
                    error,
                )
            }
            LimitKind::Questions => {
                let error = named(
                    "CallLimit",
                    format!("the script asked the gateway more than {QUESTIONS} times"),
                );
                Completion::limit_exceeded(
                    Status::CallLimit,
                    "questions",
                    QUESTIONS.to_string(),
                    error,
                )
            }
        }
    }

    pub(super) fn cancelled() -> Completion {
        Completion::failed(
            Status::Cancelled,
            named("Cancelled", "the run was cancelled".to_owned()),
        )
    }

    /// The source is too long; no worker has seen it.
    pub(super) fn source_too_long(length: usize, limits: &Limits) -> Completion {
        let most = size(limits.source);
        let error = named("SourceLimit", format!("the source has {length} bytes, {most} at most"));
        Completion::limit_exceeded(Status::Error, "source", most, error)
    }

    /// The worker sent what a correct worker never sends.
    pub(super) fn from_protocol_violation(violation: &ProtocolViolation) -> Completion {
        Completion::failed(
            Status::Error,
            named(
                "SandboxError",
                format!("the sandbox worker broke its protocol ({violation}) and was killed"),
            ),
        )
    }

    /// The worker used an id twice, or sent a message out of order.
    pub(super) fn out_of_order() -> Completion {
        Completion::failed(
            Status::Error,
            named("SandboxError", "the sandbox worker spoke out of turn and was killed".to_owned()),
        )
    }

    /// The worker died without reporting an end.
    pub(super) fn from_exit(status: Option<ExitStatus>, limits: &Limits) -> Completion {
        let failed = |message| Completion::failed(Status::Error, named("SandboxError", message));
        match Death::of(status) {
            Death::Cpu => cpu(limits),
            Death::Memory(how) => memory(
                limits,
                named(
                    "InternalError",
                    format!("out of memory: the sandbox worker ended with {how}"),
                ),
            ),
            Death::Forbidden(how) => failed(format!(
                "the script made the engine try something the sandbox forbids ({how}); the worker was killed"
            )),
            Death::Fault(how) => failed(format!("the script made the engine fail ({how})")),
            Death::Exit(code) => {
                let how = code.map_or_else(
                    || "for an unknown reason".to_owned(),
                    |code| format!("with code {code}"),
                );
                failed(format!("the sandbox worker ended {how} before the script did"))
            }
        }
    }
}

/// The limits that a script can catch, by the names that its `LimitError` has for them. The call limit keeps its status.
const CATCHABLE: [(&str, Status); 6] = [
    ("calls", Status::CallLimit),
    ("questions", Status::CallLimit),
    ("sleep", Status::Error),
    ("timers", Status::Error),
    ("arguments", Status::Error),
    ("result", Status::Error),
];

/// An error that the script did not catch.
fn uncaught(error: ScriptError) -> Completion {
    #[derive(Deserialize)]
    struct Facts {
        limit: String,
        value: Option<f64>,
    }
    let facts = error
        .tool_error
        .as_deref()
        .filter(|_| error.name == "LimitError")
        .and_then(|json| serde_json::from_str::<Facts>(json).ok());
    let known = facts.and_then(|facts| {
        let found = CATCHABLE.iter().find(|(name, _)| *name == facts.limit)?;
        Some((found, facts.value))
    });
    match known {
        Some((&(name, status), value)) => {
            let value = value.map_or_else(|| "unknown".to_owned(), |value| value.to_string());
            let error = ScriptError { tool_error: None, ..error };
            Completion::limit_exceeded(status, name, value, error)
        }
        None => Completion::failed(Status::Error, error),
    }
}

/// Whether a text is one JSON value.
pub(super) fn is_json(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// An error within the bounds a correct worker keeps.
fn bounded(error: ScriptError) -> ScriptError {
    let cut = |mut text: String, most: usize| {
        text.truncate(text.floor_char_boundary(most));
        text
    };
    ScriptError {
        name: cut(error.name, MAX_NAME),
        message: cut(error.message, MAX_TEXT),
        stack: cut(error.stack, MAX_TEXT),
        tool_error: error.tool_error.filter(|json| json.len() <= MAX_TEXT && is_json(json)),
        ..error
    }
}

fn named(name: &str, message: String) -> ScriptError {
    ScriptError { name: name.to_owned(), message, ..ScriptError::default() }
}

fn cpu(limits: &Limits) -> Completion {
    let most = seconds(limits.cpu);
    let message = format!(
        "the script used more than {most} of processor time (waiting for tools does not count)"
    );
    Completion::limit_exceeded(Status::CpuLimit, "cpu", most, named("CpuLimit", message))
}

fn memory(limits: &Limits, error: ScriptError) -> Completion {
    Completion::limit_exceeded(Status::MemoryLimit, "heap", size(limits.heap), error)
}

fn too_long(bytes: u64, limits: &Limits) -> Completion {
    let most = size(limits.result);
    let message = format!("the value has {bytes} bytes as JSON, {most} at most; return less of it");
    Completion::limit_exceeded(Status::Error, "result", most, named("ResultLimit", message))
}

fn too_deep(levels: usize) -> Completion {
    let message = format!("the value is nested {levels} deep, {DEPTH} at most; return less of it");
    let error = named("ResultLimit", message);
    Completion::limit_exceeded(Status::Error, "depth", DEPTH.to_string(), error)
}

fn seconds(time: Duration) -> String {
    if time.subsec_millis() == 0 {
        format!("{} s", time.as_secs())
    } else {
        format!("{} ms", time.as_millis())
    }
}

fn size(bytes: usize) -> String {
    const KIB: usize = 1024;
    const MIB: usize = 1024 * KIB;
    match bytes {
        _ if bytes >= MIB && bytes.is_multiple_of(MIB) => format!("{} MiB", bytes / MIB),
        _ if bytes >= KIB && bytes.is_multiple_of(KIB) => format!("{} KiB", bytes / KIB),
        _ => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_named_with_their_value() {
        let limits = Limits::default();
        let named = |limit_kind| {
            let limit = Completion::from_limit(limit_kind, &limits).limit.unwrap();
            (limit.name, limit.value)
        };
        assert_eq!(named(LimitKind::Wall), ("wall", "120 s".to_owned()));
        assert_eq!(named(LimitKind::Cpu), ("cpu", "5 s".to_owned()));
        assert_eq!(named(LimitKind::Calls), ("calls", "2000".to_owned()));
        let completion = Completion::from_end(End::MemoryLimit(ScriptError::default()), &limits);
        assert_eq!(completion.limit.unwrap().value, "64 MiB");
        let completion =
            Completion::from_end(End::Ok { value: "x".repeat(limits.result + 1) }, &limits);
        assert_eq!((completion.status, completion.value), (Status::Error, None));
        let nested = |levels| "[".repeat(levels) + &"]".repeat(levels);
        let completion = Completion::from_end(End::Ok { value: nested(DEPTH) }, &limits);
        assert_eq!(completion.status, Status::Ok);
        let completion = Completion::from_end(End::Ok { value: nested(DEPTH + 1) }, &limits);
        assert_eq!(completion.limit.unwrap().name, "depth");
    }

    #[test]
    fn a_value_is_json_or_the_worker_is_none_of_ours() {
        let limits = Limits::default();
        let of = |value: &str| Completion::from_end(End::Ok { value: value.to_owned() }, &limits);
        for value in ["null", "1", "\"a\\nb\"", "{\"a\":[1,2]}", " [1] "] {
            assert_eq!(of(value).value.as_deref(), Some(value));
        }
        for value in ["", "{", "{}{}", "{},\"b\":1", "1,\"calls\":[]", "\"a\nb\"", "undefined", "]"]
        {
            let completion = of(value);
            assert_eq!((completion.status, completion.value), (Status::Error, None), "{value}");
            assert_eq!(completion.error.unwrap().name, "SandboxError");
        }
    }

    #[test]
    fn what_is_said_of_an_error_has_a_bound() {
        let long = || "é".repeat(MAX_TEXT);
        let error = ScriptError {
            name: long(),
            message: long(),
            stack: long(),
            tool_error: Some("{}}".to_owned()),
            ..ScriptError::default()
        };
        for end in [End::Error(error.clone()), End::MemoryLimit(error)] {
            let error = Completion::from_end(end, &Limits::default()).error.unwrap();
            assert!(error.name.len() <= MAX_NAME && error.name.len() > MAX_NAME - 4);
            assert!(error.message.len() <= MAX_TEXT && error.stack.len() <= MAX_TEXT);
            assert_eq!(error.tool_error, None);
        }
    }
}
