//! What the user's own npm finds beside the registries.

use std::sync::atomic::Ordering;

use serde_json::json;

use crate::fake_sources::{Sources, Trick};
use crate::provision::{HUNG, Place, able, provision, yes};

/// What no server registry has, and the user's own npm finds: marked as unvetted, under the same rules, cached.
#[test]
fn what_only_npm_finds_is_offered_as_unvetted() {
    let (place, sources) = Place::with(Sources::start);
    sources.offer("@acme/okapi-mcp", "Counts the okapis in the zoo", Trick::None);
    sources.offer("@acme/young-okapi", "Feeds young okapis with carrots", Trick::Young);
    sources.unlist();
    let found = |name: &str, about: &str, keywords: &[&str]| {
        json!({"name": name, "version": "1.0.0", "description": about, "keywords": keywords,
            "date": "2026-01-01T00:00:00.000Z", "links": {}, "publisher": {"username": "a"}, "maintainers": []})
    };
    sources.found_by_npm(&[
        found("@acme/okapi-mcp", "Counts the okapis in the zoo", &["mcp-server"]),
        found("@acme/young-okapi", "Feeds young okapis with carrots", &["mcp"]),
        found("okapi-wallpaper", "Counts the okapis in the zoo on a wallpaper", &["desktop"]),
        found("server-filesystem", "Polishes the okapi statue", &["mcp"]),
    ]);
    let (answerer, asked) = yes();
    let client = place.client(answerer, &able());
    let ask = |need: &str| {
        let params = json!({ "name": "mcp_provision", "arguments": { "intent": need } });
        let answer = client.ask("tools/call", &params, HUNG).unwrap();
        answer.text().unwrap().to_owned()
    };
    let said = ask("count the okapis in the zoo");
    assert!(said.contains("@acme/okapi-mcp 1.0.0 (unvetted, by npm search)"), "{said}");
    assert!(said.contains("needs approval") && !said.contains("wallpaper"), "{said}");
    let young = ask("feed young okapis with carrots");
    assert!(young.contains("less than the minimum"), "{young}");
    let alike = ask("polish the okapi statue");
    assert!(alike.contains("its name resembles"), "{alike}");
    assert_eq!(asked.load(Ordering::Relaxed), 0);
    // The same intent is not searched twice, not even by the next gateway.
    let searches = || sources.asked().iter().filter(|path| path.contains("/-/v1/search")).count();
    let before = searches();
    assert_eq!(before, 3);
    assert!(
        sources.asked().iter().any(|path| path.contains("keywords%3Amcp")),
        "{:?}",
        sources.asked()
    );
    ask("count the okapis in the zoo");
    drop(client);
    let installed = provision(&place.client(yes().0, &able()), "count the okapis in the zoo");
    assert_eq!(installed["_meta"]["metamcp/provision"]["status"], "installed", "{installed:#}");
    assert_eq!(searches(), before);
    let shown = place.run(&["provisioned", "list", "--json"]);
    assert!(shown.contains("@acme/okapi-mcp"), "{shown}");
    // Added by name from a shell, its unvetted status is shown before the confirmation.
    let planned = place.run(&["add", "young-okapi", "--dry-run"]);
    assert!(planned.contains("UNVETTED") && planned.contains("less than the minimum"), "{planned}");
}

/// Malicious or broken npm responses cause a note, and never lose the rest of the result.
#[test]
fn an_npm_that_lies_or_fails_is_a_note() {
    let (place, sources) = Place::with(Sources::start);
    sources.offer("@acme/okapi-mcp", "Counts the okapis in the zoo", Trick::None);
    sources.found_by_npm(&[
        json!({"name": "--global", "version": "1.0.0", "description": "Counts the okapis", "keywords": ["mcp"]}),
        json!({"name": "../../okapi", "version": "1.0.0", "description": "Counts the okapis", "keywords": ["mcp"]}),
        json!({"name": "okapi", "version": "^1", "description": "\u{1b}[2JCounts the okapis", "keywords": ["mcp"]}),
    ]);
    let client = place.client(yes().0, &able());
    let params = json!({ "name": "mcp_provision", "arguments": { "intent": "count the okapis in the zoo" } });
    let answer = client.ask("tools/call", &params, HUNG).unwrap();
    let said = answer.text().unwrap();
    assert!(said.contains("@acme/okapi-mcp") && !said.contains("unvetted"), "{said}");
    for bad in ["--global", "../../okapi", "^1", "\u{1b}"] {
        assert!(!said.contains(bad), "{bad}: {said}");
    }
}
