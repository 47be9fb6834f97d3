//! The description files of APIs that a configuration names: found beside it, hashed, so that a change is one of the
//! configuration, and for a project part of what a person approves.

use std::path::{Path, PathBuf};

use metamcp_config::config::{ApiEndpoint, ConfigPreview, Grant, OAuthEndpoints, ServerConfig};
use metamcp_openapi::security::{self, Scheme};
use metamcp_openapi::{Document, Glance, MAX_DOCUMENT, Options};
use metamcp_types::text;
use metamcp_types::web::Address;

use super::project;
use crate::trust;

/// The file of a description, if it is one.
pub(super) fn file(api: &ApiEndpoint) -> Option<PathBuf> {
    (!api.is_fetched()).then(|| PathBuf::from(&api.description))
}

/// Makes the files of all descriptions absolute and says what they hold. Returns which cannot be read, and why.
pub(super) fn locate(folder: &Path, servers: &mut [ServerConfig]) -> Vec<(String, String)> {
    let mut unreadable = Vec::new();
    for server in servers.iter_mut().filter(|server| server.is_enabled()) {
        let Some(api) = server.transport.api_mut() else { continue };
        let Some(path) = file(api) else { continue };
        let path = folder.join(path);
        api.description = path.to_string_lossy().into_owned();
        match project::read(&path, MAX_DOCUMENT as u64) {
            Ok(bytes) => {
                api.digest = Some(trust::sha256(&bytes));
                complete_login(api, &bytes);
            }
            Err(why) => unreadable.push((server.name.clone(), why)),
        }
    }
    unreadable
}

/// Where to sign in, from a file, which is trusted as much as the entry that names it.
fn complete_login(api: &mut ApiEndpoint, bytes: &[u8]) {
    let login = &api.remote.options.login;
    if !login.wanted || login.endpoints.is_some() {
        return;
    }
    let Ok(document) = Document::read(bytes) else { return };
    let login = &mut api.remote.options.login;
    let schemes = security::schemes(&document);
    let endpoints = schemes.values().find_map(|scheme| match scheme {
        Scheme::OAuth { authorize, token: Some(token), is_machine, .. }
            if authorize.is_some() || *is_machine || login.grant == Grant::Machine =>
        {
            Some(OAuthEndpoints { authorization_url: authorize.clone(), token_url: token.clone() })
        }
        _ => None,
    });
    let is_usable = |endpoints: &OAuthEndpoints| {
        let all = endpoints.authorization_url.iter().chain([&endpoints.token_url]);
        all.into_iter().all(|url| Address::parse(url).is_ok_and(|url| url.is_confidential()))
    };
    login.endpoints = endpoints.filter(is_usable);
}

/// The bytes of a description file; the disk may be slow.
pub(crate) async fn from_disk(path: PathBuf) -> Result<Vec<u8>, String> {
    let read = tokio::task::spawn_blocking(move || project::read(&path, MAX_DOCUMENT as u64));
    read.await.unwrap_or_else(|_| Err("it cannot be read".to_owned()))
}

/// What an entry says about the API, for reading its description. `home` is where that is from.
pub(crate) fn options(api: &ApiEndpoint, home: Option<Address>) -> Options {
    let rules = |all: &[String]| all.iter().map(|rule| metamcp_openapi::Rule::read(rule)).collect();
    Options {
        include: rules(&api.include),
        exclude: rules(&api.exclude),
        base_url: api.base_url().and_then(|url| Address::parse(url).ok()),
        home,
        given_headers: api.headers().map(|(name, _)| name.clone()).collect(),
        credentials: api.credentials().map(|(name, _)| name.to_owned()).collect(),
        ..Options::default()
    }
}

/// Holds the descriptions of a project's servers to what was looked at when it was approved: the files may have changed
/// between that and now.
pub(super) fn hold_to(approved: &[(String, String)], servers: &mut [ServerConfig]) {
    for server in servers {
        let looked_at = approved.iter().find(|(name, _)| *name == server.name);
        let Some(api) = server.transport.api_mut().filter(|api| !api.is_fetched()) else {
            continue;
        };
        api.digest =
            Some(looked_at.map_or_else(|| "none".to_owned(), |(_, digest)| digest.clone()));
    }
}

/// The digests of the descriptions that a project's file names, by server; the preview says what they hold.
pub(super) fn of_project(
    folder: &Path,
    preview: &mut ConfigPreview,
) -> Result<Vec<(String, String)>, String> {
    let mut digests = Vec::new();
    for server in &mut preview.servers {
        let Some(written) = server.openapi.clone() else { continue };
        let name = &server.name;
        if written.contains("${") {
            return Err(format!(
                "the description of its server {name:?} is named by a variable, so nobody can say what would be approved; write it out"
            ));
        }
        if written.contains("://") {
            server
                .others
                .push(("description".to_owned(), "fetched once the file is approved".to_owned()));
            continue;
        }
        let path = match (written.strip_prefix("~/"), crate::env::home()) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => folder.join(&written),
        };
        let (digest, told) = match project::read(&path, MAX_DOCUMENT as u64) {
            Ok(bytes) => (trust::sha256(&bytes), summary(&bytes)),
            Err(why) => ("none".to_owned(), why),
        };
        let short = digest.get(..12).unwrap_or(&digest);
        server.others.push(("description".to_owned(), format!("{told} (sha256 {short}…)")));
        digests.push((name.clone(), digest));
    }
    Ok(digests)
}

/// What a description holds, in a line.
fn summary(bytes: &[u8]) -> String {
    match Document::read(bytes).map(|document| Glance::of(&document)) {
        Ok(Glance { title, operations, base }) => {
            let base =
                base.map_or_else(|error| format!("no address ({error})"), |base| base.to_string());
            format!("{:?}, {operations} operations at {base}", text::clean_line(&title, 60))
        }
        Err(error) => text::clean_line(&error.to_string(), 200).into_owned(),
    }
}
