//! `metamcp config` and the command line around it, as a shell sees them.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in what it calls as well")]
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests start, wait and measure for themselves"
)]

#[cfg(unix)]
#[path = "config/daemon.rs"]
mod daemon;
#[path = "config/doctor.rs"]
mod doctor;
#[path = "config/first.rs"]
mod first;
#[path = "config/home.rs"]
mod home;
#[path = "config/http.rs"]
mod http;
#[path = "config/import_fidelity.rs"]
mod import_fidelity;
#[path = "config/init.rs"]
mod init;
#[cfg(target_os = "linux")]
#[path = "config/isolation.rs"]
mod isolation;
#[path = "config/people.rs"]
mod people;
#[path = "config/screen.rs"]
mod screen;
#[path = "config/tools.rs"]
mod tools;
#[path = "config/trust.rs"]
mod trust;
// The new program of a release is a script here.
#[cfg(unix)]
#[path = "config/upgrade.rs"]
mod upgrade;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use insta::assert_snapshot;
use metamcp_testkit::DAEMON;
use serde_json::Value;
use tempfile::TempDir;

/// A folder with a project and a home, and a clean environment.
pub(crate) struct Shell {
    root: TempDir,
}

impl Shell {
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().expect("a temporary folder");
        for folder in ["project", "user/.metamcp"] {
            std::fs::create_dir_all(root.path().join(folder)).expect("an empty folder");
        }
        Self { root }
    }

    /// With a user config.
    pub(crate) fn with_config(text: &str) -> Self {
        let shell = Self::new();
        shell.write("user/.metamcp/mcp.json", text);
        shell
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a writable folder");
        std::fs::write(path, text).expect("a writable folder");
    }

    /// Installs a program into the folder that is all of `PATH`.
    pub(crate) fn program(&self, name: &str, text: &str) {
        let path = format!("bin/{name}");
        self.write(&path, text);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(self.path(&path), mode).expect("our own file");
        }
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    pub(crate) fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.path(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.run_with(arguments, &[])
    }

    pub(crate) fn run_with(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
        self.command(arguments)
            .envs(Some(self.path("bin")).filter(|bin| bin.is_dir()).map(|bin| ("PATH", bin)))
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .output()
            .expect("the program runs")
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_metamcp"));
        command
            .args(arguments)
            .env_clear()
            .env("HOME", self.root.path().join("user"))
            .current_dir(self.root.path().join("project"));
        // These use no server of the daemon, and show which variables are set.
        if !matches!(arguments, ["config" | "doctor" | "import" | "init", ..]) {
            command.env(DAEMON.0, DAEMON.1);
        }
        command
    }

    /// Exit code, stdout and stderr, with the test's folder replaced by `ROOT`.
    pub(crate) fn told(&self, arguments: &[&str]) -> String {
        let Output { status, stdout, stderr } = self.run(arguments);
        let root = self.root.path().canonicalize().expect("it exists").display().to_string();
        let text = |bytes: Vec<u8>| {
            let text = String::from_utf8(bytes).expect("we write UTF-8");
            let text = text.replace(env!("CARGO_BIN_EXE_metamcp"), "METAMCP");
            text.replace(&root, "ROOT").replace(&self.root.path().display().to_string(), "ROOT")
        };
        format!(
            "exit: {}\n--- stdout\n{}--- stderr\n{}",
            status.code().expect("it was not killed"),
            text(stdout),
            text(stderr)
        )
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(arguments);
        serde_json::from_slice(&output.stdout).expect("stdout is one JSON document")
    }
}

const GOOD: &str = r#"{
  // two servers, one of them incomplete
  "mcpServers": {
    "files": { "command": "npx", "args": ["-y", "server-filesystem", "--key=${API_TOKEN:-s3cret-value}"] },
    "web": { "url": "https://mcp.example.com/mcp", "headers": { "Authorization": "Bearer ${WEB_TOKEN}" } },
    "old": { "command": "x", "disabled": true, "alwaysAllow": [] },
    "typo": { "command": "x", "enviroment": { "A": "hidden-value-1" } },
  },
  "pool": { "poolSize": 5 },
}"#;

const BROKEN: &str = "{\n  \"mcpServers\": {\n    \"a\": { \"command\": \"x\", \"args\": [8080] },\n    \"b\": { \"comand\": \"x\" }\n  }\n}\n";

#[test]
fn check_shows_what_was_understood() {
    assert_snapshot!(Shell::with_config(GOOD).told(&["config", "check", "--idle-timeout", "90s"]));
}

#[test]
fn check_shows_every_problem_with_its_line() {
    assert_snapshot!(Shell::with_config(BROKEN).told(&["config", "check"]));
}

#[test]
fn check_without_any_file_says_how_to_begin() {
    assert_snapshot!(Shell::new().told(&["config", "check"]));
}

#[test]
fn a_named_file_that_is_not_there() {
    assert_snapshot!(Shell::new().told(&["--config", "nowhere.json", "config", "check"]));
}

#[test]
fn serving_a_broken_file_stops_with_the_reason() {
    let told = Shell::with_config("{ \"mcpServers\": { \"a\": { \"command\": \"x\" \n").told(&[]);
    assert_snapshot!(told);
}

#[test]
fn warnings_fail_only_when_asked_to() {
    let shell = Shell::with_config(GOOD);
    assert_eq!(shell.run(&["config", "check"]).status.code(), Some(0));
    assert_eq!(shell.run(&["config", "check", "--strict"]).status.code(), Some(3));
}

#[test]
fn check_as_json() {
    let json =
        Shell::with_config(GOOD).json(&["config", "check", "--json", "--idle-timeout", "90s"]);
    assert_eq!(json["ok"], true);
    assert_eq!(json["source"]["kind"], "user");
    let servers = json["servers"].as_array().expect("a list");
    let names: Vec<&str> = servers.iter().filter_map(|server| server["name"].as_str()).collect();
    assert_eq!(names, ["files", "web", "old", "typo"]);
    assert_eq!(servers[1]["reason"], "environment variable WEB_TOKEN is not set");
    assert_eq!(servers[1]["headers"][0], "Authorization");
    let setting = |flag: &str| {
        let all = json["settings"].as_array().expect("a list");
        all.iter().find(|setting| setting["flag"] == flag).expect("every setting is there").clone()
    };
    assert_eq!(
        (&setting("idle-timeout")["value"], &setting("idle-timeout")["origin"]),
        (&Value::from(90_000), &Value::from("flag --idle-timeout"))
    );
    assert_eq!(setting("max-connections")["value"], 5);
    let warnings = json["warnings"].as_array().expect("a list");
    let typo = warnings
        .iter()
        .find(|warning| warning["path"] == "mcpServers.typo.enviroment")
        .expect("the typo");
    assert_eq!(
        (&typo["line"], &typo["hint"]),
        (&Value::from(7), &Value::from("did you mean `environment`?"))
    );

    let broken = Shell::with_config(BROKEN);
    let json = broken.json(&["config", "check", "--json"]);
    assert_eq!(
        (&json["ok"], json["errors"].as_array().map(Vec::len)),
        (&Value::from(false), Some(2))
    );
    assert_eq!(json["errors"][0]["path"], "mcpServers.a.args[0]");
    assert_eq!(broken.run(&["config", "check", "--json"]).status.code(), Some(3));
}

#[test]
fn secrets_never_leave() {
    let shell = Shell::with_config(GOOD);
    let variables = [("API_TOKEN", "canary-token-1"), ("WEB_TOKEN", "canary-token-2")];
    for arguments in [&["config", "check"][..], &["config", "check", "--json"]] {
        let Output { stdout, stderr, .. } = shell.run_with(arguments, &variables);
        let told =
            String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr);
        assert!(!told.contains("canary"), "{told}");
        assert!(told.contains("[secret API_TOKEN]"), "{told}");
    }
}

#[test]
fn colours_only_where_asked_for() {
    let shell = Shell::with_config(BROKEN);
    let colours = |variables: &[(&str, &str)]| {
        shell.run_with(&["config", "check"], variables).stderr.contains(&0x1b)
    };
    assert!(!colours(&[]), "no terminal, no colours");
    assert!(colours(&[("CLICOLOR_FORCE", "1")]));
    assert!(!colours(&[("NO_COLOR", "1")]));
}

#[test]
fn path_names_the_file_that_is_read() {
    let shell = Shell::new();
    assert_eq!(shell.run(&["config", "path"]).status.code(), Some(3));
    shell.write("user/.metamcp/mcp.json", "{}");
    assert!(shell.told(&["config", "path"]).contains("ROOT/user/.metamcp/mcp.json\n"));
    shell.write("project/.mcp.json", "{}");
    let json = shell.json(&["config", "path", "--json"]);
    assert_eq!((&json["kind"], &json["project"]["used"]), (&"user".into(), &false.into()));
}

#[test]
fn schema_is_the_published_one() {
    let output = Shell::new().run(&["config", "schema"]);
    let published =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/mcp.schema.json");
    assert_eq!(String::from_utf8(output.stdout).ok(), std::fs::read_to_string(published).ok());
}

#[test]
fn exit_codes_of_the_command_line() {
    let shell = Shell::new();
    let code = |arguments: &[&str]| shell.run(arguments).status.code();
    assert_eq!(code(&["--version"]), Some(0));
    assert_eq!(code(&["--help"]), Some(0));
    assert_eq!(code(&["--nonsense"]), Some(2));
    assert_eq!(code(&["--cooldown", "soon"]), Some(2));
    let output = shell.run_with(&["config", "check"], &[("METAMCP_COOLDOWN", "soon")]);
    assert_eq!(output.status.code(), Some(3));
    assert!(
        String::from_utf8_lossy(&output.stderr)
            .contains("variable METAMCP_COOLDOWN: expected a whole number")
    );
}
