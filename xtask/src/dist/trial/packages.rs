//! Packages that any system of this kind takes: an archive, npm, PyPI, the install script.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::{Ground, Installed, one, size, unpack};
use crate::dist::contents::MODEL_VERSION;
use crate::run;

type Tried = Result<Vec<(String, Installed)>>;

fn installed(name: &str, program: &Path, by: &'static str, place: &Path, size: u64) -> Tried {
    let home = place.join("home");
    fs::create_dir_all(&home)?;
    let start = vec![program.display().to_string()];
    Ok(vec![(name.to_owned(), Installed { start, root: None, home, env: Vec::new(), by, size })])
}

/// A command of a package client, with nothing of this user's.
fn client(program: impl AsRef<std::ffi::OsStr>, place: &Path) -> Result<Command> {
    let home = place.join("home");
    fs::create_dir_all(&home)?;
    let mut command = Command::new(program);
    command.env_clear().current_dir(place).env("HOME", &home);
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command
        .env("npm_config_cache", place.join("npm-cache"))
        .env("UV_CACHE_DIR", place.join("uv/cache"));
    command.env("npm_config_update_notifier", "false").env("npm_config_fund", "false");
    command.env("npm_config_audit", "false");
    Ok(command)
}

fn archive_file(ground: &Ground) -> PathBuf {
    ground.dist.join(format!("metamcp-{}-{}.tar.gz", ground.version, ground.target.label()))
}

pub(super) fn archive(ground: &Ground, place: &Path) -> Tried {
    let archive = archive_file(ground);
    let into = place.join("unpacked");
    unpack(&archive, &into)?;
    let program =
        into.join(format!("metamcp-{}-{}/bin/metamcp", ground.version, ground.target.label()));
    installed("archive", &program, "unknown", place, size(&archive)?)
}

/// The packages of npm for this system.
fn npm_files(ground: &Ground) -> Result<Vec<PathBuf>> {
    let folder = ground.dist.join("npm");
    let platform = ground.target.npm_package().trim_start_matches('@').replace('/', "-");
    Ok(vec![
        one(&folder, &format!("metamcp-{}", ground.version), "tgz")?,
        one(&folder, &platform, "tgz")?,
        one(&folder, &format!("metamcp-model-{MODEL_VERSION}"), "tgz")?,
    ])
}

fn sizes(files: &[PathBuf]) -> Result<u64> {
    files.iter().map(|file| size(file)).sum()
}

/// From the files, without any registry.
pub(super) fn npm(ground: &Ground, place: &Path) -> Tried {
    let files = npm_files(ground)?;
    let prefix = place.join("prefix");
    let mut install = client("npm", place)?;
    install.args(["install", "--offline", "--global", "--prefix"]).arg(&prefix).args(&files);
    run::quiet(&mut install)?;
    let mut tried = installed(
        "npm install (from files)",
        &prefix.join("bin/metamcp"),
        "npm",
        place,
        sizes(&files)?,
    )?;
    // What `init` writes into clients: the program itself.
    let direct =
        prefix.join("lib/node_modules").join(ground.target.npm_package()).join("bin/metamcp");
    tried.extend(installed(
        "the same, program without Node",
        &direct,
        "npm",
        place,
        sizes(&files)?,
    )?);
    Ok(tried)
}

/// As a person types it, from a registry on loopback that has our packages and no others.
pub(super) fn npx(ground: &Ground, place: &Path) -> Tried {
    let registry = ground.served.npm();
    let mut npx = client("npx", place)?;
    npx.args(["--yes", "metamcp", "version"]).env("npm_config_registry", &registry);
    let said = run::quiet(&mut npx)?;
    if said.trim() != format!("metamcp {}", ground.version) {
        bail!("npx metamcp version printed {said}");
    }
    let cached = place.join("npm-cache/_npx");
    let folder = fs::read_dir(&cached)?.next().context("npx left no cache")??.path();
    let program = folder.join("node_modules/.bin/metamcp");
    installed("npx, once it has it", &program, "npx", place, sizes(&npm_files(ground)?)?)
}

fn wheels(ground: &Ground) -> Result<u64> {
    let folder = ground.dist.join("pypi");
    let tag = ground.target.wheel[0];
    let program = format!("metamcp-{}-py3-none-{tag}", ground.version);
    Ok(size(&one(&folder, &program, "whl")?)? + size(&one(&folder, "metamcp_model", "whl")?)?)
}

pub(super) fn pip(ground: &Ground, place: &Path) -> Tried {
    let venv = place.join("venv");
    run::quiet(client("python3", place)?.args(["-m", "venv"]).arg(&venv))?;
    let mut pip = client(venv.join("bin/python"), place)?;
    pip.args(["-m", "pip", "install", "--disable-pip-version-check", "--no-index", "--find-links"]);
    run::quiet(pip.arg(ground.dist.join("pypi")).arg("metamcp"))?;
    installed("pip install", &venv.join("bin/metamcp"), "pip", place, wheels(ground)?)
}

/// From an index on loopback.
pub(super) fn uvx(ground: &Ground, place: &Path) -> Tried {
    let mut uvx = client(ground.tools.join("uvx"), place)?;
    uvx.args(["--default-index", &ground.served.pypi(), "metamcp", "version"]);
    let said = run::quiet(&mut uvx)?;
    if said.trim() != format!("metamcp {}", ground.version) {
        bail!("uvx metamcp version printed {said}");
    }
    let mut tool = client(ground.tools.join("uv"), place)?;
    tool.args(["tool", "install", "--default-index", &ground.served.pypi(), "metamcp"]);
    tool.env("UV_TOOL_DIR", place.join("uv/tools")).env("UV_TOOL_BIN_DIR", place.join("bin"));
    run::quiet(&mut tool)?;
    let mut tried =
        installed("uv tool install", &place.join("bin/metamcp"), "uv", place, wheels(ground)?)?;
    let mut once =
        installed("uvx, once it has it", &ground.tools.join("uvx"), "uvx", place, wheels(ground)?)?;
    for (_, uvx) in &mut once {
        uvx.start.extend([
            "--default-index".to_owned(),
            ground.served.pypi(),
            "metamcp".to_owned(),
        ]);
        uvx.env.push(("UV_CACHE_DIR".to_owned(), place.join("uv/cache").display().to_string()));
        let path = std::env::var("PATH").unwrap_or_default();
        uvx.env.push(("PATH".to_owned(), path));
    }
    tried.extend(once);
    Ok(tried)
}

/// The script fetches from loopback, verifies, installs; with other bytes it refuses; `upgrade` knows who installed it.
pub(super) fn script(ground: &Ground, place: &Path) -> Tried {
    let prefix = place.join("prefix");
    let run_script = |base: &str, words: &[&str]| -> Result<String> {
        let mut sh = client("sh", place)?;
        sh.arg(ground.dist.join("install.sh")).args(words);
        run::quiet(sh.env("METAMCP_BASE_URL", base).env("METAMCP_PREFIX", &prefix))
    };
    // Another archive under the same name.
    let tampered = place.join("tampered");
    fs::create_dir_all(&tampered)?;
    let archive = archive_file(ground);
    let name = archive.file_name().context("an archive without a name")?;
    fs::copy(ground.dist.join("SHA256SUMS"), tampered.join("SHA256SUMS"))?;
    fs::write(tampered.join(name), "something else")?;
    for folder in ["npm", "pypi"] {
        fs::create_dir_all(tampered.join(folder))?;
    }
    let other = crate::dist::served::Served::start(&tampered)?;
    match run_script(&other.release(), &[]) {
        Ok(_) => bail!("install.sh took an archive with another checksum"),
        Err(error) if format!("{error:#}").contains("is not what SHA256SUMS says") => {}
        Err(error) => return Err(error),
    }
    if prefix.join("bin/metamcp").exists() {
        bail!("install.sh installed what it had refused");
    }
    run_script(&ground.served.release(), &[])?;
    run_script(&ground.served.release(), &["--uninstall"])?;
    if prefix.join("bin/metamcp").exists() || prefix.join("share/metamcp").exists() {
        bail!("install.sh --uninstall left the program");
    }
    run_script(&ground.served.release(), &[])?;
    let program = prefix.join("bin/metamcp");
    let mut upgrade = client(&program, place)?;
    upgrade.args(["upgrade", "--check", "--json", "--base-url", &ground.served.release()]);
    let told: serde_json::Value = serde_json::from_str(&run::quiet(&mut upgrade)?)?;
    if told["status"] != "current" || told["installedBy"] != "script" {
        bail!("metamcp upgrade --check says {told}");
    }
    installed("install.sh", &program, "script", place, size(&archive)?)
}
