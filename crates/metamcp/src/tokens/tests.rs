use std::io::Cursor;

use super::about;

/// How far the estimate may be from the count.
const TOLERATED: f64 = 0.12;

const PROSE: &str = "A gateway stands between a client and the servers behind it. Without one, every tool of \
every server is described to the model at the start of each conversation, whether it is needed or not, and \
a few busy servers fill tens of thousands of tokens before the first question is asked. With one, the model \
sees two tools: one that finds, and one that calls. It isn't magic, it's bookkeeping: the descriptions are \
kept by the gateway, and they're handed out when somebody asks for them. What you lose is one round trip; \
what you gain is room to think, a list that doesn't change from day to day, and a single place in which a \
server that crashes, hangs or lies can be dealt with without the conversation noticing.";

const CONFIG: &str = r#"{
  // One entry per server.
  "mcpServers": {
    "files": { "command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "/srv/shared"] },
    "git": { "command": "uvx", "args": ["mcp-server-git", "--repository", "."], "timeoutMs": 30000 },
    "search": { "type": "http", "url": "https://search.example.com/mcp", "headers": { "Authorization": "Bearer ${SEARCH_TOKEN}" } }
  },
  "pool": { "poolSize": 20, "idleTimeoutMs": 300000, "failureThreshold": 5, "cooldownMs": 30000 }
}"#;

const LOG: &str = "2025-03-01T09:30:12.123Z INFO server=files state=connecting pid=48213\n\
2025-03-01T09:30:12.187Z INFO server=files state=active tools=14 took_ms=64\n\
2025-03-01T09:31:40.002Z WARN server=browser exit code=1 signal=none stderr=\"Error: Cannot find module 'playwright-core'\"\n\
2025-03-01T09:31:40.003Z INFO server=browser retry=1 fresh_process=true\n\
2025-03-01T09:31:41.930Z ERROR server=browser breaker=open failures=5 cooldown_ms=30000\n";

const SCRIPT: &str = r#"import json
import sys

def summarise(rows, *, minimum=10):
    """Group sales by region and keep the regions that sold enough."""
    totals = {}
    for row in rows:
        region = row["region"].strip().lower()
        totals[region] = totals.get(region, 0.0) + float(row["amount"])
    return {name: round(total, 2) for name, total in sorted(totals.items()) if total >= minimum}

if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as source:
        print(json.dumps(summarise(json.load(source)), indent=2))
"#;

const HIT: &str = "files:search_files(text: string, path?: string, within?: \"names\"|\"contents\"|\"both\", \
match_case?: boolean, limit?: integer)\n  Find files whose name or content contains a piece of text.\n\
notes:search_notes(words: string, limit?: integer)\n  Find notes whose title, text or tags contain all the \
given words.\nRead one in full with mcp_discover {\"tool\": \"files:search_files\", \"detail\": \"schema\"}.";

#[test]
fn estimates_are_close_to_counts() {
    let counter = tiktoken_rs::cl100k_base().unwrap();
    let mut texts: Vec<(String, String)> = [
        ("prose", PROSE),
        ("configuration", CONFIG),
        ("log", LOG),
        ("python", SCRIPT),
        ("discovery", HIT),
        ("rust", include_str!("../tokens.rs")),
        ("declarations", include_str!("../example/files.rs")),
        ("manifest", include_str!("../../Cargo.toml")),
    ]
    .map(|(name, text)| (name.to_owned(), text.to_owned()))
    .into();
    for server in ["files", "notes", "clock", "text", "numbers"] {
        texts.push((format!("tools of {server}"), listed(server)));
    }
    for (name, text) in texts {
        let counted = counter.encode_ordinary(&text).len();
        let error = about(&text) as f64 / counted as f64 - 1.0;
        assert!(
            error.abs() < TOLERATED,
            "{name}: {counted} tokens, estimate off by {:.1} %",
            error * 100.0
        );
    }
}

#[test]
fn any_text_has_an_estimate() {
    assert_eq!(about(""), 0);
    for text in [
        "'",
        "'l",
        " ",
        "  ",
        "\n",
        "\r\n\n x",
        "é",
        "'é",
        "a'LL",
        "🦀🦀",
        "１２３４",
        "\u{0}",
        "====",
        "ﷺ '",
    ] {
        let estimate = about(text);
        assert!((1..=8).contains(&estimate), "{text:?}: {estimate}");
    }
    // A single letter repeated a hundred thousand times must cost neither time nor stack.
    assert!(about(&"A".repeat(100_000)) > 1_000);
}

fn listed(server: &str) -> String {
    let folder = std::env::temp_dir();
    let arguments: Vec<String> = match server {
        "files" => vec![folder.display().to_string()],
        "notes" => vec![folder.join("no-such-notes").display().to_string()],
        _ => Vec::new(),
    };
    let mut request = Cursor::new(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#);
    let mut answer = Vec::new();
    crate::example::run(server, &arguments, &mut request, &mut answer).unwrap();
    String::from_utf8(answer).unwrap()
}
