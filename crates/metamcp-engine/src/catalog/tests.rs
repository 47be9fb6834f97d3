//! What is published, and that a cache read by several threads is the cache.

use metamcp_core::search::Strategy;
use metamcp_core::tool::Listing;

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
    let catalog = Catalog::new(cache, Duration::from_secs(60));
    for number in 0..servers {
        let config = ServerConfig::stdio(format!("server{number:03}"), "none", &[]);
        catalog.add(ServerId(number), Arc::new(config));
    }
    Arc::new(catalog)
}

fn found(catalog: &Catalog, query: &str) -> Vec<String> {
    let hits = catalog.snapshot().index.search(query, Strategy::Hybrid, 9, None);
    hits.iter().map(metamcp_core::search::Hit::id).collect()
}

#[tokio::test]
async fn a_cache_is_read_whole_and_without_what_is_damaged() {
    let home = tempfile::tempdir().unwrap();
    let cache = SchemaCache::new(&home.path().join("home"));
    let servers = 70;
    for number in 0..servers {
        let tools = list(&[&format!("tool_{number}"), &format!("other_{number}")]);
        cache.write_if_changed(&format!("server{number:03}"), &tools, None, 1).unwrap();
    }
    let damaged = crate::files::component("server007");
    let file = home.path().join("home/cache").join(damaged).join("schema.json");
    std::fs::write(file, "{").unwrap();
    let catalog = catalog(Some(cache), servers);
    catalog.load();
    catalog.loaded().await;
    let snapshot = catalog.snapshot();
    for number in 0..servers {
        let known = snapshot
            .known(ServerId(number))
            .and_then(|known| known.tool(&format!("tool_{number}")));
        assert_eq!(known.is_some(), number != 7, "{number}");
    }
    assert_eq!(snapshot.index.tool_count(), 2 * (servers as usize - 1));
    assert_eq!(found(&catalog, "tool_42").first().map(String::as_str), Some("server042:tool_42"));
}

#[tokio::test]
async fn an_older_list_does_not_replace_a_newer_one() {
    let catalog = catalog(None, 2);
    let at = |seconds: u64| Moment::millis(1000 * seconds);
    catalog.listed(ServerId(0), Ok(list(&["new"])), None, at(5)).await;
    catalog.listed(ServerId(0), Ok(list(&["old"])), None, at(4)).await;
    assert_eq!(found(&catalog, "new"), ["server000:new"]);
    let before = catalog.snapshot();
    catalog.listed(ServerId(1), Err("is away".to_owned()), None, at(6)).await;
    catalog.listed(ServerId(0), Ok(list(&["new"])), None, at(7)).await;
    let after = catalog.snapshot();
    assert_eq!(after.failure(ServerId(1)).map(|why| &**why), Some("is away"));
    assert_eq!(after.generation, before.generation);
    assert!(Arc::ptr_eq(&after.index, &before.index), "nothing changed, so nothing was built");
    catalog.listed(ServerId(0), Ok(list(&["newest"])), None, at(8)).await;
    assert_eq!(found(&catalog, "newest"), ["server000:newest"]);
}
