//! The open descriptors of this process.

use std::fs;
use std::os::fd::RawFd;

/// The numbers under `/proc/self/fd`, that of the listing included.
pub(super) fn open_descriptors() -> Result<Vec<RawFd>, String> {
    let entries =
        fs::read_dir("/proc/self/fd").map_err(|error| format!("/proc/self/fd: {error}"))?;
    Ok(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}
