//! What is remembered of a registry, against registries that fail, stall or lie.

use std::net::TcpListener;

use metamcp_core::provision::{Facts, Plan, Verdict, builtin};
use metamcp_core::settings::ProvisionSettings;

use super::*;
use crate::provision::{Provisioner, Record};

fn server(name: &str) -> Candidate {
    Candidate { name: name.to_owned(), ..builtin().remove(1) }
}

fn registry(base: &str, home: &Path) -> Arc<Registry> {
    Arc::new(configured(base, home).remove(0))
}

fn kept(base: &str, synced: u64, candidates: Vec<Candidate>) -> Kept {
    Kept { format: FORMAT, base: base.to_owned(), synced, candidates }
}

#[test]
fn a_server_is_remembered_once_and_as_it_was_last_said() {
    let mut gathered = Gathered::of(vec![server("a"), server("b"), server("a")]);
    let newer = Candidate { description: "newer".to_owned(), ..server("b") };
    gathered.take(newer.clone());
    assert_eq!(gathered.all, [server("a"), newer]);
    assert_eq!(gathered.bytes, gathered.all.iter().map(Candidate::weight).sum::<usize>());
}

#[test]
fn what_is_remembered_is_bounded_in_bytes() {
    let mut gathered = Gathered::of(vec![server("a")]);
    gathered.bytes = MOST_BYTES - 10;
    gathered.take(server("b"));
    assert_eq!(gathered.all, [server("a")]);
}

/// Answers the requests to come, each with one of these bodies and the last with nothing.
fn answering(bodies: Vec<String>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for (body, stream) in bodies.into_iter().zip(listener.incoming()) {
            let mut stream = stream.unwrap();
            let mut request = [0; 4096];
            assert!(stream.read(&mut request).unwrap() > 0);
            let head = if body.is_empty() { "500 Oh" } else { "200 OK" };
            let length = body.len();
            let head =
                format!("HTTP/1.1 {head}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
            stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        }
    });
    base
}

fn page_of(names: &[&str], next: Option<&str>) -> String {
    let servers: Vec<Value> = names
        .iter()
        .map(|name| {
            let package = serde_json::json!({ "registryType": "npm", "identifier": "x", "version": "1.0.0" });
            serde_json::json!({ "server": { "name": name, "description": "x", "packages": [package] } })
        })
        .collect();
    serde_json::json!({ "servers": servers, "metadata": { "nextCursor": next } }).to_string()
}

#[tokio::test]
async fn a_first_look_that_failed_halfway_leaves_nothing_double() {
    let first = page_of(&["a/one", "a/two"], Some("more"));
    let base =
        answering(vec![first.clone(), String::new(), first, page_of(&["a/two", "a/three"], None)]);
    let folder = tempfile::tempdir().unwrap();
    let registry = registry(&base, &folder.path().join("home"));
    let (count, note) = registry.refresh_now().await;
    assert_eq!(count, 2);
    assert!(note.unwrap().contains("status 500"));
    let (count, note) = registry.refresh_now().await;
    assert_eq!((count, note), (3, None));
    assert_eq!(registry.load().candidates.len(), 3);
}

#[tokio::test]
async fn a_slow_registry_is_answered_for_by_what_is_remembered() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", silent.local_addr().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let registry = registry(&base, &folder.path().join("home"));
    registry.shelf.save(&kept(&base, 1, vec![server("a")])).unwrap();
    let end = tokio::time::Instant::now() + Duration::from_secs(60);
    // The file may take longer to read than the first patience lasts.
    loop {
        let (known, note) = registry.candidates_within(Duration::from_millis(50)).await;
        if !known.is_empty() {
            assert_eq!(known.as_slice(), [server("a")]);
            assert!(note.unwrap().contains("what is remembered of it is used"));
            return;
        }
        assert!(tokio::time::Instant::now() < end, "nothing is remembered");
    }
}

#[test]
fn a_snapshot_is_believed_no_more_than_a_registry() {
    let folder = tempfile::tempdir().unwrap();
    let base = "https://registry.example.com";
    let registry = registry(base, &folder.path().join("home"));
    let mut forged = server("forged\nhash  sha512-GOOD");
    forged.description = "fine\n\u{1b}[2Jfine".to_owned();
    let mut huge = server("huge");
    huge.offer.runtime_arguments.push("x".repeat(100_000));
    let mut all = vec![kept(base, 5, vec![forged, huge, server("twice"), server("twice")])];
    assert_eq!(registry.take(&mut all).unwrap(), Some((2, 5)));
    let taken = registry.load().candidates;
    assert_eq!(taken[0].name, "forged hash sha512-GOOD");
    assert!(taken.iter().all(|one| !one.description.contains('\n')));
    assert!(taken.iter().all(|one| one.source == Source::Registry(base.to_owned())));
}

#[test]
fn an_installed_server_that_was_taken_back_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let (home, base) = (folder.path().join("home"), "https://registry.example.com");
    let settings = ProvisionSettings { registries: base.to_owned(), ..Default::default() };
    let provisioner = Provisioner::new(&home, &settings, Box::new(|_| {}));
    let source = Source::Registry(base.to_owned());
    let candidate = Candidate { source, ..server("a/one") };
    let facts = Facts { exists: true, ..Facts::default() };
    let plan = Plan::new("one".to_owned(), &candidate, &facts, Verdict::default(), "/x", Ok(()));
    let record = Record::new(plan.clone(), &plan.complete(&[]).unwrap(), 1);
    assert_eq!(provisioner.withdrawn(&record), None);
    let deleted = Candidate { status: Status::Deleted("malware".to_owned()), ..candidate };
    let shelf = &provisioner.registries[0].shelf;
    shelf.save(&kept(base, 1, vec![deleted])).unwrap();
    assert_eq!(provisioner.withdrawn(&record).as_deref(), Some("malware"));
}
