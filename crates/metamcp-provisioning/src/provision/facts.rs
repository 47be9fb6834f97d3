//! Facts about a package from the output of the user's own package clients. It is trusted only as far as the source that
//! the user installs from anyway.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use metamcp_types::date::unix_millis;

/// The scripts npm runs when a package is installed from a registry.
const INSTALL_SCRIPTS: [&str; 3] = ["preinstall", "install", "postinstall"];

/// What is known of one version of a package.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Facts {
    /// Whether the source has it at all.
    pub exists: bool,
    /// Its hash, as the source writes it.
    pub integrity: Option<String>,
    /// The hashes of all its files, where there is more than one.
    #[serde(default)]
    pub hashes: Vec<String>,
    /// When it was published, in milliseconds since 1970.
    pub published: Option<u64>,
    /// What would run while it is installed.
    pub scripts: Vec<String>,
    /// Why its publisher advises against it.
    pub deprecated: Option<String>,
    /// Taken back by its publisher, but still there.
    pub yanked: bool,
    /// What is started: a path within the package, or the name of a script.
    pub entry: Option<String>,
    /// Everything it needs, pinned.
    pub lock: Option<Lock>,
    /// The client that said so, where there are several.
    #[serde(default)]
    pub client: Option<String>,
}

/// A lockfile, as far as a plan is concerned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lock {
    /// SHA-256 of it.
    pub digest: String,
    /// How many packages it names.
    pub packages: usize,
    /// Those that run something while they are installed.
    pub scripted: Vec<String>,
    /// Those without a hash, which nothing pins.
    pub unpinned: Vec<String>,
    /// The hash of the package itself in it.
    pub integrity: Option<String>,
    /// Those of which nobody says how old they are.
    #[serde(default)]
    pub undated: Vec<String>,
    /// Those that are fetched from an address, a repository or a folder instead of a registry of packages.
    #[serde(default)]
    pub elsewhere: Vec<String>,
}

/// Reads `npm view NAME@VERSION --json`.
pub fn npm_view(name: &str, version: &str, document: &Value) -> Facts {
    // A range would give several; an exact version gives one, in a list with some versions of npm.
    let document = match document {
        Value::Array(list) => list.last().unwrap_or(&Value::Null),
        one => one,
    };
    let told = |key: &str| document.get(key).and_then(Value::as_str);
    if told("version") != Some(version) {
        return Facts::default();
    }
    // npm writes members requested by a path under that path, and under objects otherwise.
    let dist = document.get("dist");
    let integrity = dist.and_then(|dist| dist.get("integrity")).and_then(Value::as_str);
    let time = document.get("time").and_then(|time| time.get(version)).and_then(Value::as_str);
    let scripts = document.get("scripts").and_then(Value::as_object);
    let scripts = scripts.into_iter().flat_map(|all| all.keys());
    Facts {
        exists: true,
        integrity: integrity.map(str::to_owned),
        hashes: Vec::new(),
        published: time.and_then(unix_millis),
        scripts: scripts
            .filter(|name| INSTALL_SCRIPTS.contains(&name.as_str()))
            .map(|script| format!("{name}: {script}"))
            .collect(),
        deprecated: told("deprecated").map(str::to_owned),
        yanked: false,
        entry: npm_entry(name, document.get("bin")),
        lock: None,
        client: None,
    }
}

/// Whether npm says that there is no such thing; any other error is its own, and says nothing of the package.
pub fn npm_error(document: &Value) -> Option<(bool, String)> {
    let error = document.get("error")?;
    let code = error.get("code").and_then(Value::as_str).unwrap_or_default();
    let summary = error.get("summary").and_then(Value::as_str).unwrap_or_default();
    Some((matches!(code, "E404" | "ETARGET"), format!("{code} {summary}").trim().to_owned()))
}

/// The program npx would run: the only one there is, or the one named like the package.
fn npm_entry(name: &str, bin: Option<&Value>) -> Option<String> {
    let short = name.rsplit('/').next().unwrap_or(name);
    let path = match bin? {
        Value::String(path) => path,
        Value::Object(all) => {
            let named = all.get(short).or_else(|| all.values().next().filter(|_| all.len() == 1));
            named?.as_str()?
        }
        _ => return None,
    };
    inside(path)
}

/// A path that cannot lead out of the package.
fn inside(path: &str) -> Option<String> {
    let path = path.strip_prefix("./").unwrap_or(path);
    let fine = |part: &str| {
        !part.is_empty() && part != "." && part != ".." && !part.contains(['\\', ':', '\0'])
    };
    (path.len() <= 255 && path.split('/').all(fine) && !path.chars().any(char::is_control))
        .then(|| path.to_owned())
}

/// Reads a `package-lock.json` in which `name` is the one dependency.
pub fn npm_lock(name: &str, raw: &[u8]) -> Option<Lock> {
    let document: Value = serde_json::from_slice(raw).ok()?;
    let all = document.get("packages")?.as_object()?;
    let rest = || all.iter().filter(|(path, _)| !path.is_empty());
    let flagged = |(_, package): &(&String, &Value)| {
        package.get("hasInstallScript").and_then(Value::as_bool).unwrap_or(false)
    };
    let unpinned = |(_, package): &(&String, &Value)| {
        let bundled = package.get("inBundle").and_then(Value::as_bool).unwrap_or(false);
        package.get("integrity").is_none() && !bundled
    };
    let called = |(path, package): (&String, &Value)| {
        let short = path.rsplit("node_modules/").next().unwrap_or(path);
        let version = package.get("version").and_then(Value::as_str).unwrap_or("?");
        format!("{short}@{version}")
    };
    let own = all.get(&format!("node_modules/{name}"))?;
    Some(Lock {
        digest: hex(&Sha256::digest(raw)),
        packages: rest().count(),
        scripted: rest().filter(flagged).map(called).collect(),
        unpinned: rest().filter(unpinned).map(called).collect(),
        integrity: own.get("integrity").and_then(Value::as_str).map(str::to_owned),
        // npm skips versions younger than the limit it was given.
        undated: Vec::new(),
        elsewhere: elsewhere(all),
    })
}

/// Dependencies that npm fetches without asking a registry, whose age it therefore does not look at.
fn elsewhere(all: &Map<String, Value>) -> Vec<String> {
    let mut found = BTreeSet::new();
    for (path, package) in all {
        for list in ["dependencies", "optionalDependencies", "peerDependencies"] {
            let wanted = package.get(list).and_then(Value::as_object);
            for (name, wish) in wanted.into_iter().flatten() {
                let wish = wish.as_str().unwrap_or_default();
                // No range of versions and no tag holds either; another name of a package in the registry may.
                if wish.contains(['/', ':']) && !wish.starts_with("npm:") {
                    found.insert(format!("{name} from {wish}"));
                }
            }
        }
        let resolved = package.get("resolved").and_then(Value::as_str).unwrap_or_default();
        let is_link = package.get("link").and_then(Value::as_bool).unwrap_or(false);
        if is_link || resolved.starts_with("git") || resolved.starts_with("file:") {
            found.insert(format!("{path} from {resolved}"));
        }
    }
    found.into_iter().collect()
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
