//! Whether a server would start here, and if not, what is missing.

use std::path::{Path, PathBuf};

use metamcp_child::process_sandbox::in_path;
use metamcp_config::clients::ClientVariables;
use metamcp_config::config::{self, LocalCommand, SWITCHED_OFF, ServerConfig};
use metamcp_types::secret::{Reference, Secret};
use serde_json::{Value, json};

use crate::env;

/// Why a server of our own file would not start here, as a fragment. One that is disabled need not start.
pub(crate) fn against(entry: &Value, asked: &ClientVariables) -> Option<String> {
    let file = json!({ "mcpServers": { "x": entry } }).to_string();
    // What its client fills in cannot be looked up here.
    let lookup = |name: &str| {
        let filled_in = asked.iter().any(|(known, _)| known == name);
        env::lookup(name).or_else(|| filled_in.then(|| "x".to_owned()))
    };
    let loaded = config::parse(&file, &lookup).ok()?;
    let server = loaded.config.servers.first()?;
    match server.state.against() {
        Some(SWITCHED_OFF) => None,
        Some(reason) => Some(reason.to_owned()),
        None => missing(server),
    }
}

/// The missing part of a server: its program, its folder, a secret.
fn missing(server: &ServerConfig) -> Option<String> {
    if let Some(LocalCommand { command, env, cwd, .. }) = server.transport.local() {
        if let Some(cwd) = cwd.as_ref().filter(|cwd| !cwd.is_dir()) {
            return Some(format!("its folder {} does not exist", cwd.display()));
        }
        let own_path = env.iter().find(|(name, _)| name == "PATH").map(|(_, path)| path.expose());
        if !is_there(command, own_path, cwd.as_deref()) {
            return Some(format!("its program `{command}` is not found"));
        }
    }
    server.transport.given().iter().find_map(|(name, value)| unanswered(name, value))
}

fn is_there(command: &str, own_path: Option<&str>, cwd: Option<&Path>) -> bool {
    let has_folder = command.contains('/') || (cfg!(windows) && command.contains('\\'));
    if has_folder {
        return cwd.is_some_and(|cwd| cwd.join(command).is_file()) || Path::new(command).is_file();
    }
    let in_own = own_path.is_some_and(|path| {
        std::env::split_paths(path).any(|folder| folder.join(command).is_file())
    });
    in_own || in_path(command.as_ref()).is_some()
}

fn unanswered(name: &str, value: &Secret) -> Option<String> {
    let reference = value.is_reference().then(|| Reference::parse(value.expose()))?;
    match reference {
        Ok(Reference::File(path)) => {
            let path = match (path.strip_prefix("~/"), env::lookup("HOME")) {
                (Some(rest), Some(home)) => PathBuf::from(home).join(rest),
                _ => PathBuf::from(path),
            };
            (!path.is_file())
                .then(|| format!("the secret for {name} is missing: no file {}", path.display()))
        }
        Ok(Reference::Command(words)) => {
            let program = words.first()?;
            in_path(program.as_ref())
                .is_none()
                .then(|| format!("`{program}`, which provides {name}, is not found"))
        }
        Ok(_) => None,
        Err(why) => Some(format!("the secret for {name} cannot be read: {why}")),
    }
}
