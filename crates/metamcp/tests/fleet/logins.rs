//! OAuth logins that a fleet has in common, with a real nats-server: 64 gateways, one request for a token.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use metamcp_config::config::HttpOptions;
use metamcp_config::settings::TokenStore;
use metamcp_engine::files::component;
use metamcp_engine::login::{Login, LoginStorage, SharedLogins};
use metamcp_engine::shared::FleetLogins;
use metamcp_testkit::nats::Nats;
use metamcp_types::web::Address;
use serde_json::json;

use crate::messages::{bus, run};

/// Gateways with the same login.
const GATEWAYS: usize = 64;

/// An authorization server whose refresh tokens are good for one use.
struct Issuer {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
    wrong: Arc<AtomicUsize>,
}

impl Issuer {
    fn start() -> Issuer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (asked, wrong) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (counting, refusing) = (Arc::clone(&asked), Arc::clone(&wrong));
        let valid = Arc::new(Mutex::new("refresh-0".to_owned()));
        thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                let mut socket = BufReader::new(socket);
                let (mut line, mut length) = (String::new(), 0);
                while line != "\r\n" {
                    line.clear();
                    if socket.read_line(&mut line).unwrap_or(0) == 0 {
                        break;
                    }
                    let lower = line.to_ascii_lowercase();
                    if let Some(value) = lower.strip_prefix("content-length:") {
                        length = value.trim().parse().unwrap();
                    }
                }
                let mut body = vec![0; length];
                socket.read_exact(&mut body).unwrap();
                let body = String::from_utf8(body).unwrap();
                let number = counting.fetch_add(1, Ordering::SeqCst) + 1;
                let mut valid = valid.lock().unwrap();
                let is_valid = body.contains(&format!("refresh_token={}&", *valid))
                    || body.ends_with(&format!("refresh_token={}", *valid));
                let (status, answer) = if is_valid {
                    *valid = format!("refresh-{number}");
                    (
                        "200 OK",
                        json!({
                            "access_token": format!("access-{number}"), "token_type": "Bearer",
                            "expires_in": 3600, "refresh_token": *valid,
                        }),
                    )
                } else {
                    refusing.fetch_add(1, Ordering::SeqCst);
                    ("400 Bad Request", json!({"error": "invalid_grant"}))
                };
                let answer = answer.to_string();
                let head = format!(
                    "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                    answer.len()
                );
                socket.get_mut().write_all(format!("{head}{answer}").as_bytes()).unwrap();
            }
        });
        Issuer { address, asked, wrong }
    }

    fn server(&self) -> Address {
        Address::parse(&format!("http://{}/mcp", self.address)).unwrap()
    }

    /// What the gateways have of the login: a token that is over, and how to get another.
    fn login(&self, refresh: &str) -> Vec<u8> {
        let at = format!("http://{}", self.address);
        json!({ "current": at, "entries": { &at: {
            "issuer": at, "resource": format!("{at}/mcp"), "token_endpoint": format!("{at}/token"),
            "client_id": "fleet", "client_secret": null, "client_method": "none",
            "access": "access-0", "refresh": refresh, "ends_at_ms": 1, "scopes": [],
        } } })
        .to_string()
        .into_bytes()
    }
}

fn name_of(server: &Address) -> String {
    component(&format!("{}{}", server.origin(), server.path()))
}

#[test]
fn many_gateways_refresh_a_token_once() {
    let nats = Nats::alone().unwrap();
    let issuer = Issuer::start();
    run(async {
        let server = issuer.server();
        let homes: Vec<_> = (0..GATEWAYS).map(|_| tempfile::tempdir().unwrap()).collect();
        let mut logins = Vec::new();
        for (number, home) in homes.iter().enumerate() {
            let bus = bus(&nats, &format!("node-{number}")).await;
            let shared = FleetLogins::open(&bus).await.unwrap();
            if number == 0 {
                shared.write(&name_of(&server), &issuer.login("refresh-0")).await.unwrap();
            }
            let storage = LoginStorage::new(home.path(), TokenStore::File);
            storage.share(Arc::new(shared));
            logins.push(Login::new(server.clone(), &HttpOptions::default(), &storage));
        }
        // All of them find the token expired at the same moment.
        let asking = logins.iter().map(|login| {
            let login = Arc::clone(login);
            tokio::spawn(async move { login.token().await })
        });
        for token in asking.collect::<Vec<_>>() {
            assert_eq!(token.await.unwrap().as_deref(), Some("access-1"));
        }
        assert_eq!(issuer.asked.load(Ordering::SeqCst), 1);
        assert_eq!(issuer.wrong.load(Ordering::SeqCst), 0);
        // And who comes later has it too, from the bus alone.
        let home = tempfile::tempdir().unwrap();
        let bus = bus(&nats, "late").await;
        let storage = LoginStorage::new(home.path(), TokenStore::File);
        storage.share(Arc::new(FleetLogins::open(&bus).await.unwrap()));
        let late = Login::new(server, &HttpOptions::default(), &storage);
        assert_eq!(late.token().await.as_deref(), Some("access-1"));
        assert_eq!(issuer.asked.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn a_login_that_one_gateway_forgets_is_forgotten_by_all() {
    let nats = Nats::alone().unwrap();
    let issuer = Issuer::start();
    run(async {
        let server = issuer.server();
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut logins = Vec::new();
        for (name, home) in [("one", &one), ("two", &two)] {
            let shared = FleetLogins::open(&bus(&nats, name).await).await.unwrap();
            let storage = LoginStorage::new(home.path(), TokenStore::File);
            storage.share(Arc::new(shared));
            logins.push(Login::new(server.clone(), &HttpOptions::default(), &storage));
        }
        let shared = FleetLogins::open(&bus(&nats, "three").await).await.unwrap();
        shared.write(&name_of(&server), &issuer.login("refresh-0")).await.unwrap();
        for login in &logins {
            assert_eq!(login.token().await.as_deref(), Some("access-1"));
        }
        assert!(logins[0].forget().await.unwrap());
        // The other one looks once a second.
        let gone = async {
            while logins[1].token().await.is_some() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(crate::PATIENCE, gone).await.expect("it is noticed");
        assert!(logins[1].status().await.unwrap().is_none());
    });
}

#[test]
fn nothing_on_the_bus_is_readable_without_the_key() {
    let nats = Nats::alone().unwrap();
    run(async {
        let shared = FleetLogins::open(&bus(&nats, "one").await).await.unwrap();
        shared.write("server-1", b"a-refresh-token-canary").await.unwrap();
        let stranger = async_nats::connect(nats.url()).await.unwrap();
        let jetstream = async_nats::jetstream::new(stranger);
        let stream = jetstream.get_stream("KV_metamcp_logins").await.unwrap();
        let message = stream.get_raw_message(1).await.unwrap();
        let has = |canary: &[u8]| message.payload.windows(canary.len()).any(|part| part == canary);
        assert!(!has(b"canary") && !has(b"refresh"));
        // A lease is one gateway's at a time, and the next one's when it is given back.
        let first = shared.lease("server-1").await.unwrap().unwrap();
        let other = FleetLogins::open(&bus(&nats, "two").await).await.unwrap();
        let waiting = tokio::spawn(async move { other.lease("server-1").await.unwrap().is_some() });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(first);
        assert!(waiting.await.unwrap());
    });
}
