//! What `npx` would run, by npm's own rules for what is installed where.
//! Owns: npx's flags, package names, the place and key of its cache.      Never: compares version ranges.
//! In: arguments.  Out: `node` with a file, and the arguments left for it.

use std::path::{Path, PathBuf};

use serde_json::Value;
use sha2::{Digest, Sha512};

use super::{Command, Surroundings, below, command_for, json, real, text};

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request<'a> {
    /// The packages to be installed; the first names the command unless `bin` does.
    pub(super) packages: Vec<&'a str>,
    /// The command inside the packages, if packages were named apart from it.
    pub(super) bin: Option<&'a str>,
    pub(super) rest: &'a [&'a str],
}

/// Reads the arguments of `npx`. Everything after the first word belongs to the server.
pub(super) fn request<'a>(args: &'a [&'a str]) -> Option<Request<'a>> {
    let mut packages = Vec::new();
    let mut at = 0;
    loop {
        let arg = *args.get(at)?;
        at += 1;
        match arg {
            // Without an install these mean nothing; with one already there neither do they.
            "-y" | "--yes" | "-q" | "--quiet" | "--no-install" | "--offline"
            | "--prefer-offline" => {}
            "-p" | "--package" => {
                packages.push(*args.get(at)?);
                at += 1;
            }
            "--" => {
                let word = *args.get(at)?;
                return Some(finish(packages, word, &args[at + 1..]));
            }
            _ if arg.starts_with("--package=") => packages.push(&arg["--package=".len()..]),
            _ if arg.starts_with('-') => return None,
            word => return Some(finish(packages, word, &args[at..])),
        }
    }
}

fn finish<'a>(packages: Vec<&'a str>, word: &'a str, rest: &'a [&'a str]) -> Request<'a> {
    if packages.is_empty() {
        Request { packages: vec![word], bin: None, rest }
    } else {
        Request { packages, bin: Some(word), rest }
    }
}

/// A package from the registry, as opposed to a path, an address or an alias.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Package<'a> {
    pub(super) name: &'a str,
    pub(super) version: Version<'a>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Version<'a> {
    /// The name alone.
    Any,
    /// Exactly this one.
    Exact(&'a str),
    /// A tag or a range: only npm knows what it means today.
    Floating,
}

pub(super) fn package(spec: &str) -> Option<Package<'_>> {
    let scope = usize::from(spec.starts_with('@'));
    let (name, version) = match spec[scope..].find('@') {
        Some(at) => (&spec[..scope + at], Some(&spec[scope + at + 1..])),
        None => (spec, None),
    };
    let part = |part: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '~');
        !part.is_empty() && !part.starts_with('.') && part.chars().all(plain)
    };
    let is_name = match name.strip_prefix('@') {
        Some(scoped) => scoped.split_once('/').is_some_and(|(a, b)| part(a) && part(b)),
        None => part(name),
    };
    if !is_name {
        return None;
    }
    let version = match version {
        None => Version::Any,
        // `npm:other@1`, `file:` and addresses are other packages altogether.
        Some(version) if version.is_empty() || version.contains([':', '/']) => return None,
        Some(version) if is_exact(version) => Version::Exact(version),
        Some(_) => Version::Floating,
    };
    Some(Package { name, version })
}

/// Three numbers, perhaps with a pre-release or build after them.
fn is_exact(version: &str) -> bool {
    let core = version.split(['-', '+']).next().unwrap_or_default();
    let mut parts = core.split('.');
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    parts.by_ref().take(3).filter(|part| is_number(part)).count() == 3 && parts.next().is_none()
}

pub(super) fn resolve<'a>(
    program: &Path,
    args: &'a [&'a str],
    around: &Surroundings,
) -> Option<(Command, &'a [&'a str])> {
    let request = request(args)?;
    let entry = find(&request, program, around)?;
    Some((run(&entry, program, around)?, request.rest))
}

/// `npm exec` reads flags after the package too, up to a `--`.
pub(super) fn resolve_exec<'a>(
    program: &Path,
    args: &'a [&'a str],
    around: &Surroundings,
) -> Option<(Command, &'a [&'a str])> {
    let mut request = request(args)?;
    match request.rest {
        ["--", rest @ ..] => request.rest = rest,
        rest if rest.iter().any(|arg| arg.starts_with('-')) => return None,
        _ => {}
    }
    let entry = find(&request, program, around)?;
    Some((run(&entry, program, around)?, request.rest))
}

/// The node that belongs to an npx given by path; otherwise the one in `PATH`.
fn run(entry: &Path, program: &Path, around: &Surroundings) -> Option<Command> {
    let name = around.layout.node();
    let beside =
        program.parent().map(|directory| directory.join(name)).filter(|node| node.is_file());
    let node = beside.unwrap_or_else(|| PathBuf::from(name));
    let by_name = matches!(text(entry.extension()), Some("js" | "mjs" | "cjs"));
    command_for(entry, &node, |start| match start.lines().next() {
        // Flags for node in the first line are the kernel's and `env`'s to pass on.
        Some(first) if first.starts_with("#!") => first.trim_end().ends_with("node"),
        _ => by_name,
    })
}

/// The file that would be executed, in the order npx looks: the project, the global install, its cache.
fn find(request: &Request<'_>, program: &Path, around: &Surroundings) -> Option<PathBuf> {
    let packages: Vec<Package<'_>> =
        request.packages.iter().map(|spec| package(spec)).collect::<Option<_>>()?;
    let first = packages.first()?;
    if request.bin.is_none() {
        // A project that is itself the package is run from its sources; npm links it first.
        if around.cwd.ancestors().any(|directory| is_own_bin(directory, first.name)) {
            return None;
        }
        if first.version == Version::Any
            && let Some(entry) = linked_bin(&around.cwd, first.name)
        {
            return Some(entry);
        }
    }
    let everywhere = around.cwd.ancestors().map(|directory| directory.join("node_modules"));
    for modules in everywhere.chain(global_modules(program, around)) {
        if packages.iter().all(|package| matches(&modules, package)) {
            return entry(&modules, first.name, request.bin);
        }
    }
    let modules = cached(&request.packages, &packages, around)?;
    entry(&modules, first.name, request.bin)
}

/// Whether a directory's own `package.json` offers this command.
fn is_own_bin(directory: &Path, name: &str) -> bool {
    json(&directory.join("package.json")).is_some_and(|manifest| {
        manifest["bin"].get(name).is_some()
            || (manifest["name"] == name && manifest["bin"].is_string())
    })
}

/// A command of that name in the project's or an enclosing `node_modules/.bin`.
fn linked_bin(cwd: &Path, name: &str) -> Option<PathBuf> {
    // The link of a scoped package bears another name.
    if name.contains('/') {
        return None;
    }
    cwd.ancestors()
        .map(|directory| directory.join("node_modules/.bin").join(name))
        .find_map(|link| real(&link).filter(|entry| entry.is_file()))
}

/// Where global packages are: as configured, or next to the node that would run them.
fn global_modules(program: &Path, around: &Surroundings) -> Option<PathBuf> {
    let node = around.layout.node();
    let beside_program = program.parent().filter(|directory| directory.join(node).is_file());
    let in_path = || {
        around.path.iter().map(PathBuf::as_path).find(|directory| directory.join(node).is_file())
    };
    let by_node = || beside_program.or_else(in_path).and_then(Path::parent).map(Path::to_owned);
    let prefix = around.npm_prefix.clone().or_else(by_node)?;
    Some(prefix.join(around.layout.global_modules()))
}

/// Whether a tree holds what was asked for. Only npm may say what a tag or range means.
fn matches(modules: &Path, package: &Package<'_>) -> bool {
    let Some(manifest) = json(&modules.join(package.name).join("package.json")) else {
        return false;
    };
    match package.version {
        Version::Any => true,
        Version::Exact(version) => manifest["version"] == version,
        Version::Floating => false,
    }
}

/// npx's own install for exactly these words, if it is complete and recent enough for them.
fn cached(specs: &[&str], packages: &[Package<'_>], around: &Surroundings) -> Option<PathBuf> {
    let directory = around.npm_cache.join("_npx").join(cache_key(specs));
    // Held while an install is going on.
    if directory.join("concurrency.lock").exists() {
        return None;
    }
    let is_pinned = packages.iter().all(|package| matches!(package.version, Version::Exact(_)));
    if !is_pinned && !around.is_fresh(&directory.join("package.json")) {
        return None;
    }
    let modules = directory.join("node_modules");
    // npm writes this list last: what is not in it was never finished.
    let finished = json(&modules.join(".package-lock.json"))?;
    let is_installed = |package: &Package<'_>| {
        let listed = &finished["packages"][format!("node_modules/{}", package.name)]["version"];
        let version =
            json(&modules.join(package.name).join("package.json")).map(|m| m["version"].clone());
        let is_asked_for = match package.version {
            Version::Exact(exact) => *listed == exact,
            Version::Any | Version::Floating => true,
        };
        listed.is_string() && version.as_ref() == Some(listed) && is_asked_for
    };
    packages.iter().all(is_installed).then_some(modules)
}

/// The directory name npx derives from the packages as they were written.
pub(super) fn cache_key(specs: &[&str]) -> String {
    let mut sorted = specs.to_vec();
    sorted.sort_unstable();
    let digest = Sha512::digest(sorted.join("\n").as_bytes());
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// The file behind a command: of the name asked for, or of the only one, or of the package's own name.
fn entry(modules: &Path, name: &str, bin: Option<&str>) -> Option<PathBuf> {
    if let Some(bin) = bin {
        let linked = real(&below(&modules.join(".bin"), bin)?);
        return linked.filter(|entry| entry.is_file());
    }
    let directory = modules.join(name);
    let manifest = json(&directory.join("package.json"))?;
    let file = match &manifest["bin"] {
        Value::String(file) => file.as_str(),
        Value::Object(bins) => {
            let mut files = bins.values().filter_map(Value::as_str);
            let first = files.next()?;
            let own = name.rsplit('/').next().unwrap_or(name);
            if files.all(|file| file == first) { first } else { bins.get(own)?.as_str()? }
        }
        _ => return None,
    };
    // The real path, as the link in `.bin` would lead to: node looks for modules from there.
    real(&below(&directory, file)?).filter(|entry| entry.is_file())
}
