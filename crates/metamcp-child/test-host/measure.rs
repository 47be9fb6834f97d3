//! `child-host measure TIER ROUNDS`: what a child costs, and how long it outlives its gateway.
//!
//! Figures for people; no test depends on them.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs};

use metamcp_child::{Escalation, ShimCommand, Spawner, Spec};

use crate::behaviours::{containment, say};

/// Process trees per killed gateway.
const TREES: usize = 20;

pub(crate) fn measure(args: &[String]) {
    let rounds: usize = args[1].parse().expect("a number of rounds");
    starts(&args[0], rounds);
    if let Some(kills) = args.get(2) {
        deaths(&args[0], kills.parse().expect("a number of kills"));
    }
}

/// Time from the request to the first byte of the server, and the memory of its shim.
fn starts(tier: &str, rounds: usize) {
    let program = match env::var_os("SHIM_BINARY") {
        Some(program) => ShimCommand { program: program.into(), args: vec!["__shim".into()] },
        None => ShimCommand::this_binary("__shim").expect("this binary"),
    };
    let spawner = Spawner::start(program, containment(tier)).expect("spawner");
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
    runtime.block_on(async {
        let (mut spawns, mut stops, mut memory) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rounds {
            let began = Instant::now();
            let spec = Spec { program: "/bin/cat".into(), ..Spec::default() };
            let child = spawner.spawn(spec).await.expect("a child");
            spawns.push(began.elapsed());
            memory.push(memory_of(child.handle().keeper_pid()));
            let began = Instant::now();
            let parts = child.into_parts();
            drop(parts.stdin);
            parts.handle.stop(Escalation::graceful()).await;
            stops.push(began.elapsed());
        }
        let mut direct = Vec::new();
        for _ in 0..rounds {
            let began = Instant::now();
            let mut child = Command::new("/bin/cat").stdin(Stdio::piped()).spawn().expect("cat");
            direct.push(began.elapsed());
            drop(child.stdin.take());
            child.wait().expect("its end");
        }
        say(&format!("{}: spawn {}", spawner.tier(), spread(&mut spawns)));
        say(&format!("plain process for comparison: spawn {}", spread(&mut direct)));
        say(&format!("polite stop until empty {}", spread(&mut stops)));
        memory.sort_unstable();
        say(&format!("keeper kB (pss, private, rss): {:?}", memory[memory.len() / 2]));
        many(&spawner).await;
    });
}

/// The memory of twenty concurrent shims, which share what can be shared.
async fn many(spawner: &Spawner) {
    let mut children = Vec::new();
    for _ in 0..20 {
        let spec = Spec { program: "/bin/cat".into(), ..Spec::default() };
        children.push(spawner.spawn(spec).await.expect("a child"));
    }
    let mut memory: Vec<_> =
        children.iter().map(|child| memory_of(child.handle().keeper_pid())).collect();
    memory.sort_unstable();
    say(&format!("of twenty at once: {:?}", memory[10]));
}

fn deaths(tier: &str, rounds: usize) {
    let me = env::current_exe().expect("this binary");
    let mut lives = Vec::new();
    for round in 0..rounds {
        let mark = format!("measured-{}-{round}-end", std::process::id());
        let mut host = Command::new(&me)
            .args(["host", tier, "tree", &mark, &TREES.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .expect("a host");
        let mut ready = String::new();
        BufReader::new(host.stdout.take().expect("piped")).read_line(&mut ready).expect("ready");
        // Only these pids can survive; polling just them does not slow the machine.
        let pids = marked(&mark);
        let began = Instant::now();
        host.kill().expect("kill");
        while pids.iter().any(|&pid| alive(pid, &mark)) {
            std::thread::sleep(Duration::from_millis(1));
        }
        lives.push(began.elapsed());
        host.wait().expect("its end");
        assert!(marked(&mark).is_empty());
    }
    let late = lives.iter().filter(|&&life| life > Duration::from_millis(50)).count();
    let figures = spread(&mut lives);
    say(&format!(
        "{TREES} trees of 7 after kill -9 of the gateway: {figures}, {late} of {rounds} over 50 ms"
    ));
}

fn marked(mark: &str) -> Vec<i32> {
    let pids = fs::read_dir("/proc").expect("proc").flatten();
    pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|&pid| alive(pid, mark))
        .collect()
}

fn alive(pid: i32, mark: &str) -> bool {
    // A zombie has no command line.
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).contains(mark)
}

fn memory_of(pid: u32) -> (u64, u64, u64) {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let kilobytes = |name: &str| {
        let lines = text.lines().filter_map(|line| line.strip_prefix(name));
        lines.filter_map(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).sum()
    };
    (
        kilobytes("Pss:"),
        kilobytes("Private_Clean:") + kilobytes("Private_Dirty:"),
        kilobytes("Rss:"),
    )
}

fn spread(times: &mut [Duration]) -> String {
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100].as_secs_f64() * 1e3;
    format!("p50 {:.2} ms, p90 {:.2} ms, max {:.2} ms", at(50), at(90), at(100))
}
