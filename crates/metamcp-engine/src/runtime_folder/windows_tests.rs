//! Real pipes and locks.

use std::io::{Read as _, Write as _};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

struct Machine {
    root: tempfile::TempDir,
    runtime: tokio::runtime::Runtime,
}

impl Machine {
    fn new() -> Machine {
        let root = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(root.path().join("home")).expect("a home");
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().expect("a runtime");
        Machine { root, runtime }
    }

    fn places(&self) -> Places {
        let said = self.root.path().join("Läufe mit Leerzeichen");
        Places::find_in(&self.root.path().join("home"), said.to_str()).expect("a folder")
    }

    fn bind(&self, places: &Places, held: &Held) -> Listener {
        let _inside = self.runtime.enter();
        places.bind(held).expect("a pipe")
    }
}

#[test]
fn one_is_the_daemon_and_its_death_makes_room() {
    let machine = Machine::new();
    let places = machine.places();
    let held = places.hold().unwrap().expect("nobody else");
    assert!(places.hold().unwrap().is_none());
    assert!(places.hold_start(Duration::ZERO).unwrap().is_some());
    drop(held);
    assert!(places.hold().unwrap().is_some());
}

#[test]
fn a_stale_name_is_replaced_and_a_living_pipe_found() {
    let machine = Machine::new();
    let places = machine.places();
    let absent = places.connect().unwrap_err();
    assert_eq!(absent.kind(), io::ErrorKind::NotFound, "{absent}");
    let held = places.hold().unwrap().unwrap();
    drop(machine.bind(&places, &held));
    // Its end was no good one: the name is still there.
    let stale = places.connect().unwrap_err();
    assert_eq!(stale.kind(), io::ErrorKind::ConnectionRefused, "{stale}");
    let listener = machine.bind(&places, &held);
    let mut connected = places.connect().unwrap();
    // Of its own thread: it waits by a runtime of its own.
    let client = std::thread::spawn(move || {
        connected.write_all(b"x").unwrap();
        let mut read = vec![0; 300_000];
        connected.read_exact(&mut read).unwrap();
        assert!(read.iter().all(|byte| *byte == 7));
        assert_eq!(connected.read(&mut [0]).unwrap(), 0, "the end of the other side");
    });
    machine.runtime.block_on(async {
        let mut accepted = listener.accept().await.unwrap();
        assert!(peer_is_us(&accepted).unwrap());
        assert_eq!(accepted.read_u8().await.unwrap(), b'x');
        accepted.write_all(&vec![7; 300_000]).await.unwrap();
    });
    client.join().unwrap();
    places.remove_socket(&held);
    assert_eq!(places.connect().unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[test]
fn who_does_not_answer_is_not_waited_for_forever() {
    let machine = Machine::new();
    let places = machine.places();
    let held = places.hold().unwrap().unwrap();
    let listener = machine.bind(&places, &held);
    let mut connected = places.connect().unwrap();
    let _accepted = machine.runtime.block_on(listener.accept()).unwrap();
    connected.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    assert_eq!(connected.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::TimedOut);
}

#[test]
fn many_come_at_once_and_each_is_taken() {
    const CLIENTS: usize = 50;
    let machine = Machine::new();
    let places = machine.places();
    let held = places.hold().unwrap().unwrap();
    let listener = machine.bind(&places, &held);
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let places = places.clone();
            std::thread::spawn(move || {
                let mut connected = places.connect().unwrap();
                connected.write_all(b"x").unwrap();
                connected.read(&mut [0]).unwrap()
            })
        })
        .collect();
    machine.runtime.block_on(async {
        for _ in 0..CLIENTS {
            let mut accepted = listener.accept().await.unwrap();
            tokio::spawn(async move {
                accepted.read_u8().await.unwrap();
                accepted.write_all(b"y").await.unwrap();
            });
        }
    });
    assert!(clients.into_iter().all(|client| client.join().unwrap() == 1));
}

#[test]
fn a_daemon_that_steps_aside_is_reached_by_its_other_name() {
    let machine = Machine::new();
    let places = machine.places();
    let held = places.hold().unwrap().unwrap();
    let listener = machine.bind(&places, &held);
    let old = places.step_aside(held).unwrap();
    assert!(is_absent(&places.connect().unwrap_err()));
    let held = places.hold().unwrap().expect("the name and the lock are free");
    let _newer = machine.bind(&places, &held);
    let _to_old = Places::connect_to(&old).unwrap();
    machine.runtime.block_on(listener.accept()).unwrap();
    let _to_new = places.connect().unwrap();
}

#[test]
fn a_file_that_names_no_pipe_of_ours_leads_nowhere() {
    let machine = Machine::new();
    let places = machine.places();
    std::fs::write(places.socket(), r"\\server\pipe\metamcp-1").unwrap();
    let refused = places.connect().unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::InvalidData, "{refused}");
}

#[test]
fn a_network_folder_is_refused_with_the_reason() {
    let machine = Machine::new();
    let home = machine.root.path().join("home");
    let words = Places::find_in(&home, Some(r"\\server\share")).unwrap_err().to_string();
    assert!(words.contains("network disk"), "{words}");
    let words = Places::find_in(&home, Some("run")).unwrap_err().to_string();
    assert!(words.contains("not an absolute path"), "{words}");
}
