//! What a connection makes of a server's output.

use metamcp_types::escalation::Escalation;
use metamcp_types::slab::Key;

use super::*;
use crate::upstream::transport::Boxed;

/// Records what it receives.
#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl Listener for Heard {
    fn now(&self) -> Moment {
        Moment::millis(7)
    }

    fn on_response(&self, _: &Arc<Connection>, number: u64, reply: Reply) {
        let what = match reply {
            Reply::Result(result) => String::from_utf8_lossy(&result).into_owned(),
            Reply::Error(_) => "error".to_owned(),
            Reply::Malformed(_) => "malformed".to_owned(),
            Reply::Oversize(_) => "oversize".to_owned(),
            Reply::Broke { fact, .. } => fact.to_string(),
        };
        self.0.lock().push(format!("{number}: {what}"));
    }

    fn on_notification(&self, _: &Arc<Connection>, method: &str, _: Option<&[u8]>) {
        self.0.lock().push(method.to_owned());
    }

    fn on_session_renewed(&self, _: &Arc<Connection>) {}

    fn on_request(
        &self,
        conn: &Arc<Connection>,
        id: Bytes,
        _: &str,
        _: Option<&[u8]>,
        _: Option<u64>,
    ) {
        conn.refuse(&id, -32601, "not here");
    }
}

/// A transport to nowhere.
#[derive(Debug)]
struct Nowhere;

impl Transport for Nowhere {
    fn serve<'a>(
        &'a self,
        _: &'a Arc<Connection>,
        _: &'a Arc<dyn Listener>,
    ) -> Boxed<'a, Option<Fact>> {
        Box::pin(std::future::ready(None))
    }

    fn ended(&self) -> Boxed<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn close(&self, _escalation: Escalation) -> Boxed<'_, ()> {
        self.ended()
    }

    fn kill(&self) {}

    fn probe_patience(&self) -> Duration {
        Duration::ZERO
    }
}

fn connection() -> Arc<Connection> {
    let id = ConnId(Key::from_number(Key::FIRST).expect("the first key"));
    Arc::new(Connection::new(
        id,
        ServerId(0),
        "a".into(),
        Arc::new(Nowhere),
        (Moment::START, Moment::START),
    ))
}

/// What the listener receives of this output, with `#1#` for the id of the first call and so on, and why the connection
/// ends.
async fn hear(written: &str) -> (Vec<String>, Fact) {
    let connection = connection();
    let mut written = written.to_owned();
    for call in 1..=3 {
        written = written.replace(&format!("#{call}#"), &connection.id_for(call).to_string());
    }
    let heard = Heard::default();
    let fact = connection.read_from(written.as_bytes(), 1024, &heard).await;
    (heard.0.into_inner(), fact)
}

fn result(call: u64, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":#{call}#,"result":{result}}}"#)
}

#[tokio::test]
async fn one_invalid_part_of_a_batch_costs_only_itself() {
    let both = r#"{"jsonrpc":"2.0","id":#2#,"result":1,"error":{}}"#;
    let batch = format!("[{},7,{both},{{}},{}]\n", result(1, "1"), result(3, "3"));
    let (heard, fact) = hear(&batch).await;
    assert_eq!(heard, ["1: 1", "2: malformed", "3: 3"]);
    assert_eq!(fact, Fact::OutputClosed);
}

#[tokio::test]
async fn an_oversized_response_fails_only_its_own_call() {
    let long = result(1, &format!("\"{}\"", "x".repeat(2000)));
    let (heard, fact) = hear(&format!("{long}\n{}\n", result(2, "{}"))).await;
    assert_eq!(heard, ["1: oversize", "2: {}"]);
    assert_eq!(fact, Fact::OutputClosed);
}

#[tokio::test]
async fn a_server_that_only_prints_is_given_up() {
    let (heard, fact) = hear(&"hello\n".repeat(200)).await;
    assert_eq!(heard, [""; 0]);
    assert_eq!(fact, Fact::Garbage { lines: MAX_INVALID_LINES + 1 });
    let (_, fact) = hear(&format!("{{}}{}", "hello\n".repeat(90))).await;
    assert_eq!(fact, Fact::OutputClosed, "some is tolerated");
}

#[tokio::test]
async fn a_flood_of_server_requests_from_a_server_that_never_reads_costs_no_memory() {
    for method in ["ping", "sampling/createMessage"] {
        let question = format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"{method}\"}}\n");
        let connection = connection();
        let flood = question.repeat(50_000);
        connection.read_from(flood.as_bytes(), 1024, &Heard::default()).await;
        assert!(connection.outbox.backlog() < 2 * MAX_UNREAD_BYTES, "{method}");
    }
}

#[tokio::test]
async fn the_last_line_may_lack_its_newline() {
    let (heard, _) = hear(&result(1, "[]")).await;
    assert_eq!(heard, ["1: []"]);
}

#[tokio::test]
async fn ids_are_unpredictable_and_fit_into_32_bits() {
    let connection = connection();
    let ids: Vec<u64> = (0..10_000).map(|call| connection.id_for(call)).collect();
    assert!(ids.iter().all(|id| (1..=MAX_ID).contains(id)));
    let distinct: HashSet<&u64> = ids.iter().collect();
    assert_eq!(distinct.len(), ids.len());
    // Neither in order nor at a repeating distance: of ten thousand steps hardly two are equal.
    let steps: HashSet<i128> =
        ids.windows(2).map(|pair| i128::from(pair[1]) - i128::from(pair[0])).collect();
    assert!(steps.len() > 9_900, "{} different steps", steps.len());
    let other: Vec<u64> = (0..100).map(|call| self::connection().id_for(call)).collect();
    assert!(!ids.starts_with(&other[..2]), "another connection has others");
}

#[tokio::test]
async fn unsolicited_and_repeated_responses_are_dropped() {
    let (connection, heard) = (connection(), Heard::default());
    let (first, second) = (connection.id_for(1), connection.id_for(2));
    assert_eq!(connection.forget_call(2), Some(second));
    let answer = |id: u64| format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}\n");
    let unasked = (1..100).filter(|id| *id != first).map(answer).collect::<String>();
    // Each once: after its response a request is no longer pending.
    let said = [unasked, answer(second), answer(first), answer(first)].concat();
    connection.read_from(said.as_bytes(), 1024, &heard).await;
    assert_eq!(heard.0.into_inner(), ["1: {}"]);
}

#[tokio::test]
async fn a_client_response_that_is_not_json_becomes_an_error() {
    let connection = connection();
    let forged = b"{}}\n{\"jsonrpc\":\"2.0\",\"method\":\"x\"}";
    connection.answer(b"7", &Reply::Result(Bytes::from_static(forged)));
    connection.answer(b"8\n9", &Reply::Result(Bytes::from_static(b"{}")));
    connection.notify("x", Some(forged));
    drop(connection.request("x", Some(forged)));
    connection.outbox.close();
    let mut written = Vec::new();
    drop(connection.outbox.write_to(&mut written, None).await);
    assert_eq!(
        String::from_utf8(written).unwrap(),
        "{\"jsonrpc\":\"2.0\",\"id\":7,\"error\":{\"code\":-32603,\"message\":\"the client's response is not valid JSON\"}}\n"
    );
}
