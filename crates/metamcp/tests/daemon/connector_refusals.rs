//! Where no daemon can be had: a clear word, and service goes on in the client's own process.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use metamcp_testkit::{Client, Workspace, eventually};
use metamcp_wire::local::{Code, Refusal, Reply};
use serde_json::json;

use crate::stand_in::{PATIENCE, StandIn, command, obliging, shake_hands, workspace};

/// The client is served all the same, and its log says this, once.
fn serves_alone(client: &Client, words: &str) {
    shake_hands(client);
    assert!(client.ask("tools/list", &json!({}), PATIENCE).unwrap().result().is_some());
    // Another thread reads it.
    eventually(PATIENCE, || client.stderr().contains(words));
    let told = client.stderr();
    assert_eq!(told.matches("serving this client without the daemon").count(), 1, "{told}");
    assert!(told.contains(words), "{words:?} is not in {told}");
}

fn replying(reply: &[u8], words: &str) {
    let workspace = workspace();
    let _daemon = StandIn::replying(&workspace, reply.to_vec(), obliging);
    serves_alone(&Client::start(command(&workspace)).unwrap(), words);
}

#[test]
fn garbage_in_place_of_a_reply() {
    replying(b"HTTP/1.1 400 Bad Request\r\n\r\n", "not a line of JSON");
    replying(b"{}\n", "`metamcp` is missing");
    replying(
        b"{\"metamcp\":9,\"version\":\"9.0.0\",\"ok\":true,\"pid\":1}\n",
        "version 9 of the local protocol, and this program version 1",
    );
}

#[test]
fn a_daemon_that_refuses() {
    let refusal = |code, error: &str| {
        Reply::Refused(Refusal::new(env!("CARGO_PKG_VERSION"), code, error)).to_line()
    };
    replying(&refusal(Code::Busy, "too many clients"), "too many clients");
    replying(&refusal(Code::Protocol, "version 1 and version 7"), "version 1 and version 7");
    replying(&refusal(Code::Internal, "evil \u{1b}[2J words"), "evil");
}

#[test]
fn a_configuration_that_wants_no_daemon_is_served_without_a_word() {
    let workspace = workspace();
    let off = Reply::Refused(Refusal::new(env!("CARGO_PKG_VERSION"), Code::Off, "off")).to_line();
    let _daemon = StandIn::replying(&workspace, off, obliging);
    let client = Client::start(command(&workspace)).unwrap();
    shake_hands(&client);
    assert!(!client.stderr().contains("daemon"), "{}", client.stderr());
}

#[test]
fn a_configuration_that_cannot_be_used_ends_as_without_a_daemon() {
    let workspace = workspace();
    let refusal = Refusal {
        hint: Some("mend it".to_owned()),
        exit: Some(3),
        ..Refusal::new(env!("CARGO_PKG_VERSION"), Code::Config, "line 3 is wrong")
    };
    let _daemon = StandIn::replying(&workspace, Reply::Refused(refusal).to_line(), obliging);
    let output = command(&workspace).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(told.contains("line 3 is wrong") && told.contains("mend it"), "{told}");
    assert!(output.stdout.is_empty());
}

/// Folders that will not do, each with the reason.
fn bad_folders(workspace: &Workspace) -> Vec<(PathBuf, &'static str)> {
    let make = |name: &str| {
        let path = workspace.file(name);
        std::fs::create_dir_all(&path).unwrap();
        path
    };
    let open = make("open");
    std::fs::create_dir(open.join("metamcp")).unwrap();
    let shared = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(open.join("metamcp"), shared).unwrap();
    let linked = make("linked");
    symlink(make("elsewhere"), linked.join("metamcp")).unwrap();
    let file = make("file");
    std::fs::write(file.join("metamcp"), "").unwrap();
    vec![
        (open, "is open to others (mode 0777)"),
        (linked, "is a symbolic link"),
        (file, "is not a folder"),
        ("/proc/metamcp".into(), "cannot be created"),
        ("not/absolute".into(), "not an absolute path"),
        (make(&"long/".repeat(30)), "too long for a socket"),
    ]
}

#[test]
fn a_folder_that_is_not_safe_or_not_there() {
    let workspace = workspace();
    for (folder, words) in bad_folders(&workspace) {
        let mut command = command(&workspace);
        command.env("METAMCP_RUNTIME_DIR", &folder);
        serves_alone(&Client::start(command).unwrap(), words);
    }
}

#[test]
fn where_a_daemon_is_required_there_is_no_service_without_one() {
    let workspace = workspace();
    for (folder, words) in bad_folders(&workspace) {
        let mut command = command(&workspace);
        command.env("METAMCP_RUNTIME_DIR", &folder).args(["--daemon", "require"]);
        let output = command.output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(4), "{told}");
        assert!(told.contains("is required") && told.contains(words), "{told}");
    }
}

#[test]
fn off_is_off() {
    let workspace = workspace();
    let daemon = StandIn::start(&workspace, obliging);
    let mut command = command(&workspace);
    command.env("METAMCP_DAEMON", "off");
    let client = Client::start(command).unwrap();
    shake_hands(&client);
    assert!(
        daemon.hellos().is_empty() && !client.stderr().contains("daemon"),
        "{}",
        client.stderr()
    );
}
