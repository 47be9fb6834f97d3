//! The body of the fuzz target on generated requests and on a small corpus, so that every test run exercises it.

#[path = "bodies/http.rs"]
mod body;

use proptest::collection::vec;
use proptest::prelude::*;

/// Heads and bodies at the edges of what comes in.
const CORPUS: &[&str] = &[
    "",
    "POST\n/mcp\n\nlocalhost\n\napplication/json\n*/*\n\n{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}",
    "POST\n/mcp\nevil.org\nlocalhost\n\napplication/json\n*/*\n\n[]",
    "POST\n/mcp\n\n[::1]:8080\nhttp://[::1]:1\napplication/json\n*/*\nBearer a token\n{\n}",
    "POST\n/mcp\n\nlocalhost@evil.org\nnull\napplication/json\n*/*\n7-1\n[{\"jsonrpc\":\"2.0\",\n\"method\":\"a\"}]",
    "GET\n/sse\n\nours.example.org\nhttps://app.example.org\n\ntext/event-stream\n00112233445566778899aabbccddeeff\n",
    "GET\n/mcp\n\n127.0.0.1:99999\n\n\n\n18446744073709551616-0\n{\"jsonrpc\":\"2.0\",\"method\":\"a\nb\"}",
];

#[test]
fn the_corpus() {
    for request in CORPUS {
        body::check(request.as_bytes());
    }
}

/// Pieces that fit together more often than chance would have it.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("\n".to_owned()),
        prop::sample::select(vec![
            "POST",
            "GET",
            "/mcp",
            "/sse",
            "localhost",
            "127.0.0.1",
            "[::1]",
            "ours.example.org",
            "evil.org",
            ":8080",
            "@",
            "http://",
            "https://app.example.org",
            "null",
            "*/*",
            "application/json",
            "text/event-stream",
            ";q=0",
            ", ",
            "Bearer ",
            "a token",
            "7-1",
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\"}",
            "[",
            "]",
            ",",
            "\r\n",
        ])
        .prop_map(str::to_owned),
        "\\PC{0,4}",
    ]
}

proptest! {
    #[test]
    fn requests_made_of_pieces(pieces in vec(piece(), 0..24)) {
        body::check(pieces.concat().as_bytes());
    }

    #[test]
    fn requests_of_any_bytes(bytes in vec(any::<u8>(), 0..200)) {
        body::check(&bytes);
    }
}
