//! TLS to remote servers: certificates that are invalid in every way, a private CA, a client certificate.

use std::fs;
use std::io;
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;

use metamcp_testkit::site::honest::RemoteTransport;
use metamcp_testkit::site::{Answerer, HonestServer, Site, Wire};
use metamcp_testkit::{CallOutcome, Workspace};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use serde_json::json;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned, crypto};

use crate::world::{Gateway, HUNG, Remote};

/// A private certificate authority.
fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A certificate of that authority for these names.
fn issued(
    authority: &CertifiedIssuer<'static, KeyPair>,
    names: &[&str],
    change: impl FnOnce(&mut CertificateParams),
) -> (rcgen::Certificate, KeyPair) {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    change(&mut params);
    let key = KeyPair::generate().unwrap();
    (params.signed_by(&key, authority).unwrap(), key)
}

/// A correct server with this certificate; with `clients`, it requires a client certificate of that authority.
fn server(
    certificate: &(rcgen::Certificate, KeyPair),
    clients: Option<&CertifiedIssuer<'static, KeyPair>>,
) -> Site {
    let honest = HonestServer::new(RemoteTransport::NoSessions, true);
    served(certificate, clients, Arc::new(move |asked, exchange| honest.answer(asked, exchange)))
}

/// The same for a server with its own answerer.
fn served(
    certificate: &(rcgen::Certificate, KeyPair),
    clients: Option<&CertifiedIssuer<'static, KeyPair>>,
    answerer: Arc<Answerer>,
) -> Site {
    let provider = Arc::new(crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add(authority.der().clone()).unwrap();
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.unwrap())
        }
    };
    let chain: Vec<CertificateDer<'static>> = vec![certificate.0.der().clone()];
    let key = PrivateKeyDer::try_from(certificate.1.serialize_der()).unwrap();
    let config = Arc::new(builder.with_single_cert(chain, key).unwrap());
    let wrap = move |socket: TcpStream| -> io::Result<Box<dyn Wire>> {
        let connection = ServerConnection::new(Arc::clone(&config)).map_err(io::Error::other)?;
        Ok(Box::new(StreamOwned::new(connection, socket)))
    };
    Site::start_on("127.0.0.1:0", answerer, Arc::new(wrap)).unwrap()
}

fn write(workspace: &Workspace, name: &str, text: &str) -> PathBuf {
    let path = workspace.file(name);
    fs::write(&path, text).unwrap();
    path
}

#[test]
fn certificates_that_are_wrong_are_refused_for_their_own_reason() {
    let known = authority();
    let stranger = authority();
    let names = ["127.0.0.1"];
    for (certificate, reason) in [
        (issued(&stranger, &names, |_| {}), "unknown authority"),
        (issued(&known, &["example.com"], |_| {}), "another name"),
        (issued(&known, &names, |params| params.not_after = date_time_ymd(2020, 1, 1)), "expired"),
        (
            issued(&known, &names, |params| params.not_before = date_time_ymd(2090, 1, 1)),
            "not valid yet",
        ),
    ] {
        let site = server(&certificate, None);
        let mut workspace = Workspace::new().unwrap();
        let ca = write(&workspace, "ca.pem", &known.pem());
        let url = format!("https://{}/mcp", site.address());
        workspace.entry("far", json!({ "url": url, "tls": { "ca": ca } }));
        // The circuit breaker would return another error to later calls.
        workspace.setting("pool", json!({ "failureThreshold": 1000 }));
        let gateway = Gateway::start(workspace);
        let error = gateway.refusal("echo", &json!({"text": "x"}));
        assert_eq!(error.code, "server_unavailable", "{}", error.whole);
        assert_eq!(error.category.as_deref(), Some("offline"));
        assert!(error.message.contains(reason), "{reason}: {}", error.message);
        let call = |number: usize| {
            let text = number.to_string();
            gateway.mcp_call("far", "echo", &json!({ "text": text })).unwrap()
        };
        let crowd: Vec<u64> = (0..64).map(call).collect();
        for call in crowd {
            let outcome = CallOutcome::of(&gateway.wait(call, HUNG).unwrap().value);
            assert_eq!(outcome.code(), Some("server_unavailable"), "{outcome}");
        }
        assert!(site.requests().is_empty(), "nothing is said to a stranger");
        gateway.end();
    }
}

#[test]
fn a_server_without_tls_is_not_spoken_to_in_the_clear() {
    let plain = Remote::honest(RemoteTransport::NoSessions, false);
    let gateway = Gateway::to(&format!("https://{}/mcp", plain.site.address()));
    let error = gateway.refusal("echo", &json!({"text": "x"}));
    assert_eq!(error.code, "server_unavailable", "{}", error.whole);
    assert!(plain.honest.executed().is_empty());
    gateway.end();
}

#[test]
fn nobody_is_sent_on_from_tls_into_the_clear() {
    let known = authority();
    let plain = Remote::honest(RemoteTransport::NoSessions, false);
    let there = format!("http://{}/mcp", plain.site.address());
    let site = served(
        &issued(&known, &["127.0.0.1"], |_| {}),
        None,
        Arc::new(move |_, exchange| exchange.respond(307, &[("location", &there)], b"")),
    );
    let mut workspace = Workspace::new().unwrap();
    let ca = write(&workspace, "ca.pem", &known.pem());
    let url = format!("https://{}/mcp", site.address());
    workspace.entry("far", json!({ "url": url, "tls": { "ca": ca } }));
    let gateway = Gateway::start(workspace);
    let error = gateway.refusal("echo", &json!({"text": "x"}));
    assert!(error.message.contains("which is not encrypted"), "{}", error.whole);
    assert!(!site.requests().is_empty());
    assert!(plain.site.requests().is_empty(), "not a word in the clear");
    gateway.end();
}

#[test]
fn an_authority_of_ones_own_and_a_certificate_of_ours() {
    let known = authority();
    let certificate = issued(&known, &["127.0.0.1"], |_| {});
    let ours = issued(&known, &["us"], |_| {});
    let mut workspace = Workspace::new().unwrap();
    let ca = write(&workspace, "ca.pem", &known.pem());
    let cert = write(&workspace, "cert.pem", &ours.0.pem());
    let key = write(&workspace, "key.pem", &ours.1.serialize_pem());
    let open = server(&certificate, None);
    let strict = server(&certificate, Some(&known));
    let url = |site: &Site| format!("https://{}/mcp", site.address());
    workspace.entry("far", json!({ "url": url(&open), "tls": { "ca": ca } }));
    workspace.entry(
        "strict",
        json!({ "url": url(&strict), "tls": { "ca": ca, "cert": cert, "key": key } }),
    );
    workspace.entry("without", json!({ "url": url(&strict), "tls": { "ca": ca } }));
    workspace.entry("missing", json!({ "url": url(&open), "tls": { "ca": "/nowhere/ca.pem" } }));
    let gateway = Gateway::start(workspace);
    for _ in 0..3 {
        gateway.echo("x");
    }
    let ask = |server: &str| {
        let answer = gateway.mcp_call_now(server, "echo", &json!({"text": "x"}), HUNG).unwrap();
        CallOutcome::of(&answer.value)
    };
    assert_eq!(ask("strict"), CallOutcome::Success);
    assert_eq!(ask("without").code(), Some("server_unavailable"));
    let missing = ask("missing");
    assert_eq!(missing.code(), Some("server_unavailable"));
    assert!(missing.to_string().contains("/nowhere/ca.pem"), "{missing}");
    gateway.end();
}
