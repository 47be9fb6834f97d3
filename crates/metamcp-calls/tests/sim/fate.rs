//! The fate of one process and of one call on it, drawn when it begins.

use std::time::Duration;

use metamcp_calls::failure::Fact;

use crate::plan::Behaviour;
use crate::rng::Rng;

/// How a start goes.
#[derive(Debug)]
pub(crate) enum Start {
    Ready {
        after: Duration,
    },
    /// It shows activity at intervals before it is ready.
    Slow {
        every: Duration,
        signs: u64,
    },
    Fails {
        after: Duration,
        fact: Fact,
    },
    Hangs,
}

/// How a call goes.
#[derive(Debug)]
pub(crate) enum Fate {
    /// It runs and is answered.
    Answered {
        ran: Duration,
        reply: Duration,
        error: bool,
        /// How many progress notifications it sends before.
        progress: u64,
        /// It sends a server request before, and waits this long.
        asks: Option<Duration>,
        /// The process dies afterwards.
        last: bool,
    },
    /// It gets no response, though it may run.
    Hangs { ran: Option<Duration> },
    /// The process dies during the call.
    Dies { after: Duration, written: bool, ran: bool },
    /// The process stops reading in the middle of it, and is given up.
    Stalls { after: Duration },
    /// The engine cannot even begin to send it.
    Refused,
}

pub(crate) fn of_start(rng: &mut Rng, behaviour: &Behaviour, calm: bool) -> Start {
    let after = rng.span(behaviour.start.0, behaviour.start.1);
    if calm {
        return Start::Ready { after: Duration::from_millis(1) };
    }
    if rng.chance(behaviour.start_fails) {
        let (fact, after) = match rng.below(8) {
            0 | 1 => {
                (Fact::SpawnFailed { reason: "no such file".into() }, Duration::from_micros(100))
            }
            2 => (Fact::HandshakeRefused { reason: "too old".into() }, after),
            3 => (Fact::HttpStatus { status: 401 }, after),
            4 => (Fact::Garbage { lines: 100 }, after),
            _ => (Fact::Exited { code: Some(1), signal: None }, after),
        };
        return Start::Fails { after, fact };
    }
    if rng.chance(behaviour.start_slow) {
        if rng.chance(300) {
            return Start::Hangs;
        }
        return Start::Slow { every: rng.span(20, 2000), signs: rng.between(1, 8) };
    }
    Start::Ready { after }
}

pub(crate) fn of_call(rng: &mut Rng, behaviour: &Behaviour, calm: bool) -> Fate {
    let mut reply = rng.span(behaviour.service.0, behaviour.service.1);
    if calm {
        reply = Duration::from_millis(1);
    }
    let ran = reply / 1000 * u32::try_from(rng.between(1, 1000)).unwrap_or(1);
    let usual = Fate::Answered { ran, reply, error: false, progress: 0, asks: None, last: false };
    if calm {
        return usual;
    }
    if rng.chance(behaviour.refused) {
        return Fate::Refused;
    }
    if rng.chance(behaviour.dies_in_call) {
        return match rng.below(5) {
            0 => Fate::Dies { after: reply, written: false, ran: false },
            1 => Fate::Dies { after: reply, written: true, ran: false },
            2 => Fate::Stalls { after: rng.span(5, 2000) },
            3 => Fate::Answered { ran, reply, error: false, progress: 0, asks: None, last: true },
            _ => Fate::Dies { after: reply, written: true, ran: true },
        };
    }
    if rng.chance(behaviour.odd_call) {
        let reply = rng.span(20, 8000);
        return match rng.below(6) {
            0 => Fate::Hangs { ran: None },
            1 => Fate::Hangs { ran: Some(rng.span(1, 8000)) },
            2 => {
                let progress = rng.between(1, 20);
                Fate::Answered { ran, reply, error: false, progress, asks: None, last: false }
            }
            3 => {
                let asks = Some(rng.span(1, 3000));
                Fate::Answered { ran, reply, error: false, progress: 0, asks, last: false }
            }
            4 => Fate::Answered { ran, reply, error: false, progress: 0, asks: None, last: false },
            _ => Fate::Answered { ran, reply, error: true, progress: 0, asks: None, last: false },
        };
    }
    usual
}

/// How long a process takes to exit once it was ordered to stop.
pub(crate) fn of_end(rng: &mut Rng, behaviour: &Behaviour, calm: bool) -> Duration {
    if !calm && rng.chance(behaviour.slow_death) {
        return if rng.chance(900) { rng.span(50, 1550) } else { rng.span(1550, 15_000) };
    }
    Duration::from_micros(rng.between(1, 5000))
}
