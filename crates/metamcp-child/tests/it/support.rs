//! Shared by the tests: a spawner, a line from a child, a search for survivors.

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use metamcp_child::{Child, Containment, ShimCommand, Spawner, Spec, Stdout};

/// Long enough for a loaded machine; only a failing test waits this long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Both containments; what is true for one is true for the other.
pub(crate) const BOTH: [Containment; 2] = [Containment::Shim, Containment::Namespace];

/// The binary with the shim and the misbehaving servers.
pub(crate) const HOST: &str = env!("CARGO_BIN_EXE_child-host");

pub(crate) fn spawner(containment: Containment) -> Spawner {
    let shim = ShimCommand { program: HOST.into(), args: vec!["__shim".into()] };
    Spawner::start(shim, containment).expect("a spawner")
}

pub(crate) fn spec(program: &str, args: &[&str]) -> Spec {
    Spec { program: program.into(), args: args.iter().map(Into::into).collect(), ..Spec::default() }
}

pub(crate) fn behaviour(args: &[&str]) -> Spec {
    spec(HOST, args)
}

pub(crate) fn shell(script: &str) -> Spec {
    spec("sh", &["-c", script])
}

/// A string that no other test has on its command lines.
pub(crate) fn mark() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("mark-{}-{}-end", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

pub(crate) async fn spawn(spawner: &Spawner, spec: Spec) -> Child {
    within(spawner.spawn(spec)).await.expect("a running child")
}

pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("an answer in time")
}

/// The next line of a child, without the newline.
pub(crate) async fn line(stdout: &Stdout) -> String {
    let mut line = Vec::new();
    loop {
        let mut byte = [0];
        within(stdout.readable()).await.expect("readable");
        match stdout.try_read(&mut byte) {
            Ok(0) => break,
            Ok(_) if byte == *b"\n" => break,
            Ok(_) => line.extend(byte),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => panic!("{error}"),
        }
    }
    String::from_utf8(line).expect("text")
}

/// Sends an empty line, which some behaviours wait for.
pub(crate) async fn tell(child: &Child) {
    within(child.stdin.writable()).await.expect("writable");
    child.stdin.try_write(b"\n").expect("room");
}

/// Everything until the end of the stream.
pub(crate) async fn rest(stdout: &Stdout) -> Vec<u8> {
    let mut all = Vec::new();
    let mut chunk = vec![0; 65536];
    loop {
        within(stdout.readable()).await.expect("readable");
        match stdout.try_read(&mut chunk) {
            Ok(0) => return all,
            Ok(read) => all.extend(&chunk[..read]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Running processes with this mark on their command line, without zombies.
pub(crate) fn marked(mark: &str) -> Vec<i32> {
    let pids = fs::read_dir("/proc").expect("proc").flatten();
    pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(mark)
        })
        .filter(|&pid| pid != std::process::id().cast_signed())
        .filter(|&pid| state(pid).is_some_and(|state| state != 'Z'))
        .collect()
}

pub(crate) fn assert_gone(mark: &str) {
    let left = marked(mark);
    assert!(left.is_empty(), "survivors: {left:?}");
}

/// The state letter of a process in `/proc`.
pub(crate) fn state(pid: i32) -> Option<char> {
    let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    line.rsplit_once(") ")?.1.chars().next()
}

/// Waits until a condition holds. The pause is asynchronous, so that the runtime can serve the children meanwhile.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "never happened: {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
