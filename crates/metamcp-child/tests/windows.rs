//! Containment on Windows, with real processes: on that system, or under Wine by `cargo xtask test --windows`.

#![cfg(windows)]
#![expect(clippy::disallowed_methods, reason = "tests start, wait and measure for themselves")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child as Process, Command, Stdio};
use std::time::{Duration, Instant};

use metamcp_child::{Child, Containment, Escalation, ShimCommand, SpawnError, Spawner, Spec, Tier};
use metamcp_types::escalation::Step;
use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt};

/// Long enough for a loaded machine; only a failing test waits this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// The program with the misbehaving servers.
fn host_program() -> PathBuf {
    // Under Wine the path that cargo names is absolute but for the drive.
    std::path::absolute(env!("CARGO_BIN_EXE_child-host")).expect("a path")
}

/// How often a gateway is killed; the whole program is killed more often by its own tests.
const ROUNDS: usize = 10;

fn spawner() -> Spawner {
    let shim = ShimCommand { program: host_program(), args: vec!["__shim".into()] };
    Spawner::start(shim, Containment::Auto).expect("a job for this process")
}

fn behaviour(args: &[&str]) -> Spec {
    Spec {
        program: host_program().into(),
        args: args.iter().map(Into::into).collect(),
        ..Spec::default()
    }
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let within = async { tokio::time::timeout(PATIENCE, test).await.expect("an end in time") };
    runtime.expect("a runtime").block_on(within);
}

async fn lines(child: &mut Child, last: &str) -> Vec<String> {
    let mut reader = tokio::io::BufReader::new(&mut child.stdout);
    let mut all = Vec::new();
    loop {
        let mut line = String::new();
        assert_ne!(reader.read_line(&mut line).await.expect("text"), 0, "it ended after {all:?}");
        let line = line.trim_end_matches(['\r', '\n']).to_owned();
        let is_last = line.starts_with(last);
        all.push(line);
        if is_last {
            return all;
        }
    }
}

/// A folder in which processes write down that they run.
fn mark() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

/// The processes that wrote themselves down and still run. A pid may be another's by then: that is told by its program.
fn marked(mark: &Path) -> Vec<Pid> {
    let names = fs::read_dir(mark).expect("the folder").flatten().map(|entry| entry.file_name());
    let pids: Vec<Pid> =
        names.filter_map(|name| name.to_str()?.parse().ok()).map(Pid::from_u32).collect();
    let mut system = System::new();
    let kind = ProcessRefreshKind::nothing();
    system.refresh_processes_specifics(ProcessesToUpdate::All, true, kind);
    let is_ours = |pid: &Pid| {
        let name =
            system.process(*pid).map(|process| process.name().to_string_lossy().into_owned());
        name.is_some_and(|name| name.starts_with("child-host"))
    };
    pids.into_iter().filter(is_ours).collect()
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "never happened: {what}");
        std::thread::yield_now();
    }
}

/// A gateway in miniature with hostile servers. Its output is read up to `word`.
fn host(behaviour: &str, mark: &Path, servers: usize, word: &str) -> Process {
    let mut command = Command::new(host_program());
    command.args(["host", behaviour]).arg(mark).arg(servers.to_string()).stdout(Stdio::piped());
    let mut host = command.spawn().expect("a host");
    let said = BufReader::new(host.stdout.take().expect("piped")).lines();
    let heard = said.map_while(Result::ok).any(|line| line.starts_with(word));
    assert!(heard, "the host says {word:?}");
    host
}

#[test]
fn nothing_survives_a_killed_gateway() {
    let mut most = 0;
    for round in 0..ROUNDS {
        let mark = mark();
        // Some are killed while they start the second server.
        let (behaviour, word) = match round % 3 {
            0 if round == 0 => ("tree", "ready job object"),
            0 => ("pair", "ready job object"),
            _ => ("pair", "started 0"),
        };
        let mut host = host(behaviour, mark.path(), 2, word);
        most = most.max(marked(mark.path()).len());
        host.kill().expect("a host to kill");
        host.wait().expect("its end");
        until("the end of all", || marked(mark.path()).is_empty());
    }
    // Two leaders, each with four children and an orphan.
    assert!(most >= 12, "never more than {most} processes; the test shows nothing");
}

#[test]
fn a_server_cannot_break_away() {
    run(async {
        let mark = mark();
        let mut child = spawner()
            .spawn(behaviour(&["breakaway", mark.path().to_str().unwrap()]))
            .await
            .unwrap();
        assert_eq!(lines(&mut child, "").await, ["PermissionDenied"]);
        assert_eq!(child.handle().tier(), Tier::Job);
    });
}

#[test]
fn a_killed_server_takes_all_of_its_own_with_it() {
    run(async {
        let mark = mark();
        let mut child =
            spawner().spawn(behaviour(&["tree", mark.path().to_str().unwrap()])).await.unwrap();
        lines(&mut child, "ready").await;
        let began = marked(mark.path()).len();
        assert!(began >= 5, "{began}");
        assert!(!child.watch().is_empty());
        child.handle().kill_now();
        child.watch().empty().await;
        assert_eq!(marked(mark.path()), []);
    });
}

#[test]
fn a_job_is_empty_when_the_last_of_it_has_ended() {
    run(async {
        let mark = mark();
        let spec = behaviour(&["pair-then-exit", mark.path().to_str().unwrap()]);
        let mut child = spawner().spawn(spec).await.unwrap();
        lines(&mut child, "ready").await;
        let watch = child.watch();
        assert_eq!(watch.exited().await.code, Some(0));
        assert!(!watch.is_empty(), "its children run");
        assert!(!marked(mark.path()).is_empty());
        // Nobody holds it any more.
        drop(child);
        watch.empty().await;
        assert_eq!(marked(mark.path()), []);
    });
}

#[test]
fn stopping_begins_with_the_end_of_input_and_ends_with_the_job() {
    run(async {
        let mut polite = spawner().spawn(behaviour(&["polite"])).await.unwrap();
        lines(&mut polite, "ready").await;
        let parts = polite.into_parts();
        drop(parts.stdin);
        parts.handle.stop(Escalation::graceful()).await;
        assert_eq!(parts.handle.watch().exit().unwrap().code, Some(7), "it ended by itself");

        let mark = mark();
        let spec = behaviour(&["tree", mark.path().to_str().unwrap()]);
        let mut deaf = spawner().spawn(spec).await.unwrap();
        lines(&mut deaf, "ready").await;
        let parts = deaf.into_parts();
        drop(parts.stdin);
        parts.handle.stop(Escalation::brisk()).await;
        assert!(parts.handle.watch().is_empty());
        assert_eq!(marked(mark.path()), []);
    });
}

/// Ladders without the last step: what ends, ends because it was asked.
static CTRL_C: [(u64, Step); 3] =
    [(0, Step::CloseStdin), (10, Step::TerminateLeader), (20, Step::TerminateAndResumeAll)];
static CTRL_BREAK: [(u64, Step); 2] = [(0, Step::CloseStdin), (20, Step::InterruptAll)];

/// Wine ends all on a console by Ctrl-Break, whether or not they would hear it.
fn is_wine() -> bool {
    std::env::var_os("TEST_WINE").is_some()
}

#[test]
fn who_goes_on_without_input_hears_ctrl_c_or_ctrl_break() {
    let by_break = if is_wine() { 1 } else { 11 };
    for (event, ladder, code) in
        [("ctrl-c", &CTRL_C[..], 11), ("ctrl-break", &CTRL_BREAK, by_break)]
    {
        run(async {
            let mut server = spawner().spawn(behaviour(&["hears", event, "1"])).await.unwrap();
            lines(&mut server, "ready").await;
            let parts = server.into_parts();
            drop(parts.stdin);
            parts.handle.stop(Escalation::of(ladder)).await;
            assert_eq!(parts.handle.watch().exit().unwrap().code, Some(code), "{event}");
        });
    }
}

#[test]
fn an_event_is_heard_on_the_console_of_one_server_alone() {
    run(async {
        let spawner = spawner();
        let mut one = spawner.spawn(behaviour(&["hears", "ctrl-c", "1"])).await.unwrap();
        let mut other = spawner.spawn(behaviour(&["hears", "ctrl-c", "2"])).await.unwrap();
        lines(&mut one, "ready").await;
        lines(&mut other, "ready").await;
        let send = |event: &str, pid: u32| {
            let mut sender = Command::new(host_program());
            sender.args(["__shim", event, &pid.to_string()]).status().unwrap().code()
        };
        let ended = one.watch();
        assert_eq!(send("ctrl-c", one.pid()), Some(0));
        assert_eq!(ended.exited().await.code, Some(11));
        // This process and the other server are on other consoles, or on none.
        for _ in 0..2 {
            assert_eq!(send("ctrl-c", other.pid()), Some(0));
            lines(&mut other, "heard").await;
        }
        assert_eq!(other.watch().exited().await.code, Some(12), "it heard its own two");
        ended.empty().await;
        assert_eq!(send("ctrl-c", one.pid()), Some(1), "it has ended");
    });
}

#[test]
fn memory_and_activity_are_those_of_the_whole_job() {
    run(async {
        let mark = mark();
        let mut child =
            spawner().spawn(behaviour(&["tree", mark.path().to_str().unwrap()])).await.unwrap();
        lines(&mut child, "ready").await;
        let all = metamcp_child::memory::of_tree(child.pid()).expect("memory of the job");
        let one = metamcp_child::memory::of_process(child.pid()).expect("memory of its leader");
        assert!(all > one && one > 100_000, "{all} {one}");
        let before = child.activity();
        child.handle().kill_now();
        child.watch().empty().await;
        assert_ne!(child.activity(), before);
    });
}

#[test]
fn a_server_gets_its_arguments_variables_and_folder_unchanged() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("Ein Ordner mit Ümlauten & 日本語");
        fs::create_dir(&folder).unwrap();
        let hard = [r#"a "b" c"#, "", r"C:\x\", "%PATH%", "a&b|c>d^e", "ü 日本語", r#"\\" x"#];
        let mut args = vec!["dump"];
        args.extend(hard);
        let spec = Spec {
            env: vec![("OWN".into(), "ä=1".into()), ("pathext".into(), ".EXE;.CMD".into())],
            cwd: Some(folder.clone()),
            ..behaviour(&args)
        };
        let mut child = spawner().spawn(spec).await.unwrap();
        let said = lines(&mut child, "end").await;
        let of = |word: &str| -> Vec<&str> {
            said.iter().filter_map(|line| line.strip_prefix(word)).collect()
        };
        assert_eq!(of("argument "), hard);
        assert!(of("variable ").contains(&"OWN=ä=1"));
        let is_ending = |line: &&&str| line.to_uppercase().starts_with("PATHEXT=");
        assert_eq!(of("variable ").iter().filter(is_ending).count(), 1, "one in any case");
        assert!(of("variable ").iter().any(|line| line.to_uppercase().starts_with("SYSTEMROOT=")));
        let seen = PathBuf::from(of("folder ")[0]);
        assert_eq!(seen.file_name(), folder.file_name());
    });
}

#[test]
fn a_batch_file_gets_its_arguments_as_they_are_or_not_at_all() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let script = format!("@echo off\r\n\"{}\" dump %*\r\n", host_program().display());
        fs::write(folder.path().join("server.cmd"), script).unwrap();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = [folder.path().to_owned()].into_iter().chain(std::env::split_paths(&path));
        let path = std::env::join_paths(folders).unwrap();
        let with = |args: &[&str]| Spec {
            program: "server".into(),
            args: args.iter().map(Into::into).collect(),
            env: vec![("PATH".into(), path.clone())],
            ..Spec::default()
        };
        let mut child = spawner().spawn(with(&["one", "two words", "a&b"])).await.unwrap();
        let said = lines(&mut child, "end").await;
        let args: Vec<&str> =
            said.iter().filter_map(|line| line.strip_prefix("argument ")).collect();
        assert_eq!(args, ["one", "two words", "a&b"]);
        let refused = spawner().spawn(with(&["a\r\nb"])).await.err().expect("refused");
        assert!(matches!(refused, SpawnError::BadCommand { .. }), "{refused:?}");
    });
}

#[test]
fn what_is_not_there_is_not_looked_for_in_the_current_folder() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        fs::copy(host_program(), folder.path().join("only-here.exe")).unwrap();
        let spec = Spec {
            program: "only-here".into(),
            cwd: Some(folder.path().to_owned()),
            ..Spec::default()
        };
        let refused = spawner().spawn(spec.clone()).await.err().expect("refused");
        assert!(matches!(refused, SpawnError::NotFound { .. }), "{refused:?}");
        let given = Spec { program: r".\only-here".into(), args: vec!["polite".into()], ..spec };
        let mut child = spawner().spawn(given).await.expect("named by its path");
        lines(&mut child, "ready").await;
        child.stdin.shutdown().await.ok();
        let nowhere = Spec { cwd: Some(folder.path().join("no")), ..behaviour(&["polite"]) };
        let refused = spawner().spawn(nowhere).await.err().expect("refused");
        assert!(matches!(refused, SpawnError::BadDirectory { .. }), "{refused:?}");
    });
}

#[test]
fn the_end_of_a_flood_on_stderr_is_kept() {
    run(async {
        let mut child = spawner().spawn(behaviour(&["flood"])).await.unwrap();
        lines(&mut child, "ready").await;
        let before = child.activity();
        while child.activity() == before {
            tokio::task::yield_now().await;
        }
        child.handle().kill_now();
        child.watch().empty().await;
        assert!(child.stderr().total() > 0);
    });
}
