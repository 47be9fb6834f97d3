use super::*;

fn request<'a>(id: &'a str, method: &'a str) -> Message<'a> {
    Message::Request { id: id.as_bytes(), method, subject: None }
}

fn response(id: &str) -> Message<'_> {
    Message::Response { id: id.as_bytes(), is_error: false }
}

fn sent(effects: &[Effect]) -> Vec<String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let words = effects.iter().map(|effect| match effect {
        Effect::Send { line } => text(line),
        Effect::SendAs { line, .. } => format!("{} (ours)", text(line)),
        Effect::OutcomeUnknown { id, answer } => format!("{} {answer:?}", text(id)),
        Effect::Cancel { id } => format!("cancel {}", text(id)),
        Effect::Leave => "leave".to_owned(),
    });
    words.collect()
}

/// A connector with a daemon.
fn live() -> Connector {
    let mut connector = Connector::new(7);
    connector.connected();
    assert!(connector.is_live() && connector.effects().is_empty());
    connector
}

/// The same after the client's handshake.
fn greeted() -> Connector {
    let mut connector = live();
    connector.sent(&request("1", "initialize"), b"hello");
    assert_eq!(connector.from_daemon(&response("1")), ToClient::Forward);
    let initialized = Message::Notification { method: "notifications/initialized", cancels: None };
    connector.sent(&initialized, b"ready");
    connector
}

/// The id of our own request among the effects.
fn own_id(effects: &[Effect], at: usize) -> Box<[u8]> {
    match &effects[at] {
        Effect::SendAs { id, .. } => id.clone(),
        other => panic!("{other:?}"),
    }
}

fn answer_own(connector: &mut Connector, id: &[u8], is_error: bool) -> Vec<String> {
    assert_eq!(connector.from_daemon(&Message::Response { id, is_error }), ToClient::Swallow);
    sent(&connector.effects())
}

#[test]
fn the_next_daemon_hears_what_the_last_one_knew() {
    let mut connector = greeted();
    connector.sent(&request("2", "logging/setLevel"), b"level");
    connector.from_daemon(&response("2"));
    for (id, uri) in [("3", "\"a\""), ("4", "\"b\""), ("5", "\"c\"")] {
        let subject = Some(uri.as_bytes());
        let subscribe =
            Message::Request { id: id.as_bytes(), method: "resources/subscribe", subject };
        connector.sent(&subscribe, uri.as_bytes());
        // The last of them is refused.
        let answer = Message::Response { id: id.as_bytes(), is_error: id == "5" };
        connector.from_daemon(&answer);
    }
    let unsubscribe =
        Message::Request { id: b"6", method: "resources/unsubscribe", subject: Some(b"\"a\"") };
    connector.sent(&unsubscribe, b"un");
    connector.from_daemon(&response("6"));

    assert_eq!(connector.lost(), Next::Reconnect);
    assert!(!connector.is_live());
    connector.connected();
    let effects = connector.effects();
    assert_eq!(sent(&effects), ["hello (ours)"]);
    assert!(!connector.is_live(), "nothing goes before the response");
    let told = answer_own(&mut connector, &own_id(&effects, 0), false);
    assert_eq!(told, ["ready", "level (ours)", "\"b\" (ours)"]);
    assert!(connector.is_live() && !connector.trusts_daemon());
}

#[test]
fn what_may_have_run_ends_as_unknown_and_what_is_harmless_goes_again() {
    let mut connector = greeted();
    let search =
        Message::Request { id: b"\"s\"", method: "tools/call", subject: Some(b"\"mcp_discover\"") };
    let call = Message::Request { id: b"7", method: "tools/call", subject: Some(b"\"mcp_call\"") };
    connector.sent(&call, b"call");
    connector.sent(&search, b"search");
    for (id, method) in [
        ("8", "tools/list"),
        ("9", "resources/templates/list"),
        ("10", "resources/read"),
        ("11", "prompts/get"),
        ("12", "completion/complete"),
        ("13", "server/discover"),
        ("14", "ping"),
        ("15", "tasks/cancel"),
    ] {
        connector.sent(&request(id, method), method.as_bytes());
    }
    assert_eq!(connector.lost(), Next::Reconnect);
    assert_eq!(sent(&connector.effects()), ["7 CallResult", "15 Error"]);
    connector.connected();
    let id = own_id(&connector.effects(), 0);
    let told = answer_own(&mut connector, &id, false);
    assert_eq!(
        told,
        [
            "ready",
            "search",
            "tools/list",
            "resources/templates/list",
            "resources/read",
            "prompts/get",
            "completion/complete",
            "server/discover",
            "ping"
        ]
    );
    // What was answered is not answered or sent again.
    assert_eq!(connector.from_daemon(&response("8")), ToClient::Forward);
    connector.lost();
    assert!(connector.effects().is_empty());
    connector.give_up();
    assert_eq!(connector.effects().len(), 7);
    assert_eq!(connector.waiting(), 0);
}

#[test]
fn what_ends_every_daemon_is_not_sent_forever() {
    let mut connector = live();
    connector.sent(&request("1", "tools/list"), b"poison");
    for _ in 0..2 {
        assert_eq!(connector.lost(), Next::Reconnect);
        connector.connected();
        assert_eq!(sent(&connector.effects()), ["poison"]);
    }
    assert_eq!(connector.lost(), Next::Reconnect);
    assert_eq!(sent(&connector.effects()), ["1 Error"]);
    connector.connected();
    assert!(connector.effects().is_empty());
    // And when it is not a request, the connector goes on alone.
    assert_eq!(
        [connector.lost(), connector.lost(), connector.lost()],
        [Next::Reconnect, Next::Reconnect, Next::ServeAlone]
    );
    connector.connected_alone();
    assert_eq!(connector.lost(), Next::End);
}

#[test]
fn daemons_lost_long_ago_are_not_counted() {
    for is_steady in [false, true] {
        let mut connector = live();
        let mut nexts = Vec::new();
        for _ in 0..=MAX_LOSSES {
            if is_steady {
                connector.steady();
            }
            nexts.push(connector.lost());
            connector.connected();
        }
        assert_eq!(nexts.contains(&Next::ServeAlone), !is_steady);
    }
}

#[test]
fn a_handshake_in_flight_goes_again_and_its_response_to_the_client() {
    let mut connector = live();
    connector.sent(&request("0", "initialize"), b"hello");
    connector.sent(&request("1", "tools/list"), b"list");
    connector.lost();
    connector.connected();
    assert_eq!(sent(&connector.effects()), ["hello"]);
    assert!(!connector.is_live());
    assert_eq!(connector.from_daemon(&response("0")), ToClient::Forward);
    assert_eq!(sent(&connector.effects()), ["list"]);
    assert!(connector.is_live());
}

#[test]
fn a_client_without_a_handshake_has_none_repeated() {
    let mut connector = live();
    connector.sent(&request("1", "tools/call"), b"call");
    connector.sent(&request("2", "subscriptions/listen"), b"listen");
    for _ in 0..4 {
        connector.lost();
        connector.connected();
        connector.steady();
        assert!(connector.is_live());
    }
    let told = sent(&connector.effects());
    assert_eq!(told, ["1 StatelessCallResult", "listen", "listen", "listen", "listen"]);
}

#[test]
fn a_daemon_that_refuses_the_handshake_is_left() {
    let mut connector = greeted();
    connector.lost();
    connector.connected();
    let id = own_id(&connector.effects(), 0);
    assert_eq!(answer_own(&mut connector, &id, true), ["leave"]);
}

#[test]
fn questions_of_a_lost_daemon_are_cancelled_and_late_answers_dropped() {
    let mut connector = greeted();
    for id in ["1", "2", "3"] {
        assert_eq!(
            connector.from_daemon(&request(id, "sampling/createMessage")),
            ToClient::Forward
        );
    }
    connector.sent(&response("1"), b"");
    let taken_back =
        Message::Notification { method: "notifications/cancelled", cancels: Some(b"2") };
    assert_eq!(connector.from_daemon(&taken_back), ToClient::Forward);
    connector.lost();
    assert_eq!(sent(&connector.effects()), ["cancel 3"]);
    connector.connected();
    let id = own_id(&connector.effects(), 0);
    answer_own(&mut connector, &id, false);
    // The next daemon counts from one as well: the client must be able to tell its questions apart.
    assert_eq!(connector.from_daemon(&request("1", "roots/list")), ToClient::Forward);
    let ToClient::Rename(name) = connector.from_daemon(&request("3", "roots/list")) else {
        panic!("the client may still answer the old one")
    };
    assert_eq!(connector.from_client(&response("3")), ToDaemon::Drop);
    connector.sent(&response("3"), b"");
    assert_eq!(connector.from_client(&response("2")), ToDaemon::Drop);
    let renamed = Message::Response { id: &name, is_error: false };
    assert_eq!(connector.from_client(&renamed), ToDaemon::Rename((*b"3").into()));
    connector.sent(&renamed, b"");
    assert_eq!(connector.from_client(&response("3")), ToDaemon::Forward);
    let ToClient::Rename(name) = connector.from_daemon(&request("2", "roots/list")) else {
        panic!("the client may still answer the old one")
    };
    assert_eq!(connector.from_daemon(&taken_back), ToClient::CancelAs(name));
}

#[test]
fn cancelled_requests_are_neither_answered_nor_sent_again() {
    let mut connector = live();
    connector.sent(&request("1", "tools/call"), b"call");
    connector.sent(&request("2", "tools/list"), b"list");
    for id in ["1", "2"] {
        let cancels = Some(id.as_bytes());
        connector.sent(&Message::Notification { method: "notifications/cancelled", cancels }, b"");
    }
    connector.lost();
    connector.connected();
    assert!(connector.effects().is_empty());
    assert_eq!(connector.from_daemon(&response("1")), ToClient::Forward);
}

#[test]
fn two_requests_of_one_id_have_two_answers_and_a_batch_one_each() {
    let mut connector = live();
    connector.sent(&request("1", "tools/call"), b"");
    connector.sent(&request("1", "tools/call"), b"");
    connector.sent(&request("1", "tools/call"), b"");
    connector.from_daemon(&response("1"));
    let batch = Message::Batch(vec![
        request("5", "tools/list"),
        request("6", "tools/call"),
        Message::Other,
    ]);
    assert_eq!(connector.from_client(&batch), ToDaemon::Forward);
    connector.sent(&batch, b"");
    connector.from_daemon(&Message::Batch(vec![response("6")]));
    connector.lost();
    let told = sent(&connector.effects());
    assert_eq!(told, ["1 StatelessCallResult", "1 StatelessCallResult", "5 Error"]);
}

#[test]
fn memory_is_bounded() {
    let mut connector = live();
    let long = vec![b'x'; 300 * 1024];
    connector.sent(&request("\"long\"", "tools/list"), &long);
    let ids: Vec<String> = (0..MAX_IN_FLIGHT).map(|id| id.to_string()).collect();
    for id in &ids[1..] {
        assert_eq!(connector.from_client(&request(id, "tools/list")), ToDaemon::Forward);
        connector.sent(&request(id, "tools/list"), &[b'x'; 1024]);
    }
    assert_eq!(connector.from_client(&request("1", "ping")), ToDaemon::Refuse);
    assert!(!connector.trusts_client());
    connector.lost();
    let answered = connector.effects().len();
    assert!(answered > MAX_IN_FLIGHT / 2, "only as much as fits is kept: {answered}");
    assert!(connector.trusts_client());
    // A handshake that is too long to be kept cannot be repeated, so the session ends with its daemon.
    let mut connector = live();
    connector.sent(&request("1", "initialize"), &long);
    connector.from_daemon(&response("1"));
    assert_eq!(connector.lost(), Next::End);
}

#[test]
fn after_the_clients_end_a_lost_daemon_is_the_end() {
    let mut connector = greeted();
    connector.sent(&request("2", "tools/list"), b"list");
    connector.ended();
    assert_eq!(connector.lost(), Next::End);
    assert_eq!(sent(&connector.effects()), ["2 Error"]);
}

/// What may happen, in every order up to some length.
#[derive(Debug, Clone, Copy)]
enum Event {
    Handshake,
    Call,
    List,
    Answer,
    Question,
    Reply,
    Lost,
    Own,
}

#[test]
fn every_short_history_answers_each_request_once() {
    use Event::*;
    const EVENTS: [Event; 8] = [Handshake, Call, List, Answer, Question, Reply, Lost, Own];
    const LENGTH: u32 = 6;
    for history in 0..EVENTS.len().pow(LENGTH) {
        let mut connector = live();
        // Requests in order with their lines, which of them wait, what the daemon has and not answered.
        let (mut number, mut waiting) = (0_u32, Vec::new());
        let (mut at_daemon, mut questions): (Vec<String>, u32) = (Vec::new(), 0);
        let mut calls_sent: Vec<String> = Vec::new();
        let mut rest = history;
        let mut told = Vec::new();
        for _ in 0..LENGTH {
            let event = EVENTS[rest % EVENTS.len()];
            rest /= EVENTS.len();
            told.push(event);
            match event {
                Handshake | Call | List if connector.is_live() => {
                    number += 1;
                    let id = number.to_string();
                    let method = match event {
                        Handshake => "initialize",
                        Call => "tools/call",
                        _ => "tools/list",
                    };
                    assert_eq!(connector.from_client(&request(&id, method)), ToDaemon::Forward);
                    connector.sent(&request(&id, method), id.as_bytes());
                    if method == "tools/call" {
                        calls_sent.push(id.clone());
                    }
                    at_daemon.push(id.clone());
                    waiting.push(id);
                }
                Answer | Own => {
                    let own = matches!(event, Own);
                    let found = at_daemon.iter().position(|id| id.starts_with('"') == own);
                    let Some(at) = found else { continue };
                    let id = at_daemon.remove(at);
                    match connector.from_daemon(&response(&id)) {
                        ToClient::Swallow => assert!(own, "{told:?}"),
                        ToClient::Forward => {
                            assert!(!own, "{told:?}");
                            let at = waiting.iter().position(|open| *open == id);
                            waiting.remove(at.unwrap_or_else(|| panic!("{id} twice: {told:?}")));
                        }
                        other => panic!("{other:?}: {told:?}"),
                    }
                }
                Question => {
                    questions += 1;
                    connector.from_daemon(&request(&questions.to_string(), "roots/list"));
                }
                Reply if connector.is_live() && questions > 0 => {
                    connector.sent(&response(&questions.to_string()), b"");
                }
                Lost => {
                    at_daemon.clear();
                    assert_ne!(connector.lost(), Next::End);
                    questions = 0;
                    connector.connected();
                }
                _ => {}
            }
            for effect in connector.effects() {
                match effect {
                    Effect::Send { line } => {
                        let id = String::from_utf8(line.into()).unwrap();
                        assert!(!calls_sent.contains(&id), "a call went twice: {told:?}");
                        at_daemon.push(id);
                    }
                    Effect::SendAs { id, .. } => {
                        at_daemon.push(String::from_utf8(id.into()).unwrap());
                    }
                    Effect::OutcomeUnknown { id, .. } => {
                        let id = String::from_utf8(id.into()).unwrap();
                        let at = waiting.iter().position(|open| *open == id);
                        waiting.remove(at.unwrap_or_else(|| panic!("{id} twice: {told:?}")));
                    }
                    Effect::Cancel { .. } => {}
                    Effect::Leave => panic!("nothing was refused: {told:?}"),
                }
            }
            assert_eq!(connector.waiting(), waiting.len(), "{told:?}");
            let missing = waiting.iter().find(|id| !at_daemon.contains(id));
            // Held back until the handshake is through.
            assert!(missing.is_none() || !connector.is_live(), "{missing:?} is nowhere: {told:?}");
        }
    }
}
