//! What packages of all kinds contain besides the program: manual pages, completions, licence, the search model.
//! Everything is asked of a program that runs here, so that no page says what the program does not.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::pack::Entry;
use crate::workspace::Workspace;
use crate::{real, run};

/// The file's name, by which the program looks for it.
pub(super) const MODEL: &str = "all-minilm-l6-v2-int8.bin";
/// The version of the packages with the model, which changes far less often than the program.
pub(super) const MODEL_VERSION: &str = "1.0.0";

/// The parts, read once.
pub(super) struct Contents {
    pub(super) version: String,
    pub(super) repository: String,
    /// Of everything in an archive that has a time.
    pub(super) epoch: u64,
    /// Name and page.
    pub(super) manual: Vec<(String, Vec<u8>)>,
    pub(super) bash: Vec<u8>,
    pub(super) zsh: Vec<u8>,
    pub(super) fish: Vec<u8>,
    pub(super) license: Vec<u8>,
    pub(super) changelog: Vec<u8>,
    /// The page that registries show.
    pub(super) readme: String,
    pub(super) model: Vec<u8>,
    pub(super) model_readme: String,
    /// The folder with our templates.
    pub(super) templates: PathBuf,
}

impl Contents {
    /// Asks `program`, and makes the model unless a file is given.
    pub(super) fn gather(
        workspace: &Workspace,
        program: &Path,
        model: Option<&Path>,
        scratch: &Path,
    ) -> Result<Contents> {
        let (version, repository) = identity(workspace)?;
        let said = run::quiet(Command::new(program).arg("version"))?;
        if said.trim() != format!("metamcp {version}") {
            bail!("{} is {}, and the tree is metamcp {version}", program.display(), said.trim());
        }
        let pages = scratch.join("man");
        let mut man = Command::new(program);
        run::quiet(man.args(["config", "man"]).arg(&pages))?;
        let mut manual = Vec::new();
        for page in fs::read_dir(&pages)? {
            let page = page?;
            manual.push((page.file_name().to_string_lossy().into_owned(), fs::read(page.path())?));
        }
        manual.sort();
        let completions = |shell: &str| -> Result<Vec<u8>> {
            Ok(run::quiet(Command::new(program).args(["completions", shell]))?.into_bytes())
        };
        let templates = workspace.root.join("packages");
        let page = |name: &str| -> Result<String> {
            let text = fs::read_to_string(templates.join(name)).with_context(|| name.to_owned())?;
            Ok(text.replace("{{repository}}", &repository))
        };
        let model = match model {
            Some(file) => {
                fs::read(file).with_context(|| format!("cannot read {}", file.display()))?
            }
            None => made_model(workspace, program, scratch)?,
        };
        Ok(Contents {
            epoch: epoch(workspace)?,
            manual,
            bash: completions("bash")?,
            zsh: completions("zsh")?,
            fish: completions("fish")?,
            license: fs::read(workspace.root.join("LICENSE"))?,
            changelog: fs::read(workspace.root.join("CHANGELOG.md"))?,
            readme: page("README.md.in")?,
            model_readme: page("model/README.md.in")?,
            model,
            version,
            repository,
            templates,
        })
    }

    /// A prefix such as `/usr/local`, without program, model and marker.
    pub(super) fn prefix(&self) -> Vec<Entry> {
        let mut entries = vec![
            Entry::file("share/bash-completion/completions/metamcp", &*self.bash),
            Entry::file("share/zsh/site-functions/_metamcp", &*self.zsh),
            Entry::file("share/fish/vendor_completions.d/metamcp.fish", &*self.fish),
            Entry::file("share/doc/metamcp/LICENSE", &*self.license),
            Entry::file("share/doc/metamcp/CHANGELOG.md", &*self.changelog),
        ];
        for (name, page) in &self.manual {
            entries.push(Entry::file(format!("share/man/man1/{name}"), &**page));
        }
        entries
    }

    pub(super) fn model_entry(&self) -> Entry {
        Entry::file(format!("share/metamcp/{MODEL}"), &*self.model)
    }

    /// Who brought the program, for `metamcp version --json` and `metamcp upgrade`.
    pub(super) fn marker(who: &str) -> Entry {
        Entry::file("share/metamcp/installed-by", format!("{who}\n"))
    }
}

/// Version and repository, as the program has them.
pub(super) fn identity(workspace: &Workspace) -> Result<(String, String)> {
    let packages = workspace.metadata["packages"].as_array().context("cargo metadata")?;
    let ours = packages.iter().find(|package| package["name"] == "metamcp");
    let text = |key: &str| {
        let value = ours.and_then(|package| package[key].as_str());
        value.map(str::to_owned).with_context(|| format!("metamcp has no {key} in Cargo.toml"))
    };
    Ok((text("version")?, text("repository")?))
}

/// The time of the last commit, so that two runs agree; `SOURCE_DATE_EPOCH` goes before it.
fn epoch(workspace: &Workspace) -> Result<u64> {
    if let Some(given) = std::env::var_os("SOURCE_DATE_EPOCH") {
        return given.to_string_lossy().trim().parse().context("SOURCE_DATE_EPOCH");
    }
    let mut git = Command::new("git");
    git.args(["log", "-1", "--format=%ct"]).current_dir(&workspace.root);
    run::quiet(&mut git)?.trim().parse().context("the time of the last commit")
}

/// The model as `metamcp model add` makes it, from the wheel that the tests use.
fn made_model(workspace: &Workspace, program: &Path, scratch: &Path) -> Result<Vec<u8>> {
    let wheel = real::model_wheel(workspace)?;
    let home = scratch.join("home");
    let mut add = Command::new(program);
    add.args(["model", "add", "--from"]).arg(&wheel).arg("--home").arg(&home);
    run::quiet(add.env("METAMCP_DAEMON", "off"))?;
    let made = home.join("models").join(MODEL);
    fs::read(&made).with_context(|| format!("cannot read {}", made.display()))
}
