//! A miniature gateway for the tests: starts servers through `Spawner`, and plays those servers too.
//!
//! `child-host __shim …` is the shim; `host TIER HABIT MARK COUNT` starts that many servers and waits to be killed;
//! `measure TIER ROUNDS [KILLS]` prints figures; everything else is a misbehaving server. `MARK` is on every command
//! line, so that survivors can be found in `/proc`.

#![expect(
    clippy::disallowed_methods,
    reason = "programs of tests start, wait and measure for themselves"
)]
#![cfg_attr(
    any(target_os = "linux", windows),
    expect(clippy::zombie_processes, reason = "these are the habits a shim has to cope with")
)]

#[cfg(target_os = "linux")]
mod behaviours;
#[cfg(target_os = "linux")]
mod measure;
#[cfg(windows)]
mod windows;

fn main() {
    let mut args = std::env::args_os().skip(1);
    if args.next().is_some_and(|word| word == "__shim") {
        std::process::exit(metamcp_child::shim_main(args));
    }
    #[cfg(target_os = "linux")]
    behaviours::run();
    #[cfg(windows)]
    windows::run();
}
