//! The two documents of a login: what the server says of itself, and what the authorization server says.

use serde_json::Value;

use super::{MAX_TEXT, OAuthError};
use crate::web::Address;

/// Most entries of a list that are looked at.
const MAX_ENTRIES: usize = 256;

/// What a server says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// What it calls itself.
    pub resource: String,
    /// Who lets people in, best first.
    pub servers: Vec<String>,
    /// Rights there are.
    pub scopes: Vec<String>,
}

/// Where a server's document about itself may be: where its challenge says, else at the two usual places.
pub fn resource_places(server: &Address, told: Option<&str>) -> Vec<Address> {
    if let Some(told) = told.and_then(|told| server.join(told).ok()) {
        return vec![told];
    }
    let root = "/.well-known/oauth-protected-resource";
    let path = server.path().trim_end_matches('/');
    let mut places = Vec::new();
    if !path.is_empty() {
        places.push(server.with_path(&format!("{root}{path}")));
    }
    places.push(server.with_path(root));
    places
}

impl Resource {
    /// Reads it. It must speak for the server it was found by: others' documents would let them in our name.
    pub fn read(document: &[u8], server: &Address) -> Result<Resource, OAuthError> {
        const WHAT: &str = "description of how to log in";
        let value: Value = serde_json::from_slice(document)
            .map_err(|_| OAuthError::document(WHAT, "it is no JSON"))?;
        let resource = text(&value, "resource")
            .ok_or_else(|| OAuthError::document(WHAT, "it does not say what it is for"))?;
        let named = Address::parse(&resource)
            .map_err(|error| OAuthError::document(WHAT, format!("the server it is for {error}")))?;
        let path = named.path().trim_end_matches('/');
        let within = server
            .path()
            .strip_prefix(path)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        if !named.is_same_origin(server) || !within {
            let why = format!("it is for {}", named.origin());
            return Err(OAuthError::document(WHAT, why));
        }
        Ok(Resource {
            resource,
            servers: texts(&value, "authorization_servers"),
            scopes: texts(&value, "scopes_supported"),
        })
    }
}

/// An authorization server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthServer {
    /// Its name.
    pub issuer: String,
    /// Where a person agrees.
    pub authorize: Option<Address>,
    /// Where tokens come from.
    pub token: Address,
    /// Where clients make themselves known.
    pub register: Option<Address>,
    /// Rights there are.
    pub scopes: Vec<String>,
    /// How clients prove themselves when they ask for tokens.
    pub methods: Vec<String>,
    /// Whether it takes the address of a document in place of a registration.
    pub takes_documents: bool,
    /// Whether it says who it is when it sends the person back.
    pub names_itself: bool,
}

/// Where an authorization server's document may be.
pub fn server_places(issuer: &Address) -> Vec<Address> {
    let path = issuer.path().trim_end_matches('/');
    if path.is_empty() {
        return vec![
            issuer.with_path("/.well-known/oauth-authorization-server"),
            issuer.with_path("/.well-known/openid-configuration"),
        ];
    }
    vec![
        issuer.with_path(&format!("/.well-known/oauth-authorization-server{path}")),
        issuer.with_path(&format!("/.well-known/openid-configuration{path}")),
        issuer.with_path(&format!("{path}/.well-known/openid-configuration")),
    ]
}

impl AuthServer {
    /// Reads it. It must name the issuer it was looked for by, and lead nowhere that anybody could listen.
    pub fn read(document: &[u8], issuer: &str) -> Result<AuthServer, OAuthError> {
        const WHAT: &str = "authorization server's description";
        let value: Value = serde_json::from_slice(document)
            .map_err(|_| OAuthError::document(WHAT, "it is no JSON"))?;
        let named = text(&value, "issuer").unwrap_or_default();
        if named.trim_end_matches('/') != issuer.trim_end_matches('/') {
            return Err(OAuthError::document(WHAT, "it is another's"));
        }
        let place = |name: &str| -> Result<Option<Address>, OAuthError> {
            let Some(found) = text(&value, name) else { return Ok(None) };
            let address = Address::parse(&found)
                .map_err(|error| OAuthError::document(WHAT, format!("its {name} {error}")))?;
            if !address.is_confidential() {
                return Err(OAuthError::document(WHAT, format!("its {name} is not encrypted")));
            }
            Ok(Some(address))
        };
        let challenges = texts(&value, "code_challenge_methods_supported");
        let authorize = place("authorization_endpoint")?;
        if authorize.is_some() && !challenges.is_empty() && !challenges.iter().any(|m| m == "S256")
        {
            return Err(OAuthError::document(WHAT, "it does not know PKCE with S256"));
        }
        let is_true = |name: &str| value[name] == true;
        Ok(AuthServer {
            issuer: named,
            authorize,
            token: place("token_endpoint")?
                .ok_or_else(|| OAuthError::document(WHAT, "it has no token_endpoint"))?,
            register: place("registration_endpoint")?,
            scopes: texts(&value, "scopes_supported"),
            methods: texts(&value, "token_endpoint_auth_methods_supported"),
            takes_documents: is_true("client_id_metadata_document_supported"),
            names_itself: is_true("authorization_response_iss_parameter_supported"),
        })
    }

    /// One that describes itself nowhere, as servers of the first revision with logins: everything at its root.
    pub fn at_root(server: &Address) -> AuthServer {
        AuthServer {
            issuer: server.origin(),
            authorize: Some(server.with_path("/authorize")),
            token: server.with_path("/token"),
            register: Some(server.with_path("/register")),
            scopes: Vec::new(),
            methods: Vec::new(),
            takes_documents: false,
            names_itself: false,
        }
    }
}

fn text(value: &Value, name: &str) -> Option<String> {
    let text = value.get(name)?.as_str()?;
    (text.len() <= MAX_TEXT && !text.contains(char::is_control)).then(|| text.to_owned())
}

fn texts(value: &Value, name: &str) -> Vec<String> {
    let Some(Value::Array(items)) = value.get(name) else { return Vec::new() };
    let texts = items.iter().take(MAX_ENTRIES).filter_map(Value::as_str);
    texts.filter(|text| text.len() <= 1024).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Address {
        Address::parse(text).unwrap()
    }

    #[test]
    fn places_are_tried_in_the_order_of_the_standards() {
        let show = |places: Vec<Address>| -> Vec<String> {
            places.iter().map(ToString::to_string).collect()
        };
        assert_eq!(
            show(resource_places(&address("https://a/mcp?x"), None)),
            [
                "https://a/.well-known/oauth-protected-resource/mcp",
                "https://a/.well-known/oauth-protected-resource",
            ]
        );
        assert_eq!(
            show(resource_places(&address("https://a/mcp"), Some("https://b/prm"))),
            ["https://b/prm"]
        );
        assert_eq!(server_places(&address("https://a")).len(), 2);
        assert_eq!(
            show(server_places(&address("https://a/t/"))),
            [
                "https://a/.well-known/oauth-authorization-server/t",
                "https://a/.well-known/openid-configuration/t",
                "https://a/t/.well-known/openid-configuration",
            ]
        );
    }

    #[test]
    fn a_document_speaks_for_its_own_server_only() {
        let server = address("https://a/mcp");
        let read = |text: &str| Resource::read(text.as_bytes(), &server);
        for good in ["https://a", "https://a/", "https://a/mcp", "https://A/mcp/"] {
            let text =
                format!(r#"{{"resource":"{good}","authorization_servers":["https://i",7]}}"#);
            assert_eq!(read(&text).unwrap().servers, ["https://i"], "{good}");
        }
        for bad in ["https://b/mcp", "http://a/mcp", "https://a/mc", "https://a/other", "x", ""] {
            let text = format!(r#"{{"resource":"{bad}"}}"#);
            assert!(read(&text).is_err(), "{bad}");
        }
        assert!(read("7").is_err() && read("").is_err() && read("{}").is_err());
    }

    #[test]
    fn an_authorization_server_is_the_one_that_was_looked_for() {
        let read = |text: &str| AuthServer::read(text.as_bytes(), "https://i");
        let good = r#"{"issuer":"https://i/","token_endpoint":"https://i/t","authorization_endpoint":"https://i/a","code_challenge_methods_supported":["plain","S256"]}"#;
        assert_eq!(read(good).unwrap().token, address("https://i/t"));
        for (bad, why) in [
            (good.replace("https://i/\"", "https://evil\""), "another"),
            (good.replace("S256", "S1"), "PKCE"),
            (good.replace("https://i/a", "http://i/a"), "encrypted"),
            (good.replace("https://i/a", "javascript:alert(1)"), "authorization_endpoint"),
            (good.replace("https://i/a", "file:///bin/sh"), "authorization_endpoint"),
            (good.replace("token_endpoint", "x"), "token_endpoint"),
        ] {
            let error = read(&bad).unwrap_err().to_string();
            assert!(error.contains(why), "{bad}: {error}");
        }
        let here = r#"{"issuer":"https://i","token_endpoint":"http://127.0.0.1:1/t"}"#;
        assert!(read(here).is_ok());
    }

    #[test]
    fn no_address_that_a_person_opens_can_be_a_command() {
        let refused = [
            "javascript:alert(1)",
            "JavaScript:alert(1)",
            " javascript:alert(1)",
            "java\tscript:alert(1)",
            "data:text/html,x",
            "file:///etc/passwd",
            "file://host/share",
            "\\\\\\\\host\\\\share",
            "//host/share",
            "vbscript:x",
            "ms-msdt:/id",
            "search-ms:query=x",
            "smb://host/x",
            "ftp://host/x",
            "http://host/authorize",
            "http://127.0.0.1.evil.example/",
            "http://localhost.evil.example/",
            "--help",
            "-e",
            "/bin/sh",
            "calc.exe",
            "C:/Windows/System32/calc.exe",
            "$(id)",
            "`id`",
            "; id",
            "| id",
            "& calc",
            "",
            " ",
            "https://",
            "https:///x",
            "https://user:word@host/",
            "https://host/a b",
            "https://host/\\nx",
            "https://host/\\u0000",
            "https://host/\\u001b[2J",
            "https://ho st/",
            "https://host:99999/",
            "https://[::1/",
            "https://host\\\\@evil/",
        ];
        assert_eq!(refused.len(), 40);
        for endpoint in refused {
            let document = format!(
                r#"{{"issuer":"https://i","token_endpoint":"https://i/t","authorization_endpoint":"{endpoint}"}}"#
            );
            let read = AuthServer::read(document.as_bytes(), "https://i");
            let opened = read.ok().and_then(|server| server.authorize).map(|it| it.to_string());
            // Text with a control character counts as no text, so there is nothing to open.
            assert_eq!(opened, None, "{endpoint:?}");
        }
        // What looks like a command within an address is one argument of one program, and no shell sees it.
        let quoted = r#"{"issuer":"https://i","token_endpoint":"https://i/t","authorization_endpoint":"https://i/$(id)"}"#;
        let server = AuthServer::read(quoted.as_bytes(), "https://i").unwrap();
        assert!(server.authorize.unwrap().to_string().starts_with("https://i/"));
    }
}
