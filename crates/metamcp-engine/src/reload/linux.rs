//! File notifications by inotify. The directories are watched, since a file that is replaced by a rename is another
//! file afterwards.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tokio::sync::Notify;

/// Enough for a thread that only waits.
const STACK: usize = 64 * 1024;

/// See the module. Without inotify there are no notifications, and polling has to do.
pub(super) struct Folders {
    changed: Arc<Notify>,
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
        let changed = Arc::new(Notify::new());
        if let Some(source) = start(&folders) {
            let notify = Arc::clone(&changed);
            let listen = move || listen(&source, &names, &notify);
            // Without the thread there are no notifications.
            drop(std::thread::Builder::new().name("config".into()).stack_size(STACK).spawn(listen));
        }
        Folders { changed }
    }

    /// Waits until one of the files was written, replaced or removed. A change while nobody waits is not lost.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }
}

fn listen(source: &Inotify, names: &HashSet<OsString>, notify: &Notify) {
    loop {
        match source.read_events() {
            Ok(events) => {
                // An event without a name is about the directory, or a queue overflow.
                let ours =
                    |name: &Option<OsString>| name.as_ref().is_none_or(|name| names.contains(name));
                if events.iter().any(|event| ours(&event.name)) {
                    notify.notify_one();
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
        // A directory that does not exist yet, or may not be watched, is polled.
        source.add_watch(*folder, wanted).ok();
    }
    Some(source)
}
