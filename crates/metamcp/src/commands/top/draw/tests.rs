//! The screen as snapshots, at several sizes.

use std::collections::BTreeSet;

use metamcp_engine::serve::daemon_status::{
    DaemonStatus, InstanceStatus, PoolUse, ServerCalls, ServerStatus,
};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::super::state::{Key, News};
use super::*;

const NOW: u64 = 1_000_000_000;

fn busy() -> State {
    let instance = |state: &str, in_flight| InstanceStatus {
        state: state.to_owned(),
        in_flight,
        pid: Some(9),
        memory_bytes: Some(81_200_000),
        age_ms: Some(754_000),
        ..InstanceStatus::default()
    };
    let server = |name: &str, breaker: &str, instances| ServerStatus {
        name: name.to_owned(),
        breaker: breaker.to_owned(),
        instances,
        ..ServerStatus::default()
    };
    let calls = |name: &str, calls, failed| ServerCalls {
        name: name.to_owned(),
        calls,
        failed,
        p50_us: Some(1_230),
        p99_us: Some(41_000),
        last_ms: Some(NOW),
    };
    let session = |id, client: &str| SessionStatus {
        id,
        client: client.to_owned(),
        kind: "stdio".to_owned(),
        folder: "/home/me/work".to_owned(),
        age_ms: 90_000,
        calls: 1_234,
        in_flight: 1,
        ..SessionStatus::default()
    };
    let broken = ServerStatus {
        failure: Some("its process ended with code 1 \u{1b}[2J".to_owned()),
        ..server("broken", "open", Vec::new())
    };
    let overview = Overview {
        status: DaemonStatus {
            version: "0.1.0".to_owned(),
            pid: 77,
            uptime_ms: 7_500_000,
            memory_bytes: Some(9_140_000),
            sessions: vec![session(1, "claude-code 2.0.1"), session(2, "evil\u{1b}[2J\u{202e}x 1")],
            servers: vec![
                server("github", "normal", vec![instance("active", 3), instance("idle", 0)]),
                server("a name in 日本語 that is long", "normal", vec![instance("idle", 0)]),
                broken,
                server("time", "normal", Vec::new()),
            ],
            ..DaemonStatus::default()
        },
        rates: (0..60_u32).map(|second| (second % 7 * 3, second % 5, 900)).collect(),
        p50_us: Some(1_230),
        p99_us: Some(41_000),
        calls: 12_345,
        server_calls: vec![calls("github", 12_000, 0), calls("broken", 345, 60)],
        pool: PoolUse { used: 4, size: 20, waiting: 1 },
        ..Overview::default()
    };
    let event = |number, words: &str, severity| EventRow {
        number,
        at_ms: NOW - 5_000 * (3 - number),
        severity,
        server: Some("broken".to_owned()),
        words: words.to_owned(),
        ..EventRow::default()
    };
    let events = vec![
        event(1, "starting", Severity::Info),
        event(2, "the circuit breaker opened: calls are refused for a while", Severity::Warning),
    ];
    let mut state = State::default();
    let disabled = ["off".to_owned()].into();
    state.hear(News::Overview { overview: Box::new(overview), events, disabled });
    state
}

fn drawn(state: &State, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw_at(frame, state, &mut Scroll::default(), NOW)).unwrap();
    terminal.backend().to_string()
}

#[test]
fn the_screen_at_several_sizes() {
    let state = busy();
    for (width, height) in [(120, 30), (80, 24), (40, 10)] {
        insta::assert_snapshot!(format!("main_{width}x{height}"), drawn(&state, width, height));
    }
}

#[test]
fn every_view() {
    let mut state = busy();
    insta::assert_snapshot!("empty", drawn(&State::default(), 60, 8));
    state.press(Key::Tab);
    insta::assert_snapshot!("sessions", drawn(&state, 80, 16));
    state.press(Key::Tab);
    insta::assert_snapshot!("events", drawn(&state, 80, 12));
    state.press(Key::Char('?'));
    insta::assert_snapshot!("help", drawn(&state, 80, 24));
    state.press(Key::Escape);
    state.press(Key::Tab);
    state.press(Key::Char('r'));
    insta::assert_snapshot!("question", drawn(&state, 80, 12));
    state.press(Key::Char('n'));
    state.press(Key::Char('l'));
    let server = "broken".to_owned();
    let lines = (0..40).map(|line| format!("line {line} \u{1b}[31m")).collect();
    state.hear(News::Lines { server: server.clone(), lines });
    insta::assert_snapshot!("logs", drawn(&state, 60, 10));
    state.press(Key::PageUp);
    insta::assert_snapshot!("logs_up", drawn(&state, 60, 10));
    state.press(Key::Escape);
    state.press(Key::Char('c'));
    state.hear(News::Calls { server, calls: Vec::new() });
    insta::assert_snapshot!("no_calls", drawn(&state, 60, 8));
    state.hear(News::Gone);
    insta::assert_snapshot!("gone", drawn(&state, 60, 8));
}

#[test]
fn no_size_and_no_view_breaks_the_drawing() {
    let mut states = vec![State::default(), busy()];
    for keys in ["l", "c", "?", "r", "2", "3", "/x"] {
        let mut state = busy();
        keys.chars().for_each(|key| drop(state.press(Key::Char(key))));
        let server = "broken".to_owned();
        state.hear(News::Lines { server: server.clone(), lines: vec!["x".to_owned(); 50] });
        state.hear(News::Calls { server, calls: vec![CallRow::default(); 50] });
        states.push(state);
    }
    for state in &states {
        for width in (1..=10).chain([20, 40, 53, 79, 80, 200]) {
            for height in (1..=12).chain([16, 17, 23, 24, 60]) {
                let shown = drawn(state, width, height);
                assert!(!shown.contains('\u{1b}') && !shown.contains('\u{202e}'), "{shown}");
            }
        }
    }
}

#[test]
fn what_matters_most_stays_longest() {
    let titles = |width| fitting(width).iter().map(|one| one.title).collect::<Vec<_>>();
    assert_eq!(titles(20), Vec::<&str>::new());
    assert_eq!(titles(40), ["state", "calls", "/s"]);
    assert_eq!(titles(200).len(), COLUMNS.len());
    assert!(titles(80).contains(&"p99") && titles(80).contains(&"breaker"));
}

#[test]
fn a_list_moves_only_when_the_selected_row_would_not_be_seen() {
    let names: Vec<String> = (10..60).map(|number| format!("server-{number}")).collect();
    let server = |name: &String| ServerStatus {
        name: name.clone(),
        instances: vec![InstanceStatus { state: "idle".to_owned(), ..InstanceStatus::default() }],
        ..ServerStatus::default()
    };
    let status =
        DaemonStatus { servers: names.iter().map(server).collect(), ..DaemonStatus::default() };
    let overview = Box::new(Overview { status, ..Overview::default() });
    let mut state = State::default();
    state.hear(News::Overview { overview, events: Vec::new(), disabled: BTreeSet::new() });
    let mut scroll = Scroll::default();
    let mut terminal = Terminal::new(TestBackend::new(80, 16)).unwrap();
    let mut shown = |state: &State| -> Vec<String> {
        terminal.draw(|frame| draw_at(frame, state, &mut scroll, NOW)).unwrap();
        let screen = terminal.backend().to_string();
        let words = screen.split(|sign: char| !sign.is_alphanumeric() && sign != '-');
        words.filter(|word| word.starts_with("server-")).map(str::to_owned).collect()
    };
    let top = shown(&state);
    assert_eq!(top[0], names[0]);
    let rows = top.len();
    for _ in 0..30 {
        state.press(Key::Down);
        shown(&state);
    }
    let down = shown(&state);
    assert_eq!(down.last(), Some(&names[30]), "the selected one came in from below");
    // Up again, nothing moves before the selection is at the top.
    for _ in 1..rows {
        state.press(Key::Up);
        assert_eq!(shown(&state), down);
    }
    state.press(Key::Up);
    assert_eq!(shown(&state)[0], names[30 - rows]);
}
