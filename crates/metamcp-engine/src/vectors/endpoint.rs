//! The API that embeddings come from: its address, its protocol, and its key.

use std::fmt;
use std::net::IpAddr;

use hyper::Uri;
use hyper::header::HeaderValue;
use hyper::http::uri::{Authority, PathAndQuery, Scheme};
use metamcp_types::secret::Secret;
use serde::Serialize;

#[cfg(test)]
mod tests;

/// Voyage's address, and the model whose vectors the first version of the catalog contains.
const VOYAGE_URL: &str = "https://api.voyageai.com/v1/embeddings";
pub(super) const VOYAGE_MODEL: &str = "voyage-3-lite";
/// The only variable whose value is sent to Voyage.
pub const VOYAGE_KEY: &str = "VOYAGE_API_KEY";

/// Model names are short; this one also ends up in errors and in every row.
const MAX_MODEL_CHARS: usize = 200;

/// Keys that belong to one company, by their name or prefix. They are sent nowhere else, whatever the configuration says.
const OWNED: &[Owned] = &[
    Owned { variable: VOYAGE_KEY, prefix: None, domain: "voyageai.com" },
    Owned { variable: "ANTHROPIC_API_KEY", prefix: Some("sk-ant-"), domain: "anthropic.com" },
    Owned { variable: "OPENAI_API_KEY", prefix: Some("sk-proj-"), domain: "openai.com" },
];

struct Owned {
    variable: &'static str,
    prefix: Option<&'static str>,
    domain: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// Not an http(s) address. It is not repeated: it may contain a password.
    #[error(
        "the embedding endpoint is not an http or https address, such as http://localhost:11434/api/embed"
    )]
    BadUrl,
    /// A user name or password in the address would end up in logs.
    #[error(
        "the embedding endpoint of {host} has credentials in its address; configure a key instead"
    )]
    Credentials { host: String },
    #[error(
        "the embedding endpoint of {host} needs the name of a model of at most {MAX_MODEL_CHARS} characters"
    )]
    BadModel { host: String },
    /// A key with a line break or another character that is invalid in a header.
    #[error(
        "the key {key} for {host} is empty or contains characters that no key has; check for a line break"
    )]
    BadKey { key: String, host: String },
    /// A key of one company for the API of another.
    #[error(
        "the key {key} belongs to {owner} and is not sent to {host}; configure a key made for {host}"
    )]
    ForeignKey { key: String, owner: String, host: String },
}

/// An embeddings API, with its key.
#[derive(Clone)]
pub struct Endpoint {
    form: Form,
    uri: Uri,
    host: String,
    model: String,
    key: Option<Secret>,
    authorization: Option<HeaderValue>,
}

/// The protocol of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// `{model, input}` to `data[].embedding`.
    OpenAi,
    /// The same, with `input_type`: query or document.
    Voyage,
    /// `{model, input}` to `embeddings`.
    Ollama,
}

/// Some models embed a query differently from a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Purpose {
    Query,
    Document,
}

#[derive(Serialize)]
struct Request<'a> {
    model: &'a str,
    input: &'a [&'a str],
    #[serde(skip_serializing_if = "Option::is_none")]
    input_type: Option<Purpose>,
}

impl Endpoint {
    /// Voyage with its small model. `key` is the value of [`VOYAGE_KEY`]; a key of another name is refused.
    pub fn voyage(key: Secret) -> Result<Endpoint, EndpointError> {
        let endpoint = Endpoint::at(VOYAGE_URL, VOYAGE_MODEL, None)?;
        if key.name() != VOYAGE_KEY {
            return Err(EndpointError::ForeignKey {
                key: key.name().to_owned(),
                owner: "somebody else".to_owned(),
                host: endpoint.host,
            });
        }
        endpoint.with_key(key)
    }

    /// The API at an address. Without a scheme, a loopback address is used in plain text and every other one over TLS; plain
    /// text to another machine requires an explicit `http://`.
    ///
    /// A path that ends in `/api/embed` or `/api/embeddings` is Ollama's. Any other is taken to be compatible
    /// with OpenAI's, and completed by `/v1/embeddings` where it is empty or ends in `/v1`.
    pub fn at(url: &str, model: &str, key: Option<Secret>) -> Result<Endpoint, EndpointError> {
        let (scheme, rest) = match url.trim().split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => {
                (Some(Scheme::HTTP), rest)
            }
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => {
                (Some(Scheme::HTTPS), rest)
            }
            Some(_) => return Err(EndpointError::BadUrl),
            None => (None, url.trim()),
        };
        let rest = rest.split_once('#').map_or(rest, |(rest, _)| rest);
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let authority: Authority = authority.parse().map_err(|_| EndpointError::BadUrl)?;
        let host = host_of(&authority);
        if authority.as_str().contains('@') {
            return Err(EndpointError::Credentials { host });
        }
        let named = authority.host();
        if named.is_empty() || (authority.port().is_none() && authority.as_str() != named) {
            return Err(EndpointError::BadUrl);
        }
        let scheme =
            scheme.unwrap_or(if is_loopback(named) { Scheme::HTTP } else { Scheme::HTTPS });
        let (path, form) = complete(path);
        let form = if named.eq_ignore_ascii_case("api.voyageai.com") { Form::Voyage } else { form };
        let path: PathAndQuery = path.parse().map_err(|_| EndpointError::BadUrl)?;
        let uri = Uri::builder()
            .scheme(scheme)
            .authority(authority)
            .path_and_query(path)
            .build()
            .map_err(|_| EndpointError::BadUrl)?;
        let model = model.trim();
        let is_name = !model.is_empty()
            && model.chars().count() <= MAX_MODEL_CHARS
            && !model.chars().any(|c| c.is_control() || metamcp_types::text::is_hidden(c));
        if !is_name {
            return Err(EndpointError::BadModel { host });
        }
        let model = model.to_owned();
        let endpoint = Endpoint { form, uri, host, model, key: None, authorization: None };
        match key {
            Some(key) => endpoint.with_key(key),
            None => Ok(endpoint),
        }
    }

    /// Host and port, as named in errors.
    pub fn host(&self) -> &str {
        &self.host
    }

    pub fn model(&self) -> &str {
        &self.model
    }

    /// Whether texts, and the key if there is one, cross a network unencrypted. Worth a warning.
    pub fn is_in_clear(&self) -> bool {
        self.uri.scheme() == Some(&Scheme::HTTP) && !self.uri.host().is_some_and(is_loopback)
    }

    /// What identifies its vectors in the cache. Another API may use the same name for another model.
    pub(super) fn identity(&self) -> String {
        match self.form {
            Form::Voyage => self.model.clone(),
            Form::OpenAi | Form::Ollama => format!("{} at {}", self.model, self.host),
        }
    }

    pub(super) fn form(&self) -> Form {
        self.form
    }

    pub(super) fn uri(&self) -> &Uri {
        &self.uri
    }

    /// The header with the key, marked as sensitive.
    pub(super) fn authorization(&self) -> Option<&HeaderValue> {
        self.authorization.as_ref()
    }

    pub(super) fn key_name(&self) -> Option<&str> {
        self.key.as_ref().map(Secret::name)
    }

    pub(super) fn body(&self, texts: &[&str], purpose: Purpose) -> Vec<u8> {
        let input_type = (self.form == Form::Voyage).then_some(purpose);
        let request = Request { model: &self.model, input: texts, input_type };
        serde_json::to_vec(&request).expect("strings always serialise")
    }

    fn with_key(mut self, key: Secret) -> Result<Endpoint, EndpointError> {
        let name = || key.name().to_owned();
        let host = || self.host.clone();
        let value = key.expose().trim();
        for owned in OWNED {
            let is_theirs = key.name().eq_ignore_ascii_case(owned.variable)
                || owned.prefix.is_some_and(|prefix| value.starts_with(prefix));
            if is_theirs && !self.uri.host().is_some_and(|host| is_within(host, owned.domain)) {
                let owner = owned.domain.to_owned();
                return Err(EndpointError::ForeignKey { key: name(), owner, host: host() });
            }
        }
        let bad = || EndpointError::BadKey { key: name(), host: host() };
        if value.is_empty() || !value.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(bad());
        }
        let mut header = HeaderValue::from_str(&format!("Bearer {value}")).map_err(|_| bad())?;
        header.set_sensitive(true);
        self.authorization = Some(header);
        self.key = Some(key);
        Ok(self)
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The query of an address may contain a key, so it is omitted.
        f.debug_struct("Endpoint")
            .field("form", &self.form)
            .field("host", &self.host)
            .field("path", &self.uri.path())
            .field("model", &self.model)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

/// The path and query to use, and the protocol they imply.
fn complete(path: &str) -> (String, Form) {
    let (path, query) = match path.split_once('?') {
        Some((path, query)) => (path, format!("?{query}")),
        None => (path, String::new()),
    };
    let path = path.trim_end_matches('/');
    for (ending, kept) in [("/api/embed", "/api/embed".len()), ("/api/embeddings", 0)] {
        if let Some(base) = path.strip_suffix(ending) {
            // The older path accepts one text at a time; every Ollama still in use has the newer one.
            let path = if kept > 0 { path.to_owned() } else { format!("{base}/api/embed") };
            return (path + &query, Form::Ollama);
        }
    }
    let path = match path {
        "" => "/v1/embeddings".to_owned(),
        path if path.ends_with("/v1") => format!("{path}/embeddings"),
        path => path.to_owned(),
    };
    (path + &query, Form::OpenAi)
}

fn host_of(authority: &Authority) -> String {
    match authority.port_u16() {
        Some(port) => format!("{}:{port}", authority.host()),
        None => authority.host().to_owned(),
    }
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn is_within(host: &str, domain: &str) -> bool {
    let host = host.to_ascii_lowercase();
    host == domain || host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'))
}
