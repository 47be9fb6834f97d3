//! The servers of NATS that the other tests stand on.

use metamcp_testkit::eventually;
use metamcp_testkit::nats::{Nats, Options, Tls};

use crate::PATIENCE;

#[test]
fn one_server_alone_has_jetstream_and_is_gone_when_dropped() {
    let nats = Nats::alone().unwrap();
    let status = nats.status(0, "/jsz").unwrap();
    assert_eq!(status["streams"], 0, "{status}");
    let (address, pid) = (nats.address(0), nats.pid(0).unwrap());
    assert_eq!(nats.url(), format!("nats://{address}"));
    drop(nats);
    assert!(std::net::TcpStream::connect(address).is_err());
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn three_servers_choose_another_leader_when_theirs_is_killed_and_take_it_back() {
    let mut nats = Nats::start(Options::cluster(3)).unwrap();
    let first = nats.leader().unwrap();
    nats.kill(first);
    assert_eq!(nats.pid(first), None);
    let another = || nats.leader().is_some_and(|now| now != first);
    assert!(eventually(PATIENCE, another), "{}", nats.log());
    nats.restart(first, true).unwrap();
    nats.wait_until_ready().unwrap();
}

#[test]
fn certificates_and_accounts_are_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (certificate, key) = (folder.path().join("a.pem"), folder.path().join("a.key"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let nats = Nats::start(Options {
        tls: Some(Tls { certificate, key, client_authority: None }),
        security: "accounts { A { jetstream: enabled, users: [{user: a, password: b}] } }".into(),
        max_payload: Some(65_536),
        ..Options::default()
    })
    .unwrap();
    let status = nats.status(0, "/varz").unwrap();
    assert_eq!((&status["tls_required"], &status["auth_required"]), (&true.into(), &true.into()));
    assert_eq!(status["max_payload"], 65_536);
    assert!(nats.url().starts_with("tls://"));
}
