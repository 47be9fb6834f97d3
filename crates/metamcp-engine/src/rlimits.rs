//! Resource limits of this process: open files, threads, stack, file size.
//! Owns: the limits and raising them at the start.      Never: frees anything, decides what to give up.
//! In: nothing.  Out: whether there is enough, and why not.
//! Tests: below, `metamcp/tests/promises/limits.rs`.

use std::io;

/// The limit of open files is raised to this at most: plenty for a full pool and some hundred clients, and still few
/// enough for child programs that close every descriptor they could have.
#[cfg(unix)]
const FILES: u64 = 8192;
/// Threads that a gateway needs at once; each counts as a process for the limit.
#[cfg(unix)]
const THREADS: usize = 6;
/// From this limit on, threads need not be tried.
#[cfg(unix)]
const PLENTY: u64 = 512;
/// Below this the main thread's stack is too small.
#[cfg(unix)]
const SMALL_STACK: u64 = 2 * 1024 * 1024;

/// Raises the limit of open files; an error if not even the threads of a gateway can be started.
#[cfg(unix)]
pub fn prepare() -> Result<(), String> {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let wanted = hard.min(FILES);
        if soft < wanted {
            // If it cannot be raised, the current limit has to do.
            setrlimit(Resource::RLIMIT_NOFILE, wanted, hard).ok();
        }
    }
    threads()
}

#[cfg(windows)]
pub fn prepare() -> Result<(), String> {
    Ok(())
}

/// Tries to start the threads that serving needs, if the limit is low.
#[cfg(all(unix, target_os = "linux"))]
fn threads() -> Result<(), String> {
    use nix::sys::resource::{Resource, getrlimit};
    let limit = getrlimit(Resource::RLIMIT_NPROC).map_or(u64::MAX, |(soft, _)| soft);
    if limit >= PLENTY {
        return Ok(());
    }
    let (hold, held) = std::sync::mpsc::sync_channel::<()>(0);
    let held = std::sync::Arc::new(parking_lot::Mutex::new(held));
    let mut started = Vec::new();
    let mut failed = None;
    for _ in 0..THREADS {
        let held = std::sync::Arc::clone(&held);
        // Each waits for the end of all, so that all run at the same time.
        let thread = std::thread::Builder::new().stack_size(64 * 1024).spawn(move || {
            let held = held.lock();
            held.recv().ok();
        });
        match thread {
            Ok(thread) => started.push(thread),
            Err(error) => failed = Some(error),
        }
    }
    drop(hold);
    for thread in started {
        thread.join().ok();
    }
    match failed {
        None => Ok(()),
        Some(error) => Err(format!(
            "the system lets metamcp start no more threads ({error}); the limit on processes is {limit}: raise it \
             (`ulimit -u`), or end other programs of this user"
        )),
    }
}

#[cfg(all(unix, not(target_os = "linux")))]
fn threads() -> Result<(), String> {
    Ok(())
}

/// Whether the main thread's stack is too small to work on.
#[cfg(unix)]
pub fn has_small_stack() -> bool {
    use nix::sys::resource::{Resource, getrlimit};
    getrlimit(Resource::RLIMIT_STACK).is_ok_and(|(soft, _)| soft < SMALL_STACK)
}

#[cfg(windows)]
pub fn has_small_stack() -> bool {
    false
}

/// Makes a file that would grow beyond the limit a write error instead of the end of the process. Must be called inside a
/// runtime.
#[cfg(unix)]
pub fn survive_large_files() {
    use tokio::signal::unix::{SignalKind, signal};
    // A handler, not SIG_IGN, which every server would inherit.
    let kind = SignalKind::from_raw(nix::sys::signal::Signal::SIGXFSZ as i32);
    // Once installed, the handler stays.
    drop(signal(kind));
}

#[cfg(windows)]
pub fn survive_large_files() {}

/// Whether so many more files can be opened; if not, why.
pub fn files(count: usize) -> Result<(), String> {
    let null = if cfg!(windows) { "NUL" } else { "/dev/null" };
    let mut open = Vec::with_capacity(count);
    for _ in 0..count {
        match std::fs::File::open(null) {
            Ok(file) => open.push(file),
            Err(error) if is_out_of_files(&error) => {
                return Err(out_of_files(&error).unwrap_or_else(|| error.to_string()));
            }
            // The limit is unknown.
            Err(_) => return Ok(()),
        }
    }
    Ok(())
}

/// The text for an error, or a cause of it, that means too many open files.
#[cfg(unix)]
pub fn out_of_files(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let error = caused_by(error, is_out_of_files)?;
    Some(words(error, nix::sys::resource::Resource::RLIMIT_NOFILE))
}

/// The same for processes, for an error from starting one.
#[cfg(any(target_os = "linux", target_os = "macos"))]
pub fn out_of_processes(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let is_it = |error: &io::Error| error.raw_os_error() == Some(nix::errno::Errno::EAGAIN as i32);
    let error = caused_by(error, is_it)?;
    #[cfg(target_os = "linux")]
    return Some(words(error, nix::sys::resource::Resource::RLIMIT_NPROC));
    // The limit has no safe name there.
    #[cfg(not(target_os = "linux"))]
    Some(error.to_string())
}

#[cfg(windows)]
pub fn out_of_files(_: &(dyn std::error::Error + 'static)) -> Option<String> {
    None
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
pub fn out_of_processes(_: &(dyn std::error::Error + 'static)) -> Option<String> {
    None
}

/// The first I/O error of this kind among an error and its causes.
#[cfg(unix)]
fn caused_by<'a>(
    error: &'a (dyn std::error::Error + 'static),
    is_it: fn(&io::Error) -> bool,
) -> Option<&'a io::Error> {
    std::iter::successors(Some(error), |error| error.source())
        .filter_map(|error| error.downcast_ref::<io::Error>())
        .find(|error| is_it(error))
}

#[cfg(unix)]
fn is_out_of_files(error: &io::Error) -> bool {
    use nix::errno::Errno;
    let number = error.raw_os_error();
    number == Some(Errno::EMFILE as i32) || number == Some(Errno::ENFILE as i32)
}

#[cfg(windows)]
fn is_out_of_files(_: &io::Error) -> bool {
    false
}

#[cfg(unix)]
fn words(error: &io::Error, of: nix::sys::resource::Resource) -> String {
    match nix::sys::resource::getrlimit(of) {
        Ok((soft, _)) if soft < u64::MAX => format!("{error}; the limit is {soft}"),
        _ => error.to_string(),
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("it did not work")]
    struct Outer(#[source] io::Error);

    #[test]
    fn the_cause_is_found_in_the_chain() {
        let number = nix::errno::Errno::EMFILE as i32;
        let error = Outer(io::Error::from_raw_os_error(number));
        assert!(out_of_files(&error).is_some_and(|words| words.contains("the limit is")));
        assert_eq!(out_of_files(&Outer(io::ErrorKind::NotFound.into())), None);
        assert_eq!(out_of_processes(&error), None);
        let error = Outer(io::Error::from_raw_os_error(nix::errno::Errno::EAGAIN as i32));
        assert!(out_of_processes(&error).is_some() && out_of_files(&error).is_none());
        assert_eq!(files(3), Ok(()));
    }
}
