//! The process table by `/bin/ps`, which every system but Linux has as its way to ask without unsafe code.

use std::collections::BTreeMap;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::table::{COLUMNS, Entry, parse};
use crate::activity::Usage;
use crate::clock;

/// It answers in milliseconds. A table that does not come is taken for an empty one: who asks goes on with what is known.
const DEADLINE: Duration = Duration::from_secs(2);

/// All processes but the one that was asked, with the environment of those that are ours.
#[expect(clippy::disallowed_methods, reason = "the system's own program, by its full path")]
pub(crate) fn table() -> Vec<Entry> {
    let mut command = Command::new("/bin/ps");
    // Without an environment it writes dates the same way everywhere.
    command.args(["-axww", "-E"]).env_clear();
    for column in COLUMNS {
        command.args(["-o", column]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let Ok(mut ps) = command.spawn() else { return Vec::new() };
    let (mut printed, until) = (Vec::new(), clock::now() + DEADLINE);
    if let Some(mut out) = ps.stdout.take() {
        let mut chunk = vec![0; 64 * 1024];
        loop {
            let left = until.saturating_duration_since(clock::now());
            let mut watched = [PollFd::new(std::os::fd::AsFd::as_fd(&out), PollFlags::POLLIN)];
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
            if left.is_zero() || poll(&mut watched, timeout) == Ok(0) {
                printed.clear();
                break;
            }
            match out.read(&mut chunk) {
                Ok(0) => break,
                Ok(read) => printed.extend(&chunk[..read]),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
    }
    let own = ps.id().cast_signed();
    ps.kill().ok();
    ps.wait().ok();
    let mut table = parse(&String::from_utf8_lossy(&printed));
    table.retain(|entry| entry.pid != own);
    table
}

/// What everything below a process has used. How much it read and wrote is not shown here.
pub(crate) fn usage_below(root: i32) -> BTreeMap<i32, Usage> {
    let table = table();
    let mut below = BTreeMap::new();
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        for entry in table.iter().filter(|entry| entry.parent == parent) {
            let usage = Usage { ticks: entry.ticks, io_bytes: 0, stderr_bytes: 0 };
            if below.insert(entry.pid, usage).is_none() {
                parents.push(entry.pid);
            }
        }
    }
    below
}
