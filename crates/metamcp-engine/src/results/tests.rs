use super::*;

fn bytes(length: usize, fill: u8) -> Bytes {
    Bytes::from(vec![fill; length])
}

fn block<T>(future: impl std::future::Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

const ANYBODY: Owner = Owner { toolset: None, principal: 0, lasting: None, session: 0 };

fn restricted_to(toolset: &str) -> Owner {
    Owner { toolset: Some(toolset.into()), ..ANYBODY }
}

#[test]
fn a_value_is_found_until_it_is_old() {
    let home = tempfile::tempdir().unwrap();
    let (results, now) = (Results::new(home.path()), Instant::now());
    let handle = results.put_at(&ANYBODY, Bytes::from_static(b"[1]"), 0..3, now);
    assert!(results.find(&handle, &ANYBODY, now).is_some());
    assert!(results.find(&handle, &ANYBODY, now + MAX_AGE).is_none());
    assert!(results.find("r0", &ANYBODY, now).is_none());
}

#[test]
fn a_session_of_a_toolset_reads_only_what_was_stored_there() {
    let home = tempfile::tempdir().unwrap();
    let results = Results::new(home.path());
    let (docs, mail): (Owner, Owner) = (restricted_to("docs"), restricted_to("mail"));
    let handle = results.put(&docs, Bytes::from_static(b"1"));
    let open = results.put(&ANYBODY, Bytes::from_static(b"2"));
    block(async {
        assert!(results.read(&handle, &docs).await.is_some());
        assert!(results.read(&handle, &ANYBODY).await.is_some());
        assert!(results.read(&handle, &mail).await.is_none());
        assert!(results.read(&open, &docs).await.is_none());
    });
}

#[test]
fn no_principal_reads_the_values_of_another() {
    let home = tempfile::tempdir().unwrap();
    let results = Results::new(home.path());
    let of = |principal| Owner { principal, ..restricted_to("docs") };
    let handle = results.put(&of(1), Bytes::from_static(b"1"));
    assert!(handle.len() > 32, "{handle} has fewer than 128 bits");
    block(async {
        assert!(results.read(&handle, &of(1)).await.is_some());
        assert!(results.read(&handle, &Owner { principal: 1, ..ANYBODY }).await.is_some());
        for other in [of(2), of(0), ANYBODY, Owner { principal: 2, ..ANYBODY }] {
            assert!(results.read(&handle, &other).await.is_none(), "{other:?}");
        }
    });
}

#[test]
fn a_client_that_connects_again_reads_what_it_stored() {
    let home = tempfile::tempdir().unwrap();
    let results = Results::new(home.path());
    let of = |session| Owner { session, ..ANYBODY };
    let handle = results.put(&of(1), Bytes::from_static(b"1"));
    results.end_session(0, 1);
    assert!(block(results.read(&handle, &of(2))).is_some());
}

#[test]
fn values_beyond_the_memory_limit_move_to_disk_and_none_is_lost() {
    let home = tempfile::tempdir().unwrap();
    let results = Results::with(home.path(), 1000);
    // Without a runtime files are written at once.
    let handles: Vec<String> =
        (0..8).map(|n| results.put(&ANYBODY, bytes(400, b'0' + n))).collect();
    let in_memory = results.lock().iter().filter(|one| !matches!(one.place, Place::Disk)).count();
    assert!(in_memory <= 2, "{in_memory}");
    block(async {
        for (n, handle) in handles.iter().enumerate() {
            let stored = results.read(handle, &ANYBODY).await.unwrap();
            assert_eq!(stored.value, bytes(400, b'0' + u8::try_from(n).unwrap()));
        }
    });
    // Even while they are stored, there is no file that a killed process would leave.
    assert_eq!(std::fs::read_dir(home.path().join("results")).unwrap().count(), 0);
}

#[tokio::test]
async fn a_value_expires_though_no_other_is_stored() {
    let home = tempfile::tempdir().unwrap();
    let results = Results::with(home.path(), 1000);
    // The clock of values is the real one, so an old one is put rather than waited for.
    let Some(then) = Instant::now().checked_sub(MAX_AGE) else { return };
    results.put_at(&ANYBODY, bytes(400, b'x'), 0..400, then);
    while results.lock().oldest().is_some() {
        tokio::task::yield_now().await;
    }
    let handle = results.put(&ANYBODY, bytes(400, b'y'));
    assert!(results.read(&handle, &ANYBODY).await.is_some());
}

#[test]
fn a_value_larger_than_memory_stays_while_it_is_the_newest() {
    let home = tempfile::tempdir().unwrap();
    let results = Results::with(home.path(), 100);
    let handle = results.put(&ANYBODY, bytes(500, b'x'));
    assert!(matches!(results.lock().iter().next().unwrap().place, Place::Memory(_)));
    assert_eq!(block(results.read(&handle, &ANYBODY)).unwrap().whole.len(), 500);
}

#[test]
fn a_result_is_stored_whole_with_the_range_of_its_value() {
    let home = tempfile::tempdir().unwrap();
    let results = Results::new(home.path());
    let raw = Bytes::from_static(br#"{"content":[{"type":"text","text":"abc"}],"_meta":{}}"#);
    let handle = results.put_result(&ANYBODY, raw.clone());
    let stored = block(results.read(&handle, &ANYBODY)).unwrap();
    assert_eq!((stored.whole, &*stored.value), (raw, &br#""abc""#[..]));
}

#[test]
fn a_value_that_cannot_be_written_is_dropped_and_the_rest_stays() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("results"), "a file in its place").unwrap();
    let results = Results::with(home.path(), 100);
    let first = results.put(&ANYBODY, bytes(90, b'a'));
    let second = results.put(&ANYBODY, bytes(90, b'b'));
    block(async {
        assert!(results.read(&first, &ANYBODY).await.is_none());
        assert!(results.read(&second, &ANYBODY).await.is_some());
    });
}
