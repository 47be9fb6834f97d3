//! Keys of remote servers only: TLS, bearer token, OAuth.

use std::path::PathBuf;

use jsonc_parser::ast::Value;
use jsonc_parser::common::Range;

use super::transport::Values;
use crate::config::read::{Fields, Key, Node};
use crate::config::{Grant, HttpOptions, IdentityProvider, Login, OAuthEndpoints, TlsFiles};
use crate::settings::shown;
use metamcp_types::secret::{Reference, Secret};
use metamcp_types::web::Address;

/// Longest value that is taken for a client id, a scope or an address.
const MAX_TEXT: usize = 2048;

/// Reads `tls`, `oauth` and `bearerToken`; a token becomes one of the headers.
pub(super) fn read_options(
    values: &mut Values<'_, '_, '_>,
    fields: &mut Fields<'_, '_>,
    headers: &mut Vec<(String, Secret)>,
) -> Option<HttpOptions> {
    let mut options = HttpOptions::default();
    if let Some(field) = fields.take("tls") {
        options.tls = read_tls(values, &field.node)?;
    }
    if let Some(field) = fields.take("oauth") {
        options.login = read_login(values, &field.node)?;
    }
    if let Some(field) = fields.take("bearerToken") {
        let token = values.secret(&field.node, "bearerToken")?;
        if headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization")) {
            let message = "contradicts the header `Authorization`";
            let hint = "keep one of the two".to_owned();
            values.report.problem_with(field.node.range(), &field.node.path, message, hint);
        }
        if token.is_empty() || token.contains(|c: char| !c.is_ascii_graphic()) {
            let message = "holds characters that no token has";
            values.report.problem(field.node.range(), &field.node.path, message);
            return None;
        }
        let name = "Authorization".to_owned();
        headers.push((name, Secret::new("bearerToken", format!("Bearer {token}"))));
    }
    Some(options)
}

const TLS_KEYS: [Key; 3] = [
    Key { name: "ca", aliases: &["caFile", "ca_file"] },
    Key { name: "cert", aliases: &["certFile", "cert_file", "clientCert"] },
    Key { name: "key", aliases: &["keyFile", "key_file", "clientKey"] },
];

fn read_tls(values: &mut Values<'_, '_, '_>, node: &Node<'_, '_>) -> Option<TlsFiles> {
    let object = node.object(values.report)?;
    let mut fields = Fields::read(values.report, object, &node.path, &TLS_KEYS, &[]);
    let mut file = |name: &str| -> Option<Option<PathBuf>> {
        match fields.take(name) {
            Some(field) => Some(Some(values.path(&field.node)?)),
            None => Some(None),
        }
    };
    let files = TlsFiles { ca: file("ca")?, cert: file("cert")?, key: file("key")? };
    if files.cert.is_some() != files.key.is_some() {
        let hint = "a client certificate needs both `cert` and `key`".to_owned();
        let message = "names only half of a client certificate";
        values.report.problem_with(node.range(), &node.path, message, hint);
    }
    Some(files)
}

const LOGIN_KEYS: [Key; 11] = [
    Key { name: "enabled", aliases: &[] },
    Key { name: "clientId", aliases: &["client_id", "CLIENT_ID"] },
    Key { name: "clientSecret", aliases: &["client_secret", "CLIENT_SECRET"] },
    Key { name: "privateKey", aliases: &["private_key", "privateKeyFile"] },
    Key { name: "scopes", aliases: &["scope"] },
    Key { name: "grant", aliases: &["grantType", "grant_type"] },
    Key { name: "clientMetadataUrl", aliases: &["client_metadata_url"] },
    Key { name: "callbackPort", aliases: &["callback_port"] },
    Key { name: "identityProvider", aliases: &["identity_provider", "idp"] },
    Key { name: "authorizationUrl", aliases: &["authorization_url"] },
    Key { name: "tokenUrl", aliases: &["token_url"] },
];

const COMPANY_KEYS: [Key; 3] = [
    Key { name: "tokenUrl", aliases: &["token_url", "tokenEndpoint"] },
    Key { name: "clientId", aliases: &["client_id"] },
    Key { name: "idToken", aliases: &["id_token"] },
];

/// The words of `grant`.
const GRANTS: [(&str, Grant); 2] =
    [("authorization_code", Grant::Person), ("client_credentials", Grant::Machine)];

fn read_login(values: &mut Values<'_, '_, '_>, node: &Node<'_, '_>) -> Option<Login> {
    let mut login = Login::default();
    match node.value {
        Value::BooleanLit(literal) => {
            login.wanted = literal.value;
            return Some(login);
        }
        Value::StringLit(literal) if literal.value == "oauth" => return Some(login),
        Value::Object(_) => {}
        _ => return node.wrong(values.report, "an object, or `false` to never sign in"),
    }
    let object = node.object(values.report)?;
    let mut fields = Fields::read(values.report, object, &node.path, &LOGIN_KEYS, &[]);
    if let Some(field) = fields.take("enabled") {
        login.wanted = field.node.boolean(values.report)?;
    }
    if let Some(field) = fields.take("clientId") {
        login.client_id = Some(bounded(values, &field.node)?);
    }
    if let Some(field) = fields.take("clientSecret") {
        let secret = values.secret(&field.node, "clientSecret")?;
        login.client_secret = Some(Secret::new("clientSecret", secret));
    }
    if let Some(field) = fields.take("privateKey") {
        login.private_key = Some(values.path(&field.node)?);
    }
    if let Some(field) = fields.take("scopes") {
        let text = match field.node.value {
            Value::Array(_) => values.texts(&field.node)?.join(" "),
            _ => bounded(values, &field.node)?,
        };
        login.scopes = text.split_whitespace().map(str::to_owned).collect();
    }
    if let Some(field) = fields.take("grant") {
        let written = field.node.string(values.report)?;
        let Some((_, grant)) = GRANTS.iter().find(|(word, _)| *word == written) else {
            let message = format!(
                "unknown grant `{}`: expected `authorization_code` or `client_credentials`",
                shown(written)
            );
            values.report.problem(field.node.range(), &field.node.path, message);
            return None;
        };
        login.grant = *grant;
    }
    if let Some(field) = fields.take("clientMetadataUrl") {
        let text = bounded(values, &field.node)?;
        if !Address::parse(&text).is_ok_and(|address| address.is_secure()) {
            values.report.problem(field.node.range(), &field.node.path, "must begin with https://");
            return None;
        }
        login.metadata_url = Some(text);
    }
    if let Some(field) = fields.take("callbackPort") {
        let port = field.node.number(values.report, "a port", 1, 65_535)?;
        login.callback_port = u16::try_from(port).ok();
    }
    if let Some(field) = fields.take("identityProvider") {
        login.identity_provider = Some(read_identity_provider(values, &field.node)?);
        login.grant = Grant::Machine;
    }
    login.endpoints = read_endpoints(values, &mut fields)?;
    let proves = login.client_secret.is_some() || login.private_key.is_some();
    if login.grant == Grant::Machine && (login.client_id.is_none() || !proves) {
        let message = "`client_credentials` needs `clientId` and `clientSecret` or `privateKey`";
        values.report.problem(node.range(), &node.path, message);
    }
    Some(login)
}

/// The addresses of the authorization server: the one for tokens, and the one for a person with it.
#[expect(
    clippy::option_option,
    reason = "outside: whether they can be used; inside: whether they are there"
)]
fn read_endpoints(
    values: &mut Values<'_, '_, '_>,
    fields: &mut Fields<'_, '_>,
) -> Option<Option<OAuthEndpoints>> {
    let mut address = |name: &str| -> Option<Option<(String, Range, String)>> {
        let Some(field) = fields.take(name) else { return Some(None) };
        let text = bounded(values, &field.node)?;
        if !Address::parse(&text).is_ok_and(|address| address.is_confidential()) {
            let message = "must begin with https://";
            values.report.problem(field.node.range(), &field.node.path, message);
            return None;
        }
        Some(Some((text, field.node.range(), field.node.path)))
    };
    let (authorization, token) = (address("authorizationUrl")?, address("tokenUrl")?);
    match (authorization, token) {
        (Some((_, range, path)), None) => {
            values.report.problem(range, &path, "needs `tokenUrl` beside it");
            None
        }
        (authorization, Some((token_url, ..))) => {
            let authorization_url = authorization.map(|(url, ..)| url);
            Some(Some(OAuthEndpoints { authorization_url, token_url }))
        }
        (None, None) => Some(None),
    }
}

fn read_identity_provider(
    values: &mut Values<'_, '_, '_>,
    node: &Node<'_, '_>,
) -> Option<IdentityProvider> {
    let object = node.object(values.report)?;
    let mut fields = Fields::read(values.report, object, &node.path, &COMPANY_KEYS, &[]);
    let all = COMPANY_KEYS.map(|key| fields.take(key.name));
    let [Some(token_url), Some(client_id), Some(id_token)] = all else {
        let message = "needs `tokenUrl`, `clientId` and `idToken`";
        values.report.problem(node.range(), &node.path, message);
        return None;
    };
    let address = bounded(values, &token_url.node)?;
    if !Address::parse(&address).is_ok_and(|address| address.is_confidential()) {
        let message = "must begin with https://";
        values.report.problem(token_url.node.range(), &token_url.node.path, message);
        return None;
    }
    let text = values.secret(&id_token.node, "idToken")?;
    let wrap = if Reference::is_one(&text) { Secret::reference } else { Secret::new };
    Some(IdentityProvider {
        token_url: address,
        client_id: bounded(values, &client_id.node)?,
        id_token: wrap("idToken", &text),
    })
}

fn bounded(values: &mut Values<'_, '_, '_>, node: &Node<'_, '_>) -> Option<String> {
    let text = values.text(node)?;
    if text.is_empty() || text.len() > MAX_TEXT || text.contains(char::is_control) {
        values.report.problem(node.range(), &node.path, "is empty, too long, or no plain text");
        return None;
    }
    Some(text)
}
