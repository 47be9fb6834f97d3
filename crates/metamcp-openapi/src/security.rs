//! How an API knows its callers: the security schemes of a description, and which of them an operation wants.
//! Owns: the choice among alternatives.      Never: holds a secret; it says where one belongs.
//! In: `securitySchemes`, `security`, the names of the credentials there are.  Out: `Placement`s.
//! Tests: `tests/requests.rs`.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::document::Document;

/// Alternatives of one operation, and schemes of one alternative, that are looked at.
const MAX_ALTERNATIVES: usize = 32;

/// A way to know a caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scheme {
    /// A key in a header, in the query or in a cookie.
    Key { place: KeyPlace, name: String },
    /// User and password.
    Basic,
    /// A token.
    Bearer,
    /// A token that a sign-in gives.
    OAuth {
        authorize: Option<String>,
        token: Option<String>,
        scopes: Vec<String>,
        is_machine: bool,
    },
    /// A token that a sign-in gives, whose places are published there.
    OpenId { address: String },
    /// One that we cannot do.
    Other(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyPlace {
    Header,
    Query,
    Cookie,
}

/// Where a credential belongs in a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// The name of the scheme, which is that of the credential.
    pub scheme: String,
    pub form: Form,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Form {
    Header(String),
    Query(String),
    Cookie(String),
    /// `Authorization: Basic`, of `user:password`.
    Basic,
    /// `Authorization: Bearer`.
    Bearer,
}

/// The schemes of a description, by name.
pub type Schemes = BTreeMap<String, Scheme>;

/// Reads them.
pub fn schemes(document: &Document) -> Schemes {
    let all = document.components("securitySchemes").into_iter();
    all.filter_map(|(name, written)| Some((name, scheme(&document.resolved(written)?)))).collect()
}

fn scheme(said: &Value) -> Scheme {
    let text = |name: &str| said.get(name).and_then(Value::as_str);
    let word = |name: &str| text(name).unwrap_or_default().to_ascii_lowercase();
    match word("type").as_str() {
        "apikey" => {
            let place = match word("in").as_str() {
                "query" => KeyPlace::Query,
                "cookie" => KeyPlace::Cookie,
                _ => KeyPlace::Header,
            };
            match text("name") {
                Some(name) => Scheme::Key { place, name: name.to_owned() },
                None => Scheme::Other("an API key without a name".to_owned()),
            }
        }
        "http" => match word("scheme").as_str() {
            "basic" => Scheme::Basic,
            "bearer" | "token" => Scheme::Bearer,
            other => Scheme::Other(format!("HTTP {other}")),
        },
        "oauth2" => oauth(said),
        "openidconnect" => match text("openIdConnectUrl") {
            Some(address) => Scheme::OpenId { address: address.to_owned() },
            None => Scheme::Bearer,
        },
        other => Scheme::Other(other.to_owned()),
    }
}

/// The flow for a person, or else that for a machine.
fn oauth(said: &Value) -> Scheme {
    let flows = said.get("flows");
    let of = |name: &str| flows.and_then(|flows| flows.get(name));
    let person = of("authorizationCode").or_else(|| of("implicit"));
    let machine = of("clientCredentials").or_else(|| of("password"));
    let flow = person.or(machine);
    let text = |name: &str| flow?.get(name)?.as_str().map(str::to_owned);
    let scopes = flow.and_then(|flow| flow.get("scopes")?.as_object());
    Scheme::OAuth {
        authorize: text("authorizationUrl"),
        token: text("tokenUrl"),
        scopes: scopes.map(|scopes| scopes.keys().cloned().collect()).unwrap_or_default(),
        is_machine: person.is_none() && machine.is_some(),
    }
}

/// What an operation wants: alternatives, each of schemes that belong together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// None: the description does not say.
    pub alternatives: Option<Vec<Vec<String>>>,
}

impl Wanted {
    pub(crate) fn read(said: Option<&Value>) -> Wanted {
        let all = said.and_then(Value::as_array);
        let alternatives = all.map(|all| {
            let one = |one: &Value| {
                let names = one.as_object().into_iter().flatten().take(MAX_ALTERNATIVES);
                names.map(|(name, _)| name.clone()).collect()
            };
            all.iter().take(MAX_ALTERNATIVES).map(one).collect()
        });
        Wanted { alternatives }
    }

    /// Which credentials go where, of those there are.
    pub(crate) fn placements(&self, schemes: &Schemes, given: &[String]) -> Vec<Placement> {
        let place = |name: &String| {
            let form = match schemes.get(name)? {
                Scheme::Key { place: KeyPlace::Header, name } => Form::Header(name.clone()),
                Scheme::Key { place: KeyPlace::Query, name } => Form::Query(name.clone()),
                Scheme::Key { place: KeyPlace::Cookie, name } => Form::Cookie(name.clone()),
                Scheme::Basic => Form::Basic,
                Scheme::Bearer | Scheme::OAuth { .. } | Scheme::OpenId { .. } => Form::Bearer,
                Scheme::Other(_) => return None,
            };
            Some(Placement { scheme: name.clone(), form })
        };
        let Some(alternatives) = &self.alternatives else {
            return given.iter().filter_map(place).collect();
        };
        let has = |name: &&String| given.contains(name);
        // The one with the most of what there is: an API with a key and a token wants both.
        let best = alternatives.iter().filter(|all| all.iter().all(|name| has(&name)));
        let best = best.max_by_key(|all| all.len());
        let partly = || alternatives.iter().max_by_key(|all| all.iter().filter(has).count());
        let chosen = best.filter(|all| !all.is_empty()).or_else(partly);
        chosen.into_iter().flatten().filter(has).filter_map(place).collect()
    }

    /// The names of the schemes of which one would do.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.alternatives.iter().flatten().flatten().map(String::as_str)
    }
}
