//! The sandbox policy of an installed server: which paths it may read and write.
//! Owns: the three lists.      Never: enforces them; `metamcp-child` does.
//! In: folders of the plan.  Out: `SandboxPolicy`.
//! Tests: `metamcp-child/tests`.

use std::path::PathBuf;

/// Paths a server may use, beside the system's folders that every program reads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SandboxPolicy {
    /// What it takes for the user's home, and may write to; its folder for temporary files is in it.
    pub home: PathBuf,
    /// Files and folders it may read and run.
    pub reads: Vec<PathBuf>,
    /// Files and folders it may change as well.
    pub writes: Vec<PathBuf>,
}
