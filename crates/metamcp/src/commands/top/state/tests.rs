//! The screen over many histories.

use metamcp_engine::history::EventRow;
use metamcp_engine::serve::daemon_status::{DaemonStatus, ServerCalls, ServerStatus};

use super::*;

fn overview(names: &[&str]) -> News {
    let servers = names
        .iter()
        .map(|name| ServerStatus { name: (*name).to_owned(), ..ServerStatus::default() });
    let calls = names.iter().enumerate().map(|(at, name)| ServerCalls {
        name: (*name).to_owned(),
        calls: at as u64,
        ..ServerCalls::default()
    });
    let session = SessionStatus { client: "claude".to_owned(), ..SessionStatus::default() };
    let overview = Overview {
        status: DaemonStatus {
            pid: 7,
            servers: servers.collect(),
            sessions: vec![session],
            ..DaemonStatus::default()
        },
        server_calls: calls.collect(),
        ..Overview::default()
    };
    let event = EventRow { server: Some("b".to_owned()), ..EventRow::default() };
    News::Overview {
        overview: Box::new(overview),
        events: vec![event],
        disabled: ["off".to_owned()].into(),
    }
}

fn ready() -> State {
    let mut state = State::default();
    state.hear(overview(&["a", "b", "c"]));
    state
}

fn press(state: &mut State, keys: &str) -> Vec<Effect> {
    keys.chars().filter_map(|key| state.press(Key::Char(key))).collect()
}

fn shown(state: &State) -> Vec<&str> {
    state.servers.iter().map(|row| &*row.name).collect()
}

#[test]
fn the_selected_server_stays_selected_when_rows_move() {
    let mut state = ready();
    assert_eq!(shown(&state), ["a", "b", "c", "off"]);
    press(&mut state, "j");
    assert_eq!(state.server().unwrap().name, "b");
    state.hear(overview(&["0", "1", "b"]));
    assert_eq!((state.server().unwrap().name.as_str(), state.selected()), ("b", 2));
    // By name, then by calls.
    press(&mut state, "ss");
    assert_eq!((shown(&state)[0], state.server().unwrap().name.as_str()), ("b", "b"));
    // It is gone: something else is selected.
    state.hear(overview(&["z"]));
    assert!(state.server().is_some());
}

#[test]
fn nothing_is_restarted_or_switched_without_a_yes() {
    let restart = Effect::Restart("a".to_owned());
    let mut state = ready();
    assert_eq!(press(&mut state, "r"), []);
    assert!(state.question().unwrap().contains("Restart a?"));
    assert_eq!(press(&mut state, "n"), []);
    assert_eq!(press(&mut state, "ry"), [restart]);
    assert_eq!(state.mode, Mode::Normal);
    assert_eq!(press(&mut state, "dy"), [Effect::Switch { server: "a".to_owned(), on: false }]);
    // The disabled one cannot be restarted, and is enabled.
    press(&mut state, "G");
    assert_eq!(press(&mut state, "ry"), []);
    assert_eq!(press(&mut state, "dy"), [Effect::Switch { server: "off".to_owned(), on: true }]);
    // Whatever else is typed is a no.
    for key in [Key::Enter, Key::Escape, Key::Up, Key::Char('r'), Key::Char('q')] {
        press(&mut state, "gd");
        assert_eq!(state.press(key), None, "{key:?}");
    }
    assert_eq!(
        press(&mut state, "r").len() + usize::from(state.press(Key::Interrupt).is_some()),
        1
    );
}

#[test]
fn a_filter_is_typed_and_cleared() {
    let mut state = ready();
    press(&mut state, "/q");
    assert_eq!((shown(&state).len(), state.mode == Mode::Filter), (0, true), "q is a letter here");
    state.press(Key::Backspace);
    press(&mut state, "b");
    state.press(Key::Enter);
    assert_eq!(shown(&state), ["b"]);
    assert_eq!(press(&mut state, "ry"), [Effect::Restart("b".to_owned())]);
    state.press(Key::Escape);
    assert_eq!(shown(&state).len(), 4);
    press(&mut state, &format!("/{}", "x".repeat(500)));
    assert_eq!(state.filter.len(), MAX_FILTER);
}

#[test]
fn a_log_follows_until_somebody_scrolls() {
    let mut state = ready();
    assert_eq!(state.press(Key::Enter), Some(Effect::Look));
    assert_eq!(state.subject(), Subject::Logs("a".to_owned()));
    let lines = |server: &str, count: usize| News::Lines {
        server: server.to_owned(),
        lines: (0..count).map(|line| line.to_string()).collect(),
    };
    state.hear(lines("b", 5));
    let up = |state: &State| match &state.view {
        View::Logs(log) => (log.lines.len(), log.up),
        _ => panic!(),
    };
    assert_eq!(up(&state), (0, 0), "lines of another one come late");
    state.hear(lines("a", 10));
    state.press(Key::Up);
    state.press(Key::Up);
    state.hear(lines("a", 3));
    assert_eq!(up(&state), (13, 5), "what is read stays in place");
    press(&mut state, "f");
    state.hear(lines("a", 3));
    assert_eq!(up(&state), (16, 0));
    state.press(Key::Home);
    state.hear(lines("a", 10_000));
    assert_eq!(up(&state), (MAX_LINES, MAX_LINES - 1));
    assert_eq!(press(&mut state, "q"), [Effect::Look]);
    assert_eq!((state.view.clone(), state.subject()), (View::Main, Subject::None));
}

#[test]
fn calls_are_newest_first_and_the_selected_one_stays() {
    let mut state = ready();
    assert_eq!(press(&mut state, "c"), [Effect::Look]);
    let calls = |ids: std::ops::Range<u64>| News::Calls {
        server: "a".to_owned(),
        calls: ids.map(|id| CallRow { id, ..CallRow::default() }).collect(),
    };
    let selected = |state: &State| match &state.view {
        View::Calls { calls, selected, .. } => calls[*selected].id,
        _ => panic!(),
    };
    state.hear(calls(1..5));
    assert_eq!(selected(&state), 4);
    state.hear(calls(1..7));
    assert_eq!(selected(&state), 6, "the newest, until one moves");
    press(&mut state, "jj");
    state.hear(calls(2..9));
    assert_eq!(selected(&state), 4);
    state.press(Key::Enter);
    assert!(state.notice.as_ref().unwrap().contains("calls show 4"));
}

#[test]
fn events_of_a_server_lead_to_it_and_another_daemon_begins_anew() {
    let mut state = ready();
    press(&mut state, "3");
    assert_eq!((state.pane, press(&mut state, "l")), (Pane::Events, vec![Effect::Look]));
    assert_eq!(state.subject(), Subject::Logs("b".to_owned()));
    state.hear(News::Gone);
    assert!(state.is_gone);
    let News::Overview { mut overview, .. } = overview(&["x"]) else { panic!() };
    overview.status.pid = 8;
    state.hear(News::Overview { overview, events: Vec::new(), disabled: BTreeSet::new() });
    assert!(!state.is_gone && state.events.is_empty());
}

/// Whatever is typed and heard in whatever order: selections stay within their lists, buffers within their bounds.
#[test]
fn no_history_breaks_the_screen() {
    let keys = [
        Key::Char('j'),
        Key::Char('k'),
        Key::Up,
        Key::Down,
        Key::PageUp,
        Key::PageDown,
        Key::Home,
        Key::End,
        Key::Enter,
        Key::Escape,
        Key::Tab,
        Key::BackTab,
        Key::Backspace,
        Key::Char('l'),
        Key::Char('c'),
        Key::Char('r'),
        Key::Char('d'),
        Key::Char('s'),
        Key::Char('/'),
        Key::Char('?'),
        Key::Char('q'),
        Key::Char('y'),
        Key::Char('a'),
        Key::Char('1'),
        Key::Char('2'),
        Key::Char('3'),
        Key::Char('f'),
        Key::Interrupt,
    ];
    let names = ["a", "b", "c", "d", "off", "a b"];
    for seed in 0..300_u64 {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = |most: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random % most as u64) as usize
        };
        let mut state = State::default();
        for _ in 0..200 {
            match next(8) {
                0 => state.hear(overview(&names[..next(names.len() + 1)])),
                1 => {
                    let server = names[next(names.len())].to_owned();
                    state.hear(News::Lines { server, lines: vec!["x".to_owned(); next(900)] });
                }
                2 => {
                    let calls = (0..next(9) as u64).map(|id| CallRow { id, ..CallRow::default() });
                    let server = names[next(names.len())].to_owned();
                    state.hear(News::Calls { server, calls: calls.collect() });
                }
                3 => state.hear(News::Gone),
                _ => {
                    let asked = matches!(state.mode, Mode::Ask(_));
                    match state.press(keys[next(keys.len())]) {
                        Some(Effect::Restart(_) | Effect::Switch { .. }) => assert!(asked),
                        Some(Effect::Quit | Effect::Look) | None => {}
                    }
                }
            }
            for pane in Pane::ALL {
                let at = state.selected[pane.at()];
                assert!(at == 0 || at < state.count(pane), "{seed}: {pane:?} {at}");
            }
            assert!(state.events.len() <= MAX_EVENTS);
            if let View::Logs(log) = &state.view {
                assert!(log.lines.len() <= MAX_LINES && log.up <= log.lines.len());
            }
        }
    }
}
