//! Hosts that show pages of servers: which tools they are listed, whose page they read, whose tool a page calls.

use metamcp_testkit::client::{Answerer, Reply};
use metamcp_testkit::{EventKind, Server, Workspace, chaos_server};
use serde_json::{Value, json};

use crate::gateway::{Gateway, HUNG};

fn host() -> Value {
    json!({"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}})
}

fn with_pages(name: &str) -> Server {
    chaos_server(&[]).argument("--pages").argument(name)
}

/// A gateway whose servers are known, and a host that shows pages.
fn started(names: &[&str], arguments: &[&str]) -> Gateway {
    let mut workspace = Workspace::new().unwrap();
    for name in names {
        workspace.server(name, with_pages(name));
    }
    let answerer: Answerer = Box::new(|_, _| Reply::Result(json!({})));
    let gateway = Gateway::start_as_answering(workspace, arguments, &host(), answerer);
    for name in names {
        let found = gateway
            .call_tool("mcp_discover", &json!({"server": name}))
            .and_then(|id| gateway.wait(id, HUNG));
        assert!(found.unwrap().text().is_some());
    }
    gateway
}

fn listed(gateway: &Gateway) -> Vec<Value> {
    let list = gateway.ask("tools/list", &json!({}), HUNG).unwrap();
    list.value["result"]["tools"].as_array().unwrap().clone()
}

fn read(gateway: &Gateway, uri: &str) -> Value {
    gateway.ask("resources/read", &json!({"uri": uri}), HUNG).unwrap().value
}

#[test]
fn a_host_that_shows_pages_gets_the_tool_its_page_and_the_calls_of_that_page() {
    let gateway = started(&["shelf"], &[]);
    let tools = listed(&gateway);
    let named = |name: &str| tools.iter().find(|tool| tool["name"] == name).unwrap().clone();
    let (for_model, for_page) = (named("shelf__open_book"), named("turn"));
    assert_eq!(for_model["_meta"]["ui"]["visibility"], json!(["model"]), "{for_model}");
    assert_eq!(for_page["_meta"]["ui"]["visibility"], json!(["app"]), "{for_page}");
    assert_eq!(
        named("mcp_call")["_meta"]["ui"]["visibility"],
        json!(["model"]),
        "no page calls it"
    );
    let opened = gateway.call_tool("shelf__open_book", &json!({})).unwrap();
    let opened = gateway.wait(opened, HUNG).unwrap();
    assert_eq!(opened.text(), Some("the book of shelf is open"), "{}", opened.value);
    assert_eq!(opened.value["result"]["_meta"]["own"], true, "{}", opened.value);
    let uri = for_model["_meta"]["ui"]["resourceUri"].as_str().unwrap();
    let page = read(&gateway, uri)["result"]["contents"][0].clone();
    assert_eq!((&page["uri"], &page["text"]), (&json!(uri), &json!("<p>book of shelf</p>")));
    assert_eq!(page["_meta"]["ui"]["csp"], json!({"connectDomains": []}), "{page}");
    let turned = gateway.call_tool("turn", &json!({"to": 7})).unwrap();
    assert_eq!(gateway.wait(turned, HUNG).unwrap().text(), Some("shelf turned to 7"));
    let resources = gateway.ask("resources/list", &json!({}), HUNG).unwrap().value;
    assert_eq!(resources["result"]["resources"][0]["uri"], uri, "{resources}");
    gateway.end();
}

#[test]
fn the_call_of_a_page_reaches_its_own_server_and_no_other() {
    let gateway = started(&["one", "two"], &[]);
    let tools = listed(&gateway);
    let uri = |server: &str| {
        let name = format!("{server}__open_book");
        let tool = tools.iter().find(|tool| tool["name"] == name.as_str()).unwrap();
        tool["_meta"]["ui"]["resourceUri"].as_str().unwrap().to_owned()
    };
    assert_ne!(uri("one"), uri("two"));
    // Before any page was read, nobody knows whose page calls.
    let early = gateway.call_tool("turn", &json!({"to": 1})).unwrap();
    let early = gateway.wait(early, HUNG).unwrap().value;
    assert!(early["error"]["message"].as_str().unwrap().contains("several servers"), "{early}");
    let page = read(&gateway, &uri("two"))["result"]["contents"][0]["text"].clone();
    assert_eq!(page, "<p>book of two</p>");
    let turned = gateway.call_tool("turn", &json!({"to": 2})).unwrap();
    assert_eq!(gateway.wait(turned, HUNG).unwrap().text(), Some("two turned to 2"));
    assert!(gateway.workspace.journal("one").of(EventKind::Execute).unwrap().is_empty());
    gateway.end();
}

#[test]
fn what_is_no_page_is_not_read_and_other_clients_see_nothing_of_it() {
    let gateway = started(&["shelf"], &[]);
    for uri in ["file:///etc/passwd", "ui://other/book/page.html", "memo://1", "ui://"] {
        let refused = read(&gateway, uri);
        assert_eq!(refused["error"]["code"], -32602, "{uri}: {refused}");
    }
    let missing = read(&gateway, "ui://shelf/book/none.html");
    assert!(missing["error"]["message"].as_str().unwrap().contains("shelf has no"), "{missing}");
    gateway.end();
    let mut workspace = Workspace::new().unwrap();
    workspace.server("shelf", with_pages("shelf"));
    let gateway = Gateway::start(workspace);
    assert!(gateway.call("shelf", "open_book", &json!({})).text().is_some());
    assert!(listed(&gateway).iter().all(|tool| tool["name"].as_str().unwrap().starts_with("mcp_")));
    assert_eq!(read(&gateway, "ui://shelf/book/page.html")["error"]["code"], -32601);
    let refused = gateway.call_tool("turn", &json!({"to": 1})).unwrap();
    assert!(gateway.wait(refused, HUNG).unwrap().value["error"].is_object());
    gateway.end();
}

#[test]
fn in_direct_mode_a_page_calls_its_server_by_the_servers_own_names() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("one", with_pages("one"));
    workspace.server("plain", chaos_server(&[]));
    let answerer: Answerer = Box::new(|_, _| Reply::Result(json!({})));
    let surface = ["--surface", "direct"];
    let gateway = Gateway::start_as_answering(workspace, &surface, &host(), answerer);
    assert!(listed(&gateway).iter().any(|tool| tool["name"] == "one__open_book"));
    let page = read(&gateway, "ui://book/page.html")["result"]["contents"][0]["text"].clone();
    assert_eq!(page, "<p>book of one</p>");
    let turned = gateway.call_tool("turn", &json!({"to": 3})).unwrap();
    assert_eq!(gateway.wait(turned, HUNG).unwrap().text(), Some("one turned to 3"));
    gateway.end();
}
