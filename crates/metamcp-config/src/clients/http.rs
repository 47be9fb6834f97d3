//! The entry by which a client reaches this gateway over HTTP, with the token in its own syntax.

use serde_json::{Value, json};

use super::{Client, Dialect};

/// Call timeout in seconds, for clients whose entries have one.
const PATIENCE_SECONDS: u32 = 300;

impl Client {
    /// An entry with an address and the header that carries the token; or why this client has none, as a fragment.
    pub fn http_entry(&self, url: &str, token: &str) -> Result<Value, &'static str> {
        let headers = json!({ "Authorization": format!("Bearer {token}") });
        Ok(match (self.id, self.dialect) {
            ("claude-desktop", _) => {
                return Err(
                    "its file can only start programs and cannot hold a URL; use `metamcp init` without --http",
                );
            }
            ("windsurf" | "windsurf-jetbrains" | "antigravity", _) => {
                json!({ "serverUrl": url, "headers": headers })
            }
            ("copilot", _) => {
                json!({ "type": "http", "url": url, "headers": headers, "tools": ["*"] })
            }
            ("factory" | "amazon-q", _) | (_, Dialect::Typed | Dialect::Crush) => {
                json!({ "type": "http", "url": url, "headers": headers })
            }
            (_, Dialect::Standard | Dialect::Zed) => json!({ "url": url, "headers": headers }),
            (_, Dialect::Gemini) => json!({ "httpUrl": url, "headers": headers }),
            (_, Dialect::OpenCode) => {
                json!({ "type": "remote", "url": url, "headers": headers, "enabled": true })
            }
            (id, Dialect::Cline) => json!({
                "type": if id == "roo" { "streamable-http" } else { "streamableHttp" },
                "url": url,
                "headers": headers,
                "timeout": PATIENCE_SECONDS,
            }),
            (_, Dialect::Goose) => json!({
                "name": "metamcp",
                "type": "streamable_http",
                "uri": url,
                "headers": headers,
                "envs": {},
                "enabled": true,
                "timeout": PATIENCE_SECONDS,
            }),
            (_, Dialect::Continue) => json!({
                "type": "streamable-http",
                "url": url,
                "requestOptions": { "headers": headers },
            }),
            (_, Dialect::Codex) => json!({ "url": url, "http_headers": headers }),
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::clients::CLIENTS;

    /// What we write for a client is read as its own: the address and the token arrive, whatever they are called there.
    #[test]
    fn every_client_is_told_in_its_own_words_or_it_is_said_why_not() {
        let url = "http://127.0.0.1:8080/mcp";
        for client in CLIENTS {
            let entry = match client.http_entry(url, "secret") {
                Ok(entry) => entry,
                Err(why) => {
                    assert_eq!(client.id, "claude-desktop", "{why}");
                    continue;
                }
            };
            let read = client.dialect.to_standard(&entry).unwrap();
            let text = read.to_string();
            assert!(text.contains(url), "{}: {text}", client.id);
            assert_eq!(read["headers"]["Authorization"], "Bearer secret", "{}", client.id);
        }
    }

    #[test]
    fn entries_as_they_are_written() {
        let all = CLIENTS.iter().map(|client| {
            let entry = client.http_entry("http://127.0.0.1:8080/mcp", "TOKEN");
            format!("{}: {}\n", client.id, entry.map_or_else(str::to_owned, |it| it.to_string()))
        });
        insta::assert_snapshot!(all.collect::<String>());
    }
}
