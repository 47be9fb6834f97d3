//! Resolves the secret references of a configuration when a server starts.
//! Owns: reading files, keychains and programs, with limits on time and size; passing secret arguments.      Never: logs a value, puts one into a command line, keeps one longer than its server.
//! In: a server's configuration.  Out: the same with values in place of references, or why one cannot be resolved.
//! Tests: below, `secrets/arguments/tests.rs`, and `metamcp/tests/promises/secrets.rs` with a real child.

pub(crate) mod arguments;
mod program;

use std::path::PathBuf;
use std::time::Duration;

use metamcp_config::config::{SecretArguments, ServerConfig};
use metamcp_types::secret::{Reference, Secret};

pub use self::program::{forget, has_keyring, keep, kept};
use self::program::{printed, text};
use crate::env::{self, Variables};

/// Time limit of a program: a person may have to unlock something.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(30);
/// Longer than any secret that fits into a variable or a header.
const MAX_BYTES: u64 = 64 * 1024;

/// A secret cannot be resolved. Its server is not started; all others are.
#[derive(Debug, thiserror::Error)]
#[error("the secret for {name} cannot be resolved: {why}")]
pub struct Unresolved {
    name: String,
    why: String,
}

/// The configuration with every reference resolved; `None` if there is none.
pub async fn resolved(
    config: &ServerConfig,
    variables: &Variables,
) -> Result<Option<ServerConfig>, Unresolved> {
    let mut config = config.clone();
    let values = std::mem::take(config.transport.given_mut());
    let arguments = config.secret_arguments.take();
    let is_hidden = config.overrides.texts().any(Secret::is_reference);
    if arguments.is_none() && !is_hidden && !values.iter().any(|(_, value)| value.is_reference()) {
        return Ok(None);
    }
    let mut looked_up = Vec::with_capacity(values.len());
    for (name, value) in values {
        let value =
            if value.is_reference() { look_up(&name, &value, variables).await? } else { value };
        looked_up.push((name, value));
    }
    if let Some(arguments) = arguments {
        let secrets = &mut config.expanded_secrets;
        looked_up.push(handed_over(arguments, secrets, variables).await?);
    }
    for text in config.overrides.texts_mut().filter(|text| text.is_reference()) {
        *text = look_up(text.name(), text, variables).await?;
    }
    *config.transport.given_mut() = looked_up;
    Ok(Some(config))
}

/// The variable that passes arguments; each of them counts as a secret from now on.
async fn handed_over(
    arguments: SecretArguments,
    secrets: &mut Vec<Secret>,
    variables: &Variables,
) -> Result<(String, Secret), Unresolved> {
    let mut values = Vec::with_capacity(arguments.values.len());
    for (place, value) in &arguments.values {
        values.push((*place, resolved_one(value.name(), value, variables).await?));
    }
    secrets.extend(values.iter().map(|(_, value)| value.clone()));
    let names: Vec<&str> = arguments.values.iter().map(|(_, value)| value.name()).collect();
    let name = names.join(", ");
    let hand = move || arguments::handed(&arguments, &values);
    let handed = tokio::task::spawn_blocking(hand).await;
    let handed = handed.unwrap_or_else(|_| Err("it cannot be passed on".to_owned()));
    handed.map_err(|why| Unresolved { name, why })
}

/// One secret, resolved if it is a reference.
pub async fn one(name: &str, value: &Secret) -> Result<Secret, Unresolved> {
    resolved_one(name, value, &Variables::default()).await
}

async fn resolved_one(
    name: &str,
    value: &Secret,
    variables: &Variables,
) -> Result<Secret, Unresolved> {
    if value.is_reference() { look_up(name, value, variables).await } else { Ok(value.clone()) }
}

/// The variables that a server's secrets refer to: two clients with different ones mean different servers.
pub fn variables(config: &ServerConfig) -> Vec<String> {
    let own = config.transport.given().iter().map(|(_, value)| value);
    let arguments = config.secret_arguments.iter().flat_map(|all| &all.values);
    let hidden = config.overrides.texts();
    let references = own.chain(arguments.map(|(_, value)| value)).chain(hidden);
    let references = references.filter(|one| one.is_reference());
    let variable = |one: &Secret| match Reference::parse(one.expose()) {
        Ok(Reference::Variable(name)) => Some(name),
        _ => None,
    };
    references.filter_map(variable).collect()
}

async fn look_up(name: &str, value: &Secret, variables: &Variables) -> Result<Secret, Unresolved> {
    let fail = |why| Unresolved { name: name.to_owned(), why };
    let reference = Reference::parse(value.expose()).map_err(fail)?;
    let found = match reference {
        Reference::Literal(text) => Ok(text),
        Reference::Variable(variable) => variables
            .get(&variable)
            .ok_or_else(|| format!("environment variable {variable} is not set")),
        Reference::File(path) => file(&path).await,
        Reference::Command(words) => {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            printed(&words, None, PROGRAM_TIMEOUT).await
        }
        Reference::OnePassword(item) => {
            printed(&["op", "read", "--no-newline", &item], None, PROGRAM_TIMEOUT).await
        }
        Reference::Keychain { service, account } => kept(&service, &account, PROGRAM_TIMEOUT).await,
    };
    let found = found.map_err(fail)?;
    if found.is_empty() {
        return Err(fail("it is empty".to_owned()));
    }
    if found.contains('\0') {
        return Err(fail(
            "it contains a NUL character, which cannot be passed to a program".to_owned(),
        ));
    }
    Ok(Secret::new(name, found))
}

async fn file(path: &str) -> Result<String, String> {
    let below_home = path
        .strip_prefix("~/")
        .or_else(|| if cfg!(windows) { path.strip_prefix(r"~\") } else { None });
    let path = match (below_home, env::home()) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(path),
    };
    let read = move || {
        let fail = |error: std::io::Error| format!("{}: {error}", path.display());
        let kind = std::fs::metadata(&path).map_err(fail)?;
        // A pipe without a writer would block forever.
        if !kind.is_file() || kind.len() > MAX_BYTES {
            return Err(format!("{} is not a file, or too large for a secret", path.display()));
        }
        let bytes = std::fs::read(&path).map_err(fail)?;
        text(bytes).ok_or_else(|| format!("{} is not text", path.display()))
    };
    // A slow disk delays only this server.
    tokio::task::spawn_blocking(read).await.unwrap_or_else(|_| Err("it cannot be read".to_owned()))
}

#[cfg(all(test, unix))]
mod tests {
    use metamcp_config::config::{LocalCommand, Runtime};

    use super::*;

    async fn value(reference: &str) -> Result<String, String> {
        let mut server = ServerConfig::stdio("one", "x", &[]);
        let env = server.transport.given_mut();
        env.push(("KEY".to_owned(), Secret::reference("KEY", reference)));
        let server =
            resolved(&server, &Variables::default()).await.map_err(|error| error.to_string())?;
        let server = server.expect("there is one reference");
        Ok(server.transport.given()[0].1.expose().to_owned())
    }

    #[tokio::test]
    async fn every_kind_of_reference_is_resolved() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        std::fs::write(&path, "s3cret\n").unwrap();
        let path = path.display();
        assert_eq!(value(&format!("file:{path}")).await.as_deref(), Ok("s3cret"));
        assert_eq!(value(&format!("secretref:file:{path}")).await.as_deref(), Ok("s3cret"));
        assert_eq!(value("cmd:printf 'a b'").await.as_deref(), Ok("a b"));
        assert_eq!(value("literal:op://x").await.as_deref(), Ok("op://x"));
        for (reference, why) in [
            ("file:/nonexistent/key".to_owned(), "No such file"),
            (format!("file:{}", folder.path().display()), "not a file"),
            ("cmd:false".to_owned(), "false failed"),
            ("cmd:/nonexistent/program".to_owned(), "cannot be run"),
            ("cmd:true".to_owned(), "empty"),
            ("secretref:env:METAMCP_NOT_SET".to_owned(), "METAMCP_NOT_SET is not set"),
        ] {
            let told = value(&reference).await.unwrap_err();
            assert!(told.starts_with("the secret for KEY") && told.contains(why), "{told}");
        }
    }

    #[tokio::test]
    async fn an_argument_is_resolved_at_start_and_counts_as_a_secret() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let address = "postgresql://ada:hunter2@db/notes";
        std::fs::write(&path, address).unwrap();
        let words = ["entry.js", "--url", "[secret url]", "rest"];
        let mut server = ServerConfig::stdio("one", "x", &words);
        let reference = Secret::reference("url", format!("file:{}", path.display()));
        server.secret_arguments = Some(SecretArguments {
            runtime: Runtime::Node,
            starter: folder.path().join("start.cjs"),
            values: vec![(1, reference)],
        });
        let started = resolved(&server, &Variables::default())
            .await
            .unwrap()
            .expect("there is one to look up");
        let LocalCommand { args, env, .. } = started.transport.local().unwrap();
        assert_eq!(args[..], words, "the command line has none of it");
        assert_eq!(env[0].1.expose(), format!("[[1,{address:?}]]"));
        assert!(started.secrets().iter().any(|secret| secret.name() == "url"));
        assert!(!format!("{started:?}").contains("hunter2"));
        std::fs::remove_file(&path).unwrap();
        let told = resolved(&server, &Variables::default()).await.unwrap_err().to_string();
        assert!(told.starts_with("the secret for url cannot be resolved"), "{told}");
    }

    #[tokio::test]
    async fn without_references_nothing_is_done() {
        let server = ServerConfig::stdio("one", "x", &[]);
        assert!(resolved(&server, &Variables::default()).await.unwrap().is_none());
    }
}
