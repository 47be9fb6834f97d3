//! The machine between clients and daemons, with the buffers that a real connector has.

use std::collections::{BTreeMap, VecDeque};

use metamcp_calls::connector::{Connector, Effect, Message, Next, ToClient, ToDaemon};

use crate::client::Client;
use crate::daemon::{Daemon, Session};
use crate::rng::Rng;

/// After so many steps something goes round in circles.
const MAX_STEPS: u32 = 40_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Line {
    Request { id: String, method: String, subject: Option<u64>, key: u64 },
    Notification { method: String, cancels: Option<String> },
    Response { id: String, is_error: bool, key: u64 },
    Batch(Vec<Line>),
    Garbage,
}

impl Line {
    /// The subject of a call that is a search.
    pub(crate) const SEARCH: u64 = 1;
    /// The key of an answer of the connector itself.
    pub(crate) const UNKNOWN: u64 = 0;

    pub(crate) fn id(&self) -> Option<&str> {
        match self {
            Line::Request { id, .. } | Line::Response { id, .. } => Some(id),
            _ => None,
        }
    }

    pub(crate) fn key(&self) -> Option<u64> {
        match self {
            Line::Request { key, .. } | Line::Response { key, .. } => Some(*key),
            _ => None,
        }
    }

    pub(crate) fn is(&self, wanted: &str) -> bool {
        matches!(self, Line::Request { method, .. } if method == wanted)
    }

    pub(crate) fn is_search(&self) -> bool {
        matches!(self, Line::Request { subject: Some(Line::SEARCH), .. })
    }

    fn renamed(mut self, new: &[u8]) -> Line {
        let new = String::from_utf8(new.to_vec()).expect("an id is text");
        if let Line::Request { id, .. } | Line::Response { id, .. } = &mut self {
            *id = new;
        }
        self
    }

    fn glance(&self) -> Message<'_> {
        /// Text of the subjects that occur, so that a message can borrow it.
        const SUBJECTS: [&str; 8] =
            ["\"0\"", "\"mcp_discover\"", "\"2\"", "\"3\"", "\"4\"", "\"5\"", "\"6\"", "\"7\""];
        match self {
            Line::Request { id, method, subject, .. } => Message::Request {
                id: id.as_bytes(),
                method,
                subject: subject.and_then(|at| Some(SUBJECTS.get(at as usize)?.as_bytes())),
            },
            Line::Notification { method, cancels } => {
                Message::Notification { method, cancels: cancels.as_ref().map(String::as_bytes) }
            }
            Line::Response { id, is_error, .. } => {
                Message::Response { id: id.as_bytes(), is_error: *is_error }
            }
            Line::Batch(lines) => Message::Batch(lines.iter().map(Line::glance).collect()),
            Line::Garbage => Message::Other,
        }
    }
}

macro_rules! sights {
    ($($name:ident),+ $(,)?) => {
        /// What the runs came by: a simulation that never sees something proves nothing about it.
        #[derive(Debug, Default)]
        pub(crate) struct Sights { $(pub(crate) $name: u64),+ }
        impl Sights {
            pub(crate) fn join(&mut self, other: &Sights) { $(self.$name += other.$name;)+ }
            pub(crate) fn missed(&self) -> Vec<&'static str> {
                [$((self.$name, stringify!($name))),+].iter().filter(|(seen, _)| *seen == 0).map(|(_, name)| *name).collect()
            }
        }
    };
}
sights!(
    unknown,
    questions,
    late_answers,
    refused_handshake,
    kills,
    half_lines,
    handovers,
    alone,
    renamed,
    dropped,
    swallowed,
    resent,
    states_compared,
    cancelled_questions
);

struct Seat {
    client: Client,
    connector: Connector,
    /// What the client wrote and the connector has not sent.
    up: VecDeque<usize>,
    /// What the connector says of its own accord, which goes first.
    own: VecDeque<Line>,
    /// Daemon and session.
    at: Option<(usize, usize)>,
    wants_daemon: bool,
    must_be_alone: bool,
    is_closed: bool,
    has_told_end: bool,
    is_done: bool,
}

pub(crate) struct World {
    rng: Rng,
    lines: Vec<Line>,
    daemons: Vec<Daemon>,
    seats: Vec<Seat>,
    keys: u64,
    runs: BTreeMap<u64, u32>,
    kills: u64,
    pub(crate) sights: Sights,
    pub(crate) story: Vec<String>,
}

impl World {
    pub(crate) fn new(seed: u64) -> World {
        let mut rng = Rng::of(seed, 7, 0);
        let seats = (0..rng.between(1, 4)).map(|number| Seat {
            client: Client::new(&mut Rng::of(seed, 8, number)),
            connector: Connector::new(rng.next()),
            up: VecDeque::new(),
            own: VecDeque::new(),
            at: None,
            wants_daemon: true,
            must_be_alone: false,
            is_closed: false,
            has_told_end: false,
            is_done: false,
        });
        let seats = seats.collect();
        let kills = rng.below(9);
        World {
            rng,
            lines: Vec::new(),
            daemons: Vec::new(),
            seats,
            keys: 0,
            runs: BTreeMap::new(),
            kills,
            sights: Sights::default(),
            story: Vec::new(),
        }
    }

    pub(crate) fn run(&mut self) -> Result<(), String> {
        for _ in 0..MAX_STEPS {
            if self.seats.iter().all(|seat| seat.is_done) {
                return Ok(());
            }
            let seat = self.rng.size(0, self.seats.len() - 1);
            if !self.seats[seat].is_done {
                self.step(seat)?;
                self.compare(seat)?;
            }
        }
        Err("it does not end".into())
    }

    fn step(&mut self, seat: usize) -> Result<(), String> {
        match self.rng.below(100) {
            0..=19 => self.client_speaks(seat),
            20..=24 => {
                let line = self.seats[seat].client.reply(&mut self.rng, &mut self.sights);
                self.written(seat, line);
            }
            25..=54 => self.pump(seat)?,
            55..=79 => self.daemon_acts(seat)?,
            80..=94 => self.hear_daemon(seat)?,
            95 => self.kill(seat),
            96 => self.hand_over(),
            _ => self.connect(seat),
        }
        Ok(())
    }

    fn client_speaks(&mut self, seat: usize) {
        let client = &mut self.seats[seat].client;
        if client.left == 0 && self.rng.chance(100) {
            self.seats[seat].is_closed = true;
        }
        if self.seats[seat].is_closed {
            return;
        }
        let line = self.seats[seat].client.speak(&mut self.rng, &mut self.keys);
        self.written(seat, line);
    }

    fn written(&mut self, seat: usize, line: Option<Line>) {
        if let Some(line) = line.filter(|_| !self.seats[seat].is_closed) {
            self.story.push(format!("{seat} client: {line:?}"));
            self.lines.push(line);
            self.seats[seat].up.push_back(self.lines.len() - 1);
        }
    }

    /// The connector writes one line to the daemon, or half of one.
    fn pump(&mut self, seat: usize) -> Result<(), String> {
        let Some((daemon, session)) = self.seats[seat].at else { return Ok(()) };
        let is_alive = self.daemons[daemon].is_alive;
        if is_alive && self.kills > 0 && self.rng.chance(10) {
            // The daemon dies while a line is written: it was not sent.
            self.sights.half_lines += 1;
            self.die(daemon);
            return Ok(());
        }
        let me = &mut self.seats[seat];
        if let Some(line) = me.own.pop_front() {
            self.story.push(format!("{seat} own: {line:?}"));
            if is_alive {
                self.daemons[daemon].sessions[session].inbox.push_back(line);
            }
            return Ok(());
        }
        if !me.connector.is_live() {
            return Ok(());
        }
        let Some(&index) = me.up.front() else {
            if me.is_closed && !me.has_told_end && is_alive {
                me.has_told_end = true;
                me.connector.ended();
                self.daemons[daemon].sessions[session].input_ended = true;
            }
            return Ok(());
        };
        let line = self.lines[index].clone();
        let message = line.glance();
        let verdict = me.connector.from_client(&message);
        if me.connector.trusts_client() && verdict != ToDaemon::Forward {
            return Err(format!("{verdict:?} where every line was to be forwarded"));
        }
        self.story.push(format!("{seat} up: {line:?} {verdict:?}"));
        let to_send = match verdict {
            ToDaemon::Forward => Some(line.clone()),
            ToDaemon::Rename(id) => Some(line.clone().renamed(&id)),
            ToDaemon::Drop => {
                self.sights.dropped += 1;
                None
            }
            ToDaemon::Refuse => return Err("refused".into()),
        };
        if to_send.is_some() && !is_alive && self.rng.chance(500) {
            // It could not be written.
            return Ok(());
        }
        me.up.pop_front();
        me.connector.sent(&message, index.to_string().as_bytes());
        if let Some(line) = to_send.filter(|_| is_alive) {
            self.daemons[daemon].sessions[session].inbox.push_back(line);
        }
        Ok(())
    }

    fn daemon_acts(&mut self, seat: usize) -> Result<(), String> {
        let Some((daemon, session)) = self.seats[seat].at else { return Ok(()) };
        if !self.daemons[daemon].is_alive {
            return Ok(());
        }
        match self.rng.below(10) {
            0..=4 => {
                let stateless = self.seats[seat].client.is_stateless;
                let mut ran = Vec::new();
                self.daemons[daemon].read(session, stateless, &mut ran)?;
                for key in ran {
                    let runs = self.runs.entry(key).or_default();
                    *runs += 1;
                    if *runs > 1 {
                        return Err(format!("the request with the key {key} ran twice"));
                    }
                }
            }
            5..=8 => self.daemons[daemon].answer(session, &mut self.rng, &mut self.sights),
            _ => self.daemons[daemon].speak(session, &mut self.rng, &mut self.keys),
        }
        let daemon = &mut self.daemons[daemon];
        let state = &mut daemon.sessions[session];
        if state.input_ended && state.inbox.is_empty() && state.working.is_empty() {
            state.closed = true;
        }
        if daemon.is_draining && daemon.is_idle() {
            daemon.is_alive = false;
        }
        Ok(())
    }

    fn hear_daemon(&mut self, seat: usize) -> Result<(), String> {
        let Some((daemon, session)) = self.seats[seat].at else { return Ok(()) };
        let is_alive = self.daemons[daemon].is_alive;
        let state = &mut self.daemons[daemon].sessions[session];
        let Some(line) = state.outbox.pop_front() else {
            if !is_alive || state.closed {
                self.lost(seat)?;
            }
            return Ok(());
        };
        let me = &mut self.seats[seat];
        let was_trusted = me.connector.trusts_daemon();
        let verdict = me.connector.from_daemon(&line.glance());
        self.story.push(format!("{seat} down: {line:?} {verdict:?}"));
        if was_trusted && verdict != ToClient::Forward {
            return Err(format!("{verdict:?} where every line was to be forwarded"));
        }
        match verdict {
            ToClient::Forward => me.client.hear(&line, &mut self.sights)?,
            ToClient::Rename(id) => {
                self.sights.renamed += 1;
                me.client.hear(&line.renamed(&id), &mut self.sights)?;
            }
            ToClient::CancelAs(id) => {
                let cancels = Some(String::from_utf8(id.to_vec()).expect("text"));
                let method = "notifications/cancelled".to_owned();
                me.client.hear(&Line::Notification { method, cancels }, &mut self.sights)?;
            }
            ToClient::Swallow => self.sights.swallowed += 1,
        }
        self.effects(seat)
    }

    fn lost(&mut self, seat: usize) -> Result<(), String> {
        let me = &mut self.seats[seat];
        me.at = None;
        me.own.clear();
        let next = me.connector.lost();
        self.story.push(format!("{seat} lost: {next:?}"));
        match next {
            Next::Reconnect => me.wants_daemon = true,
            Next::ServeAlone => {
                me.wants_daemon = true;
                me.must_be_alone = true;
            }
            Next::End => {}
        }
        self.effects(seat)?;
        let me = &mut self.seats[seat];
        if next == Next::End {
            me.is_done = true;
            if me.client.waiting() > 0 && me.has_told_end {
                return Err(format!("{} requests have no answer at the end", me.client.waiting()));
            }
            if me.connector.waiting() > 0 {
                return Err("the connector still counts requests at the end".into());
            }
        }
        Ok(())
    }

    fn effects(&mut self, seat: usize) -> Result<(), String> {
        let me = &mut self.seats[seat];
        let line_of = |line: &[u8]| -> Line {
            let index: usize = std::str::from_utf8(line).expect("text").parse().expect("an index");
            self.lines[index].clone()
        };
        let mut leaves = false;
        for effect in me.connector.effects() {
            self.story.push(format!("{seat} effect: {effect:?}"));
            match effect {
                Effect::Send { line } => {
                    self.sights.resent += 1;
                    me.own.push_back(line_of(&line));
                }
                Effect::SendAs { line, id } => me.own.push_back(line_of(&line).renamed(&id)),
                Effect::OutcomeUnknown { id, .. } => {
                    let id = String::from_utf8(id.to_vec()).expect("text");
                    let answer = Line::Response { id, is_error: true, key: Line::UNKNOWN };
                    me.client.hear(&answer, &mut self.sights)?;
                }
                Effect::Cancel { id } => {
                    self.sights.cancelled_questions += 1;
                    let cancels = Some(String::from_utf8(id.to_vec()).expect("text"));
                    let method = "notifications/cancelled".to_owned();
                    me.client.hear(&Line::Notification { method, cancels }, &mut self.sights)?;
                }
                Effect::Leave => leaves = true,
            }
        }
        if leaves {
            let (daemon, session) = me.at.expect("a daemon refused");
            self.daemons[daemon].sessions[session].closed = true;
            return self.lost(seat);
        }
        Ok(())
    }

    fn connect(&mut self, seat: usize) {
        let me = &mut self.seats[seat];
        if !me.wants_daemon || me.at.is_some() || self.rng.chance(300) {
            return;
        }
        me.wants_daemon = false;
        let is_alone = me.must_be_alone || (self.sights.kills > 0 && self.rng.chance(20));
        let taken = self.daemons.iter().rposition(|daemon| daemon.is_alive && !daemon.is_draining);
        let daemon = match taken {
            Some(daemon) if !is_alone => daemon,
            _ => {
                self.daemons.push(Daemon::started());
                self.daemons.len() - 1
            }
        };
        if is_alone {
            // Nobody else finds it, and nobody kills it without its connector.
            self.sights.alone += 1;
            self.daemons[daemon].is_draining = true;
            me.connector.connected_alone();
        } else {
            me.connector.connected();
        }
        let is_repeated = !me.connector.is_live();
        self.daemons[daemon].sessions.push(Session::taken(is_repeated));
        me.at = Some((daemon, self.daemons[daemon].sessions.len() - 1));
        self.story.push(format!("{seat} connects to {daemon}"));
        self.effects(seat).expect("connecting sends only");
    }

    fn kill(&mut self, seat: usize) {
        if let Some((daemon, _)) = self.seats[seat].at {
            self.die(daemon);
        }
    }

    fn die(&mut self, daemon: usize) {
        if self.kills == 0 || !self.daemons[daemon].is_alive {
            return;
        }
        self.kills -= 1;
        self.sights.kills += 1;
        self.story.push(format!("daemon {daemon} dies"));
        self.daemons[daemon].is_alive = false;
        for session in &mut self.daemons[daemon].sessions {
            // What it wrote before can be read, up to some line of which only half arrived.
            let keep = self.rng.size(0, session.outbox.len());
            session.outbox.truncate(keep);
            session.inbox.clear();
        }
    }

    fn hand_over(&mut self) {
        let taken = self.daemons.iter().rposition(|daemon| daemon.is_alive && !daemon.is_draining);
        if let Some(daemon) = taken.filter(|_| self.rng.chance(100)) {
            self.sights.handovers += 1;
            self.daemons[daemon].is_draining = true;
            self.daemons.push(Daemon::started());
        }
    }

    /// When nothing is under way, the daemon knows of the session what the client believes.
    fn compare(&mut self, seat: usize) -> Result<(), String> {
        let me = &self.seats[seat];
        let Some((daemon, session)) = me.at else { return Ok(()) };
        let state = &self.daemons[daemon].sessions[session];
        let is_quiet = self.daemons[daemon].is_alive
            && !state.closed
            && me.connector.is_live()
            && me.up.is_empty()
            && me.own.is_empty()
            && state.inbox.is_empty()
            && state.working.is_empty()
            && state.outbox.is_empty();
        if !is_quiet {
            return Ok(());
        }
        if me.client.waiting() > 0 {
            return Err(format!("nothing happens and {} requests wait", me.client.waiting()));
        }
        self.sights.states_compared += 1;
        let client = &me.client;
        let believed = (client.level, &client.subscriptions, client.is_initialized);
        let known = (state.level, &state.subscriptions, state.is_initialized);
        if believed != known {
            return Err(format!("the client believes {believed:?}, the daemon knows {known:?}"));
        }
        Ok(())
    }
}
