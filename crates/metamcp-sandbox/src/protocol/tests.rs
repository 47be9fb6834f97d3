use proptest::prelude::*;

use super::*;

fn error() -> ScriptError {
    ScriptError {
        name: "TypeError".into(),
        message: "x is not a function".into(),
        line: Some(3),
        column: Some(u32::MAX),
        stack: "at f (3:1)".into(),
        tool_error: Some("{}".into()),
    }
}

fn from_worker() -> Vec<FromWorker> {
    let done = |end| FromWorker::Done { end, cpu: 17 };
    vec![
        FromWorker::Ready {
            layers: vec!["seccomp".into(), "landlock".into()],
            missing: vec![MissingLayer { layer: "x".into(), reason: "no such system call".into() }],
        },
        FromWorker::Request { id: 7, op: Op::ResultsPut, payload: "{\"value\":\"ü\"}".into() },
        FromWorker::Log { level: Level::Warn, text: String::new() },
        FromWorker::LogsDropped { bytes: u64::MAX },
        FromWorker::Progress { value: 0.5, total: None, message: Some("half".into()) },
        FromWorker::Progress { value: f64::NEG_INFINITY, total: Some(-0.0), message: None },
        done(End::Ok { value: "null".into() }),
        done(End::Error(error())),
        done(End::Deadlock),
        done(End::MemoryLimit(ScriptError::default())),
        done(End::CpuLimit),
        done(End::ResultLimit { bytes: 1 << 40 }),
    ]
}

fn to_worker() -> Vec<ToWorker> {
    let limits =
        WorkerLimits { cpu: 1, heap: 2, stack: 3, sleep: 4, logs: 5, result: u64::MAX, calls: 7 };
    let servers = vec![
        Server { name: "git hub".into(), identifiers: vec!["gitHub".into(), "git_hub".into()] },
        Server { name: String::new(), identifiers: Vec::new() },
    ];
    vec![
        ToWorker::Job { code: "return 1".into(), limits, servers },
        ToWorker::Reply { id: 0, answer: Ok("{}".into()) },
        ToWorker::Reply { id: u32::MAX, answer: Err("{\"message\":\"no\"}".into()) },
    ]
}

/// Every message as a frame, without the length.
fn samples() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for message in from_worker() {
        let mut out = Vec::new();
        message.encode(&mut out);
        assert_eq!(FromWorker::decode(&out[HEADER..]).as_ref(), Ok(&message));
        all.push(out.split_off(HEADER));
    }
    for message in to_worker() {
        let mut out = Vec::new();
        message.encode(&mut out);
        assert_eq!(ToWorker::decode(&out[HEADER..]).as_ref(), Ok(&message));
        all.push(out.split_off(HEADER));
    }
    all
}

#[test]
fn every_message_comes_back_as_it_was() {
    assert_eq!(samples().len(), from_worker().len() + to_worker().len());
}

#[test]
fn a_frame_cut_anywhere_or_with_something_after_it_is_refused() {
    for frame in samples() {
        for cut in 0..frame.len() {
            // A cut frame may by chance be a message of the other direction, never of its own.
            let (from, to) = (FromWorker::decode(&frame), ToWorker::decode(&frame));
            if from.is_ok() {
                FromWorker::decode(&frame[..cut]).unwrap_err();
            }
            if to.is_ok() {
                ToWorker::decode(&frame[..cut]).unwrap_err();
            }
        }
        let mut longer = frame;
        longer.push(0);
        FromWorker::decode(&longer).unwrap_err();
        ToWorker::decode(&longer).unwrap_err();
    }
}

#[test]
fn a_length_above_the_bound_is_refused_before_its_bytes_come() {
    let mut frames = Frames::default();
    frames.push(&u32::try_from(MAX_FRAME + 1).unwrap().to_le_bytes());
    assert_eq!(frames.next_frame(), Err(ProtocolViolation::TooLong { length: MAX_FRAME + 1 }));
    let mut frames = Frames::default();
    frames.push(&u32::try_from(MAX_FRAME).unwrap().to_le_bytes());
    assert_eq!(frames.next_frame(), Ok(None));
}

#[test]
fn a_list_is_refused_by_its_count_alone() {
    let mut out = Vec::new();
    out.push(1);
    out.extend_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(
        FromWorker::decode(&out),
        Err(ProtocolViolation::TooMany { field: "layers", count: u32::MAX as usize })
    );
}

#[test]
fn frames_come_out_whole_however_they_arrive() {
    let mut stream = Vec::new();
    for frame in samples() {
        stream.extend_from_slice(&u32::try_from(frame.len()).unwrap().to_le_bytes());
        stream.extend_from_slice(&frame);
    }
    for step in [1, 2, 3, 5, 64, stream.len()] {
        let mut frames = Frames::default();
        let mut seen = Vec::new();
        for piece in stream.chunks(step) {
            frames.push(piece);
            while let Some(frame) = frames.next_frame().unwrap() {
                seen.push(frame.to_vec());
            }
        }
        assert_eq!(seen, samples());
        assert_eq!(frames.waiting(), 0);
    }
}

proptest! {
    #[test]
    fn changed_bytes_never_panic(pick in 0_usize..15, at in any::<prop::sample::Index>(), byte: u8) {
        let mut all = samples();
        let frame = &mut all[pick];
        let at = at.index(frame.len());
        frame[at] = byte;
        if let Ok(message) = FromWorker::decode(frame) {
            let mut out = Vec::new();
            message.encode(&mut out);
            prop_assert_eq!(&out[HEADER..], &frame[..]);
        }
        if let Ok(message) = ToWorker::decode(frame) {
            let mut out = Vec::new();
            message.encode(&mut out);
            prop_assert_eq!(&out[HEADER..], &frame[..]);
        }
    }
}
