//! The static build for arm64 on a machine of another processor, by qemu-user: `cargo xtask cross --test --arm64`.
//! Owns: how a command gets to start programs of that processor; a root folder with a Node of it.      Never: changes what
//! other commands of this machine can start.
//! In: the program, qemu out of the root folder.  Out: whether it did what it has to.
//! Tests: it is one.
//!
//! Since Linux 6.7 each user namespace has a table of its own of what starts which kind of program. There qemu is named for
//! arm64, so everything that metamcp starts, itself above all, is found and run as on a machine of that processor.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::json;

use super::{BUILT, Root};
use crate::workspace::Workspace;
use crate::{real, run};

/// The tests that can hold without what qemu-user does not have: namespaces, Landlock and seccomp. It also numbers the
/// signals of real time anew, and its user namespace has one user.
pub(super) const TESTS: &str = "not package(metamcp-sandbox) \
and not test(/isolation|process_sandbox|namespaces|lockdown|exit_code_and_signal|ordinary_user/)";

/// Of nextest: emulated, one test with all attacks takes many minutes.
pub(super) const PATIENT: [&str; 2] = ["--profile", "nightly"];

/// The files of tests that are built for it: containment, the engine as WASM with all attacks. Those of commands compare
/// what is said on a system with Landlock.
pub(super) const FILES: [&str; 2] = ["it", "workers"];

/// Below the build folder.
const FOLDER: &str = "arm64";

/// Names qemu for programs of arm64, in a user namespace of this command alone; `F` has it opened now, so that it is there
/// in other roots too.
const EMULATED: &str = r#"
set -e
qemu=$1
shift
mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
printf '%s' ":metamcp-arm64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:$qemu:FP" > /proc/sys/fs/binfmt_misc/register
exec "$@"
"#;

/// A root folder with the program, npm's packages and the kernel's files in it.
const ENTER: &str = r#"
set -e
root=$1 program=$2 servers=$3
shift 3
mkdir -p "$root/dev" "$root/proc" "$root/tmp" "$root/root" "$root/servers/node_modules"
touch "$root/usr/bin/metamcp"
mount --rbind /dev "$root/dev"
mount --rbind /proc "$root/proc"
mount --bind "$program" "$root/usr/bin/metamcp"
mount --bind "$servers" "$root/servers/node_modules"
exec chroot "$root" env --ignore-environment PATH=/usr/bin HOME=/root LC_ALL=C.UTF-8 METAMCP_DAEMON=off "$@"
"#;

/// Debian's Node for arm64 with all that it needs, unpacked and not installed: nothing of it has to run for that.
const NODE: &str = r#"
set -e
cd "$1"
rm -rf apt root
mkdir -p apt/lists/partial apt/cache/archives/partial root/usr/bin root/usr/sbin root/usr/lib
ln -s usr/bin usr/sbin usr/lib root
apt() {
    apt-get --quiet -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State::status=/dev/null \
        -o Dir::State::lists="$PWD/apt/lists" -o Dir::Cache="$PWD/apt/cache" -o APT::Sandbox::User=root "$@"
}
apt update
apt install --download-only --yes --no-install-recommends coreutils nodejs
for package in apt/cache/archives/*.deb; do
    dpkg-deb --extract "$package" root
done
rm -rf apt
touch root/complete
"#;

/// What is asked of the program, and what its answer contains: on such a machine, and emulated. There scripts are refused,
/// since qemu takes a limit on address space and keeps none.
const QUESTIONS: [(&[&str], &str, &str); 8] = [
    (&["version", "--json"], "\"processor\": \"aarch64\"", "\"processor\": \"aarch64\""),
    (&["version", "--json"], "\"hardened\": true", "\"hardened\": true"),
    (&["demo"], "calls made: files:search_files", "the sandbox lacks resource_limits"),
    (&["list"], "everything", "everything"),
    (&["tools", "everything"], "everything:get-sum", "everything:get-sum"),
    (CALL, "Echo: hello from arm64", "Echo: hello from arm64"),
    (&["run", "/tmp/script.ts"], "Echo: 42", "the sandbox lacks resource_limits"),
    (&["doctor"], "the sandbox of scripts", "scripts have no sandbox"),
];

const CALL: &[&str] = &["call", "everything:echo", "message=hello from arm64"];

const SCRIPT: &str = "const said: any = await everything.echo({ message: String(6 * 7) });\n\
                      return typeof said === 'string' ? said : JSON.stringify(said);\n";

/// Whether this machine needs any of it.
pub(super) fn is_native() -> bool {
    std::env::consts::ARCH == "aarch64"
}

/// A command that starts the words which are added to it with mounts of its own, where programs for arm64 start.
pub(super) fn entered(root: &Root) -> Command {
    let mut command = Command::new("unshare");
    command.arg("--mount");
    if is_native() {
        command.arg("--");
    } else {
        command.args(["--user", "--map-root-user", "--"]);
        command.args(["sh", "-c", EMULATED, "emulated"]).arg(root.inside("usr/bin/qemu-aarch64"));
    }
    command
}

/// Uses the program as a person on such a machine would, with a real server.
pub(super) fn used(root: &Root, workspace: &Workspace, program: &Path) -> Result<()> {
    let place = node(root, workspace)?;
    let servers = real::servers(workspace)?;
    let server = "/servers/node_modules/@modelcontextprotocol/server-everything/dist/index.js";
    let config = json!({ "mcpServers": { "everything": { "command": "node", "args": [server] } } });
    fs::create_dir_all(place.join("tmp"))?;
    fs::write(place.join("tmp/mcp.json"), config.to_string())?;
    fs::write(place.join("tmp/script.ts"), SCRIPT)?;
    let mut wrong = Vec::new();
    for (words, native, emulated) in QUESTIONS {
        let expected = if is_native() { native } else { emulated };
        let mut command = entered(root);
        command.args(["sh", "-c", ENTER, "arm64"]).arg(&place).arg(program).arg(&servers);
        command.args(["env", "--chdir=/tmp", "metamcp"]).args(words);
        if words != ["demo"] {
            command.args(["--config", "/tmp/mcp.json"]);
        }
        // The demo and a script fail where scripts are refused, and say why.
        let output = command.output().context("cannot start unshare")?;
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        let shown = words.join(" ");
        if said.contains(expected) {
            writeln!(io::stderr(), "arm64: metamcp {shown}: {expected}")?;
        } else {
            wrong.push(format!("metamcp {shown} says no {expected:?}:\n{said}"));
        }
    }
    if !wrong.is_empty() {
        bail!("{}", wrong.join("\n"));
    }
    Ok(())
}

/// The root folder with Node, made once.
fn node(root: &Root, workspace: &Workspace) -> Result<PathBuf> {
    let folder = super::built(workspace).join(FOLDER);
    if !folder.join("root/complete").is_file() {
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let inside = format!("{BUILT}/{FOLDER}");
        run::quiet(&mut root.command(workspace, &[], &["sh", "-c", NODE, "node", &inside])?)
            .context("Node for arm64 comes from Debian")?;
    }
    Ok(folder.join("root"))
}
