//! What a server writes, and what is heard of it.

use super::*;

/// Writes down what it hears.
#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl Listener for Heard {
    fn answered(&self, _: &Arc<Connection>, number: u64, reply: Reply) {
        let what = match reply {
            Reply::Result(result) => String::from_utf8_lossy(&result).into_owned(),
            Reply::Error(_) => "error".to_owned(),
            Reply::Malformed(_) => "malformed".to_owned(),
            Reply::Oversize(_) => "oversize".to_owned(),
            Reply::Broke { fact, .. } => fact.to_string(),
        };
        self.0.lock().expect("no panic").push(format!("{}: {what}", number - FIRST_CALL));
    }

    fn notified(&self, _: &Arc<Connection>, method: &str, _: Option<&[u8]>) {
        self.0.lock().expect("no panic").push(method.to_owned());
    }

    fn renewed(&self, _: &Arc<Connection>) {}

    fn asked(&self, conn: &Arc<Connection>, id: Bytes, _: &str, _: Option<&[u8]>, _: Option<u64>) {
        conn.refuse(&id, -32601, "not here");
    }
}

/// What is heard of a server that writes this, and why its connection ends.
async fn hear(written: &[u8]) -> (Vec<String>, Fact) {
    let id = ConnId(Key::from_number(Key::FIRST).expect("the first key"));
    let connection = Connection::new(id, ServerId(0), "a".into(), StderrTail::default());
    let heard = Heard::default();
    let fact = Arc::new(connection).read_from(written, 1024, &heard).await;
    (heard.0.into_inner().expect("no panic"), fact)
}

fn result(call: u64, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, FIRST_CALL + call)
}

#[tokio::test]
async fn one_bad_part_of_a_batch_costs_only_itself() {
    let both = format!(r#"{{"jsonrpc":"2.0","id":{},"result":1,"error":{{}}}}"#, FIRST_CALL + 2);
    let batch = format!("[{},7,{both},{{}},{}]\n", result(1, "1"), result(3, "3"));
    let (heard, fact) = hear(batch.as_bytes()).await;
    assert_eq!(heard, ["1: 1", "2: malformed", "3: 3"]);
    assert_eq!(fact, Fact::OutputClosed);
}

#[tokio::test]
async fn an_answer_that_is_too_long_fails_its_own_call() {
    let long = result(1, &format!("\"{}\"", "x".repeat(2000)));
    let (heard, fact) = hear(format!("{long}\n{}\n", result(2, "{}")).as_bytes()).await;
    assert_eq!(heard, ["1: oversize", "2: {}"]);
    assert_eq!(fact, Fact::OutputClosed);
}

#[tokio::test]
async fn a_server_that_only_prints_is_given_up() {
    let (heard, fact) = hear("hello\n".repeat(200).as_bytes()).await;
    assert_eq!(heard, [""; 0]);
    assert_eq!(fact, Fact::Garbage { lines: GARBAGE_LINES + 1 });
    let (_, fact) = hear(format!("{{}}{}", "hello\n".repeat(90)).as_bytes()).await;
    assert_eq!(fact, Fact::OutputClosed, "some is tolerated");
}

#[tokio::test]
async fn a_server_that_asks_and_asks_and_never_reads_costs_no_memory() {
    for method in ["ping", "sampling/createMessage"] {
        let question = format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"{method}\"}}\n");
        let id = ConnId(Key::from_number(Key::FIRST).expect("the first key"));
        let connection = Connection::new(id, ServerId(0), "a".into(), StderrTail::default());
        let connection = Arc::new(connection);
        let flood = question.repeat(50_000);
        connection.read_from(flood.as_bytes(), 1024, &Heard::default()).await;
        assert!(connection.outbox.backlog() < 2 * REPLY_BACKLOG, "{method}");
    }
}

#[tokio::test]
async fn the_last_line_may_lack_its_newline() {
    let (heard, _) = hear(result(1, "[]").as_bytes()).await;
    assert_eq!(heard, ["1: []"]);
}
