//! Real directories, with traps in them.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

fn home() -> (tempfile::TempDir, Directory) {
    let temporary = tempfile::tempdir().unwrap();
    let home = Directory::home_or_create(&temporary.path().join("home")).unwrap();
    (temporary, home)
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn components_are_safe_and_distinct() {
    assert_eq!(component("files"), "files-3d7db37d");
    for odd in ["../../../esc", "/etc", "", ".", "..", "a/b", "a\\b", "a\0b", "CON", "é", "a\nb"] {
        let name = component(odd);
        assert!(
            name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_' || c == b'-'),
            "{name}"
        );
        assert!(name.len() >= 9 && !name.starts_with('.'), "{name}");
    }
    assert_ne!(component("a/b"), component("a_b"));
    assert_ne!(component("A"), component("a"));
    assert!(component(&"long".repeat(1_000)).len() < 128);
}

#[test]
fn created_files_and_folders_are_private() {
    let (_keep, home) = home();
    let inner = home.inside_or_create("inner").unwrap();
    inner.replace("file", b"content").unwrap();
    assert_eq!(mode(home.path()), 0o700);
    assert_eq!(mode(inner.path()), 0o700);
    assert_eq!(mode(&inner.path().join("file")), 0o600);
    assert_eq!(inner.open("file").unwrap().unwrap().read(100).unwrap(), b"content");
    assert_eq!(inner.names(10).unwrap(), ["file"], "no temporary file is left");
}

#[test]
fn symlinks_are_not_followed_below_the_home() {
    let (keep, home) = home();
    let elsewhere = keep.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("file"), "secret").unwrap();
    symlink(&elsewhere, home.path().join("folder")).unwrap();
    assert!(matches!(home.inside("folder"), Err(FileError::Symlink { .. })));
    assert!(matches!(home.inside_or_create("folder"), Err(FileError::Symlink { .. })));
    symlink(elsewhere.join("file"), home.path().join("link")).unwrap();
    assert!(matches!(home.open("link"), Err(FileError::WrongKind { .. })));

    // Writing replaces the link itself, not what it points to.
    home.replace("link", b"ours").unwrap();
    assert_eq!(fs::read(elsewhere.join("file")).unwrap(), b"secret");
    assert_eq!(home.open("link").unwrap().unwrap().read(9).unwrap(), b"ours");

    // The home itself may be a link: people keep it on another disk.
    let alias = keep.path().join("alias");
    symlink(home.path(), &alias).unwrap();
    assert!(Directory::home(&alias).unwrap().is_some());
}

#[test]
fn a_directory_swapped_for_a_symlink_after_opening_has_no_effect() {
    let (keep, home) = home();
    let inner = home.inside_or_create("inner").unwrap();
    let elsewhere = keep.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::rename(inner.path(), keep.path().join("moved")).unwrap();
    symlink(&elsewhere, inner.path()).unwrap();
    inner.replace("file", b"x").unwrap();
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    assert_eq!(fs::read(keep.path().join("moved/file")).unwrap(), b"x");
}

#[test]
fn nothing_in_place_of_a_file_blocks() {
    let (_keep, home) = home();
    nix::unistd::mkfifo(&home.path().join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    fs::create_dir(home.path().join("folder")).unwrap();
    let socket = std::os::unix::net::UnixListener::bind(home.path().join("socket")).unwrap();
    for name in ["pipe", "folder", "socket"] {
        assert!(matches!(home.open(name), Err(FileError::WrongKind { .. })), "{name}");
    }
    drop(socket);
    assert!(home.open("nothing").unwrap().is_none());
    fs::write(home.path().join("plain"), "x").unwrap();
    assert!(matches!(home.inside("plain"), Err(FileError::WrongKind { .. })));
    assert!(matches!(
        Directory::home(&home.path().join("plain")),
        Err(FileError::WrongKind { .. })
    ));
    assert!(Directory::home(&home.path().join("missing")).unwrap().is_none());
}

#[test]
fn reads_are_bounded() {
    let (_keep, home) = home();
    home.replace("file", &[7; 100]).unwrap();
    assert!(matches!(
        home.open("file").unwrap().unwrap().read(99),
        Err(FileError::TooLarge { cap: 99, .. })
    ));
    let mut opened = home.open("file").unwrap().unwrap();
    assert_eq!(opened.read_start(10).unwrap().len(), 10);
    // A file that grows after it was opened is still bounded.
    let mut growing = home.open("file").unwrap().unwrap();
    fs::write(home.path().join("file"), vec![8; 1_000]).unwrap();
    assert!(matches!(growing.read(100), Err(FileError::TooLarge { .. })));
}

#[test]
fn a_failed_write_leaves_the_old_file_and_no_temporary_one() {
    let (_keep, home) = home();
    home.replace("file", b"old").unwrap();
    fs::create_dir_all(home.path().join("taken/full")).unwrap();
    assert!(home.replace("taken", b"x").is_err(), "a file cannot replace a directory");
    assert_eq!(home.names(10).unwrap(), ["file", "taken"]);
    // Permissions do not stop root, who runs some of these tests.
    if !nix::unistd::Uid::effective().is_root() {
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o500)).unwrap();
        assert!(matches!(
            home.replace("file", b"new"),
            Err(FileError::Io { action: "create", .. })
        ));
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o700)).unwrap();
    }
    assert_eq!(fs::read(home.path().join("file")).unwrap(), b"old");
}

#[test]
fn a_directory_of_another_user_is_refused() {
    // Only root can give a directory away; for everyone else the root directory belongs to someone else.
    let (_keep, home) = home();
    let foreign = if nix::unistd::Uid::effective().is_root() {
        let given = home.path().join("given");
        fs::create_dir(&given).unwrap();
        std::os::unix::fs::chown(&given, Some(12_345), None).unwrap();
        assert!(matches!(home.inside("given"), Err(FileError::ForeignOwner { owner: 12_345, .. })));
        given
    } else {
        PathBuf::from("/")
    };
    assert!(matches!(Directory::home(&foreign), Err(FileError::ForeignOwner { .. })));
}

#[test]
fn a_replaced_file_is_detected() {
    let (_keep, home) = home();
    home.replace("file", b"one").unwrap();
    let opened = home.open("file").unwrap().unwrap();
    assert!(home.still_holds("file", &opened));
    home.replace("file", b"two").unwrap();
    assert!(!home.still_holds("file", &opened));
    home.remove("file").unwrap();
    home.remove("file").unwrap();
    assert!(!home.still_holds("file", &opened));
}
