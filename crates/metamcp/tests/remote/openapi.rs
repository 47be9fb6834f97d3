//! An API without an MCP server: its description makes the tools, on every surface. The API is a site of this machine, whose
//! received requests are the ground truth.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use metamcp_testkit::site::{Exchange, ReceivedRequest, Site};
use metamcp_testkit::{CallOutcome, Workspace};
use serde_json::{Value, json};

use crate::world::{Gateway, HUNG};

const DESCRIPTION: &str = r##"
openapi: 3.0.3
info: { title: Notes, version: "2.1", description: Keeps notes. }
paths:
  /notes:
    get:
      operationId: listNotes
      summary: List notes
      tags: [notes]
      parameters:
        - { name: page, in: query, schema: { type: integer, minimum: 1 } }
        - { name: tags, in: query, style: pipeDelimited, explode: false, schema: { type: array, items: { type: string } } }
    post:
      operationId: createNote
      requestBody:
        required: true
        content: { application/json: { schema: { $ref: "#/components/schemas/Note" } } }
  /notes/{id}:
    parameters: [{ name: id, in: path, required: true, schema: { type: string } }]
    get: { operationId: getNote }
    delete: { operationId: deleteNote }
  /picture: { get: { operationId: picture } }
  /away: { get: { operationId: away } }
  /closed: { get: { operationId: closed, security: [{ login: [] }] } }
  /limited: { get: { operationId: limited } }
  /flaky: { get: { operationId: flaky }, post: { operationId: flakyPost } }
  /files:
    post:
      operationId: upload
      requestBody:
        content:
          multipart/form-data:
            schema: { type: object, properties: { file: { type: string, format: binary } } }
components:
  schemas:
    Note:
      type: object
      required: [text]
      properties:
        text: { type: string }
        parent: { $ref: "#/components/schemas/Note", nullable: true }
  securitySchemes:
    key: { type: apiKey, in: header, name: X-Api-Key }
    token: { type: apiKey, in: query, name: token }
    login: { type: oauth2, flows: { clientCredentials: { tokenUrl: "TOKEN_URL", scopes: {} } } }
security: [{ key: [], token: [] }]
"##;

/// Answers as the description says. `elsewhere` is where `/away` leads.
fn answer(
    elsewhere: &str,
    flaky: &AtomicUsize,
    request: &ReceivedRequest,
    exchange: &mut Exchange<'_>,
) -> std::io::Result<()> {
    match (request.method.as_str(), request.path()) {
        ("GET", "/openapi.json" | "/v1/openapi.json") => {
            exchange.respond(200, &[], DESCRIPTION.as_bytes())
        }
        ("GET", "/v1/notes") if request.target.contains("page=2") => {
            exchange.json(200, &[], &json!([{ "id": 3 }]))
        }
        ("GET", "/v1/notes") => {
            let next = "<http://127.0.0.1/v1/notes?page=2&token=x>; rel=\"next\"";
            exchange.json(200, &[("link", next)], &json!([{ "id": 1 }, { "id": 2 }]))
        }
        ("POST", "/v1/notes") => exchange.json(
            201,
            &[("location", "/v1/notes/9")],
            &json!({ "id": 9, "got": request.json() }),
        ),
        ("GET", "/v1/notes/a%2Fb") => exchange.json(200, &[], &json!({ "id": "a/b" })),
        ("DELETE", _) => exchange.respond(204, &[], b""),
        ("GET", "/v1/picture") => {
            exchange.respond(200, &[("content-type", "image/png")], b"\x89PNG")
        }
        ("GET", "/v1/away") => exchange.respond(302, &[("location", elsewhere)], b""),
        ("GET", "/v1/limited") => {
            exchange.json(429, &[("retry-after", "7")], &json!({ "message": "slow down" }))
        }
        ("GET", "/v1/flaky") if flaky.fetch_add(1, Ordering::SeqCst) == 0 => {
            exchange.reset();
            Ok(())
        }
        ("POST", "/v1/flaky") => {
            flaky.fetch_add(1, Ordering::SeqCst);
            exchange.reset();
            Ok(())
        }
        ("GET", "/v1/flaky") => exchange.json(200, &[], &json!({ "ok": true })),
        ("POST", "/v1/files") => {
            exchange.respond(200, &[("content-type", "text/plain")], &request.body)
        }
        ("GET", "/v1/closed") if request.header("authorization") == Some("Bearer tok-canary") => {
            exchange.json(200, &[], &json!({ "open": true }))
        }
        ("GET", "/v1/closed") => exchange.json(401, &[], &json!({ "message": "who are you" })),
        ("POST", "/token") => exchange.json(
            200,
            &[],
            &json!({ "access_token": "tok-canary", "token_type": "Bearer", "expires_in": 3600 }),
        ),
        _ => exchange.json(404, &[], &json!({ "message": "no such note" })),
    }
}

struct Api {
    site: Site,
    elsewhere: Site,
    flaky: Arc<AtomicUsize>,
}

impl Api {
    fn start() -> Api {
        let elsewhere =
            Site::start(Arc::new(|request: &ReceivedRequest, exchange: &mut Exchange<'_>| {
                assert_eq!(request.path(), "/other");
                exchange.json(200, &[], &json!({ "from": "elsewhere" }))
            }));
        let elsewhere = elsewhere.unwrap();
        let (target, flaky) = (elsewhere.url("/other"), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&flaky);
        let site =
            Site::start(Arc::new(move |request: &ReceivedRequest, exchange: &mut Exchange<'_>| {
                answer(&target, &counted, request, exchange)
            }));
        Api { site: site.unwrap(), elsewhere, flaky }
    }

    /// Its description as a file, and an entry for it.
    fn entry(&self, workspace: &Workspace) -> Value {
        let file = workspace.file("notes.yaml");
        fs::write(&file, DESCRIPTION).unwrap();
        json!({
            "openapi": file,
            "baseUrl": self.site.url("/v1"),
            "headers": { "X-Client": "metamcp" },
            "credentials": { "key": "key-canary-1", "token": "token canary/2" },
        })
    }

    fn gateway(&self, flags: &[&str]) -> Gateway {
        let mut workspace = Workspace::new().unwrap();
        let entry = self.entry(&workspace);
        workspace.entry("far", entry);
        Gateway::start_as(workspace, |command| {
            command.args(flags);
        })
    }

    /// The last request for this path.
    fn last(&self, path: &str) -> ReceivedRequest {
        let all = self.site.requests();
        all.into_iter().rev().find(|request| request.path() == path).unwrap()
    }
}

/// The result of a call that the API answered.
fn result(gateway: &Gateway, tool: &str, arguments: &Value) -> Value {
    let answer = gateway.mcp_call_now("far", tool, arguments, HUNG).unwrap().value;
    assert!(answer["result"].is_object(), "{answer}");
    answer["result"].clone()
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_default()
}

#[test]
fn an_api_is_called_as_its_description_says() {
    let api = Api::start();
    let gateway = api.gateway(&[]);
    let list = result(&gateway, "listNotes", &json!({ "tags": ["a b", "c"] }));
    assert_eq!(text(&list), "[{\"id\":1},{\"id\":2}]");
    assert_eq!(list["content"][1]["text"], "[There is more: call it again with {\"page\":2}.]");
    let request = api.last("/v1/notes");
    assert_eq!(request.target, "/v1/notes?tags=a%20b%7Cc&token=token%20canary%2F2");
    assert_eq!(
        (request.header("x-api-key"), request.header("x-client")),
        (Some("key-canary-1"), Some("metamcp"))
    );
    let made = result(
        &gateway,
        "createNote",
        &json!({ "body": { "text": "hi", "parent": { "text": "up" } } }),
    );
    assert_eq!(
        made["structuredContent"]["got"],
        json!({ "text": "hi", "parent": { "text": "up" } })
    );
    assert_eq!(made["content"][1]["text"], "[It is at /v1/notes/9.]");
    assert_eq!(
        result(&gateway, "getNote", &json!({ "id": "a/b" }))["structuredContent"]["id"],
        "a/b"
    );
    let missing = result(&gateway, "getNote", &json!({ "id": "7" }));
    assert_eq!(
        (&missing["isError"], text(&missing)),
        (&json!(true), "HTTP 404 Not Found: {\"message\":\"no such note\"}")
    );
    assert_eq!(
        text(&result(&gateway, "deleteNote", &json!({ "id": "7" }))),
        "[Done: HTTP 204 without a body.]"
    );
    let picture = result(&gateway, "picture", &json!({}));
    assert_eq!(
        picture["content"][0],
        json!({ "type": "image", "data": "iVBORw==", "mimeType": "image/png" })
    );
    let file = result(
        &gateway,
        "upload",
        &json!({ "body": { "file": { "base64": "aGV5", "filename": "a.txt" } } }),
    );
    assert!(
        text(&file).contains("name=\"file\"; filename=\"a.txt\"")
            && text(&file).contains("\r\n\r\nhey\r\n"),
        "{file}"
    );
    // Wrong arguments are told before anything is sent.
    let before = api.site.requests().len();
    let wrong = gateway.refusal("createNote", &json!({ "body": { "parent": null } }));
    assert_eq!(wrong.code, "validation_input", "{wrong:?}");
    assert_eq!(api.site.requests().len(), before);
    gateway.end();
}

#[test]
fn a_script_gets_values_and_direct_mode_the_operations() {
    let api = Api::start();
    let gateway = api.gateway(&[]);
    let code = "const notes = await far.listNotes({}); const one = await far.createNote({ body: { text: 'x' } }); const gone = await far.deleteNote({ id: '1' }); return [notes.length, one.id, gone];";
    let run = gateway
        .ask("tools/call", &json!({ "name": "mcp_execute", "arguments": { "code": code } }), HUNG)
        .unwrap()
        .value;
    assert!(text(&run["result"]).starts_with("[2,9,null]\n"), "{run}");
    gateway.end();
    let direct = api.gateway(&["--surface", "direct"]);
    let tools = direct.ask("tools/list", &json!({}), HUNG).unwrap().value;
    let tools = tools["result"]["tools"].as_array().unwrap().clone();
    let get = tools.iter().find(|tool| tool["name"] == "getNote").unwrap();
    assert_eq!(get["annotations"]["readOnlyHint"], true);
    assert_eq!(get["inputSchema"]["required"], json!(["id"]));
    let called = direct
        .ask("tools/call", &json!({ "name": "getNote", "arguments": { "id": "a/b" } }), HUNG)
        .unwrap()
        .value;
    assert_eq!(called["result"]["structuredContent"]["id"], "a/b", "{called}");
    direct.end();
}

#[test]
fn credentials_do_not_leave_the_origin_of_the_api_nor_reach_the_client() {
    let api = Api::start();
    let gateway = api.gateway(&[]);
    let away = result(&gateway, "away", &json!({}));
    assert_eq!(away["structuredContent"]["from"], "elsewhere");
    assert_eq!(api.last("/v1/away").header("x-api-key"), Some("key-canary-1"));
    let request = api.elsewhere.requests().remove(0);
    let sent = format!("{} {:?}", request.target, request.headers);
    assert!(!sent.contains("canary") && !sent.contains("x-client"), "{sent}");
    let echoed =
        result(&gateway, "upload", &json!({ "body": { "file": { "text": "say key-canary-1" } } }));
    assert!(!echoed.to_string().contains("key-canary-1"), "{echoed}");
    let limited = gateway.refusal("limited", &json!({}));
    assert!(limited.message.contains("accepts no requests for 7.0 s"), "{limited:?}");
    gateway.end();
}

#[test]
fn what_only_reads_is_repeated_and_what_may_change_something_is_not() {
    let api = Api::start();
    let gateway = api.gateway(&[]);
    assert_eq!(result(&gateway, "flaky", &json!({}))["structuredContent"]["ok"], true);
    assert_eq!(api.flaky.load(Ordering::SeqCst), 2);
    let outcome = gateway.call("flakyPost", &json!({}));
    assert!(matches!(outcome, CallOutcome::GatewayError(_)), "{outcome}");
    assert_eq!(api.flaky.load(Ordering::SeqCst), 3, "sent once");
    gateway.end();
}

#[test]
fn a_changed_file_is_used_and_a_broken_one_says_where() {
    let api = Api::start();
    let gateway = api.gateway(&[]);
    result(&gateway, "picture", &json!({}));
    let file = gateway.workspace.file("notes.yaml");
    fs::write(&file, DESCRIPTION.replace("operationId: picture", "operationId: image")).unwrap();
    let until = |tool: &str, is_it: &dyn Fn(&Value) -> bool| {
        let begun = Instant::now();
        loop {
            let answer = gateway.mcp_call_now("far", tool, &json!({}), HUNG).unwrap().value;
            if is_it(&answer) {
                return;
            }
            assert!(begun.elapsed() < HUNG, "{answer}");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    until("image", &|answer| answer["result"]["content"][0]["type"] == "image");
    fs::write(&file, "openapi: 3.0.3\npaths:\n  a: b: c\n").unwrap();
    until("image", &|answer| answer.to_string().contains("line 3, column 7: it is not YAML"));
    gateway.end();
}

#[test]
fn a_description_is_fetched_and_its_word_sends_no_credential_elsewhere() {
    let api = Api::start();
    let url = api.site.url("/v1/openapi.json");
    // It names no server, so the API is where the description is.
    let gateway = Gateway::of(
        &json!({ "openapi": url, "include": ["tag:notes", "/v1/none"], "baseUrl": api.site.url("/v1") }),
    );
    assert_eq!(text(&result(&gateway, "listNotes", &json!({}))), "[{\"id\":1},{\"id\":2}]");
    let unknown = gateway.refusal("picture", &json!({}));
    assert_eq!(unknown.code, "tool_not_found", "{unknown:?}");
    gateway.end();
    let elsewhere = DESCRIPTION.replace(
        "paths:\n  /notes:",
        "servers: [{url: 'http://127.0.0.2:9/v1'}]\npaths:\n  /notes:",
    );
    let site = Site::start(Arc::new(move |_: &ReceivedRequest, exchange: &mut Exchange<'_>| {
        exchange.respond(200, &[], elsewhere.as_bytes())
    }));
    let site = site.unwrap();
    let gateway =
        Gateway::of(&json!({ "openapi": site.url("/api.yaml"), "bearerToken": "canary" }));
    let refused = gateway.refusal("listNotes", &json!({}));
    assert!(refused.message.contains("set \"baseUrl\": \"http://127.0.0.2:9/v1\""), "{refused:?}");
    gateway.end();
    // A cloud's address of secrets is nowhere an API is.
    let inside = DESCRIPTION.replace(
        "paths:\n  /notes:",
        "servers: [{url: 'http://169.254.169.254/latest'}]\npaths:\n  /notes:",
    );
    let mut workspace = Workspace::new().unwrap();
    let file = workspace.file("inside.yaml");
    fs::write(&file, inside).unwrap();
    workspace.entry("far", json!({ "openapi": file }));
    let gateway = Gateway::start(workspace);
    let refused = gateway.refusal("listNotes", &json!({}));
    assert!(refused.message.contains("is no address of an API"), "{refused:?}");
    gateway.end();
}

#[test]
fn a_sign_in_goes_where_the_description_says_and_without_one_it_is_told_what_is_missing() {
    let api = Api::start();
    let gateway = api.gateway(&[]);
    let closed = result(&gateway, "closed", &json!({}));
    assert_eq!(
        text(&closed),
        "HTTP 401 Unauthorized: {\"message\":\"who are you\"}\n[set `credentials` for \"login\" in the entry of \"far\"]"
    );
    gateway.end();
    let mut workspace = Workspace::new().unwrap();
    let file = workspace.file("notes.yaml");
    fs::write(&file, DESCRIPTION.replace("TOKEN_URL", &api.site.url("/token"))).unwrap();
    workspace.entry(
        "far",
        json!({
            "openapi": file,
            "baseUrl": api.site.url("/v1"),
            "oauth": { "clientId": "me", "clientSecret": "s3cret", "grant": "client_credentials" },
        }),
    );
    let gateway = Gateway::start(workspace);
    assert_eq!(result(&gateway, "closed", &json!({}))["structuredContent"]["open"], true);
    let asked = api.last("/token");
    assert_eq!(asked.field("grant_type").as_deref(), Some("client_credentials"));
    gateway.end();
}
