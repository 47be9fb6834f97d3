//! Gateways killed and stopped, bus servers killed, links cut both ways and one way, slow links, cables pulled out, under
//! load: nothing runs twice, no answer is lost, each call has one verdict, every client goes on. `METAMCP_EVENTS` says how
//! many events, `METAMCP_SEED` repeats a run.

use std::collections::VecDeque;
use std::fmt::Display;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use metamcp_testkit::link::Direction;
use metamcp_testkit::network::{Entered, enter};
use metamcp_testkit::{Workspace, chaos_server, eventually};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::PATIENCE;
use crate::clients::{Client, Log, Sdk};
use crate::world::World;

/// Events of the usual run.
const EVENTS: usize = 40;
const GATEWAYS: usize = 5;
const BUS: usize = 3;
/// Events at a time that are not undone yet.
const AT_ONCE: usize = 2;
/// At most this many answers between an event and the next.
const ANSWERS: usize = 40;
/// Where nothing is answered any more, as without a bus, the next event comes after so long.
const STILL: Duration = Duration::from_millis(1500);
/// How slow a slow link is, at most.
const SLOWEST: u64 = 150;
const SERVERS: [&str; 3] = ["one", "two", "three"];

/// What has to be undone, later.
#[derive(Debug, Clone, Copy)]
enum Undo {
    Launch(usize),
    Continue(usize),
    RestartBus(usize),
    ContinueBus(usize),
    Restore(usize),
    Hurry(usize),
    PlugIn(usize),
}

impl Undo {
    /// The gateway it is about, and the bus server.
    fn about(self) -> (Option<usize>, Option<usize>) {
        match self {
            Undo::Launch(gateway)
            | Undo::Continue(gateway)
            | Undo::Restore(gateway)
            | Undo::Hurry(gateway)
            | Undo::PlugIn(gateway) => (Some(gateway), None),
            Undo::RestartBus(server) | Undo::ContinueBus(server) => (None, Some(server)),
        }
    }
}

#[test]
fn whatever_happens_nothing_runs_twice_and_every_client_goes_on() {
    let name = "events::whatever_happens_nothing_runs_twice_and_every_client_goes_on";
    let network = match enter(name).unwrap() {
        Entered::Here(network) => network,
        Entered::Elsewhere(has_passed) => return assert!(has_passed, "see above"),
    };
    let mut rng = SeededRng::given();
    let events = number("METAMCP_EVENTS").map_or(EVENTS, |n| usize::try_from(n).unwrap());
    let mut workspace = Workspace::new().unwrap();
    for server in SERVERS {
        workspace.server(server, chaos_server(&[]).setting("share", json!("fleet")));
    }
    let began = Instant::now();
    let mut world = World::start(network, workspace, GATEWAYS, BUS);
    let log = Arc::new(Log::default());
    let mut clients: Vec<Client> = [
        Sdk::TypeScript("v1"),
        Sdk::TypeScript("v2"),
        Sdk::Python("python-v1"),
        Sdk::Python("python"),
    ]
    .into_iter()
    .map(|sdk| Client::program(&world, &log, &SERVERS, sdk, rng.next()))
    .collect();
    clients.extend((0..4).map(|number| Client::own(&world, &log, &SERVERS, number)));
    wait_for(&log, 20, PATIENCE);
    tell(format_args!(
        "{GATEWAYS} gateways, {BUS} bus servers and {} clients after {:.1?}",
        clients.len(),
        began.elapsed()
    ));
    let began = Instant::now();
    let mut done: VecDeque<Undo> = VecDeque::new();
    let mut tally = std::collections::BTreeMap::new();
    for _ in 0..events {
        while done.len() >= AT_ONCE {
            let undo = done.pop_front().unwrap();
            take_back(&mut world, undo, &log);
        }
        let (word, undo) = happens(&mut world, &mut rng, &done, &log);
        *tally.entry(word).or_insert(0) += 1;
        done.extend(undo);
        let most = *rng.pick(&[2, ANSWERS]);
        wait_for(&log, rng.below(most), STILL);
    }
    for undo in done {
        take_back(&mut world, undo, &log);
    }
    let ran = began.elapsed();
    for client in &mut clients {
        client.finish();
    }
    for client in clients {
        client.went_on(&log);
    }
    let (unknown, other) = log.longest();
    tell(format_args!(
        "{events} events in {ran:.1?}: {tally:?}; calls: {:?}; requests by gateway: {:?}; the longest with an unknown outcome \
         {unknown} ms, of all others {other} ms",
        log.tally(),
        world.balancer.served(),
    ));
    for number in 0..GATEWAYS {
        if world.start_again(number) {
            log.fault(format!("g{number} ended by itself:\n{}", world.log(number)));
        }
        world.is_ready(number);
    }
    assert_faultless(&log.faults(&world, &SERVERS), &world);
    assert!(
        world.balancer.served().iter().all(|served| *served > 0),
        "{:?}",
        world.balancer.served()
    );
    assert!(log.tally().get("fine").is_some_and(|fine| *fine > events), "{:?}", log.tally());
    for number in 0..GATEWAYS {
        let status = world.stop(number);
        assert!(status.success(), "g{number}: {status}\n{}", world.log(number));
    }
    assert_eq!(world.workspace.survivors(PATIENCE), []);
}

/// Something happens to a part that is well.
fn happens(
    world: &mut World,
    rng: &mut SeededRng,
    done: &VecDeque<Undo>,
    log: &Log,
) -> (&'static str, Option<Undo>) {
    let is_ill =
        |about: (Option<usize>, Option<usize>)| done.iter().any(|one| one.about() == about);
    let well = |count: usize, is_ill: &dyn Fn(usize) -> bool| -> Vec<usize> {
        (0..count).filter(|number| !is_ill(*number)).collect()
    };
    let gateway = *rng.pick(&well(GATEWAYS, &|number| is_ill((Some(number), None))));
    // Of three bus servers one may be missing.
    let bus = done.iter().all(|one| one.about().1.is_none()).then(|| rng.below(BUS));
    match (rng.below(12), bus) {
        (0 | 1, _) => {
            world.kill(gateway);
            ("kill -9", Some(Undo::Launch(gateway)))
        }
        (2 | 3, _) => {
            world.signal(gateway, Signal::SIGSTOP);
            ("stop", Some(Undo::Continue(gateway)))
        }
        (4, _) => {
            // One that is still starting just ends.
            let was_up = world.readyz(gateway).is_some();
            let status = world.stop(gateway);
            if was_up && !status.success() {
                log.fault(format!("g{gateway} ended with {status}:\n{}", world.log(gateway)));
            }
            ("upgrade", Some(Undo::Launch(gateway)))
        }
        (5, Some(server)) => {
            world.nats.kill(server);
            ("kill of the bus", Some(Undo::RestartBus(server)))
        }
        (6, Some(server)) => {
            world.nats.signal(server, Signal::SIGSTOP).unwrap();
            ("stop of the bus", Some(Undo::ContinueBus(server)))
        }
        (7 | 8, _) => {
            const WAYS: [&[Direction]; 3] =
                [&[Direction::Up], &[Direction::Down], &[Direction::Up, Direction::Down]];
            let ways = *rng.pick(&WAYS);
            // To all of them, or it only speaks to another one.
            for link in &world.gateways[gateway].links {
                for way in ways {
                    link.cut(*way);
                }
            }
            (if ways.len() == 2 { "cut" } else { "one-way cut" }, Some(Undo::Restore(gateway)))
        }
        (9, _) => {
            let delay = Duration::from_millis(20 + rng.next() % SLOWEST);
            world.gateways[gateway].links.iter().for_each(|link| link.slow(delay));
            ("slow link", Some(Undo::Hurry(gateway)))
        }
        (10, _) if world.has_namespaces => {
            world.gateways[gateway].host.pull_out().unwrap();
            ("cable", Some(Undo::PlugIn(gateway)))
        }
        _ => {
            world.gateways[gateway].links.iter().for_each(metamcp_testkit::link::Link::reset);
            ("reset", None)
        }
    }
}

fn take_back(world: &mut World, undo: Undo, log: &Log) {
    match undo {
        Undo::Launch(gateway) => world.launch(gateway),
        Undo::Continue(gateway) => world.signal(gateway, Signal::SIGCONT),
        Undo::RestartBus(server) => world.nats.restart(server, false).unwrap(),
        Undo::ContinueBus(server) => world.nats.signal(server, Signal::SIGCONT).unwrap(),
        Undo::Restore(gateway) => {
            world.gateways[gateway].links.iter().for_each(metamcp_testkit::link::Link::restore);
        }
        Undo::Hurry(gateway) => {
            world.gateways[gateway].links.iter().for_each(|link| link.slow(Duration::ZERO));
        }
        Undo::PlugIn(gateway) => world.gateways[gateway].host.plug_in().unwrap(),
    }
    if let (Some(gateway), _) = undo.about()
        && !matches!(undo, Undo::Launch(_))
        && world.start_again(gateway)
    {
        log.fault(format!("g{gateway} ended by itself:\n{}", world.log(gateway)));
    }
}

/// Waits until so many more calls were answered, but not for ever.
fn wait_for(log: &Log, more: usize, most: Duration) {
    let due = log.answered.load(Ordering::Relaxed) + more;
    eventually(most, || log.answered.load(Ordering::Relaxed) >= due);
}

/// Fails with the first few faults.
fn assert_faultless(faults: &[String], world: &World) {
    let shown: Vec<&String> = faults.iter().take(10).collect();
    if !faults.is_empty()
        && let Ok(folder) = std::env::var("METAMCP_KEEP_LOGS")
    {
        for number in 0..GATEWAYS {
            let file = std::path::Path::new(&folder).join(format!("g{number}.log"));
            std::fs::write(file, world.log(number)).unwrap();
        }
        std::fs::write(std::path::Path::new(&folder).join("nats.log"), world.nats.log()).unwrap();
    }
    assert!(faults.is_empty(), "{} faults, such as {shown:#?}", faults.len());
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|said| said.parse().ok())
}

/// A figure for people; the assertions are separate.
fn tell(what: impl Display) {
    // A closed stderr loses a figure and nothing else.
    writeln!(io::stderr(), "[events] {what}").ok();
}

/// A pseudo-random generator, repeatable by its seed.
struct SeededRng(u64);

impl SeededRng {
    fn given() -> SeededRng {
        let seed = number("METAMCP_SEED").unwrap_or(0x00f1_ee70);
        tell(format_args!("METAMCP_SEED={seed}"));
        SeededRng(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).expect("it is below a usize")
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}
