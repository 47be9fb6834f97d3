//! The encryption key of tokens in the system keyring, which is a program of the test here.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use metamcp_testkit::Workspace;
use serde_json::json;

use crate::auth_server::{AuthBehaviour, AuthServer, auth, log_in_as, workspace};
use crate::world::Gateway;

/// A keyring that stores one secret in a file, and records all requests in another.
struct Keyring {
    folder: PathBuf,
}

impl Keyring {
    fn install(workspace: &Workspace) -> Keyring {
        let folder = workspace.file("keyring");
        fs::create_dir(&folder).unwrap();
        let place = folder.display();
        let script = format!(
            "#!/bin/sh\necho \"$*\" >> '{place}/asked'\ncase \"$1\" in\nstore) cat > '{place}/secret' ;;\n\
             lookup) cat '{place}/secret' 2> /dev/null ;;\nesac\n"
        );
        let program = folder.join("secret-tool");
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        Keyring { folder }
    }

    /// Adds the keyring to the environment of a command.
    fn with(&self, command: &mut Command) {
        let path = format!("{}:{}", self.folder.display(), std::env::var("PATH").unwrap());
        command.env("PATH", path).env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nowhere");
    }

    fn secret(&self) -> Option<String> {
        fs::read_to_string(self.folder.join("secret")).ok()
    }
}

fn key_file(workspace: &Workspace) -> PathBuf {
    workspace.home().join(".metamcp/tokens/key")
}

#[test]
fn where_there_is_a_keyring_the_key_is_nowhere_else() {
    let auth_server = AuthServer::start(AuthBehaviour::default());
    let workspace = workspace(&auth_server, &json!({}));
    let keyring = Keyring::install(&workspace);
    log_in_as(&workspace, |command| keyring.with(command));
    let secret = keyring.secret().unwrap();
    assert!(secret.len() >= 43, "32 bytes in base64");
    assert!(!key_file(&workspace).exists());
    let asked = fs::read_to_string(keyring.folder.join("asked")).unwrap();
    assert!(!asked.contains(&secret), "everybody can read arguments: {asked}");

    let gateway = Gateway::start_as(workspace, |command| keyring.with(command));
    gateway.echo("x");
    auth_server.expire();
    gateway.echo("y");
    assert_eq!(auth_server.refreshes(), 1);
    let workspace = gateway.workspace_after_end();

    // The files alone are useless.
    let gateway = Gateway::start(workspace);
    let error = gateway.refusal("echo", &json!({"text": "x"}));
    assert_eq!(error.code, "auth_required", "{}", error.whole);
    gateway.end();
}

#[test]
fn a_key_in_a_file_is_moved_where_that_is_wanted() {
    let auth_server = AuthServer::start(AuthBehaviour::default());
    let workspace = workspace(&auth_server, &json!({}));
    log_in_as(&workspace, |_| {});
    assert!(key_file(&workspace).exists());
    let keyring = Keyring::install(&workspace);
    // Nothing is migrated without a request.
    let gateway = Gateway::start_as(workspace, |command| keyring.with(command));
    gateway.echo("x");
    assert_eq!(keyring.secret(), None);
    let workspace = gateway.workspace_after_end();
    let gateway = Gateway::start_as(workspace, |command| {
        keyring.with(command);
        command.args(["--token-store", "keyring"]);
    });
    gateway.echo("x");
    assert!(keyring.secret().is_some() && !key_file(&gateway.workspace).exists());
    assert_eq!(
        auth_server.records.lock().unwrap().authorizations.len(),
        1,
        "nobody had to log in again"
    );
    gateway.end();
}

#[test]
fn a_keyring_that_is_wanted_and_does_not_work_is_said() {
    let auth_server = AuthServer::start(AuthBehaviour::default());
    let workspace = workspace(&auth_server, &json!({}));
    let keyring = Keyring::install(&workspace);
    fs::write(keyring.folder.join("secret-tool"), "#!/bin/sh\nexit 1\n").unwrap();
    // Where the keyring is not required, the key file is used.
    log_in_as(&workspace, |command| keyring.with(command));
    assert!(key_file(&workspace).exists());
    let mut command = auth(&workspace, &["status", "far"]);
    keyring.with(&mut command);
    let output = command.env("METAMCP_TOKEN_STORE", "keyring").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("keyring"), "{said}");
    assert!(key_file(&workspace).exists(), "nothing is lost");
}
