//! An installed server as the gateway uses it: its command, its variables, its walls.

use std::path::{Path, PathBuf};

use metamcp_child::{environment, walls};
use metamcp_core::config::{HttpKind, ServerConfig, ServerState, Transport, Walls};
use metamcp_core::provision::{Contained, Input, Kind, Source, Word};
use metamcp_core::secret::Secret;

use super::Record;

/// The folder of a server's own that it may write to, in the one it is installed into. What was agreed to lies beside
/// it, out of its reach.
const OWN: &str = "data";

/// It gets the variables that were agreed to, and no others: as the person gave them, else from our own environment.
pub(in crate::provision) fn server_config(record: &Record) -> ServerConfig {
    let plan = &record.plan;
    let (command, args) = match record.argv.split_first() {
        Some((command, args)) => (command.clone(), args.to_vec()),
        None => (String::new(), Vec::new()),
    };
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut config = ServerConfig::stdio(&plan.server, &command, &args);
    config.description = Some(plan.description.clone()).filter(|about| !about.is_empty());
    let mut missing = Vec::new();
    let mut given = Vec::new();
    for input in &plan.environment {
        match value(record, input) {
            Some(value) => given.push((input.name.clone(), Secret::new(&input.name, value))),
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
    config
}

fn value(record: &Record, input: &Input) -> Option<String> {
    let given = record.values.iter().find(|(name, _)| *name == input.name);
    let given = given.map(|(_, value)| value.clone());
    let value = given.or_else(|| std::env::var(&input.name).ok()).or_else(|| input.default.clone());
    value.filter(|value| !value.is_empty())
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
        writes.push(prefix.join("node_modules").join(&plan.identifier));
    }
    let words = plan.argv.iter().zip(&record.argv);
    let asked = words.filter(|(word, _)| matches!(word, Word::Asked(_))).map(|(_, value)| value);
    writes.extend(asked.filter_map(|value| named(value)));
    writes.extend(record.values.iter().filter_map(|(_, value)| named(value)));
    // A publisher could name any variable of the user's; only those of our own list open a door.
    if plan.source == Source::Builtin {
        let values = plan.environment.iter().filter_map(|input| value(record, input));
        writes.extend(values.filter_map(|value| named(&value)));
    }
    writes.extend(record.reach.iter().cloned());
    Walls { home: prefix.join(OWN), reads, writes }
}

/// The folder or file that a value names, if it is one: a folder as it is, and for a file the folder it is in, since
/// databases put others beside theirs; but never a whole home for the sake of one file.
fn named(value: &str) -> Option<PathBuf> {
    let path = Path::new(value);
    if !path.is_absolute() {
        return None;
    }
    if path.is_dir() {
        return Some(path.to_owned());
    }
    let folder = path.parent().filter(|folder| folder.is_dir())?;
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let is_too_much = home.is_some_and(|home| home.starts_with(folder));
    if is_too_much { path.is_file().then(|| path.to_owned()) } else { Some(folder.to_owned()) }
}
