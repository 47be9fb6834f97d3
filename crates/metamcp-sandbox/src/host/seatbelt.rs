//! The sandbox of macOS around a worker: everything is denied but what a program needs to start.
//!
//! Seatbelt is used through `sandbox-exec`, which every macOS has. It is tried once before the first worker: where it
//! does not work, workers run without it, and `metamcp doctor` says so. The worker finds out by itself whether it holds.

#[cfg(target_os = "macos")]
use std::{io::Read as _, process::Stdio, sync::mpsc::sync_channel, thread, time::Duration};

#[cfg(target_os = "macos")]
use super::{Launch, spawn::command};

/// What runs a program in a sandbox.
#[cfg(target_os = "macos")]
const PROGRAM: &str = "/usr/bin/sandbox-exec";

/// How long the attempt may take. A worker starts in some tens of milliseconds.
#[cfg(target_os = "macos")]
const ATTEMPT: Duration = Duration::from_secs(5);

/// The launch of the same worker inside the sandbox.
///
/// # Errors
/// Why the sandbox cannot be had.
#[cfg(target_os = "macos")]
pub(super) fn confined(launch: &Launch) -> Result<Launch, String> {
    let program = launch.program.canonicalize().map_err(|error| error.to_string())?;
    let path = program.to_str().ok_or("the path of this program is no text")?;
    let mut args = vec!["-p".into(), profile(path).into(), program.clone().into_os_string()];
    args.extend(launch.args.iter().cloned());
    let confined = Launch { program: PROGRAM.into(), args, ..launch.clone() };
    attempt(&confined).map(|()| confined)
}

/// Starts a worker and waits until it says that it is ready.
#[cfg(target_os = "macos")]
fn attempt(launch: &Launch) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{PROGRAM}: {error}");
    let mut child =
        command(launch).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
    let said = child.stdout.take();
    let (sender, heard) = sync_channel(1);
    let reader = thread::Builder::new().name("sandbox-attempt".into()).spawn(move || {
        let count = said.map_or(0, |mut said| said.read(&mut [0; 1]).unwrap_or_default());
        sender.send(count > 0).ok();
    });
    let heard = reader.map_err(failed).map(|_| heard.recv_timeout(ATTEMPT));
    child.kill().ok();
    let status = child.wait().map_err(failed)?;
    match heard? {
        Ok(true) => Ok(()),
        Ok(false) => Err(format!("a worker does not start in it: {status}")),
        Err(_) => Err("a worker hangs in it".to_owned()),
    }
}

/// The profile: libraries of the system and this one program may be read and mapped, facts about the machine asked for.
/// No other file, no network, no other process, and nothing written.
fn profile(program: &str) -> String {
    let program = program.replace('\\', "\\\\").replace('"', "\\\"");
    format!(
        r#"(version 1)
(deny default)
(allow process-exec (literal "{program}"))
(allow file-read-metadata)
(allow file-read* file-map-executable
    (literal "{program}")
    (subpath "/usr/lib")
    (subpath "/System/Library")
    (subpath "/System/Volumes/Preboot/Cryptexes")
    (subpath "/private/var/db/dyld"))
(allow file-read-data (literal "/") (subpath "/dev/fd") (literal "/dev/null") (literal "/dev/random") (literal "/dev/urandom"))
(allow file-write-data (literal "/dev/null"))
(allow sysctl-read)
(allow signal (target self))
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profile_denies_by_default_and_a_path_cannot_add_to_it() {
        let profile = profile("/opt/a\"b) (allow default) (c\\d/metamcp");
        assert!(profile.starts_with("(version 1)\n(deny default)\n"));
        assert!(profile.contains(r#"(literal "/opt/a\"b) (allow default) (c\\d/metamcp")"#));
        for right in ["network", "process-fork", "mach-lookup", "file-write*", "iokit"] {
            assert!(!profile.contains(right), "{right}");
        }
        // Each bracket that is opened outside of a text is closed.
        let (mut depth, mut in_text, mut escaped) = (0, false, false);
        for letter in profile.chars() {
            match letter {
                _ if escaped => escaped = false,
                '\\' if in_text => escaped = true,
                '"' => in_text = !in_text,
                '(' if !in_text => depth += 1,
                ')' if !in_text => depth -= 1,
                _ => {}
            }
            assert!(depth >= 0);
        }
        assert_eq!((depth, in_text), (0, false));
    }
}
