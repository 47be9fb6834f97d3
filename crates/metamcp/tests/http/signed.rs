//! Signed tokens (JWT): only those of our issuer and for our audience are accepted.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use metamcp_testkit::site::{Exchange, ReceivedRequest, Site};
use metamcp_testkit::{EventKind, Workspace, chaos_server, eventually};
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde_json::{Value, json};

use crate::served::{Served, initialize};
use crate::wire::Request;

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn key(seed: u8) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap()
}

fn token(key: &Ed25519KeyPair, claims: &Value) -> String {
    let header = encode(json!({"alg": "EdDSA", "typ": "JWT"}).to_string().as_bytes());
    let signed = format!("{header}.{}", encode(claims.to_string().as_bytes()));
    let signature = encode(key.sign(signed.as_bytes()).as_ref());
    format!("{signed}.{signature}")
}

fn key_set(key: &Ed25519KeyPair) -> Value {
    json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "x": encode(key.public_key().as_ref())}]})
}

/// A gateway that accepts tokens signed with the keys at this address.
fn serving(workspace: Workspace, keys: &str) -> Served {
    let (issuer, us) = ("https://issuer.example.org", "https://us.example.org/mcp");
    Served::start_in(workspace, &["--jwks", keys, "--jwt-issuer", issuer, "--jwt-audience", us])
}

#[test]
fn a_token_of_our_issuer_for_us_lets_a_client_in() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("a", chaos_server(&[]));
    let (ours, theirs) = (key(1), key(2));
    let keys = workspace.file("keys.json");
    fs::write(&keys, key_set(&ours).to_string()).unwrap();
    let served = serving(workspace, &keys.to_string_lossy());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let claims = |subject: &str, audience: &str, end: u64| json!({"iss": "https://issuer.example.org", "aud": audience, "sub": subject, "exp": end});
    let us = "https://us.example.org/mcp";
    let enter = |token: &str| {
        Request::post(&initialize("2025-11-25", &json!({})))
            .with("Authorization", &format!("Bearer {token}"))
            .send(served.address)
    };
    let ada = token(&ours, &claims("ada", us, now + 600));
    let entered = enter(&ada);
    assert_eq!(entered.status, 200);
    let session = entered.header("mcp-session-id").unwrap().to_owned();
    let ping = |token: &str| {
        Request::post(&json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}))
            .with("Authorization", &format!("Bearer {token}"))
            .with("Mcp-Session-Id", &session)
            .send(served.address)
            .status
    };
    let renewed = token(&ours, &claims("ada", us, now + 1200));
    assert_eq!(ping(&renewed), 200, "a new token of the same subject is the same client");
    assert_eq!(ping(&token(&ours, &claims("eve", us, now + 600))), 404);
    for (wrong, why) in [
        (token(&theirs, &claims("ada", us, now + 600)), "keys signed it"),
        (token(&ours, &claims("ada", "https://other.example.org", now + 600)), "another audience"),
        (token(&ours, &claims("ada", us, now - 600)), "expired"),
    ] {
        let mut refused = enter(&wrong);
        assert_eq!(refused.status, 401);
        assert!(refused.text().contains(why), "{why}");
    }
    let mut metadata =
        Request::new("GET", "/.well-known/oauth-protected-resource").send(served.address);
    let metadata = metadata.json();
    assert_eq!(metadata["resource"], us);
    assert_eq!(metadata["authorization_servers"], json!(["https://issuer.example.org"]));
    assert_eq!(served.workspace.journal("a").count(EventKind::Execute).unwrap(), 0);
    served.end();
}

/// The keys come from the issuer's own address; tokens signed with other keys are rejected.
#[test]
fn keys_are_fetched_from_the_issuer() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("a", chaos_server(&[]));
    let (ours, theirs) = (key(1), key(2));
    let set = key_set(&ours);
    let issuer = Site::start(Arc::new(move |_: &ReceivedRequest, exchange: &mut Exchange<'_>| {
        exchange.json(200, &[], &set)
    }))
    .unwrap();
    let served = serving(workspace, &issuer.url("/keys"));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let claims = json!({"iss": "https://issuer.example.org", "aud": "https://us.example.org/mcp", "sub": "ada", "exp": now + 600});
    let enter = |key: &Ed25519KeyPair| {
        Request::post(&initialize("2025-11-25", &json!({})))
            .with("Authorization", &format!("Bearer {}", token(key, &claims)))
            .send(served.address)
            .status
    };
    assert!(eventually(Duration::from_secs(20), || enter(&ours) == 200), "the keys never came");
    assert_eq!(enter(&theirs), 401);
    assert_eq!(issuer.requests()[0].path(), "/keys");
    served.end();
}
