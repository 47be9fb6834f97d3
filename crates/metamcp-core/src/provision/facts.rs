//! What the user's own package clients say about a package. Their output is read here, and nothing in it is trusted
//! further than that it came from where the user installs from anyway.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::date::unix_millis;

/// The scripts npm runs when a package is installed from a registry.
const INSTALL_SCRIPTS: [&str; 3] = ["preinstall", "install", "postinstall"];

/// What is known of one version of a package.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Facts {
    /// Whether the source has it at all.
    pub exists: bool,
    /// Its hash, as the source writes it.
    pub integrity: Option<String>,
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
    // npm writes members asked for by a path under that path, and under objects otherwise.
    let dist = document.get("dist");
    let integrity = dist.and_then(|dist| dist.get("integrity")).and_then(Value::as_str);
    let time = document.get("time").and_then(|time| time.get(version)).and_then(Value::as_str);
    let scripts = document.get("scripts").and_then(Value::as_object);
    let scripts = scripts.into_iter().flat_map(|all| all.keys());
    Facts {
        exists: true,
        integrity: integrity.map(str::to_owned),
        published: time.and_then(unix_millis),
        scripts: scripts
            .filter(|name| INSTALL_SCRIPTS.contains(&name.as_str()))
            .map(|script| format!("{name}: {script}"))
            .collect(),
        deprecated: told("deprecated").map(str::to_owned),
        yanked: false,
        entry: npm_entry(name, document.get("bin")),
        lock: None,
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
    })
}

/// Reads what pip's index says of the files of a package: `[{"filename", "sha256", "uploaded", "yanked"}]`.
pub fn pip_files(name: &str, version: &str, document: &Value) -> Facts {
    let files = document.as_array().map_or(&[][..], Vec::as_slice);
    let of_version = |file: &&Value| {
        let filename = file.get("filename").and_then(Value::as_str).unwrap_or_default();
        python_version(name, filename) == Some(version)
    };
    let own: Vec<&Value> = files.iter().filter(of_version).collect();
    let wheel = own.iter().find(|file| {
        file.get("filename").and_then(Value::as_str).is_some_and(|name| name.ends_with(".whl"))
    });
    let newest = own
        .iter()
        .map(|file| file.get("uploaded").and_then(Value::as_str).and_then(unix_millis))
        // One file without a date could be from today.
        .try_fold(0, |newest, uploaded| Some(newest.max(uploaded?)));
    let sha = |file: &&&Value| file.get("sha256").and_then(Value::as_str).map(str::to_owned);
    Facts {
        exists: !own.is_empty(),
        integrity: wheel.and_then(|file| sha(&file)).map(|sha| format!("sha256:{sha}")),
        published: newest.filter(|_| !own.is_empty()),
        scripts: if wheel.is_none() && !own.is_empty() {
            vec![format!("{name}: setup.py or its build, since there is no wheel")]
        } else {
            Vec::new()
        },
        deprecated: None,
        yanked: own.iter().any(|file| file.get("yanked").and_then(Value::as_bool) == Some(true)),
        entry: Some(name.to_owned()),
        lock: None,
    }
}

/// The version of the file that was uploaded last, of those that were not taken back and are no test versions.
pub fn pip_newest(name: &str, document: &Value) -> Option<String> {
    let files = document.as_array()?.iter().filter_map(|file| {
        let version = python_version(name, file.get("filename")?.as_str()?)?;
        let is_final = version.chars().all(|c| c.is_ascii_digit() || c == '.');
        let yanked = file.get("yanked").and_then(Value::as_bool) == Some(true);
        let uploaded = unix_millis(file.get("uploaded")?.as_str()?)?;
        (is_final && !yanked).then(|| (uploaded, version.to_owned()))
    });
    files.max().map(|(_, version)| version)
}

/// The version in the name of a file of that package.
fn python_version<'a>(package: &str, filename: &'a str) -> Option<&'a str> {
    let same = |part: &str| python_name(part) == python_name(package);
    if let Some(stem) = filename.strip_suffix(".whl") {
        let (name, rest) = stem.split_once('-')?;
        return same(name).then(|| rest.split('-').next().unwrap_or(rest));
    }
    let stem = filename.strip_suffix(".tar.gz").or_else(|| filename.strip_suffix(".zip"))?;
    let (name, version) = stem.rsplit_once('-')?;
    same(name).then_some(version)
}

/// A name of PyPI in the one form in which two of them are compared.
fn python_name(name: &str) -> String {
    let mut folded = String::new();
    for c in name.chars() {
        let c = if matches!(c, '-' | '_' | '.') { '-' } else { c.to_ascii_lowercase() };
        if c != '-' || !folded.ends_with('-') {
            folded.push(c);
        }
    }
    folded
}

/// Reads `pip install --dry-run --report`: the lock, and it as a file of requirements with hashes.
pub fn pip_report(name: &str, version: &str, document: &Value) -> Option<(Lock, String)> {
    let mut lines = Vec::new();
    let mut own = None;
    let mut unpinned = Vec::new();
    for item in document.get("install")?.as_array()? {
        let metadata = item.get("metadata")?;
        let told = |key: &str| metadata.get(key).and_then(Value::as_str);
        let (package, at) = (told("name")?, told("version")?);
        super::names::valid(super::Kind::Pypi, package, at).ok()?;
        let sha = item
            .get("download_info")
            .and_then(|info| info.get("archive_info")?.get("hashes")?.get("sha256")?.as_str());
        let Some(sha) =
            sha.filter(|sha| sha.len() == 64 && sha.chars().all(|c| c.is_ascii_hexdigit()))
        else {
            unpinned.push(format!("{package}@{at}"));
            continue;
        };
        if python_name(package) == python_name(name) && at == version {
            own = Some(format!("sha256:{sha}"));
        }
        lines.push(format!("{package}=={at} --hash=sha256:{sha}\n"));
    }
    lines.sort();
    let text = lines.concat();
    let lock = Lock {
        digest: hex(&Sha256::digest(text.as_bytes())),
        packages: lines.len() + unpinned.len(),
        scripted: Vec::new(),
        unpinned,
        integrity: own,
    };
    lock.integrity.is_some().then_some((lock, text))
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
