use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

use super::*;

struct Machine {
    root: tempfile::TempDir,
}

impl Machine {
    fn new() -> Machine {
        let root = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(root.path().join("home")).expect("a home");
        Machine { root }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn said(&self, name: &str) -> Result<Places, NoFolder> {
        Places::find_in(&self.path("home"), self.path(name).to_str())
    }

    fn refused(&self, name: &str) -> String {
        self.said(name).expect_err("refused").to_string()
    }
}

#[test]
fn the_folder_is_made_private_and_found_again() {
    let machine = Machine::new();
    let places = machine.said("deep/run").unwrap();
    assert_eq!(places.folder(), machine.path("deep/run/metamcp"));
    assert_eq!(std::fs::metadata(places.folder()).unwrap().mode() & 0o777, 0o700);
    assert_eq!(machine.said("deep/run").unwrap().socket(), places.socket());
    let socket = places.socket();
    assert_eq!(socket.extension().unwrap(), "sock");
    assert_eq!(socket.file_stem().unwrap().len(), 16);
}

#[test]
fn a_home_has_one_key_by_whatever_path_and_two_homes_have_two() {
    let machine = Machine::new();
    let places = machine.said("run").unwrap();
    symlink(machine.path("home"), machine.path("link")).unwrap();
    std::fs::create_dir(machine.path("other")).unwrap();
    let at = |home: &str| {
        let home = machine.path(home);
        Places::find_in(&home, machine.path("run").to_str()).unwrap().socket()
    };
    assert_eq!(at("link"), places.socket());
    assert_eq!(at("other/../home"), places.socket());
    assert_ne!(at("other"), places.socket());
    let to_come = at("link/.metamcp");
    std::fs::create_dir(machine.path("home/.metamcp")).unwrap();
    assert_eq!(at("home/.metamcp"), to_come);
}

#[test]
fn what_is_not_safe_is_refused_with_the_reason() {
    let machine = Machine::new();
    let open = machine.said("open").unwrap();
    let mode = |mode| std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(open.folder(), mode(0o750)).unwrap();
    assert!(machine.refused("open").contains("is open to others (mode 0750)"));

    std::fs::create_dir(machine.path("linked")).unwrap();
    symlink(machine.path("home"), machine.path("linked/metamcp")).unwrap();
    assert!(machine.refused("linked").contains("is a symbolic link"));

    std::fs::create_dir(machine.path("file")).unwrap();
    std::fs::write(machine.path("file/metamcp"), "").unwrap();
    assert!(machine.refused("file").contains("is not a folder"));

    std::fs::write(machine.path("taken"), "").unwrap();
    let words = machine.refused("taken");
    assert!(words.contains("taken"), "{words}");

    let words = machine.refused(&"long/".repeat(30));
    assert!(words.contains("too long for a socket"), "{words}");
    let words = Places::find_in(&machine.path("home"), Some("run")).unwrap_err().to_string();
    assert!(words.contains("not an absolute path"), "{words}");
}

#[test]
fn without_a_word_the_folder_is_the_systems_or_a_private_one() {
    let candidates = system::candidates(Path::new("/h"), None);
    let folders: Vec<String> =
        candidates.iter().map(|candidate| candidate.folder.display().to_string()).collect();
    let user = nix::unistd::Uid::effective();
    assert_eq!(
        folders,
        [
            format!("/run/user/{user}/metamcp"),
            format!("/tmp/metamcp-{user}/metamcp"),
            "/h/run".into()
        ]
    );
}

#[test]
fn one_is_the_daemon_and_its_death_makes_room() {
    let machine = Machine::new();
    let places = machine.said("run").unwrap();
    let held = places.hold().unwrap().expect("nobody else");
    assert!(places.hold().unwrap().is_none());
    assert!(places.hold_start(Duration::ZERO).unwrap().is_some());
    drop(held);
    assert!(places.hold().unwrap().is_some());
}

#[test]
fn the_right_to_start_is_waited_for_and_not_forever() {
    let machine = Machine::new();
    let places = machine.said("run").unwrap();
    let held = places.hold_start(Duration::ZERO).unwrap().expect("nobody else");
    assert!(places.hold_start(Duration::from_millis(10)).unwrap().is_none());
    let other = places.clone();
    let waiting = std::thread::spawn(move || other.hold_start(Duration::from_mins(1)));
    drop(held);
    assert!(waiting.join().unwrap().unwrap().is_some());
}

#[test]
fn a_stale_socket_is_replaced_and_a_living_one_found() {
    let machine = Machine::new();
    let places = machine.said("run").unwrap();
    let absent = places.connect().unwrap_err();
    assert!(is_absent(&absent), "{absent}");
    let held = places.hold().unwrap().unwrap();
    drop(places.bind(&held).unwrap());
    let stale = places.connect().unwrap_err();
    assert!(is_absent(&stale), "{stale}");
    let listener = places.bind(&held).unwrap();
    let mut connected = places.connect().unwrap();
    let (mut accepted, _) = listener.accept().unwrap();
    assert!(peer_is_us(&accepted).unwrap());
    connected.write_all(b"x").unwrap();
    let mut byte = [0];
    accepted.read_exact(&mut byte).unwrap();
    // Nothing but the names that belong there is left.
    let mut names: Vec<_> = std::fs::read_dir(places.folder())
        .unwrap()
        .map(|entry| entry.unwrap().path().extension().unwrap().to_owned())
        .collect();
    names.sort();
    assert_eq!(names, ["lock", "sock"]);
    places.remove_socket(&held);
    assert!(is_absent(&places.connect().unwrap_err()));
}

#[test]
fn a_daemon_that_steps_aside_is_reached_by_its_other_name() {
    let machine = Machine::new();
    let places = machine.said("run").unwrap();
    let held = places.hold().unwrap().unwrap();
    let listener = places.bind(&held).unwrap();
    let old = places.step_aside(held).unwrap();
    assert!(is_absent(&places.connect().unwrap_err()));
    let held = places.hold().unwrap().expect("the name and the lock are free");
    let _newer = places.bind(&held).unwrap();
    let _to_old = Places::connect_to(&old).unwrap();
    listener.accept().unwrap();
}
