//! The root folder with the compilers for other systems: Debian's newest suite, made once and kept.
//! Owns: `target/cross-root`, or the folder that `METAMCP_CROSS_ROOT` names.      Never: leaves anything mounted.
//! In: Debian's archive and PyPI.  Out: commands that run inside.
//! Tests: below; every build for another system uses it.
//!
//! Debian's newest suite has a compiler and the source of its standard library in the same version, which is all that
//! cargo needs to build for a system that nobody made a library for.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::{HOME, TREE};
use crate::run;
use crate::workspace::Workspace;

/// Names a root folder that several checkouts share.
const PLACE: &str = "METAMCP_CROSS_ROOT";

const SUITE: &str = "sid";

/// What is installed in it.
const PACKAGES: [&str; 15] = [
    "ca-certificates",
    "cargo",
    "cargo-auditable", // writes the list of dependencies into what is built
    "gcc",
    "git",
    "libc6-dev",
    "make",
    "mingw-w64", // the C compiler and linker for Windows
    "pkg-config",
    "python3-venv", // for zig, which comes from PyPI
    "qemu-user",    // runs what was built for arm64
    "rust-src",
    "rustc",
    "wine", // runs what was built for Windows
    "wine64",
];

/// The C compiler and linker for musl and macOS, and what calls it for cargo. One sum a platform.
const WHEELS: &str = "\
ziglang==0.15.2 \
--hash=sha256:806316453d1ede7174ed3fefb8e5348154629089c3bb5fe812dfd0e172fac130 \
--hash=sha256:edc0aa60ec964a4cf462d40f68d7de242ddf37fd9a80f2afaee6397059463230
cargo-zigbuild==0.24.0 \
--hash=sha256:484412e39e4c6039474535ce97ee75a22bab22d58233056f8ec8a8f9034bb957 \
--hash=sha256:6942e4320f7b05d8fb29e0a8ce5670bcbb3d254275100b85b5b7c86552f9a744
";

/// Where they are installed.
const ZIG: &str = "opt/zig";

/// Makes the tree, the build folder and the kernel's files appear in the root folder, for the command alone: all of it is
/// in a mount namespace that ends with the command, as do the processes that the command leaves behind. The two folders are
/// `TREE` and `BUILT`.
const ENTER: &str = r#"
set -e
root=$1 tree=$2 built=$3
shift 3
mkdir -p "$root/src" "$root/built"
mount --bind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount --bind "$tree" "$root/src"
mount --bind "$built" "$root/built"
exec chroot "$root" "$@"
"#;

pub(crate) struct Root {
    folder: PathBuf,
}

impl Root {
    /// The root folder with everything in it; the first call takes some minutes and about 4 GB of disk.
    pub(crate) fn ready(workspace: &Workspace) -> Result<Root> {
        if run::quiet(Command::new("id").arg("-u"))?.trim() != "0" {
            bail!(
                "building for other systems mounts and enters a root folder, which only root may do; run this as root, in a container or a virtual machine"
            );
        }
        let folder = match std::env::var_os(PLACE) {
            Some(place) => PathBuf::from(place),
            None => workspace.target.join("cross-root"),
        };
        let folder = std::path::absolute(&folder).with_context(|| folder.display().to_string())?;
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let lock = File::create(folder.join(".lock"))?;
        lock.lock().context("cannot lock the root folder")?;
        let root = Root { folder };
        root.bootstrap()?;
        root.let_out()?;
        root.install(workspace)?;
        root.install_zig(workspace)?;
        root.stand_in_for_musl()?;
        Ok(root)
    }

    /// A command inside, at the root of the tree. Its variables are those given and what the network needs, so that
    /// nothing of this shell gets into a build.
    pub(crate) fn command(
        &self,
        workspace: &Workspace,
        variables: &[(String, String)],
        words: &[&str],
    ) -> Result<Command> {
        let built = super::built(workspace);
        fs::create_dir_all(&built).with_context(|| built.display().to_string())?;
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--pid", "--fork", "--kill-child", "--"])
            .args(["sh", "-c", ENTER, "cross"])
            .args([&self.folder, &workspace.root, &built])
            .args(["env", "--ignore-environment", &format!("--chdir={TREE}")])
            .args([&format!("HOME={HOME}"), "LANG=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"])
            .arg(format!("PATH=/{ZIG}/bin:/usr/sbin:/usr/bin:/sbin:/bin"));
        for (name, value) in std::env::vars() {
            if is_for_the_network(&name) {
                command.arg(format!("{name}={value}"));
            }
        }
        command.args(variables.iter().map(|(name, value)| format!("{name}={value}")));
        command.args(words);
        Ok(command)
    }

    fn bootstrap(&self) -> Result<()> {
        if self.folder.join("usr/bin/apt-get").exists() {
            return Ok(());
        }
        run::loud(
            Command::new("debootstrap")
                .args(["--variant=minbase", "--include=ca-certificates", SUITE])
                .arg(&self.folder),
        )
        .context("a root folder is made by debootstrap, of the package of that name")?;
        Ok(())
    }

    /// The way out is the machine's: its resolver and the authorities it trusts. A mirror's list may be older than it
    /// says it should be.
    fn let_out(&self) -> Result<()> {
        for file in ["/etc/resolv.conf", "/etc/ssl/certs/ca-certificates.crt"] {
            let inside = self.folder.join(file.trim_start_matches('/'));
            if let Ok(bytes) = fs::read(file)
                && fs::read(&inside).ok().as_ref() != Some(&bytes)
            {
                fs::create_dir_all(inside.parent().unwrap_or(&self.folder))?;
                fs::write(&inside, bytes).with_context(|| inside.display().to_string())?;
            }
        }
        let inside = self.folder.join("etc/apt/apt.conf.d/99snapshot");
        fs::write(&inside, "Acquire::Check-Valid-Until \"false\";\n")
            .with_context(|| inside.display().to_string())
    }

    fn install(&self, workspace: &Workspace) -> Result<()> {
        let status = fs::read_to_string(self.folder.join("var/lib/dpkg/status"))?;
        let missing = missing(&status);
        if missing.is_empty() {
            return Ok(());
        }
        run::loud(&mut self.command(workspace, &[], &["apt-get", "update", "--quiet"])?)?;
        let install =
            ["apt-get", "install", "--quiet", "--yes", "--no-install-recommends", "--no-upgrade"];
        let words: Vec<&str> = install.into_iter().chain(missing).collect();
        run::loud(&mut self.command(workspace, &[], &words)?)?;
        // Half a gigabyte that is not needed again.
        run::loud(&mut self.command(workspace, &[], &["apt-get", "clean"])?)?;
        Ok(())
    }

    /// Where a file of the root folder is on this machine.
    pub(crate) fn inside(&self, path: &str) -> PathBuf {
        self.folder.join(path)
    }

    /// Debian's compiler has no start files for musl and names them without a folder then, which zig does not find.
    /// Named in this folder, cargo-zigbuild takes zig's own in their place; what they contain does not matter.
    fn stand_in_for_musl(&self) -> Result<()> {
        for processor in ["x86_64", "aarch64"] {
            let folder =
                format!("usr/lib/rustlib/{processor}-unknown-linux-musl/lib/self-contained");
            let folder = self.folder.join(folder);
            fs::create_dir_all(&folder)?;
            for file in START_FILES.map(|file| folder.join(file)) {
                if !file.exists() {
                    fs::write(file, "")?;
                }
            }
        }
        Ok(())
    }

    fn install_zig(&self, workspace: &Workspace) -> Result<()> {
        let folder = self.folder.join(ZIG);
        let note = folder.join("requirements.txt");
        if fs::read_to_string(&note).is_ok_and(|installed| installed == WHEELS) {
            return Ok(());
        }
        drop(fs::remove_dir_all(&folder));
        let inside = Path::new("/").join(ZIG).display().to_string();
        run::loud(&mut self.command(workspace, &[], &["python3", "-m", "venv", &inside])?)?;
        let wanted = folder.join("wanted.txt");
        fs::write(&wanted, WHEELS)?;
        let (python, list) = (format!("{inside}/bin/python"), format!("{inside}/wanted.txt"));
        let pip = [&python, "-m", "pip", "install", "--quiet", "--only-binary=:all:"];
        let words: Vec<&str> = pip.into_iter().chain(["--require-hashes", "-r", &list]).collect();
        run::loud(&mut self.command(workspace, &[], &words)?)?;
        // Cargo-zigbuild looks for a program of this name.
        fs::write(folder.join("bin/zig"), format!("#!/bin/sh\nexec {python} -m ziglang \"$@\"\n"))?;
        make_executable(&folder.join("bin/zig"))?;
        fs::rename(wanted, note)?;
        Ok(())
    }
}

/// Start files that rustc names on the command line of a static link.
const START_FILES: [&str; 10] = [
    "crt1.o",
    "rcrt1.o",
    "Scrt1.o",
    "crti.o",
    "crtn.o",
    "crtbegin.o",
    "crtbeginS.o",
    "crtbeginT.o",
    "crtend.o",
    "crtendS.o",
];

/// Which packages the folder does not have, by dpkg's own list.
fn missing(status: &str) -> Vec<&'static str> {
    let installed: BTreeSet<&str> = status
        .split("\n\n")
        .filter(|entry| entry.lines().any(|line| line == "Status: install ok installed"))
        .filter_map(|entry| entry.lines().find_map(|line| line.strip_prefix("Package: ")))
        .collect();
    PACKAGES.into_iter().filter(|package| !installed.contains(package)).collect()
}

/// Proxies, certificates and other registries, as this machine has them.
fn is_for_the_network(name: &str) -> bool {
    let upper = name.to_uppercase();
    ["PIP_", "SSL_CERT_", "CARGO_HTTP_", "CARGO_NET_", "CARGO_REGISTR"]
        .iter()
        .any(|start| upper.starts_with(start))
        || upper.ends_with("_PROXY")
}

#[cfg(unix)]
fn make_executable(file: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(file, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

#[cfg(not(unix))]
fn make_executable(_: &Path) -> Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_dpkg_has_installed_counts() {
        assert_eq!(missing(""), PACKAGES);
        let entry =
            |name: &str, state: &str| format!("Package: {name}\nStatus: {state}\nVersion: 1\n\n");
        let all: String = PACKAGES.iter().map(|name| entry(name, "install ok installed")).collect();
        assert_eq!(missing(&all), [""; 0]);
        let removed = all.replacen("install ok installed", "deinstall ok config-files", 1);
        assert_eq!(missing(&removed), [PACKAGES[0]]);
    }

    #[test]
    fn nothing_but_the_network_is_passed_on() {
        assert!(is_for_the_network("https_proxy") && is_for_the_network("PIP_CERT"));
        assert!(!is_for_the_network("RUSTFLAGS") && !is_for_the_network("PATH"));
        assert!(!is_for_the_network("CARGO_TARGET_DIR"));
    }
}
