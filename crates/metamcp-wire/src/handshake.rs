//! How a connection begins in either era, from both sides, without I/O: `initialize`, or `server/discover` as a probe.
//! Owns: what is offered, what is accepted, who the other side says it is.      Never: waits, sends, retries.
//! In: raw `initialize` params, results and errors.  Out: the bytes to send, a `Peer`, or a `Probed`.
//! Tests: below.

use serde_json::{Value, json};

use crate::era::{self, Era, Revision, ServerEra, ServerSaid};
use crate::object::{pick, text};

/// Longest name, title or version kept of a peer: it is shown to people and models.
const MAX_LABEL: usize = 200;

/// Longest instructions kept of a server: they are passed on as they are, and some are whole manuals.
const MAX_INSTRUCTIONS: usize = 64 * 1024;

/// Who is on the other side of a connection, as it says itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Peer {
    /// What the connection speaks.
    pub era: Era,
    /// Its name.
    pub name: String,
    /// Its title for people.
    pub title: Option<String>,
    /// Its version.
    pub version: String,
    /// What it can do.
    pub capabilities: Value,
    /// How it wants to be used, where it is a server that says so.
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

/// Why a handshake did not lead to a connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It answered with an error.
    #[error("it answered initialize with error {code}: {message}")]
    Error {
        /// The JSON-RPC code.
        code: i64,
        /// Its message.
        message: String,
    },
    /// It speaks a revision that we do not.
    #[error("it speaks protocol revision {offered:?}, and this gateway speaks {}", known())]
    Version {
        /// What it offered.
        offered: String,
    },
    /// Its answer is not one to `initialize`.
    #[error("its answer to initialize has no usable {missing}")]
    Malformed {
        /// What is missing.
        missing: &'static str,
    },
    /// A client's `initialize` says too little.
    #[error("the request initialize has no usable {missing}")]
    Incomplete {
        /// What is missing.
        missing: &'static str,
    },
}

fn known() -> String {
    Era::supported().collect::<Vec<_>>().join(", ")
}

/// The `initialize` params we send to a server. `capabilities` are those of the client on whose behalf it is
/// started: a server must not be told of an ability that nobody behind us has.
pub fn opening(capabilities: &Value, our_version: &str) -> Vec<u8> {
    json!({
        "protocolVersion": Revision::LATEST.name(),
        "capabilities": capabilities,
        "clientInfo": { "name": "metamcp", "title": "metamcp gateway", "version": our_version },
    })
    .to_string()
    .into_bytes()
}

/// The capabilities of a client that can be passed on to servers, as the client wrote them.
pub fn relayed_capabilities(client: &Value) -> Value {
    let mut relayed = serde_json::Map::new();
    for name in ["roots", "sampling", "elicitation"] {
        if let Some(value) = client.get(name).filter(|value| value.is_object()) {
            relayed.insert(name.to_owned(), value.clone());
        }
    }
    Value::Object(relayed)
}

/// Reads a server's answer to `initialize`.
pub fn opened(result: &[u8]) -> Result<Peer, Refusal> {
    let malformed = |missing| Refusal::Malformed { missing };
    let [version, capabilities, info, instructions] =
        pick(result, ["protocolVersion", "capabilities", "serverInfo", "instructions"])
            .map_err(|_| malformed("object"))?;
    let version = version.and_then(text).ok_or(malformed("protocolVersion"))?;
    let ServerEra::Is(era) = era::of_server(ServerSaid::Agreed(&version)) else {
        return Err(Refusal::Version { offered: label(&version) });
    };
    // Servers exist that write null or nothing here; they have no capabilities, which is no reason to refuse.
    let capabilities =
        capabilities.and_then(|raw| serde_json::from_slice(raw).ok()).unwrap_or(Value::Null);
    let opened = peer(era, capabilities, info);
    Ok(Peer { instructions: instructions.and_then(manual), ..opened })
}

/// Reads a server's error answer to `initialize`.
pub fn refused(error: &[u8]) -> Refusal {
    let (code, message) = error_parts(error);
    Refusal::Error { code, message }
}

/// The code and the message of any error answer, the latter cleaned and cut.
pub fn error_parts(error: &[u8]) -> (i64, String) {
    let [code, message] = pick(error, ["code", "message"]).unwrap_or([None, None]);
    let code = code.and_then(|raw| std::str::from_utf8(raw).ok()?.parse().ok()).unwrap_or(0);
    (code, message.and_then(text).map(|text| label(&text)).unwrap_or_default())
}

/// What a server's answer to the probe `server/discover` says about it.
#[derive(Clone, Debug, PartialEq)]
pub enum Probed {
    /// It is spoken to without a handshake.
    Stateless(Box<Peer>),
    /// It wants `initialize`.
    Legacy,
    /// It refused the revision it was asked in, and says that it speaks it: worth asking once more.
    Again,
    /// It belongs to the stateless era and will not be spoken to.
    Refused(Refusal),
}

/// Reads a server's result of `server/discover`. What does not look like one comes from a server that answers
/// anything with anything, which older ones do.
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

/// Reads a server's error answer to `server/discover`. Only an error of the stateless era says that it belongs there;
/// which other error an older server answers with differs from one to the next.
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

/// For a server that answered `server/discover` with nothing that could be read, or not at all.
pub fn unanswered() -> Probed {
    probed(ServerSaid::Nothing).err().unwrap_or(Probed::Legacy)
}

/// The era that the list of versions that a server supports leads to, or what else follows from it.
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

/// Reads a client's `initialize` params: who it is, in the revision that will be spoken with it.
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
    let [name, title, version] =
        info.and_then(|raw| pick(raw, ["name", "title", "version"]).ok()).unwrap_or([None; 3]);
    let read = |raw: Option<&[u8]>| raw.and_then(text).map(|text| label(&text));
    Peer {
        era,
        name: read(name).unwrap_or_default(),
        title: read(title).filter(|title| !title.is_empty()),
        version: read(version).unwrap_or_default(),
        capabilities,
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
