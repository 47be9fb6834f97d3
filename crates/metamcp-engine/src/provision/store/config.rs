//! The configuration of an installed server: its command, its variables, its sandbox.

use std::path::{Path, PathBuf};

use metamcp_child::{environment, process_sandbox};
use metamcp_config::config::{
    HttpKind, Installed, LocalCommand, PassEnv, RemoteEndpoint, Runtime, SandboxPolicy,
    SecretArguments, ServerConfig, ServerOrigin, ServerState, Transport,
};
use metamcp_provisioning::provision::secret_ref::secret_ref;
use metamcp_provisioning::provision::{Consent, Contained, Input, Kind, OWN_FOLDER, Plan, Source};
use metamcp_types::secret::{Reference, Secret};

use super::{Record, install};
use crate::env;
use crate::secrets::arguments;

/// It gets the approved variables and no others: the person's values, else from our own environment, else the publisher's
/// defaults.
pub(in crate::provision) fn server_config(record: &Record) -> ServerConfig {
    let plan = &record.plan;
    let (command, args, secret_arguments) = command_line(record);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut config = ServerConfig::stdio(&plan.server, &command, &args);
    config.secret_arguments = secret_arguments;
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
    if plan.kind == Kind::Pypi {
        // Byte code written beside the package would be code that nobody approved.
        given.push((
            "PYTHONDONTWRITEBYTECODE".to_owned(),
            Secret::new("PYTHONDONTWRITEBYTECODE", "1"),
        ));
    }
    // An installed server gets only what was approved.
    config.pass_env = PassEnv::Least;
    config.origin = ServerOrigin::Provisioned;
    config.in_container = plan.kind == Kind::Oci;
    let has_files = matches!(plan.kind, Kind::Npm | Kind::Pypi);
    config.installed_in = has_files.then(|| Installed {
        folder: PathBuf::from(&plan.prefix),
        manifest: record.manifest.clone(),
    });
    config.sandbox_policy = (plan.contained == Contained::Sandbox).then(|| sandbox_policy(record));
    config.transport = match plan.kind {
        Kind::Remote => Transport::from(RemoteEndpoint {
            url: command,
            headers: given,
            kind: HttpKind::Streamable,
            options: Box::default(),
        }),
        Kind::Npm | Kind::Pypi | Kind::Oci => {
            let own =
                config.sandbox_policy.as_ref().map(|sandbox_policy| sandbox_policy.home.clone());
            let cwd = own.or_else(|| Some(PathBuf::from(&plan.prefix)));
            let behind = record.runtime.clone().filter(|path| Path::new(path).is_file());
            let args = args.into_iter().map(str::to_owned).collect();
            let command = behind.unwrap_or(command);
            Transport::from(LocalCommand { command, args, env: given, cwd })
        }
    };
    if !missing.is_empty() {
        let reason = format!(
            "it needs {} in the environment of metamcp; set it and start metamcp again",
            missing.join(", ")
        );
        config.state = ServerState::Disabled { reason };
    }
    if let Some((name, what)) = in_the_open(record) {
        let reason = format!(
            "it takes {name}, a secret, as an argument, and {what} can be given one only where every user of this machine can read it; remove it with `metamcp remove {}`",
            plan.server
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

/// The command line, with secrets as placeholders: they are resolved when the server starts, and passed to it by a launcher
/// of ours. A server without secrets runs directly.
fn command_line(record: &Record) -> (String, Vec<String>, Option<SecretArguments>) {
    let mut words = record.argv.clone();
    let mut values = Vec::new();
    // An npm package's program is the first word after its runtime; a Python program has a shebang.
    let (runtime, own) = match record.plan.kind {
        Kind::Npm => (Some(Runtime::Node), 1),
        Kind::Pypi => (Some(Runtime::Python), 0),
        Kind::Oci | Kind::Remote => (None, 0),
    };
    for (at, word) in words.iter_mut().enumerate().skip(own + 1) {
        let Some(input) = record.plan.asked_at(at) else { continue };
        if let Some(secret) = secret(input, word) {
            *word = secret.to_string();
            values.push((at - own - 1, secret));
        }
    }
    let mut words = words.into_iter();
    let first = words.next().unwrap_or_default();
    let Some(runtime) = runtime.filter(|_| !values.is_empty()) else {
        return (first, words.collect(), None);
    };
    let prefix = Path::new(&record.plan.prefix);
    let starter = prefix.join(arguments::starter(runtime));
    let (interpreter, own) = match runtime {
        Runtime::Node => (first, words.collect()),
        Runtime::Python => {
            let python = prefix.join(install::PYTHON).to_string_lossy().into_owned();
            (python, std::iter::once(first).chain(words).collect())
        }
    };
    let (command, args) = arguments::command_line(runtime, &starter, interpreter, own);
    (command, args, Some(SecretArguments { runtime, starter, values }))
}

/// A secret argument that could only be passed in the command line: to docker, or to a `PyPI` program that is not a Python
/// script. Such plans are no longer installed.
fn in_the_open(record: &Record) -> Option<(&str, &'static str)> {
    let name = secret_argument(&record.plan, &record.argv)?;
    let program = record.argv.first().map(Path::new);
    // A missing program has its own error.
    let is_foreign = |program: &Path| program.is_file() && !install::is_python(program);
    match record.plan.kind {
        Kind::Oci => Some((name, "docker")),
        Kind::Pypi if program.is_some_and(is_foreign) => {
            Some((name, "a program that is not a Python script"))
        }
        Kind::Npm | Kind::Pypi | Kind::Remote => None,
    }
}

/// Whether an argument is a secret: by its declaration, or by the approved value.
pub(in crate::provision) fn takes_secrets(plan: &Plan, consent: &Consent) -> bool {
    plan.asked.iter().any(Input::is_secret) || secret_argument(plan, &consent.argv).is_some()
}

fn secret_argument<'p>(plan: &'p Plan, argv: &[String]) -> Option<&'p str> {
    let asked = argv.iter().enumerate().filter_map(|(at, word)| Some((plan.asked_at(at)?, word)));
    let mut secrets = asked.filter(|(input, word)| secret(input, word).is_some());
    secrets.next().map(|(input, _)| input.name.as_str())
}

/// The secret in a word of the command line, or the reference to one.
fn secret(input: &Input, word: &str) -> Option<Secret> {
    if secret_ref(word).is_some() {
        return Some(Secret::reference(&*input.name, word));
    }
    if Reference::is_one(word) {
        // A value typed into a client is not resolved as a reference: a model may have typed it.
        let is_theirs = input.is_secret() && input.default.as_deref() != Some(word);
        return is_theirs.then(|| Secret::reference(&*input.name, word));
    }
    // Older records contain secrets in plain text.
    let is_place = Path::new(word).is_absolute() && Path::new(word).exists();
    (input.is_worth_keeping(word) && !is_place).then(|| Secret::new(&*input.name, word))
}

/// The value of a variable. Only the person may give a reference to a secret: resolving it can run a program.
fn value(record: &Record, input: &Input) -> Option<Secret> {
    let name = &input.name;
    let given = record.values.iter().find(|(known, value)| known == name && !value.is_empty());
    if let Some((_, value)) = given {
        let is_reference = Reference::is_one(value) || secret_ref(value).is_some();
        let wrap = if is_reference { Secret::reference } else { Secret::new };
        return Some(wrap(name.clone(), value.clone()));
    }
    let own = env::var(name).filter(|value| !value.is_empty());
    let data = Path::new(&record.plan.prefix).join(install::DATA);
    let filled =
        input.default.as_ref().map(|value| value.replace(OWN_FOLDER, &data.to_string_lossy()));
    let value = own.or(filled).filter(|value| !value.is_empty());
    value.map(|value| Secret::new(name, value))
}

/// Its sandbox: it may read its packages, the runtime and certificates, and write its own folder and what the person named.
/// Its own package is read-only: a compromised server could otherwise modify itself permanently.
fn sandbox_policy(record: &Record) -> SandboxPolicy {
    let plan = &record.plan;
    let prefix = PathBuf::from(&plan.prefix);
    let runtime = match plan.kind {
        Kind::Pypi => Some(prefix.join(install::PYTHON)),
        _ => {
            let behind = record.runtime.as_deref().map(PathBuf::from).filter(|path| path.is_file());
            behind.or_else(|| process_sandbox::in_path(record.argv.first()?.as_ref()))
        }
    };
    let mut reads = vec![prefix.clone()];
    reads.extend(runtime.iter().flat_map(|program| process_sandbox::runtime(program)));
    reads.extend(environment::certificate_files());
    let mut writes = Vec::new();
    let home = env::home();
    writes.extend(given(record).filter_map(|value| named(&value, home.as_deref())));
    writes.extend(record.reach.iter().cloned());
    SandboxPolicy { home: prefix.join(install::DATA), reads, writes }
}

impl Record {
    /// The user's files and folders that it may read and change: named at installation, or allowed since.
    pub fn granted(&self) -> Vec<PathBuf> {
        let home = env::home();
        let mut all: Vec<PathBuf> =
            given(self).filter_map(|value| named(&value, home.as_deref())).collect();
        all.extend(self.reach.iter().cloned());
        all.sort();
        all.dedup();
        all
    }

    /// Values of the person that name too much to be granted, such as a home.
    pub fn too_much(&self) -> Vec<String> {
        let home = env::home();
        let is_shut = |value: &String| {
            Path::new(value).is_absolute()
                && Path::new(value).is_dir()
                && named(value, home.as_deref()).is_none()
        };
        let is_sandboxed = self.plan.contained == Contained::Sandbox;
        given(self).filter(|value| is_sandboxed && is_shut(value)).collect()
    }
}

/// The values that a person chose. A publisher's default grants no access, nor does an environment variable that only the
/// publisher named; those of the gallery do.
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

/// The path that a value names, if it names one: as it is, and for a file that does not exist yet its folder. Never the
/// whole disk, the user's home or a parent of it, however spelt: one word would defeat the sandbox. Dot folders contain
/// keys, so a file in one of them grants nothing else.
pub(super) fn named(value: &str, home: Option<&Path>) -> Option<PathBuf> {
    let path = Path::new(value);
    if !path.is_absolute() {
        return None;
    }
    let home = home.map(|home| dunce::canonicalize(home).unwrap_or_else(|_| home.to_owned()));
    let is_too_much = |path: &Path| {
        path.parent().is_none() || home.as_ref().is_some_and(|home| home.starts_with(path))
    };
    if let Ok(real) = dunce::canonicalize(path) {
        return (!is_too_much(&real)).then_some(real);
    }
    let folder = dunce::canonicalize(path.parent()?).ok().filter(|folder| folder.is_dir())?;
    let is_private = home.as_ref().is_some_and(|home| {
        let inside = folder.strip_prefix(home).ok().and_then(|inside| inside.iter().next());
        inside.is_some_and(|first| first.as_encoded_bytes().starts_with(b"."))
    });
    (!is_too_much(&folder) && !is_private).then_some(folder)
}
