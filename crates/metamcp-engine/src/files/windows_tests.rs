//! Real files, some of which others have open, and paths as Windows allows them.

use std::fs;
use std::os::windows::fs::OpenOptionsExt as _;

use super::*;

fn home() -> (tempfile::TempDir, Directory) {
    let temporary = tempfile::tempdir().unwrap();
    let home = Directory::home_or_create(&temporary.path().join("Heim für Ada")).unwrap();
    (temporary, home)
}

#[expect(clippy::disallowed_methods, reason = "said by the test command alone")]
fn is_wine() -> bool {
    std::env::var_os("TEST_WINE").is_some()
}

#[test]
fn a_file_is_replaced_while_others_read_it() {
    let (_keep, home) = home();
    home.replace("file", b"one").unwrap();
    let opened = home.open("file").unwrap().unwrap();
    if is_wine() {
        // Wine replaces no file that somebody has open, however it was opened; then nothing is lost.
        assert!(home.replace("file", b"two").is_err());
        assert!(home.still_holds("file", &opened));
        drop(opened);
        home.replace("file", b"two").unwrap();
    } else {
        home.replace("file", b"two").unwrap();
        assert!(!home.still_holds("file", &opened), "it is another file now");
    }
    assert_eq!(home.open("file").unwrap().unwrap().read(100).unwrap(), b"two");
    assert_eq!(home.names(10).unwrap(), ["file"], "no temporary file is left");
    assert!(home.still_holds("file", &home.open("file").unwrap().unwrap()));
}

#[test]
fn a_file_that_another_program_keeps_is_waited_for() {
    let (_keep, home) = home();
    home.replace("file", b"one").unwrap();
    // Shares nothing, as some scanners do.
    let kept = File::options().read(true).share_mode(0).open(home.path().join("file")).unwrap();
    let waiting = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| home.replace("file", b"two"));
        drop(kept);
        waiting.join().unwrap()
    });
    waiting.unwrap();
    assert_eq!(home.open("file").unwrap().unwrap().read(100).unwrap(), b"two");
}

#[test]
fn a_file_that_another_program_does_not_let_go_of_is_an_error_in_words() {
    let (_keep, home) = home();
    home.replace("file", b"one").unwrap();
    let _kept = File::options().read(true).share_mode(0).open(home.path().join("file")).unwrap();
    let error = home.open("file").unwrap_err();
    let FileError::Io { action: "open", source, .. } = error else { panic!("{error}") };
    assert!(source.to_string().starts_with("another program has it open"), "{source}");
    assert!(home.replace("file", b"two").is_err());
    assert_eq!(home.names(10).unwrap(), ["file"], "no temporary file is left");
}

#[test]
fn a_path_may_be_long() {
    let (_keep, home) = home();
    let mut at = home;
    while at.path().as_os_str().len() < 400 {
        at = at.inside_or_create("ein ziemlich langer Ordnername, wie Leute sie mögen").unwrap();
    }
    at.replace("datei", b"lang").unwrap();
    assert_eq!(at.open("datei").unwrap().unwrap().read(100).unwrap(), b"lang");
    at.open_to_append("protokoll").unwrap();
    assert_eq!(at.names(10).unwrap(), ["datei", "protokoll"]);
    at.remove("datei").unwrap();
    at.remove("datei").unwrap();
    fs::create_dir(at.path().join("leer")).unwrap();
    at.remove("leer").unwrap();
    assert_eq!(at.names(10).unwrap(), ["protokoll"]);
}

#[test]
fn a_folder_is_no_file_and_a_file_no_folder() {
    let (_keep, home) = home();
    home.inside_or_create("inner").unwrap();
    home.replace("file", b"x").unwrap();
    assert!(matches!(home.open("inner"), Err(FileError::WrongKind { .. })));
    assert!(matches!(home.inside("file"), Err(FileError::WrongKind { .. })));
    assert!(home.open("none").unwrap().is_none());
    assert!(home.inside("none").unwrap().is_none());
}

#[test]
fn a_lock_is_held_by_one() {
    let (_keep, home) = home();
    let first = home.open_lock("lock").unwrap();
    first.lock().unwrap();
    let second = home.open_lock("lock").unwrap();
    assert!(matches!(second.try_lock(), Err(fs::TryLockError::WouldBlock)));
    drop(first);
    second.try_lock().unwrap();
}
