//! The screen of `metamcp top` as a value: what is selected, filtered, asked. Pure: keys and news in, effects out.

use std::collections::{BTreeSet, VecDeque};

use metamcp_engine::history::{CallRow, EventRow};
use metamcp_engine::serve::daemon_status::{Overview, SessionStatus};

use crate::commands::server_rows::{self, RowState, ServerRow, Sort, Trend};

/// Lines of a log and events that are kept to scroll through.
const MAX_LINES: usize = 2_000;
const MAX_EVENTS: usize = 500;
/// Longest filter that can be typed.
const MAX_FILTER: usize = 60;
/// How far a page goes.
const PAGE: usize = 10;

/// A key, as far as it means something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    Escape,
    Tab,
    BackTab,
    Backspace,
    /// Ctrl-C.
    Interrupt,
}

/// What has to be done outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Effect {
    Quit,
    Restart(String),
    /// Enables or disables a server.
    Switch {
        server: String,
        on: bool,
    },
    /// Something else is looked at: see [`State::subject`].
    Look,
}

/// What came from the daemon.
#[derive(Debug, Clone)]
pub(super) enum News {
    Overview {
        overview: Box<Overview>,
        events: Vec<EventRow>,
        disabled: BTreeSet<String>,
    },
    /// More lines of the log that is looked at.
    Lines {
        server: String,
        lines: Vec<String>,
    },
    Calls {
        server: String,
        calls: Vec<CallRow>,
    },
    /// No daemon is there.
    Gone,
    /// An effect was carried out, or not: in words.
    Done(String),
}

/// What is listed in the main view.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Pane {
    #[default]
    Servers,
    Sessions,
    Events,
}

impl Pane {
    pub(super) const ALL: [Pane; 3] = [Pane::Servers, Pane::Sessions, Pane::Events];

    pub(super) fn word(self) -> &'static str {
        match self {
            Pane::Servers => "Servers",
            Pane::Sessions => "Sessions",
            Pane::Events => "Events",
        }
    }

    fn at(self) -> usize {
        Pane::ALL.iter().position(|pane| *pane == self).unwrap_or(0)
    }
}

/// What fills the screen.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) enum View {
    #[default]
    Main,
    Logs(LogView),
    /// The calls of one server.
    Calls {
        server: String,
        calls: Vec<CallRow>,
        selected: usize,
    },
}

/// The log of one server.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct LogView {
    pub(super) server: String,
    pub(super) lines: VecDeque<String>,
    /// How many lines from the end the view is; 0 follows.
    pub(super) up: usize,
    /// Whether an answer came at all.
    pub(super) is_read: bool,
}

/// What typing means right now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Mode {
    #[default]
    Normal,
    Filter,
    Help,
    /// A question to be answered with y.
    Ask(Effect),
}

/// Whose details the worker has to ask for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Subject {
    #[default]
    None,
    Logs(String),
    Calls(String),
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub(super) struct State {
    pub(super) overview: Option<Box<Overview>>,
    pub(super) is_gone: bool,
    pub(super) pane: Pane,
    pub(super) view: View,
    pub(super) mode: Mode,
    pub(super) sort: Sort,
    pub(super) filter: String,
    pub(super) events: VecDeque<EventRow>,
    pub(super) notice: Option<String>,
    /// Sorted and filtered.
    pub(super) servers: Vec<ServerRow>,
    pub(super) sessions: Vec<SessionStatus>,
    /// The selected row of each pane.
    selected: [usize; 3],
    /// The selected server, which moves when rows are sorted anew.
    anchor: Option<String>,
    disabled: BTreeSet<String>,
    trend: Trend,
    /// The daemon whose events these are.
    daemon: u32,
}

impl State {
    pub(super) fn selected(&self) -> usize {
        self.selected[self.pane.at()]
    }

    pub(super) fn server(&self) -> Option<&ServerRow> {
        self.servers.get(self.selected[Pane::Servers.at()])
    }

    /// How many rows a pane has.
    pub(super) fn count(&self, pane: Pane) -> usize {
        match pane {
            Pane::Servers => self.servers.len(),
            Pane::Sessions => self.sessions.len(),
            Pane::Events => self.events.len(),
        }
    }

    /// What the worker has to ask for beside the overview.
    pub(super) fn subject(&self) -> Subject {
        match &self.view {
            View::Main => Subject::None,
            View::Logs(log) => Subject::Logs(log.server.clone()),
            View::Calls { server, .. } => Subject::Calls(server.clone()),
        }
    }

    pub(super) fn hear(&mut self, news: News) {
        match news {
            News::Overview { overview, events, disabled } => {
                self.is_gone = false;
                if std::mem::replace(&mut self.daemon, overview.status.pid) != overview.status.pid {
                    self.events.clear();
                }
                self.trend.add(&overview);
                self.overview = Some(overview);
                self.disabled = disabled;
                // Who reads further down stays at the same event.
                let reads = &mut self.selected[Pane::Events.at()];
                *reads += if *reads > 0 { events.len() } else { 0 };
                for event in events {
                    if self.events.len() >= MAX_EVENTS {
                        self.events.pop_back();
                    }
                    // The newest first.
                    self.events.push_front(event);
                }
                self.arrange();
            }
            News::Lines { server, lines } => {
                if let View::Logs(log) = &mut self.view
                    && log.server == server
                {
                    log.is_read = true;
                    // Who reads further up stays where they are.
                    if log.up > 0 {
                        log.up += lines.len();
                    }
                    log.lines.extend(lines);
                    let excess = log.lines.len().saturating_sub(MAX_LINES);
                    log.lines.drain(..excess);
                    log.up = log.up.min(log.lines.len().saturating_sub(1));
                }
            }
            News::Calls { server, calls: new } => {
                if let View::Calls { server: own, calls, selected } = &mut self.view
                    && *own == server
                {
                    let anchor = calls.get(*selected).map(|one| one.id).filter(|_| *selected > 0);
                    *calls = new;
                    calls.reverse();
                    let found = calls.iter().position(|one| Some(one.id) == anchor);
                    *selected = found.unwrap_or(0);
                }
            }
            News::Gone => self.is_gone = true,
            News::Done(words) => self.notice = Some(words),
        }
    }

    /// Rows as they are sorted and filtered now, with the same one selected as before.
    fn arrange(&mut self) {
        let Some(overview) = &self.overview else { return };
        let mut rows = self.trend.rows(overview, &self.disabled);
        rows.retain(|row| server_rows::fits(&row.name, &self.filter));
        server_rows::sort(&mut rows, self.sort);
        self.servers = rows;
        self.sessions.clone_from(&overview.status.sessions);
        self.sessions.retain(|one| {
            server_rows::fits(&format!("{} {} {}", one.client, one.kind, one.folder), &self.filter)
        });
        if let Some(at) = self
            .anchor
            .as_ref()
            .and_then(|name| self.servers.iter().position(|row| row.name == *name))
        {
            self.selected[Pane::Servers.at()] = at;
        }
        for pane in Pane::ALL {
            let last = self.count(pane).saturating_sub(1);
            let at = &mut self.selected[pane.at()];
            *at = (*at).min(last);
        }
        self.anchor = self.server().map(|row| row.name.clone());
    }

    /// What a key does.
    pub(super) fn press(&mut self, key: Key) -> Option<Effect> {
        if key == Key::Interrupt {
            return Some(Effect::Quit);
        }
        match std::mem::take(&mut self.mode) {
            Mode::Help => None,
            Mode::Ask(effect) => {
                let agrees = matches!(key, Key::Char('y' | 'Y'));
                self.notice = (!agrees).then(|| "Nothing was changed.".to_owned());
                agrees.then_some(effect)
            }
            Mode::Filter => {
                self.typed(key);
                None
            }
            Mode::Normal => {
                self.notice = None;
                match &self.view {
                    View::Main => self.press_main(key),
                    View::Logs(_) => self.press_logs(key),
                    View::Calls { .. } => self.press_calls(key),
                }
            }
        }
    }

    fn typed(&mut self, key: Key) {
        self.mode = Mode::Filter;
        match key {
            Key::Enter => self.mode = Mode::Normal,
            Key::Escape => {
                self.filter.clear();
                self.mode = Mode::Normal;
            }
            Key::Backspace => drop(self.filter.pop()),
            Key::Char(c) if !c.is_control() && self.filter.chars().count() < MAX_FILTER => {
                self.filter.push(c);
            }
            Key::Up | Key::Down => self.step(key),
            _ => {}
        }
        self.arrange();
    }

    fn press_main(&mut self, key: Key) -> Option<Effect> {
        match key {
            Key::Char('q') => return Some(Effect::Quit),
            Key::Char('?' | 'h') => self.mode = Mode::Help,
            Key::Char('/') => self.mode = Mode::Filter,
            Key::Escape => {
                self.filter.clear();
                self.arrange();
            }
            Key::Tab | Key::Char('\t') => self.turn(1),
            Key::BackTab => self.turn(Pane::ALL.len() - 1),
            Key::Char(digit @ '1'..='3') => {
                let at = digit as usize - '1' as usize;
                self.pane = Pane::ALL.get(at).copied().unwrap_or_default();
            }
            Key::Char('s') => {
                self.sort = self.sort.next();
                self.arrange();
                self.notice = Some(format!("sorted by {}", self.sort.word()));
            }
            Key::Enter | Key::Char('l' | 'c' | 'r' | 'd') => return self.act(key),
            _ => self.step(key),
        }
        None
    }

    /// Something about the selected server.
    fn act(&mut self, key: Key) -> Option<Effect> {
        let server = match self.pane {
            Pane::Servers => self.server()?.name.clone(),
            // An event is of a server too.
            Pane::Events => self.events.get(self.selected())?.server.clone()?,
            Pane::Sessions => return None,
        };
        let is_disabled = self.disabled.contains(&server)
            && !self
                .servers
                .iter()
                .any(|row| row.name == server && row.state != RowState::Disabled);
        match key {
            Key::Char('c') => {
                self.view = View::Calls { server, calls: Vec::new(), selected: 0 };
                return Some(Effect::Look);
            }
            Key::Char('r') if is_disabled => {
                self.notice = Some(format!("{server} is disabled; d enables it"));
            }
            Key::Char('r') => self.mode = Mode::Ask(Effect::Restart(server)),
            Key::Char('d') => self.mode = Mode::Ask(Effect::Switch { server, on: is_disabled }),
            _ => {
                self.view = View::Logs(LogView { server, ..LogView::default() });
                return Some(Effect::Look);
            }
        }
        None
    }

    fn turn(&mut self, by: usize) {
        let next = (self.pane.at() + by) % Pane::ALL.len();
        self.pane = Pane::ALL.get(next).copied().unwrap_or_default();
    }

    fn step(&mut self, key: Key) {
        let (pane, count) = (self.pane.at(), self.count(self.pane));
        self.selected[pane] = moved(self.selected[pane], count, key);
        if self.pane == Pane::Servers {
            self.anchor = self.server().map(|row| row.name.clone());
        }
    }

    fn press_logs(&mut self, key: Key) -> Option<Effect> {
        if let Some(effect) = self.leaves(key) {
            return effect;
        }
        let View::Logs(log) = &mut self.view else { return None };
        let last = log.lines.len().saturating_sub(1);
        log.up = match key {
            Key::Up | Key::Char('k') => log.up + 1,
            Key::Down | Key::Char('j') => log.up.saturating_sub(1),
            Key::PageUp => log.up + PAGE,
            Key::PageDown => log.up.saturating_sub(PAGE),
            Key::Home | Key::Char('g') => last,
            Key::End | Key::Char('G' | 'f') => 0,
            _ => log.up,
        }
        .min(last);
        None
    }

    fn press_calls(&mut self, key: Key) -> Option<Effect> {
        if let Some(effect) = self.leaves(key) {
            return effect;
        }
        let View::Calls { calls, selected, .. } = &mut self.view else { return None };
        if key == Key::Enter {
            let call = calls.get(*selected)?.id;
            self.notice = Some(format!("metamcp calls show {call} draws its timeline"));
            return None;
        }
        *selected = moved(*selected, calls.len(), key);
        None
    }

    /// Keys that mean the same in every view of one server.
    #[expect(clippy::option_option, reason = "whether it was such a key, and what follows from it")]
    fn leaves(&mut self, key: Key) -> Option<Option<Effect>> {
        match key {
            Key::Char('q') | Key::Escape | Key::Backspace => {
                self.view = View::Main;
                Some(Some(Effect::Look))
            }
            Key::Char('?' | 'h') => {
                self.mode = Mode::Help;
                Some(None)
            }
            _ => None,
        }
    }

    /// The question that waits for an answer, in words.
    pub(super) fn question(&self) -> Option<String> {
        let Mode::Ask(effect) = &self.mode else { return None };
        Some(match effect {
            Effect::Restart(server) => {
                format!("Restart {server}? Calls in progress finish first. [y/n]")
            }
            Effect::Switch { server, on: true } => {
                format!("Enable {server} in the config file? [y/n]")
            }
            Effect::Switch { server, on: false } => {
                format!("Disable {server} in the config file, for all clients? [y/n]")
            }
            Effect::Quit | Effect::Look => return None,
        })
    }
}

/// Where a key leads in a list.
fn moved(at: usize, count: usize, key: Key) -> usize {
    let last = count.saturating_sub(1);
    match key {
        Key::Up | Key::Char('k') => at.saturating_sub(1),
        Key::Down | Key::Char('j') => at + 1,
        Key::PageUp => at.saturating_sub(PAGE),
        Key::PageDown => at + PAGE,
        Key::Home | Key::Char('g') => 0,
        Key::End | Key::Char('G') => last,
        _ => at,
    }
    .min(last)
}

#[cfg(test)]
mod tests;
