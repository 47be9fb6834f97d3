//! Programs in place of the engine: after the same lockdown, each tries one escape.
//!
//! The first argument names the attempt. A failed one exits with code 10, a successful one with 99; a kill by the
//! kernel is visible by itself. `claims` and the like violate the protocol.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;

use metamcp_sandbox::lockdown::{self, LinkKind};
use metamcp_sandbox::protocol::{End, FromWorker, Level, Op};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getppid};

/// The escape failed.
const CLOSED: i32 = 10;
/// The escape succeeded.
const OPEN: i32 = 99;
/// Unknown attempt.
const UNKNOWN: i32 = 64;

pub(crate) fn main(word: &str, arguments: impl Iterator<Item = OsString>) -> i32 {
    let target = arguments.last().unwrap_or_default();
    if let Some(code) = liar(word) {
        return code;
    }
    let report = lockdown::apply(0, LinkKind::Socket);
    if !report.missing.is_empty() {
        return UNKNOWN;
    }
    let Some(worked) = attempt(word, &target) else { return UNKNOWN };
    if worked { OPEN } else { CLOSED }
}

/// Tries one escape; returns whether it worked.
fn attempt(word: &str, target: &OsString) -> Option<bool> {
    Some(match word {
        "nothing" => false,
        "sleep" => {
            std::thread::sleep(std::time::Duration::from_millis(1));
            true
        }
        "open-read" => File::open("/etc/passwd").is_ok(),
        "open-write" => File::create(target).is_ok(),
        "open-proc" => fs::read("/proc/self/environ").is_ok(),
        "open-parent" => fs::read(format!("/proc/{}/environ", getppid())).is_ok(),
        "list" => fs::read_dir("/").is_ok(),
        "stat" => fs::metadata("/etc/passwd").is_ok(),
        "unlink" => fs::remove_file(target).is_ok(),
        "mkdir" => fs::create_dir(target).is_ok(),
        "link" => std::os::unix::fs::symlink("/etc/passwd", target).is_ok(),
        "chdir" => std::env::set_current_dir("/tmp").is_ok(),
        "socket-tcp" => TcpStream::connect("127.0.0.1:9").is_ok(),
        "socket-listen" => TcpListener::bind("127.0.0.1:0").is_ok(),
        "socket-udp" => UdpSocket::bind("127.0.0.1:0").is_ok(),
        "socket-unix" => UnixStream::connect("/run/docker.sock").is_ok(),
        "socket-unix-listen" => UnixListener::bind(target).is_ok(),
        "socket-pair" => UnixStream::pair().is_ok(),
        "send-elsewhere" => {
            nix::sys::socket::send(1, b"x", nix::sys::socket::MsgFlags::empty()).is_ok()
        }
        "exec" => Command::new("/bin/true").status().is_ok(),
        "exec-self" => Command::new("/proc/self/exe").arg("nothing").status().is_ok(),
        "thread" => std::thread::Builder::new().spawn(|| ()).is_ok(),
        "kill-parent" => kill(getppid(), Signal::SIGTERM).is_ok(),
        "kill-all" => kill(Pid::from_raw(-1), Signal::SIGTERM).is_ok(),
        "kill-group" => kill(Pid::from_raw(0), None).is_ok(),
        "ptrace-parent" => nix::sys::ptrace::attach(getppid()).is_ok(),
        "dumpable" => nix::sys::prctl::set_dumpable(true).is_ok(),
        "regain-nothing" => nix::sys::prctl::set_no_new_privs().is_ok(),
        "raise-limits" => {
            nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE, 64, 64)
                .is_ok()
        }
        "dup" => io::stdin().as_fd().try_clone_to_owned().is_ok(),
        "unshare" => nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWUSER).is_ok(),
        "setuid" => nix::unistd::setuid(nix::unistd::Uid::from_raw(1)).is_ok(),
        "write-stdout" => nix::unistd::write(io::stdin(), b"x").is_ok(),
        "read-stdin" => nix::unistd::read(io::stdin(), &mut [0; 1]).is_ok(),
        _ => return None,
    })
}

/// Programs that speak the protocol without any lockdown, or violate it.
fn liar(word: &str) -> Option<i32> {
    let ready = |layers: &[&str]| FromWorker::Ready {
        layers: layers.iter().map(ToString::to_string).collect(),
        missing: Vec::new(),
    };
    let all: Vec<&str> = metamcp_sandbox::layer::Profile::Standard.demands().collect();
    match word {
        // Claims every layer and has none.
        "claims" => {
            say(&ready(&all));
            wait();
        }
        "says-too-little" => {
            say(&ready(&all[1..]));
            wait();
        }
        "says-nothing" => wait(),
        "speaks-too-early" => {
            say(&FromWorker::Done { end: End::Ok { value: "1".into() }, cpu: 0 });
            wait();
        }
        "noise" => {
            raw(b"\xff\xff\xff\xff garbage");
            wait();
        }
        "dies" => {}
        "ready-then-gone" => {
            let report = lockdown::apply(0, LinkKind::Socket);
            say(&FromWorker::Ready { layers: report.layers, missing: report.missing });
        }
        // The rest apply the lockdown and misbehave once they have a job.
        "garbled" | "huge" | "twice" | "ready-again" | "deaf" | "flood" | "log-flood"
        | "not-json" | "closes" | "skips" | "two-servers" | "more-members" | "no-object"
        | "value-not-json" | "empty-lines" | "endless-progress" => {
            let report = lockdown::apply(0, LinkKind::Socket);
            say(&FromWorker::Ready { layers: report.layers, missing: report.missing });
            hear();
            misbehave(word);
        }
        _ => return None,
    }
    Some(0)
}

fn misbehave(word: &str) {
    let request =
        |id, payload: &str| FromWorker::Request { id, op: Op::Call, payload: payload.into() };
    match word {
        "garbled" => raw(&[3, 0, 0, 0, 250, 1, 2]),
        "huge" => raw(&u32::MAX.to_le_bytes()),
        "twice" => {
            say(&request(0, r#"{"server":"s","tool":"never","arguments":{}}"#));
            say(&request(0, r#"{"server":"s","tool":"never","arguments":{}}"#));
        }
        "ready-again" => say(&FromWorker::Ready { layers: Vec::new(), missing: Vec::new() }),
        // Sends nothing and never reads: only the wall-clock limit ends it.
        "deaf" => wait(),
        "flood" => {
            for id in 0..u32::MAX {
                say(&request(id, r#"{"server":"s","tool":"never","arguments":{}}"#));
            }
        }
        "log-flood" => {
            for _ in 0..2_000 {
                say(&FromWorker::Log { level: Level::Info, text: "x".repeat(10_000) });
            }
            say(&FromWorker::Done { end: End::Ok { value: "\"y\"".into() }, cpu: 0 });
        }
        "not-json" => {
            say(&request(0, "not json"));
            hear();
            say(&FromWorker::Done { end: End::Ok { value: "1".into() }, cpu: 0 });
        }
        "skips" => say(&request(7, r#"{"server":"s","tool":"echo","arguments":{}}"#)),
        "two-servers" => {
            say(&request(0, r#"{"server":"s","server":"t","tool":"echo","arguments":{}}"#));
        }
        "more-members" => {
            say(&request(0, r#"{"server":"s","tool":"echo","arguments":{},"meta":{}}"#));
        }
        "no-object" => say(&request(0, r#"["s","echo",{}]"#)),
        "value-not-json" => {
            let value = "1,\"calls\":[]".into();
            say(&FromWorker::Done { end: End::Ok { value }, cpu: 0 });
        }
        "empty-lines" => {
            for _ in 0..100_000 {
                say(&FromWorker::Log { level: Level::Info, text: String::new() });
            }
            say(&FromWorker::Done { end: End::Ok { value: "1".into() }, cpu: u64::MAX });
        }
        "endless-progress" => {
            say(&FromWorker::Progress { value: f64::INFINITY, total: None, message: None });
        }
        _ => {}
    }
    if word != "closes" {
        wait();
    }
}

fn say(message: &FromWorker) {
    let mut out = Vec::new();
    message.encode(&mut out);
    raw(&out);
}

/// Writes with the one system call that is allowed.
fn raw(mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match nix::sys::socket::send(0, bytes, nix::sys::socket::MsgFlags::MSG_NOSIGNAL) {
            Ok(count) => bytes = &bytes[count..],
            Err(nix::errno::Errno::EINTR) => {}
            Err(_) => return,
        }
    }
}

fn hear() {
    nix::sys::socket::recv(0, &mut [0; 4096], nix::sys::socket::MsgFlags::empty()).ok();
}

/// Blocks until a signal ends it.
fn wait() {
    while nix::poll::ppoll(&mut [], None, None).is_ok() {}
}
