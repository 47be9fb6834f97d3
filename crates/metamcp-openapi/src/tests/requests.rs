use serde_json::{Map, Value, json};

use super::{api, described, read};
use crate::security::Form;
use crate::{Api, ArgumentError, Options, Request};

fn arguments(value: &Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

/// The request of one operation with these parameters.
fn request(path: &str, parameters: &Value, given: &Value) -> Result<Request, ArgumentError> {
    let api = api(&described(
        &json!({ path: { "get": { "operationId": "a", "parameters": parameters } } }),
        &json!({}),
    ));
    api.operation("a").unwrap().request(&arguments(given))
}

#[test]
fn every_style_of_path_and_query() {
    let list = json!(["b", "c d"]);
    let object = json!({ "r": 1, "g": "x y" });
    for (place, style, explode, value, expected) in [
        ("path", "simple", false, json!("a/b ü"), "/v1/p/a%2Fb%20%C3%BC"),
        ("path", "simple", false, list.clone(), "/v1/p/b,c%20d"),
        ("path", "simple", true, object.clone(), "/v1/p/r=1,g=x%20y"),
        ("path", "simple", false, object.clone(), "/v1/p/r,1,g,x%20y"),
        ("path", "label", true, list.clone(), "/v1/p/.b.c%20d"),
        ("path", "label", false, list.clone(), "/v1/p/.b,c%20d"),
        ("path", "matrix", false, json!(5), "/v1/p/;x=5"),
        ("path", "matrix", true, list.clone(), "/v1/p/;x=b;x=c%20d"),
        ("path", "matrix", false, list.clone(), "/v1/p/;x=b,c%20d"),
        ("path", "matrix", true, object.clone(), "/v1/p/;r=1;g=x%20y"),
        ("query", "form", true, json!("a&b=c"), "/v1/p?x=a%26b%3Dc"),
        ("query", "form", true, list.clone(), "/v1/p?x=b&x=c%20d"),
        ("query", "form", false, list.clone(), "/v1/p?x=b,c%20d"),
        ("query", "form", true, object.clone(), "/v1/p?r=1&g=x%20y"),
        ("query", "form", false, object.clone(), "/v1/p?x=r,1,g,x%20y"),
        ("query", "spaceDelimited", false, list.clone(), "/v1/p?x=b%20c%20d"),
        ("query", "pipeDelimited", false, list.clone(), "/v1/p?x=b%7Cc%20d"),
        ("query", "deepObject", true, object.clone(), "/v1/p?x[r]=1&x[g]=x%20y"),
        (
            "query",
            "deepObject",
            true,
            json!({ "a": { "b": [1, 2] }, "c": [{ "d": null }] }),
            "/v1/p?x[a][b][]=1&x[a][b][]=2&x[c][0][d]=",
        ),
        ("query", "matrix", true, json!(true), "/v1/p?x=true"),
        ("query", "form", true, json!(null), "/v1/p"),
        ("query", "form", true, json!([]), "/v1/p"),
    ] {
        let path = if place == "path" { "/p/{x}" } else { "/p" };
        let parameters = json!([{ "name": "x", "in": place, "required": place == "path", "style": style, "explode": explode }]);
        let found = request(path, &parameters, &json!({ "x": value })).unwrap();
        assert_eq!(found.target, expected, "{place} {style} {explode} {value}");
    }
}

#[test]
fn headers_cookies_and_values_that_are_json() {
    let parameters = json!([
        { "name": "X-List", "in": "header", "schema": { "type": "array" } },
        { "name": "sid", "in": "cookie", "schema": {} },
        { "name": "filter", "in": "query", "content": { "application/json": { "schema": {} } } },
        { "name": "path", "in": "query", "allowReserved": true, "schema": {} },
        { "name": "ids[]", "in": "query", "schema": {} },
    ]);
    let given = json!({ "X-List": [1, 2], "sid": "a;b", "filter": { "a": 1 }, "path": "a/b:c&d#", "ids": ["x", "y"] });
    let found = request("/p", &parameters, &given).unwrap();
    assert_eq!(found.headers, [("X-List".to_owned(), "1,2".to_owned())]);
    assert_eq!(found.cookies, ["sid=a%3Bb"]);
    assert_eq!(found.target, "/v1/p?filter=%7B%22a%22%3A1%7D&path=a/b:c%26d%23&ids[]=x&ids[]=y");
}

#[test]
fn arguments_that_cannot_be_sent_are_named() {
    let parameters = json!([
        { "name": "x", "in": "path", "required": true },
        { "name": "h", "in": "header" },
        { "name": "q", "in": "query", "required": true },
    ]);
    for (given, told) in [
        (json!({ "q": 1 }), "x: is required"),
        (json!({ "x": "..", "q": 1 }), "x: cannot be empty or a dot in a path"),
        (json!({ "x": "", "q": 1 }), "x: cannot be empty"),
        (json!({ "x": [], "q": 1 }), "x: cannot be empty"),
        (json!({ "x": 1 }), "q: is required"),
        (json!({ "x": 1, "q": 1, "h": "a\r\nB: c" }), "h: holds characters that no header has"),
        (json!({ "x": 1, "q": 1, "y": 1 }), "y: there is no such argument"),
        (json!({ "x": 1, "q": "x".repeat(9_000) }), "q: the address would be longer"),
        (json!({ "x": 1, "q": vec![1; 3_000] }), "q: has more than 2000 parts"),
    ] {
        let error = request("/p/{x}", &parameters, &given).unwrap_err().to_string();
        assert!(error.contains(told), "{error}");
    }
    let kept = request("/a b/%41?{x}", &parameters, &json!({ "x": "../..", "q": 1 })).unwrap();
    assert_eq!(kept.target, "/v1/a%20b/%41%3F..%2F..?q=1");
}

#[test]
fn a_form_that_is_a_component_has_files_too() {
    let form = json!({ "type": "object", "properties": { "files": { "type": "array", "items": { "type": "string", "contentMediaType": "application/octet-stream" } } } });
    let content =
        json!({ "multipart/form-data": { "schema": { "$ref": "#/components/schemas/Form" } } });
    let operation = json!({ "operationId": "a", "requestBody": { "content": content } });
    let api = api(&described(
        &json!({ "/a": { "post": operation } }),
        &json!({ "schemas": { "Form": form } }),
    ));
    let given = arguments(&json!({ "body": { "files": ["aGV5", { "text": "b" }] } }));
    let (_, bytes) = api.operation("a").unwrap().request(&given).unwrap().body.unwrap();
    let text = String::from_utf8(bytes).unwrap();
    assert_eq!(text.matches("name=\"files\"; filename=\"file\"").count(), 2, "{text}");
}

fn sent(media: &str, media_said: &Value, body: &Value) -> Result<(String, String), ArgumentError> {
    let content = json!({ media: media_said });
    let api = api(&described(
        &json!({ "/a": { "post": { "operationId": "a", "requestBody": { "required": true, "content": content } } } }),
        &json!({}),
    ));
    let request = api.operation("a").unwrap().request(&arguments(&json!({ "body": body })))?;
    let (media, bytes) = request.body.unwrap();
    Ok((media, String::from_utf8_lossy(&bytes).into_owned()))
}

#[test]
fn bodies_of_every_kind() {
    let form = json!({ "a": "x y&z", "list": [1, 2], "deep": { "k": { "l": true } }, "items": [{ "price": 5 }] });
    let deep = json!({ "schema": { "type": "object" }, "encoding": { "list": { "style": "deepObject", "explode": true } } });
    for (media, said, body, expected) in [
        ("application/json", json!({}), json!({ "a": [1] }), ("application/json", "{\"a\":[1]}")),
        (
            "application/merge-patch+json",
            json!({}),
            json!({ "a": null }),
            ("application/merge-patch+json", "{\"a\":null}"),
        ),
        ("*/*", json!({}), json!([1]), ("application/json", "[1]")),
        ("text/plain", json!({}), json!("hällo"), ("text/plain; charset=utf-8", "hällo")),
        ("application/xml", json!({}), json!("<a/>"), ("application/xml; charset=utf-8", "<a/>")),
        ("application/octet-stream", json!({}), json!("aGV5"), ("application/octet-stream", "hey")),
        (
            "image/*",
            json!({}),
            json!("data:image/png;base64,aGV5"),
            ("application/octet-stream", "hey"),
        ),
        (
            "application/x-www-form-urlencoded",
            json!({}),
            form.clone(),
            (
                "application/x-www-form-urlencoded",
                "a=x%20y%26z&list=1&list=2&deep[k][l]=true&items[0][price]=5",
            ),
        ),
        (
            "application/x-www-form-urlencoded",
            deep,
            json!({ "list": [1, 2] }),
            ("application/x-www-form-urlencoded", "list[]=1&list[]=2"),
        ),
    ] {
        let (found, text) = sent(media, &said, &body).unwrap();
        assert_eq!((found.as_str(), text.as_str()), expected, "{media}");
    }
    assert!(sent("application/octet-stream", &json!({}), &json!("no base64!")).is_err());
    assert!(sent("application/x-www-form-urlencoded", &json!({}), &json!([1])).is_err());
}

#[test]
fn files_go_as_parts() {
    let schema = json!({ "schema": { "type": "object", "properties": {
        "file": { "type": "string", "format": "binary" },
        "more": { "type": "array", "items": { "type": "string", "format": "binary" } },
        "meta": { "type": "object" },
        "note": { "type": "string" },
    } }, "encoding": { "file": { "contentType": "image/png, image/jpeg" } } });
    let body = json!({
        "file": { "base64": "aGV5", "filename": "a\"b\r\n.png" },
        "more": ["aGV5", { "text": "plain ------metamcp-00000000", "filename": "t.txt" }],
        "meta": { "k": 1 },
        "note": "n",
    });
    let (media, text) = sent("multipart/form-data", &schema, &body).unwrap();
    assert_eq!(
        media, "multipart/form-data; boundary=----metamcp-00000001",
        "a boundary that is in no part"
    );
    let expected = [
        "name=\"file\"; filename=\"a%22b%0D%0A.png\"\r\nContent-Type: image/png\r\n\r\nhey\r\n",
        "name=\"more\"; filename=\"file\"\r\nContent-Type: application/octet-stream\r\n\r\nhey\r\n",
        "name=\"more\"; filename=\"t.txt\"\r\nContent-Type: text/plain; charset=utf-8\r\n\r\nplain ",
        "name=\"meta\"\r\nContent-Type: application/json\r\n\r\n{\"k\":1}\r\n",
        "name=\"note\"\r\n\r\nn\r\n------metamcp-00000001--\r\n",
    ];
    for part in expected {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let error =
        sent("multipart/form-data", &schema, &json!({ "file": { "filename": "a" } })).unwrap_err();
    assert_eq!(error.to_string(), "body.file: needs either `base64` or `text`");
}

#[test]
fn names_that_collide_are_told_apart_the_same_every_time() {
    let parameters = json!([
        { "name": "id", "in": "query" }, { "name": "id", "in": "path", "required": true },
        { "name": "body", "in": "query" }, { "name": "id", "in": "header" },
    ]);
    let operation = json!({ "operationId": "a", "parameters": parameters, "requestBody": { "content": { "application/json": {} } } });
    let api = api(&described(&json!({ "/a/{id}": { "post": operation } }), &json!({})));
    let operation = api.operation("a").unwrap();
    let keys: Vec<&str> = operation.keys().collect();
    assert_eq!(keys, ["id", "id_query", "body", "id_header", "body_request"]);
    let given =
        json!({ "id": 1, "id_query": 2, "id_header": 3, "body": 4, "body_request": { "x": 5 } });
    let found = operation.request(&arguments(&given)).unwrap();
    assert_eq!(found.target, "/v1/a/1?id=2&body=4");
    assert_eq!(found.headers, [("id".to_owned(), "3".to_owned())]);
    assert_eq!(found.body.unwrap().1, b"{\"x\":5}");
}

#[test]
fn credentials_go_where_their_scheme_says() {
    let schemes = json!({ "securitySchemes": {
        "header": { "type": "apiKey", "in": "header", "name": "X-Key" },
        "query": { "type": "apiKey", "in": "query", "name": "key" },
        "cookie": { "type": "apiKey", "in": "cookie", "name": "sid" },
        "basic": { "type": "http", "scheme": "Basic" },
        "bearer": { "type": "http", "scheme": "bearer" },
        "oauth": { "type": "oauth2", "flows": { "authorizationCode": { "authorizationUrl": "https://a.example/o", "tokenUrl": "https://a.example/t", "scopes": { "read": "" } } } },
        "odd": { "type": "mutualTLS" },
    } });
    let placed = |security: Value, given: &[&str]| {
        let mut operation = json!({ "operationId": "a" });
        if !security.is_null() {
            operation["security"] = security;
        }
        let document = read(&described(&json!({ "/a": { "get": operation } }), &schemes));
        let credentials = given.iter().map(|&name| name.to_owned()).collect();
        let api = Api::of(&document, &Options { credentials, ..Options::default() }).unwrap();
        let placements = api.operation("a").unwrap().placements.clone();
        placements.into_iter().map(|one| one.form).collect::<Vec<_>>()
    };
    let asked = json!({ "operationId": "a", "parameters": [{ "name": "key", "in": "query", "required": true }], "security": [{ "query": [] }] });
    let document = read(&described(&json!({ "/a": { "get": asked } }), &schemes));
    let options = Options { credentials: vec!["query".to_owned()], ..Options::default() };
    let api = Api::of(&document, &options).unwrap();
    assert_eq!(
        api.operation("a").unwrap().keys().count(),
        0,
        "what is configured nobody has to say"
    );
    let (header, query) = (Form::Header("X-Key".to_owned()), Form::Query("key".to_owned()));
    assert_eq!(
        placed(json!([{ "header": [] }]), &["header", "query"]),
        std::slice::from_ref(&header)
    );
    assert_eq!(
        placed(
            json!([{ "query": [] }, { "header": [], "cookie": [] }]),
            &["query", "header", "cookie"]
        ),
        [header.clone(), Form::Cookie("sid".to_owned())]
    );
    assert_eq!(placed(json!([{ "basic": [] }, { "bearer": [] }]), &["bearer"]), [Form::Bearer]);
    assert_eq!(placed(json!([{ "basic": [] }]), &["basic"]), [Form::Basic]);
    assert_eq!(placed(json!([{ "oauth": ["read"] }]), &["oauth"]), [Form::Bearer]);
    assert_eq!(
        placed(json!([{}, { "query": [] }]), &["query"]),
        std::slice::from_ref(&query),
        "what may be left out helps all the same"
    );
    assert_eq!(placed(json!([]), &["query"]), []);
    assert_eq!(placed(json!([{ "odd": [] }]), &["query"]), []);
    assert_eq!(placed(Value::Null, &["query"]), [query], "a description that does not say");
}
