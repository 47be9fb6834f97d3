//! Processors kept from falling asleep while something is measured. Waking a processor of a virtual machine takes longer
//! than a whole call, and how long depends on its neighbours; loops of the lowest priority give way to everything else.

use std::process::{Child, Command, Stdio};

/// The loops; dropped, they end. Where there is no `chrt` there are none.
pub(super) struct Awake(Vec<Child>);

/// Turns until the process it is told is gone, so that nothing is left of it however a measurement ends.
const LOOP: &str =
    "while kill -0 \"$0\" 2>/dev/null; do i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; done";

impl Awake {
    /// One for each processor.
    pub(super) fn keep() -> Awake {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let turn = |_| {
            Command::new("chrt")
                .args(["--idle", "0", "sh", "-c", LOOP, &std::process::id().to_string()])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .ok()
        };
        Awake((0..cores).filter_map(turn).collect())
    }

    /// Whether they turn.
    pub(super) fn is_on(&self) -> bool {
        !self.0.is_empty()
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // One that is gone already is what is wanted.
            drop(child.kill());
            drop(child.wait());
        }
    }
}
