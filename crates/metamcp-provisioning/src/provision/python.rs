//! Facts about PyPI packages from the output of pip and uv.

use std::path::Path;

use serde_json::Value;
use sha2::{Digest, Sha256};
use toml_edit::{DocumentMut, Item, TableLike};

use super::candidate::Kind;
use super::facts::{Facts, Lock, hex};
use super::names::valid;
use metamcp_types::date::unix_millis;

/// What the dates of a lock come to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ages {
    /// Constraints that rule out every version that is too young; empty if none was chosen.
    pub too_young: String,
    /// Packages of which nobody says how old they are.
    pub undated: Vec<String>,
}

/// Reads what pip's index says of the files of a package: `{NAME: [{"filename", "sha256", "uploaded", "yanked"}]}`.
pub fn pip_files(name: &str, version: &str, document: &Value) -> Facts {
    let files = document.get(name).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let of_version = |file: &&Value| {
        let filename = file.get("filename").and_then(Value::as_str).unwrap_or_default();
        python_version(name, filename) == Some(version)
    };
    let own: Vec<&Value> = files.iter().filter(of_version).collect();
    let wheel = own.iter().find(|file| {
        file.get("filename")
            .and_then(Value::as_str)
            .is_some_and(|name| Path::new(name).extension().is_some_and(|own| own == "whl"))
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
        hashes: own
            .iter()
            .filter_map(|file| sha(&file))
            .map(|sha| format!("sha256:{sha}"))
            .collect(),
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
        client: None,
    }
}

/// The version of the file that was uploaded last, of those that were not taken back and are no test versions.
pub fn pip_newest(name: &str, document: &Value) -> Option<String> {
    let files = document.get(name)?.as_array()?.iter().filter_map(|file| {
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
        valid(Kind::Pypi, package, at).ok()?;
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
        undated: Vec::new(),
        elsewhere: Vec::new(),
    };
    lock.integrity.is_some().then_some((lock, text))
}

/// Looks at the dates of everything in a lock, given the files of each package as for `pip_files`.
pub fn pip_ages(requirements: &str, document: &Value, before: u64) -> Ages {
    let mut ages = Ages::default();
    for line in requirements.lines() {
        let pinned = line.split(' ').next().unwrap_or_default();
        let Some((name, version)) = pinned.split_once("==") else { continue };
        let files = document.get(name).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let mut young: Vec<&str> = Vec::new();
        let (mut is_dated, mut is_young) = (false, false);
        for file in files {
            let filename = file.get("filename").and_then(Value::as_str).unwrap_or_default();
            let Some(of) = python_version(name, filename) else { continue };
            let uploaded = file.get("uploaded").and_then(Value::as_str).and_then(unix_millis);
            is_dated |= of == version && uploaded.is_some();
            // A file that came later than the others of its version counts: it may be the one that is fetched.
            if uploaded.is_some_and(|at| at > before) {
                is_young |= of == version;
                if !young.contains(&of) && valid(Kind::Pypi, name, of).is_ok() {
                    young.push(of);
                }
            }
        }
        if is_young {
            let without: Vec<String> = young.iter().map(|of| format!("!={of}")).collect();
            ages.too_young.push_str(&format!("{name}{}\n", without.join(",")));
        } else if !is_dated {
            ages.undated.push(pinned.to_owned());
        }
    }
    ages
}

/// What uv's failure to resolve one package alone says about it; nothing if it says nothing about it.
pub fn uv_error(name: &str, said: &str) -> Option<Facts> {
    if said.contains("there is no version of")
        || said.contains("was not found in the package registry")
    {
        return Some(Facts::default());
    }
    let is_unbuilt = said.contains("has no usable wheels") || said.contains("has no wheels");
    is_unbuilt.then(|| Facts {
        exists: true,
        scripts: vec![format!("{name}: setup.py or its build, since there is no wheel")],
        ..Facts::default()
    })
}

/// Reads the lock that uv writes: what it says of the package itself, the lock, and it as a file of requirements with
/// hashes.
pub fn uv_lock(name: &str, version: &str, text: &str) -> Option<(Facts, Lock, String)> {
    let document: DocumentMut = text.parse().ok()?;
    let (mut lines, mut unpinned, mut undated) = (Vec::new(), Vec::new(), Vec::new());
    let mut own = None;
    for package in document.get("packages")?.as_array_of_tables()? {
        let told = |key: &str| package.get(key).and_then(Item::as_str);
        let (called, at) = (told("name")?, told("version")?);
        valid(Kind::Pypi, called, at).ok()?;
        let wheels: Vec<&dyn TableLike> = tables(package.get("wheels"));
        let sha = |wheel: &&dyn TableLike| {
            let hashes = wheel.get("hashes")?.as_table_like()?;
            let sha = hashes.get("sha256")?.as_str()?;
            (sha.len() == 64 && sha.chars().all(|c| c.is_ascii_hexdigit())).then(|| sha.to_owned())
        };
        let shas: Option<Vec<String>> = wheels.iter().map(sha).collect();
        let Some(shas) = shas.filter(|shas| !shas.is_empty()) else {
            unpinned.push(format!("{called}@{at}"));
            continue;
        };
        let date = |wheel: &&dyn TableLike| {
            let date = wheel.get("upload-time")?.as_value()?;
            let date = date.as_datetime().map(ToString::to_string);
            date.as_deref().and_then(unix_millis)
        };
        let newest = wheels.iter().map(date).try_fold(0, |newest, at| Some(newest.max(at?)));
        if newest.is_none() {
            undated.push(format!("{called}=={at}"));
        }
        if python_name(called) == python_name(name) && at == version {
            own = Some((shas.clone(), newest));
        }
        let hashes: Vec<String> = shas.iter().map(|sha| format!(" --hash=sha256:{sha}")).collect();
        lines.push(format!("{called}=={at}{}\n", hashes.concat()));
    }
    let (shas, published) = own?;
    let hashes: Vec<String> = shas.iter().map(|sha| format!("sha256:{sha}")).collect();
    let integrity = hashes.first().cloned();
    lines.sort();
    let requirements = lines.concat();
    let facts = Facts {
        exists: true,
        integrity: integrity.clone(),
        hashes,
        published,
        entry: Some(name.to_owned()),
        ..Facts::default()
    };
    let lock = Lock {
        digest: hex(&Sha256::digest(requirements.as_bytes())),
        packages: lines.len() + unpinned.len(),
        scripted: Vec::new(),
        unpinned,
        integrity,
        undated,
        elsewhere: Vec::new(),
    };
    Some((facts, lock, requirements))
}

/// The version of a package in such a lock.
pub fn uv_version(name: &str, text: &str) -> Option<String> {
    let document: DocumentMut = text.parse().ok()?;
    let packages = document.get("packages")?.as_array_of_tables()?;
    let own = packages.iter().find(|package| {
        let called = package.get("name").and_then(Item::as_str);
        called.is_some_and(|called| python_name(called) == python_name(name))
    });
    own?.get("version")?.as_str().map(str::to_owned)
}

/// The tables of a list, however it is written.
fn tables(item: Option<&Item>) -> Vec<&dyn TableLike> {
    match item {
        Some(Item::ArrayOfTables(all)) => all.iter().map(|one| one as &dyn TableLike).collect(),
        Some(item) => {
            let list = item.as_array().into_iter().flatten();
            list.filter_map(|one| Some(one.as_inline_table()? as &dyn TableLike)).collect()
        }
        None => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const DAY: u64 = 24 * 60 * 60 * 1000;
    const SHA: &str = "1407583af42dc0163909d855c9ef20114a12b4981c3975033721a7906cdd212a";

    #[test]
    fn what_is_too_young_is_ruled_out_with_all_that_is_younger_still() {
        let before = unix_millis("2026-11-09T00:00:00Z").unwrap();
        let file = |name: &str, uploaded: &str| json!({ "filename": name, "uploaded": uploaded });
        let document = json!({
            "anyio": [
                file("anyio-4.1-py3-none-any.whl", "2026-01-01T00:00:00Z"),
                file("anyio-4.2-py3-none-any.whl", "2026-11-10T00:00:00Z"),
                file("anyio-4.3-py3-none-any.whl", "2026-11-12T00:00:00Z"),
            ],
            "mcp": [file("mcp-1.0-py3-none-any.whl", "2026-01-01T00:00:00Z")],
            "old": [json!({ "filename": "old-1.0-py3-none-any.whl" })],
        });
        let lock =
            "anyio==4.2 --hash=sha256:x\nmcp==1.0 --hash=sha256:x\nold==1.0 --hash=sha256:x\n";
        let ages = pip_ages(lock, &document, before);
        assert_eq!(ages.too_young, "anyio!=4.2,!=4.3\n");
        assert_eq!(ages.undated, ["old==1.0"]);
        assert_eq!(pip_ages(lock, &document, before + 4 * DAY).too_young, "");
    }

    #[test]
    fn the_lock_of_uv_is_read_as_facts_and_as_requirements() {
        let text = format!(
            "lock-version = \"1.0\"\n\n[[packages]]\nname = \"mcp-server-time\"\nversion = \"2026.8.18\"\nwheels = [{{ url = \"https://x\", upload-time = 2026-08-18T16:06:24Z, hashes = {{ sha256 = \"{SHA}\" }} }}]\n\n[[packages]]\nname = \"bare\"\nversion = \"1\"\n"
        );
        let (facts, lock, requirements) = uv_lock("mcp_server_time", "2026.8.18", &text).unwrap();
        assert_eq!(facts.integrity, Some(format!("sha256:{SHA}")));
        assert_eq!(facts.published, unix_millis("2026-08-18T16:06:24Z"));
        assert_eq!(requirements, format!("mcp-server-time==2026.8.18 --hash=sha256:{SHA}\n"));
        assert_eq!((lock.packages, lock.unpinned), (2, vec!["bare@1".to_owned()]));
        assert_eq!(uv_version("mcp-server-time", &text).as_deref(), Some("2026.8.18"));
        assert_eq!(uv_lock("other", "1", &text), None);
    }

    #[test]
    fn failures_of_uv_tell_what_is_not_there_from_what_is_not_built() {
        let gone = uv_error("x", "cause: Because there is no version of x==9 and you require x==9");
        assert_eq!(gone, Some(Facts::default()));
        let unbuilt = uv_error("x", "Because x==1 has no usable wheels and you require").unwrap();
        assert!(unbuilt.exists && unbuilt.scripts.len() == 1);
        assert_eq!(uv_error("x", "error: cannot reach the index"), None);
    }
}
