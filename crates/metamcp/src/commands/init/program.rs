//! The program that clients will start: its path, whether that path is stable, and the variables it needs.

use std::path::{Path, PathBuf};

use crate::env;

/// Variables that we read besides our settings: proxies, the certificates to trust, and where the keyring is.
const OWN: &[&str] = &[
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "DBUS_SESSION_BUS_ADDRESS",
    "XDG_RUNTIME_DIR",
];

/// How a client starts this gateway: always by an absolute path, since a client may have another `PATH` than this
/// shell; by the one in `PATH` if that resolves to this very program, since it survives an upgrade. The config file is
/// always named: a client may start the gateway in a project that has its own `.mcp.json`.
pub(super) fn command(own: &Path) -> anyhow::Result<(String, Vec<String>)> {
    let program = own_program()?;
    let own = std::path::absolute(own)?;
    let args = vec!["--config".to_owned(), own.to_string_lossy().into_owned()];
    Ok((program.to_string_lossy().into_owned(), args))
}

/// This program by the path that survives an upgrade, if there is one.
pub(crate) fn own_program() -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe()?;
    Ok(in_path(&program).unwrap_or(program))
}

fn in_path(program: &Path) -> Option<PathBuf> {
    let canonical = program.canonicalize().ok()?;
    let folders = env::lookup_os("PATH")?;
    let name = if cfg!(windows) { "metamcp.exe" } else { "metamcp" };
    let mut all = std::env::split_paths(&folders)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(name));
    all.find(|at| at.canonicalize().is_ok_and(|at| at == canonical))
}

/// Why the path of a program should not be written into other programs' files.
pub(crate) fn doubt(program: &Path) -> Option<String> {
    let parts: Vec<String> =
        program.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let is_build = parts
        .windows(2)
        .any(|two| two[0] == "target" && ["debug", "release", "dist"].contains(&two[1].as_str()));
    let is_cache = parts.iter().any(|part| part == "_npx" || part == "_cacache")
        || parts.windows(2).any(|two| *two == [".cache", "uv"] || *two == ["uv", "cache"]);
    let where_to = if is_build {
        "a build folder"
    } else if is_cache {
        "a cache"
    } else if program.starts_with(std::env::temp_dir()) {
        "a folder for temporary files"
    } else {
        return None;
    };
    Some(format!(
        "clients will start {}, which is in {where_to}; install it permanently, and run init from there",
        program.display()
    ))
}

/// The variables that we need and that are set now.
pub(super) fn needed() -> Vec<String> {
    let ours = env::names().into_iter();
    ours.filter(|name| OWN.contains(&name.as_str()) || name.starts_with("METAMCP_"))
        .filter(|name| name != metamcp_engine::config::ABOVE)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::doubt;

    #[test]
    fn a_program_that_will_not_stay_is_doubted() {
        for path in [
            "/home/me/metamcp/target/release/metamcp",
            "/home/me/.npm/_npx/ab12/node_modules/.bin/metamcp",
            "/home/me/.cache/uv/archive-v0/x/bin/metamcp",
            "/x/AppData/Local/uv/cache/archive-v0/x/Scripts/metamcp.exe",
        ] {
            assert!(doubt(Path::new(path)).is_some_and(|why| why.contains(path)), "{path}");
        }
        assert!(doubt(&std::env::temp_dir().join("x/metamcp")).is_some());
        for path in ["/usr/local/bin/metamcp", "/home/me/.cargo/bin/metamcp", "/opt/target/metamcp"]
        {
            assert_eq!(doubt(Path::new(path)), None, "{path}");
        }
    }
}
