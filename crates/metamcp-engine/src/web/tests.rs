//! The HTTP client against a real server: protocol negotiation, connection reuse, certificates.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Method, Version};
use hyper_util::rt::TokioIo;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::{ServerConfig, pki_types::PrivateKeyDer};

use super::*;

/// A server that speaks these protocols; its address, its certificate in a file, and how many connections it took.
async fn server(protocols: &[&str]) -> (Address, tempfile::NamedTempFile, Arc<AtomicUsize>) {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), cert.pem()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let address = Address::parse(&format!("https://localhost:{port}/x")).unwrap();
    let (taken, acceptor) = (Arc::new(AtomicUsize::new(0)), TlsAcceptor::from(Arc::new(config)));
    let counted = Arc::clone(&taken);
    tokio::spawn(async move {
        loop {
            let Ok((socket, _)) = listener.accept().await else { return };
            counted.fetch_add(1, Ordering::SeqCst);
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(socket).await else { return };
                let newer = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                let answer = service_fn(|request: Request<Incoming>| async move {
                    let body = web_body(request).await;
                    Ok::<_, Infallible>(Response::new(http_body_util::Full::new(body)))
                });
                if newer {
                    let serving = http2::Builder::new(TokioExecutor::new());
                    drop(serving.serve_connection(TokioIo::new(stream), answer).await);
                } else {
                    let serving = http1::Builder::new();
                    drop(serving.serve_connection(TokioIo::new(stream), answer).await);
                }
            });
        }
    });
    (address, file, taken)
}

async fn web_body(request: Request<Incoming>) -> Bytes {
    read_body(request.into_body(), 1 << 20).await.unwrap_or_default()
}

fn plan(file: &tempfile::NamedTempFile) -> ClientOptions {
    let ca = Some(file.path().to_owned());
    let tls = TlsFiles { ca, ..TlsFiles::default() };
    ClientOptions { http2: true, tls, ..ClientOptions::new(Duration::from_secs(5), 4) }
}

async fn echo(web: &Web, address: &Address, body: &str) -> (Version, String) {
    let body = Outgoing::of(Bytes::copy_from_slice(body.as_bytes()));
    let request = request(Method::POST, address, HeaderMap::new(), body).unwrap();
    let response = web.send(request).await.unwrap();
    let version = response.version();
    let text = read_body(response.into_body(), 1 << 20).await.unwrap();
    (version, String::from_utf8(text.to_vec()).unwrap())
}

#[tokio::test]
async fn http2_is_used_where_offered_and_shares_one_connection() {
    let (address, file, taken) = server(&["h2", "http/1.1"]).await;
    let web = Web::new(plan(&file)).unwrap();
    assert_eq!(echo(&web, &address, "first").await, (Version::HTTP_2, "first".to_owned()));
    let many: Vec<_> = (0..20)
        .map(|number| {
            let (web, address) = (web.clone(), address.clone());
            tokio::spawn(async move { echo(&web, &address, &number.to_string()).await })
        })
        .collect();
    for (number, one) in many.into_iter().enumerate() {
        assert_eq!(one.await.unwrap(), (Version::HTTP_2, number.to_string()));
    }
    assert_eq!(taken.load(Ordering::SeqCst), 1);
    let (address, file, taken) = server(&["http/1.1"]).await;
    let web = Web::new(plan(&file)).unwrap();
    for _ in 0..5 {
        assert_eq!(echo(&web, &address, "x").await.0, Version::HTTP_11);
    }
    assert_eq!(taken.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn an_unknown_certificate_is_refused_and_nothing_is_sent() {
    let (address, _, _) = server(&["h2"]).await;
    let web = Web::new(ClientOptions::new(Duration::from_secs(5), 1)).unwrap();
    let body = Outgoing::of(Bytes::from_static(b"secret"));
    let request = request(Method::POST, &address, HeaderMap::new(), body).unwrap();
    let error = web.send(request).await.unwrap_err();
    assert!(matches!(error.kind, SendErrorKind::Insecure { .. }), "{error:?}");
    assert!(!error.sent);
}
