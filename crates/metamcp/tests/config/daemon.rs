//! Commands around the daemon where there is none, and where something else is at its place.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Output, Stdio};
use std::thread::JoinHandle;

use insta::assert_snapshot;
use metamcp_engine::runtime_folder::Places;
use metamcp_wire::local::{Accepted, CommandLine, Frame, Hello, Kind, Refusal, Reply};
use serde_json::json;

use crate::Shell;

const OWN: &str = "user/.metamcp/mcp.json";

/// A shell whose daemon would be in a folder of its own.
fn shell() -> Shell {
    let shell = Shell::new();
    let notes = json!({ "command": env!("CARGO_BIN_EXE_metamcp"), "args": ["__example", "notes"] });
    shell.write(OWN, &json!({ "mcpServers": { "notes": notes } }).to_string());
    shell
}

fn command(shell: &Shell, line: &[&str]) -> Command {
    let mut command = shell.command(line);
    command.env("METAMCP_RUNTIME_DIR", shell.path("run"));
    // `auto` without a daemon: nothing is started, so what runs is what the test put there.
    command.env("METAMCP_DAEMON", "auto").stdin(Stdio::null());
    command
}

fn run(shell: &Shell, line: &[&str]) -> Output {
    command(shell, line).output().unwrap()
}

fn listener(shell: &Shell) -> UnixListener {
    let run = shell.path("run").display().to_string();
    let places = Places::find_in(&shell.path("user/.metamcp"), Some(&run)).unwrap();
    let held = places.hold().unwrap().unwrap();
    places.bind(&held).unwrap()
}

/// Takes one connection, reads its hello, and hands both to `answer`.
fn once(
    listener: &UnixListener,
    answer: impl FnOnce(&Hello, &mut UnixStream) + Send + 'static,
) -> JoinHandle<Hello> {
    let listener = listener.try_clone().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut line = Vec::new();
        BufReader::new(stream.try_clone().unwrap()).read_until(b'\n', &mut line).unwrap();
        line.pop();
        let hello = Hello::parse(&line).unwrap();
        answer(&hello, &mut stream);
        hello
    })
}

fn accept(stream: &mut UnixStream, more: Accepted) {
    let reply = Accepted { version: env!("CARGO_PKG_VERSION").into(), pid: 7, ..more };
    stream.write_all(&Reply::Accepted(reply).to_line()).unwrap();
}

fn say(stream: &mut UnixStream, frame: &Frame) {
    stream.write_all(&frame.to_line()).unwrap();
}

fn said(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn line_of(hello: Hello) -> CommandLine {
    match hello.kind {
        Kind::Command(line) => line,
        other => panic!("{other}"),
    }
}

#[test]
fn without_a_daemon_the_commands_say_so() {
    let shell = shell();
    let mut told = String::new();
    for line in [
        &["status"][..],
        &["status", "--json"],
        &["daemon", "status"],
        &["daemon", "status", "--json"],
        &["daemon", "stop"],
        &["daemon", "stop", "--json"],
        &["daemon", "logs"],
    ] {
        let (code, out, err) = said(&run(&shell, line));
        let root = shell.path("").display().to_string();
        let code = code.unwrap();
        told +=
            &format!("$ metamcp {} -> {code}\n{out}{err}", line.join(" ")).replace(&root, "ROOT/");
    }
    assert_snapshot!(told);
}

#[test]
fn a_command_is_printed_as_the_daemon_says_it() {
    let shell = shell();
    let listener = listener(&shell);
    let daemon = once(&listener, |_, stream| {
        accept(stream, Accepted { remarks: vec!["mind the gap".into()], ..Accepted::default() });
        say(stream, &Frame::Out("one \u{1b}[1mbold\u{1b}[0m ".into()));
        say(stream, &Frame::Err("careful\n".into()));
        say(stream, &Frame::Out("two\n".into()));
        say(stream, &Frame::Exit(5));
    });
    let output = command(&shell, &["list", "--toolset", "none", "--quiet"])
        .env("MARK", "here")
        .output()
        .unwrap();
    let told = said(&output);
    // Colours are for terminals, whoever wrote them.
    assert_eq!(told, (Some(5), "one bold two\n".into(), "mind the gap\ncareful\n".into()));
    let hello = daemon.join().unwrap();
    assert_eq!(hello.flags, ["--toolset=none"]);
    assert!(hello.env.contains(&("MARK".into(), "here".into())));
    assert_eq!(hello.folder, shell.path("project").canonicalize().unwrap().to_str().unwrap());
    let line = line_of(hello);
    assert_eq!(line.args, ["list", "--toolset", "none", "--quiet"]);
    assert!(line.stdin.is_none() && line.files.is_empty());
    assert!(!line.terminal.stdout && line.terminal.width == 0);
}

#[test]
fn what_a_call_reads_goes_with_it() {
    let shell = shell();
    let listener = listener(&shell);
    shell.write("project/body.md", "from a file");
    let answer = |_: &Hello, stream: &mut UnixStream| {
        accept(stream, Accepted::default());
        say(stream, &Frame::Exit(0));
    };
    let daemon = once(&listener, answer);
    let line = ["call", "notes:add", "text=@body.md", "title=plain", "--args", "-"];
    let mut child = command(&shell, &line).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"{\"tags\": []}").unwrap();
    assert!(child.wait().unwrap().success());
    let told = line_of(daemon.join().unwrap());
    assert_eq!(told.files, [("body.md".to_owned(), b"from a file".to_vec())]);
    assert_eq!(told.stdin.as_deref(), Some(&b"{\"tags\": []}"[..]));

    let daemon = once(&listener, answer);
    shell.write("project/script.ts", "return 1");
    assert!(run(&shell, &["run", "script.ts"]).status.success());
    let told = line_of(daemon.join().unwrap());
    assert_eq!(told.files, [("script.ts".to_owned(), b"return 1".to_vec())]);
}

#[test]
fn a_daemon_that_refuses_or_babbles_is_done_without() {
    let shell = shell();
    let listener = listener(&shell);
    let refuse = |code| {
        move |_: &Hello, stream: &mut UnixStream| {
            let refusal = Refusal::new(env!("CARGO_PKG_VERSION"), code, "no");
            stream.write_all(&Reply::Refused(refusal).to_line()).unwrap();
        }
    };
    use metamcp_wire::local::Code;
    for code in [Code::Config, Code::Busy, Code::Draining, Code::Protocol, Code::Off] {
        let daemon = once(&listener, refuse(code));
        let (exit, out, err) = said(&run(&shell, &["list"]));
        assert_eq!(exit, Some(0), "{err}");
        assert!(out.contains("notes") && err.is_empty(), "{out}{err}");
        daemon.join().unwrap();
    }
    for garbage in [&b"hello\n"[..], b"{\"metamcp\":99,\"ok\":true}\n", b"", &[0xff; 4096]] {
        let daemon = once(&listener, move |_, stream| drop(stream.write_all(garbage)));
        let (exit, out, err) = said(&run(&shell, &["list"]));
        assert_eq!((exit, out.contains("notes")), (Some(0), true), "{err}");
        daemon.join().unwrap();
    }
    // Whoever requires the daemon hears what is wrong with it.
    let daemon = once(&listener, refuse(Code::Busy));
    let (exit, _, err) = said(&run(&shell, &["list", "--daemon", "require"]));
    assert_eq!((exit, err.as_str()), (Some(1), "error: no\n"));
    daemon.join().unwrap();
}

#[test]
fn a_call_whose_daemon_dies_is_not_made_again() {
    let shell = shell();
    let listener = listener(&shell);
    let die = |_: &Hello, stream: &mut UnixStream| accept(stream, Accepted::default());
    let daemon = once(&listener, die);
    let told = said(&run(&shell, &["call", "notes:add", "text=x"]));
    daemon.join().unwrap();
    assert_eq!(told.0, Some(4));
    assert_snapshot!(told.2);
    let daemon = once(&listener, die);
    let output = run(&shell, &["call", "notes:add", "text=x", "--json"]);
    daemon.join().unwrap();
    assert_eq!(output.status.code(), Some(4));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(told.to_string().contains("not known"), "{told}");
    // What changes nothing is done here instead.
    let daemon = once(&listener, die);
    let (exit, out, _) = said(&run(&shell, &["list"]));
    assert_eq!((exit, out.contains("notes")), (Some(0), true));
    daemon.join().unwrap();
}

#[test]
fn where_no_daemon_is_wanted_none_is_asked() {
    let shell = shell();
    let listener = listener(&shell);
    listener.set_nonblocking(true).unwrap();
    for line in [
        &["list", "--daemon", "off"][..],
        &["list", "-v"],
        &["list", "--log-level", "info"],
        &["config", "check"],
        &["auth", "status"],
        &["approve"],
    ] {
        let (exit, _, err) = said(&run(&shell, line));
        assert_eq!(exit, Some(0), "{line:?}: {err}");
        let kind = listener.accept().unwrap_err().kind();
        assert_eq!(kind, std::io::ErrorKind::WouldBlock, "{line:?}");
    }
}

#[test]
fn status_is_what_the_daemon_reports() {
    let shell = shell();
    let listener = listener(&shell);
    let report = json!({
        "version": "0.1.0", "pid": 77, "uptimeMs": 65_000, "log": "/x/daemon.log",
        "sessions": [{ "id": 1, "kind": "stdio", "client": "tester 1.0", "folder": "/work", "ageMs": 1000, "calls": 3 }],
        "servers": [{ "name": "notes", "scope": "machine", "instances": [
            { "state": "idle", "pid": 78, "memoryBytes": 12_000_000, "sessions": [1] },
        ] }],
    });
    // It is of a version that tells nothing of its traffic.
    let answer = move |hello: &Hello, stream: &mut UnixStream| {
        if hello.kind == Kind::Status {
            accept(stream, Accepted { status: Some(report.to_string()), ..Accepted::default() });
        }
    };
    let daemons = [once(&listener, answer.clone()), once(&listener, answer.clone())];
    let (exit, out, _) = said(&run(&shell, &["status"]));
    let mut kinds = daemons.map(|daemon| daemon.join().unwrap().kind);
    kinds.sort_by_key(|kind| *kind == Kind::Admin);
    assert_eq!((exit, kinds), (Some(0), [Kind::Status, Kind::Admin]));
    assert_snapshot!(out);
    let daemon = once(&listener, answer);
    let output = run(&shell, &["daemon", "status", "--json"]);
    daemon.join().unwrap();
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&told["running"], &told["pid"]), (&json!(true), &json!(77)));
}

#[test]
fn stop_waits_until_the_daemon_has_ended() {
    let shell = shell();
    let listener = listener(&shell);
    let daemon = once(&listener, |_, stream| accept(stream, Accepted::default()));
    let told = said(&run(&shell, &["daemon", "stop"]));
    assert_eq!(daemon.join().unwrap().kind, Kind::Stop);
    assert_eq!(told, (Some(0), "Stopped (process 7).\n".into(), String::new()));
}

#[test]
fn the_log_is_printed_from_its_end() {
    let shell = shell();
    shell.write("user/.metamcp/daemon.log", "one\ntwo\nthree\n");
    let (exit, out, _) = said(&run(&shell, &["daemon", "logs", "-n", "2"]));
    assert_eq!((exit, out.as_str()), (Some(0), "two\nthree\n"));
    // As it grows.
    let mut child = command(&shell, &["daemon", "logs", "-n", "1", "-f"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "three");
    shell.write("user/.metamcp/daemon.log", "one\ntwo\nthree\nfour\n");
    assert_eq!(lines.next().unwrap().unwrap(), "four");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[cfg(target_os = "linux")]
#[test]
fn a_service_is_installed_once_and_said_where_it_has_no_effect() {
    let shell = shell();
    // A machine without systemd, whatever this one is.
    shell.program("nothing", "");
    let mut told = String::new();
    for line in [
        &["service", "install", "--dry-run"][..],
        &["service", "install"],
        &["service", "install"],
        &["service", "uninstall", "--dry-run", "--json"],
        &["service", "uninstall"],
        &["service", "uninstall"],
    ] {
        told += &format!("$ metamcp {}\n{}\n", line.join(" "), shell.told(line));
    }
    assert_snapshot!(told);
    assert!(!shell.path("user/.config/systemd/user/metamcp.service").exists());
}

#[cfg(target_os = "linux")]
#[test]
fn a_service_is_enabled_by_the_systems_own_program() {
    let shell = shell();
    shell.program("systemctl", "#!/bin/sh\necho \"$@\" >> \"$HOME/ran\"\n");
    let output = shell.run(&["service", "install", "--json", "--home", "/elsewhere/metamcp"]);
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&told["changed"], &told["error"]), (&json!(true), &json!(null)), "{told}");
    assert_eq!(
        shell.read("user/ran"),
        "--user daemon-reload\n--user enable --now metamcp.service\n"
    );
    let unit = shell.read("user/.config/systemd/user/metamcp.service");
    let program = env!("CARGO_BIN_EXE_metamcp");
    let line =
        format!("ExecStart=\"{program}\" \"daemon\" \"run\" \"--home\" \"/elsewhere/metamcp\"");
    assert!(unit.contains(&line), "{unit}");
}

#[test]
fn why_a_server_is_shared_as_it_is() {
    let shell = shell();
    let servers = json!({
        "github": { "url": "https://example.com/mcp" },
        "browser": { "command": "npx", "args": ["-y", "@playwright/mcp"] },
        "git": { "command": "uvx", "args": ["mcp-server-git"] },
        "notes": { "command": "x", "cwd": "/srv", "share": "session" },
    });
    shell.write(OWN, &json!({ "mcpServers": servers }).to_string());
    assert_snapshot!(shell.told(&["list", "--why"]));
    let told = shell.json(&["list", "--why", "git", "--json"]);
    assert_eq!(told["servers"][0]["scope"], "project");
    assert_eq!(shell.run(&["list", "--why", "gti"]).status.code(), Some(2));
}
