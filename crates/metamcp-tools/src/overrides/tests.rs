use metamcp_types::pattern::Pattern;
use serde_json::json;

use super::*;
use crate::tool::Listing;

fn listed(tools: &Value) -> Arc<ServerTools> {
    let mut listing = Listing::new();
    listing.page(json!({ "tools": tools }).to_string().as_bytes()).unwrap();
    Arc::new(listing.finish(Some("Issues"), Some("1")))
}

fn issues() -> Arc<ServerTools> {
    listed(&json!([
        {
            "name": "x1",
            "description": "does it",
            "annotations": { "readOnlyHint": true, "title": "X1" },
            "inputSchema": {
                "type": "object",
                "properties": {
                    "repo": { "type": "string" },
                    "state": { "type": "string", "enum": ["open", "closed", "all"] },
                    "labels": { "type": "array", "items": { "type": "string" } },
                    "token": { "type": "string" },
                    "limit": { "type": "integer" },
                },
                "required": ["repo", "token", "limit"],
                "additionalProperties": false,
            },
        },
        { "name": "x2", "description": "does that", "inputSchema": { "type": "object" } },
    ]))
}

fn overrides(all: Vec<(&str, ToolOverride)>) -> ToolOverrides {
    ToolOverrides {
        by_tool: all.into_iter().map(|(tool, one)| (Pattern::new(tool), one)).collect(),
    }
}

fn mended() -> ToolOverride {
    ToolOverride {
        name: Some("list_issues".into()),
        title: Some("List issues".into()),
        description: Some("Lists the issues of a repository.".into()),
        annotations: json!({ "destructiveHint": false }).as_object().unwrap().clone(),
        tags: vec!["bugs".into(), "tickets".into()],
        defaults: vec![("limit".into(), json!(30))],
        hidden: vec![
            ("token".into(), Hidden::Text(Secret::reference("token", "file:/run/token"))),
            ("dry".into(), Hidden::Plain(json!(false))),
        ],
        enums: vec![
            ("state".into(), vec![json!("open"), json!("closed"), json!("odd")]),
            ("labels".into(), vec![json!("bug"), json!("docs")]),
        ],
        pin: metamcp_types::tool_override::Pin::No,
    }
}

#[test]
fn a_tool_is_shown_as_the_override_says() {
    let listed = issues();
    let (shown, misfits) = applied(&listed, &overrides(vec![("x1", mended())]));
    let tool = shown.tool("list_issues").unwrap();
    assert!(shown.tool("x1").is_none() && shown.tool("x2").is_some());
    assert_eq!(tool.title.as_deref(), Some("List issues"));
    assert_eq!(&*tool.description, "Lists the issues of a repository.\n\nTags: bugs, tickets.");
    assert_eq!((tool.hints.read_only, tool.hints.destructive), (Some(true), Some(false)));
    let signature = tool.signature();
    assert!(signature.starts_with("list_issues(repo: string"), "{signature}");
    assert!(!signature.contains("token") && !signature.contains("all"), "{signature}");
    let check = |arguments: Value| tool.checker().check(&arguments).is_ok();
    assert!(check(json!({ "repo": "r", "state": "open", "labels": ["bug"] })));
    assert!(!check(json!({ "repo": "r", "state": "all" })));
    assert!(!check(json!({ "repo": "r", "labels": ["other"] })));
    assert!(!check(json!({ "repo": "r", "token": "t" })));
    assert!(!check(json!({})));
    let told: Vec<String> = misfits.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "the override of \"x1\": the tool lists no argument \"dry\"",
            "the override of \"x1\": \"odd\" is none of the server's own values",
        ]
    );
    // What the server said is kept beside it, and titles of the list too.
    assert_eq!(shown.as_listed().fingerprint, listed.fingerprint);
    assert_ne!(shown.fingerprint, listed.fingerprint);
    assert_eq!(shown.server_title.as_deref(), Some("Issues"));
    // Without overrides it is the same list.
    assert!(Arc::ptr_eq(&applied(&listed, &ToolOverrides::default()).0, &listed));
}

#[test]
fn what_vanished_and_names_taken_twice_are_told() {
    let listed = issues();
    let renamed = |name: &str| ToolOverride { name: Some(name.into()), ..Default::default() };
    let (shown, misfits) =
        applied(&listed, &overrides(vec![("x1", renamed("x2")), ("gone", renamed("here"))]));
    let names: Vec<&str> = shown.all().map(|tool| &*tool.name).collect();
    assert_eq!(names, ["x2"]);
    assert_eq!(&*shown.tool("x2").unwrap().description, "does it");
    assert_eq!(misfits.len(), 2);
    assert!(misfits[0].what.contains("no such tool") && misfits[1].what.contains("not shown"));
    // Two that change their names are both there.
    let (shown, misfits) =
        applied(&listed, &overrides(vec![("x1", renamed("x2")), ("x2", renamed("x1"))]));
    assert_eq!(shown.all().count(), 2);
    assert_eq!(&*shown.tool("x1").unwrap().description, "does that");
    assert!(misfits.is_empty());
}

#[test]
fn arguments_go_to_the_server_as_it_expects_them() {
    let one = mended();
    let out = sent(&one, br#"{"repo":"r","n": 1.50}"#).unwrap();
    let expect = r#"{"repo":"r","n": 1.50,"limit":30,"token":"[secret token]","dry":false}"#;
    assert_eq!(String::from_utf8(out.clone()).unwrap(), expect);
    let mut known = one.clone();
    known.hidden[0].1 = Hidden::Text(Secret::new("token", "t\"0p"));
    let out = String::from_utf8(filled(&known, &out)).unwrap();
    assert_eq!(out, expect.replace("[secret token]", "t\\\"0p"));
    assert_eq!(
        sent(&one, br#"{"limit":1}"#).map(|out| out.starts_with(br#"{"limit":1,"#)),
        Ok(true)
    );
    for (wrong, expect) in [
        (r#"{"token":"mine"}"#, "`token` is filled in"),
        (r#"{"dry":true}"#, "`dry` is filled in"),
        (r#"{"state":"all"}"#, "`state` has to be one of \"open\", \"closed\""),
        (r#"{"labels":["bug","x"]}"#, "`labels` has to be one of"),
        (r#"{"labels":7}"#, "`labels` has to be one of"),
    ] {
        let told = sent(&one, wrong.as_bytes()).unwrap_err().to_string();
        assert!(told.contains(expect), "{told}");
    }
    assert!(sent(&one, br#"{"labels":["bug","docs"],"state":"closed"}"#).is_ok());
    assert_eq!(sent(&ToolOverride::default(), b"{ }").unwrap(), b"{ }");
}
