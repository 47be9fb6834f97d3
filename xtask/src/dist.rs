//! Everything that is released, made into `dist/`: `cargo xtask dist [--binaries FOLDER] [--target T]... [--twice] [--test]`.
//! Owns: which packages there are, their checksums.      Never: publishes, makes a package of a program without its dependency list unless told that it is a draft.
//! In: programs of each system, built here or ready in FOLDER/TARGET.  Out: `dist/`, the same byte for byte each time.
//! Tests: below and in `dist/`; `--test` installs each package into an empty place and uses it.

mod contents;
mod deb;
mod lint;
mod manifests;
mod npm;
mod pack;
mod sbom;
mod served;
pub(crate) mod targets;
mod trial;
mod wheel;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use self::contents::Contents;
use self::pack::Entry;
use self::sbom::Known;
use self::targets::{TARGETS, Target};
pub(crate) use self::trial::RESULTS;
use crate::workspace::Workspace;
use crate::{bench, cross, hardened};

/// Beside the tree, ignored by git.
const FOLDER: &str = "dist";
const SUMS: &str = "SHA256SUMS";
/// What packages are built with.
const PROFILE: &str = "dist";

/// What the command line says.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    targets: Vec<&'static Target>,
    binaries: Option<PathBuf>,
    model: Option<PathBuf>,
    /// Programs without a dependency list are packaged, for a try.
    is_draft: bool,
    twice: bool,
    test: bool,
    /// Only these trials.
    only: Vec<String>,
}

/// A program to package.
struct Program {
    target: &'static Target,
    path: PathBuf,
}

pub(crate) fn run(workspace: &Workspace, options: &[String]) -> Result<()> {
    let options = parsed(options)?;
    of_this_repository(workspace)?;
    let folder = workspace.root.join(FOLDER);
    if options.only.is_empty() || !folder.join(SUMS).exists() {
        let programs = programs(workspace, &options)?;
        let made = made(workspace, &options, &programs)?;
        if options.twice {
            let again = self::made(workspace, &options, &programs)?;
            let differing: Vec<&str> = made
                .iter()
                .filter(|(name, bytes)| again.get(*name) != Some(bytes))
                .map(|(name, _)| &**name)
                .collect();
            if made.len() != again.len() || !differing.is_empty() {
                bail!("two runs differ: {}", differing.join(", "));
            }
            writeln!(io::stderr(), "dist: two runs made the same {} files", made.len())?;
        }
        write(&folder, &made)?;
    }
    if options.test {
        lint::all(workspace, &folder)?;
        trial::all(workspace, &folder, &options.only)?;
        if options.only.is_empty() && !options.is_draft {
            bench::packages::refresh(workspace)?;
        }
    }
    Ok(())
}

fn parsed(options: &[String]) -> Result<Options> {
    let mut parsed = Options::default();
    let mut options = options.iter();
    while let Some(option) = options.next() {
        let mut value = || options.next().with_context(|| format!("{option} needs a value"));
        match option.as_str() {
            "--target" => parsed.targets.push(Target::named(value()?)?),
            "--binaries" => parsed.binaries = Some(PathBuf::from(value()?)),
            "--model" => parsed.model = Some(PathBuf::from(value()?)),
            "--draft" => parsed.is_draft = true,
            "--twice" => parsed.twice = true,
            "--test" => parsed.test = true,
            "--only" => parsed.only.push(value()?.clone()),
            other => bail!(
                "dist does not know {other:?}; it takes --target T, --binaries FOLDER, --model FILE, --draft, --twice, --test and --only TRIAL"
            ),
        }
    }
    Ok(parsed)
}

/// A fork that releases under our name would have its users fetch from us.
fn of_this_repository(workspace: &Workspace) -> Result<()> {
    let (_, repository) = contents::identity(workspace)?;
    if let Some(here) = std::env::var_os("GITHUB_REPOSITORY") {
        let here = format!("https://github.com/{}", here.to_string_lossy());
        if here != repository {
            bail!(
                "this is {here}, and `repository` in Cargo.toml says {repository}, where installed programs look for newer ones; change it first"
            );
        }
    }
    Ok(())
}

/// The programs that are there, or that this machine can build.
fn programs(workspace: &Workspace, options: &Options) -> Result<Vec<Program>> {
    let wanted: Vec<&'static Target> = match options.targets.is_empty() {
        true => TARGETS.iter().collect(),
        false => options.targets.clone(),
    };
    let Some(folder) = &options.binaries else {
        return built(workspace, &wanted);
    };
    let mut programs = Vec::new();
    for target in wanted {
        let path = folder.join(target.triple).join(target.program());
        if path.is_file() {
            programs.push(Program { target, path });
        } else if !options.targets.is_empty() {
            bail!("{} does not exist", path.display());
        }
    }
    // What is made for this machine alone stands in for a static one, never beside it.
    let has_static =
        programs.iter().any(|program| !program.target.is_makeshift && program.target.runs_here());
    programs.retain(|program| !program.target.is_makeshift || !has_static);
    if programs.is_empty() {
        bail!("{} contains no TARGET/metamcp", folder.display());
    }
    Ok(programs)
}

/// Builds each target in the root folder of `cross`.
fn built(workspace: &Workspace, wanted: &[&'static Target]) -> Result<Vec<Program>> {
    // Part of every package: the engine of scripts where the system has no lockdown.
    hardened::ready(workspace)?;
    let root = cross::Root::ready(workspace)?;
    let mut programs = Vec::new();
    for target in wanted.iter().filter(|target| !target.is_makeshift) {
        writeln!(io::stderr(), "dist: building for {}", target.triple)?;
        let other = cross::Target::named(target.triple)?;
        let path = cross::metamcp(&root, workspace, other, PROFILE, cross::FEATURES)?;
        programs.push(Program { target, path });
    }
    Ok(programs)
}

/// Every file of the release, by its name.
fn made(
    workspace: &Workspace,
    options: &Options,
    programs: &[Program],
) -> Result<BTreeMap<String, Vec<u8>>> {
    let scratch = tempfile::tempdir()?;
    let here = programs.iter().find(|program| program.target.runs_here());
    let here = here.context("none of the programs runs here, and pages are asked of one")?;
    let contents =
        Contents::gather(workspace, &here.path, options.model.as_deref(), scratch.path())?;
    let known = Known::read(workspace)?;
    let mut files = BTreeMap::new();
    let mut sums = BTreeMap::new();
    let mut docker = Vec::new();
    for Program { target, path } in programs {
        let program = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let sbom = match sbom::embedded(&program) {
            Ok(info) => sbom::document(&contents, &info, &known)
                .with_context(|| format!("the program for {}", target.triple))?,
            Err(error) if options.is_draft => {
                writeln!(io::stderr(), "dist: DRAFT, {}: {error:#}", target.triple)?;
                b"{}\n".to_vec()
            }
            Err(error) => {
                return Err(error).with_context(|| {
                    format!("{} (build it by `cargo auditable`, or say --draft)", path.display())
                });
            }
        };
        let label = target.label();
        let name = format!("metamcp-{}-{label}", contents.version);
        let archive = archive(&contents, target, &name, &program, &sbom)?;
        sums.insert(label.clone(), hex(&archive.1));
        files.insert(format!("metamcp-{}-{label}.cdx.json", contents.version), sbom.clone());
        files.extend([
            archive,
            below("npm", npm::platform(&contents, target, &program)?),
            below("pypi", wheel::program(&contents, target, &program, &sbom)?),
        ]);
        if let Some(processor) = target.deb {
            files.extend([deb::program(&contents, target, processor, &program)?]);
            docker.extend(image(&contents, processor, &program));
        }
    }
    let targets: Vec<&Target> = programs.iter().map(|program| program.target).collect();
    files.extend([
        below("npm", npm::main(&contents, &targets)?),
        below("npm", npm::model(&contents)?),
        below("pypi", wheel::model(&contents)?),
        deb::model(&contents)?,
    ]);
    let values = manifests::values(&contents, &sums);
    let (manifests, missing) = manifests::all(&contents.templates, &values)?;
    for why in missing {
        writeln!(io::stderr(), "dist: not made, {why}")?;
    }
    for (name, text) in manifests {
        if let Some(inside) = name.strip_prefix("docker/") {
            docker.push(Entry::file(inside, text.as_str()));
        }
        if name == "nix/flake.nix" {
            let flake = [Entry::file("metamcp/flake.nix", text.as_str())];
            let packed = pack::tar_gz(&flake, contents.epoch, false)?;
            files.insert(format!("metamcp-{}-nix.tar.gz", contents.version), packed);
        }
        files.insert(name.to_owned(), text.into_bytes());
    }
    if !docker.is_empty() {
        docker.push(Entry::file("home/README", "The home of metamcp.\n"));
        let packed = pack::tar_gz(&docker, contents.epoch, false)?;
        files.insert(format!("metamcp-{}-docker.tar.gz", contents.version), packed);
    }
    let list: String = files
        .iter()
        // What is uploaded has no folders; npm and PyPI have checksums of their own.
        .filter(|(name, _)| !name.contains('/'))
        .map(|(name, bytes)| format!("{}  {name}\n", hex(bytes)))
        .collect();
    files.insert(SUMS.to_owned(), list.into_bytes());
    Ok(files)
}

fn below(folder: &str, (name, bytes): npm::Made) -> npm::Made {
    (format!("{folder}/{name}"), bytes)
}

/// What people unpack, and what the scripts and several package managers fetch.
fn archive(
    contents: &Contents,
    target: &Target,
    name: &str,
    program: &[u8],
    sbom: &[u8],
) -> Result<npm::Made> {
    let mut entries = contents.prefix();
    entries.push(Entry::program(format!("bin/{}", target.program()), program));
    entries.push(contents.model_entry());
    entries.push(Entry::file("share/doc/metamcp/metamcp.cdx.json", sbom));
    let entries: Vec<Entry> = entries.iter().map(|entry| entry.below(name)).collect();
    Ok(if target.system == "windows" {
        (format!("{name}.zip"), pack::zip(&entries, contents.epoch)?)
    } else {
        (format!("{name}.tar.gz"), pack::tar_gz(&entries, contents.epoch, false)?)
    })
}

/// The files of a container image, below the name of its platform.
fn image(contents: &Contents, processor: &str, program: &[u8]) -> Vec<Entry> {
    let entries = [
        Entry::program("bin/metamcp", program),
        contents.model_entry(),
        Contents::marker("docker"),
        Entry::file("share/doc/metamcp/LICENSE", &*contents.license),
    ];
    entries.map(|entry| entry.below(&format!("linux-{processor}/usr/local"))).into()
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Replaces the folder, and shows what is in it.
fn write(folder: &Path, files: &BTreeMap<String, Vec<u8>>) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot clear {}", folder.display()))?;
    }
    let mut out = io::stdout();
    for (name, bytes) in files {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap_or(folder))?;
        fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
        writeln!(out, "{:>10.2} MB  {}", bytes.len() as f64 / 1e6, path.display())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let options =
            parsed(&words("--target x86_64-apple-darwin --binaries b --twice --test --only npm"))
                .unwrap();
        assert_eq!(options.targets[0].label(), "macos-x86_64");
        assert!(options.twice && options.test && !options.is_draft);
        assert_eq!(options.only, ["npm"]);
        assert!(parsed(&words("--target z80")).is_err());
        assert!(parsed(&words("--fast")).unwrap_err().to_string().contains("--twice"));
        assert!(parsed(&words("--model")).is_err());
    }
}
