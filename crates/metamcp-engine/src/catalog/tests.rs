//! Published snapshots, and the cache read by several threads.

use std::path::Path;

use metamcp_search::search::Strategy;
use metamcp_tools::tool::Listing;

use super::*;

fn list(tools: &[&str]) -> Arc<ServerTools> {
    let tools: Vec<String> = tools
        .iter()
        .map(|name| format!(r#"{{"name":"{name}","description":"Does {name}."}}"#))
        .collect();
    let mut listing = Listing::new();
    listing.page(format!(r#"{{"tools":[{}]}}"#, tools.join(",")).as_bytes()).unwrap();
    Arc::new(listing.finish(None, None))
}

fn catalog(cache: Option<SchemaCache>, servers: u32) -> Arc<Catalog> {
    let catalog = Catalog::new(cache, Duration::from_mins(1));
    for number in 0..servers {
        let config = ServerConfig::stdio(format!("server{number:03}"), "none", &[]);
        catalog.add(DefinitionId(u64::from(number)), Arc::new(config));
    }
    Arc::new(catalog)
}

fn found(catalog: &Catalog, query: &str) -> Vec<String> {
    let hits = catalog.snapshot().index().search(query, Strategy::Hybrid, 9, None);
    hits.iter().map(metamcp_search::search::Hit::id).collect()
}

#[tokio::test]
async fn a_cache_is_read_completely_except_for_damaged_entries() {
    let home = tempfile::tempdir().unwrap();
    let cache = SchemaCache::new(&home.path().join("home"));
    let servers = 70;
    for number in 0..servers {
        let tools = list(&[&format!("tool_{number}"), &format!("other_{number}")]);
        let config = ServerConfig::stdio(format!("server{number:03}"), "none", &[]);
        let made_by = fingerprint(&config);
        cache.write_if_changed(cache_key(&config, &made_by), &tools, None, 1).unwrap();
    }
    let damaged = schema_cache::folder_name("server007");
    let file = home.path().join("home/cache").join(damaged).join("schema.json");
    std::fs::write(file, "{").unwrap();
    let catalog = catalog(Some(cache), servers);
    catalog.load();
    catalog.loaded().await;
    let snapshot = catalog.snapshot();
    for number in 0..servers {
        let known = snapshot
            .known(DefinitionId(u64::from(number)))
            .and_then(|known| known.tool(&format!("tool_{number}")));
        assert_eq!(known.is_some(), number != 7, "{number}");
    }
    assert_eq!(snapshot.index().tool_count(), 2 * (servers as usize - 1));
    assert_eq!(found(&catalog, "tool_42").first().map(String::as_str), Some("server042:tool_42"));
}

/// What a start finds in the cache: every hit of some queries, bit for bit.
async fn started(home: &Path, servers: u32) -> Vec<String> {
    let catalog = catalog(Some(SchemaCache::new(home)), servers);
    // Called directly, it returns only after everything is cached for the next start.
    catalog.load_now();
    catalog.loaded().await;
    let snapshot = catalog.snapshot();
    let index = snapshot.index();
    let hits = ["tool_3", "does other", "server005 tool"]
        .into_iter()
        .flat_map(|query| index.search(query, Strategy::Hybrid, 99, None));
    hits.map(|hit| format!("{} {:08x} {:?}", hit.id(), hit.score.to_bits(), hit.confidence))
        .collect()
}

#[tokio::test]
async fn index_parts_are_cached_and_rebuilt_when_damaged_or_outdated() {
    let place = tempfile::tempdir().unwrap();
    let home = place.path().join("home");
    let part = |number: u32| {
        let folder = schema_cache::folder_name(&format!("server{number:03}"));
        home.join("cache").join(folder).join("index.bin")
    };
    let listed = catalog(Some(SchemaCache::new(&home)), 6);
    for number in 0..6 {
        let tools = list(&[&format!("tool_{number}"), &format!("other_{number}")]);
        listed.listed(DefinitionId(number), Ok(tools), None, Moment::millis(1)).await;
    }
    listed.written().await;
    let kept: Vec<Vec<u8>> = (0..6).map(|n| std::fs::read(part(n)).unwrap()).collect();
    let expected = started(&home, 6).await;
    assert!(!expected.is_empty());

    // Deleted, emptied, truncated, changed in the middle, of another server, and a folder in its place.
    std::fs::remove_file(part(0)).unwrap();
    std::fs::write(part(1), b"").unwrap();
    std::fs::write(part(2), &kept[2][..kept[2].len() / 2]).unwrap();
    let mut changed = kept[3].clone();
    let middle = changed.len() / 2;
    changed[middle] ^= 1;
    std::fs::write(part(3), changed).unwrap();
    std::fs::write(part(4), &kept[5]).unwrap();
    assert_eq!(started(&home, 6).await, expected);
    for number in 0..6 {
        let name = format!("server{number:03}");
        let tools = list(&[&format!("tool_{number}"), &format!("other_{number}")]);
        let cache_key = IndexCacheKey::new(&name, About::default(), &tools, &Tuning::default());
        let again = SchemaCache::new(&home).read_part(&name, &cache_key);
        assert!(again.is_some(), "{number} was not made again");
    }
    assert_eq!(started(&home, 6).await, expected);
    std::fs::remove_file(part(5)).unwrap();
    std::fs::create_dir(part(5)).unwrap();
    assert_eq!(started(&home, 6).await, expected, "what cannot be cached is rebuilt each time");
}

#[tokio::test]
async fn an_older_list_does_not_replace_a_newer_one() {
    let catalog = catalog(None, 2);
    let at = |seconds: u64| Moment::millis(1000 * seconds);
    catalog.listed(DefinitionId(0), Ok(list(&["new"])), None, at(5)).await;
    catalog.listed(DefinitionId(0), Ok(list(&["old"])), None, at(4)).await;
    assert_eq!(found(&catalog, "new"), ["server000:new"]);
    let before = catalog.snapshot();
    catalog.listed(DefinitionId(1), Err("is away".to_owned().into()), None, at(6)).await;
    catalog.listed(DefinitionId(0), Ok(list(&["new"])), None, at(7)).await;
    let after = catalog.snapshot();
    assert_eq!(after.failure(DefinitionId(1)).map(ToString::to_string).as_deref(), Some("is away"));
    assert_eq!(after.generation, before.generation);
    assert!(Arc::ptr_eq(after.index(), before.index()), "nothing changed, so nothing was built");
    catalog.listed(DefinitionId(0), Ok(list(&["newest"])), None, at(8)).await;
    assert_eq!(found(&catalog, "newest"), ["server000:newest"]);
}

#[tokio::test]
async fn a_subset_is_rebuilt_from_the_difference_and_only_when_it_changes() {
    let catalog = catalog(None, 2);
    let at = |seconds: u64| Moment::millis(1000 * seconds);
    let config =
        |number: u32| Arc::new(ServerConfig::stdio(format!("server{number:03}"), "none", &[]));
    // Of the first server only the reading tools, nothing of the second.
    let inside = [(DefinitionId(0), config(0))];
    let part = |before: Option<&Narrowed>| {
        let keep = |_: &ServerConfig, tool: &str| tool.starts_with("read");
        Narrowed::of(&catalog.snapshot(), &inside, keep, before)
    };
    let names = |part: &Narrowed| -> Vec<String> {
        let hits = part.part.index().search("read write", Strategy::Bm25, 9, None);
        let mut names: Vec<String> = hits.iter().map(metamcp_search::search::Hit::id).collect();
        names.sort();
        names
    };
    catalog.listed(DefinitionId(0), Ok(list(&["read_a", "write_a"])), None, at(1)).await;
    catalog.listed(DefinitionId(1), Ok(list(&["read_b"])), None, at(1)).await;
    let first = part(None);
    assert_eq!(names(&first), ["server000:read_a"]);
    assert!(first.part.known(DefinitionId(1)).is_none());
    // A change outside of the subset does not change it.
    catalog.listed(DefinitionId(1), Ok(list(&["read_b", "read_c"])), None, at(2)).await;
    catalog.listed(DefinitionId(0), Ok(list(&["read_a", "write_b"])), None, at(2)).await;
    let second = part(Some(&first));
    assert!(second.is_of(&catalog.snapshot()) && !first.is_of(&catalog.snapshot()));
    assert_eq!(second.part.generation, first.part.generation);
    assert!(Arc::ptr_eq(second.part.index(), first.part.index()));
    assert_eq!(second.part.known(DefinitionId(0)).unwrap().listed_at, Some(at(2)));
    catalog.listed(DefinitionId(0), Ok(list(&["read_a", "read_d"])), None, at(3)).await;
    let third = part(Some(&second));
    assert!(third.part.generation > second.part.generation);
    assert_eq!(names(&third), ["server000:read_a", "server000:read_d"]);
}

/// A publisher holds that lock while it builds the whole index.
#[test]
fn calls_and_searches_do_not_wait_while_an_index_is_built() {
    let catalog = catalog(None, 1);
    let held = catalog.parts();
    let (told, heard) = std::sync::mpsc::channel();
    let asked = Arc::clone(&catalog);
    std::thread::spawn(move || {
        let is_blocked = asked.is_blocked(DefinitionId(0), "any");
        told.send((is_blocked, asked.configs().len(), asked.snapshot().generation))
    });
    assert_eq!(heard.recv_timeout(Duration::from_secs(10)), Ok((false, 1, 0)));
    drop(held);
}
