//! The environment of a child: allowlists of variables of ours; everything else is removed.
//! Owns: the lists, and the reason for each name.      Never: passes a value with a password, unless its variable was named.
//! In: our variables, the server's own, and those named in addition to the lists.  Out: the child's whole environment.
//! Tests: below; `tests/it/isolation.rs` with a real child.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use metamcp_types::pass_env::PassEnv;
use metamcp_types::secret::names_a_secret;

/// The folder for temporary files in a child's own home.
pub const TEMPORARY: &str = "tmp";

/// Identity and locale; no program works without these.
const IDENTITY: &[&str] =
    &["PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TMPDIR", "TZ", "LANG", "LANGUAGE"];

/// Locations of caches, data and sockets that differ from the default: npm and uv would
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

/// Version managers put a shim named `node` or `python` first in `PATH`; it fails without these.
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

/// Addresses of proxies, mirrors and engines. They can contain `user:password@`, and then they are
/// removed: a server that needs one gets it in its own `env`, or by `passEnv`.
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

/// By these, developer tools find their logins, clusters, displays and agents: names of files, sockets and accounts, no
/// secrets themselves. A server that the user configured works here as it does without us; one that was installed for a
/// model gets none of these.
const TOOLS: &[&str] = &[
    "SSH_AUTH_SOCK",
    "SSH_AGENT_PID",
    "GNUPGHOME",
    "GPG_TTY",
    "GIT_CONFIG_GLOBAL",
    "KUBECONFIG",
    "HELM_CONFIG_HOME",
    "AWS_PROFILE",
    "AWS_DEFAULT_PROFILE",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_SDK_LOAD_CONFIG",
    "AWS_CA_BUNDLE",
    "AZURE_CONFIG_DIR",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_CLOUD_PROJECT",
    "CLOUDSDK_CONFIG",
    "CLOUDSDK_ACTIVE_CONFIG_NAME",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "DBUS_SESSION_BUS_ADDRESS",
    "BROWSER",
    "COLORTERM",
    "JAVA_HOME",
    "GOPATH",
    "GOROOT",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "PNPM_HOME",
    "DOTNET_ROOT",
    "ANDROID_HOME",
    "ANDROID_SDK_ROOT",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "PLAYWRIGHT_BROWSERS_PATH",
    "PUPPETEER_EXECUTABLE_PATH",
    "CHROME_PATH",
];

/// Windows refuses to start most programs without some of these, and the others are to its programs what `HOME` is
/// elsewhere: places of the system, of installed programs, of the user's files.
const WINDOWS: &[&str] = &[
    "ALLUSERSPROFILE",
    "APPDATA",
    "COMMONPROGRAMFILES",
    "COMMONPROGRAMFILES(X86)",
    "COMMONPROGRAMW6432",
    "COMPUTERNAME",
    "COMSPEC",
    "HOMEDRIVE",
    "HOMEPATH",
    "LOCALAPPDATA",
    "NUMBER_OF_PROCESSORS",
    "OS",
    "PATHEXT",
    "PROCESSOR_ARCHITECTURE",
    "PROGRAMDATA",
    "PROGRAMFILES",
    "PROGRAMFILES(X86)",
    "PROGRAMW6432",
    "PSMODULEPATH",
    "PUBLIC",
    "SYSTEMDRIVE",
    "SYSTEMROOT",
    "TEMP",
    "TMP",
    "USERDOMAIN",
    "USERNAME",
    "USERPROFILE",
    "WINDIR",
];

/// How a system reads names of variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Names {
    /// As they are written.
    Exact,
    /// Whatever their case; and the list for Windows counts.
    Windows,
}

/// The names of this system.
const NAMES: Names = if cfg!(windows) { Names::Windows } else { Names::Exact };

impl Names {
    /// The one spelling of a name that compares.
    fn key(self, name: &str) -> String {
        match self {
            Names::Exact => name.to_owned(),
            Names::Windows => name.to_ascii_uppercase(),
        }
    }

    fn is_named(self, pass: &PassEnv, name: &str) -> bool {
        match self {
            Names::Exact => pass.names(name),
            Names::Windows => pass.names_in_any_case(name),
        }
    }

    /// Later ones win, also over one in other case.
    fn together(
        self,
        all: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Vec<(OsString, OsString)> {
        let key = |name: &OsStr| match name.to_str() {
            Some(name) => self.key(name).into(),
            None => name.to_owned(),
        };
        let by_key: BTreeMap<OsString, (OsString, OsString)> =
            all.into_iter().map(|(name, value)| (key(&name), (name, value))).collect();
        by_key.into_values().collect()
    }
}

/// The environment of a child: the allowed ones of `ours`, then the server's `own`, which win.
pub fn for_child(
    ours: impl IntoIterator<Item = (OsString, OsString)>,
    own: &[(OsString, OsString)],
) -> Vec<(OsString, OsString)> {
    let ours = ours.into_iter().filter(|(name, value)| may_pass(NAMES, name, value));
    NAMES.together(ours.chain(own.iter().cloned()))
}

/// The environment of a server. One with its own `home` never gets more than the minimum, whatever is configured.
pub fn for_server(
    ours: impl IntoIterator<Item = (OsString, OsString)>,
    own: &[(OsString, OsString)],
    pass: &PassEnv,
    home: Option<&Path>,
) -> Vec<(OsString, OsString)> {
    if home.is_some() || *pass == PassEnv::Least {
        return for_child_at(ours, own, home);
    }
    let ours = ours.into_iter().filter(|(name, value)| passes(name, value, pass));
    NAMES.together(ours.chain(own.iter().cloned()))
}

/// Whether a server that the user configured gets a variable of ours.
pub fn passes(name: &OsStr, value: &OsStr, pass: &PassEnv) -> bool {
    passes_on(NAMES, name, value, pass)
}

fn passes_on(names: Names, name: &OsStr, value: &OsStr, pass: &PassEnv) -> bool {
    let Some(known) = name.to_str() else { return *pass == PassEnv::All };
    if value.to_string_lossy().starts_with("()") {
        return false;
    }
    let key = names.key(known);
    // What another gateway told us about itself is not for the servers below us.
    if key.starts_with("METAMCP_") && *pass == PassEnv::All {
        return false;
    }
    names.is_named(pass, known)
        || TOOLS.contains(&key.as_str())
        || key.starts_with("XDG_")
        || may_pass(names, name, value)
}

/// Whether a variable that servers usually get is removed because its value contains a password.
pub fn is_kept_back(name: &OsStr, value: &OsStr) -> bool {
    let upper = name.to_string_lossy().to_ascii_uppercase();
    ADDRESSES.contains(&upper.as_str()) && !may_pass(NAMES, name, value)
}

/// Whether a variable is withheld from the user's own servers although one of them may need it, judging by its name: a
/// token, a key, a password.
pub fn is_withheld_secret(name: &OsStr, value: &OsStr, pass: &PassEnv) -> bool {
    let Some(known) = name.to_str() else { return false };
    let is_ours = known.starts_with("METAMCP_") || known.starts_with("_METAMCP");
    !is_ours && names_a_secret(known) && !value.is_empty() && !passes(name, value, pass)
}

/// The names on every list with its title, for the documentation.
pub fn lists() -> Vec<(&'static str, Vec<&'static str>)> {
    vec![
        ("Every server", IDENTITY.to_vec()),
        ("Places of caches, data and engines", PLACES.to_vec()),
        ("Version switchers", SWITCHERS.to_vec()),
        ("Certificates", CERTIFICATES.to_vec()),
        ("Addresses, unless they carry a password; also in lower case", ADDRESSES.to_vec()),
        ("Developers' tools, for the servers of your own files only", TOOLS.to_vec()),
        ("On Windows, where case does not count in any name", WINDOWS.to_vec()),
    ]
}

/// The same for a child with `home` in place of the user's: paths into the real one are removed, since it could not read
/// them.
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

/// Certificate files that our own variables name, which a sandboxed child has to read too.
pub fn certificate_files() -> Vec<PathBuf> {
    CERTIFICATES.iter().filter_map(|name| variable(name).map(PathBuf::from)).collect()
}

/// A variable of ours.
#[expect(clippy::disallowed_methods, reason = "this is the cure")]
pub(crate) fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// Whether a variable of ours is passed to a child by default.
fn may_pass(names: Names, name: &OsStr, value: &OsStr) -> bool {
    let (Some(name), value) = (name.to_str(), value.to_string_lossy()) else { return false };
    // Old shells export functions as values with this prefix, and run them on import.
    if value.starts_with("()") {
        return false;
    }
    let key = names.key(name);
    let lists = [IDENTITY, PLACES, SWITCHERS, CERTIFICATES];
    if lists.iter().any(|list| list.contains(&key.as_str())) || key.starts_with("LC_") {
        return true;
    }
    if names == Names::Windows && WINDOWS.contains(&key.as_str()) {
        return true;
    }
    // npm, uv and most network libraries accept these names in lower case too.
    let upper = name.to_ascii_uppercase();
    if upper.starts_with("NPM_CONFIG_") && PLACES.contains(&upper.as_str()) {
        return true;
    }
    ADDRESSES.contains(&upper.as_str()) && !carries_a_password(&value)
}

/// Whether an address contains a password: after a colon before `@`, and over HTTP also alone, as a token; `ssh://me@host`
/// names only a user. A password may contain any character, so the last `@` counts.
fn carries_a_password(address: &str) -> bool {
    let (scheme, rest) = address.split_once("://").unwrap_or(("http", address));
    let Some((user, _)) = rest.rsplit_once('@') else { return false };
    let is_web = ["http", "https"].contains(&scheme.to_ascii_lowercase().as_str());
    is_web || user.contains(':') || user.to_ascii_lowercase().contains("%3a")
}

#[cfg(test)]
mod tests {
    use super::{PassEnv, for_child, for_child_at, for_server, is_kept_back, lists};
    use std::ffi::OsString;
    use std::path::Path;

    fn names(seen: Vec<(OsString, OsString)>) -> Vec<String> {
        seen.into_iter().map(|(name, _)| name.into_string().unwrap()).collect()
    }

    #[test]
    fn an_address_with_a_password_is_removed_but_not_one_with_a_user() {
        for (value, is_kept) in [
            ("ssh://me@host", false),
            ("ssh://me@host/run/docker.sock", false),
            ("tcp://10.0.0.1:2375", false),
            ("unix:///run/docker.sock", false),
            ("socks5://me@proxy:1080", false),
            ("http://proxy:3128", false),
            ("ssh://me:secret@host", true),
            ("ssh://me%3Asecret@host", true),
            ("http://me:secret@proxy:3128", true),
            ("http://me:se/cr@et@proxy:3128", true),
            ("HTTPS://token@index.example", true),
            ("me:secret@proxy:3128", true),
            ("token@proxy:3128", true),
        ] {
            let is_it = is_kept_back("DOCKER_HOST".as_ref(), value.as_ref());
            assert_eq!(is_it, is_kept, "{value}");
        }
    }

    #[cfg(unix)] // where names have a case
    #[test]
    fn a_server_of_the_user_gets_what_tools_need_and_an_installed_one_does_not() {
        let needed = [
            "SSH_AUTH_SOCK",
            "KUBECONFIG",
            "AWS_PROFILE",
            "AWS_REGION",
            "AWS_DEFAULT_REGION",
            "AWS_CONFIG_FILE",
            "AWS_SHARED_CREDENTIALS_FILE",
            "GOOGLE_APPLICATION_CREDENTIALS",
            "DISPLAY",
            "WAYLAND_DISPLAY",
            "XAUTHORITY",
            "DBUS_SESSION_BUS_ADDRESS",
            "XDG_RUNTIME_DIR",
            "XDG_SESSION_TYPE",
            "XDG_DATA_DIRS",
            "HTTP_PROXY",
            "https_proxy",
            "NO_PROXY",
            "SSL_CERT_FILE",
            "SSL_CERT_DIR",
            "NODE_EXTRA_CA_CERTS",
            "REQUESTS_CA_BUNDLE",
        ];
        let secret = ["AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "LD_PRELOAD", "NODE_OPTIONS"];
        let ours = || vars(&needed.iter().chain(&secret).map(|n| (*n, "v")).collect::<Vec<_>>());
        let usual = PassEnv::Usual(Vec::new());
        let mut expected = needed.map(str::to_owned).to_vec();
        expected.sort();
        assert_eq!(names(for_server(ours(), &[], &usual, None)), expected);
        let narrow = names(for_server(ours(), &[], &PassEnv::Least, None));
        assert_eq!(narrow, names(for_child(ours(), &[])));
        for name in ["SSH_AUTH_SOCK", "KUBECONFIG", "DBUS_SESSION_BUS_ADDRESS", "XDG_DATA_DIRS"] {
            assert!(!narrow.contains(&name.to_owned()), "{name}");
        }
        // The sandbox takes precedence over the configuration.
        let home = Some(Path::new("/own"));
        let walled = names(for_server(ours(), &[], &PassEnv::All, home));
        assert!(!walled.contains(&"GITHUB_TOKEN".to_owned()), "{walled:?}");
    }

    #[test]
    fn a_named_variable_is_passed_whatever_its_value() {
        let ours = vars(&[
            ("GITHUB_TOKEN", "s"),
            ("AWS_SECRET_ACCESS_KEY", "s"),
            ("HTTPS_PROXY", "http://me:secret@proxy"),
            ("BASH_FUNC_x%%", "() { :; }"),
            ("METAMCP_TOKEN", "s"),
        ]);
        let pass = PassEnv::named(["GITHUB_TOKEN", "HTTPS_*"]);
        let seen = names(for_server(ours.clone(), &[], &pass, None));
        assert_eq!(seen, ["GITHUB_TOKEN", "HTTPS_PROXY"]);
        let seen = names(for_server(ours.clone(), &[], &PassEnv::All, None));
        assert_eq!(seen, ["AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "HTTPS_PROXY"]);
        let own = vars(&[("GITHUB_TOKEN", "mine")]);
        let seen = for_server(ours, &own, &pass, None);
        assert_eq!(seen[0], own[0], "the server's own value wins");
        assert!(is_kept_back("https_proxy".as_ref(), "http://a:b@c".as_ref()));
        assert!(!is_kept_back("https_proxy".as_ref(), "http://c".as_ref()));
    }

    /// The documentation names every variable and no other.
    #[test]
    fn the_documentation_has_the_lists() {
        let page = include_str!("../../../docs/environment.md");
        for (title, names) in lists() {
            let row = format!("| {title} | {} |", names.join(", "));
            assert!(page.contains(&row), "docs/environment.md lacks:\n{row}");
        }
    }

    fn vars(list: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
        list.iter().map(|(name, value)| (name.into(), value.into())).collect()
    }

    #[cfg(unix)] // where names have a case
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
    fn on_windows_case_does_not_count_and_its_own_names_pass() {
        let names = super::Names::Windows;
        let pass = PassEnv::named(["Github_Token"]);
        let is_passed = |name: &str| super::passes_on(names, name.as_ref(), "v".as_ref(), &pass);
        for name in [
            "Path",
            "SystemRoot",
            "PathExt",
            "ProgramFiles(x86)",
            "GITHUB_TOKEN",
            "npm_config_cache",
            "Java_Home",
            "lc_all",
        ] {
            assert!(is_passed(name), "{name}");
        }
        for name in ["OPENAI_API_KEY", "node_options", "OneDrive", "Metamcp_Token"] {
            assert!(!is_passed(name), "{name}");
        }
        let all = [("Path", "C:\\a"), ("TOKEN", "ours"), ("PATH", "C:\\b"), ("Token", "own")];
        let expected = vars(&[("PATH", "C:\\b"), ("Token", "own")]);
        assert_eq!(names.together(vars(&all)), expected);
        assert!(!super::may_pass(super::Names::Exact, "SYSTEMROOT".as_ref(), "v".as_ref()));
        let all = super::passes_on(names, "metamcp_x".as_ref(), "v".as_ref(), &PassEnv::All);
        assert!(!all, "what a gateway above says of itself");
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

    #[cfg(unix)] // where names have a case
    #[test]
    fn no_variable_leads_out_of_a_childs_own_home() {
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
