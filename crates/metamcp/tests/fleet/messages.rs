//! The bus as the engine uses it, against a real nats-server: messages, keys, objects, and everything that is refused.

use std::sync::Arc;
use std::time::Duration;

use metamcp_config::settings::ClusterSettings;
use metamcp_engine::cluster_key::Keyring;
use metamcp_engine::fleet::bus::{
    Bucket, Bus, BusConfig, BusError, Credentials, NodeName, Refused, Writable,
};
use metamcp_testkit::nats::{Nats, Options, Tls};
use metamcp_types::secret::Secret;

use crate::PATIENCE;

const LEASES: Bucket = Bucket {
    name: "leases",
    description: "who owns what",
    max_age: Some(Duration::from_secs(2)),
    max_bytes: 1 << 20,
};

/// Keys of two fleets.
pub(crate) const KEYS: [&str; 2] = [
    "u8uBlFpHbYuV6J1m0bD2cQ3nS8X7kZ5yTqWvEo4fGhI=",
    "3a7f0c91d4e852b6af13c0de9972461b58ee0f7da4c3b21966850a4fd1e7c39b",
];

async fn keyring(which: usize) -> Arc<Keyring> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    std::fs::write(&file, KEYS[which]).unwrap();
    let settings = ClusterSettings { key: file.display().to_string(), ..Default::default() };
    Keyring::load(&settings).await.unwrap().unwrap()
}

async fn config(nats: &Nats, node: &str, key: usize) -> BusConfig {
    BusConfig {
        servers: nats.url().split(',').map(str::to_owned).collect(),
        credentials: Credentials::None,
        tls: metamcp_config::config::TlsFiles::default(),
        node: NodeName::parse(node).unwrap(),
        prefix: "metamcp".to_owned(),
        replicas: 1,
        keyring: keyring(key).await,
    }
}

pub(crate) async fn bus(nats: &Nats, node: &str) -> Bus {
    Bus::connect(config(nats, node, 0).await).await.unwrap()
}

pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, test).await.expect("it hangs") })
}

#[test]
fn nodes_hear_each_other_and_ask_each_other() {
    let nats = Nats::alone().unwrap();
    run(async {
        let (a, b) = (bus(&nats, "a").await, bus(&nats, "b").await);
        let mut inbox = b.inbox("calls").await.unwrap();
        let mut all = b.listen("beats").await.unwrap();
        b.settled().await.unwrap();
        a.broadcast("beats", b"I live").await.unwrap();
        a.send(b.node(), "calls", b"run this").await.unwrap();
        let (beat, call) = (all.next().await.unwrap(), inbox.next().await.unwrap());
        assert_eq!((beat.from.as_str(), &beat.payload[..]), ("a", &b"I live"[..]));
        assert_eq!((call.from.as_str(), &call.payload[..]), ("a", &b"run this"[..]));
        let answering = async {
            let asked = inbox.next().await.unwrap();
            let longer = [&asked.payload[..], b", answered"].concat();
            asked.answer(&b, &longer).await.unwrap();
        };
        let asking = a.request(b.node(), "calls", b"a question", PATIENCE);
        let (answer, ()) = tokio::join!(asking, answering);
        assert_eq!(answer.unwrap(), &b"a question, answered"[..]);
        // Who is not there, and who has stopped to listen.
        let nobody = NodeName::parse("nobody").unwrap();
        let answer = a.request(&nobody, "calls", b"?", PATIENCE).await;
        assert!(matches!(answer, Err(BusError::NobodyThere)), "{answer:?}");
        inbox.stop().await;
        b.settled().await.unwrap();
        let mut undelivered = a.undelivered().await.unwrap();
        a.settled().await.unwrap();
        // The two connections are not in step, so it is sent until nobody is there.
        let mut number = 70;
        let told = loop {
            number += 1;
            a.send_tracked(b.node(), "calls", b"run this too", number).await.unwrap();
            let told = tokio::time::timeout(Duration::from_millis(100), undelivered.next()).await;
            if let Ok(told) = told {
                break told;
            }
        };
        assert!(told.is_some_and(|told| (71..=number).contains(&told)), "{told:?}");
        let long = vec![0; a.max_payload() + 1];
        let sent = a.send(b.node(), "calls", &long).await;
        assert!(matches!(sent, Err(BusError::TooLong { .. })), "{sent:?}");
    });
}

#[test]
fn strangers_on_the_bus_are_refused() {
    let nats = Nats::alone().unwrap();
    run(async {
        let a = bus(&nats, "a").await;
        let b = bus(&nats, "b").await;
        let other = Bus::connect(config(&nats, "c", 1).await).await.unwrap();
        let stranger = async_nats::connect(nats.url()).await.unwrap();
        let mut inbox = a.inbox("calls").await.unwrap();
        let mut recorded = stranger.subscribe("metamcp.to.a.calls.b").await.unwrap();
        a.settled().await.unwrap();
        // A gateway with another key; bytes of no gateway; a message of a gateway again, under another name.
        other.send(a.node(), "calls", b"hello").await.unwrap();
        other.settled().await.unwrap();
        stranger.publish("metamcp.to.a.calls.b", "hello".into()).await.unwrap();
        stranger.publish("metamcp.to.a.calls.b", vec![9; 100].into()).await.unwrap();
        // Its own come back to it, so it hears what follows.
        first_of(&mut recorded).await;
        first_of(&mut recorded).await;
        b.send(a.node(), "calls", b"first").await.unwrap();
        let bytes = first_of(&mut recorded).await;
        let mut replayed = stranger.subscribe("metamcp.to.a.calls.d").await.unwrap();
        stranger.publish("metamcp.to.a.calls.d", bytes).await.unwrap();
        first_of(&mut replayed).await;
        b.send(a.node(), "calls", b"last").await.unwrap();
        let (first, last) = (inbox.next().await.unwrap(), inbox.next().await.unwrap());
        assert_eq!((&first.payload[..], &last.payload[..]), (&b"first"[..], &b"last"[..]));
        let refused = a.refused();
        assert_eq!(refused.get(&Refused::OtherKey), Some(&1), "{refused:?}");
        assert_eq!(refused.get(&Refused::Forged), Some(&3), "{refused:?}");
        // What another key wrote into a bucket is not read either.
        let (ours, theirs) = (a.kv(&LEASES).await.unwrap(), other.kv(&LEASES).await.unwrap());
        theirs.put("x", b"1", Writable::Always).await.unwrap();
        let read = ours.get("x").await;
        assert!(matches!(read, Err(BusError::NotOpened(_))), "{read:?}");
    });
}

async fn first_of(messages: &mut async_nats::Subscriber) -> bytes::Bytes {
    futures_util::StreamExt::next(messages).await.unwrap().payload
}

#[test]
fn one_of_many_writers_gets_a_key_and_everybody_sees_who() {
    let nats = Nats::alone().unwrap();
    run(async {
        let (a, b) = (bus(&nats, "a").await, bus(&nats, "b").await);
        let (of_a, of_b) = (a.kv(&LEASES).await.unwrap(), b.kv(&LEASES).await.unwrap());
        let mut changes = of_b.watch().await.unwrap();
        let first = of_a.put("x", b"a", Writable::IfAbsent).await.unwrap();
        let second = of_b.put("x", b"b", Writable::IfAbsent).await;
        assert!(matches!(second, Err(BusError::Conflict)), "{second:?}");
        let change = changes.next().await.unwrap().unwrap();
        assert_eq!((change.key.as_str(), change.revision), ("x", first));
        assert_eq!(change.value.as_deref(), Some(&b"a"[..]));
        let renewed = of_a.put("x", b"a2", Writable::IfAt(first)).await.unwrap();
        assert!(renewed > first);
        let stale = of_a.delete("x", first).await;
        assert!(matches!(stale, Err(BusError::Conflict)), "{stale:?}");
        assert_eq!(of_b.get("x").await.unwrap().unwrap().revision, renewed);
        let deleted = of_a.delete("x", renewed).await.unwrap();
        assert!(of_b.get("x").await.unwrap().is_none());
        // Over the marker of the deletion.
        let again = of_b.put("x", b"b", Writable::IfAbsent).await.unwrap();
        assert!(again > deleted);
        // It expires, one that stays does not, and a key can be had again.
        of_b.put_forever("ready", b"1", Writable::IfAbsent).await.unwrap();
        while of_a.get("x").await.unwrap().is_some() {
            tokio::task::yield_now().await;
        }
        of_a.put("x", b"a", Writable::IfAbsent).await.unwrap();
        while of_a.get("x").await.unwrap().is_some() {
            tokio::task::yield_now().await;
        }
        assert!(of_b.get("ready").await.unwrap().is_some());
    });
}

#[test]
fn long_values_are_kept_and_bounded() {
    let nats = Nats::alone().unwrap();
    run(async {
        let (a, b) = (bus(&nats, "a").await, bus(&nats, "b").await);
        let age = Duration::from_mins(1);
        let (of_a, of_b) =
            (a.objects("results", age).await.unwrap(), b.objects("results", age).await.unwrap());
        let long: Vec<u8> = (0..5_000_000_u32).map(|at| u8::try_from(at % 251).unwrap()).collect();
        of_a.put("one", &long).await.unwrap();
        assert_eq!(of_b.get("one", 8 << 20).await.unwrap().unwrap(), long);
        let cut = of_b.get("one", 1 << 20).await;
        assert!(matches!(cut, Err(BusError::TooLong { .. })), "{cut:?}");
        of_b.delete("one").await.unwrap();
        of_b.delete("one").await.unwrap();
        assert!(of_a.get("one", 8 << 20).await.unwrap().is_none());
    });
}

#[test]
fn what_the_bus_refuses_is_said_with_what_to_do() {
    let security = "accounts { \
        A { jetstream: enabled, users: [{user: a, password: secret}] }, \
        B { users: [{user: b, password: secret}] } }";
    let options = Options { security: security.into(), ..Options::default() };
    let nats = Nats::start(options).unwrap();
    run(async {
        let user = |name: &str, password: &str| Credentials::User {
            name: name.to_owned(),
            password: Secret::new("password", password),
        };
        let base = config(&nats, "a", 0).await;
        let with = |credentials| BusConfig { credentials, ..base.clone() };
        Bus::connect(with(user("a", "secret"))).await.unwrap();
        for wrong in
            [user("a", "guess"), Credentials::None, Credentials::Token(Secret::new("t", "x"))]
        {
            let error = Bus::connect(with(wrong)).await.unwrap_err();
            assert!(matches!(error, BusError::NotAuthorized { .. }), "{error}");
            assert!(!error.to_string().contains("guess"));
        }
        let error = Bus::connect(with(user("b", "secret"))).await.unwrap_err();
        assert!(matches!(error, BusError::NoJetStream), "{error}");
        let file = Credentials::File("/nonexistent/fleet.creds".into());
        let error = Bus::connect(with(file)).await.unwrap_err();
        assert!(matches!(error, BusError::Credentials { .. }), "{error}");
        let config = BusConfig { replicas: 3, ..with(user("a", "secret")) };
        let error = Bus::connect(config).await.unwrap().kv(&LEASES).await.err().unwrap();
        assert!(matches!(error, BusError::Replicas { .. }), "{error}");
        for wrong in ["http://127.0.0.1:1", "nats://user:secret@127.0.0.1:1", "", "nats://"] {
            let servers = vec![wrong.to_owned()];
            let config = BusConfig { servers, ..with(user("a", "secret")) };
            let error = Bus::connect(config).await.unwrap_err();
            assert!(matches!(error, BusError::Address(_)), "{wrong}: {error}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    });
}

#[test]
fn only_a_bus_whose_certificate_is_trusted_is_spoken_to() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned(), host()]).unwrap();
    let (certificate, key) = (folder.path().join("a.pem"), folder.path().join("a.key"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let tls = Tls { certificate: certificate.clone(), key, client_authority: None };
    let nats = Nats::start(Options { tls: Some(tls), ..Options::default() }).unwrap();
    run(async {
        let error = Bus::connect(config(&nats, "a", 0).await).await.unwrap_err();
        assert!(matches!(error, BusError::Tls { .. }), "{error}");
        let mut trusting = config(&nats, "a", 0).await;
        trusting.tls.ca = Some(certificate.clone());
        Bus::connect(trusting).await.unwrap();
    });
}

fn host() -> String {
    metamcp_testkit::nats::own_loopback().to_string()
}

#[test]
fn a_bus_that_restarts_is_found_again() {
    let mut nats = Nats::alone().unwrap();
    run(async {
        let a = bus(&nats, "a").await;
        let kv = a.kv(&LEASES).await.unwrap();
        kv.put_forever("ready", b"1", Writable::IfAbsent).await.unwrap();
        let mut link = a.link();
        assert!(link.borrow_and_update().is_up);
        nats.kill(0);
        link.wait_for(|link| !link.is_up).await.unwrap();
        nats.restart(0, false).unwrap();
        link.wait_for(|link| link.is_up && link.connects >= 2).await.unwrap();
        while !matches!(kv.get("ready").await, Ok(Some(_))) {
            tokio::task::yield_now().await;
        }
        let mut changes = kv.watch().await.unwrap();
        assert_eq!(changes.next().await.unwrap().unwrap().key, "ready");
    });
}
