//! What the connector says to a client in place of a daemon that is gone, in the gateway's own form.

use metamcp_calls::connector::Answer;
use metamcp_wire::write;

/// As in the engine's `surface/reply.rs`.
const CODE: &str = "outcome_unknown";
const MESSAGE: &str = "metamcp's daemon ended after it was sent the call";
const HINT: &str =
    "The call may have run: verify before repeating it. The daemon is started again by itself.";

/// Appends the answer to a request whose daemon is gone.
pub(super) fn outcome_unknown(out: &mut Vec<u8>, id: &[u8], answer: Answer) {
    let object = object();
    match answer {
        Answer::Error => {
            write::error(out, Some(id), -32000, &line(), Some(object.as_bytes()));
        }
        Answer::CallResult => write::result(out, id, result(&object, "").as_bytes()),
        Answer::StatelessCallResult => {
            write::result(out, id, result(&object, r#","resultType":"complete""#).as_bytes());
        }
    }
}

/// Appends the answer to a request that is one too many.
pub(super) fn overloaded(out: &mut Vec<u8>, id: &[u8]) {
    let words = "too many requests of this client are in flight; nothing was run";
    write::error(out, Some(id), -32000, words, None);
}

/// Appends the word that nobody waits for an answer to `id` any more.
pub(super) fn cancelled(out: &mut Vec<u8>, id: &[u8]) {
    let mut params = b"{\"requestId\":".to_vec();
    params.extend_from_slice(id);
    params.extend_from_slice(b",\"reason\":\"the server does not wait for it any more\"}");
    write::notification(out, "notifications/cancelled", Some(&params));
}

fn line() -> String {
    format!("{CODE}: {MESSAGE}. {HINT}")
}

fn object() -> String {
    format!(
        r#"{{"code":"{CODE}","message":"{MESSAGE}","hint":"{HINT}","retryable":false,"details":{{"category":"other","sent":true}}}}"#
    )
}

fn result(object: &str, more: &str) -> String {
    let line = line();
    format!(
        r#"{{"content":[{{"type":"text","text":"{line}"}}],"structuredContent":{object},"isError":true{more}}}"#
    )
}

#[cfg(test)]
mod tests {
    use metamcp_wire::envelope::Envelope;
    use serde_json::Value;

    use super::*;

    #[test]
    fn answers_are_messages_of_the_gateways_form() {
        for answer in [Answer::Error, Answer::CallResult, Answer::StatelessCallResult] {
            let mut out = Vec::new();
            outcome_unknown(&mut out, b"\"x\"", answer);
            Envelope::parse(out.trim_ascii_end()).unwrap();
            let value: Value = serde_json::from_slice(&out).unwrap();
            assert_eq!(value["id"], "x");
            let object = match answer {
                Answer::Error => &value["error"]["data"],
                _ => {
                    assert_eq!(value["result"]["isError"], true);
                    &value["result"]["structuredContent"]
                }
            };
            assert_eq!((&object["code"], &object["details"]["sent"]), (&"outcome_unknown".into(), &true.into()));
        }
        let mut out = Vec::new();
        cancelled(&mut out, b"7");
        overloaded(&mut out, b"8");
        for line in out.trim_ascii_end().split(|byte| *byte == b'\n') {
            Envelope::parse(line).unwrap();
        }
    }
}
