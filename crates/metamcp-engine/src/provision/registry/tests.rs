//! The registry cache, against registries that fail, stall or lie.

use std::net::TcpListener;

use metamcp_config::config::ServerState;
use metamcp_provisioning::provision::{Facts, Plan, Verdict, builtin};

use super::*;
use crate::provision::{Record, Store};

fn server(name: &str) -> Candidate {
    Candidate {
        name: name.to_owned(),
        ..builtin().into_iter().find(|one| one.name.ends_with("server-memory")).unwrap()
    }
}

fn registry(base: &str, home: &Path) -> Arc<Registry> {
    Arc::new(configured(base, home).remove(0))
}

fn cache(base: &str, synced: u64, candidates: Vec<Candidate>) -> RegistryCache {
    RegistryCache {
        format: FORMAT,
        base: base.to_owned(),
        synced,
        candidates,
        ..RegistryCache::default()
    }
}

#[test]
fn a_server_is_cached_once_in_its_latest_version() {
    let mut gathered = Gathered::of(vec![server("a"), server("b"), server("a")]);
    let newer = Candidate { description: "newer".to_owned(), ..server("b") };
    gathered.take(newer.clone());
    assert_eq!(gathered.all, [server("a"), newer]);
    assert_eq!(gathered.bytes, gathered.all.iter().map(Candidate::weight).sum::<usize>());
}

#[test]
fn the_cache_is_bounded_in_bytes() {
    let mut gathered = Gathered::of(vec![server("a")]);
    gathered.bytes = MAX_BYTES - 10;
    gathered.take(server("b"));
    assert_eq!(gathered.all, [server("a")]);
}

/// Answers one request with each of these bodies, and then no more.
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
async fn a_first_sync_that_failed_halfway_leaves_no_duplicates() {
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
async fn a_slow_registry_is_served_from_the_cache() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", silent.local_addr().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let registry = registry(&base, &folder.path().join("home"));
    registry.cache_file.save(&cache(&base, 1, vec![server("a")])).unwrap();
    let end = tokio::time::Instant::now() + Duration::from_mins(1);
    // Reading the file may take longer than the first timeout.
    loop {
        let (known, note) = registry.candidates_within(Duration::from_millis(50)).await;
        if !known.is_empty() {
            assert_eq!(known.as_slice(), [server("a")]);
            assert!(note.unwrap().contains("its cached list is used"));
            return;
        }
        assert!(tokio::time::Instant::now() < end, "nothing is cached");
    }
}

#[test]
fn a_snapshot_is_trusted_no_more_than_a_registry() {
    let folder = tempfile::tempdir().unwrap();
    let base = "https://registry.example.com";
    let registry = registry(base, &folder.path().join("home"));
    let mut forged = server("forged\nhash  sha512-GOOD");
    forged.description = "fine\n\u{1b}[2Jfine".to_owned();
    let mut huge = server("huge");
    huge.offer.runtime_arguments.push("x".repeat(100_000));
    let mut all = vec![cache(base, 5, vec![forged, huge, server("twice"), server("twice")])];
    assert_eq!(registry.take(&mut all).unwrap(), Some((2, 5)));
    let taken = registry.load().candidates;
    assert_eq!(taken[0].name, "forged hash sha512-GOOD");
    assert!(taken.iter().all(|one| !one.description.contains('\n')));
    assert!(taken.iter().all(|one| one.source == Source::Registry(base.to_owned())));
}

/// An installed server of this registry.
fn install(home: &Path, base: &str, name: &str) -> Store {
    let store = Store::new(home);
    let candidate = Candidate { source: Source::Registry(base.to_owned()), ..server(name) };
    let facts = Facts { exists: true, ..Facts::default() };
    let prefix = store.prefix(&candidate.package());
    let plan = Plan::new("one".to_owned(), &candidate, &facts, Verdict::default(), &prefix, Ok(()));
    let record = Record::new(plan.clone(), &plan.complete(&[]).unwrap(), 1);
    store.remember_installed(&record).unwrap();
    store
}

fn withheld(store: &Store) -> Option<String> {
    let record = store.record("one").unwrap();
    let config = crate::provision::installed(store.home()).remove(0).0;
    let is_used = config.is_enabled();
    assert_eq!(is_used, record.quarantine.is_none(), "a withheld server is not used");
    if let ServerState::Withheld { cure, .. } = &config.state {
        assert!(cure.contains("metamcp provisioned accept one"), "{cure}");
    }
    record.quarantine
}

/// A page with a withdrawn server and this message.
fn taken_back(name: &str, message: &str) -> String {
    let mut page: Value = serde_json::from_str(&page_of(&[name], None)).unwrap();
    page["servers"][0]["_meta"] = serde_json::json!({
        "io.modelcontextprotocol.registry/official": { "status": "deleted", "statusMessage": message },
    });
    page.to_string()
}

#[tokio::test]
async fn a_withdrawn_server_is_withheld_until_a_person_accepts_it() {
    let base = answering(vec![
        page_of(&["a/one", "a/two"], None),
        taken_back("a/one", "malware"),
        taken_back("a/one", "malware"),
        taken_back("a/one", "worse malware"),
    ]);
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    let registry = registry(&base, &home);
    registry.refresh_now().await;
    let store = install(&home, &base, "a/one");
    assert_eq!(withheld(&store), None);
    registry.refresh_now().await;
    assert_eq!(withheld(&store).as_deref(), Some("its registry took it back: malware"));
    assert!(crate::provision::changed_file(&home).exists(), "running gateways are notified");
    let prefix = store.record("one").unwrap().plan.prefix;
    assert!(Path::new(&prefix).is_dir(), "nothing is removed");
    let seen = store.record("one").unwrap();
    store.accept(&seen).unwrap();
    assert_eq!(withheld(&store), None);
    // The accepted reason stays accepted; another one does not.
    registry.refresh_now().await;
    assert_eq!(withheld(&store), None);
    registry.refresh_now().await;
    assert_eq!(withheld(&store).as_deref(), Some("its registry took it back: worse malware"));
    // Accepting an earlier reason does not accept this one.
    store.accept(&seen).unwrap();
    assert!(withheld(&store).is_some());
}

#[tokio::test]
async fn a_server_missing_from_a_full_sync_is_withheld() {
    let odd = r#"{"server": {"name": "a/one", "description": "x", "packages": []}}"#;
    let unusable = format!(r#"{{"servers": [{odd}], "metadata": {{}}}}"#);
    let base = answering(vec![
        page_of(&["a/one", "a/two"], None),
        page_of(&["a/two"], None),
        page_of(&["a/two"], Some("more")),
        String::new(),
        unusable,
        page_of(&["a/two"], None),
    ]);
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    let registry = registry(&base, &home);
    registry.refresh_now().await;
    let store = install(&home, &base, "a/one");
    let age = async |registry: &Registry| {
        registry.state.lock().await.cache.whole -= FULL_SYNC_MS;
    };
    // An incremental sync says nothing about it.
    registry.refresh_now().await;
    assert_eq!(withheld(&store), None);
    // A failed full sync changes nothing.
    age(&registry).await;
    let (known, note) = registry.refresh_now().await;
    assert!(known == 2 && note.is_some(), "what was known stays");
    assert_eq!(withheld(&store), None);
    // Listed, although it can no longer be installed here.
    registry.refresh_now().await;
    assert_eq!(withheld(&store), None);
    age(&registry).await;
    registry.refresh_now().await;
    assert_eq!(withheld(&store).as_deref(), Some("its registry names it no more"));
}

#[test]
fn a_server_withdrawn_by_a_snapshot_is_withheld_too() {
    let folder = tempfile::tempdir().unwrap();
    let (home, base) = (folder.path().join("home"), "https://registry.example.com");
    let store = install(&home, base, "a/one");
    let deleted = Candidate { status: Status::Deleted(String::new()), ..server("a/one") };
    let mut all = vec![cache(base, 5, vec![deleted])];
    registry(base, &home).take(&mut all).unwrap();
    assert_eq!(withheld(&store).as_deref(), Some("its registry took it back"));
}
