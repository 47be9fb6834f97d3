use super::*;

fn rules() -> Rules {
    Rules { local: true, ..Rules::default() }
}

fn post() -> Head<'static> {
    Head {
        method: "POST",
        path: MCP,
        host: Some("127.0.0.1:8080"),
        content_type: Some("application/json"),
        accept: Some("application/json, text/event-stream"),
        ..Head::default()
    }
}

fn status(rules: &Rules, head: &Head<'_>) -> u16 {
    rules.admit(head).map_or_else(|refusal| refusal.status(), |_| 200)
}

#[test]
fn names_that_are_not_ours_are_refused() {
    let open = Rules { local: false, hosts: vec!["mcp.example.org".into()], ..Rules::default() };
    // The name, whether a local gateway takes it, whether an open one does.
    for (host, local, elsewhere) in [
        ("localhost", true, true),
        ("localhost:8080", true, true),
        ("LOCALHOST:1", true, true),
        ("127.0.0.1:65535", true, true),
        ("127.8.8.8", true, true),
        ("[::1]:8080", true, true),
        ("[::1]", true, true),
        ("192.168.1.7:8080", false, true),
        ("0.0.0.0:8080", false, true),
        ("[fe80::1]:8080", false, true),
        ("mcp.example.org", false, true),
        ("MCP.example.org:443", false, true),
        ("evil.example.org", false, false),
        ("localhost.evil.org:8080", false, false),
        ("127.0.0.1.evil.org", false, false),
        ("evil.org:8080@localhost", false, false),
        ("localhost:evil", false, false),
        ("localhost:", false, false),
        ("localhost:80:80", false, false),
        ("[::1", false, false),
        ("[::1]x", false, false),
        ("localhost.", false, false),
        ("localhost ", false, false),
        ("", false, false),
        (":8080", false, false),
    ] {
        let head = Head { host: Some(host), ..post() };
        assert_eq!(status(&rules(), &head) == 200, local, "{host:?} at a local gateway");
        assert_eq!(status(&open, &head) == 200, elsewhere, "{host:?} at an open gateway");
        let named = Head { authority: Some(host), ..post() };
        assert_eq!(status(&rules(), &named) == 200, local, "{host:?} in the request line");
    }
    assert_eq!(status(&rules(), &Head { host: None, ..post() }), 400);
}

#[test]
fn pages_that_are_not_ours_are_refused() {
    let listed =
        Rules { local: true, origins: vec!["https://app.example.org".into()], ..Rules::default() };
    for (origin, expect) in [
        ("http://localhost:3000", 200),
        ("https://127.0.0.1", 200),
        ("http://[::1]:1", 200),
        ("https://app.example.org", 200),
        ("https://app.example.org:8443", 403),
        ("http://app.example.org", 403),
        ("https://evil.org", 403),
        ("http://localhost.evil.org", 403),
        ("http://localhost@evil.org", 403),
        ("http://localhost:80/path", 403),
        ("file://", 403),
        ("null", 403),
        ("", 403),
        ("chrome-extension://abc", 403),
    ] {
        assert_eq!(status(&listed, &Head { origin: Some(origin), ..post() }), expect, "{origin:?}");
    }
    let open = Rules { local: false, ..listed };
    let local_page = Head { origin: Some("http://localhost:3000"), ..post() };
    assert_eq!(status(&open, &local_page), 403, "which machine that is, nobody knows");
}

#[test]
fn only_listed_origins_are_shown_answers() {
    let listed =
        Rules { local: true, origins: vec!["https://app.example.org".into()], ..Rules::default() };
    let shown = |origin| listed.admit(&Head { origin, ..post() }).unwrap().shown_to;
    assert_eq!(shown(Some("https://app.example.org")), Some("https://app.example.org"));
    assert_eq!(shown(Some("http://localhost:3000")), None);
    assert_eq!(shown(None), None);
    let preflight = |origin| Head { method: "OPTIONS", origin, ..post() };
    let asked = listed.admit(&preflight(Some("https://app.example.org"))).unwrap();
    assert_eq!(asked.route, Route::Preflight);
    assert_eq!(status(&listed, &preflight(Some("http://localhost:3000"))), 405);
    assert_eq!(status(&listed, &preflight(None)), 405);
}

#[test]
fn endpoints_are_told_apart_by_their_paths() {
    let at = |path| rules().admit(&Head { path, ..post() }).map(|admitted| admitted.endpoint);
    assert_eq!(at("/mcp"), Ok(Endpoint::Main));
    assert_eq!(at("/mcp/direct"), Ok(Endpoint::Direct));
    assert_eq!(at("/mcp/full"), Ok(Endpoint::Full));
    for path in ["/mcp/", "/mcp/direct/", "/mcp/Direct", "/mcp/direct/x", "/mcp//direct", "/direct"]
    {
        assert_eq!(at(path), Err(Refusal::Path), "{path}");
    }
    let metadata = |path| {
        let head = Head { method: "GET", path, content_type: None, ..post() };
        rules().admit(&head).map(|admitted| (admitted.route, admitted.endpoint))
    };
    let direct = "/.well-known/oauth-protected-resource/mcp/direct";
    assert_eq!(metadata(direct), Ok((Route::Metadata, Endpoint::Direct)));
    let main = "/.well-known/oauth-protected-resource";
    assert_eq!(metadata(main), Ok((Route::Metadata, Endpoint::Main)));
}

#[test]
fn paths_and_methods() {
    let legacy = Rules { legacy: true, ..rules() };
    let stateless = Rules { stateless: true, ..rules() };
    for (method, path, plain, old, alone) in [
        ("POST", MCP, 200, 200, 200),
        ("GET", MCP, 200, 200, 405),
        ("DELETE", MCP, 200, 200, 405),
        ("PUT", MCP, 405, 405, 405),
        ("TRACE", MCP, 405, 405, 405),
        ("post", MCP, 405, 405, 405),
        ("POST", "/mcp/", 404, 404, 404),
        ("POST", "/MCP", 404, 404, 404),
        ("POST", "/", 404, 404, 404),
        ("GET", SSE, 404, 200, 404),
        ("POST", SSE, 404, 405, 404),
        ("POST", MESSAGES, 404, 200, 404),
        ("GET", MESSAGES, 404, 405, 404),
        ("GET", METADATA, 200, 200, 200),
        ("GET", "/.well-known/oauth-protected-resource/mcp", 200, 200, 200),
        ("GET", "/.well-known/oauth-protected-resource/x", 404, 404, 404),
        ("GET", "/healthz", 200, 200, 200),
        ("GET", "/readyz", 200, 200, 200),
        ("POST", "/healthz", 404, 404, 404),
    ] {
        let head = Head { method, path, ..post() };
        for (rules, expect) in [(rules(), plain), (legacy.clone(), old), (stateless.clone(), alone)]
        {
            assert_eq!(status(&rules, &head), expect, "{method} {path} with {rules:?}");
        }
    }
}

#[test]
fn types_of_content_and_of_answers() {
    for (given, expect) in [
        (Some("application/json"), 200),
        (Some("Application/JSON; charset=utf-8"), 200),
        (Some("text/plain"), 415),
        (Some("application/x-www-form-urlencoded"), 415),
        (Some("multipart/form-data; boundary=application/json"), 415),
        (Some("application/json-patch+json"), 415),
        (Some(""), 415),
        (None, 415),
    ] {
        assert_eq!(status(&rules(), &Head { content_type: given, ..post() }), expect, "{given:?}");
    }
    let json = Rules { json: true, ..rules() };
    for (given, streaming, documents, listening) in [
        (Some("application/json, text/event-stream"), 200, 200, 200),
        (Some("text/event-stream;q=0.5 , application/json"), 200, 200, 200),
        (Some("*/*"), 200, 200, 200),
        (None, 200, 200, 200),
        (Some("application/*"), 406, 200, 406),
        (Some("application/json"), 406, 200, 406),
        (Some("text/event-stream"), 406, 406, 200),
        (Some("application/json, text/event-stream;q=0"), 406, 200, 406),
        (Some("text/html"), 406, 406, 406),
        (Some(""), 406, 406, 406),
    ] {
        let head = Head { accept: given, ..post() };
        assert_eq!(status(&rules(), &head), streaming, "{given:?}");
        assert_eq!(status(&json, &head), documents, "{given:?} for documents");
        let listen = Head { method: "GET", content_type: None, ..head };
        assert_eq!(status(&rules(), &listen), listening, "{given:?} for listening");
    }
}

#[test]
fn doubtful_headers_are_refused_first() {
    let head = Head { doubtful: Some("host"), host: None, ..post() };
    assert_eq!(rules().admit(&head), Err(Refusal::Doubtful { name: "host".into() }));
}

#[test]
fn what_names_a_type_more_closely_counts() {
    for (accept, document) in [
        ("*/*", true),
        ("application/*", true),
        ("application/json;q=0", false),
        ("application/json;Q=0", false),
        ("application/json; q=0.0", false),
        ("application/json;q=0.1", true),
        ("application/json;q=0, */*", false),
        ("*/*, application/json;q=0", false),
        ("application/json, */*;q=0", true),
        ("application/*;q=0, application/json", true),
        ("text/*", false),
        ("nonsense", false),
    ] {
        assert_eq!(accepts(accept, "application", "json"), document, "{accept}");
    }
}

#[test]
fn what_cannot_be_taken_is_said_in_the_right_words() {
    let health = |method| Head { method, path: "/healthz", ..Head::default() };
    assert_eq!(["GET", "HEAD", "POST"].map(|m| status(&rules(), &health(m))), [200, 200, 400]);
    assert_eq!(status(&rules(), &Head { is_encoded: true, ..post() }), 415);
    let null = rules().admit(&Head { origin: Some("null"), ..post() }).unwrap_err();
    assert_eq!(null.status(), 403);
    assert!(!null.to_string().contains("--allowed-origins"), "{null}");
}
