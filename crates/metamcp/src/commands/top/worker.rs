//! Asks the daemon while the screen goes on: a daemon that takes its time never holds up a key.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};

use metamcp_config::config::{SWITCHED_OFF, ServerState};
use metamcp_config::settings::Given;
use metamcp_engine::history::CallRow;
use metamcp_engine::serve::daemon_status::Overview;
use serde::Deserialize;
use serde_json::{Value, json};

use super::REFRESH;
use super::state::{News, Subject};
use crate::args::{NamesArgs, ScopeArgs, WriteArgs};
use crate::commands::live::{Heard, Live};
use crate::commands::logs::{Events, Logs, Reader};
use crate::commands::{restart, servers};
use crate::render::visible;

/// Orders and news that may wait to be taken.
const WAITING: usize = 64;
/// Rows asked for at once.
const EVENTS: usize = 200;
const CALLS: usize = 200;
const LINES: usize = 500;
/// After how many rounds the configuration is read again, for what is disabled.
const CONFIG_ROUNDS: u32 = 10;

/// What the screen wants.
#[derive(Debug)]
pub(super) enum Order {
    Look(Subject),
    Restart(String),
    Switch { server: String, on: bool },
}

/// Starts the thread. It ends when the news are not taken any more.
pub(super) fn start(
    home: PathBuf,
    given: Vec<Given>,
) -> io::Result<(SyncSender<Order>, Receiver<News>)> {
    let (order, orders) = sync_channel(WAITING);
    let (say, news) = sync_channel(WAITING);
    let work = move || {
        // An answer that cannot be read ends the screen, which notices that nobody sends any more.
        let _over = work(&home, &given, &orders, &say);
    };
    std::thread::Builder::new().name("daemon".to_owned()).spawn(work)?;
    Ok((order, news))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Calls {
    calls: Vec<CallRow>,
}

fn work(
    home: &std::path::Path,
    given: &[Given],
    orders: &Receiver<Order>,
    say: &SyncSender<News>,
) -> anyhow::Result<()> {
    let Ok(mut live) = Live::open(home)? else { return Ok(()) };
    let (mut daemon, mut last_event, mut round) = (live.daemon(), 0, 0_u32);
    let (mut subject, mut reader) = (Subject::None, Reader::default());
    let mut disabled = BTreeSet::new();
    loop {
        if round.is_multiple_of(CONFIG_ROUNDS) {
            disabled = disabled_servers(given);
        }
        round = round.wrapping_add(1);
        let overview = live.ask::<Box<Overview>>("overview", &json!({ "seconds": 120 }))?;
        if live.daemon() != daemon {
            (daemon, last_event, reader) = (live.daemon(), 0, Reader::default());
        }
        match overview {
            Heard::Answer(overview) => {
                let params = json!({ "after": last_event, "most": EVENTS });
                let events = match live.ask::<Events>("events", &params)? {
                    Heard::Answer(page) => {
                        last_event = page.last;
                        page.events
                    }
                    _ => Vec::new(),
                };
                say.send(News::Overview { overview, events, disabled: disabled.clone() })?;
                details(&mut live, &subject, &mut reader, say)?;
            }
            Heard::Refused(refused) => say.send(News::Done(refused.to_string()))?,
            Heard::Gone => say.send(News::Gone)?,
        }
        match orders.recv_timeout(REFRESH) {
            Ok(Order::Look(next)) => (subject, reader) = (next, Reader::default()),
            Ok(Order::Restart(server)) => {
                let words = restart_one(&mut live, &server)?;
                say.send(News::Done(words))?;
            }
            Ok(Order::Switch { server, on }) => {
                let words = switched(given, &server, on);
                say.send(News::Done(words.unwrap_or_else(|error| format!("{error:#}"))))?;
                round = 0;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}

/// What belongs to the server that is looked at.
fn details(
    live: &mut Live<'_>,
    subject: &Subject,
    reader: &mut Reader,
    say: &SyncSender<News>,
) -> anyhow::Result<()> {
    match subject {
        Subject::None => {}
        Subject::Logs(server) => {
            let lines = match live.ask::<Logs>("logs", &reader.params(server, LINES))? {
                Heard::Answer(logs) => {
                    let all = reader.read(&logs);
                    let marked = |(mark, one): &(String, &crate::commands::logs::ProcessLog)| {
                        one.lines.iter().map(|line| format!("{mark}{line}")).collect::<Vec<_>>()
                    };
                    all.iter().flat_map(marked).collect()
                }
                // It is not in use: there is no log.
                _ => Vec::new(),
            };
            say.send(News::Lines { server: server.clone(), lines })?;
        }
        Subject::Calls(server) => {
            let params = json!({ "server": server, "most": CALLS });
            if let Heard::Answer(page) = live.ask::<Calls>("calls", &params)? {
                say.send(News::Calls { server: server.clone(), calls: page.calls })?;
            }
        }
    }
    Ok(())
}

fn restart_one(live: &mut Live<'_>, server: &str) -> anyhow::Result<String> {
    Ok(match live.ask::<Value>("restart", &json!({ "server": server }))? {
        Heard::Answer(value) => restart::words(server, &value)?,
        Heard::Refused(refused) => refused.to_string(),
        Heard::Gone => "no daemon is there to restart it".to_owned(),
    })
}

/// The same as `metamcp enable` and `disable`.
fn switched(given: &[Given], server: &str, on: bool) -> anyhow::Result<String> {
    let loaded = crate::load(given.to_vec())?
        .map_err(|error| anyhow::anyhow!("the configuration cannot be used: {error}"))?;
    let args = NamesArgs {
        names: vec![server.to_owned()],
        scope: ScopeArgs { scope: None, project: false },
        write: WriteArgs { dry_run: false, json: false },
    };
    let mut told = Vec::new();
    servers::switch(&loaded, &args, on, &mut told)?;
    let told =
        String::from_utf8_lossy(&anstream::adapter::strip_bytes(&told).into_vec()).into_owned();
    Ok(visible(told.lines().next().unwrap_or_default()))
}

/// Servers of the configuration that are disabled. One that cannot be used has none: other commands say why.
fn disabled_servers(given: &[Given]) -> BTreeSet<String> {
    let Ok(Ok(loaded)) = crate::load(given.to_vec()) else { return BTreeSet::new() };
    let servers = loaded.config.servers.iter();
    let is_off = |state: &ServerState| match state {
        ServerState::Disabled { reason } => reason == SWITCHED_OFF,
        _ => false,
    };
    let off = servers.filter(|server| is_off(&server.state));
    off.map(|server| server.name.clone()).collect()
}
