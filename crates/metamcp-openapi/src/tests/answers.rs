use serde_json::{Value, json};

use super::{api, described};
use crate::answer::{Answer, result};

fn answered(status: u16, headers: &[(&str, &str)], body: &[u8]) -> Value {
    let query = |name: &str| json!({ "name": name, "in": "query", "schema": {} });
    let names = ["page", "per_page", "pageToken", "cursor", "starting_after", "continue", "tag"];
    let parameters: Vec<Value> = names.into_iter().map(query).collect();
    let api = api(&described(
        &json!({ "/a": { "get": { "operationId": "a", "parameters": parameters } } }),
        &json!({}),
    ));
    let headers: Vec<(String, String)> =
        headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let arguments = json!({ "per_page": 30, "tag": ["a b", "c"] });
    let answer = Answer {
        status,
        headers: &headers,
        body,
        place: "https://api.example/v1/a",
        arguments: arguments.as_object().unwrap(),
    };
    serde_json::from_slice(&result(api.operation("a").unwrap(), &answer, Some("a hint"))).unwrap()
}

const JSON: (&str, &str) = ("content-type", "application/json; charset=utf-8");

#[test]
fn answers_of_every_kind() {
    let object = answered(200, &[JSON], b" {\"a\": 1.50}\n");
    assert_eq!(object["content"], json!([{ "type": "text", "text": "{\"a\": 1.50}" }]));
    assert_eq!(object["structuredContent"]["a"], 1.5);
    let list = answered(200, &[JSON], b"[1,2]");
    assert_eq!(list, json!({ "content": [{ "type": "text", "text": "[1,2]" }] }));
    let called_text = answered(200, &[("content-type", "text/plain")], b"{\"a\":1}");
    assert_eq!(called_text["structuredContent"], json!({ "a": 1 }));
    let broken = answered(200, &[JSON], b"{\"a\":");
    assert_eq!(broken["content"][0]["text"], "{\"a\":");
    let text = answered(200, &[("content-type", "text/csv")], "a;ü".as_bytes());
    assert_eq!(text["content"][0]["text"], "a;ü");
    let picture = answered(200, &[("content-type", "image/png")], b"\x89PNG");
    assert_eq!(
        picture["content"][0],
        json!({ "type": "image", "data": "iVBORw==", "mimeType": "image/png" })
    );
    let bytes = answered(200, &[("content-type", "application/pdf")], b"%PDF\xff");
    let resource = json!({ "uri": "https://api.example/v1/a", "mimeType": "application/pdf", "blob": "JVBERv8=" });
    assert_eq!(bytes["content"][0], json!({ "type": "resource", "resource": resource }));
    let nothing = answered(204, &[], b"");
    assert_eq!(nothing["content"][0]["text"], "[Done: HTTP 204 without a body.]");
    assert_eq!(nothing["content"][0]["_meta"]["metamcp/note"], true);
    let made = answered(201, &[JSON, ("location", "/a/7")], b"{}");
    assert_eq!(made["content"][1]["text"], "[It is at /a/7.]");
}

#[test]
fn errors_say_their_status_and_what_may_help() {
    let text = |answer: Value| {
        assert_eq!(answer["isError"], true);
        answer["content"][0]["text"].as_str().unwrap().to_owned()
    };
    assert_eq!(
        text(answered(404, &[JSON], b"{\"message\":\"no\"}")),
        "HTTP 404 Not Found: {\"message\":\"no\"}\n[a hint]"
    );
    let page = text(answered(500, &[("content-type", "text/html")], b"<html>secret"));
    assert!(page.starts_with("HTTP 500 Internal Server Error: the answer is a web page"), "{page}");
    let long = text(answered(400, &[JSON], &vec![b'x'; 60_000]));
    assert!(long.len() < 4_200, "{}", long.len());
    let limited =
        text(answered(429, &[("retry-after", "30"), ("x-ratelimit-remaining", "0")], b""));
    assert!(
        limited.contains("[Try again after 30 seconds]")
            && limited.contains("[Rate limit: x-ratelimit-remaining: 0]"),
        "{limited}"
    );
    assert!(
        text(answered(302, &[("location", "https://b.example")], b""))
            .starts_with("HTTP 302 (it is elsewhere) at https://b.example")
    );
}

#[test]
fn a_next_page_is_told_as_arguments() {
    for (headers, body, expected) in [
        (
            vec![(
                "link",
                "<https://api.example/v1/a?per_page=30&tag=a+b&tag=c&page=3>; rel=\"next\", <https://x/?page=9>; rel=last",
            )],
            "[]",
            Some(json!({ "page": 3 })),
        ),
        (vec![("link", "<https://api.example/v1/a?page=1>; rel=\"prev\"")], "[]", None),
        (vec![], "{\"nextPageToken\":\"abc\"}", Some(json!({ "pageToken": "abc" }))),
        (vec![], "{\"nextPageToken\":\"\"}", None),
        (
            vec![],
            "{\"response_metadata\":{\"next_cursor\":\"x=\"}}",
            Some(json!({ "cursor": "x=" })),
        ),
        (vec![], "{\"metadata\":{\"continue\":\"tok\"}}", Some(json!({ "continue": "tok" }))),
        (
            vec![],
            "{\"next\":\"https://api.example/v1/a?cursor=a%2Fb&other=1\"}",
            Some(json!({ "cursor": "a/b" })),
        ),
        (vec![], "{\"_links\":{\"next\":{\"href\":\"/v1/a?page=2\"}}}", Some(json!({ "page": 2 }))),
        (
            vec![],
            "{\"has_more\":true,\"data\":[{\"id\":\"c1\"},{\"id\":\"c2\"}]}",
            Some(json!({ "starting_after": "c2" })),
        ),
        (vec![], "{\"has_more\":false,\"data\":[{\"id\":\"c1\"}]}", None),
        (vec![], "{\"next_page\":4}", Some(json!({ "page": 4 }))),
        (vec![], "{\"next\":null,\"nextPage\":null}", None),
    ] {
        let headers: Vec<(&str, &str)> = headers.into_iter().chain([JSON]).collect();
        let found = answered(200, &headers, body.as_bytes());
        let told = found["content"][1]["text"].as_str().map(str::to_owned);
        let expected =
            expected.map(|arguments| format!("[There is more: call it again with {arguments}.]"));
        assert_eq!(told, expected, "{body}");
    }
}
