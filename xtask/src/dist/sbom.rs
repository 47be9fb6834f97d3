//! The list of what is in a program (SBOM, in the form `CycloneDX`), from the list that `cargo auditable` put into it.
//! Licences and checksums come from cargo.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::{Value, json};

use super::contents::Contents;
use super::pack;
use crate::run;
use crate::workspace::Workspace;

/// Longest list; ours has some hundred kilobytes.
const MAX_LIST: usize = 8 * 1024 * 1024;

/// The list inside a program.
#[derive(Debug, Deserialize)]
pub(super) struct Embedded {
    packages: Vec<Package>,
}

#[derive(Debug, Deserialize)]
struct Package {
    name: String,
    version: String,
    /// `build` for what only the compiler runs.
    kind: Option<String>,
    /// Places in the list.
    #[serde(default)]
    dependencies: Vec<usize>,
    #[serde(default)]
    root: bool,
}

impl Package {
    fn is_shipped(&self) -> bool {
        self.kind.as_deref().is_none_or(|kind| kind == "runtime")
    }
}

/// What is embedded in a program; an error where nothing is.
pub(super) fn embedded(program: &[u8]) -> Result<Embedded> {
    let list = auditable_info::json_from_slice(program, MAX_LIST)
        .map_err(|error| anyhow::anyhow!("no dependency list is embedded: {error}"))?;
    Ok(serde_json::from_str(&list)?)
}

/// What cargo knows of each package: licence and checksum.
pub(super) struct Known {
    licenses: BTreeMap<(String, String), String>,
    checksums: BTreeMap<(String, String), String>,
}

impl Known {
    pub(super) fn read(workspace: &Workspace) -> Result<Known> {
        let all =
            run::quiet(workspace.cargo().args(["metadata", "--locked", "--format-version", "1"]))?;
        let all: Value = serde_json::from_str(&all)?;
        let mut licenses = BTreeMap::new();
        for package in all["packages"].as_array().into_iter().flatten() {
            let text = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
            // Some write `MIT/Apache-2.0`, as was usual before SPDX.
            licenses.insert((text("name"), text("version")), text("license").replace('/', " OR "));
        }
        let lock = std::fs::read_to_string(workspace.root.join("Cargo.lock"))?;
        Ok(Known { licenses, checksums: checksums(&lock) })
    }
}

fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let mut all = BTreeMap::new();
    for package in lock.split("[[package]]").skip(1) {
        let field = |name: &str| {
            let line = package.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim_start_matches([' ', '=']).split('"').nth(1).map(str::to_owned)
        };
        if let (Some(name), Some(version), Some(sum)) =
            (field("name"), field("version"), field("checksum"))
        {
            all.insert((name, version), sum);
        }
    }
    all
}

/// The document of one program.
pub(super) fn document(contents: &Contents, info: &Embedded, known: &Known) -> Result<Vec<u8>> {
    let root = info.packages.iter().find(|package| package.root).context("it names no root")?;
    if root.name != "metamcp" || root.version != contents.version {
        bail!("the embedded list is of {} {}", root.name, root.version);
    }
    let shipped = |package: &&Package| package.is_shipped() && !package.root;
    let components: Vec<Value> =
        info.packages.iter().filter(shipped).map(|package| component(package, known)).collect();
    let mut dependencies = Vec::new();
    for package in info.packages.iter().filter(|package| package.is_shipped()) {
        let on: BTreeSet<String> = package
            .dependencies
            .iter()
            .filter_map(|at| info.packages.get(*at))
            .filter(|package| package.is_shipped())
            .map(purl)
            .collect();
        dependencies.push(json!({ "ref": purl(package), "dependsOn": on }));
    }
    let (year, month, day) = pack::date(contents.epoch);
    let mut own = component(root, known);
    own["type"] = json!("application");
    let document = json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": format!("{year:04}-{month:02}-{day:02}T00:00:00Z"),
            "component": own,
        },
        "components": components,
        "dependencies": dependencies,
    });
    Ok(format!("{document:#}\n").into_bytes())
}

fn component(package: &Package, known: &Known) -> Value {
    let key = (package.name.clone(), package.version.clone());
    let mut component = json!({
        "type": "library",
        "bom-ref": purl(package),
        "name": package.name,
        "version": key.1,
        "purl": purl(package),
    });
    if let Some(license) = known.licenses.get(&key).filter(|license| !license.is_empty()) {
        component["licenses"] = json!([{ "expression": license }]);
    }
    if let Some(sum) = known.checksums.get(&key) {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
    }
    component
}

fn purl(package: &Package) -> String {
    // A plus sign of a version means a space in an address.
    format!("pkg:cargo/{}@{}", package.name, package.version.replace('+', "%2B"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_read_from_the_lock_file() {
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nchecksum = \"ff\"\n\n\
                    [[package]]\nname = \"ours\"\nversion = \"0.1.0\"\n";
        let found = checksums(lock);
        assert_eq!(found.len(), 1);
        assert_eq!(found[&("a".to_owned(), "1.0.0".to_owned())], "ff");
    }

    #[test]
    fn a_program_without_a_list_is_told_apart() {
        assert!(embedded(b"\x7fELF and no more").is_err());
    }
}
