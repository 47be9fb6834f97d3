//! npm packages: `metamcp` with a launcher, one package for each system with its program, one with the model. npm picks by
//! `os` and `cpu`; nothing is downloaded or run while they are installed.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::contents::{Contents, MODEL, MODEL_VERSION};
use super::pack::{self, Entry};
use super::targets::Target;

const MODEL_PACKAGE: &str = "@metamcp/model";
/// The launcher's syntax; older ones get no fixes.
const NODE: &str = ">=18";

/// A package that is made: its file name and bytes.
pub(super) type Made = (String, Vec<u8>);

pub(super) fn main(contents: &Contents, targets: &[&Target]) -> Result<Made> {
    let launcher = contents.templates.join("npm/metamcp.js");
    let launcher = std::fs::read(&launcher).context("packages/npm/metamcp.js")?;
    let mut manifest =
        manifest(contents, "metamcp", "One MCP server in front of all your MCP servers.");
    manifest["bin"] = json!({ "metamcp": "bin/metamcp.js" });
    manifest["files"] = json!(["bin"]);
    manifest["engines"] = json!({ "node": NODE });
    let optional: serde_json::Map<String, Value> =
        targets.iter().map(|target| (target.npm_package(), json!(contents.version))).collect();
    manifest["optionalDependencies"] = Value::Object(optional);
    manifest["keywords"] = json!(["mcp", "gateway", "model-context-protocol", "proxy", "tools"]);
    let entries = [
        Entry::program("package/bin/metamcp.js", launcher),
        Entry::file("package/README.md", contents.readme.as_str()),
        Entry::file("package/LICENSE", &*contents.license),
    ];
    packed(contents, "metamcp", &contents.version, &manifest, &entries)
}

/// The program of one system. The model is an optional dependency of this one, so that it lies beside it also where each
/// package sees only what it asked for.
pub(super) fn platform(contents: &Contents, target: &Target, program: &[u8]) -> Result<Made> {
    let name = target.npm_package();
    let about = format!("The program of metamcp for {} on {}.", target.npm.0, target.npm.1);
    let mut manifest = manifest(contents, &name, &about);
    manifest["os"] = json!([target.npm.0]);
    manifest["cpu"] = json!([target.npm.1]);
    if target.is_makeshift {
        manifest["libc"] = json!(["glibc"]);
    }
    manifest["files"] = json!(["bin"]);
    manifest["preferUnplugged"] = json!(true);
    manifest["optionalDependencies"] = json!({ MODEL_PACKAGE: MODEL_VERSION });
    let readme = format!(
        "# {name}\n\n{about}\nInstall the package `metamcp` instead; it brings this one.\n"
    );
    let entries = [
        Entry::program(format!("package/bin/{}", target.program()), program),
        Entry::file("package/README.md", readme),
        Entry::file("package/LICENSE", &*contents.license),
    ];
    packed(contents, &name, &contents.version, &manifest, &entries)
}

pub(super) fn model(contents: &Contents) -> Result<Made> {
    let about = "The local search model of metamcp, all-MiniLM-L6-v2 with eight bits per weight.";
    let mut manifest = manifest(contents, MODEL_PACKAGE, about);
    manifest["version"] = json!(MODEL_VERSION);
    manifest["files"] = json!([MODEL]);
    let entries = [
        Entry::file(format!("package/{MODEL}"), &*contents.model),
        Entry::file("package/README.md", contents.model_readme.as_str()),
        Entry::file("package/LICENSE", &*contents.license),
    ];
    packed(contents, MODEL_PACKAGE, MODEL_VERSION, &manifest, &entries)
}

fn manifest(contents: &Contents, name: &str, about: &str) -> Value {
    json!({
        "name": name,
        "version": contents.version,
        "description": about,
        "license": "Apache-2.0",
        "homepage": contents.repository,
        "repository": { "type": "git", "url": format!("git+{}.git", contents.repository) },
        "bugs": format!("{}/issues", contents.repository),
        "publishConfig": { "access": "public", "provenance": true },
    })
}

fn packed(
    contents: &Contents,
    name: &str,
    version: &str,
    manifest: &Value,
    entries: &[Entry],
) -> Result<Made> {
    let mut all = entries.to_vec();
    all.push(Entry::file("package/package.json", format!("{manifest:#}\n")));
    // As `npm pack` calls it.
    let file = format!("{}-{version}.tgz", name.trim_start_matches('@').replace('/', "-"));
    Ok((file, pack::tar_gz(&all, contents.epoch, false)?))
}
