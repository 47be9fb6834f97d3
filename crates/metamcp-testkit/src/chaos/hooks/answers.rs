//! Responses that do not match the request.

use std::sync::Arc;

use serde_json::json;

use super::Next;
use crate::chaos::message::{Call, notification_line, request_line, result_line};
use crate::chaos::output::Piece;
use crate::chaos::server_state::{ServerState, die};

/// An id no gateway has allocated yet.
const NEVER_GIVEN: u64 = 987_654_321;

/// The content of a second or foreign response; it must not reach a caller that already has its response.
const FORGED: &str = r#"{"content":[{"type":"text","text":"forged"}]}"#;

pub(in crate::chaos) fn invalid_utf8(server: &ServerState, _: u64, call: &Call, _: &str) -> Next {
    let line = result_line(&call.id, r#"{"content":[{"type":"text","text":"@"}]}"#);
    let bytes = line.into_bytes().into_iter().flat_map(|byte| match byte {
        b'@' => vec![0xff, 0xfe, 0xc3, 0x28],
        byte => vec![byte],
    });
    write_raw(server, bytes.chain([b'\n']).collect())
}

pub(in crate::chaos) fn nul_bytes(server: &ServerState, _: u64, call: &Call, _: &str) -> Next {
    let line = result_line(&call.id, "{\"content\":[{\"type\":\"text\",\"text\":\"a\0b\"}]}");
    write_raw(server, [b"\0\0\0\n\0", line.as_bytes(), b"\0\n"].concat())
}

pub(in crate::chaos) fn deep_json(server: &ServerState, levels: u64, call: &Call, _: &str) -> Next {
    let levels = usize::try_from(levels).unwrap_or(usize::MAX);
    let (open, close) = ("[".repeat(levels), "]".repeat(levels));
    server.send(&result_line(
        &call.id,
        &format!(r#"{{"content":[],"structuredContent":{{"deep":{open}{close}}}}}"#),
    ));
    Next::Done
}

pub(in crate::chaos) fn duplicate_keys(server: &ServerState, _: u64, call: &Call, _: &str) -> Next {
    let line = format!(
        r#"{{"jsonrpc":"2.0","Id":1,"id":{},"result":{{"content":[{{"type":"text","text":"first"}}]}},"Result":{FORGED},"result":{FORGED}}}"#,
        call.id
    );
    server.send(&line);
    Next::Done
}

pub(in crate::chaos) fn unknown_id(server: &ServerState, _: u64, _: &Call, _: &str) -> Next {
    server.send(&result_line(&NEVER_GIVEN.to_string(), FORGED));
    server.send(&result_line("\"never-given\"", FORGED));
    server.send(&result_line("-1", FORGED));
    Next::Honest
}

pub(in crate::chaos) fn answer_twice(
    server: &ServerState,
    _: u64,
    call: &Call,
    line: &str,
) -> Next {
    server.send(line);
    server.send(&result_line(&call.id, FORGED));
    Next::Done
}

pub(in crate::chaos) fn foreign_id(server: &ServerState, _: u64, call: &Call, _: &str) -> Next {
    server.send(&result_line(&neighbour(&call.id), FORGED));
    Next::Honest
}

pub(in crate::chaos) fn bent_id(server: &ServerState, way: u64, call: &Call, _: &str) -> Next {
    let way = if way == 0 { (call.number - 1) % 3 + 1 } else { way };
    let id = match way {
        1 if call.id.starts_with('"') => call.id.trim_matches('"').to_owned(),
        1 => format!("\"{}\"", call.id),
        2 if call.id.starts_with('"') => "1.0".to_owned(),
        2 => format!("{}.0", call.id),
        _ => "null".to_owned(),
    };
    server.send(&result_line(&id, r#"{"content":[{"type":"text","text":"bent"}]}"#));
    Next::Done
}

pub(in crate::chaos) fn answer_notification(server: &Arc<ServerState>, _: u64, _: &str) {
    server.send(&result_line("null", "{}"));
    server.send(r#"{"jsonrpc":"2.0","result":{}}"#);
    server.send(r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"what was that"}}"#);
}

pub(in crate::chaos) fn result_and_error(
    server: &ServerState,
    _: u64,
    _: &Call,
    line: &str,
) -> Next {
    let open = line.strip_suffix('}').unwrap_or(line);
    let error = json!({"code": -32000, "message": "and yet it failed"});
    server.send(&format!(r#"{open},"error":{error}}}"#));
    Next::Done
}

pub(in crate::chaos) fn reuse_our_id(server: &ServerState, _: u64, call: &Call, _: &str) -> Next {
    server.send(&request_line(&call.id, "ping", json!({})));
    Next::Honest
}

pub(in crate::chaos) fn cancel_unknown(server: &ServerState, _: u64, _: &Call, _: &str) -> Next {
    for id in [json!(NEVER_GIVEN), json!("nobody"), json!(null), json!({"a": 1})] {
        let params = json!({"requestId": id, "reason": "changed my mind"});
        server.send(&notification_line("notifications/cancelled", &params));
    }
    Next::Honest
}

/// The id most likely allocated to another call: the next one.
fn neighbour(id: &str) -> String {
    match id.parse::<u64>() {
        Ok(number) => (number + 1).to_string(),
        Err(_) => format!("\"{}1\"", id.trim_matches('"')),
    }
}

fn write_raw(server: &ServerState, bytes: Vec<u8>) -> Next {
    if server.output.write(&[Piece::new(bytes)]).is_err() {
        die(1);
    }
    Next::Done
}
