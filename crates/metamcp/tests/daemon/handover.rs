//! A newer connector has the daemon drain: its sessions go on, new ones get the new daemon, listeners move.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use metamcp_engine::runtime_folder::Places;
use metamcp_testkit::{Client, Workspace, census, eventually};
use metamcp_wire::local::{Accepted, Hello, Kind, Reply};
use serde_json::json;

use crate::crowd::{HUNG, command, daemon, home, join, process, stateful, told, workspace};
use crate::http::Listening;

fn with() -> Workspace {
    let mut workspace = workspace();
    workspace.server("kept", stateful("machine"));
    workspace.write_config().unwrap();
    workspace
}

/// Has the daemon drain, as a connector of a newer version does; the socket it still has.
fn drain(workspace: &Workspace) -> PathBuf {
    let run = workspace.runtime_folder().display().to_string();
    let places = Places::find_in(&home(workspace), Some(&run)).unwrap();
    let mut stream = places.connect().unwrap();
    let hello = Hello::plain("999.0.0", Kind::Drain, std::process::id());
    stream.write_all(&hello.to_line()).unwrap();
    let mut line = Vec::new();
    BufReader::new(stream).read_until(b'\n', &mut line).unwrap();
    line.pop();
    match Reply::parse(&line).unwrap() {
        Reply::Accepted(Accepted { address, .. }) => address.unwrap().into(),
        Reply::Refused(refused) => panic!("{refused:?}"),
    }
}

/// The daemon that replaces it, started as that connector does.
struct Newer(Child);

impl Newer {
    fn start(workspace: &Workspace, old: &PathBuf) -> Newer {
        let mut command = command(workspace);
        command.args(["daemon", "run", "--home"]).arg(home(workspace));
        command.arg("--take-over").arg(old).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Newer(child)
    }

    fn pid(&self) -> u64 {
        u64::from(self.0.id())
    }
}

impl Drop for Newer {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn is_alive(pid: u64) -> bool {
    census::all().iter().any(|one| u64::from(one.pid) == pid && one.state != 'Z')
}

#[test]
fn sessions_of_an_older_daemon_go_on_and_new_ones_get_the_newer() {
    let workspace = with();
    let mut old_clients = [join(command(&workspace)), join(command(&workspace))];
    let old = daemon(&workspace);
    told(&old_clients[0], "kept", "remember", &json!({"key": "before"}));
    let old_server = process(&old_clients[0], "kept");
    let go = workspace.file("go");
    let slow = json!({"ms": 0, "until": go});
    let slow = old_clients[0].mcp_call("kept", "slow", &slow).unwrap();
    let newer = Newer::start(&workspace, &drain(&workspace));
    std::fs::write(&go, "").unwrap();
    // Nothing of a session moves, and a call in flight ends as it would have.
    let answer = old_clients[0].wait(slow, HUNG).unwrap();
    assert_eq!(answer.text(), Some("waited 0 ms"), "{}", answer.value);
    for client in &old_clients {
        let kept = told(client, "kept", "recall", &json!({}));
        assert_eq!((&kept["kept"], &kept["process"]), (&json!("before"), &json!(old_server)));
    }
    let new_client = join(command(&workspace));
    assert_eq!(daemon(&workspace), newer.pid());
    assert_ne!(process(&new_client, "kept"), old_server);
    assert!(is_alive(old));
    // It ends with its last session, and nothing of it is left.
    let ends = |client: &mut Client| {
        client.close_input();
        assert!(client.wait_exit(HUNG).unwrap().success());
    };
    let [first, last] = &mut old_clients;
    ends(first);
    assert_eq!(process(last, "kept"), old_server);
    ends(last);
    assert!(eventually(HUNG, || !is_alive(old)));
    let run = workspace.runtime_folder().join("metamcp");
    let sockets = || {
        let found = std::fs::read_dir(&run).unwrap().flatten();
        found.filter(|entry| entry.path().extension().is_some_and(|ext| ext == "sock")).count()
    };
    assert!(eventually(HUNG, || sockets() == 1), "the old socket was left behind");
    told(&new_client, "kept", "recall", &json!({}));
    assert_eq!(daemon(&workspace), newer.pid());
}

/// A daemon that drains and whose sessions are over is gone, though nobody started a newer one.
#[test]
fn a_daemon_without_sessions_ends_when_it_drains() {
    let workspace = with();
    let client = join(command(&workspace));
    let old = daemon(&workspace);
    drop(client);
    drain(&workspace);
    assert!(eventually(HUNG, || !is_alive(old)));
    // The next client starts another.
    let client = join(command(&workspace));
    process(&client, "kept");
    assert_ne!(daemon(&workspace), old);
}

#[test]
fn a_listener_moves_without_refusing_anybody() {
    let workspace = with();
    let listening = Listening::start(&workspace, 0);
    let old = daemon(&workspace);
    let over = AtomicBool::new(false);
    let (count, newer) = thread::scope(|scope| {
        let callers: Vec<_> = (0..2)
            .map(|at| {
                let (listening, over) = (&listening, &over);
                scope.spawn(move || {
                    let mut count = 0;
                    while !over.load(Ordering::Relaxed) {
                        let key = format!("{at} {count}");
                        let answer = listening.call("kept", "effect", &json!({"key": key}));
                        let answer = answer.unwrap_or_else(|error| panic!("{key}: {error}"));
                        let said = &answer["result"]["content"][0]["text"];
                        assert_eq!(said, &json!(format!("done {key}")), "{answer}");
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        let ran = || workspace.journal("kept").executions_by_key().unwrap().len();
        assert!(eventually(HUNG, || ran() > 10));
        let newer = Newer::start(&workspace, &drain(&workspace));
        assert!(eventually(HUNG, || !is_alive(old)), "the old daemon still runs");
        let before = ran();
        assert!(eventually(HUNG, || ran() > before + 10));
        over.store(true, Ordering::Relaxed);
        let counts = callers.into_iter().map(|caller| caller.join().unwrap());
        (counts.sum::<usize>(), newer)
    });
    let ran = workspace.journal("kept").executions_by_key().unwrap();
    assert_eq!((ran.len(), ran.values().max()), (count, Some(&1)));
    assert_eq!(daemon(&workspace), newer.pid());
    let status = crate::crowd::status(&workspace);
    assert_eq!(status["listeners"], json!([format!("http://{}/mcp", listening.address)]));
}

#[test]
fn what_is_no_hello_is_refused_in_words_and_service_goes_on() {
    let workspace = with();
    let client = join(command(&workspace));
    let run = workspace.runtime_folder().display().to_string();
    let places = Places::find_in(&home(&workspace), Some(&run)).unwrap();
    for bytes in [
        &b"GET / HTTP/1.1\r\n"[..],
        b"\0\xff\xfe\n",
        b"{}\n",
        b"{\"metamcp\":2,\"version\":\"9\",\"kind\":\"session\"}\n",
        b"{\"metamcp\":1,\"version\":\"9\",\"kind\":\"session\",\"pid\":1,\"folder\":\"not/absolute\"}\n",
    ] {
        let mut stream = places.connect().unwrap();
        stream.write_all(bytes).unwrap();
        let mut line = Vec::new();
        BufReader::new(stream).read_until(b'\n', &mut line).unwrap();
        let reply = Reply::parse(line.trim_ascii_end()).unwrap();
        assert!(matches!(reply, Reply::Refused(_)), "{reply:?}");
    }
    assert!(client.ask("tools/list", &json!({}), HUNG).unwrap().result().is_some());
}
