//! The identity of a server: what an entry runs or connects to, normalized. Entries with the same identity are duplicates.

use serde_json::{Map, Value, json};

use crate::config::{self, PassEnv, ServerConfig};

/// The server that an entry means. Variables stand for themselves: two that hold the same today are not the same.
fn meant(entry: &Value) -> Option<ServerConfig> {
    let file = json!({ "mcpServers": { "x": entry } }).to_string();
    let loaded = config::parse(&file, &|name| Some(format!("${name}")));
    let loaded = loaded.and_then(config::Loaded::sound).ok()?;
    loaded.config.servers.into_iter().next()
}

/// The identity of an entry; `found` resolves a program name to its path.
pub fn identity(entry: &Value, found: &dyn Fn(&str) -> String) -> String {
    let Some(server) = meant(entry) else { return entry.to_string() };
    let mut parts = server.transport.identity(found);
    // One that shows less is another server to whoever uses it.
    let allows_all = |allow: &Vec<config::Pattern>| allow.iter().any(|one| one.as_str() == "*");
    let mut tools: Vec<String> =
        server.tools.deny.iter().map(|one| format!("deny {}", one.as_str())).collect();
    if let Some(allow) = server.tools.allow.as_ref().filter(|allow| !allows_all(allow)) {
        tools.push("only".to_owned());
        tools.extend(allow.iter().map(|one| format!("allow {}", one.as_str())));
    }
    tools.sort();
    parts.extend(tools);
    parts.join("\n")
}

/// One entry with what another of the same server says beside it: the longer time limit, the variables of both, and it
/// is on if one of them was.
pub fn joined(one: &Value, other: &Value) -> Value {
    let (Some(first), Some(second)) = (meant(one), meant(other)) else { return one.clone() };
    let Value::Object(mut entry) = one.clone() else { return one.clone() };
    if first.timeout < second.timeout
        && let Some(timeout) = second.timeout
    {
        entry.remove("timeout");
        let millis = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        entry.insert("timeoutMs".to_owned(), millis.into());
    }
    if !is_off(one) || !is_off(other) {
        for key in ["disabled", "enabled"] {
            entry.remove(key);
        }
    }
    if first.pass_env != second.pass_env {
        passing(&mut entry, &first.pass_env, &second.pass_env);
    }
    Value::Object(entry)
}

/// Whether an entry is switched off.
pub fn is_off(entry: &Value) -> bool {
    entry["disabled"] == true || entry["enabled"] == false
}

fn passing(entry: &mut Map<String, Value>, one: &PassEnv, other: &PassEnv) {
    let all = match one.with(other) {
        PassEnv::All => json!("all"),
        PassEnv::Usual(names) => {
            let mut all: Vec<&str> = names.iter().map(config::Pattern::as_str).collect();
            all.sort_unstable();
            all.dedup();
            json!(all)
        }
        PassEnv::Least => return,
    };
    entry.insert("passEnv".to_owned(), all);
}
