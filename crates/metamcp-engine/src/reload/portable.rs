//! Systems without notices of changed folders: the files are looked at from time to time, and that is all.

use std::path::PathBuf;

pub(super) struct Folders;

impl Folders {
    pub(super) fn of(_files: &[PathBuf]) -> Folders {
        Folders
    }

    pub(super) async fn changed(&self) {
        std::future::pending().await
    }
}
