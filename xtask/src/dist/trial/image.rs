//! The container image without a container engine: its files as a root that cannot be written to, its user, its command and
//! its health check.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::roots::{Mounts, is_root, keep};
use super::{Ground, Installed, one, size, unpack};
use crate::run;

/// How long the image may take to become healthy, and to end.
const DEADLINE: Duration = Duration::from_secs(30);

/// By its path: whoever starts without variables has no `PATH` to find it in.
const CHROOT: &str = "/usr/sbin/chroot";

pub(super) fn image(ground: &Ground, place: &Path) -> Result<Vec<(String, Installed)>> {
    if !is_root() {
        bail!(
            "a root that cannot be written to needs root: run this trial with sudo, or in a container"
        );
    }
    if ground.target.is_makeshift {
        bail!("the image needs a static program");
    }
    let context = one(&ground.dist, &format!("metamcp-{}-docker", ground.version), "gz")?;
    let unpacked = place.join("context");
    unpack(&context, &unpacked)?;
    let processor = ground.target.deb.context("no image for this machine")?;
    let root = unpacked.join(format!("linux-{processor}"));
    for folder in ["data", "tmp", "proc", "dev"] {
        fs::create_dir_all(root.join(folder))?;
    }
    let mut mounts = Mounts::default();
    mounts.add(&["--bind", &root.display().to_string()], &root)?;
    run::quiet(Command::new("mount").args(["-o", "remount,bind,ro"]).arg(&root))?;
    mounts.add(&["-t", "proc", "proc"], &root.join("proc"))?;
    mounts.add(&["--bind", "/dev"], &root.join("dev"))?;
    mounts.add(&["-t", "tmpfs", "-o", "mode=1777", "tmpfs"], &root.join("tmp"))?;
    mounts.add(
        &["-t", "tmpfs", "-o", "uid=65532,gid=65532,mode=0755", "tmpfs"],
        &root.join("data"),
    )?;
    keep(mounts);
    if fs::write(root.join("written"), "").is_ok() {
        bail!("the root can be written to");
    }
    serves(&root)?;
    let env = [("METAMCP_HOME", "/data/metamcp"), ("TMPDIR", "/tmp")];
    let installed = Installed {
        start: ["--userspec=65532:65532", &root.display().to_string(), "/usr/local/bin/metamcp"]
            .map(str::to_owned)
            .into(),
        root: None,
        home: place.join("home"),
        env: env.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        by: "docker",
        size: size(&context)?,
    };
    fs::create_dir_all(&installed.home)?;
    let installed =
        Installed { start: [vec![CHROOT.to_owned()], installed.start].concat(), ..installed };
    Ok(vec![("image (no engine: a read-only root)".to_owned(), installed)])
}

/// The command of the image becomes healthy, by the health check of the image, and ends when it is told to.
fn serves(root: &PathBuf) -> Result<()> {
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
    let inside = || {
        let mut command = Command::new(CHROOT);
        command.arg("--userspec=65532:65532").arg(root).arg("/usr/local/bin/metamcp").env_clear();
        command.env("METAMCP_HOME", "/data/metamcp").env("METAMCP_DAEMON", "off");
        command.env("TMPDIR", "/tmp").env("MCP_TOKEN", "a-token-of-this-trial-alone-0123456789");
        command
    };
    let mut serving = inside();
    serving.args(["--transport", "http", "--host", "127.0.0.1", "--port", &port]);
    serving.args(["--token-env", "MCP_TOKEN"]).stdin(Stdio::null()).stderr(Stdio::piped());
    let mut serving = serving.spawn().context(CHROOT)?;
    let began = Instant::now();
    let listener = format!("http://127.0.0.1:{port}");
    let healthy = loop {
        if run::quiet(inside().args(["status", "--listener", &listener])).is_ok() {
            break true;
        }
        if began.elapsed() > DEADLINE || serving.try_wait()?.is_some() {
            break false;
        }
        thread::sleep(Duration::from_millis(50));
    };
    run::quiet(Command::new("kill").args(["-TERM", &serving.id().to_string()]))?;
    let ended = serving.wait_with_output()?;
    if !healthy {
        bail!("the image did not become healthy: {}", String::from_utf8_lossy(&ended.stderr));
    }
    if !ended.status.success() {
        bail!("the image ended with {}", ended.status);
    }
    Ok(())
}
