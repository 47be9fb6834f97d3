//! An authorization server and a server of the test's own on one site, strict about everything that may go wrong, and the
//! person who logs in there.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use metamcp_testkit::Workspace;
use metamcp_testkit::site::honest::Speech;
use metamcp_testkit::site::{Asked, Honest, Site, Talk};
use serde_json::{Value, json};

use crate::world::command;

/// What the authorization server does otherwise than it should, or asks for.
#[derive(Clone, Default)]
pub(crate) struct Temper {
    /// Seconds that tokens live, as it says; it never ends them by itself.
    pub(crate) lifetime: Option<u64>,
    /// Registers nobody.
    pub(crate) closed: bool,
    /// Says that somebody else let the person in.
    pub(crate) wrong_issuer: bool,
    /// The scope that calls need.
    pub(crate) needs: Option<&'static str>,
    /// Has it never been enough.
    pub(crate) stingy: bool,
    /// Takes no token, however good.
    pub(crate) blind: bool,
    /// Registers nobody who names rights, gives out a secret and wants it in the form, says how long tokens live in quotes
    /// and not of what kind they are.
    pub(crate) odd: bool,
}

#[derive(Default)]
pub(crate) struct Books {
    /// Good access tokens, with their scopes.
    pub(crate) good: BTreeMap<String, String>,
    /// The one good refresh token of each family, and its scopes.
    pub(crate) refresh: BTreeMap<String, String>,
    pub(crate) used: BTreeSet<String>,
    /// Challenges and scopes of codes that were given out.
    pub(crate) codes: BTreeMap<String, (String, String)>,
    pub(crate) reused: usize,
    pub(crate) refreshes: usize,
    pub(crate) registrations: Vec<Value>,
    pub(crate) authorizations: Vec<Asked>,
}

/// Both servers on one site: `/mcp` is the resource, the rest lets people in.
pub(crate) struct Realm {
    pub(crate) site: Site,
    pub(crate) honest: Arc<Honest>,
    pub(crate) books: Arc<Mutex<Books>>,
}

impl Realm {
    pub(crate) fn start(temper: Temper) -> Realm {
        let honest = Arc::new(Honest::new(Speech::NoSessions, false));
        let books: Arc<Mutex<Books>> = Arc::default();
        let own = Arc::new(Mutex::new(String::new()));
        let (inner, kept, place) = (Arc::clone(&honest), Arc::clone(&books), Arc::clone(&own));
        let last = AtomicU64::new(0);
        let site = Site::start(Arc::new(move |asked, talk| {
            let origin = place.lock().unwrap().clone();
            let number = last.fetch_add(1, Ordering::SeqCst);
            answer(&temper, &origin, number, &inner, &kept, asked, talk)
        }));
        let site = site.unwrap();
        *own.lock().unwrap() = format!("http://{}", site.address());
        Realm { site, honest, books }
    }

    /// Ends every access token, as time does.
    pub(crate) fn expire(&self) {
        self.books.lock().unwrap().good.clear();
    }

    pub(crate) fn refreshes(&self) -> usize {
        self.books.lock().unwrap().refreshes
    }
}

fn answer(
    temper: &Temper,
    origin: &str,
    number: u64,
    honest: &Honest,
    books: &Mutex<Books>,
    asked: &Asked,
    talk: &mut Talk<'_>,
) -> std::io::Result<()> {
    let field = |name: &str| asked.field(name).unwrap_or_default();
    match asked.path() {
        "/mcp" => {
            let token = asked.header("authorization").unwrap_or_default();
            let scopes = books.lock().unwrap().good.get(token.trim_start_matches("Bearer ")).cloned();
            let challenge = format!(
                "Bearer resource_metadata=\"{origin}/.well-known/oauth-protected-resource/mcp\", scope=\"read\""
            );
            let Some(scopes) = scopes.filter(|_| !temper.blind) else {
                return talk.respond(401, &[("www-authenticate", &challenge)], b"");
            };
            if let Some(needed) = temper.needs
                && asked.rpc() == "tools/call"
                && (temper.stingy || !scopes.split(' ').any(|scope| scope == needed))
            {
                let challenge = format!("Bearer error=\"insufficient_scope\", scope=\"{needed}\"");
                return talk.respond(403, &[("www-authenticate", &challenge)], b"");
            }
            honest.answer(asked, talk)
        }
        "/.well-known/oauth-protected-resource/mcp" => talk.json(
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
            if !temper.closed {
                document["registration_endpoint"] = format!("{origin}/register").into();
            }
            talk.json(200, &[], &document)
        }
        "/register" => {
            books.lock().unwrap().registrations.push(asked.json());
            if temper.odd && asked.json().get("scope").is_some() {
                return talk.json(400, &[], &json!({"error": "invalid_client_metadata"}));
            }
            if temper.odd {
                let method = "client_secret_post";
                return talk.json(201, &[], &json!({"client_id": "made-up", "client_secret": "s3", "token_endpoint_auth_method": method}));
            }
            talk.json(201, &[], &json!({"client_id": "made-up", "token_endpoint_auth_method": "none"}))
        }
        "/authorize" => {
            let good = field("code_challenge_method") == "S256" && field("resource") == format!("{origin}/mcp");
            if !good {
                return talk.respond(400, &[], b"bad request");
            }
            let code = format!("code-{number}");
            {
                let mut books = books.lock().unwrap();
                books.authorizations.push(asked.clone());
                books.codes.insert(code.clone(), (field("code_challenge"), field("scope")));
            }
            let issuer = if temper.wrong_issuer { "https://evil.example" } else { origin };
            let issuer = if temper.wrong_issuer { issuer.to_owned() } else { format!("{issuer}/tenant") };
            let back = format!("{}?code={code}&state={}&iss={issuer}", field("redirect_uri"), field("state"));
            talk.respond(302, &[("location", &back)], b"")
        }
        "/token" => {
            let mut books = books.lock().unwrap();
            let refused = |talk: &mut Talk<'_>, why: &str| talk.json(400, &[], &json!({"error": why}));
            if field("resource") != format!("{origin}/mcp") {
                return refused(talk, "invalid_target");
            }
            if temper.odd && (field("client_id"), field("client_secret")) != ("made-up".to_owned(), "s3".to_owned()) {
                return talk.json(401, &[], &json!({"error": "invalid_client"}));
            }
            let scopes = match field("grant_type").as_str() {
                "authorization_code" => {
                    let Some((challenge, scopes)) = books.codes.remove(&field("code")) else {
                        return refused(talk, "invalid_grant");
                    };
                    if challenge != proof(&field("code_verifier")) {
                        return refused(talk, "invalid_grant");
                    }
                    scopes
                }
                "refresh_token" => {
                    let shown = field("refresh_token");
                    let Some(scopes) = books.refresh.remove(&shown) else {
                        if books.used.contains(&shown) {
                            // Strict rotation: one used twice ends the whole family.
                            books.reused += 1;
                            books.refresh.clear();
                            books.good.clear();
                        }
                        return refused(talk, "invalid_grant");
                    };
                    books.used.insert(shown);
                    books.refreshes += 1;
                    scopes
                }
                "client_credentials" => {
                    let basic = asked.header("authorization").unwrap_or_default();
                    if basic != "Basic bWFjaGluZTpzM2NyZXQtczNjcmV0" {
                        return talk.json(401, &[], &json!({"error": "invalid_client"}));
                    }
                    field("scope")
                }
                _ => return refused(talk, "unsupported_grant_type"),
            };
            let (access, refresh) = (format!("access-{number}"), format!("refresh-{number}"));
            books.good.insert(access.clone(), scopes.clone());
            books.refresh.insert(refresh.clone(), scopes.clone());
            let mut tokens = json!({"access_token": access, "token_type": "Bearer", "refresh_token": refresh, "scope": scopes});
            if let Some(lifetime) = temper.lifetime {
                tokens["expires_in"] = lifetime.into();
            }
            if temper.odd {
                tokens["expires_in"] = "3600".into();
                tokens.as_object_mut().unwrap().remove("token_type");
            }
            talk.json(200, &[], &tokens)
        }
        _ => talk.respond(404, &[], b""),
    }
}

fn proof(verifier: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, verifier.as_bytes());
    metamcp_wire::base64::encode_url(digest.as_ref())
}

/// What a browser does: goes there, and where it is sent.
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

pub(crate) fn workspace(realm: &Realm, more: &Value) -> Workspace {
    let mut workspace = Workspace::new().unwrap();
    let mut entry = json!({ "url": realm.site.url("/mcp") });
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

/// Logs in by the command, as a person does.
pub(crate) fn log_in(workspace: &Workspace) {
    log_in_as(workspace, |_| {});
}

/// The same in surroundings of its own.
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
