//! The cache on a real disk: damage, traps, concurrent writers.

use std::fs;
#[cfg(unix)]
use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering};

use metamcp_search::search::IndexCacheKey;
use metamcp_tools::tool::Listing;
use proptest::prelude::*;
use serde_json::json;

use super::*;

const NOW: u64 = 1_800_000_000_000;

struct Home {
    directory: tempfile::TempDir,
    cache: SchemaCache,
}

fn home() -> Home {
    let directory = tempfile::tempdir().unwrap();
    let cache = SchemaCache::new(&directory.path().join(".metamcp"));
    Home { directory, cache }
}

impl Home {
    fn folder(&self, server: &str) -> PathBuf {
        self.directory.path().join(".metamcp/cache").join(folder_name(server))
    }

    fn file(&self, server: &str) -> PathBuf {
        self.folder(server).join("schema.json")
    }

    fn entries(&self, server: &str) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.folder(server))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

fn tools(names: &[&str]) -> ServerTools {
    let list: Vec<_> = names
        .iter()
        .map(|name| json!({"name": name, "description": format!("Does {name}."), "inputSchema": {"type": "object"}}))
        .collect();
    let mut listing = Listing::new();
    listing.page(json!({"tools": list}).to_string().as_bytes()).unwrap();
    listing.finish(Some("A server"), Some("1.2"))
}

fn write(home: &Home, server: &str, list: &ServerTools, now: u64) -> Written {
    home.cache.write_if_changed(server, list, Some("2025-11-25"), now).unwrap()
}

#[test]
fn a_written_list_is_read_back() {
    let home = home();
    assert!(matches!(home.cache.read("files", NOW), Ok(Lookup::Missing)));
    assert!(!home.directory.path().join(".metamcp").exists(), "reading creates nothing");
    let list = tools(&["read", "write"]);
    assert_eq!(write(&home, "files", &list, NOW), Written::Replaced);
    let header = home.cache.read_header("files", NOW).unwrap().found().unwrap();
    assert_eq!(header.title.as_deref(), Some("A server"));
    assert_eq!(header.version.as_deref(), Some("1.2"));
    assert_eq!(header.era.as_deref(), Some("2025-11-25"));
    assert_eq!((header.tools, header.saved_at), (2, NOW));
    let cached = home.cache.read("files", NOW).unwrap().found().unwrap();
    assert_eq!(cached.header, header);
    assert_eq!(cached.tools.fingerprint, list.fingerprint);
    assert_eq!(cached.tools.to_json(), list.to_json());
    assert_eq!(cached.tools.server_title, list.server_title);

    let first_line =
        fs::read_to_string(home.file("files")).unwrap().lines().next().unwrap().to_owned();
    let parsed: serde_json::Value = serde_json::from_str(&first_line).unwrap();
    assert_eq!(parsed["server"], "files");
    #[cfg(unix)]
    {
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&home.file("files")), 0o600);
        assert_eq!(mode(&home.folder("files")), 0o700);
    }
}

#[test]
fn an_unchanged_list_is_not_rewritten() {
    let home = home();
    let list = tools(&["a", "b"]);
    write(&home, "s", &list, NOW);
    let before = fs::read(home.file("s")).unwrap();
    assert_eq!(
        write(&home, "s", &tools(&["b", "a"]), NOW + 5),
        Written::Unchanged,
        "order alone is no difference"
    );
    assert_eq!(fs::read(home.file("s")).unwrap(), before);
    let annotated = {
        let mut listing = Listing::new();
        let page = list.to_json().replacen(
            "{\"name\"",
            "{\"annotations\":{\"readOnlyHint\":true},\"name\"",
            1,
        );
        listing.page(page.as_bytes()).unwrap();
        listing.finish(Some("A server"), Some("1.2"))
    };
    assert_eq!(write(&home, "s", &annotated, NOW + 6), Written::Replaced, "annotations count");
    let mut renamed = tools(&["a", "b"]);
    renamed.server_title = Some("Another name".to_owned());
    assert_eq!(write(&home, "s", &renamed, NOW + 7), Written::Replaced);
    assert_eq!(
        home.cache.write_if_changed("s", &renamed, None, NOW + 8).unwrap(),
        Written::Replaced,
        "the era counts"
    );
}

#[test]
fn age_is_measured_by_the_given_clock() {
    let home = home();
    write(&home, "s", &tools(&["a"]), NOW);
    let header = home.cache.read_header("s", NOW).unwrap().found().unwrap();
    assert!(header.is_fresh(NOW) && header.is_fresh(NOW + 3_599_999));
    assert!(!header.is_fresh(NOW + 3_600_000));
    assert!(!header.is_fresh(NOW - 1), "a list from the future is not trusted to be young");
    assert_eq!(header.age(NOW - 1), Duration::ZERO);
}

#[test]
fn every_flipped_bit_and_every_cut_is_noticed() {
    let home = home();
    write(&home, "s", &tools(&["alpha", "beta"]), NOW);
    let good = fs::read(home.file("s")).unwrap();
    let line = good.iter().position(|byte| *byte == b'\n').unwrap();
    let mut now = NOW;
    let mut damaged = |bytes: &[u8], what: &str| {
        now += 1;
        fs::write(home.file("s"), bytes).unwrap();
        let found = home.cache.read("s", now).unwrap();
        assert!(matches!(found, Lookup::Quarantined { .. }), "{what}: {found:?}");
        assert!(!home.file("s").exists());
    };
    for at in (0..good.len()).step_by(7) {
        let mut bytes = good.clone();
        bytes[at] ^= 1 << (at % 8);
        damaged(&bytes, &format!("bit at {at} of {line}+"));
    }
    for length in [0, 1, line, line + 1, line + 20, good.len() - 1] {
        damaged(&good[..length], &format!("cut at {length}"));
    }
    damaged(&[good.as_slice(), b" "].concat(), "longer");
    damaged(&vec![0; good.len()], "zeros");
    damaged(b"not a cache file", "something else");
    assert_eq!(home.entries("s").len(), 3, "three damaged files are kept");
    assert_eq!(write(&home, "s", &tools(&["alpha"]), NOW), Written::Replaced);
    assert!(home.cache.read("s", NOW).unwrap().found().is_some());
}

#[test]
fn a_damaged_header_is_noticed_without_the_body() {
    let home = home();
    write(&home, "s", &tools(&["a"]), NOW);
    let mut bytes = fs::read(home.file("s")).unwrap();
    let at = bytes.windows(8).position(|window| window == b"A server").unwrap();
    bytes[at] = b'B';
    fs::write(home.file("s"), &bytes).unwrap();
    let Lookup::Quarantined { to, reason } = home.cache.read_header("s", 7).unwrap() else {
        panic!("not noticed")
    };
    assert_eq!(reason, "the header does not match its checksum");
    assert_eq!(to, home.folder("s").join("schema.json.corrupt-0000000000007"));
}

#[test]
fn another_version_is_a_miss_and_stays() {
    let home = home();
    write(&home, "s", &tools(&["a"]), NOW);
    let good = fs::read_to_string(home.file("s")).unwrap();
    let later = format::resealed(&good.replacen("\"v\":2", "\"v\":3", 1));
    fs::write(home.file("s"), &later).unwrap();
    assert!(matches!(home.cache.read("s", NOW), Ok(Lookup::Missing)));
    assert_eq!(fs::read_to_string(home.file("s")).unwrap(), later);
    let other = format::resealed(&good.replacen("\"server\":\"s\"", "\"server\":\"t\"", 1));
    fs::write(home.file("s"), other).unwrap();
    assert!(
        matches!(home.cache.read("s", NOW), Ok(Lookup::Quarantined { .. })),
        "another server's file"
    );
}

#[test]
fn too_large_a_file_is_not_read() {
    let home = home();
    fs::create_dir_all(home.folder("s")).unwrap();
    fs::File::create(home.file("s")).unwrap().set_len(MAX_FILE_BYTES + 1).unwrap();
    assert!(matches!(home.cache.read("s", NOW), Ok(Lookup::Quarantined { .. })));
}

#[cfg(unix)]
#[test]
fn pipes_links_and_directories_in_place_of_the_file_neither_hang_nor_leak() {
    let list = tools(&["a"]);
    let elsewhere = tempfile::tempdir().unwrap();
    fs::write(elsewhere.path().join("schema.json"), "theirs").unwrap();

    // In place of the file: a pipe, a non-empty directory, a symlink.
    for trap in ["pipe", "directory", "link", "dangling"] {
        let home = home();
        fs::create_dir_all(home.folder("s")).unwrap();
        let file = home.file("s");
        match trap {
            "pipe" => nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).unwrap(),
            "directory" => fs::create_dir_all(file.join("inside")).unwrap(),
            "link" => symlink(elsewhere.path().join("schema.json"), &file).unwrap(),
            _ => symlink("/nowhere", &file).unwrap(),
        }
        assert!(
            matches!(home.cache.read_header("s", NOW), Ok(Lookup::Quarantined { .. })),
            "{trap}"
        );
        assert_eq!(write(&home, "s", &list, NOW), Written::Replaced, "{trap}");
        assert!(home.cache.read("s", NOW).unwrap().found().is_some(), "{trap}");
    }

    // In place of a folder: a file is moved aside, a symlink is refused.
    let home = home();
    fs::create_dir_all(home.folder("s").parent().unwrap()).unwrap();
    fs::write(home.folder("s"), "random").unwrap();
    assert!(matches!(home.cache.read("s", NOW), Ok(Lookup::Missing)));
    assert_eq!(write(&home, "s", &list, NOW), Written::Replaced);
    symlink(elsewhere.path(), home.folder("t")).unwrap();
    assert!(matches!(
        home.cache.read("t", NOW),
        Err(CacheError::File { source: FileError::Symlink { .. }, .. })
    ));
    assert!(home.cache.write_if_changed("t", &list, None, NOW).is_err());
    assert_eq!(fs::read_to_string(elsewhere.path().join("schema.json")).unwrap(), "theirs");

    // In place of the cache folder, and of the home.
    let random = tempfile::tempdir().unwrap();
    fs::create_dir(random.path().join("h")).unwrap();
    fs::write(random.path().join("h/cache"), [0xff; 100]).unwrap();
    let cache = SchemaCache::new(&random.path().join("h"));
    assert!(matches!(cache.read("s", NOW), Ok(Lookup::Missing)));
    assert_eq!(cache.write_if_changed("s", &list, None, NOW).unwrap(), Written::Replaced);
    fs::write(random.path().join("bytes"), [0xff; 100]).unwrap();
    let cache = SchemaCache::new(&random.path().join("bytes"));
    assert!(
        cache.read("s", NOW).is_err() && cache.write_if_changed("s", &list, None, NOW).is_err()
    );
    assert!(cache.sweep(&[], NOW).is_err());
}

#[cfg(unix)]
#[test]
fn a_read_only_directory_is_an_error_without_side_effects() {
    let home = home();
    write(&home, "s", &tools(&["a"]), NOW);
    if nix::unistd::Uid::effective().is_root() {
        // Permissions do not stop root.
        return;
    }
    fs::set_permissions(home.folder("s"), fs::Permissions::from_mode(0o500)).unwrap();
    assert!(home.cache.write_if_changed("s", &tools(&["b"]), None, NOW).is_err());
    assert!(home.cache.read("s", NOW).unwrap().found().is_some());
    fs::set_permissions(home.folder("s"), fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn names_cannot_escape_the_cache() {
    let home = home();
    for server in ["../../../esc", "/abs", "..", "a/b", "", "nul\0"] {
        assert_eq!(write(&home, server, &tools(&["a"]), NOW), Written::Replaced);
        assert!(home.cache.read(server, NOW).unwrap().found().is_some(), "{server:?}");
    }
    let outside: Vec<_> = fs::read_dir(home.directory.path()).unwrap().collect();
    assert_eq!(outside.len(), 1);
}

#[test]
fn safe_names_are_used_unchanged_and_no_two_names_share_a_folder() {
    for plain in ["files", "github", "a", "my-server_2", "server-memory", "7"] {
        assert_eq!(folder_name(plain), plain);
    }
    let odd = [
        "GitHub",
        "GITHUB",
        "con",
        "nul",
        "com1",
        "lpt9",
        ".",
        "..",
        "a.b",
        "eras.json",
        "-x",
        "_x",
        "",
        "a b",
        "é",
        "files-3d7db37d",
        "a/b",
        "a_b-0badcafe",
        &"x".repeat(65),
        "schema.json.corrupt-0000000000007",
    ];
    for odd in odd {
        assert_eq!(folder_name(odd), component(odd), "{odd:?}");
    }
    let mut folded: Vec<String> = odd
        .iter()
        .chain(&["github", "files", "a"])
        .map(|name| folder_name(name).to_lowercase())
        .collect();
    let count = folded.len();
    folded.sort();
    folded.dedup();
    assert_eq!(folded.len(), count, "two names share a folder where capitals are folded");
}

#[test]
fn the_cache_of_another_configuration_with_the_same_name_is_not_used() {
    let home = home();
    let (one, other) = (
        Server { name: "s", made_by: Some("npx a") },
        Server { name: "s", made_by: Some("npx b") },
    );
    let (list, others) = (tools(&["a"]), tools(&["b"]));
    home.cache.write_if_changed(one, &list, None, NOW).unwrap();
    assert!(matches!(home.cache.read(other, NOW), Ok(Lookup::Missing)));
    assert!(matches!(home.cache.read_header(other, NOW), Ok(Lookup::Missing)));
    assert!(home.cache.read(one, NOW).unwrap().found().is_some(), "reading changes nothing");
    // The other configuration replaces it, also with the same tools, and nothing counts as damaged.
    let same = home.cache.write_if_changed(other, &list, None, NOW + 1).unwrap();
    assert_eq!(same, Written::Replaced);
    home.cache.write_if_changed(other, &others, None, NOW + 2).unwrap();
    let found = home.cache.read(other, NOW).unwrap().found().unwrap();
    assert_eq!(found.tools.fingerprint, others.fingerprint);
    assert!(matches!(home.cache.read(one, NOW), Ok(Lookup::Missing)));
    assert_eq!(home.entries("s"), ["schema.json"]);
}

#[test]
fn folders_named_by_older_versions_are_removed_for_known_servers() {
    let home = home();
    write(&home, "files", &tools(&["a"]), NOW);
    let cache = home.folder("files").parent().unwrap().to_owned();
    let old = |server: &str| cache.join(component(server));
    for server in ["files", "elsewhere"] {
        fs::create_dir(old(server)).unwrap();
        fs::write(old(server).join("schema.json"), "of version 1").unwrap();
        fs::write(old(server).join("index.bin"), "part").unwrap();
    }
    let now = u64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap();
    assert_eq!(home.cache.sweep(&["files"], now).unwrap(), 1);
    assert!(!old("files").exists() && home.file("files").exists());
    assert!(old("elsewhere").exists(), "another gateway may still know it");
    let month = u64::try_from(KEEP_UNKNOWN.as_millis()).unwrap();
    assert_eq!(home.cache.sweep(&["files"], now + month + 10_000).unwrap(), 1);
    assert!(!old("elsewhere").exists());
}

#[test]
fn concurrent_writers_never_expose_a_partial_file() {
    let home = home();
    let lists = [tools(&["a"]), tools(&["a", "b", "c"]), tools(&["z"])];
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..8)
            .map(|n| {
                let (home, lists) = (&home, &lists);
                scope.spawn(move || {
                    for round in 0..60 {
                        write(home, ["s", "t"][n % 2], &lists[(n + round) % 3], NOW + round as u64);
                    }
                })
            })
            .collect();
        let reader = scope.spawn(|| {
            let mut seen = 0;
            while !done.load(Ordering::Relaxed) {
                for server in ["s", "t"] {
                    match home.cache.read(server, NOW).unwrap() {
                        Lookup::Found(cached) => {
                            seen += 1;
                            assert!(
                                lists
                                    .iter()
                                    .any(|list| list.fingerprint == cached.tools.fingerprint)
                            );
                        }
                        Lookup::Missing => {}
                        Lookup::Quarantined { reason, .. } => panic!("{reason}"),
                    }
                }
            }
            seen
        });
        for writer in writers {
            writer.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
        assert!(reader.join().unwrap() > 0);
    });
    assert_eq!(home.entries("s"), ["schema.json"], "nothing else is left");
}

#[test]
fn a_sweep_removes_only_old_caches_of_unknown_servers() {
    let home = home();
    for server in ["known", "young", "gone"] {
        write(&home, server, &tools(&["a"]), NOW);
    }
    home.cache.write_part("gone", &IndexCacheKey([7; 32]), b"part", NOW).unwrap();
    assert_eq!(
        home.cache.read_part("gone", &IndexCacheKey([7; 32])).as_deref(),
        Some(&b"part"[..])
    );
    assert_eq!(home.cache.read_part("gone", &IndexCacheKey([8; 32])), None);
    fs::write(home.folder("known").join(".index.bin.1.dead"), "half").unwrap();
    let cache = home.folder("known").parent().unwrap().to_owned();
    fs::create_dir(cache.join("not-ours")).unwrap();
    fs::write(cache.join("stray"), "x").unwrap();
    fs::create_dir_all(home.folder("shared")).unwrap();
    fs::write(home.folder("shared").join("notes.txt"), "somebody's").unwrap();
    fs::write(home.folder("known").join(".schema.json.1.dead"), "half").unwrap();
    let now = u64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap();
    assert_eq!(home.cache.sweep(&["known"], now).unwrap(), 0, "nothing is old");
    assert_eq!(home.entries("known").len(), 3);

    let month = u64::try_from(KEEP_UNKNOWN.as_millis()).unwrap();
    assert_eq!(home.cache.sweep(&["known", "young"], now + month + 10_000).unwrap(), 1);
    assert!(!home.folder("gone").exists());
    assert_eq!(home.entries("known"), ["schema.json"], "what a crash left is gone");
    for kept in [
        home.file("young"),
        cache.join("not-ours"),
        cache.join("stray"),
        home.folder("shared").join("notes.txt"),
    ] {
        assert!(kept.exists(), "{}", kept.display());
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_not_panic(bytes: Vec<u8>) {
        fuzz_cache(&bytes);
    }

    #[test]
    fn arbitrary_lists_do_not_panic(names in prop::collection::vec("[a-c]{0,3}", 0..5), body in "[\\[\\]{}\":,a-z0-9\\\\]{0,40}") {
        let list: Vec<_> = names.iter().map(|name| format!("{{\"name\":\"{name}\",\"x\":[{body}]}}")).collect();
        fuzz_cache(format!("{{\"tools\":[{}]}}", list.join(",")).as_bytes());
    }
}
