//! TLS: nothing in plain text, and a replaced certificate is used without a restart.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use metamcp_testkit::{Workspace, chaos_server, eventually};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use serde_json::json;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, crypto};

use crate::served::{Served, initialize};
use crate::wire::{PATIENCE, Request, Response};

fn certificate(cert: &Path, key: &Path) -> CertificateDer<'static> {
    let CertifiedKey { cert: made, signing_key } =
        generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    fs::write(key, signing_key.serialize_pem()).unwrap();
    fs::write(cert, made.pem()).unwrap();
    made.der().clone()
}

/// Sends a request to a server that must present this certificate.
fn send(
    served: &Served,
    trusted: &CertificateDer<'static>,
    request: &Request,
) -> Result<Response, String> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let socket = TcpStream::connect(served.address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut stream = StreamOwned::new(connection, socket);
    stream.write_all(&request.bytes(served.address)).map_err(|error| error.to_string())?;
    Ok(Response::read(Box::new(stream)))
}

#[test]
fn a_replaced_certificate_is_used_without_a_restart() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("a", chaos_server(&[]));
    let (cert, key) = (workspace.file("cert.pem"), workspace.file("key.pem"));
    let first = certificate(&cert, &key);
    let flags =
        ["--tls", "--tls-cert", &cert.to_string_lossy(), "--tls-key", &key.to_string_lossy()];
    let served = Served::start_in(workspace, &flags);
    assert!(served.url.starts_with("https://"), "{}", served.url);
    let hello = Request::post(&initialize("2025-11-25", &json!({})));
    let mut answer = send(&served, &first, &hello).unwrap();
    assert_eq!(answer.json()["result"]["protocolVersion"], "2025-11-25");
    // A certificate without its key is not used; the old pair stays.
    fs::write(&cert, "nothing").unwrap();
    assert!(send(&served, &first, &hello).is_ok());
    let second = certificate(&cert, &key);
    assert!(eventually(PATIENCE, || send(&served, &second, &hello).is_ok()));
    assert!(send(&served, &first, &hello).is_err());
    served.end();
}
