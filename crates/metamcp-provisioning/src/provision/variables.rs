//! Variables that an entry of a registry may name. Everything else is refused: whoever sets a variable of the loader, of an
//! interpreter or of a library can have another program run than the one in the plan, and nobody knows all of those.
//!
//! A name is allowed if it is known to be harmless, or if it reads as a setting of a service: it ends in a word for
//! such a thing (`GITHUB_TOKEN`, `NOTES_API_URL`) or begins with one for a switch (`ENABLE_WRITE`), and does not begin
//! with the name of a runtime.

use super::candidate::Input;

/// Names of runtimes and of the system that are harmless, or common without a family. Compared in capitals.
const KNOWN: &[&str] = &[
    "PYTHONUNBUFFERED",
    "PYTHONIOENCODING",
    "PYTHONUTF8",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONHASHSEED",
    "PYTHONFAULTHANDLER",
    "PYTHONNOUSERSITE",
    "PYTHON_LOG_LEVEL",
    "NODE_ENV",
    "GIT_AUTHOR_NAME",
    "GIT_AUTHOR_EMAIL",
    "GIT_COMMITTER_NAME",
    "GIT_COMMITTER_EMAIL",
    "GIT_TERMINAL_PROMPT",
    "GIT_TOKEN",
    "NO_COLOR",
    "FORCE_COLOR",
    "TZ",
    "LANG",
    "LC_ALL",
    "RUST_LOG",
];

/// The same, if the entry does not fill them in: they send everything a program says through somebody else, or have it
/// believe him.
const DIVERTING: [&str; 9] = [
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NODE_TLS_REJECT_UNAUTHORIZED",
];

/// First words of variables that belong to runtimes, loaders, shells, clients and ourselves. A star stands for any end.
/// It need not be complete: the last word decides first.
const RUNTIMES: &[&str] = &[
    "LD",
    "DYLD",
    "GLIBC",
    "MALLOC",
    "GCONV",
    "NODE",
    "NPM",
    "NPX",
    "YARN",
    "PNPM",
    "BUN",
    "DENO",
    "PYTHON*",
    "PIP",
    "PIPX",
    "UV",
    "UVX",
    "CONDA",
    "VIRTUAL",
    "PERL*",
    "RUBY*",
    "GEM",
    "BUNDLE",
    "JAVA",
    "JDK",
    "JVM",
    "CLASSPATH",
    "DOTNET",
    "COMPLUS",
    "GO",
    "RUST*",
    "CARGO",
    "GIT",
    "SSH",
    "GPG",
    "GNUPG*",
    "BASH",
    "ZDOTDIR",
    "SHELL",
    "XDG",
    "DBUS",
    "OPENSSL",
    "SSL",
    "CURL",
    "DOCKER",
    "PODMAN",
    "METAMCP",
    "METATOOLS",
    "QT",
    "GTK",
    "GIO",
    "GST",
    "LUA",
    "PHP",
    "PATH",
    "HOME",
    "TMPDIR",
    "TEMP",
    "TMP",
    "EDITOR",
    "VISUAL",
    "PAGER",
    "BROWSER",
    "IFS",
    "ENV",
];

/// Last words of settings.
const SETTINGS: &[&str] = &[
    "ACCOUNT",
    "ADDRESS",
    "AGENT",
    "API",
    "APIKEY",
    "APP",
    "AUDIENCE",
    "AUTH",
    "AUTHORITY",
    "BACKEND",
    "BOARD",
    "BRANCH",
    "BUCKET",
    "CHANNEL",
    "CLIENT",
    "CLUSTER",
    "CODE",
    "COLLECTION",
    "COMPANY",
    "COUNT",
    "COUNTRY",
    "CREDENTIAL",
    "CURRENCY",
    "DATABASE",
    "DATASET",
    "DB",
    "DEBUG",
    "DIMENSION",
    "DISABLED",
    "DOMAIN",
    "DSN",
    "EMAIL",
    "ENABLED",
    "ENDPOINT",
    "ENGINE",
    "ENVIRONMENT",
    "FORMAT",
    "GROUP",
    "HOST",
    "HOSTNAME",
    "ID",
    "IDENTIFIER",
    "INDEX",
    "INSTANCE",
    "INTERVAL",
    "ISSUER",
    "KEY",
    "KEYSPACE",
    "LANGUAGE",
    "LEVEL",
    "LIMIT",
    "LOCALE",
    "LOCATION",
    "LOGIN",
    "MAIL",
    "MODE",
    "MODEL",
    "NAME",
    "NAMESPACE",
    "NODE",
    "NUMBER",
    "ORG",
    "ORGANIZATION",
    "ORGANISATION",
    "OWNER",
    "PASS",
    "PASSPHRASE",
    "PASSWORD",
    "PAT",
    "PERIOD",
    "PHONE",
    "PIN",
    "PORT",
    "PREFIX",
    "PROFILE",
    "PROJECT",
    "PROTOCOL",
    "PROVIDER",
    "REALM",
    "REGION",
    "REPO",
    "REPOSITORY",
    "RETRY",
    "ROLE",
    "ROOM",
    "SCHEMA",
    "SCOPE",
    "SECOND",
    "SECRET",
    "SERVER",
    "SERVICE",
    "SESSION",
    "SID",
    "SITE",
    "SIZE",
    "SPACE",
    "STAGE",
    "SUBDOMAIN",
    "SUBSCRIPTION",
    "TABLE",
    "TEAM",
    "TENANT",
    "THRESHOLD",
    "TIMEOUT",
    "TIMEZONE",
    "TOKEN",
    "TOPIC",
    "TRANSPORT",
    "TTL",
    "TYPE",
    "UNIT",
    "URI",
    "URL",
    "USER",
    "USERNAME",
    "UUID",
    "VERSION",
    "WEBHOOK",
    "WORKSPACE",
    "ZONE",
];

/// Last words of settings that are places on this machine. An entry may fill in such a place only inside of the server's
/// own folder.
const PLACES: &[&str] = &["DIR", "DIRECTORY", "FILE", "FOLDER", "PATH", "ROOT", "STORAGE", "VAULT"];

/// First words of switches.
const SWITCHES: &[&str] = &[
    "ALLOW", "ALLOWED", "DEFAULT", "DISABLE", "ENABLE", "EXCLUDE", "INCLUDE", "IS", "LOG", "MAX",
    "MIN", "READ", "READONLY", "SKIP", "USE", "VERBOSE",
];

/// Whether an entry may have this variable set, with the value it fills in.
pub(super) fn is_allowed(input: &Input) -> bool {
    let name = input.name.to_ascii_uppercase();
    if KNOWN.contains(&name.as_str()) {
        return true;
    }
    if DIVERTING.contains(&name.as_str()) {
        return input.default.is_none();
    }
    let words = words(&input.name);
    let Some(first) = words.first() else { return false };
    let belongs_to = |family: &&str| match family.strip_suffix('*') {
        Some(start) => first.starts_with(start),
        None => first == family,
    };
    if RUNTIMES.iter().any(belongs_to) {
        return false;
    }
    // `PROJECT_IDS`, `API_KEY_2`.
    let last = words.iter().rev().find(|word| word.bytes().any(|byte| !byte.is_ascii_digit()));
    let is_last = |list: &[&str]| {
        last.is_some_and(|last| {
            list.contains(&last.as_str())
                || last.strip_suffix('S').is_some_and(|one| list.contains(&one))
        })
    };
    let stays_inside = |value: &String| {
        !value.starts_with(['/', '\\', '~'])
            && !value.contains(':')
            && !value.split(['/', '\\']).any(|part| part == "..")
    };
    match is_last(PLACES) {
        true => input.default.as_ref().is_none_or(stays_inside),
        false => is_last(SETTINGS) || (words.len() > 1 && SWITCHES.contains(&first.as_str())),
    }
}

/// The words of a name, in capitals: of `API_KEY`, `api-key` and `apiKey` the same.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_small = false;
    for c in name.chars() {
        let is_mark = matches!(c, '_' | '-' | '.');
        if is_mark || (was_small && c.is_ascii_uppercase()) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| !is_mark) {
            word.push(c.to_ascii_uppercase());
        }
        was_small = c.is_ascii_lowercase();
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is(name: &str, default: Option<&str>) -> bool {
        let default = default.map(str::to_owned);
        is_allowed(&Input { name: name.to_owned(), default, ..Input::default() })
    }

    #[test]
    fn settings_of_services_are_let_through_and_nothing_else() {
        let refused = [
            "LD_PRELOAD",
            "ld_library_path",
            "DYLD_INSERT_LIBRARIES",
            "NODE_OPTIONS",
            "PATH",
            "Home",
            "BASH_ENV",
            "BASH_FUNC_ls%%",
            "EDITOR",
            "DOCKER_HOST",
            "npm_config_registry",
            "PIP_INDEX_URL",
            "uv_index_url",
            "PERL5OPT",
            "JAVA_TOOL_OPTIONS",
            "OPENSSL_CONF",
            "PYTHONPATH",
            "PYTHONHOME",
            "PythonStartup",
            "PYTHONINSPECT",
            "PYTHONBREAKPOINT",
            "PYTHONWARNINGS",
            "PYTHONPYCACHEPREFIX",
            "PYTHONUSERBASE",
            "PYTHON_PRESITE",
            "GIT_SSH",
            "GIT_SSH_COMMAND",
            "GIT_ASKPASS",
            "GIT_EXEC_PATH",
            "GIT_TEMPLATE_DIR",
            "GIT_CONFIG_GLOBAL",
            "GIT_CONFIG_KEY_0",
            "GIT_CONFIG_PARAMETERS",
            "GIT_EXTERNAL_DIFF",
            "GIT_PAGER",
            "git_editor",
            "GIT_DIR",
            "GIT_WORK_TREE",
            "GIT_SSL_NO_VERIFY",
            "GIT_TRACE2_EVENT",
            // Unknown to whoever wrote the lists above.
            "GLIBC_TUNABLES",
            "NODE_V8_COVERAGE",
            "NODE_COMPILE_CACHE",
            "METAMCP_HOME",
            "METATOOLS_TOKEN",
            "NODE_NEW_TOKEN",
            "SOMETHING_PRELOAD",
            "FUTURE_RUNTIME_HOOK",
            "LOCPATH",
            "PYTHONSOMETHING_URL",
            "GNUPGHOME",
            "_",
            "",
            "HOMEPAGE",
        ];
        let honest = [
            "PYTHONUNBUFFERED",
            "PYTHONNOUSERSITE",
            "PYTHON_LOG_LEVEL",
            "GIT_AUTHOR_NAME",
            "GIT_TERMINAL_PROMPT",
            "GIT_TOKEN",
            "GITHUB_TOKEN",
            "GITHUB_PERSONAL_ACCESS_TOKEN",
            "GITLAB_API_URL",
            "BRAVE_API_KEY",
            "apiKey",
            "api-key",
            "TOKEN",
            "PORT",
            "DEBUG",
            "LOG_LEVEL",
            "SLACK_CHANNEL_IDS",
            "PROJECT_KEY_2",
            "ALLOW_WRITE",
            "MY_PATH",
            "MEMORY_FILE_PATH",
            "OBSIDIAN_VAULT",
            "ENVIRONMENT",
            "NODE_ENV",
            "HTTPS_PROXY",
        ];
        for name in refused {
            assert!(!is(name, None), "{name} is none of a service's settings");
        }
        for name in honest {
            assert!(is(name, None), "{name} is honest");
        }
        for name in DIVERTING {
            assert!(is(name, None) && !is(name, Some("x")), "{name} may be named, not filled in");
        }
        assert!(is("MEMORY_FILE_PATH", Some("memory.json")));
        for outside in ["/etc/passwd", "~/.ssh", "../../x", "a/../../x", "C:\\x", "\\\\host\\x"] {
            assert!(!is("MEMORY_FILE_PATH", Some(outside)), "{outside}");
        }
    }
}
