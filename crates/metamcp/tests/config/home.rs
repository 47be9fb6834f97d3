//! Homes that are not writable, that contain leftovers of killed gateways, or that another process has locked: the
//! error messages.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use metamcp_testkit::DAEMON;
use serde_json::Value;

use crate::Shell;

const OWN: &str = "user/.metamcp/mcp.json";

fn of_home(told: &Value) -> Vec<Value> {
    let findings = told["findings"].as_array().expect("findings").iter();
    findings.filter(|finding| finding["area"] == "home").cloned().collect()
}

#[test]
#[cfg(target_os = "linux")]
fn doctor_finds_a_home_that_cannot_be_written_to() {
    let shell = Shell::new();
    shell.write("project/named.json", r#"{ "mcpServers": {} }"#);
    // Not even root can create a file there.
    let output = shell.run_with(
        &["--config", "named.json", "doctor", "--json"],
        &[("METAMCP_HOME", "/proc/self")],
    );
    let told: Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
    let found = of_home(&told);
    assert_eq!(found.len(), 1, "{told:#}");
    assert_eq!(found[0]["level"], "problem");
    let words = found[0]["message"].as_str().expect("words");
    assert!(words.contains("/proc/self cannot be written to"), "{words}");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        of_home(&shell.json(&["--config", "named.json", "doctor", "--json"])),
        [] as [Value; 0],
        "one that can"
    );
}

#[test]
#[cfg(unix)]
fn doctor_finds_and_removes_what_a_killed_gateway_left() {
    use std::os::unix::fs::PermissionsExt;
    let shell = Shell::with_config(r#"{ "mcpServers": {} }"#);
    let mut gone = Command::new("true").spawn().expect("it runs");
    gone.wait().expect("it ends");
    let folder = format!("user/.metamcp/results/{}-0123", gone.id());
    shell.write(&format!("{folder}/r1"), &"x".repeat(2_000_000));
    for path in ["user/.metamcp", "user/.metamcp/results", &folder] {
        let private = fs::Permissions::from_mode(0o700);
        fs::set_permissions(shell.path(path), private).expect("ours");
    }
    let told = shell.json(&["doctor", "--fix", "--json"]);
    let found = of_home(&told);
    assert_eq!(found.len(), 1, "{told:#}");
    let words = found[0]["message"].as_str().expect("words");
    assert!(words.contains("1 file of results (2 MB) left by gateways"), "{words}");
    assert_eq!(found[0]["fixed"], true, "{told:#}");
    assert!(!shell.path(&folder).exists());
}

#[test]
#[cfg(target_os = "linux")]
fn add_says_for_whom_it_waits() {
    let shell = Shell::new();
    shell.write(OWN, "{}");
    let held = File::open(shell.path("user/.metamcp")).expect("a folder");
    held.lock().expect("nobody else has it");
    let mut adding = Command::new(env!("CARGO_BIN_EXE_metamcp"))
        .args(["add", "clock", "--", "true"])
        .env_clear()
        .env("HOME", shell.path("user"))
        .env(DAEMON.0, DAEMON.1)
        .current_dir(shell.path("project"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let mut stderr = BufReader::new(adding.stderr.take().expect("piped"));
    let mut line = String::new();
    stderr.read_line(&mut line).expect("it says something");
    let holder = format!("(process {})", std::process::id());
    assert!(line.contains("waiting for") && line.contains(&holder), "{line}");
    drop(held);
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).expect("it ends");
    assert!(adding.wait().expect("it ends").success(), "{rest}");
    assert!(shell.read(OWN).contains("clock"));
}
