use std::fs;

use super::*;

fn store() -> (tempfile::TempDir, TrustStore) {
    let folder = tempfile::tempdir().unwrap();
    let store = TrustStore::new(&folder.path().join("home"));
    (folder, store)
}

#[test]
fn a_decision_is_about_one_path_and_one_content() {
    let (_folder, store) = store();
    let (here, there) = (Path::new("/a/.mcp.json"), Path::new("/b/.mcp.json"));
    let is = |path: &Path, hash: &str| store.decision(path, hash).unwrap();
    assert_eq!(is(here, "1"), Decision::None);
    store.approve(here, "1").unwrap();
    assert_eq!((is(here, "1"), is(here, "2")), (Decision::Trusted, Decision::Changed));
    assert_eq!(is(there, "1"), Decision::None, "the same content elsewhere is another file");
    store.decline(here, "2").unwrap();
    assert_eq!((is(here, "1"), is(here, "2")), (Decision::Trusted, Decision::Declined));
    store.approve(here, "2").unwrap();
    assert_eq!((is(here, "1"), is(here, "2")), (Decision::Changed, Decision::Trusted));
    assert!(store.forget(here).unwrap() && !store.forget(here).unwrap());
    assert_eq!(is(here, "2"), Decision::None);
}

#[test]
fn invalid_content_counts_as_no_decision() {
    let (_folder, store) = store();
    let path = Path::new("/a/.mcp.json");
    store.approve(path, "1").unwrap();
    for nonsense in ["", "{", "[]", r#"{"files": [{"path": "/a/.mcp.json", "sha256": "1"}]}"#] {
        fs::write(store.file(), nonsense).unwrap();
        assert_eq!(store.decision(path, "1").unwrap(), Decision::None, "{nonsense}");
    }
    fs::write(store.file(), " ".repeat((1 << 20) + 1)).unwrap();
    assert!(store.decision(path, "1").is_err());
}

#[cfg(unix)]
#[test]
fn the_file_is_private_and_otherwise_not_trusted() {
    use std::os::unix::fs::PermissionsExt;
    let (folder, store) = store();
    let path = Path::new("/a/.mcp.json");
    store.approve(path, "1").unwrap();
    let mode = || fs::metadata(store.file()).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(), 0o600);
    fs::set_permissions(store.file(), fs::Permissions::from_mode(0o666)).unwrap();
    assert!(matches!(store.decision(path, "1"), Err(TrustError::Exposed(_))));
    store.approve(Path::new("/b/.mcp.json"), "2").unwrap();
    assert_eq!(mode(), 0o600);
    assert_eq!(store.decision(path, "1").unwrap(), Decision::None, "it was not carried on");
    // A symlink in its place is not followed.
    let elsewhere = folder.path().join("planted");
    fs::rename(store.file(), &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, store.file()).unwrap();
    assert!(store.decision(Path::new("/b/.mcp.json"), "2").is_err());
}

#[test]
fn concurrent_writers_lose_nothing_and_the_oldest_are_dropped() {
    let (_folder, store) = store();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let store = &store;
            scope.spawn(move || {
                for turn in 0..10 {
                    store.approve(Path::new(&format!("/{thread}/{turn}")), "1").unwrap();
                }
            });
        }
    });
    assert_eq!(store.records().unwrap().len(), 40);
    let files = (0..MAX_RECORDS).map(|at| Record {
        path: format!("/old/{at}"),
        sha256: "1".to_owned(),
        trusted: true,
        at: 1,
    });
    let text = serde_json::to_string(&Stored { files: files.collect() }).unwrap();
    fs::write(store.file(), text).unwrap();
    store.approve(Path::new("/new"), "1").unwrap();
    let records = store.records().unwrap();
    assert_eq!((records.len(), &*records[0].path), (MAX_RECORDS, "/old/1"));
}
