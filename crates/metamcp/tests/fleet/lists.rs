//! Lists of tools that a fleet has in common, with a real nats-server.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use metamcp_config::config::ServerConfig;
use metamcp_engine::catalog::schema_cache::SchemaCache;
use metamcp_engine::catalog::{Catalog, DefinitionId, Received};
use metamcp_engine::shared::share_lists;
use metamcp_testkit::client::Reply;
use metamcp_testkit::nats::Nats;
use metamcp_testkit::{Client, EventKind};
use metamcp_tools::tool::{Listing, ServerTools};
use metamcp_types::moment::Moment;

use crate::PATIENCE;
use crate::messages::{bus, run};

const SERVER: DefinitionId = DefinitionId(7);

fn catalog(home: &Path, servers: &[&str]) -> Arc<Catalog> {
    let catalog = Arc::new(Catalog::new(Some(SchemaCache::new(home)), Duration::from_mins(5)));
    for (number, name) in (7..).zip(servers) {
        catalog.add(DefinitionId(number), Arc::new(ServerConfig::stdio(*name, "program", &["-x"])));
    }
    catalog.load();
    catalog
}

fn tools(names: &[&str]) -> Arc<ServerTools> {
    let tools: Vec<_> = names
        .iter()
        .map(|name| serde_json::json!({"name": name, "description": "d", "inputSchema": {"type": "object"}}))
        .collect();
    let mut listing = Listing::new();
    listing.page(serde_json::json!({ "tools": tools }).to_string().as_bytes()).unwrap();
    Arc::new(listing.finish(Some("T"), Some("1")))
}

fn has(catalog: &Catalog, tool: &str) -> bool {
    catalog.snapshot().known(SERVER).is_some_and(|known| known.tool(tool).is_some())
}

async fn eventually(what: impl Fn() -> bool) {
    let reached = async {
        while !what() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, reached).await.expect("it comes");
}

fn at(seconds: u64) -> Moment {
    Moment::after_start(Duration::from_secs(seconds))
}

#[test]
fn a_gateway_that_never_started_a_server_knows_its_tools() {
    let nats = Nats::alone().unwrap();
    let homes: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    run(async {
        let one = catalog(homes[0].path(), &["files"]);
        share_lists(&bus(&nats, "one").await, &one);
        let two = catalog(homes[1].path(), &["files"]);
        share_lists(&bus(&nats, "two").await, &two);
        one.listed(SERVER, Ok(tools(&["read"])), None, at(1)).await;
        eventually(|| has(&two, "read")).await;
        assert!(two.snapshot().known(SERVER).unwrap().listed_at.is_none(), "it did not start it");
        assert_eq!(two.snapshot().index().tool_count(), 1, "it searches it");
        // A changed list too.
        one.listed(SERVER, Ok(tools(&["read", "write"])), None, at(2)).await;
        eventually(|| has(&two, "write")).await;
        // What a gateway has heard itself stays, whatever the others say.
        two.listed(SERVER, Ok(tools(&["mine"])), None, at(1)).await;
        one.listed(SERVER, Ok(tools(&["theirs"])), None, at(3)).await;
        let late = catalog(homes[2].path(), &["files", "other"]);
        share_lists(&bus(&nats, "late").await, &late);
        eventually(|| has(&late, "theirs") || has(&late, "mine")).await;
        assert!(has(&two, "mine") && !has(&two, "theirs"));
        one.written().await;
        two.written().await;
    });
}

#[test]
fn what_is_no_list_of_this_server_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    run(async {
        let theirs = catalog(elsewhere.path(), &["files"]);
        theirs.loaded().await;
        theirs.listed(SERVER, Ok(tools(&["read"])), None, at(1)).await;
        theirs.written().await;
        let (key, packed) = theirs.packed(SERVER).await.unwrap();
        let ours = catalog(home.path(), &["files"]);
        ours.loaded().await;
        assert_eq!(ours.unpack("0000", &packed).await, Received::Stranger);
        for at in [0, packed.len() / 2, packed.len() - 1] {
            let mut changed = packed.clone();
            changed[at] ^= 0x55;
            assert_eq!(ours.unpack(&key, &changed).await, Received::Unusable, "{at}");
        }
        assert_eq!(ours.unpack(&key, b"").await, Received::Unusable);
        assert!(!has(&ours, "read"));
        assert_eq!(ours.unpack(&key, &packed).await, Received::Taken);
        assert!(has(&ours, "read"));
        assert_eq!(ours.unpack(&key, &packed).await, Received::Known);
        // Another server of the same name is another server.
        let config = ServerConfig::stdio("files", "another-program", &[]);
        let other =
            Arc::new(Catalog::new(Some(SchemaCache::new(home.path())), Duration::from_mins(5)));
        other.add(SERVER, Arc::new(config));
        assert_eq!(other.unpack(&key, &packed).await, Received::Stranger);
    });
}

#[test]
fn a_real_gateway_finds_tools_that_another_one_listed() {
    let fleet = crate::nodes::Fleet::sharing("machine");
    let node = |name: &str| {
        // A client that sees servers as they are would start them with its handshake.
        let (direct, program) = (fleet.command(name, 0), env!("CARGO_BIN_EXE_metamcp"));
        let mut command = fleet.workspace.command(Path::new(program)).unwrap();
        command.env("HOME", fleet.workspace.file(&format!("home-{name}")));
        command.args(direct.get_args().filter(|word| *word != "--surface" && *word != "direct"));
        let silent = Box::new(|_: &str, _: &serde_json::Value| Reply::Silence);
        let client = Client::start_answering(command, silent).unwrap();
        client.initialize(&serde_json::json!({}), PATIENCE).unwrap();
        client
    };
    let finds = |client: &Client| {
        let id = client.call_tool("mcp_discover", &serde_json::json!({"server": "a"})).unwrap();
        let answer = client.wait(id, PATIENCE).unwrap();
        answer.value.to_string().contains("progress")
    };
    let starts = || fleet.journal().count(EventKind::Start).unwrap();
    let (one, two) = (node("one"), node("two"));
    assert!(metamcp_testkit::eventually(PATIENCE, || finds(&one)), "{}", one.stderr());
    assert_eq!(starts(), 1);
    let cached = fleet.workspace.file("home-two").join(".metamcp/cache/a/schema.json");
    assert!(metamcp_testkit::eventually(PATIENCE, || cached.exists()), "{}", two.stderr());
    assert!(metamcp_testkit::eventually(PATIENCE, || finds(&two)), "{}", two.stderr());
    assert_eq!(starts(), 1, "only the first one has started the server");
}
