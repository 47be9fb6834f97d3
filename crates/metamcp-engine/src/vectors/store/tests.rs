//! Real files: migrated, shared, damaged, deleted, oversized.

use std::fs;
use std::path::Path;
use std::process::Command;

use sha2::{Digest, Sha256};
use tempfile::TempDir;

use rusqlite::params;

use super::rows::{DAY_MS, number};
use super::*;
use crate::vectors::answer::unit;

const NOW: u64 = 1_800_000_000_000;
const MODEL: &str = "m at h";

fn row(server: &str, tool: &str, text: &str) -> Remembered {
    let numbers = [text.len() as f32 + 1.0, tool.len() as f32, 0.5];
    Remembered {
        key: Key {
            server: server.to_owned(),
            tool: tool.to_owned(),
            digest: Sha256::digest(text.as_bytes()).into(),
        },
        text: text.to_owned(),
        vector: unit(numbers.to_vec()).unwrap(),
    }
}

fn rows(server: &str, count: usize) -> Vec<Remembered> {
    (0..count).map(|n| row(server, &format!("tool{n}"), &format!("text {n}"))).collect()
}

fn keys(rows: &[Remembered]) -> Vec<Key> {
    rows.iter().map(|row| row.key.clone()).collect()
}

fn held(store: &Store, rows: &[Remembered]) -> usize {
    let found = store.read(MODEL, &keys(rows), NOW);
    for (found, row) in found.iter().zip(rows) {
        assert!(found.as_ref().is_none_or(|found| close(found, &row.vector)));
    }
    found.iter().flatten().count()
}

fn close(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-6)
}

fn raw(home: &Path) -> Connection {
    Connection::open(home.join("catalog.db")).unwrap()
}

fn names(home: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(home)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn damaged(home: &Path) -> Vec<String> {
    names(home).into_iter().filter(|name| name.contains("damaged")).collect()
}

/// A file as the first version wrote it.
fn first_version(home: &Path, version: i64) {
    let connection = raw(home);
    connection
        .execute_batch(
            "CREATE TABLE embeddings (server TEXT, tool_name TEXT, description TEXT, embedding BLOB,
                updated_at INTEGER, PRIMARY KEY (server, tool_name));
             CREATE INDEX embeddings_by_use ON embeddings (updated_at);",
        )
        .unwrap();
    let insert = "INSERT INTO embeddings VALUES (?1, ?2, ?3, ?4, ?5)";
    let good = schema::to_bytes(&[3.0, 4.0]);
    connection.execute(insert, params!["s", "good", "reads files", good, 5]).unwrap();
    connection.execute(insert, params!["s", "dated", "dated", good, "2026-01-01"]).unwrap();
    connection.execute(insert, params!["s", "odd", "x", vec![1_u8; 7], 5]).unwrap();
    connection
        .execute(insert, params!["s", "zero", "x", schema::to_bytes(&[0.0, 0.0]), 5])
        .unwrap();
    connection.execute(insert, params!["s", "nan", "x", schema::to_bytes(&[f32::NAN]), 5]).unwrap();
    connection.execute(insert, params!["s", "text", "x", "not a blob", 5]).unwrap();
    connection.execute(insert, params![7, "number", "x", good, 5]).unwrap();
    connection.pragma_update(None, "user_version", version).unwrap();
}

#[test]
fn written_vectors_are_read_by_the_next_process() {
    let home = TempDir::new().unwrap();
    let all = rows("s", 50);
    let store = Store::new(home.path());
    assert_eq!(held(&store, &all), 0);
    assert!(store.write(MODEL, &all, NOW));
    assert_eq!(held(&store, &all), 50);
    let other = Store::new(home.path());
    assert_eq!(held(&other, &all), 50);
    assert_eq!(other.read("another model", &keys(&all), NOW), vec![None; 50]);
    let changed = row("s", "tool3", "another text");
    assert_eq!(other.read(MODEL, std::slice::from_ref(&changed.key), NOW), [None]);
    assert!(other.write(MODEL, std::slice::from_ref(&changed), NOW));
    assert_eq!((held(&store, &[changed]), held(&store, &all)), (1, 49));
    assert_eq!(store.note(), None);
    let journal: String =
        raw(home.path()).query_row("PRAGMA journal_mode", [], |row| row.get(0)).unwrap();
    assert_eq!(journal, "wal");
}

#[cfg(unix)]
#[test]
fn the_file_is_private_to_its_owner() {
    use std::os::unix::fs::PermissionsExt;
    let home = TempDir::new().unwrap();
    let mode =
        |name: &str| fs::metadata(home.path().join(name)).unwrap().permissions().mode() & 0o777;
    fs::write(home.path().join("catalog.db"), "").unwrap();
    fs::set_permissions(home.path().join("catalog.db"), fs::Permissions::from_mode(0o644)).unwrap();
    let store = Store::new(home.path());
    assert!(store.write(MODEL, &rows("s", 3), NOW));
    assert_eq!(
        names(home.path()),
        ["catalog.db", "catalog.db-shm", "catalog.db-wal", "catalog.lock"]
    );
    for name in names(home.path()) {
        assert_eq!(mode(&name), 0o600, "{name}");
    }
}

#[test]
fn the_first_version_is_migrated_without_losing_valid_rows() {
    for version in [0, 1] {
        let home = TempDir::new().unwrap();
        first_version(home.path(), version);
        let store = Store::new(home.path());
        let key = |tool: &str, text: &str| row("s", tool, text).key;
        let wanted =
            [key("good", "reads files"), key("dated", "dated"), key("odd", "x"), key("zero", "x")];
        let found = store.read("voyage-3-lite", &wanted, NOW);
        assert!(close(found[0].as_ref().unwrap(), &[0.6, 0.8]));
        assert_eq!(found.iter().flatten().count(), 2);
        drop(store);
        let connection = raw(home.path());
        assert_eq!(schema::version(&connection).unwrap(), schema::VERSION);
        // SQLite's column affinity turned the number into text.
        assert_eq!(number(&connection, "SELECT count(*) FROM embeddings").unwrap(), 3);
        assert_eq!(
            number(&connection, "SELECT count(*) FROM sqlite_master WHERE type = 'table'").unwrap(),
            1
        );
        let (dims, updated): (i64, i64) = connection
            .query_row(
                "SELECT dims, updated_at FROM embeddings WHERE tool_name = 'good'",
                [],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )
            .unwrap();
        assert_eq!((dims, updated), (2, 5));
        assert!(damaged(home.path()).is_empty());
    }
}

#[test]
fn a_flipped_bit_costs_only_its_row() {
    let home = TempDir::new().unwrap();
    let all = rows("s", 8);
    assert!(Store::new(home.path()).write(MODEL, &all, NOW));
    for bit in 0..32 {
        let connection = raw(home.path());
        let mut vector: Vec<u8> = connection
            .query_row("SELECT embedding FROM embeddings WHERE tool_name = 'tool0'", [], |row| {
                row.get(0)
            })
            .unwrap();
        vector[bit / 8] ^= 1 << (bit % 8);
        connection
            .execute(
                "UPDATE embeddings SET embedding = ?1 WHERE tool_name = 'tool0'",
                params![vector],
            )
            .unwrap();
        drop(connection);
        let store = Store::new(home.path());
        assert_eq!(held(&store, &all), 7, "bit {bit} went unnoticed");
        assert!(store.write(MODEL, &all, NOW), "it is written again");
        assert_eq!(held(&store, &all), 8);
    }
}

#[test]
fn the_second_version_is_migrated_with_its_vectors() {
    let home = TempDir::new().unwrap();
    let all = rows("s", 5);
    assert!(Store::new(home.path()).write(MODEL, &all, NOW));
    raw(home.path())
        .execute_batch("ALTER TABLE embeddings DROP COLUMN checksum; PRAGMA user_version = 2")
        .unwrap();
    let store = Store::new(home.path());
    assert_eq!(held(&store, &all), 5);
    assert!(damaged(home.path()).is_empty());
}

#[test]
fn a_file_of_a_newer_version_is_not_changed() {
    let home = TempDir::new().unwrap();
    raw(home.path()).execute_batch("CREATE TABLE other (x); PRAGMA user_version = 4").unwrap();
    let before = fs::read(home.path().join("catalog.db")).unwrap();
    let store = Store::new(home.path());
    assert!(!store.write(MODEL, &rows("s", 3), NOW));
    assert_eq!(held(&store, &rows("s", 3)), 0);
    let note = store.note().unwrap();
    assert!(note.contains("memory only") && note.contains("version 4"), "{note}");
    assert_eq!(fs::read(home.path().join("catalog.db")).unwrap(), before);
    assert_eq!(names(home.path()), ["catalog.db", "catalog.lock"]);
    // It is tried again after a while.
    fs::remove_file(home.path().join("catalog.db")).unwrap();
    assert!(!store.write(MODEL, &rows("s", 3), NOW + 1));
    assert!(store.write(MODEL, &rows("s", 3), NOW + RETRY_AFTER_MS));
}

#[test]
fn a_damaged_file_is_moved_aside_and_replaced() {
    let garbage: Vec<u8> =
        (0..20_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let beginnings: [&[u8]; 3] = [b"", b"SQLite format 3\0", b"hello"];
    for beginning in beginnings {
        let home = TempDir::new().unwrap();
        let content = [beginning, &garbage].concat();
        fs::write(home.path().join("catalog.db"), &content).unwrap();
        let store = Store::new(home.path());
        assert!(store.write(MODEL, &rows("s", 3), NOW));
        assert_eq!(held(&store, &rows("s", 3)), 3);
        let aside = damaged(home.path());
        assert_eq!(aside.len(), 1);
        assert_eq!(fs::read(home.path().join(&aside[0])).unwrap(), content, "nothing is lost");
        let note = store.note().unwrap();
        assert!(note.contains("damaged") && note.contains(&aside[0]), "{note}");
    }
    // A valid file with other tables in it is unusable too.
    for sql in [
        "CREATE TABLE other (x)",
        "CREATE TABLE embeddings (x); PRAGMA user_version = 2",
        "CREATE TABLE embeddings (x); PRAGMA user_version = 3",
        "CREATE TABLE embeddings (x); PRAGMA user_version = 1",
    ] {
        let home = TempDir::new().unwrap();
        raw(home.path()).execute_batch(sql).unwrap();
        let store = Store::new(home.path());
        assert!(store.write(MODEL, &rows("s", 3), NOW), "{sql}: {:?}", store.note());
        assert_eq!(damaged(home.path()).len(), 1, "{sql}");
    }
}

#[test]
fn damage_while_open_is_survived_and_few_damaged_files_are_kept() {
    let home = TempDir::new().unwrap();
    let many = rows("s", 400);
    let store = Store::new(home.path());
    for round in 0..5 {
        assert!(store.write(MODEL, &many, NOW));
        raw(home.path()).query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        let path = home.path().join("catalog.db");
        let length = usize::try_from(fs::metadata(&path).unwrap().len()).unwrap();
        // Written into the same file, as a failing disk would.
        use std::io::{Seek, Write};
        let mut file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.seek(std::io::SeekFrom::Start(100)).unwrap();
        file.write_all(&vec![0xA5; length - 100]).unwrap();
        drop(file);
        let later = NOW + round;
        let fresh = Store::new(home.path());
        assert_eq!(fresh.read(MODEL, &keys(&many), later), vec![None; 400]);
        assert!(fresh.write(MODEL, &many, later));
        assert_eq!(store.read(MODEL, &keys(&many), later).iter().flatten().count(), 400);
    }
    assert_eq!(damaged(home.path()).len(), 3);
}

#[test]
fn damage_found_while_reading_replaces_the_file() {
    let home = TempDir::new().unwrap();
    let wide: Vec<Remembered> = rows("s", 300)
        .into_iter()
        .map(|row| Remembered { vector: vec![0.0625; 256].into(), ..row })
        .collect();
    assert!(Store::new(home.path()).write(MODEL, &wide, NOW));
    let store = Store::new(home.path());
    assert!(store.read(MODEL, &keys(&wide[..1]), NOW)[0].is_some());
    let path = home.path().join("catalog.db");
    let mut content = fs::read(&path).unwrap();
    // The first pages are intact.
    content[8 * 4096..].fill(0xA5);
    fs::write(&path, content).unwrap();
    assert_eq!(store.read(MODEL, &keys(&wide), NOW), vec![None; 300]);
    assert!(store.note().unwrap().contains("damaged"));
    assert!(store.write(MODEL, &wide, NOW));
    assert_eq!(held(&store, &wide), 300);
    assert_eq!(damaged(home.path()).len(), 1);
}

#[test]
fn deleting_the_open_file_creates_a_new_one() {
    for also_beside in [false, true] {
        let home = TempDir::new().unwrap();
        let (one, two) = (Store::new(home.path()), Store::new(home.path()));
        let all = rows("s", 20);
        assert!(one.write(MODEL, &all, NOW) && two.write(MODEL, &all, NOW));
        for name in names(home.path()) {
            if name == "catalog.db" || also_beside {
                fs::remove_file(home.path().join(name)).unwrap();
            }
        }
        assert_eq!(held(&one, &all), 0);
        assert!(one.write(MODEL, &all[..10], NOW));
        assert_eq!(held(&two, &all), 10);
        assert!(two.write(MODEL, &all[10..], NOW));
        assert_eq!((held(&one, &all), held(&Store::new(home.path()), &all)), (20, 20));
        assert!(damaged(home.path()).is_empty());
        // The whole home too.
        fs::remove_dir_all(home.path()).unwrap();
        assert_eq!(held(&one, &all), 0);
        assert!(one.write(MODEL, &all, NOW));
        assert_eq!(held(&two, &all), 20);
        assert_eq!((one.note(), two.note()), (None, None));
    }
}

#[test]
fn several_stores_write_one_file_at_once() {
    let home = TempDir::new().unwrap();
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let home = home.path();
            scope.spawn(move || {
                let store = Store::new(home);
                for chunk in rows(&format!("server{writer}"), 200).chunks(10) {
                    assert!(store.write(MODEL, chunk, NOW), "{:?}", store.note());
                    assert_eq!(held(&store, chunk), 10);
                }
            });
        }
    });
    let store = Store::new(home.path());
    for writer in 0..4 {
        assert_eq!(held(&store, &rows(&format!("server{writer}"), 200)), 200);
    }
    let whole: String =
        raw(home.path()).query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(whole, "ok");
}

#[test]
fn concurrent_migrations_are_safe() {
    let home = TempDir::new().unwrap();
    first_version(home.path(), 1);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let store = Store::new(home.path());
                let key = row("s", "good", "reads files").key;
                assert!(
                    store.read("voyage-3-lite", &[key], NOW)[0].is_some(),
                    "{:?}",
                    store.note()
                );
            });
        }
    });
}

/// Names the home the test below writes to when another process runs it.
const SHARED_HOME: &str = "METAMCP_TEST_SHARED_HOME";
const SERVER: &str = "METAMCP_TEST_SERVER";

#[test]
fn a_process_writes_its_rows() {
    let own = TempDir::new().unwrap();
    let home = std::env::var_os(SHARED_HOME).map_or(own.path().to_owned(), PathBuf::from);
    let server = std::env::var(SERVER).unwrap_or_else(|_| "alone".to_owned());
    let store = Store::new(&home);
    for chunk in rows(&server, 300).chunks(5) {
        assert!(store.write(MODEL, chunk, NOW), "{:?}", store.note());
    }
    assert_eq!(held(&store, &rows(&server, 300)), 300);
}

#[test]
fn several_processes_share_one_home() {
    let home = TempDir::new().unwrap();
    let test = "vectors::store::tests::a_process_writes_its_rows";
    let start = |server: &str| {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test])
            .env(SHARED_HOME, home.path())
            .env(SERVER, server)
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap()
    };
    let running: Vec<_> = ["a", "b", "c"].map(start).into();
    for mut process in running {
        assert!(process.wait().unwrap().success());
    }
    let store = Store::new(home.path());
    for server in ["a", "b", "c"] {
        assert_eq!(held(&store, &rows(server, 300)), 300);
    }
    assert!(damaged(home.path()).is_empty());
}

#[test]
fn unused_rows_expire_and_used_ones_stay() {
    let home = TempDir::new().unwrap();
    let all = rows("s", 10);
    let day = DAY_MS.unsigned_abs();
    assert!(Store::new(home.path()).write(MODEL, &all, NOW));
    let store = Store::new(home.path());
    // Half of them are used on a later day.
    assert_eq!(store.read(MODEL, &keys(&all[..5]), NOW + 20 * day).iter().flatten().count(), 5);
    let trigger = [row("other", "t", "t")];
    assert!(store.write(MODEL, &trigger, NOW + 40 * day));
    assert_eq!((held(&store, &all[..5]), held(&store, &all[5..])), (5, 0));
}

#[test]
fn the_file_stays_within_its_limits() {
    let home = TempDir::new().unwrap();
    let mut store = Store::new(home.path());
    store.bounds.rows = 100;
    for n in 0..8_u64 {
        let hours = n * PRUNE_AFTER_MS;
        assert!(store.write(MODEL, &rows(&format!("server{n}"), 30), NOW + hours));
    }
    let connection = raw(home.path());
    assert_eq!(number(&connection, "SELECT count(*) FROM embeddings").unwrap(), 100);
    assert_eq!(held(&store, &rows("server7", 30)), 30);
    assert_eq!(held(&store, &rows("server0", 30)), 0);
    // And in bytes.
    store.bounds = Bounds { rows: 100_000, bytes: 1024 * 1024 };
    for n in 0..8_u64 {
        let wide: Vec<Remembered> = rows(&format!("wide{n}"), 50)
            .into_iter()
            .map(|row| Remembered { vector: vec![0.03125; 1024].into(), ..row })
            .collect();
        assert!(store.write(MODEL, &wide, NOW + (n + 8) * PRUNE_AFTER_MS));
    }
    raw(home.path()).query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    let size = fs::metadata(home.path().join("catalog.db")).unwrap().len();
    assert!(size <= 1024 * 1024, "{size}");
    assert!(
        number(&connection, "SELECT count(*) FROM embeddings WHERE server = 'wide7'").unwrap()
            == 50
    );
}

#[cfg(unix)]
#[test]
fn symlinks_in_its_place_are_not_followed() {
    use std::os::unix::fs::PermissionsExt;
    let outside = TempDir::new().unwrap();
    let target = outside.path().join("target");
    fs::write(&target, "").unwrap();
    for name in ["catalog.db", "catalog.lock"] {
        let home = TempDir::new().unwrap();
        std::os::unix::fs::symlink(&target, home.path().join(name)).unwrap();
        let store = Store::new(home.path());
        assert!(!store.write(MODEL, &rows("s", 3), NOW), "{name}");
        assert!(store.note().is_some());
        assert_eq!(fs::read(&target).unwrap(), b"");
    }
    let home = TempDir::new().unwrap();
    fs::create_dir(home.path().join("catalog.db")).unwrap();
    assert!(!Store::new(home.path()).write(MODEL, &rows("s", 3), NOW));
    // A home that is itself a symlink, such as to another disk, is fine.
    let link = outside.path().join("home");
    let real = TempDir::new().unwrap();
    std::os::unix::fs::symlink(real.path(), &link).unwrap();
    assert!(Store::new(&link).write(MODEL, &rows("s", 3), NOW));
    // A read-only directory: root can write to it, all others go on without the file.
    let home = TempDir::new().unwrap();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o500)).unwrap();
    let store = Store::new(home.path());
    let written = store.write(MODEL, &rows("s", 3), NOW);
    assert_eq!(written, store.note().is_none());
    assert_eq!(written, nix::unistd::Uid::effective().is_root());
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o700)).unwrap();
}
