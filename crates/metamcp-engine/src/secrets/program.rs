//! Secrets from programs: the output of a command, and the system keyring.
//! Owns: how a keyring is asked: by its command-line tool, on Windows itself, since its tool gives no secret back.      Never: passes a secret as an argument, shows what a program says.
//! In: words, or service and account, and patience.  Out: a secret, or why there is none.
//! Tests: `secrets.rs`, and on Windows in `credential_manager.rs`.

#[cfg(windows)]
mod credential_manager;
#[cfg(unix)]
mod keychain;

use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

#[cfg(windows)]
pub use self::credential_manager::{forget, keep, kept};
use super::MAX_BYTES;
use crate::env;

/// Reads a secret from the system keyring.
#[cfg(unix)]
pub async fn kept(service: &str, account: &str, patience: Duration) -> Result<String, String> {
    let mac = ["security", "find-generic-password", "-w", "-s", service, "-a", account];
    let linux = ["secret-tool", "lookup", "service", service, "account", account];
    let words: &[&str] = if cfg!(target_os = "macos") { &mac } else { &linux };
    printed(words, None, patience).await
}

/// Stores a secret in the system keyring, replacing an existing one. It is never passed as an argument, which every user
/// of the machine could read.
#[cfg(unix)]
pub async fn keep(
    service: &str,
    account: &str,
    secret: &str,
    patience: Duration,
) -> Result<(), String> {
    if cfg!(target_os = "macos") {
        let line = keychain::line(service, account, secret)?;
        return printed(&["security", "-i"], Some(&line), patience).await.map(drop);
    }
    let label = format!("--label={service}");
    let words = ["secret-tool", "store", &label, "service", service, "account", account];
    printed(&words, Some(secret), patience).await.map(drop)
}

/// Deletes a secret from the system keyring.
#[cfg(unix)]
pub async fn forget(service: &str, account: &str, patience: Duration) -> Result<(), String> {
    let mac = ["security", "delete-generic-password", "-s", service, "-a", account];
    let linux = ["secret-tool", "clear", "service", service, "account", account];
    let words: &[&str] = if cfg!(target_os = "macos") { &mac } else { &linux };
    printed(words, None, patience).await.map(drop)
}

/// Whether a keyring is likely: on Linux it is a service of the user's session, and there may be none.
pub fn has_keyring() -> bool {
    let session = ["DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR"];
    !cfg!(target_os = "linux") || session.iter().any(|name| env::is_set(name))
}

/// The output of a program with this input. Its stderr is not shown: it might contain secrets.
#[expect(clippy::disallowed_methods, reason = "programs that keep secrets are started here")]
pub(super) async fn printed(
    words: &[&str],
    input: Option<&str>,
    patience: Duration,
) -> Result<String, String> {
    let Some((program, args)) = words.split_first() else { return Err("no program".to_owned()) };
    let mut child = Command::new(program)
        .args(args)
        .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("{program} cannot be run: {error}"))?;
    let mut out = child.stdout.take().ok_or("its output is not there")?.take(MAX_BYTES + 1);
    let stdin = child.stdin.take();
    let mut bytes = Vec::new();
    let run = async {
        if let (Some(mut stdin), Some(input)) = (stdin, input) {
            // A program that does not read its input reports by its status what is wrong.
            drop(stdin.write_all(input.as_bytes()).await);
        }
        out.read_to_end(&mut bytes).await?;
        child.wait().await
    };
    let ended = tokio::time::timeout(patience, run).await;
    let status = ended
        .map_err(|_| format!("{program} did not answer within {} s", patience.as_secs()))?
        .map_err(|error| format!("{program}: {error}"))?;
    if !status.success() {
        return Err(format!("{program} failed ({status}); run it in a terminal to see why"));
    }
    text(bytes).ok_or_else(|| format!("{program} printed no valid secret"))
}

/// The text without the line break at its end.
pub(super) fn text(bytes: Vec<u8>) -> Option<String> {
    if bytes.len() as u64 > MAX_BYTES {
        return None;
    }
    let mut text = String::from_utf8(bytes).ok()?;
    text.truncate(text.trim_end_matches(['\n', '\r']).len());
    Some(text)
}
