//! Misbehaving servers of Windows, and the miniature gateway that runs them.
//!
//! Each process of a server writes its pid to a file in the folder `MARK` before it says that it is ready, so that the
//! tests know all of them, whoever their parent is by then.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::windows::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{env, fs, process, thread};

use metamcp_child::{Containment, ShimCommand, Spawner, Spec};
use tokio::io::AsyncReadExt;

/// A host whose children do not start exits, so that its test fails instead of waiting.
const PATIENCE: Duration = Duration::from_secs(60);

const DETACHED_PROCESS: u32 = 0x0000_0008;
const CREATE_NEW_CONSOLE: u32 = 0x0000_0010;
const CREATE_NEW_PROCESS_GROUP: u32 = 0x0000_0200;
const CREATE_BREAKAWAY_FROM_JOB: u32 = 0x0100_0000;

/// Runs the behaviour named by the first argument.
pub(crate) fn run() {
    let mut args = env::args().skip(1);
    let first = args.next().unwrap_or_default();
    let rest: Vec<String> = args.collect();
    match first.as_str() {
        "host" => host(&rest),
        "deaf" => deaf(Path::new(&rest[0])),
        "tree" => tree(&rest[0]),
        "pair" => pair(&rest[0], false),
        "pair-then-exit" => pair(&rest[0], true),
        "breakaway" => breakaway(&rest[0]),
        "polite" => polite(),
        "hears" => hears(&rest),
        "dump" => dump(&rest),
        "flood" => flood(),
        _ => say("unknown behaviour"),
    }
}

/// Starts servers, reports it, and stays.
fn host(args: &[String]) {
    let count: usize = args[2].parse().expect("a number of servers");
    let shim = ShimCommand::this_binary("__shim").expect("this binary");
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
    let spawner = Spawner::start(shim, Containment::Auto).expect("spawner");
    runtime.block_on(async {
        let mut children = Vec::new();
        for at in 0..count {
            let spec = Spec {
                program: env::current_exe().expect("this binary").into(),
                args: vec![OsString::from(&args[0]), OsString::from(&args[1])],
                ..Spec::default()
            };
            let started = async {
                let mut child = spawner.spawn(spec).await.expect("a child");
                let mut ready = [0; 5];
                child.stdout.read_exact(&mut ready).await.expect("a word");
                child
            };
            children.push(tokio::time::timeout(PATIENCE, started).await.expect("a child in time"));
            say(&format!("started {at}"));
        }
        say(&format!("ready {}", spawner.tier()));
        std::future::pending::<()>().await;
    });
}

fn say(words: &str) {
    writeln!(io::stdout(), "{words}").and_then(|()| io::stdout().flush()).ok();
}

/// Writes down that this process runs.
fn sign(mark: &Path) {
    fs::write(mark.join(process::id().to_string()), "").expect("a folder for marks");
}

/// Ignores everything that can be ignored, end of input included.
fn deaf(mark: &Path) -> ! {
    sign(mark);
    say("ready");
    loop {
        thread::park();
    }
}

/// One more of this program, deaf, started in some manner; with its first word read.
fn start(mark: &str, flags: u32) -> io::Result<Child> {
    let mut command = Command::new(env::current_exe().expect("this binary"));
    command.args(["deaf", mark]).stdin(Stdio::null()).stdout(Stdio::piped()).creation_flags(flags);
    let mut child = command.spawn()?;
    child.stdout.as_mut().expect("piped").read_exact(&mut [0; 5])?;
    Ok(child)
}

/// A deaf leader with children in every manner that could lead out of its job: detached from the console, with a console
/// of their own, in a group of their own, asking to break away, and orphaned.
fn tree(mark: &str) {
    let manners = [0, DETACHED_PROCESS, CREATE_NEW_CONSOLE, CREATE_NEW_PROCESS_GROUP];
    for flags in manners {
        start(mark, flags).expect("a child");
        // What breaks away would be out of reach. Where it is refused, the tests count on the others.
        drop(start(mark, flags | CREATE_BREAKAWAY_FROM_JOB));
    }
    let mut parent = Command::new(env::current_exe().expect("this binary"));
    parent.args(["pair-then-exit", mark]).stdin(Stdio::null()).stdout(Stdio::null());
    parent.status().expect("a parent that leaves an orphan");
    deaf(Path::new(mark));
}

/// A leader with one child, detached and asking to break away.
fn pair(mark: &str, then_exit: bool) {
    if start(mark, DETACHED_PROCESS | CREATE_BREAKAWAY_FROM_JOB).is_err() {
        start(mark, DETACHED_PROCESS).expect("a child");
    }
    if then_exit {
        sign(Path::new(mark));
        say("ready");
        return;
    }
    deaf(Path::new(mark));
}

/// Says whether a child could break away.
fn breakaway(mark: &str) {
    let words = match start(mark, CREATE_BREAKAWAY_FROM_JOB) {
        Ok(_) => "started".to_owned(),
        Err(error) => format!("{:?}", error.kind()),
    };
    say(&words);
    io::copy(&mut io::stdin(), &mut io::sink()).ok();
}

/// Ends with its input, and says so in its exit code.
fn polite() -> ! {
    say("ready");
    io::copy(&mut io::stdin(), &mut io::sink()).ok();
    process::exit(7);
}

/// Does not end with its input, but after so many console events of one kind; its exit code says how many there were.
fn hears(args: &[String]) -> ! {
    let wanted: i32 = args[1].parse().expect("a number of events");
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
    runtime.block_on(async {
        let mut interrupt = tokio::signal::windows::ctrl_c().expect("a handler");
        let mut brk = tokio::signal::windows::ctrl_break().expect("a handler");
        say("ready");
        for _ in 0..wanted {
            match args[0].as_str() {
                "ctrl-c" => interrupt.recv().await,
                _ => brk.recv().await,
            };
            say("heard");
        }
    });
    process::exit(10 + wanted);
}

/// Prints what it was given, one line per fact.
fn dump(args: &[String]) {
    for argument in args {
        say(&format!("argument {argument}"));
    }
    for (name, value) in env::vars() {
        say(&format!("variable {name}={value}"));
    }
    say(&format!("folder {}", env::current_dir().expect("a folder").display()));
    say("end");
}

/// Never stops writing to stderr.
fn flood() -> ! {
    say("ready");
    let noise = vec![b'x'; 65536];
    loop {
        io::stderr().write_all(&noise).ok();
    }
}
