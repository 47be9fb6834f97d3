//! Misbehaving servers, and the miniature gateway that runs them.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, fs, process, thread};

use landlock::{AccessFs, Ruleset, RulesetAttr};
use metamcp_child::{Child, Containment, SandboxPolicy, ShimCommand, Spawner, Spec};
use nix::sys::signal::{SigSet, Signal, kill, raise};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::unistd::{Pid, getppid, setsid};

use crate::measure;

/// A host whose children do not start exits, so that its test fails instead of waiting.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs the behaviour named by the first argument.
pub(crate) fn run() {
    let mut args = env::args().skip(1);
    let first = args.next().unwrap_or_default();
    let rest: Vec<String> = args.collect();
    match first.as_str() {
        "host" => host(&rest),
        "measure" => measure::measure(&rest),
        "dump" => dump(),
        "deaf" => deaf(),
        "tree" => tree(&rest[0], false),
        "tree-then-exit" => tree(&rest[0], true),
        "daemon" => daemon(&rest[0], true),
        "daemon-parent" => daemon(&rest[0], false),
        "kill-parent" => kill_parent(&rest[0]),
        "stop-parent" => stop_parent(&rest[0]),
        "stop-parent-always" => stop_parent_always(),
        "stop-self" => stop_self(),
        "zombies" => zombies(),
        "fork-bomb" => fork_bomb(&rest[0], 5),
        "fork-bomb-rest" => fork_bomb(&rest[0], rest[1].parse().unwrap_or(0)),
        "flood" => flood(),
        "try" => try_out(&rest),
        "no-room-for-walls" => no_room_for_a_sandbox(&rest),
        _ => say("unknown habit"),
    }
}

pub(crate) fn containment(word: &str) -> Containment {
    match word {
        "shim" => Containment::Shim,
        "namespace" => Containment::Namespace,
        _ => Containment::Auto,
    }
}

/// Starts servers under the named containment, reports it, and stays.
fn host(args: &[String]) {
    let containment = containment(&args[0]);
    let count: usize = args[3].parse().expect("a number of servers");
    let shim = ShimCommand::this_binary("__shim").expect("this binary");
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
    let spawner = Spawner::start(shim, containment).expect("spawner");
    runtime.block_on(async {
        let mut children = Vec::new();
        for _ in 0..count {
            let spec = Spec {
                program: env::current_exe().expect("this binary").into(),
                args: vec![OsString::from(&args[1]), OsString::from(&args[2])],
                ..Spec::default()
            };
            let ready = tokio::time::timeout(PATIENCE, start(&spawner, spec, &args[1]));
            children.push(ready.await.expect("a child in time"));
        }
        say(&format!("ready {}", spawner.tier()));
        std::future::pending::<()>().await;
    });
}

/// Starts a server and waits until its behaviour is in effect.
async fn start(spawner: &Spawner, spec: Spec, behaviour: &str) -> Child {
    let child = spawner.spawn(spec).await.expect("a child");
    hear(&child).await;
    if behaviour == "stop-parent" {
        child.stdin.writable().await.expect("stdin");
        child.stdin.try_write(b"\n").expect("room");
        hear(&child).await;
    }
    child
}

/// Waits for the six bytes of `ready` or `again`.
async fn hear(child: &Child) {
    let (mut line, mut read) = ([0; 6], 0);
    while read < line.len() {
        child.stdout.readable().await.expect("stdout");
        read += child.stdout.try_read(&mut line[read..]).unwrap_or(0);
    }
}

/// Prints the server's environment, one line per fact.
fn dump() {
    let mut fds: Vec<String> = Vec::new();
    for entry in fs::read_dir("/proc/self/fd").expect("proc").flatten() {
        // The directory listing has a descriptor of its own.
        if let Ok(target) = fs::read_link(entry.path()) {
            fds.push(format!("{} {}", entry.file_name().display(), target.display()));
        }
    }
    let environ = fs::read("/proc/self/environ").expect("environ");
    say(&format!("fds {}", fds.join(";")));
    for variable in environ.split(|&byte| byte == 0).filter(|variable| !variable.is_empty()) {
        say(&format!("env {}", String::from_utf8_lossy(variable)));
    }
    for line in fs::read_to_string("/proc/self/status").expect("status").lines() {
        say(&format!("status {line}"));
    }
    let limits = fs::read_to_string("/proc/self/limits").expect("limits");
    for line in limits.lines().filter(|line| line.starts_with("Max core")) {
        say(line);
    }
    say(&format!("oom {}", fs::read_to_string("/proc/self/oom_score_adj").expect("oom").trim()));
    say(&format!("cwd {}", env::current_dir().expect("cwd").display()));
    say(&format!("pids {} {}", process::id(), getppid()));
    say("end");
}

/// Ignores everything that can be ignored, end of input included.
fn deaf() -> ! {
    SigSet::all().thread_block().ok();
    say("ready");
    loop {
        thread::park();
    }
}

/// A deaf leader with a deaf child in its group, one in a session of its own, a double-forked daemon
/// and a shell with a child; all of them hold the leader's streams.
fn tree(mark: &str, then_exit: bool) {
    let me = env::current_exe().expect("this binary");
    let mut waited = Vec::new();
    for behaviour in ["deaf", "daemon", "daemon-parent"] {
        waited.push(
            Command::new(&me)
                .args([behaviour, mark])
                .stdout(Stdio::piped())
                .spawn()
                .expect("a child"),
        );
    }
    let script = format!("trap '' TERM INT HUP; '{}' deaf {mark}; :", me.display());
    waited.push(
        Command::new("sh").args(["-c", &script]).stdout(Stdio::piped()).spawn().expect("a shell"),
    );
    for child in &mut waited {
        let mut line = [0; 6];
        child.stdout.as_mut().expect("piped").read_exact(&mut line).expect("ready");
    }
    if then_exit {
        say("ready");
        return;
    }
    deaf();
}

fn daemon(mark: &str, here: bool) {
    if here {
        setsid().ok();
        deaf();
    }
    let me = env::current_exe().expect("this binary");
    Command::new(me).args(["daemon", mark]).spawn().expect("a daemon");
}

/// Starts a tree that outlives the parent-death signal, then kills the parent on request.
fn kill_parent(mark: &str) {
    let me = env::current_exe().expect("this binary");
    let mut tree =
        Command::new(me).args(["tree", mark]).stdout(Stdio::piped()).spawn().expect("a tree");
    tree.stdout.as_mut().expect("piped").read_exact(&mut [0; 6]).expect("ready");
    nix::sys::prctl::set_pdeathsig(None).ok();
    say("ready");
    io::stdin().read_line(&mut String::new()).expect("the word");
    kill(getppid(), Signal::SIGKILL).ok();
    deaf();
}

/// Stops the parent at once, and again for each line of input.
fn stop_parent(mark: &str) -> ! {
    let parent = getppid();
    kill(parent, Signal::SIGSTOP).ok();
    let me = env::current_exe().expect("this binary");
    Command::new(me).args(["deaf", mark]).stdin(Stdio::null()).spawn().expect("a child");
    for _ in io::stdin().lines() {
        kill(parent, Signal::SIGSTOP).ok();
        say("again");
    }
    deaf();
}

/// Stops the parent again and again, so that it never gets to run. Only the first parent: once it is gone, the next
/// one is the test.
fn stop_parent_always() -> ! {
    let parent = getppid();
    say("ready");
    loop {
        kill(parent, Signal::SIGSTOP).ok();
    }
}

fn stop_self() {
    say("ready");
    raise(Signal::SIGSTOP).ok();
    // Resumed: behave.
    io::copy(&mut io::stdin(), &mut io::sink()).ok();
}

/// Orphans that exit at once: the process that adopts them has to reap them.
fn zombies() -> ! {
    for _ in 0..20 {
        Command::new("sh").args(["-c", "sh -c : & :"]).status().expect("a shell");
    }
    deaf();
}

/// Doubles `depth` times, each process in a session of its own.
fn fork_bomb(mark: &str, depth: u32) {
    setsid().ok();
    SigSet::all().thread_block().ok();
    let me = env::current_exe().expect("this binary");
    if let Some(left) = depth.checked_sub(1) {
        for _ in 0..2 {
            let mut command = Command::new(&me);
            command.args(["fork-bomb-rest", mark, &left.to_string()]).process_group(0);
            command.spawn().expect("a child");
        }
    }
    deaf();
}

/// Never stops writing to stderr.
fn flood() -> ! {
    say("ready");
    let noise = vec![b'x'; 65536];
    loop {
        io::stderr().write_all(&noise).ok();
    }
}

/// Tries the operations in the arguments, pairs of a verb and its object, and prints how each went.
fn try_out(tries: &[String]) {
    for pair in tries.chunks_exact(2) {
        let (verb, on) = (pair[0].as_str(), pair[1].as_str());
        let tried = match verb {
            "read" => fs::read(on).map(drop),
            "list" => fs::read_dir(on).map(drop),
            "write" => fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(on)
                .and_then(|mut file| file.write_all(b"x")),
            "connect" => UnixStream::connect(on).map(drop),
            "truncate" => nix::unistd::truncate(on, 1).map_err(io::Error::from),
            "pair" => make_pair(on),
            "signal" => {
                let pid = on.parse().map(Pid::from_raw).expect("a pid");
                kill(pid, None).map_err(io::Error::from)
            }
            _ => Err(io::ErrorKind::InvalidInput.into()),
        };
        let went = match tried.map_err(|error| error.kind()) {
            Ok(()) => "done".to_owned(),
            Err(io::ErrorKind::PermissionDenied) => "denied".to_owned(),
            Err(io::ErrorKind::NotFound) => "gone".to_owned(),
            Err(_) if verb == "signal" => "gone".to_owned(),
            Err(kind) => kind.to_string(),
        };
        say(&format!("{verb} {went}"));
    }
}

fn make_pair(kind: &str) -> io::Result<()> {
    let kind = match kind {
        "stream" => SockType::Stream,
        "packet" => SockType::SeqPacket,
        "datagram" => SockType::Datagram,
        _ => SockType::Raw,
    };
    socketpair(AddressFamily::Unix, kind, None, SockFlag::SOCK_CLOEXEC)?;
    Ok(())
}

/// Starts a server without a sandbox and with one, after the kernel's limit of nested Landlock rulesets is used up.
fn no_room_for_a_sandbox(args: &[String]) {
    let (own, mark) = (&args[0], &args[1]);
    // Neither a server nor its shim needs the right restricted here.
    let layer = || Ruleset::default().handle_access(AccessFs::MakeBlock)?.create()?.restrict_self();
    // Far more than the limit; a kernel without a limit would accept them for ever.
    (0..64).take_while(|_| layer().is_ok()).for_each(drop);
    let shim = ShimCommand::this_binary("__shim").expect("this binary");
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
    let spawner = Spawner::start(shim, Containment::Shim).expect("spawner");
    for word in ["without", "with"] {
        let script = format!("echo {word} >> '{mark}'; echo ready");
        let sandbox_policy = SandboxPolicy { home: own.into(), ..SandboxPolicy::default() };
        let spec = Spec {
            program: "sh".into(),
            args: vec!["-c".into(), script.into()],
            sandbox_policy: (word == "with").then_some(sandbox_policy),
            ..Spec::default()
        };
        let outcome = runtime.block_on(async {
            let child = spawner.spawn(spec).await?;
            hear(&child).await;
            Ok::<_, metamcp_child::SpawnError>(())
        });
        let said = outcome.map_or_else(|error| error.to_string(), |()| "started".to_owned());
        say(&format!("{word}: {said}"));
    }
}

pub(crate) fn say(line: &str) {
    let mut out = io::stdout();
    out.write_all(format!("{line}\n").as_bytes()).ok();
    out.flush().ok();
}
