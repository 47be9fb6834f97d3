use serde_json::{Value, json};

use super::{address, api, described, read, tools};
use crate::{Api, Options, Rule};

#[test]
fn a_tool_says_what_its_operation_does() {
    let description = described(
        &json!({
            "/pets/{petId}": {
                "parameters": [{ "name": "petId", "in": "path", "required": true, "schema": { "type": "integer" }, "example": 7 }],
                "get": {
                    "operationId": "pets/get", "summary": "Get a pet", "description": "By its\u{202e} id.", "tags": ["pets"],
                    "parameters": [
                        { "name": "X-Trace", "in": "header", "schema": { "type": "string" } },
                        { "name": "Authorization", "in": "header", "schema": { "type": "string" } },
                        { "name": "fields", "in": "query", "description": "Which.", "schema": { "type": "array", "items": { "type": "string" } } },
                    ],
                },
                "put": { "deprecated": true }, "delete": {}, "patch": {}, "head": {}, "trace": {},
            },
        }),
        &json!({}),
    );
    let api = api(&description);
    let tools = tools(&api);
    assert_eq!(
        tools[0],
        json!({
            "name": "pets_get",
            "title": "Get a pet",
            "description": "Get a pet. By its id.\nGET /pets/{petId} (pets)",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "petId": { "type": "integer", "description": "For example 7" },
                    "fields": { "type": "array", "items": { "type": "string" }, "description": "Which." },
                    "X-Trace": { "type": "string", "description": "(header)" },
                },
                "required": ["petId"],
                "additionalProperties": false,
            },
            "annotations": { "readOnlyHint": true, "openWorldHint": true },
        })
    );
    let of = |name: &str| tools.iter().find(|tool| tool["name"] == name).unwrap();
    assert_eq!(of("put_pets_by_petId")["annotations"]["idempotentHint"], true);
    assert!(of("put_pets_by_petId")["description"].as_str().unwrap().ends_with(", deprecated"));
    assert_eq!(of("delete_pets_by_petId")["annotations"]["destructiveHint"], true);
    assert_eq!(of("patch_pets_by_petId")["annotations"]["readOnlyHint"], false);
    assert_eq!(of("head_pets_by_petId")["annotations"]["readOnlyHint"], true);
    assert_eq!((api.total, tools.len()), (6, 5), "what nobody should call is no tool");
}

#[test]
fn operations_are_chosen_and_keep_their_names() {
    let operation = |tag: &str| json!({ "operationId": "same", "tags": [tag] });
    let document = read(&described(
        &json!({ "/a": { "get": operation("x"), "post": operation("y") }, "/b": { "get": operation("y") } }),
        &json!({}),
    ));
    let names = |include: &[&str], exclude: &[&str], max_tools: usize| {
        let rules = |all: &[&str]| all.iter().map(|one| Rule::read(one)).collect();
        let options = Options {
            include: rules(include),
            exclude: rules(exclude),
            max_tools,
            ..Options::default()
        };
        Api::of(&document, &options).map(|api| {
            let names: Vec<String> = api.operations().iter().map(|one| one.name.clone()).collect();
            (names.join(" "), api.notes.join(" "))
        })
    };
    assert_eq!(names(&[], &[], 9).unwrap().0, "same same_2 same_3");
    assert_eq!(names(&["tag:y"], &[], 9).unwrap().0, "same_2 same_3");
    assert_eq!(names(&["GET"], &["/a"], 9).unwrap().0, "same_3");
    let (some, notes) = names(&[], &[], 2).unwrap();
    assert_eq!(some, "same same_2");
    assert_eq!(notes, "1 more operations are not tools; choose with `include` and `exclude`");
    let none = names(&["tag:z"], &[], 9).unwrap_err().to_string();
    assert_eq!(none, "`include` and `exclude` leave none of its 3 operations");
}

#[test]
fn where_an_api_is() {
    let home = || Some(address("https://docs.example/specs/api.json"));
    let base = Some(address("https://own.example/base"));
    let variables = json!([{ "url": "https://{region}.example/{v}", "variables": { "region": { "default": "eu" }, "v": { "enum": ["v2"] } } }]);
    for (servers, base_url, home, expected) in [
        (json!([{ "url": "https://api.example/v1/" }]), None, None, Ok("https://api.example/v1/")),
        (variables, None, None, Ok("https://eu.example/v2")),
        (json!([{ "url": "/v1" }]), None, home(), Ok("https://docs.example/v1")),
        (json!([{ "url": "../v1" }]), None, home(), Ok("https://docs.example/v1")),
        (json!([]), None, home(), Ok("https://docs.example/")),
        (json!([{ "url": "/v1" }]), base, home(), Ok("https://own.example/base")),
        (
            json!([{ "url": "/v1" }, { "url": "https://b.example" }]),
            None,
            None,
            Ok("https://b.example/"),
        ),
        (
            json!([{ "url": "/v1" }]),
            None,
            None,
            Err("the server \"/v1\" is no whole address; set `baseUrl`"),
        ),
        (
            json!([{ "url": "https://{host}/" }]),
            None,
            None,
            Err("has a variable without a default"),
        ),
        (json!([{ "url": "ftp://a.example" }]), None, None, Err("is not an address with http")),
        (json!([]), None, None, Err("#/servers: it does not say where its API is; set `baseUrl`")),
    ] {
        let mut description = described(&json!({ "/a": { "get": {} } }), &json!({}));
        description["servers"] = servers.clone();
        let found = Api::of(&read(&description), &Options { base_url, home, ..Options::default() });
        match (found, expected) {
            (Ok(api), Ok(expected)) => assert_eq!(api.base.to_string(), expected, "{servers}"),
            (Err(error), Err(expected)) => assert!(error.to_string().contains(expected), "{error}"),
            (found, _) => panic!("{servers}: {:?}", found.map(|api| api.base.to_string())),
        }
    }
}

#[test]
fn an_operation_elsewhere_goes_without_credentials() {
    let description = described(
        &json!({ "/a": { "get": { "operationId": "here" }, "post": { "operationId": "there", "servers": [{ "url": "https://uploads.example" }] } } }),
        &json!({ "securitySchemes": { "key": { "type": "apiKey", "in": "header", "name": "X-Key" } } }),
    );
    let options = Options { credentials: vec!["key".to_owned()], ..Options::default() };
    let api = Api::of(&read(&description), &options).unwrap();
    let (here, there) = (api.operation("here").unwrap(), api.operation("there").unwrap());
    assert_eq!((here.placements.len(), there.placements.len()), (1, 0));
    assert_eq!(there.base.to_string(), "https://uploads.example/");
    let told = tools(&api)[1]["description"].as_str().unwrap().to_owned();
    assert!(told.ends_with(", at https://uploads.example without credentials"), "{told}");
}

#[test]
fn a_credential_for_nothing_is_an_error() {
    let schemes =
        json!({ "securitySchemes": { "apiKey": { "type": "http", "scheme": "bearer" } } });
    let options = Options { credentials: vec!["apikey".to_owned()], ..Options::default() };
    let document = read(&described(&json!({ "/a": { "get": {} } }), &schemes));
    let error = Api::of(&document, &options).unwrap_err().to_string();
    assert_eq!(
        error,
        "#/components/securitySchemes: `credentials` names \"apikey\", which is none of its security schemes; it has \"apiKey\""
    );
    let nothing: Value = json!({});
    let empty = Api::of(&read(&described(&nothing, &nothing)), &Options::default()).unwrap_err();
    assert_eq!(empty.to_string(), "#/paths: it has no operation");
}
