//! Gateways that die, shims that are killed, process trees that scatter.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use metamcp_child::{Containment, Escalation, Tier};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::{
    BOTH, HOST, PATIENCE, assert_gone, behaviour, line, mark, marked, spawn, spawner, state, tell,
    until, within,
};

/// A separate gateway with `count` hostile servers running, and its first line of output: the containment in use.
fn host(
    tier: &str,
    behaviour: &str,
    mark: &str,
    count: usize,
    user: Option<u32>,
) -> (Child, String) {
    use std::os::unix::process::CommandExt;
    let mut command = Command::new(HOST);
    command.args(["host", tier, behaviour, mark, &count.to_string()]).stdout(Stdio::piped());
    if let Some(user) = user {
        command.uid(user).gid(user).current_dir("/");
    }
    let mut host = command.spawn().expect("a host that does what it is told");
    let mut ready = String::new();
    BufReader::new(host.stdout.take().expect("a host that does what it is told"))
        .read_line(&mut ready)
        .expect("a host that does what it is told");
    (host, ready.trim().to_owned())
}

/// Kills a gateway and returns how long its process trees lived on.
fn murder(mut host: Child, mark: &str) -> Duration {
    let began = Instant::now();
    host.kill().expect("a host that does what it is told");
    host.wait().expect("a host that does what it is told");
    while !marked(mark).is_empty() {
        assert!(began.elapsed() < PATIENCE, "survivors: {:?}", marked(mark));
    }
    began.elapsed()
}

fn murders(tier: &str, rounds: usize, user: Option<u32>) -> Vec<Duration> {
    (0..rounds)
        .map(|_| {
            let mark = mark();
            let (host, ready) = host(tier, "tree", &mark, 2, user);
            assert!(ready.starts_with("ready"), "{ready}");
            assert!(marked(&mark).len() > 10, "{:?}", marked(&mark));
            murder(host, &mark)
        })
        .collect()
}

#[test]
fn nothing_survives_a_killed_gateway_with_shims() {
    murders("shim", 10, None);
}

#[test]
fn nothing_survives_a_killed_gateway_with_namespaces() {
    murders("namespace", 10, None);
}

/// Root also exercises the containment of ordinary users; an ordinary user gets it anyway.
#[test]
fn an_ordinary_user_is_contained_as_well() {
    let nobody = nix::unistd::geteuid().is_root().then_some(65534);
    for (tier, held) in [
        ("shim", "ready shim"),
        ("namespace", "ready user, process and mount namespace"),
        (
            "auto",
            "ready shim (no namespace: it would take a user namespace, which breaks setuid programs)",
        ),
    ] {
        let mark = mark();
        let (host, ready) = host(tier, "tree", &mark, 2, nobody);
        assert_eq!(ready, held);
        murder(host, &mark);
    }
}

/// The gateway dies while its children are being started: as soon as a given number of processes exists.
#[test]
fn nothing_survives_a_gateway_killed_at_any_instant() {
    for tier in ["shim", "namespace"] {
        for count in (0..24).step_by(3) {
            let mark = mark();
            let mut host = Command::new(HOST)
                .args(["host", tier, "tree", &mark, "4"])
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            let began = Instant::now();
            // The host itself carries the mark too.
            while marked(&mark).len() < count + 1 {
                assert!(began.elapsed() < PATIENCE, "{count} processes never came to be");
            }
            host.kill().unwrap();
            host.wait().unwrap();
            while !marked(&mark).is_empty() {
                assert!(began.elapsed() < PATIENCE, "survivors: {:?}", marked(&mark));
            }
        }
    }
}

#[tokio::test]
async fn a_server_that_kills_its_shim_takes_everything_with_it() {
    for round in 0..5 {
        let mark = mark();
        let spawner = spawner(Containment::Shim);
        let other = spawn(&spawner, behaviour(&["deaf"])).await;
        let child = spawn(&spawner, behaviour(&["kill-parent", &mark])).await;
        assert_eq!(line(&child.stdout).await, "ready", "round {round}");
        tell(&child).await;
        within(child.watch().empty()).await;
        assert_gone(&mark);
        assert!(!other.watch().is_empty(), "the neighbour is not touched");
    }
}

/// While one supervisor looks for orphans another starts shims, and must find them alive.
#[tokio::test]
async fn a_sweep_spares_what_is_just_starting() {
    let (rough, quiet) = (spawner(Containment::Shim), spawner(Containment::Auto));
    for _ in 0..10 {
        let mark = mark();
        let murderous = spawn(&rough, behaviour(&["kill-parent", &mark])).await;
        assert_eq!(line(&murderous.stdout).await, "ready");
        tell(&murderous).await;
        let watch = murderous.watch();
        let mut started = Vec::new();
        while !watch.is_empty() {
            assert!(started.len() < 200, "the murderer still lives");
            started.push(spawn(&quiet, behaviour(&["deaf"])).await);
        }
        for child in started {
            assert_eq!(line(&child.stdout).await, "ready");
        }
        assert_gone(&mark);
    }
}

#[tokio::test]
async fn a_server_cannot_kill_the_init_of_its_namespace() {
    let mark = mark();
    let child = spawn(&spawner(Containment::Namespace), behaviour(&["kill-parent", &mark])).await;
    assert_eq!(line(&child.stdout).await, "ready");
    tell(&child).await;
    assert_eq!(line(&child.stdout).await, "ready", "it lived to say so again");
    assert!(!child.watch().is_empty());
    kill(Pid::from_raw(child.handle().keeper_pid().cast_signed()), Signal::SIGKILL).unwrap();
    within(child.watch().empty()).await;
    assert_gone(&mark);
}

#[tokio::test]
async fn a_server_that_stops_its_shim_ends_all_the_same() {
    let mark = mark();
    let child = spawn(&spawner(Containment::Shim), behaviour(&["stop-parent", &mark])).await;
    assert_eq!(line(&child.stdout).await, "ready");
    tell(&child).await;
    assert_eq!(line(&child.stdout).await, "again");
    let keeper = child.handle().keeper_pid().cast_signed();
    until("the shim is stopped", || state(keeper) == Some('T')).await;
    within(child.handle().stop(Escalation::immediate())).await;
    assert_gone(&mark);
}

#[tokio::test]
async fn a_shim_that_cannot_act_is_done_without() {
    let mark = mark();
    let child = spawn(&spawner(Containment::Shim), behaviour(&["stop-parent-always", &mark])).await;
    assert_eq!(line(&child.stdout).await, "ready");
    within(child.handle().stop(Escalation::immediate())).await;
    assert_gone(&mark);
}

#[test]
fn a_stopped_shim_still_ends_with_its_gateway() {
    let mark = mark();
    let (host, ready) = host("shim", "stop-parent", &mark, 2, None);
    assert_eq!(ready, "ready shim");
    assert!(marked(&mark).len() >= 4);
    murder(host, &mark);
}

#[tokio::test]
async fn a_fork_bomb_is_put_out() {
    for containment in BOTH {
        let mark = mark();
        let child = spawn(&spawner(containment), behaviour(&["fork-bomb", &mark])).await;
        until("it went off", || marked(&mark).len() >= 16).await;
        within(child.handle().stop(Escalation::immediate())).await;
        assert_gone(&mark);
    }
}

#[tokio::test]
async fn orphans_are_reaped() {
    for containment in BOTH {
        let child = spawn(&spawner(containment), behaviour(&["zombies"])).await;
        assert_eq!(line(&child.stdout).await, "ready");
        let keeper = child.handle().keeper_pid();
        let path = format!("/proc/{keeper}/task/{keeper}/children");
        until("one child is left", || {
            std::fs::read_to_string(&path).unwrap().split_whitespace().count() == 1
        })
        .await;
    }
}

/// Includes zombies of the start-up stages and of what died with its shim, in this very process.
#[tokio::test]
async fn no_corpse_is_left_with_the_gateway() {
    let mark = mark();
    let (mut host, _) = host("namespace", "tree", &mark, 3, None);
    let threads = format!("/proc/{}/task", host.id());
    let corpses = || {
        let tasks = std::fs::read_dir(&threads).expect("tasks").flatten();
        let lists =
            tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
        let all = lists.collect::<Vec<_>>().join(" ");
        let pids: Vec<i32> = all.split_whitespace().filter_map(|pid| pid.parse().ok()).collect();
        assert!(pids.len() >= 3, "{pids:?}");
        pids.into_iter().filter(|&pid| state(pid) == Some('Z')).count()
    };
    until("every stage is reaped", || corpses() == 0).await;
    host.kill().expect("a host to kill");
    host.wait().expect("its end");
    until("all is gone", || marked(&mark).is_empty()).await;
}

#[tokio::test]
async fn automatic_containment_says_what_it_found() {
    let spawner = spawner(Containment::Auto);
    assert_eq!(spawner.tier(), Tier::Untried);
    let child = spawn(&spawner, behaviour(&["deaf"])).await;
    assert_ne!(spawner.tier(), Tier::Untried);
    assert_eq!(child.handle().tier(), spawner.tier());
}

#[test]
fn a_child_outlives_the_runtime_that_spawned_it() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for containment in BOTH {
        let mark = mark();
        let first = runtime();
        let spawner = spawner(containment);
        let child = first.block_on(async {
            let child = spawn(&spawner, behaviour(&["tree", &mark])).await;
            assert_eq!(line(&child.stdout).await, "ready");
            child.into_parts()
        });
        let handle = child.handle.clone();
        drop((child, first));
        assert!(marked(&mark).len() >= 5);
        runtime().block_on(async { within(handle.stop(Escalation::immediate())).await });
        assert_gone(&mark);
    }
}
