//! `metamcp top`: the daemon live, on a screen of its own or as a line of JSON per second.
//! Owns: the terminal while it runs, and that it is restored.      Never: decides what a key means (`state` does), starts a daemon.
//! In: keys, the admin API.  Out: a screen; JSON; requests to restart, enable and disable.
//! Tests: `top/state/tests.rs`, `top/draw.rs`, `tests/daemon/top.rs` in a pseudo-terminal.

mod draw;
mod state;
mod tty;
mod worker;

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError};
use std::time::Duration;

use anyhow::bail;
use metamcp_config::settings::Given;
use ratatui::crossterm::event::{self, Event};
use serde_json::{Value, json};

use self::state::{Effect, State};
use self::worker::Order;
use super::live::{self, Heard, Live, Watch};
use crate::args::TopArgs;
use crate::exit::{Exit, misuse};

/// How often everything is asked for.
const REFRESH: Duration = Duration::from_secs(1);
/// How long keys are waited for before news are looked at.
const TICK: Duration = Duration::from_millis(100);

pub(crate) fn run(
    home: &Path,
    given: Vec<Given>,
    args: TopArgs,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    if args.json {
        return lines(home, args, out);
    }
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(misuse(
            "`metamcp top` needs a terminal; without one use `metamcp top --json` or `metamcp status`",
        ));
    }
    if let Err(absent) = Live::open(home)? {
        return Ok(live::absent(&absent, false, out)?);
    }
    let (orders, news) = worker::start(home.to_owned(), given)?;
    let mut tty = tty::Tty::open()?;
    let ended = watch(&mut tty, &orders, &news);
    // Before an error is printed.
    drop(tty);
    ended.map(|()| Exit::Success)
}

/// One overview per line.
fn lines(home: &Path, args: TopArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let mut live = match Live::open(home)? {
        Ok(live) => live,
        Err(absent) => return Ok(live::absent(&absent, true, out)?),
    };
    let mut watch = Watch::new(&live);
    loop {
        match live.ask::<Value>("overview", &json!({ "seconds": 60 }))? {
            Heard::Answer(overview) => {
                watch.is_another(&live)?;
                writeln!(out, "{overview}")?;
                out.flush()?;
            }
            Heard::Refused(refused) => bail!("{refused}"),
            Heard::Gone if args.once => bail!("the daemon has ended"),
            Heard::Gone => watch.gone()?,
        }
        if args.once {
            return Ok(Exit::Success);
        }
        std::thread::sleep(REFRESH);
    }
}

/// Draws what changed and does what keys say, until one says to end.
fn watch(
    tty: &mut tty::Tty,
    orders: &SyncSender<Order>,
    news: &Receiver<state::News>,
) -> anyhow::Result<()> {
    let mut state = State::default();
    let mut has_changed = true;
    while !tty.is_over() {
        loop {
            match news.try_recv() {
                Ok(news) => state.hear(news),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    bail!("the daemon's state cannot be read any more")
                }
            }
            has_changed = true;
        }
        if has_changed {
            tty.draw(&state)?;
        }
        has_changed = event::poll(TICK)?;
        // All that was typed, before it is drawn.
        while event::poll(Duration::ZERO)? {
            let Event::Key(key) = event::read()? else { continue };
            let Some(key) = tty::key(key) else { continue };
            let order = match state.press(key) {
                None => continue,
                Some(Effect::Quit) => return Ok(()),
                Some(Effect::Look) => Order::Look(state.subject()),
                Some(Effect::Restart(server)) => Order::Restart(server),
                Some(Effect::Switch { server, on }) => Order::Switch { server, on },
            };
            if orders.try_send(order).is_err() {
                state.notice = Some("busy with what was asked before; try again".to_owned());
            }
        }
    }
    Ok(())
}
