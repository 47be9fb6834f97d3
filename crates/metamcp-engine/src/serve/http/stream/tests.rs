use http_body_util::BodyExt;

use super::*;

fn event(text: &str) -> Event {
    Event::whole(Bytes::from(format!("{text}\n")))
}

async fn frame(reader: &mut Reader) -> Option<String> {
    let frame = reader.frame().await?.unwrap();
    Some(String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap())
}

#[tokio::test]
async fn an_answer_alone_is_no_stream() {
    let stream = Stream::awaiting(1, true, None);
    let mut reader = stream.read(None);
    assert!(stream.answer(event("a")));
    assert!(matches!(
        reader.first(&ConnectionTimer::default(), KEEP_ALIVE).await,
        First::Answer(_)
    ));
    assert!(!stream.is_worth_keeping());
}

#[tokio::test]
async fn events_carry_ids_and_can_be_read_again() {
    let stream = Stream::awaiting(1, true, None);
    let mut reader = stream.read(None);
    stream.push(event("one"));
    assert!(matches!(reader.first(&ConnectionTimer::default(), KEEP_ALIVE).await, First::Events));
    let number = stream.number();
    let text = frame(&mut reader).await.unwrap();
    assert_eq!(text, format!("id: {number}-1\nevent: message\ndata: one\n\n"));
    drop(reader);
    stream.push(event("two"));
    stream.answer(event("three"));
    assert!(stream.is_worth_keeping());
    let mut reader = stream.read(Some(1));
    let rest = frame(&mut reader).await.unwrap();
    assert_eq!(
        rest,
        format!(
            "id: {number}-2\nevent: message\ndata: two\n\nid: {number}-3\nevent: message\ndata: three\n\n"
        )
    );
    assert_eq!(frame(&mut reader).await, None);
    // From the very start, and from a place that never was.
    let all: Vec<Event> = stream.read(Some(0)).all().await;
    assert_eq!(all.len(), 3);
    assert_eq!(stream.read(Some(u64::MAX)).all().await.len(), 0);
    let plain = EventId { stream: number, position: 2, requests: Vec::new() };
    assert_eq!(from_event_id(&format!("{number}-2")), Some(plain));
    assert_eq!(from_event_id("x-2"), None);
}

#[tokio::test]
async fn only_the_newest_reader_reads() {
    let stream = Stream::general(true);
    let mut old = stream.read(None);
    let mut new = stream.read(None);
    stream.push(event("x"));
    assert_eq!(frame(&mut old).await, None);
    assert!(frame(&mut new).await.unwrap().contains("data: x\n\n"));
    drop(old);
    assert!(stream.is_read());
    drop(new);
    assert!(!stream.is_read());
}

#[tokio::test]
async fn what_is_kept_is_bounded_and_counted() {
    let stream = Stream::general(true);
    let mut reader = stream.read(None);
    for number in 0..1000 {
        stream.push(event(&format!("{number:0>5000}")));
        assert!(reader.ready().is_some());
    }
    stream.push(Event::parts(Bytes::new(), Bytes::from(vec![b'x'; 2 * RING_BYTES]), b"\n"));
    assert_eq!(stream.backlog(), 2 * RING_BYTES + 1);
    assert_eq!(stream.lock().events.len(), RING_EVENTS + 1);
    assert!(reader.ready().is_some());
    let state = stream.lock();
    assert_eq!((state.events.len(), state.kept, state.unsent), (0, 0, 0));
    assert_eq!(state.first, state.next);
}

#[tokio::test]
async fn a_large_event_is_passed_on_without_a_copy() {
    let stream = Stream::general(false);
    let mut reader = stream.read(None);
    let large = Bytes::from(vec![b'y'; 100_000]);
    stream.push(Event::parts(Bytes::from_static(b"<"), large.clone(), b">\n"));
    stream.close();
    let mut pieces = Vec::new();
    while let Some(frame) = reader.frame().await {
        pieces.push(frame.unwrap().into_data().unwrap());
    }
    assert_eq!(pieces[1].as_ptr(), large.as_ptr());
    assert_eq!(pieces[2], ">\n\n");
}

#[tokio::test(start_paused = true)]
async fn silence_is_broken_by_comments() {
    let stream = Stream::general(true);
    let mut reader = stream.read(None);
    reader.prime();
    assert_eq!(
        frame(&mut reader).await.unwrap(),
        format!("id: {}-0\nretry: 1000\ndata: \n\n", stream.number())
    );
    for _ in 0..3 {
        assert_eq!(frame(&mut reader).await.unwrap(), ": keep-alive\n\n");
    }
}

#[tokio::test]
async fn leaving_early_is_noticed_and_leaving_late_is_not() {
    let left = Arc::new(AtomicU64::new(0));
    let leave = |left: &Arc<AtomicU64>| -> OnDisconnect {
        let left = Arc::clone(left);
        Box::new(move || {
            left.fetch_add(1, Ordering::Relaxed);
        })
    };
    let stream = Stream::awaiting(1, false, None);
    drop(stream.read(None).on_disconnect(leave(&left)));
    assert_eq!(left.load(Ordering::Relaxed), 1);
    stream.answer(event("done"));
    drop(stream.read(None).on_disconnect(leave(&left)));
    assert_eq!(left.load(Ordering::Relaxed), 1);
}

#[test]
fn the_ticket_is_given_back_with_the_last_answer_and_whoever_reads_it() {
    let held = Arc::new(());
    let stream = Stream::awaiting(2, true, Some(Arc::new(Arc::clone(&held))));
    let reader = stream.read(None);
    stream.answer(event("one"));
    stream.miss();
    assert_eq!(Arc::strong_count(&held), 2, "the answer was not read");
    drop(reader);
    assert_eq!(Arc::strong_count(&held), 1);
}

#[test]
fn an_event_id_of_a_fleet_says_which_requests_it_is_about() {
    let tags = [Bytes::from_static(b"7"), Bytes::from_static(br#""a-b""#)];
    let stream = Stream::awaiting_named(&tags, true, None);
    let mut out = BytesMut::new();
    stream.write_id(&mut out, 3);
    let text = String::from_utf8(out.to_vec()).unwrap();
    let id = from_event_id(text.trim().strip_prefix("id: ").unwrap()).unwrap();
    assert_eq!(id, EventId { stream: stream.number(), position: 3, requests: tags.to_vec() });
    for wrong in ["1-2-", "1-2-!", "1-2-W3t9XQ", "1-2-W251bGxd", "1-2-MQ"] {
        assert_eq!(from_event_id(wrong), None, "{wrong}");
    }
    let long = Bytes::from(format!("\"{}\"", "x".repeat(MAX_ABOUT)));
    assert!(Stream::awaiting_named(&[long], true, None).about.is_none());
}

#[test]
fn each_process_of_a_fleet_counts_in_a_range_of_its_own() {
    for process in [0, 1, 77, u64::MAX] {
        let first = range_of(process);
        assert!(
            first > 0
                && first + (1 << COUNTING) <= EXACT + 1
                && first.is_multiple_of(1 << COUNTING)
        );
    }
    assert_ne!(range_of(1), range_of(2));
}
