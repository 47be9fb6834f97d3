//! Variables that no entry of a registry may name: whoever sets one has another program run than the one in the plan.

use super::candidate::Input;

/// They decide what code a program loads or runs, which program is found, where its files are, or whom a client talks
/// to. Compared in capitals; a star stands for any end. Whole families stand here only where nearly every name of theirs
/// does such a thing; of Python's and git's the many harmless ones are left to honest servers.
const DECISIVE: &[&str] = &[
    // The loader of programs, and what the C library loads.
    "LD_*",
    "DYLD_*",
    "GCONV_PATH",
    "OPENSSL_CONF",
    "OPENSSL_ENGINES",
    "OPENSSL_MODULES",
    // Shells, and where things are.
    "PATH",
    "HOME",
    "TMPDIR",
    "SHELL",
    "ENV",
    "BASH_ENV",
    "BASH_FUNC_*",
    // Programs that others start.
    "EDITOR",
    "VISUAL",
    "PAGER",
    "BROWSER",
    "LESSOPEN",
    "LESSCLOSE",
    "SSH_ASKPASS",
    // Interpreters: options, and code that is loaded before the program or in place of a part of it.
    "NODE_OPTIONS",
    "NODE_PATH",
    "NODE_EXTRA_CA_CERTS",
    "NODE_REPL_EXTERNAL_MODULE",
    "PERL5LIB",
    "PERL5OPT",
    "RUBYLIB",
    "RUBYOPT",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "_JAVA_OPTIONS",
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONUSERBASE",
    "PYTHONPLATLIBDIR",
    "PYTHONEXECUTABLE",
    "PYTHONSTARTUP",
    "PYTHONINSPECT",
    "PYTHONBREAKPOINT",
    // The category of a warning names a module, which is imported.
    "PYTHONWARNINGS",
    // Compiled code is taken from there in place of the package's own.
    "PYTHONPYCACHEPREFIX",
    "PYTHONCASEOK",
    // Takes the checks out of code that makes them with `assert`.
    "PYTHONOPTIMIZE",
    "PYTHON_PRESITE",
    "PYTHON_BASIC_REPL",
    "PYTHON_HISTORY",
    "PYTHON_KEYRING_BACKEND",
    "PYTHONDUMPREFSFILE",
    // git: programs it starts, files it believes, repositories it takes for the one that is meant, whom it trusts.
    "GIT_ASKPASS",
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "GIT_SSH_VARIANT",
    "GIT_PROXY_COMMAND",
    "GIT_EXTERNAL_DIFF",
    "GIT_EDITOR",
    "GIT_SEQUENCE_EDITOR",
    "GIT_PAGER",
    "GIT_EXEC_PATH",
    "GIT_TEMPLATE_DIR",
    "GIT_CONFIG*",
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_COMMON_DIR",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_REPLACE_REF_BASE",
    "GIT_GRAFT_FILE",
    "GIT_SHALLOW_FILE",
    "GIT_ATTR_*",
    "GIT_SSL_*",
    "GIT_PROXY_SSL_*",
    "GIT_HTTP_PROXY_*",
    "GIT_ALLOW_PROTOCOL",
    "GIT_PROTOCOL_FROM_USER",
    // They name files to write to.
    "GIT_TRACE*",
    "GIT_REDIRECT_*",
    // Clients that bring programs here, and the engine of containers.
    "DOCKER_*",
    "NPM_CONFIG_*",
    "PIP_*",
    "UV_*",
];

/// Variables that may be named but not filled in by an entry: they send everything a program says through somebody
/// else, or have it believe him.
const DIVERTING: [&str; 8] = [
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NODE_TLS_REJECT_UNAUTHORIZED",
];

/// Whether an entry may have this variable set, with the value it fills in.
pub(super) fn is_decisive(input: &Input) -> bool {
    let name = input.name.to_ascii_uppercase();
    let is = |known: &&str| match known.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == *known,
    };
    DECISIVE.iter().any(is) || (input.default.is_some() && DIVERTING.contains(&name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is(name: &str, default: Option<&str>) -> bool {
        let default = default.map(str::to_owned);
        is_decisive(&Input { name: name.to_owned(), default, ..Input::default() })
    }

    #[test]
    fn names_that_decide_what_runs_are_told_from_honest_ones() {
        let decisive = [
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
        ];
        let honest = [
            "PYTHONUNBUFFERED",
            "PYTHONIOENCODING",
            "PYTHONUTF8",
            "PYTHONDONTWRITEBYTECODE",
            "PYTHONHASHSEED",
            "PYTHONFAULTHANDLER",
            "PYTHONNOUSERSITE",
            "PYTHON_LOG_LEVEL",
            "GIT_AUTHOR_NAME",
            "GIT_AUTHOR_EMAIL",
            "GIT_COMMITTER_NAME",
            "GIT_COMMITTER_EMAIL",
            "GIT_TERMINAL_PROMPT",
            "GIT_TOKEN",
            "GITHUB_TOKEN",
            "GITLAB_API_URL",
            "MY_PATH",
            "HOMEPAGE",
            "ENVIRONMENT",
            "NODE_ENV",
            "HTTPS_PROXY",
        ];
        for name in decisive {
            assert!(is(name, None), "{name} decides what runs");
        }
        for name in honest {
            assert!(!is(name, None), "{name} is honest");
        }
        for name in DIVERTING {
            assert!(!is(name, None) && is(name, Some("x")), "{name} may be named, not filled in");
        }
    }
}
