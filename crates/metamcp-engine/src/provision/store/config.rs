//! An installed server as the gateway uses it: its command, its variables, its walls.

use std::path::{Path, PathBuf};

use metamcp_child::{environment, walls};
use metamcp_core::config::{HttpKind, ServerConfig, ServerState, Transport, Walls};
use metamcp_core::provision::kept::kept;
use metamcp_core::provision::{Contained, Input, Kind, Source};
use metamcp_core::secret::{Reference, Secret};

use super::{Record, install};

/// It gets the variables that were agreed to, and no others: as the person gave them, else from our own environment,
/// else as its publisher fills them in.
pub(in crate::provision) fn server_config(record: &Record) -> ServerConfig {
    let plan = &record.plan;
    let (command, args) = match record.argv.split_first() {
        Some((command, args)) => (command.clone(), args.to_vec()),
        None => (String::new(), Vec::new()),
    };
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut config = ServerConfig::stdio(&plan.server, &command, &args);
    hide_secrets(record, &mut config);
    config.description = Some(plan.description.clone()).filter(|about| !about.is_empty());
    let mut missing = Vec::new();
    let mut given = Vec::new();
    for input in &plan.environment {
        match value(record, input) {
            Some(value) => given.push((input.name.clone(), value)),
            None if input.required => missing.push(input.name.clone()),
            None => {}
        }
    }
    config.walls = (plan.contained == Contained::Walls).then(|| walls(record));
    config.transport = match plan.kind {
        Kind::Remote => Transport::Http {
            url: command,
            headers: given,
            kind: HttpKind::Streamable,
            options: Box::default(),
        },
        Kind::Npm | Kind::Pypi | Kind::Oci => match config.transport {
            Transport::Stdio { command, args, .. } => {
                let own = config.walls.as_ref().map(|walls| walls.home.clone());
                let cwd = own.or_else(|| Some(PathBuf::from(&plan.prefix)));
                let behind = record.runtime.clone().filter(|path| Path::new(path).is_file());
                Transport::Stdio { command: behind.unwrap_or(command), args, env: given, cwd }
            }
            other => other,
        },
    };
    if !missing.is_empty() {
        let reason = format!(
            "it needs {} in the environment of metamcp; set it and start metamcp again",
            missing.join(", ")
        );
        config.state = ServerState::Disabled { reason };
    }
    if let Some(reason) = &record.quarantine {
        let name = &plan.server;
        config.state = ServerState::Withheld {
            reason: reason.clone(),
            cure: format!(
                "A person has to look at it: `metamcp provisioned show {name}` shows what it is, `metamcp provisioned accept {name}` lets it be used all the same, `metamcp remove {name}` takes it away."
            ),
        };
    }
    config
}

/// Arguments that are secrets are not in the configuration: they are looked up when the server starts.
fn hide_secrets(record: &Record, config: &mut ServerConfig) {
    let Transport::Stdio { args, .. } = &mut config.transport else { return };
    for (at, word) in args.iter_mut().enumerate() {
        let Some(input) = record.plan.asked_at(at + 1) else { continue };
        // What a person types into a client is not looked up: it may be a model that types.
        let is_theirs =
            input.is_secret() && input.default.as_ref() != Some(word) && Reference::is_one(word);
        if is_theirs || kept(word).is_some() {
            let hidden = format!("[secret {}]", input.name);
            let reference = Secret::reference(&input.name, std::mem::replace(word, hidden));
            config.secret_arguments.push((at, reference));
        }
    }
}

/// The value of a variable. Only the person can say where a secret is instead of what it is: looking it up can run a
/// program.
fn value(record: &Record, input: &Input) -> Option<Secret> {
    let name = &input.name;
    let given = record.values.iter().find(|(known, value)| known == name && !value.is_empty());
    if let Some((_, value)) = given {
        let is_reference = Reference::is_one(value) || kept(value).is_some();
        let wrap = if is_reference { Secret::reference } else { Secret::new };
        return Some(wrap(name.clone(), value.clone()));
    }
    let own = std::env::var(name).ok().filter(|value| !value.is_empty());
    let value = own.or_else(|| input.default.clone()).filter(|value| !value.is_empty());
    value.map(|value| Secret::new(name, value))
}

/// What it needs: its packages, the runtime, certificates; and to write, a folder of its own, the package itself
/// (some keep their files beside their program), and what the person named.
fn walls(record: &Record) -> Walls {
    let plan = &record.plan;
    let prefix = PathBuf::from(&plan.prefix);
    let runtime = match plan.kind {
        Kind::Pypi => Some(prefix.join("venv/bin/python")),
        _ => {
            let behind = record.runtime.as_deref().map(PathBuf::from).filter(|path| path.is_file());
            behind.or_else(|| walls::in_path(record.argv.first()?.as_ref()))
        }
    };
    let mut reads = vec![prefix.clone()];
    reads.extend(runtime.iter().flat_map(|program| walls::runtime(program)));
    reads.extend(environment::certificate_files());
    let mut writes = Vec::new();
    if plan.kind == Kind::Npm {
        let own = Path::new(install::MODULES).join(&plan.identifier);
        writes.extend(install::inside(&prefix, &own));
    }
    let home = std::env::var_os("HOME").map(PathBuf::from);
    writes.extend(given(record).filter_map(|value| named(&value, home.as_deref())));
    writes.extend(record.reach.iter().cloned());
    Walls { home: prefix.join(install::DATA), reads, writes }
}

impl Record {
    /// What the person named for it that is too much to be opened for the sake of one word.
    pub fn too_much(&self) -> Vec<String> {
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let is_shut = |value: &String| {
            Path::new(value).is_absolute()
                && Path::new(value).is_dir()
                && named(value, home.as_deref()).is_none()
        };
        let has_walls = self.plan.contained == Contained::Walls;
        given(self).filter(|value| has_walls && is_shut(value)).collect()
    }
}

/// The values that a person chose for it. What its publisher fills in opens no door, nor does a variable of the user's
/// that a publisher only named; those of our own list do.
fn given(record: &Record) -> impl Iterator<Item = String> {
    let plan = &record.plan;
    let words = plan.given(&record.argv).map(str::to_owned);
    let variables = plan.environment.iter().filter_map(move |input| {
        let is_given = record.values.iter().any(|(name, _)| *name == input.name);
        let value = value(record, input).filter(|_| is_given || plan.source == Source::Builtin)?;
        (input.default.as_deref() != Some(value.expose())).then(|| value.expose().to_owned())
    });
    words.chain(variables)
}

/// The folder or file that a value names, if it is one: each as it is, and for a file that is yet to be written the
/// folder it will be in. Never the whole disk, the user's home or what that is in, however they are spelt: one word
/// would undo the walls. The folders beginning with a dot hold keys, so a file in one of them opens nothing else.
pub(super) fn named(value: &str, home: Option<&Path>) -> Option<PathBuf> {
    let path = Path::new(value);
    if !path.is_absolute() {
        return None;
    }
    let home = home.map(|home| home.canonicalize().unwrap_or_else(|_| home.to_owned()));
    let is_too_much = |path: &Path| {
        path.parent().is_none() || home.as_ref().is_some_and(|home| home.starts_with(path))
    };
    if let Ok(real) = path.canonicalize() {
        return (!is_too_much(&real)).then_some(real);
    }
    let folder = path.parent()?.canonicalize().ok().filter(|folder| folder.is_dir())?;
    let is_private = home.as_ref().is_some_and(|home| {
        let inside = folder.strip_prefix(home).ok().and_then(|inside| inside.iter().next());
        inside.is_some_and(|first| first.as_encoded_bytes().starts_with(b"."))
    });
    (!is_too_much(&folder) && !is_private).then_some(folder)
}
