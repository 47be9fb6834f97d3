//! An authorization server and an MCP server on one site, strict about everything that may go wrong, and the person
//! who logs in there.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use metamcp_testkit::Workspace;
use metamcp_testkit::site::honest::RemoteTransport;
use metamcp_testkit::site::{Exchange, HonestServer, ReceivedRequest, Site};
use serde_json::{Value, json};

use crate::world::command;

/// Misbehaviour and requirements of the authorization server.
#[derive(Clone, Default)]
pub(crate) struct AuthBehaviour {
    /// The token lifetime it reports, in seconds; it never expires them by itself.
    pub(crate) lifetime: Option<u64>,
    /// Offers no client registration.
    pub(crate) closed: bool,
    /// Returns the wrong issuer (mix-up attack).
    pub(crate) wrong_issuer: bool,
    /// The scope that calls require.
    pub(crate) needs: Option<&'static str>,
    /// Reports an insufficient scope even if the token has it.
    pub(crate) stingy: bool,
    /// Accepts no token, however valid.
    pub(crate) blind: bool,
    /// Refuses registrations that name scopes, issues a client secret and requires it in the form, returns the token
    /// lifetime as a string and omits the token type.
    pub(crate) odd: bool,
}

#[derive(Default)]
pub(crate) struct AuthRecords {
    /// Valid access tokens, with their scopes.
    pub(crate) good: BTreeMap<String, String>,
    /// The one valid refresh token of each family, and its scopes.
    pub(crate) refresh: BTreeMap<String, String>,
    pub(crate) used: BTreeSet<String>,
    /// Challenges and scopes of issued authorization codes.
    pub(crate) codes: BTreeMap<String, (String, String)>,
    pub(crate) reused: usize,
    pub(crate) refreshes: usize,
    pub(crate) registrations: Vec<Value>,
    pub(crate) authorizations: Vec<ReceivedRequest>,
}

/// Both servers on one site: `/mcp` is the resource, the rest is the authorization server.
pub(crate) struct AuthServer {
    pub(crate) site: Site,
    pub(crate) honest: Arc<HonestServer>,
    pub(crate) records: Arc<Mutex<AuthRecords>>,
}

impl AuthServer {
    pub(crate) fn start(behaviour: AuthBehaviour) -> AuthServer {
        let honest = Arc::new(HonestServer::new(RemoteTransport::NoSessions, false));
        let records: Arc<Mutex<AuthRecords>> = Arc::default();
        let own = Arc::new(Mutex::new(String::new()));
        let (inner, kept, place) = (Arc::clone(&honest), Arc::clone(&records), Arc::clone(&own));
        let last = AtomicU64::new(0);
        let site = Site::start(Arc::new(move |request, exchange| {
            let origin = place.lock().unwrap().clone();
            let number = last.fetch_add(1, Ordering::SeqCst);
            answer(&behaviour, &origin, number, &inner, &kept, request, exchange)
        }));
        let site = site.unwrap();
        *own.lock().unwrap() = format!("http://{}", site.address());
        AuthServer { site, honest, records }
    }

    /// Expires every access token.
    pub(crate) fn expire(&self) {
        self.records.lock().unwrap().good.clear();
    }

    pub(crate) fn refreshes(&self) -> usize {
        self.records.lock().unwrap().refreshes
    }
}

fn answer(
    behaviour: &AuthBehaviour,
    origin: &str,
    number: u64,
    honest: &HonestServer,
    records: &Mutex<AuthRecords>,
    request: &ReceivedRequest,
    exchange: &mut Exchange<'_>,
) -> std::io::Result<()> {
    let field = |name: &str| request.field(name).unwrap_or_default();
    match request.path() {
        "/mcp" => {
            let token = request.header("authorization").unwrap_or_default();
            let scopes = records.lock().unwrap().good.get(token.trim_start_matches("Bearer ")).cloned();
            let challenge = format!(
                "Bearer resource_metadata=\"{origin}/.well-known/oauth-protected-resource/mcp\", scope=\"read\""
            );
            let Some(scopes) = scopes.filter(|_| !behaviour.blind) else {
                return exchange.respond(401, &[("www-authenticate", &challenge)], b"");
            };
            if let Some(needed) = behaviour.needs
                && request.rpc() == "tools/call"
                && (behaviour.stingy || !scopes.split(' ').any(|scope| scope == needed))
            {
                let challenge = format!("Bearer error=\"insufficient_scope\", scope=\"{needed}\"");
                return exchange.respond(403, &[("www-authenticate", &challenge)], b"");
            }
            honest.answer(request, exchange)
        }
        "/.well-known/oauth-protected-resource/mcp" => exchange.json(
            200,
            &[],
            &json!({"resource": format!("{origin}/mcp"), "authorization_servers": [format!("{origin}/tenant")], "scopes_supported": ["read", "write", "admin"]}),
        ),
        "/.well-known/oauth-authorization-server/tenant" => {
            let mut document = json!({
                "issuer": format!("{origin}/tenant"),
                "authorization_endpoint": format!("{origin}/authorize"),
                "token_endpoint": format!("{origin}/token"),
                "code_challenge_methods_supported": ["S256"],
                "authorization_response_iss_parameter_supported": true,
            });
            if !behaviour.closed {
                document["registration_endpoint"] = format!("{origin}/register").into();
            }
            exchange.json(200, &[], &document)
        }
        "/register" => {
            records.lock().unwrap().registrations.push(request.json());
            if behaviour.odd && request.json().get("scope").is_some() {
                return exchange.json(400, &[], &json!({"error": "invalid_client_metadata"}));
            }
            if behaviour.odd {
                let method = "client_secret_post";
                return exchange.json(201, &[], &json!({"client_id": "made-up", "client_secret": "s3", "token_endpoint_auth_method": method}));
            }
            exchange.json(201, &[], &json!({"client_id": "made-up", "token_endpoint_auth_method": "none"}))
        }
        "/authorize" => {
            let good = field("code_challenge_method") == "S256" && field("resource") == format!("{origin}/mcp");
            if !good {
                return exchange.respond(400, &[], b"bad request");
            }
            let code = format!("code-{number}");
            {
                let mut records = records.lock().unwrap();
                records.authorizations.push(request.clone());
                records.codes.insert(code.clone(), (field("code_challenge"), field("scope")));
            }
            let issuer = if behaviour.wrong_issuer { "https://evil.example" } else { origin };
            let issuer = if behaviour.wrong_issuer { issuer.to_owned() } else { format!("{issuer}/tenant") };
            let back = format!("{}?code={code}&state={}&iss={issuer}", field("redirect_uri"), field("state"));
            exchange.respond(302, &[("location", &back)], b"")
        }
        "/token" => {
            let mut records = records.lock().unwrap();
            let refused = |exchange: &mut Exchange<'_>, why: &str| exchange.json(400, &[], &json!({"error": why}));
            if field("resource") != format!("{origin}/mcp") {
                return refused(exchange, "invalid_target");
            }
            if behaviour.odd && (field("client_id"), field("client_secret")) != ("made-up".to_owned(), "s3".to_owned()) {
                return exchange.json(401, &[], &json!({"error": "invalid_client"}));
            }
            let scopes = match field("grant_type").as_str() {
                "authorization_code" => {
                    let Some((challenge, scopes)) = records.codes.remove(&field("code")) else {
                        return refused(exchange, "invalid_grant");
                    };
                    if challenge != proof(&field("code_verifier")) {
                        return refused(exchange, "invalid_grant");
                    }
                    scopes
                }
                "refresh_token" => {
                    let shown = field("refresh_token");
                    let Some(scopes) = records.refresh.remove(&shown) else {
                        if records.used.contains(&shown) {
                            // Strict rotation: reusing a refresh token revokes the whole family.
                            records.reused += 1;
                            records.refresh.clear();
                            records.good.clear();
                        }
                        return refused(exchange, "invalid_grant");
                    };
                    records.used.insert(shown);
                    records.refreshes += 1;
                    scopes
                }
                "client_credentials" => {
                    let basic = request.header("authorization").unwrap_or_default();
                    if basic != "Basic bWFjaGluZTpzM2NyZXQtczNjcmV0" {
                        return exchange.json(401, &[], &json!({"error": "invalid_client"}));
                    }
                    field("scope")
                }
                _ => return refused(exchange, "unsupported_grant_type"),
            };
            let (access, refresh) = (format!("access-{number}"), format!("refresh-{number}"));
            records.good.insert(access.clone(), scopes.clone());
            records.refresh.insert(refresh.clone(), scopes.clone());
            let mut tokens = json!({"access_token": access, "token_type": "Bearer", "refresh_token": refresh, "scope": scopes});
            if let Some(lifetime) = behaviour.lifetime {
                tokens["expires_in"] = lifetime.into();
            }
            if behaviour.odd {
                tokens["expires_in"] = "3600".into();
                tokens.as_object_mut().unwrap().remove("token_type");
            }
            exchange.json(200, &[], &tokens)
        }
        _ => exchange.respond(404, &[], b""),
    }
}

fn proof(verifier: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, verifier.as_bytes());
    URL_SAFE_NO_PAD.encode(digest)
}

/// Acts as a browser: opens the address and follows redirects.
pub(crate) fn browse(address: &str) -> u16 {
    let mut address = address.to_owned();
    for _ in 0..5 {
        let rest = address.strip_prefix("http://").unwrap();
        let (host, path) = rest.split_once('/').unwrap();
        let mut socket = std::net::TcpStream::connect(host).unwrap();
        let request = format!("GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        std::io::Write::write_all(&mut socket, request.as_bytes()).unwrap();
        let mut lines = BufReader::new(socket).lines().map_while(Result::ok);
        let status: u16 = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let location = lines
            .take_while(|line| !line.is_empty())
            .find_map(|line| line.strip_prefix("location: ").map(str::to_owned));
        match location {
            Some(next) => address = next,
            None => return status,
        }
    }
    panic!("redirected for ever");
}

pub(crate) fn workspace(auth_server: &AuthServer, more: &Value) -> Workspace {
    let mut workspace = Workspace::new().unwrap();
    let mut entry = json!({ "url": auth_server.site.url("/mcp") });
    for (key, value) in more.as_object().unwrap() {
        entry[key] = value.clone();
    }
    workspace.entry("far", entry);
    workspace
}

pub(crate) fn auth(workspace: &Workspace, arguments: &[&str]) -> Command {
    let mut command = command(workspace);
    command.arg("auth").args(arguments).stdin(Stdio::null());
    command
}

/// Logs in with the command, as a person does.
pub(crate) fn log_in(workspace: &Workspace) {
    log_in_as(workspace, |_| {});
}

/// The same with a modified command, such as another environment.
pub(crate) fn log_in_as(workspace: &Workspace, change: impl FnOnce(&mut Command)) {
    let mut command = auth(workspace, &["login", "far", "--no-browser", "--json"]);
    change(&mut command);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(browse(first["url"].as_str().unwrap()), 200);
    let second: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(second["logged_in"], true, "{second}");
    assert!(child.wait().unwrap().success());
}
