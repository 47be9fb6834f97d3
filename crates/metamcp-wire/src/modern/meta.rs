//! `_meta` of requests: reading the client's, writing ours.

use std::sync::LazyLock;

use memchr::memmem::Finder;
use serde_json::Value;

use super::Fault;
use crate::era::STATELESS;
use crate::object::{members, pick, text, without_member};
use crate::write::json_string;

/// The protocol version.
pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// The client.
pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
/// The client's capabilities.
pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// The minimum log level for this request.
pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// The server.
pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
/// The subscription of a notification.
pub const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// The log levels of the protocol, least important first.
pub const LEVELS: [&str; 8] =
    ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

/// `_meta` of a request of the stateless era.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta<'a> {
    pub raw: &'a [u8],
    pub capabilities: &'a [u8],
    pub client: Option<&'a [u8]>,
    /// The minimum log level, as an index into [`LEVELS`].
    pub level: Option<usize>,
    pub progress: Option<&'a [u8]>,
}

/// Built once: building the searcher takes longer than searching a usual request.
static WORDS: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(PROTOCOL_VERSION));

/// Whether a request names its version in `_meta`. [`crate::era`] decides what follows from that.
pub(crate) fn names_version(params: Option<&[u8]>) -> bool {
    // One substring search settles most requests; the few that contain the name somewhere are parsed.
    params.is_some_and(|params| {
        WORDS.find(params).is_some()
            && pick(params, ["_meta"])
                .is_ok_and(|[meta]| meta.is_some_and(|meta| mentions(meta, PROTOCOL_VERSION)))
    })
}

/// Parses `_meta` of a request that is known to be of the stateless era.
pub fn require(params: Option<&[u8]>) -> Result<Meta<'_>, Fault> {
    let missing = |what: &str| Fault::invalid(format!("the request has no {what} in its _meta"));
    let unusable = |defect| Fault::invalid(format!("_meta cannot be used: {defect}"));
    let params = params.ok_or_else(|| missing(PROTOCOL_VERSION))?;
    let [raw] = pick(params, ["_meta"]).map_err(unusable)?;
    let raw = raw.ok_or_else(|| missing(PROTOCOL_VERSION))?;
    let [version, client, capabilities, level, progress] =
        pick(raw, [PROTOCOL_VERSION, CLIENT_INFO, CLIENT_CAPABILITIES, LOG_LEVEL, "progressToken"])
            .map_err(unusable)?;
    let version = version.ok_or_else(|| missing(PROTOCOL_VERSION))?;
    let version = text(version)
        .ok_or_else(|| Fault::invalid(format!("{PROTOCOL_VERSION} must be a string")))?;
    if version != STATELESS {
        return Err(Fault::unsupported(&version));
    }
    let capabilities = capabilities.ok_or_else(|| missing(CLIENT_CAPABILITIES))?;
    if !capabilities.starts_with(b"{") {
        return Err(Fault::invalid(format!("{CLIENT_CAPABILITIES} must be an object")));
    }
    if client.is_some_and(|client| !client.starts_with(b"{")) {
        return Err(Fault::invalid(format!("{CLIENT_INFO} must be an object")));
    }
    let level = level.map(|level| {
        text(level).and_then(|level| LEVELS.iter().position(|known| *known == level)).ok_or_else(
            || Fault::invalid(format!("{LOG_LEVEL} must be one of {}", LEVELS.join(", "))),
        )
    });
    Ok(Meta { raw, capabilities, client, level: level.transpose()?, progress })
}

/// `_meta` without the members that describe the client's own request: they are for us, not for the server.
pub fn stripped(meta: &[u8]) -> Vec<u8> {
    let mut rest = meta.to_vec();
    for key in [PROTOCOL_VERSION, CLIENT_INFO, CLIENT_CAPABILITIES, LOG_LEVEL] {
        if mentions(&rest, key) {
            rest = without_member(&rest, key);
        }
    }
    rest
}

/// `_meta` for a request of ours to a server of the stateless era: the client's, with our identity and capabilities.
pub fn ours(meta: &[u8], capabilities: &[u8], level: Option<&[u8]>, our_version: &str) -> Vec<u8> {
    let mut out = stripped(meta);
    let close = memchr::memrchr(b'}', &out).unwrap_or(0);
    out.truncate(close);
    if out.is_empty() {
        out.push(b'{');
    } else if members(&out).next().is_some() {
        out.push(b',');
    }
    out.extend_from_slice(br#""io.modelcontextprotocol/protocolVersion":""#);
    out.extend_from_slice(STATELESS.as_bytes());
    out.extend_from_slice(br#"","io.modelcontextprotocol/clientInfo":{"name":"metamcp","title":"metamcp gateway","version":"#);
    json_string(&mut out, our_version);
    out.extend_from_slice(br#"},"io.modelcontextprotocol/clientCapabilities":"#);
    out.extend_from_slice(capabilities);
    if let Some(level) = level {
        out.extend_from_slice(br#","io.modelcontextprotocol/logLevel":"#);
        out.extend_from_slice(level);
    }
    out.push(b'}');
    out
}

/// The union of the capabilities of several clients.
pub fn merged(mut known: Value, more: &Value) -> Value {
    match (&mut known, more) {
        (Value::Object(known), Value::Object(more)) => {
            for (name, value) in more {
                let before = known.remove(name).unwrap_or(Value::Null);
                known.insert(name.clone(), merged(before, value));
            }
        }
        (Value::Null, more) => return more.clone(),
        _ => {}
    }
    known
}

fn mentions(object: &[u8], key: &str) -> bool {
    members(object).any(|(name, _)| name == key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const GOOD: &str = r#"{"name":"x","_meta":{"progressToken":"t","io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}},"io.modelcontextprotocol/logLevel":"warning","own":1}}"#;

    #[test]
    fn a_request_names_its_version_in_meta_alone() {
        assert!(names_version(Some(GOOD.as_bytes())));
        assert!(!names_version(None));
        for legacy in [
            "{}",
            r#"{"_meta":{}}"#,
            r#"{"_meta":{"progressToken":1}}"#,
            // Containing the name alone does not make it one.
            r#"{"arguments":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#,
            r#"{"_meta":{"x":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#,
        ] {
            assert!(!names_version(Some(legacy.as_bytes())), "{legacy}");
        }
    }

    #[test]
    fn what_it_says_is_read() {
        let meta = require(Some(GOOD.as_bytes())).unwrap();
        assert_eq!(meta.capabilities, br#"{"elicitation":{}}"#);
        assert_eq!(meta.level, Some(3));
        assert_eq!(meta.progress, Some(&br#""t""#[..]));
        assert_eq!(stripped(meta.raw), br#"{"progressToken":"t","own":1}"#);
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        let meta = |inner: &str| format!(r#"{{"_meta":{{{inner}}}}}"#);
        let version = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28""#;
        let able = r#""io.modelcontextprotocol/clientCapabilities":{}"#;
        for (params, code) in [
            ("{}".to_owned(), -32602),
            (meta(""), -32602),
            (meta(version), -32602),
            (meta(able), -32602),
            (meta(&format!("{version},{version},{able}")), -32602),
            (meta(&format!(r#"{version},"io.modelcontextprotocol/clientCapabilities":7"#)), -32602),
            (
                meta(&format!(r#"{version},{able},"io.modelcontextprotocol/logLevel":"loud""#)),
                -32602,
            ),
            (meta(&format!(r#"{version},{able},"io.modelcontextprotocol/clientInfo":[]"#)), -32602),
            (
                meta(&format!(r#""io.modelcontextprotocol/protocolVersion":"2025-11-25",{able}"#)),
                -32022,
            ),
            (meta(&format!(r#""io.modelcontextprotocol/protocolVersion":7,{able}"#)), -32602),
        ] {
            let fault = require(Some(params.as_bytes())).unwrap_err();
            assert_eq!((fault.code, fault.status), (code, 400), "{params}");
        }
        assert!(require(None).is_err());
    }

    #[test]
    fn our_meta_replaces_the_clients_and_keeps_the_rest() {
        let ours = ours(
            br#"{"traceparent":"00-1","io.modelcontextprotocol/protocolVersion":"1"}"#,
            br#"{"roots":{}}"#,
            Some(br#""info""#),
            "9",
        );
        let ours: Value = serde_json::from_slice(&ours).unwrap();
        assert_eq!(
            ours,
            json!({
                "traceparent": "00-1",
                PROTOCOL_VERSION: "2026-07-28",
                CLIENT_INFO: {"name": "metamcp", "title": "metamcp gateway", "version": "9"},
                CLIENT_CAPABILITIES: {"roots": {}},
                LOG_LEVEL: "info",
            })
        );
    }

    #[test]
    fn abilities_add_up() {
        let both = merged(
            json!({"elicitation": {"url": {}}}),
            &json!({"roots": {}, "elicitation": {"form": {}}}),
        );
        assert_eq!(both, json!({"elicitation": {"url": {}, "form": {}}, "roots": {}}));
        assert_eq!(merged(Value::Null, &json!({"roots": {}})), json!({"roots": {}}));
    }
}
