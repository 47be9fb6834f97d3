//! `metamcp version`.

use std::io::Write;

use serde_json::json;

use crate::args::VersionArgs;
use crate::exit::Exit;
use crate::install_method::InstallMethod;

/// Prints the version, and as JSON what comes with it.
pub(crate) fn run(args: &VersionArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let version = env!("CARGO_PKG_VERSION");
    if !args.json {
        writeln!(out, "metamcp {version}")?;
        return Ok(Exit::Success);
    }
    let told = json!({
        "name": "metamcp",
        "version": version,
        "system": std::env::consts::OS,
        "processor": std::env::consts::ARCH,
        "hardened": cfg!(feature = "hardened"),
        "installedBy": InstallMethod::here().name(),
    });
    writeln!(out, "{told:#}")?;
    Ok(Exit::Success)
}
