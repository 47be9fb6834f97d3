//! How a connection begins in either era, on both sides, without I/O: `initialize`, or `server/discover` as a probe.
//! Owns: what is offered and accepted, the peer's identity.      Never: waits, sends, retries.
//! In: raw `initialize` params, results and errors.  Out: the bytes to send, a `Peer`, or a `Probed`.
//! Tests: below.

use serde_json::{Value, json};

use crate::era::{self, Era, Revision, ServerEra, ServerSaid};
use crate::object::{pick, text};

/// Longest name, title or version of a peer that is stored: it is shown to people and models.
const MAX_LABEL: usize = 200;

/// Longest instructions of a server that are stored: they are passed on unchanged, and some are whole manuals.
const MAX_INSTRUCTIONS: usize = 64 * 1024;

/// The peer of a connection, as it describes itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Peer {
    pub era: Era,
    pub name: String,
    pub title: Option<String>,
    /// What it says it is for.
    pub description: Option<String>,
    pub version: String,
    pub capabilities: Value,
    pub instructions: Option<String>,
}

impl Peer {
    /// Whether it declared a capability, such as `tools` or `sampling`.
    pub fn can(&self, capability: &str) -> bool {
        self.capabilities.get(capability).is_some_and(Value::is_object)
    }

    /// Whether it declared a part of a capability, such as `listChanged` of `prompts`.
    pub fn can_also(&self, capability: &str, part: &str) -> bool {
        self.capabilities.get(capability).and_then(|all| all.get(part)) == Some(&Value::Bool(true))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("it answered initialize with error {code}: {message}")]
    Error { code: i64, message: String },
    #[error("it speaks protocol revision {offered:?}, and this gateway speaks {}", known())]
    Version { offered: String },
    /// Its response is not an `initialize` result.
    #[error("its answer to initialize has no usable {missing}")]
    Malformed { missing: &'static str },
    /// A client's `initialize` lacks something.
    #[error("the request initialize has no usable {missing}")]
    Incomplete { missing: &'static str },
}

fn known() -> String {
    Era::supported().collect::<Vec<_>>().join(", ")
}

/// The `initialize` params we send to a server. `capabilities` are those of the client on whose behalf it is
/// started: a server must not see a capability that no client behind us has.
pub fn opening(capabilities: &Value, our_version: &str) -> Vec<u8> {
    json!({
        "protocolVersion": Revision::LATEST.name(),
        "capabilities": capabilities,
        "clientInfo": { "name": "metamcp", "title": "metamcp gateway", "version": our_version },
    })
    .to_string()
    .into_bytes()
}

/// The extension of hosts that show pages.
const APPS: &str = "io.modelcontextprotocol/ui";

/// The capabilities of a client that can be passed on to servers, as the client wrote them.
pub fn relayed_capabilities(client: &Value) -> Value {
    let mut relayed = serde_json::Map::new();
    for name in ["roots", "sampling", "elicitation"] {
        if let Some(value) = client.get(name).filter(|value| value.is_object()) {
            relayed.insert(name.to_owned(), value.clone());
        }
    }
    // Servers with pages have other tools for hosts that show them.
    let shows_apps = client.get("extensions").and_then(|all| all.get(APPS));
    if let Some(value) = shows_apps.filter(|value| value.is_object()) {
        relayed.insert("extensions".to_owned(), serde_json::json!({ APPS: value }));
    }
    Value::Object(relayed)
}

/// Parses a server's `initialize` result.
pub fn opened(result: &[u8]) -> Result<Peer, Refusal> {
    let malformed = |missing| Refusal::Malformed { missing };
    let [version, capabilities, info, instructions] =
        pick(result, ["protocolVersion", "capabilities", "serverInfo", "instructions"])
            .map_err(|_| malformed("object"))?;
    let version = version.and_then(text).ok_or(malformed("protocolVersion"))?;
    let ServerEra::Is(era) = era::of_server(ServerSaid::Agreed(&version)) else {
        return Err(Refusal::Version { offered: label(&version) });
    };
    // Some servers write null or nothing here; they have no capabilities, which is no reason to refuse them.
    let capabilities =
        capabilities.and_then(|raw| serde_json::from_slice(raw).ok()).unwrap_or(Value::Null);
    let opened = peer(era, capabilities, info);
    Ok(Peer { instructions: instructions.and_then(manual), ..opened })
}

/// Parses a server's error response to `initialize`.
pub fn refused(error: &[u8]) -> Refusal {
    let (code, message) = error_parts(error);
    Refusal::Error { code, message }
}

/// The code and the message of an error response, the latter sanitized and truncated.
pub fn error_parts(error: &[u8]) -> (i64, String) {
    let [code, message] = pick(error, ["code", "message"]).unwrap_or([None, None]);
    let code = code.and_then(|raw| std::str::from_utf8(raw).ok()?.parse().ok()).unwrap_or(0);
    (code, message.and_then(text).map(|text| label(&text)).unwrap_or_default())
}

/// What a server's response to the probe `server/discover` means.
#[derive(Clone, Debug, PartialEq)]
pub enum Probed {
    Stateless(Box<Peer>),
    /// It requires `initialize`.
    Legacy,
    /// It refused the version of the probe, and lists that version as supported: worth one retry.
    Again,
    /// It belongs to the stateless era, without a common version.
    Refused(Refusal),
}

/// Parses a server's `server/discover` result. An invalid one comes from an older server that answers
/// any method with anything.
pub fn discovered(result: &[u8]) -> Probed {
    let picked = pick(result, ["supportedVersions", "capabilities", "_meta", "instructions"]);
    let Ok([Some(versions), capabilities, meta, instructions]) = picked else {
        return unanswered();
    };
    if !versions.starts_with(b"[") {
        return unanswered();
    }
    let era = match supported(versions) {
        Ok(era) => era,
        Err(other) => return other,
    };
    let info = meta.and_then(|meta| pick(meta, [crate::modern::meta::SERVER_INFO]).ok()?[0]);
    let capabilities =
        capabilities.and_then(|raw| serde_json::from_slice(raw).ok()).unwrap_or(Value::Null);
    let found = peer(era, capabilities, info);
    Probed::Stateless(Box::new(Peer { instructions: instructions.and_then(manual), ..found }))
}

/// Parses a server's error response to `server/discover`. Only an error of the stateless era shows that it belongs there;
/// older servers answer with all kinds of other errors.
pub fn undiscovered(error: &[u8]) -> Probed {
    let refusal = refused(error);
    let Refusal::Error { code, .. } = &refusal else { return unanswered() };
    match *code {
        crate::modern::UNSUPPORTED_VERSION => {
            let data = pick(error, ["data"]).ok().and_then(|[data]| data);
            let versions = data.and_then(|data| pick(data, ["supported"]).ok()?[0]);
            match versions {
                Some(versions) => supported(versions).err().unwrap_or(Probed::Again),
                None => Probed::Refused(refusal),
            }
        }
        crate::modern::MISSING_CAPABILITY | crate::modern::HEADER_MISMATCH => {
            Probed::Refused(refusal)
        }
        _ => unanswered(),
    }
}

/// For a server that did not answer `server/discover`, or with something unreadable.
pub fn unanswered() -> Probed {
    probed(ServerSaid::Nothing).err().unwrap_or(Probed::Legacy)
}

/// What follows from a server's list of supported versions.
fn supported(versions: &[u8]) -> Result<Era, Probed> {
    let names: Vec<_> = crate::object::elements(versions).filter_map(text).take(64).collect();
    let names: Vec<&str> = names.iter().map(|name| &**name).collect();
    probed(ServerSaid::Supports(&names))
}

fn probed(said: ServerSaid<'_>) -> Result<Era, Probed> {
    match (era::of_server(said), said) {
        (ServerEra::Is(era), _) => Ok(era),
        (ServerEra::Foreign, ServerSaid::Supports(names)) => {
            Err(Probed::Refused(Refusal::Version { offered: label(&names.join(", ")) }))
        }
        _ => Err(Probed::Legacy),
    }
}

/// Parses a client's `initialize` params, and decides the revision.
pub fn accept(params: &[u8]) -> Result<Peer, Refusal> {
    let incomplete = |missing| Refusal::Incomplete { missing };
    let [version, capabilities, info] =
        pick(params, ["protocolVersion", "capabilities", "clientInfo"])
            .map_err(|_| incomplete("params"))?;
    let version = version.and_then(text).ok_or(incomplete("protocolVersion"))?;
    let capabilities =
        capabilities.and_then(|raw| serde_json::from_slice(raw).ok()).unwrap_or(Value::Null);
    Ok(peer(era::of_initialize(&version), capabilities, info))
}

fn peer(era: Era, capabilities: Value, info: Option<&[u8]>) -> Peer {
    let wanted = ["name", "title", "version", "description"];
    let [name, title, version, description] =
        info.and_then(|raw| pick(raw, wanted).ok()).unwrap_or([None; 4]);
    let read = |raw: Option<&[u8]>| raw.and_then(text).map(|text| label(&text));
    Peer {
        era,
        name: read(name).unwrap_or_default(),
        title: read(title).filter(|title| !title.is_empty()),
        version: read(version).unwrap_or_default(),
        capabilities,
        description: description.and_then(manual).filter(|text| !text.is_empty()),
        instructions: None,
    }
}

fn manual(raw: &[u8]) -> Option<String> {
    let text = text(raw)?;
    let end = text.char_indices().nth(MAX_INSTRUCTIONS).map_or(text.len(), |(at, _)| at);
    Some(text[..end].to_owned()).filter(|text| !text.is_empty())
}

fn label(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MAX_LABEL).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_read_whatever_it_leaves_out() {
        let peer = opened(br#"{"protocolVersion":"2024-11-05","capabilities":null}"#).unwrap();
        assert_eq!(peer.era, Era::Initialize(Revision::V2024_11_05));
        assert!(!peer.can("tools"));
        let peer = opened(
            br#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"n","title":"T","version":"1"}}"#,
        )
        .unwrap();
        assert!(peer.can("tools"));
        assert_eq!((peer.name.as_str(), peer.title.as_deref()), ("n", Some("T")));
    }

    #[test]
    fn an_unknown_revision_of_a_server_is_refused_by_name() {
        let refusal = opened(br#"{"protocolVersion":"1999-01-01"}"#).unwrap_err();
        assert_eq!(refusal, Refusal::Version { offered: "1999-01-01".into() });
        assert!(refusal.to_string().contains("2025-11-25"));
        assert!(opened(b"{}").is_err());
        assert!(opened(b"7").is_err());
    }

    #[test]
    fn a_client_with_an_unknown_revision_gets_ours() {
        let peer = accept(br#"{"protocolVersion":"2099-01-01","capabilities":{}}"#).unwrap();
        assert_eq!(peer.era, Era::Initialize(Revision::LATEST));
    }

    #[test]
    fn a_probe_tells_the_eras_apart_whatever_the_error() {
        let modern = discovered(
            br#"{"supportedVersions":["2027-01-01","2026-07-28"],"capabilities":{"tools":{}},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"n","version":"2"}}}"#,
        );
        let Probed::Stateless(peer) = modern else { panic!("{modern:?}") };
        assert_eq!((peer.era, peer.name.as_str()), (Era::Stateless, "n"));
        assert!(peer.can("tools"));
        for legacy in [
            "{}",
            "7",
            "null",
            r#"{"supportedVersions":7}"#,
            r#"{"supportedVersions":["2025-06-18"]}"#,
        ] {
            assert_eq!(discovered(legacy.as_bytes()), Probed::Legacy, "{legacy}");
        }
        for legacy in [
            r#"{"code":-32601,"message":"no"}"#,
            r#"{"code":-32602,"message":"no"}"#,
            r#"{"code":0}"#,
            r#"{"code":-32022,"message":"no","data":{"supported":["1999-01-01","2025-11-25"]}}"#,
        ] {
            assert_eq!(undiscovered(legacy.as_bytes()), Probed::Legacy, "{legacy}");
        }
        let again = br#"{"code":-32022,"message":"no","data":{"supported":["2026-07-28"]}}"#;
        assert_eq!(undiscovered(again), Probed::Again);
        for refused in [
            r#"{"code":-32022,"message":"no","data":{"supported":["2030-01-01"]}}"#,
            r#"{"code":-32022,"message":"no"}"#,
            r#"{"code":-32021,"message":"no"}"#,
        ] {
            assert!(matches!(undiscovered(refused.as_bytes()), Probed::Refused(_)), "{refused}");
        }
        assert!(matches!(
            discovered(br#"{"supportedVersions":["2030-01-01"]}"#),
            Probed::Refused(_)
        ));
    }

    #[test]
    fn only_what_can_be_relayed_is_declared() {
        let client = json!({"roots": {"listChanged": true}, "elicitation": {}, "tasks": {}, "sampling": null});
        assert_eq!(
            relayed_capabilities(&client),
            json!({"roots": {"listChanged": true}, "elicitation": {}})
        );
    }
}
