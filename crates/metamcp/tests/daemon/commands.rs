//! Commands of a shell in a real daemon: servers stay warm, the state is the live one, the folder is the shell's.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

/// A home with two example servers and a journal of each start, and folders to be in. Its daemon ends with it.
struct Home {
    root: TempDir,
}

/// Writes its process and folder into a journal, then becomes an example server.
const STARTER: &str = "#!/bin/sh\necho \"$$ $(pwd) ${MARK-}\" >> \"$JOURNAL\"\nexec \"$@\"\n";

impl Home {
    fn new() -> Home {
        let root = tempfile::tempdir().unwrap();
        for folder in ["home", "one", "two", "run"] {
            std::fs::create_dir(root.path().join(folder)).unwrap();
        }
        let home = Home { root };
        let starter = home.path("start.sh");
        std::fs::write(&starter, STARTER).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&starter, mode).unwrap();
        let server = |name: &str, share: &str| {
            json!({
                "command": starter,
                "args": [env!("CARGO_BIN_EXE_metamcp"), "__example", name],
                "env": { "JOURNAL": home.path(&format!("{name}.journal")), "MARK": "${MARK:-none}" },
                "share": share,
            })
        };
        let servers = json!({
            "numbers": server("numbers", "machine"),
            "text": server("text", "project"),
        });
        home.write("home/mcp.json", &json!({ "mcpServers": servers }).to_string());
        home
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        std::fs::write(self.path(path), text).unwrap();
    }

    fn command(&self, folder: &str, line: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_metamcp"));
        command
            .args(line)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.root.path())
            .env("METAMCP_HOME", self.path("home"))
            .env("METAMCP_RUNTIME_DIR", self.path("run"))
            .env("METAMCP_DAEMON", "auto")
            .current_dir(self.path(folder))
            .stdin(Stdio::null());
        command
    }

    fn run(&self, folder: &str, line: &[&str]) -> Output {
        self.command(folder, line).output().unwrap()
    }

    /// The output of a command that succeeds.
    fn told(&self, folder: &str, line: &[&str]) -> String {
        let Output { status, stdout, stderr } = self.run(folder, line);
        let err = String::from_utf8_lossy(&stderr);
        assert!(status.success(), "{line:?}: {status}: {err}");
        String::from_utf8(stdout).unwrap()
    }

    fn json(&self, line: &[&str]) -> Value {
        serde_json::from_str(&self.told("one", line)).unwrap()
    }

    /// Every start of a server: its process, folder and `MARK`.
    fn starts(&self, server: &str) -> Vec<String> {
        let journal = std::fs::read_to_string(self.path(&format!("{server}.journal")));
        journal.unwrap_or_default().lines().map(str::to_owned).collect()
    }

    fn call(&self, folder: &str) -> String {
        self.told(folder, &["call", "numbers:factorize", "number=12"])
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // A test that failed may have left none.
        drop(self.command("one", &["daemon", "stop"]).output());
    }
}

fn alive(pid: u64) -> bool {
    std::fs::exists(format!("/proc/{pid}")).unwrap()
}

/// The process of the first server that runs. What it says itself may be its number in a namespace of its own.
fn running(status: &Value) -> u64 {
    let servers = status["servers"].as_array().unwrap().iter();
    let pid = servers.flat_map(|server| server["instances"].as_array().unwrap()).next();
    pid.unwrap()["pid"].as_u64().unwrap()
}

#[test]
fn two_calls_are_one_process_and_the_state_is_the_live_one() {
    let home = Home::new();
    assert_eq!(home.json(&["status", "--json"])["running"], false);
    // A command that only looks starts no daemon.
    home.told("one", &["list"]);
    assert_eq!(home.run("one", &["daemon", "status"]).status.code(), Some(4));

    let first = home.call("one");
    assert_eq!(home.call("one"), first);
    assert_eq!(home.starts("numbers").len(), 1, "{:?}", home.starts("numbers"));
    assert!(home.starts("text").is_empty());

    let listed = home.json(&["list", "--json"]);
    let state = |name: &str| {
        let servers = listed["servers"].as_array().unwrap();
        servers.iter().find(|server| server["name"] == name).unwrap()["state"].clone()
    };
    assert_eq!((state("numbers"), state("text")), (json!("idle"), json!("enabled")));
    assert_eq!(home.json(&["get", "numbers", "--json"])["running"], 1);
    assert_eq!(home.json(&["get", "text", "--json"])["running"], 0);

    let status = home.json(&["status", "--json"]);
    let servers = status["servers"].as_array().unwrap();
    let numbers = servers.iter().find(|server| server["name"] == "numbers").unwrap();
    assert_eq!(
        (&numbers["scope"], numbers["instances"].as_array().unwrap().len()),
        (&json!("machine"), 1)
    );
    assert_eq!(numbers["instances"][0]["state"], "idle");
    // Looking closer does not end what runs.
    let doctor = home.run("one", &["doctor", "numbers", "--json"]);
    let findings: Value = serde_json::from_slice(&doctor.stdout).unwrap();
    assert_eq!(findings["problems"], 0, "{findings}");
    assert_eq!(home.call("one"), first);
    assert_eq!(home.starts("numbers").len(), 1);
}

#[test]
fn a_command_is_in_the_folder_and_has_the_variables_of_its_shell() {
    let home = Home::new();
    home.write("one/words.txt", "one two three");
    home.write("two/words.txt", "four");
    let count = |folder: &str| home.told(folder, &["call", "text:count_words", "text=@words.txt"]);
    let (in_one, in_two) = (count("one"), count("two"));
    assert!(in_one.contains('3') && in_two.contains('1'), "{in_one}{in_two}");
    let folder = |start: &String| start.split(' ').nth(1).unwrap().to_owned();
    let folders: Vec<String> = home.starts("text").iter().map(folder).collect();
    let real = |name: &str| home.path(name).canonicalize().unwrap().display().to_string();
    assert_eq!(folders, [real("one"), real("two")]);
    // One of each folder, however often it is called there.
    count("one");
    assert_eq!(home.starts("text").len(), 2);

    // Another value of a variable that the file refers to is another process, of a server that all share too.
    home.call("one");
    let output =
        home.command("one", &["call", "numbers:factorize", "number=12"]).env("MARK", "x").output();
    assert!(output.unwrap().status.success());
    let marks: Vec<String> = home.starts("numbers");
    let marks: Vec<&str> = marks.iter().map(|start| start.split(' ').nth(2).unwrap()).collect();
    assert_eq!(marks, ["none", "x"]);
}

#[test]
fn errors_exit_codes_and_scripts_are_those_of_a_command_by_itself() {
    let home = Home::new();
    home.write(
        "one/script.ts",
        "console.log('hi'); return (await numbers.factorize({ number: 12 })) != null",
    );
    home.call("one");
    let told = |line: &[&str], mode: &str| {
        let output = home.command("one", line).env("METAMCP_DAEMON", mode).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    for line in [
        &["call", "numbers:factorize", "number=many"][..],
        &["call", "numbers:no_such_tool"],
        &["call", "nowhere:tool"],
        &["call", "numbers:factorize", "number=@missing.txt"],
        &["call", "numbers:factorize", "--args", "[]"],
        &["search", "prime factors", "--limit", "3"],
        &["tools", "nowhere"],
        &["get", "nowhere"],
        &["list", "--why"],
        &["run", "script.ts"],
    ] {
        assert_eq!(told(line, "require"), told(line, "off"), "{line:?}");
    }
}

/// A server that runs for one client is known to the next, whose context came later.
#[test]
fn a_server_that_runs_already_is_known_to_who_comes_later() {
    let home = Home::new();
    home.call("one");
    // A list from disk does not settle that there is no such tool; the server's own does, and it was read before.
    let output = home.run("two", &["call", "numbers:no_such_tool"]);
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("has no tool \"no_such_tool\""), "{told}");
    home.call("two");
    assert_eq!(home.starts("numbers").len(), 1);
}

#[test]
fn stop_ends_every_server_and_restart_begins_anew() {
    let home = Home::new();
    home.call("one");
    let status = home.json(&["status", "--json"]);
    let pid = status["pid"].as_u64().unwrap();
    let server = running(&status);
    assert!(alive(pid) && alive(server));

    let restarted = home.json(&["daemon", "restart", "--json"]);
    assert_eq!(restarted["stopped"], pid);
    let next = restarted["pid"].as_u64().unwrap();
    assert!(next != pid && alive(next), "{pid} {next}");
    assert!(!alive(server), "{server}");
    assert_eq!(home.json(&["daemon", "status", "--json"])["pid"], next);
    home.call("one");
    assert_eq!(home.starts("numbers").len(), 2);
    let server = running(&home.json(&["status", "--json"]));
    assert!(alive(server));

    assert_eq!(home.json(&["daemon", "stop", "--json"])["pid"], next);
    assert_eq!(home.run("one", &["daemon", "status"]).status.code(), Some(4));
    assert!(!alive(server));
}

#[test]
fn the_log_is_there_to_be_read() {
    let home = Home::new();
    let started =
        home.command("one", &["daemon", "restart"]).env("METAMCP_LOG_LEVEL", "info").output();
    assert!(started.unwrap().status.success());
    let logs = home.told("one", &["daemon", "logs"]);
    assert!(logs.contains("serves as process"), "{logs}");
}

/// A call whose shell is gone is cancelled at its server, and the server goes on.
#[test]
fn a_call_whose_shell_ends_is_given_up() {
    let home = Home::new();
    let server = "#!/bin/sh\nwhile read -r line; do\n  echo \"$line\" >> \"$JOURNAL\"\n  id=$(echo \"$line\" | sed -n 's/.*\"id\":\\(\"[^\"]*\"\\|[0-9]*\\).*/\\1/p')\n  case $line in\n    *'\"initialize\"'*) echo \"{\\\"jsonrpc\\\":\\\"2.0\\\",\\\"id\\\":$id,\\\"result\\\":{\\\"protocolVersion\\\":\\\"2025-06-18\\\",\\\"capabilities\\\":{\\\"tools\\\":{}},\\\"serverInfo\\\":{\\\"name\\\":\\\"slow\\\",\\\"version\\\":\\\"1\\\"}}}\" ;;\n    *'\"tools/list\"'*) echo \"{\\\"jsonrpc\\\":\\\"2.0\\\",\\\"id\\\":$id,\\\"result\\\":{\\\"tools\\\":[{\\\"name\\\":\\\"wait\\\",\\\"inputSchema\\\":{\\\"type\\\":\\\"object\\\"}}]}}\" ;;\n  esac\ndone\n";
    home.write("slow.sh", server);
    let fifo = home.path("slow.fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let entry = json!({ "command": "/bin/sh", "args": [home.path("slow.sh")], "env": { "JOURNAL": fifo }, "share": "machine" });
    home.write("home/mcp.json", &json!({ "mcpServers": { "slow": entry } }).to_string());
    // What the server reads, as it reads it. Both ends are opened here, so that nothing waits for the other.
    let reader = std::fs::File::options().read(true).write(true).open(&fifo).unwrap();
    let mut lines = BufReader::new(reader.take(1 << 20)).lines().map(Result::unwrap);
    let mut shell = home.command("one", &["call", "slow:wait"]).spawn().unwrap();
    lines.find(|line| line.contains("\"tools/call\"")).unwrap();
    shell.kill().unwrap();
    shell.wait().unwrap();
    lines.find(|line| line.contains("notifications/cancelled")).unwrap();
    assert_eq!(home.json(&["get", "slow", "--json"])["running"], 1);
}
