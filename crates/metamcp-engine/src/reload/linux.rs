//! Notices of changes in the folders of some files. The folders are watched, since a file that is replaced by a rename
//! is another file afterwards.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tokio::sync::Notify;

/// Enough for a thread that only waits.
const STACK: usize = 64 * 1024;

/// See the module. Where the system has no notices to give, none come, and the files are looked at from time to time.
pub(super) struct Folders {
    heard: Arc<Notify>,
}

impl Folders {
    pub(super) fn of(files: &[PathBuf]) -> Folders {
        // A link is watched where it is and where it leads.
        let all: Vec<PathBuf> = files
            .iter()
            .flat_map(|file| [Some(file.clone()), file.canonicalize().ok()])
            .flatten()
            .collect();
        let names: HashSet<OsString> =
            all.iter().filter_map(|file| Some(file.file_name()?.to_owned())).collect();
        let folders: HashSet<&Path> = all.iter().filter_map(|file| file.parent()).collect();
        let heard = Arc::new(Notify::new());
        if let Some(source) = start(&folders) {
            let tell = Arc::clone(&heard);
            let listen = move || listen(&source, &names, &tell);
            // Without the thread there are no notices.
            drop(std::thread::Builder::new().name("config".into()).stack_size(STACK).spawn(listen));
        }
        Folders { heard }
    }

    /// Waits until one of the files was written, replaced or removed. What happens while nobody waits is kept.
    pub(super) async fn changed(&self) {
        self.heard.notified().await;
    }
}

fn listen(source: &Inotify, names: &HashSet<OsString>, tell: &Notify) {
    loop {
        match source.read_events() {
            Ok(events) => {
                // A notice without a name is about the folder, or says that some were lost.
                let ours =
                    |name: &Option<OsString>| name.as_ref().is_none_or(|name| names.contains(name));
                if events.iter().any(|event| ours(&event.name)) {
                    tell.notify_one();
                }
            }
            Err(Errno::EINTR) => {}
            Err(_) => return,
        }
    }
}

fn start(folders: &HashSet<&Path>) -> Option<Inotify> {
    let source = Inotify::init(InitFlags::IN_CLOEXEC).ok()?;
    let wanted = AddWatchFlags::IN_CLOSE_WRITE
        | AddWatchFlags::IN_MOVED_TO
        | AddWatchFlags::IN_MOVED_FROM
        | AddWatchFlags::IN_DELETE
        | AddWatchFlags::IN_ONLYDIR;
    for folder in folders {
        // A folder that is not there yet, or may not be watched, is looked at from time to time.
        source.add_watch(*folder, wanted).ok();
    }
    Some(source)
}
