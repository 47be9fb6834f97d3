//! How much memory a process and its descendants use, for people to look at.
//! Owns: what counts: the proportional share, where the system knows it, else what is in memory.      Never: decides by it.
//! In: a process.  Out: bytes, or nothing where the system does not say.
//! Tests: below.

/// The proportional set size of one process.
#[cfg(target_os = "linux")]
pub fn of_process(pid: u32) -> Option<u64> {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

#[cfg(windows)]
pub fn of_process(pid: u32) -> Option<u64> {
    crate::windows::memory_of(pid)
}

#[cfg(not(any(target_os = "linux", windows)))]
pub fn of_process(_pid: u32) -> Option<u64> {
    None
}

/// The same of a process and all its descendants.
#[cfg(target_os = "linux")]
pub fn of_tree(pid: u32) -> Option<u64> {
    let (mut all, mut next) = (of_process(pid)?, vec![i32::try_from(pid).ok()?]);
    while let Some(parent) = next.pop() {
        for child in crate::processes::children(parent) {
            // One that has just ended uses nothing.
            all += u32::try_from(child).ok().and_then(of_process).unwrap_or(0);
            next.push(child);
        }
    }
    Some(all)
}

/// The same of all in a server's job.
#[cfg(windows)]
pub fn of_tree(pid: u32) -> Option<u64> {
    crate::windows::memory_of_job(pid)
}

#[cfg(not(any(target_os = "linux", windows)))]
pub fn of_tree(_pid: u32) -> Option<u64> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_memory_and_so_does_the_tree_with_it() {
        let own = of_process(std::process::id()).expect("Linux says it");
        assert!(own > 100_000, "{own}");
        assert!(of_tree(std::process::id()).is_some_and(|all| all > 100_000));
        assert_eq!(of_process(u32::MAX), None);
    }
}
