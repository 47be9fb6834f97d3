//! Descriptions of APIs: read from a file that is what it was when it was approved, or fetched and remembered.
//! Owns: `cache/openapi-*`, the descriptions in use.      Never: sends a credential; sends anything to the API.
//! In: an entry of the configuration.  Out: an `Api`, shared by the connections to it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use hyper::header::{ACCEPT, ACCEPT_ENCODING, HeaderMap, HeaderValue, LOCATION};
use metamcp_calls::failure::Fact;
use metamcp_config::config::ApiEndpoint;
use metamcp_openapi::{Api, Document, MAX_DOCUMENT};
use metamcp_types::text;
use metamcp_types::web::Address;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::clock::unix_millis;
use crate::compute;
use crate::config::descriptions;
use crate::files::{Directory, component};
use crate::trust::sha256;
use crate::upstream::launch::chain;
use crate::upstream::remote::Broken;
use crate::web::{self, BodyError, ClientOptions, GuardedClient, Outgoing, Proxy, Web};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest description over a slow line.
const FETCH_TIMEOUT: Duration = Duration::from_mins(1);
const MAX_REDIRECTS: usize = 3;
/// How long a fetched description is used before it is fetched again.
const FRESH: Duration = Duration::from_hours(1);
const FOLDER: &str = "cache";
/// Longest record of a fetched description.
const MAX_RECORD: u64 = 16 * 1024;
/// Descriptions in use that are shared; those that nobody uses any more go first.
const MAX_KNOWN: usize = 64;

/// See the module.
pub(crate) struct Descriptions {
    home: PathBuf,
    known: Mutex<HashMap<String, Weak<Api>>>,
}

impl Descriptions {
    pub(crate) fn under(home: &Path) -> Descriptions {
        Descriptions { home: home.to_owned(), known: Mutex::default() }
    }

    /// The API that an entry describes.
    pub(super) async fn read(&self, name: &str, endpoint: &ApiEndpoint) -> Result<Arc<Api>, Fact> {
        let (bytes, home) = match endpoint.is_fetched() {
            true => {
                let address = Address::parse(&endpoint.description).map_err(|error| {
                    unusable(&format!("the address of its description {error}"))
                })?;
                (self.fetched(name, &address, endpoint).await?, Some(address))
            }
            false => (from_disk(endpoint).await?, None),
        };
        let options = descriptions::options(endpoint, home);
        let key = sha256(format!("{} {options:?}", sha256(&bytes)).as_bytes());
        if let Some(api) = self.known.lock().get(&key).and_then(Weak::upgrade) {
            return Ok(api);
        }
        let made = compute::run(move || {
            Document::read(&bytes).and_then(|document| Api::of(&document, &options))
        });
        let made = made.await.map_err(|_| unusable("its description cannot be read"))?;
        let api = Arc::new(made.map_err(|error| unusable(&format!("its description: {error}")))?);
        for note in &api.notes {
            tracing::warn!("the description of server {name:?}: {note}");
        }
        let mut known = self.known.lock();
        if known.len() >= MAX_KNOWN {
            known.retain(|_, api| api.strong_count() > 0);
        }
        known.insert(key, Arc::downgrade(&api));
        Ok(api)
    }

    /// A description from the web: the one fetched within the last hour, a new one, or the last one there was.
    async fn fetched(
        &self,
        name: &str,
        address: &Address,
        endpoint: &ApiEndpoint,
    ) -> Result<Bytes, Fact> {
        let remembered = self.remembered(address).await;
        let now = unix_millis();
        if let Some((bytes, at)) = &remembered
            && now.saturating_sub(*at) < FRESH.as_millis() as u64
        {
            return Ok(bytes.clone());
        }
        let fetching = tokio::time::timeout(FETCH_TIMEOUT, fetch(address, endpoint));
        let late =
            || Fact::Unreachable { reason: "its description was not sent in time".to_owned() };
        match (fetching.await.unwrap_or_else(|_| Err(late())), remembered) {
            (Ok(bytes), before) => {
                if before.is_some_and(|(before, _)| before != bytes) {
                    tracing::warn!(
                        "the description of server {name:?} at {} changed since it was last fetched (now sha256 {}); its tools are the new ones",
                        address.without_query(),
                        &sha256(&bytes)[..12]
                    );
                }
                self.remember(address, bytes.clone(), now);
                Ok(bytes)
            }
            (Err(fact), Some((bytes, _))) => {
                tracing::warn!(
                    "the description of server {name:?} cannot be fetched again ({fact}); the one fetched before is used"
                );
                Ok(bytes)
            }
            (Err(fact), None) => Err(fact),
        }
    }

    async fn remembered(&self, address: &Address) -> Option<(Bytes, u64)> {
        let (home, name) = (self.home.clone(), file_name(address));
        let read = move || {
            let folder = Directory::home(&home).ok()??.inside(FOLDER).ok()??;
            let record = folder.open(&format!("{name}.json")).ok()??.read(MAX_RECORD).ok()?;
            let record: Value = serde_json::from_slice(&record).ok()?;
            let bytes =
                folder.open(&format!("{name}.text")).ok()??.read(MAX_DOCUMENT as u64).ok()?;
            // Two files, of which a crash may have written one.
            (record["sha256"] == sha256(&bytes).as_str())
                .then_some((Bytes::from(bytes), record["at"].as_u64()?))
        };
        tokio::task::spawn_blocking(read).await.ok()?
    }

    /// In the background: it is only a cache.
    fn remember(&self, address: &Address, bytes: Bytes, at: u64) {
        let (home, name) = (self.home.clone(), file_name(address));
        drop(tokio::task::spawn_blocking(move || {
            let folder = Directory::home_or_create(&home).ok()?.inside_or_create(FOLDER).ok()?;
            folder.replace(&format!("{name}.text"), &bytes).ok()?;
            let record = json!({ "sha256": sha256(&bytes), "at": at }).to_string();
            folder.replace(&format!("{name}.json"), record.as_bytes()).ok()
        }));
    }
}

fn file_name(address: &Address) -> String {
    format!("openapi-{}", component(&address.to_string()))
}

fn unusable(reason: &str) -> Fact {
    Fact::Unsupported { reason: text::clean_line(reason, 600).into_owned() }
}

async fn from_disk(endpoint: &ApiEndpoint) -> Result<Bytes, Fact> {
    let path = PathBuf::from(&endpoint.description);
    let read = descriptions::from_disk(path.clone());
    let shown = path.display();
    let bytes = read.await.map_err(|why| unusable(&format!("its description {shown}: {why}")))?;
    match &endpoint.digest {
        Some(digest) if *digest != sha256(&bytes) => Err(unusable(&format!(
            "its description {shown} is not the one that the configuration was read with; if it was just changed, try again, and if a project's file names it, approve it again with `metamcp trust`"
        ))),
        _ => Ok(Bytes::from(bytes)),
    }
}

/// Fetches a description: the operator named the address, and it may lead to others like it.
async fn fetch(address: &Address, endpoint: &ApiEndpoint) -> Result<Bytes, Fact> {
    let options = ClientOptions {
        http2: true,
        tls: endpoint.remote.options.tls.clone(),
        proxy: Proxy::from_env(),
        ..ClientOptions::new(CONNECT_TIMEOUT, 0)
    };
    let insecure = |error| Fact::Insecure { reason: chain(&error) };
    let own = Web::new(options.clone()).map_err(insecure)?;
    let guarded = GuardedClient::default();
    let mut headers = HeaderMap::new();
    let types = "application/json, application/yaml, application/vnd.oai.openapi+json, */*;q=0.1";
    headers.insert(ACCEPT, HeaderValue::from_static(types));
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    let mut place = address.clone();
    for _ in 0..=MAX_REDIRECTS {
        let web = match place.is_same_origin(address) {
            true => own.clone(),
            false => guarded.client(address, &options).map_err(insecure)?,
        };
        let request = web::request(Method::GET, &place, headers.clone(), Outgoing::default());
        let broken = |error| Broken::from(error).fact;
        let response = web.send(request.map_err(broken)?).await.map_err(broken)?;
        let status = response.status().as_u16();
        match status {
            200 => {
                let body = web::read_body(response.into_body(), MAX_DOCUMENT).await;
                return body.map_err(|error| match error {
                    BodyError::TooLarge => unusable("its description is too large"),
                    BodyError::Closed => Fact::StreamDropped,
                });
            }
            301 | 302 | 303 | 307 | 308 => {
                let target = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
                let next = target.and_then(|target| place.join(target).ok());
                let is_safe = |next: &Address| next.is_secure() || !place.is_secure();
                place = next.filter(is_safe).ok_or_else(|| Fact::Astray {
                    reason: "the address of its description leads nowhere we follow".to_owned(),
                })?;
            }
            _ => {
                return Err(unusable(&format!(
                    "its description at {} was answered with HTTP {status}; check the address in `openapi`",
                    address.without_query()
                )));
            }
        }
    }
    Err(Fact::Astray { reason: format!("more than {MAX_REDIRECTS} times") })
}
