//! What we ask: for a person's consent, for tokens, for a name of our own.

use serde_json::{Value, json};

use super::{AuthServer, OAuthError, Resource, VOUCHER, escaped};
use crate::config::{Company, Login};
use crate::web::Address;

/// As whom we ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// Our name there.
    pub id: String,
    /// The secret that belongs to it, or the proof that was made in its place.
    pub secret: Option<String>,
    /// How we prove ourselves.
    pub method: Method,
}

/// How a client proves itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// It does not: PKCE is enough.
    None,
    /// In a header.
    Basic,
    /// In the form.
    Post,
    /// By a signature, made anew each time.
    Key,
}

impl Method {
    /// The word on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Method::None => "none",
            Method::Basic => "client_secret_basic",
            Method::Post => "client_secret_post",
            Method::Key => "private_key_jwt",
        }
    }

    /// By its word.
    pub fn named(word: &str) -> Option<Method> {
        let all = [Method::None, Method::Basic, Method::Post, Method::Key];
        all.into_iter().find(|method| method.word() == word)
    }
}

impl Client {
    /// One whose name and secret are known; the server's own list says how it proves itself.
    pub fn known(id: &str, secret: Option<&str>, server: &AuthServer) -> Client {
        let method = match secret {
            None => Method::None,
            Some(_) if server.methods.iter().any(|method| method == "client_secret_basic") => {
                Method::Basic
            }
            Some(_) if server.methods.iter().any(|method| method == "client_secret_post") => {
                Method::Post
            }
            Some(_) => Method::Basic,
        };
        Client { id: id.to_owned(), secret: secret.map(str::to_owned), method }
    }

    /// The one that is known without asking: what the operator wrote, or the document that describes us.
    pub fn without_asking(login: &Login, server: &AuthServer) -> Option<Client> {
        if let (Some(id), Some(_)) = (&login.client_id, &login.private_key) {
            return Some(Client { id: id.clone(), secret: None, method: Method::Key });
        }
        if let Some(id) = &login.client_id {
            let secret = login.client_secret.as_ref().map(crate::secret::Secret::expose);
            return Some(Client::known(id, secret, server));
        }
        let document = login.metadata_url.as_ref().filter(|_| server.takes_documents)?;
        Some(Client { id: document.clone(), secret: None, method: Method::None })
    }
}

/// What is posted for tokens.
#[derive(Clone, PartialEq, Eq)]
pub struct Form {
    /// The body.
    pub body: String,
    /// User and password of the `Authorization` header, before their encoding.
    pub basic: Option<String>,
}

/// The rights that are asked for: those the server named in its challenge, together with those we have; else those its
/// description names; and those the operator wants in any case.
pub fn scopes(
    challenged: Option<&str>,
    granted: &[String],
    resource: Option<&Resource>,
    server: &AuthServer,
    login: &Login,
) -> Vec<String> {
    let mut scopes: Vec<String> = match challenged {
        Some(challenged) => {
            let wanted = challenged.split_whitespace().map(str::to_owned);
            granted.iter().cloned().chain(wanted).collect()
        }
        None if !granted.is_empty() => granted.to_vec(),
        None if !login.scopes.is_empty() => Vec::new(),
        None => resource.map(|resource| resource.scopes.clone()).unwrap_or_default(),
    };
    scopes.extend(login.scopes.iter().cloned());
    // Without it some servers give no refresh token; those that do not know it may refuse the whole request.
    if server.scopes.iter().any(|scope| scope == "offline_access") {
        scopes.push("offline_access".to_owned());
    }
    let mut seen = Vec::new();
    for scope in scopes {
        let plain = !scope.is_empty() && scope.bytes().all(|byte| byte.is_ascii_graphic());
        if plain && !seen.contains(&scope) {
            seen.push(scope);
        }
    }
    seen
}

/// What a person is asked to agree to.
pub struct Authorization<'a> {
    /// Who asks.
    pub client: &'a Client,
    /// Where the answer goes.
    pub redirect: &'a str,
    /// What only this login knows.
    pub state: &'a str,
    /// The challenge whose secret we keep.
    pub challenge: &'a str,
    /// For which server.
    pub resource: &'a str,
    /// Which rights.
    pub scopes: &'a [String],
}

/// The address that a person opens.
pub fn authorization(server: &AuthServer, ask: &Authorization<'_>) -> Result<Address, OAuthError> {
    let endpoint = server.authorize.as_ref().ok_or(OAuthError::NoServer)?;
    let mut query = pairs(&[
        ("response_type", "code"),
        ("client_id", &ask.client.id),
        ("redirect_uri", ask.redirect),
        ("state", ask.state),
        ("code_challenge", ask.challenge),
        ("code_challenge_method", "S256"),
        ("resource", ask.resource),
    ]);
    if !ask.scopes.is_empty() {
        query.push_str(&format!("&scope={}", escaped(&ask.scopes.join(" "))));
    }
    if ask.scopes.iter().any(|scope| scope == "offline_access") {
        query.push_str("&prompt=consent");
    }
    let sign = if endpoint.target().contains('?') { '&' } else { '?' };
    Ok(endpoint.with_path(&format!("{}{sign}{query}", endpoint.target())))
}

/// Tokens for the code that a person brought back.
pub fn code_form(
    client: &Client,
    code: &str,
    verifier: &str,
    redirect: &str,
    resource: &str,
) -> Form {
    form(
        client,
        &[
            ("grant_type", "authorization_code"),
            ("code", code),
            ("code_verifier", verifier),
            ("redirect_uri", redirect),
            ("resource", resource),
        ],
    )
}

/// Tokens for a refresh token.
pub fn refresh_form(client: &Client, refresh: &str, resource: &str) -> Form {
    let fields =
        [("grant_type", "refresh_token"), ("refresh_token", refresh), ("resource", resource)];
    form(client, &fields)
}

/// Tokens for the client itself.
pub fn machine_form(client: &Client, scopes: &[String], resource: &str) -> Form {
    let scope = scopes.join(" ");
    let mut fields = vec![("grant_type", "client_credentials"), ("resource", resource)];
    if !scope.is_empty() {
        fields.push(("scope", &scope));
    }
    form(client, &fields)
}

/// What a client says of itself to become known.
pub fn registration(redirect: &str, scopes: &[String]) -> Value {
    let mut document = json!({
        "client_name": "metamcp",
        "application_type": "native",
        "redirect_uris": [redirect],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
    });
    if !scopes.is_empty() {
        document["scope"] = scopes.join(" ").into();
    }
    document
}

/// The word of a company for its person, for the authorization server of that name.
pub fn voucher_form(company: &Company, id_token: &str, issuer: &str, resource: &str) -> Form {
    let client = Client { id: company.client_id.clone(), secret: None, method: Method::None };
    form(
        &client,
        &[
            ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
            ("requested_token_type", VOUCHER),
            ("audience", issuer),
            ("resource", resource),
            ("subject_token", id_token),
            ("subject_token_type", "urn:ietf:params:oauth:token-type:id_token"),
        ],
    )
}

/// Tokens for the word of a company.
pub fn vouched_form(client: &Client, voucher: &str, scopes: &[String], resource: &str) -> Form {
    let scope = scopes.join(" ");
    let mut fields = vec![
        ("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer"),
        ("assertion", voucher),
        ("resource", resource),
    ];
    if !scope.is_empty() {
        fields.push(("scope", &scope));
    }
    form(client, &fields)
}

fn form(client: &Client, fields: &[(&str, &str)]) -> Form {
    let mut body = pairs(fields);
    let secret = client.secret.as_deref().unwrap_or_default();
    match client.method {
        Method::Basic => {
            let basic = format!("{}:{}", escaped(&client.id), escaped(secret));
            return Form { body, basic: Some(basic) };
        }
        Method::Post => {
            let more = pairs(&[("client_id", &client.id), ("client_secret", secret)]);
            body.push_str(&format!("&{more}"));
        }
        Method::Key => {
            let kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
            let more = [("client_assertion_type", kind), ("client_assertion", secret)];
            body.push_str(&format!("&{}", pairs(&more)));
        }
        Method::None => body.push_str(&format!("&{}", pairs(&[("client_id", &client.id)]))),
    }
    Form { body, basic: None }
}

fn pairs(fields: &[(&str, &str)]) -> String {
    let pairs: Vec<String> =
        fields.iter().map(|(name, value)| format!("{name}={}", escaped(value))).collect();
    pairs.join("&")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> AuthServer {
        AuthServer::at_root(&Address::parse("https://i/mcp").unwrap())
    }

    #[test]
    fn the_address_carries_everything_and_nothing_unescaped() {
        let client = Client { id: "a&b".into(), secret: None, method: Method::None };
        let scopes = ["x".to_owned(), "y".to_owned()];
        let ask = Authorization {
            client: &client,
            redirect: "http://127.0.0.1:5/callback",
            state: "s t",
            challenge: "c",
            resource: "https://r/mcp",
            scopes: &scopes,
        };
        let address = authorization(&server(), &ask).unwrap().to_string();
        assert!(address.starts_with("https://i/authorize?response_type=code&client_id=a%26b&"));
        for part in [
            "state=s%20t",
            "code_challenge_method=S256",
            "resource=https%3A%2F%2Fr%2Fmcp",
            "scope=x%20y",
        ] {
            assert!(address.contains(part), "{part} in {address}");
        }
    }

    #[test]
    fn clients_prove_themselves_as_the_server_wants() {
        let form = |methods: &[&str]| {
            let mut server = server();
            server.methods = methods.iter().map(|method| (*method).to_owned()).collect();
            machine_form(&Client::known("i d", Some("s:s"), &server), &[], "r")
        };
        assert_eq!(form(&["client_secret_basic"]).basic.as_deref(), Some("i%20d:s%3As"));
        assert!(
            form(&["client_secret_post"]).body.ends_with("client_id=i%20d&client_secret=s%3As")
        );
        assert_eq!(form(&[]).basic.as_deref(), Some("i%20d:s%3As"));
        let signed = Client { id: "c".into(), secret: Some("a.b.c".into()), method: Method::Key };
        let signed = machine_form(&signed, &[], "r");
        assert!(signed.basic.is_none() && signed.body.ends_with("&client_assertion=a.b.c"));
        let public = refresh_form(&Client::known("c", None, &server()), "t", "r");
        assert!(public.body.ends_with("&client_id=c") && public.basic.is_none());
    }

    #[test]
    fn no_right_is_asked_for_that_nobody_named() {
        let (login, mut server) = (Login::default(), server());
        let resource = Resource {
            resource: "https://r".into(),
            servers: Vec::new(),
            scopes: vec!["all".into(), "of".into(), "them".into()],
        };
        let ask = |challenged, granted: &[String], server: &AuthServer| {
            scopes(challenged, granted, Some(&resource), server, &login)
        };
        assert_eq!(ask(Some("read"), &[], &server), ["read"]);
        assert_eq!(ask(Some("write"), &["read".to_owned()], &server), ["read", "write"]);
        assert_eq!(ask(None, &[], &server), ["all", "of", "them"]);
        server.scopes = vec!["offline_access".into()];
        assert_eq!(ask(Some("read"), &[], &server), ["read", "offline_access"]);
        let wanted = Login { scopes: vec!["mine".into()], ..Login::default() };
        assert_eq!(
            scopes(None, &[], Some(&resource), &server, &wanted),
            ["mine", "offline_access"]
        );
    }
}
