//! `resultType` and cache hints: set and removed without touching another byte.

use std::borrow::Cow;

use serde_json::json;

use super::meta::SERVER_INFO;
use crate::era::Era;
use crate::object::{members, pick, replace_member, set_member, text, without_member};

/// Our tools are the same for every client, and change only with the program: an hour saves clients requests.
pub const LIST_TTL_MS: u64 = 60 * 60 * 1000;

/// The lists of servers may change at any time; subscribers are notified before this expires.
pub const FOREIGN_TTL_MS: u64 = 60 * 1000;

/// Whether results of this method have cache hints.
pub fn is_cacheable(method: &str) -> bool {
    matches!(
        method,
        "server/discover"
            | "tools/list"
            | "prompts/list"
            | "resources/list"
            | "resources/templates/list"
            | "resources/read"
    )
}

/// A server's result with cache hints: its own, or if it has none, private and stale at once.
pub fn hinted(result: &[u8]) -> Cow<'_, [u8]> {
    let asks = pick(result, ["resultType"]).is_ok_and(|[kind]| kind == Some(b"\"input_required\""));
    let Ok([ttl, scope]) = pick(result, ["ttlMs", "cacheScope"]) else {
        return Cow::Borrowed(result);
    };
    let mut hinted = Cow::Borrowed(result);
    if ttl.is_none() && !asks {
        hinted = Cow::Owned(set_member(&hinted, "ttlMs", b"0"));
    }
    if scope.is_none() && !asks {
        hinted = Cow::Owned(set_member(&hinted, "cacheScope", b"\"private\""));
    }
    hinted
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Complete,
    InputRequired,
    /// An unknown type, which makes the result invalid.
    Unknown(String),
}

/// The type of a result; without one it is complete.
pub fn kind(result: &[u8]) -> Kind {
    // Most programs write the type first or last.
    if result.starts_with(b"{\"resultType\":\"complete\",") {
        return Kind::Complete;
    }
    let Ok([found]) = pick(result, ["resultType"]) else {
        return if result.starts_with(b"{") {
            Kind::Unknown("two types".to_owned())
        } else {
            Kind::Complete
        };
    };
    match found.map(|found| text(found).ok_or(found)) {
        None => Kind::Complete,
        Some(Ok(word)) if word == "complete" => Kind::Complete,
        Some(Ok(word)) if word == "input_required" => Kind::InputRequired,
        Some(Ok(word)) => Kind::Unknown(shown(&word)),
        Some(Err(raw)) => Kind::Unknown(shown(&String::from_utf8_lossy(raw))),
    }
}

/// Whether a result is the handle of a task, of the extension of that name.
pub fn is_task(result: &[u8]) -> bool {
    !result.starts_with(b"{\"resultType\":\"complete\",")
        && pick(result, ["resultType"])
            .is_ok_and(|[kind]| kind.and_then(text).as_deref() == Some("task"))
}

fn shown(word: &str) -> String {
    word.chars().filter(|c| !c.is_control()).take(60).collect()
}

/// A result for a client of the stateless era: complete, whatever an older server may mean by a member of that name.
pub fn completed(result: &[u8]) -> Cow<'_, [u8]> {
    match pick(result, ["resultType"]) {
        Ok([Some(b"\"complete\"")]) => Cow::Borrowed(result),
        Err(_) if !result.starts_with(b"{") => Cow::Borrowed(result),
        _ => Cow::Owned(set_member(result, "resultType", b"\"complete\"")),
    }
}

/// The same for the result of a cacheable method: without cache hints too.
pub fn unhinted(result: &[u8]) -> Cow<'_, [u8]> {
    let mut plain = untyped(result);
    for hint in ["ttlMs", "cacheScope"] {
        if pick(&plain, [hint]).map_or(true, |[found]| found.is_some()) {
            plain = Cow::Owned(without_member(&plain, hint));
        }
    }
    plain
}

/// A result of a server of the stateless era for a client of the older one: without its type and without the server's
/// identity in `_meta`, just as the server itself would answer that client.
pub fn untyped(result: &[u8]) -> Cow<'_, [u8]> {
    let Ok([kind, meta]) = pick(result, ["resultType", "_meta"]) else {
        return Cow::Owned(without_member(result, "resultType"));
    };
    let mut plain = Cow::Borrowed(result);
    if kind.is_some() {
        plain = Cow::Owned(without_member(&plain, "resultType"));
    }
    if let Some(meta) = meta.filter(|meta| members(meta).any(|(name, _)| name == SERVER_INFO)) {
        let rest = without_member(meta, SERVER_INFO);
        let empty = members(&rest).next().is_none();
        plain = Cow::Owned(if empty {
            without_member(&plain, "_meta")
        } else {
            replace_member(&plain, "_meta", &rest)
        });
    }
    plain
}

/// A list or discovery result, cacheable for `ttl_ms`; by anybody if it is public, else only by this client.
pub fn cacheable(result: &[u8], ttl_ms: u64, public: bool) -> Vec<u8> {
    let scope: &[u8] = if public { b"\"public\"" } else { b"\"private\"" };
    let hinted = set_member(result, "ttlMs", ttl_ms.to_string().as_bytes());
    set_member(&set_member(&hinted, "cacheScope", scope), "resultType", b"\"complete\"")
}

/// How long a server lets us cache a list, in milliseconds, and whether it may be shared. Without a hint it is stale
/// at once.
pub fn cache_hints(result: &[u8]) -> (u64, bool) {
    let [ttl, scope] = pick(result, ["ttlMs", "cacheScope"]).unwrap_or([None, None]);
    let ttl = ttl.and_then(|ttl| std::str::from_utf8(ttl).ok()?.parse().ok());
    (ttl.unwrap_or(0), scope == Some(b"\"public\""))
}

/// A result of our own, with our identity.
pub fn signed(result: &[u8], our_version: &str) -> Vec<u8> {
    let info = json!({ "name": "metamcp", "title": "metamcp gateway", "version": our_version });
    let meta = pick(result, ["_meta"]).ok().and_then(|[meta]| meta).unwrap_or(b"{}");
    let meta = set_member(meta, SERVER_INFO, info.to_string().as_bytes());
    set_member(result, "_meta", &meta)
}

/// The answer to `server/discover`.
pub fn discovery(
    capabilities: &serde_json::Value,
    instructions: &str,
    our_version: &str,
) -> Vec<u8> {
    let versions: Vec<&str> = Era::supported().collect();
    let result = json!({
        "supportedVersions": versions,
        "capabilities": capabilities,
        "instructions": instructions,
    });
    // Instructions name the configured servers, so the result is private.
    signed(&cacheable(result.to_string().as_bytes(), LIST_TTL_MS, false), our_version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_type_is_spliced() {
        let odd = br#"{ "z":1.50 ,"a":[ 12345678901234567890123 ], "content":[]}"#;
        let typed = completed(odd);
        assert_eq!(
            &*typed,
            br#"{ "z":1.50 ,"a":[ 12345678901234567890123 ], "content":[],"resultType":"complete"}"#
        );
        assert_eq!(&*untyped(&typed), odd);
        assert!(matches!(completed(&typed), Cow::Borrowed(_)));
        assert!(matches!(untyped(odd), Cow::Borrowed(_)));
        assert_eq!(&*completed(b"{}"), br#"{"resultType":"complete"}"#);
        // The identity is removed too, and everything else stays.
        let named = br#"{"a":1,"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"x"}},"resultType":"complete"}"#;
        assert_eq!(&*untyped(named), br#"{"a":1}"#);
        let named = br#"{"_meta":{"k": 1,"io.modelcontextprotocol/serverInfo":{}},"a":1}"#;
        assert_eq!(&*untyped(named), br#"{"_meta":{"k": 1},"a":1}"#);
        // Nested ones are not ours to change.
        assert!(matches!(untyped(br#"{"x":{"resultType":"complete"}}"#), Cow::Borrowed(_)));
        // An older server cannot ask for input this way.
        assert_eq!(
            &*completed(br#"{"resultType":"input_required"}"#),
            br#"{"resultType":"complete"}"#
        );
        assert_eq!(&*completed(b"7"), b"7");
    }

    #[test]
    fn result_types_are_distinguished() {
        assert_eq!(kind(b"{}"), Kind::Complete);
        assert_eq!(kind(br#"{"resultType":"complete","content":[]}"#), Kind::Complete);
        assert_eq!(kind(br#"{"a":1,"resultType":"input_required"}"#), Kind::InputRequired);
        assert_eq!(kind(br#"{"resultType":"task"}"#), Kind::Unknown("task".into()));
        assert_eq!(kind(br#"{"resultType":null}"#), Kind::Unknown("null".into()));
        assert!(matches!(
            kind(br#"{"resultType":"complete" ,"resultType":"x"}"#),
            Kind::Unknown(_)
        ));
    }

    #[test]
    fn hints_of_another_are_kept() {
        let own = br#"{"tools":[],"ttlMs":5,"cacheScope":"public"}"#;
        assert!(matches!(hinted(own), Cow::Borrowed(_)));
        assert_eq!(&*hinted(br#"{"a":1}"#), br#"{"a":1,"ttlMs":0,"cacheScope":"private"}"#);
        let asks = br#"{"resultType":"input_required"}"#;
        assert_eq!(&*hinted(asks), asks, "questions are never kept");
        assert!(is_cacheable("resources/read") && !is_cacheable("tools/call"));
    }

    #[test]
    fn lists_and_discovery_carry_hints() {
        assert_eq!(
            cacheable(br#"{"tools":[]}"#, 5, true),
            br#"{"tools":[],"ttlMs":5,"cacheScope":"public","resultType":"complete"}"#
        );
        assert_eq!(cache_hints(br#"{"ttlMs":5,"cacheScope":"public"}"#), (5, true));
        assert_eq!(cache_hints(br#"{"ttlMs":-5}"#), (0, false));
        let value: serde_json::Value =
            serde_json::from_slice(&discovery(&json!({"tools": {}}), "Hi.", "3")).unwrap();
        assert_eq!(value["supportedVersions"][0], "2026-07-28");
        assert_eq!(value["_meta"][SERVER_INFO]["version"], "3");
        assert_eq!(
            (value["cacheScope"].as_str(), value["resultType"].as_str()),
            (Some("private"), Some("complete"))
        );
    }
}
