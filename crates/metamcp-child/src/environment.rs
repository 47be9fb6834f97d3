//! What a child may see of our environment: a list of names, everything else stays here.
//! Owns: the list, and the reason for each name.      Never: lets a value through that carries a password.
//! In: our variables and the server's own.  Out: the child's whole environment.
//! Tests: below; `tests/it/isolation.rs` asks a real child.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// The folder for temporary files in a home of a child's own.
pub const TEMPORARY: &str = "tmp";

/// Who and where we are; no program works without these.
const IDENTITY: &[&str] =
    &["PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TMPDIR", "TZ", "LANG", "LANGUAGE"];

/// Where caches, data and sockets live when they are not in the default place: npm and uv would
/// download everything again, and rootless container engines would not be found.
const PLACES: &[&str] = &[
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    "XDG_RUNTIME_DIR",
    "NPM_CONFIG_CACHE",
    "NPM_CONFIG_PREFIX",
    "NPM_CONFIG_USERCONFIG",
    "UV_CACHE_DIR",
    "UV_TOOL_DIR",
    "UV_TOOL_BIN_DIR",
    "UV_PYTHON_INSTALL_DIR",
    "BUN_INSTALL",
    "DENO_DIR",
    "DOCKER_CONFIG",
    "DOCKER_CONTEXT",
    "DOCKER_CERT_PATH",
    "DOCKER_TLS_VERIFY",
    "DOCKER_API_VERSION",
];

/// Version switchers put a stub named `node` or `python` first in `PATH`; it fails without these.
const SWITCHERS: &[&str] =
    &["NVM_DIR", "VOLTA_HOME", "PYENV_ROOT", "ASDF_DIR", "ASDF_DATA_DIR", "MISE_DATA_DIR"];

/// Paths of certificate bundles, for networks whose traffic is inspected.
const CERTIFICATES: &[&str] = &[
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NIX_SSL_CERT_FILE",
];

/// Addresses of proxies, mirrors and engines. They can carry `user:password@`, and then they stay
/// here: a server that needs such a one has it in its own `env`.
const ADDRESSES: &[&str] = &[
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "NPM_CONFIG_REGISTRY",
    "UV_DEFAULT_INDEX",
    "UV_INDEX_URL",
    "PIP_INDEX_URL",
    "DOCKER_HOST",
];

/// Windows refuses to start most programs without these.
#[cfg(windows)]
const WINDOWS: &[&str] = &[
    "APPDATA",
    "COMSPEC",
    "HOMEDRIVE",
    "HOMEPATH",
    "LOCALAPPDATA",
    "PATHEXT",
    "PROCESSOR_ARCHITECTURE",
    "PROGRAMDATA",
    "PROGRAMFILES",
    "SYSTEMDRIVE",
    "SYSTEMROOT",
    "TEMP",
    "TMP",
    "USERNAME",
    "USERPROFILE",
    "WINDIR",
];
#[cfg(not(windows))]
const WINDOWS: &[&str] = &[];

/// The environment of a child: what the list lets through of `ours`, then the server's `own`, which wins.
pub fn for_child(
    ours: impl IntoIterator<Item = (OsString, OsString)>,
    own: &[(OsString, OsString)],
) -> Vec<(OsString, OsString)> {
    let mut all: BTreeMap<OsString, OsString> =
        ours.into_iter().filter(|(name, value)| may_pass(name, value)).collect();
    all.extend(own.iter().cloned());
    all.into_iter().collect()
}

/// The same for a child that is to take `home` for the user's: whatever would lead it into the real one stays here,
/// since it could not read what it finds there.
pub fn for_child_at(
    ours: impl IntoIterator<Item = (OsString, OsString)>,
    own: &[(OsString, OsString)],
    home: Option<&Path>,
) -> Vec<(OsString, OsString)> {
    let Some(home) = home else { return for_child(ours, own) };
    let leads_home = |name: &OsStr| {
        let upper = name.to_string_lossy().to_ascii_uppercase();
        PLACES.contains(&upper.as_str()) || SWITCHERS.contains(&upper.as_str())
    };
    let ours = ours.into_iter().filter(|(name, _)| !leads_home(name));
    let places = [("HOME", home.to_owned()), ("TMPDIR", home.join(TEMPORARY))];
    let mut all: Vec<(OsString, OsString)> =
        places.map(|(name, path)| (name.into(), path.into())).to_vec();
    all.extend(own.iter().cloned());
    for_child(ours, &all)
}

/// Files of certificates that our own variables name, which a child behind walls has to read too.
pub fn certificate_files() -> Vec<PathBuf> {
    CERTIFICATES.iter().filter_map(|name| std::env::var_os(name).map(PathBuf::from)).collect()
}

/// Whether a variable of ours may reach a child that did not ask for it.
fn may_pass(name: &OsStr, value: &OsStr) -> bool {
    let (Some(name), value) = (name.to_str(), value.to_string_lossy()) else { return false };
    // Old shells export functions as values that begin so, and run them on import.
    if value.starts_with("()") {
        return false;
    }
    // npm, uv and most network libraries accept these names in lower case too.
    let upper = name.to_ascii_uppercase();
    let either_case = |list: &[&str]| list.contains(&upper.as_str());
    let lists = [IDENTITY, PLACES, SWITCHERS, CERTIFICATES];
    if lists.iter().any(|list| list.contains(&name)) || name.starts_with("LC_") {
        return true;
    }
    if either_case(WINDOWS) || (cfg!(windows) && either_case(IDENTITY)) {
        return true;
    }
    if upper.starts_with("NPM_CONFIG_") && either_case(PLACES) {
        return true;
    }
    either_case(ADDRESSES) && !value.contains('@')
}

#[cfg(test)]
mod tests {
    use super::{for_child, for_child_at};
    use std::ffi::OsString;
    use std::path::Path;

    fn vars(list: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
        list.iter().map(|(name, value)| (name.into(), value.into())).collect()
    }

    #[test]
    fn only_the_list_passes() {
        let ours = vars(&[
            ("PATH", "/bin"),
            ("LC_ALL", "C"),
            ("AWS_SECRET_ACCESS_KEY", "s"),
            ("ANTHROPIC_API_KEY", "s"),
            ("GITHUB_TOKEN", "s"),
            ("NPM_TOKEN", "s"),
            ("npm_config_cache", "/c"),
            ("npm_config_//registry.example/:_authToken", "s"),
            ("NPM_CONFIG__AUTH", "s"),
            ("LD_PRELOAD", "/x.so"),
            ("NODE_OPTIONS", "--require /x.js"),
            ("SSH_AUTH_SOCK", "/s"),
            ("path", "/other"),
        ]);
        let names: Vec<_> = for_child(ours, &[]).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["LC_ALL", "PATH", "npm_config_cache"]);
    }

    #[test]
    fn addresses_pass_only_without_credentials() {
        let ours = vars(&[
            ("HTTPS_PROXY", "http://proxy:3128"),
            ("http_proxy", "http://me:secret@proxy:3128"),
            ("NPM_CONFIG_REGISTRY", "https://t:oken@mirror"),
            ("no_proxy", "localhost"),
        ]);
        let names: Vec<_> = for_child(ours, &[]).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["HTTPS_PROXY", "no_proxy"]);
    }

    #[test]
    fn nothing_leads_out_of_a_home_of_its_own() {
        let ours = vars(&[
            ("PATH", "/bin"),
            ("HOME", "/me"),
            ("XDG_CONFIG_HOME", "/me/c"),
            ("NVM_DIR", "/me/n"),
        ]);
        let own = vars(&[("TOKEN", "mine")]);
        let seen = for_child_at(ours, &own, Some(Path::new("/own")));
        let expected =
            vars(&[("HOME", "/own"), ("PATH", "/bin"), ("TMPDIR", "/own/tmp"), ("TOKEN", "mine")]);
        assert_eq!(seen, expected);
    }

    #[test]
    fn the_servers_own_values_win_and_functions_do_not_pass() {
        let ours = vars(&[("PATH", "/bin"), ("TERM", "() { :; }; echo")]);
        let own = vars(&[("PATH", "/opt/bin"), ("TOKEN", "mine")]);
        assert_eq!(for_child(ours, &own), own);
    }
}
