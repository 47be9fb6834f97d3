use std::fs;

use metamcp_core::settings::{Origin, Value, by_flag};
use tempfile::TempDir;

use super::*;

/// A machine with a project folder and a home, both empty.
struct Machine {
    root: TempDir,
    variables: Vec<(&'static str, String)>,
    flags: Vec<Given>,
}

impl Machine {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("project")).unwrap();
        fs::create_dir_all(root.path().join("user/.metamcp")).unwrap();
        let home = root.path().join("user").display().to_string();
        Self { root, variables: vec![("HOME", home)], flags: Vec::new() }
    }

    fn write(&self, path: &str, text: &str) -> PathBuf {
        let path = self.root.path().join(path);
        fs::write(&path, text).unwrap();
        path
    }

    fn flag(&mut self, flag: &str, text: &str) {
        let setting = by_flag(flag).unwrap();
        let value = setting.kind.from_text(text).unwrap();
        self.flags.push(Given { setting, value, origin: Origin::Flag { name: setting.flag } });
    }

    fn load(&self) -> Result<Loaded, LoadError> {
        let lookup = |name: &str| {
            self.variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone())
        };
        let working_dir = self.root.path().join("project");
        load(Request { flags: self.flags.clone(), lookup: &lookup, working_dir: &working_dir })
    }

    /// What the user reads, without the folder of this test.
    fn error(&self) -> String {
        let error = self.load().expect_err("cannot load");
        error.to_string().replace(&self.root.path().display().to_string(), "")
    }
}

fn names(loaded: &Loaded) -> Vec<&str> {
    loaded.config.servers.iter().map(|server| server.name.as_str()).collect()
}

fn file_of(name: &str) -> String {
    format!(r#"{{ "mcpServers": {{ "{name}": {{ "command": "x" }} }} }}"#)
}

#[test]
fn the_projects_file_then_the_users_then_nothing() {
    let machine = Machine::new();
    let loaded = machine.load().unwrap();
    assert_eq!(names(&loaded), [""; 0]);
    let advice = loaded.source.advice().unwrap();
    assert!(
        advice.contains("project/.mcp.json") && advice.contains(".metamcp/mcp.json"),
        "{advice}"
    );

    let hidden = machine.write("user/.metamcp/.mcp.json", &file_of("hidden"));
    let loaded = machine.load().unwrap();
    assert_eq!((names(&loaded), &loaded.source), (vec!["hidden"], &Source::User(hidden)));

    let user = machine.write("user/.metamcp/mcp.json", &file_of("user"));
    let loaded = machine.load().unwrap();
    assert_eq!((names(&loaded), &loaded.source), (vec!["user"], &Source::User(user)));

    let project = machine.write("project/.mcp.json", &file_of("project"));
    let loaded = machine.load().unwrap();
    assert_eq!((names(&loaded), &loaded.source), (vec!["project"], &Source::Project(project)));
    assert_eq!(loaded.source.advice(), None);
    assert_eq!(loaded.remarks.len(), 1);
    assert!(
        loaded.remarks[0]
            .to_string()
            .ends_with("its servers (1) are not used: the project has its own .mcp.json")
    );
}

#[test]
fn a_clients_file_that_names_only_the_gateway_leaves_the_servers_to_the_user() {
    let machine = Machine::new();
    let clients =
        r#"{ "mcpServers": { "all": { "command": "/opt/metamcp" } }, "pool": { "poolSize": 3 } }"#;
    machine.write("project/.mcp.json", clients);
    let loaded = machine.load().unwrap();
    assert!(matches!(loaded.source, Source::Project(_)));
    let warning =
        loaded.remarks.iter().find(|remark| remark.severity == Severity::Warning).unwrap();
    assert_eq!(warning.message, "names no server but this gateway itself");
    machine.write("user/.metamcp/mcp.json", &file_of("user"));
    let loaded = machine.load().unwrap();
    assert!(matches!(loaded.source, Source::User(_)));
    assert_eq!((names(&loaded), loaded.config.settings.pool.size), (vec!["user"], 3));
    assert!(loaded.remarks.iter().all(|remark| remark.severity == Severity::Note));
    let off = r#"{ "mcpServers": { "all": { "command": "/opt/metamcp", "disabled": true } } }"#;
    machine.write("project/.mcp.json", off);
    assert_eq!(names(&machine.load().unwrap()), ["user"], "also if it is switched off");
}

#[test]
fn a_gateway_on_the_very_file_that_names_it_is_left_out() {
    let machine = Machine::new();
    let other = machine.write("project/other.json", &file_of("x"));
    let path = machine.write("project/.mcp.json", "{}");
    let own = std::env::current_exe().unwrap();
    let folder = path.parent().unwrap();
    for (command, args, cwd, is_itself) in [
        ("metamcp", vec!["--config".to_owned(), path.display().to_string()], None, true),
        ("/opt/metamcp", vec![format!("--config={}", path.display())], None, true),
        ("metamcp", vec!["--config".to_owned(), ".mcp.json".to_owned()], Some(folder), true),
        ("metamcp", vec!["--config".to_owned(), other.display().to_string()], None, false),
        (own.to_str().unwrap(), vec![format!("--config={}", path.display())], None, true),
        (own.to_str().unwrap(), Vec::new(), None, true),
        (own.to_str().unwrap(), vec!["__example".to_owned(), "clock".to_owned()], None, false),
        (own.to_str().unwrap(), vec![format!("--config={}", other.display())], None, false),
        ("node", vec![format!("--config={}", path.display())], None, false),
    ] {
        let mut entry = serde_json::json!({ "command": command, "args": args });
        if let Some(cwd) = cwd {
            entry["cwd"] = cwd.display().to_string().into();
        }
        let file = serde_json::json!({ "mcpServers": { "me": entry, "x": { "command": "x" } } });
        machine.write("project/.mcp.json", &file.to_string());
        let loaded = machine.load().unwrap();
        assert_eq!(loaded.config.servers[0].is_enabled(), !is_itself, "{file}");
        assert_eq!(loaded.remarks.len(), usize::from(is_itself), "{file}");
    }
}

#[test]
fn a_named_file_is_the_only_one_read() {
    let mut machine = Machine::new();
    machine.write("project/.mcp.json", &file_of("project"));
    machine.write("user/.metamcp/mcp.json", r#"{ "pool": { "poolSize": 3 } }"#);
    machine.write("project/other.json", &file_of("other"));
    machine.flag("config", "other.json");
    let loaded = machine.load().unwrap();
    assert_eq!(names(&loaded), ["other"]);
    assert_eq!(loaded.config.settings.pool.size, 20);
    assert!(matches!(&loaded.source, Source::Named(path) if path.ends_with("project/other.json")));

    machine.flags.clear();
    machine.variables.push(("METAMCP_CONFIG", "~/.metamcp/mcp.json".to_owned()));
    assert_eq!(machine.load().unwrap().config.settings.pool.size, 3);

    machine.flag("config", "nowhere.json");
    assert_eq!(machine.error(), "cannot read the config file /project/nowhere.json");
}

#[test]
fn flag_over_variable_over_project_over_user() {
    let mut machine = Machine::new();
    let user = machine.write(
        "user/.metamcp/mcp.json",
        "{ \"pool\": { \"poolSize\": 1, \"cooldownMs\": 1,\n \"idleTimeoutMs\": 1, \"failureThreshold\": 1 } }",
    );
    machine.write(
        "project/.mcp.json",
        r#"{ "pool": { "poolSize": 2, "cooldownMs": 2, "idleTimeoutMs": 2 } }"#,
    );
    machine.variables.push(("METAMCP_COOLDOWN", "3".to_owned()));
    machine.variables.push(("METAMCP_MAX_CONNECTIONS", "3".to_owned()));
    machine.flag("max-connections", "4");
    let loaded = machine.load().unwrap();
    let value = |flag: &str| {
        let given = loaded.values.iter().find(|given| given.setting.flag == flag).unwrap();
        let Value::Number(number) = given.value else { panic!("{given:?}") };
        (number, given.origin.clone())
    };
    assert_eq!(value("max-connections"), (4, Origin::Flag { name: "max-connections" }));
    assert_eq!(value("cooldown"), (3, Origin::Environment { name: "METAMCP_COOLDOWN" }));
    assert!(
        matches!(value("idle-timeout"), (2, Origin::File { path, line: 1 }) if path.ends_with("project/.mcp.json"))
    );
    assert_eq!(value("failure-threshold"), (1, Origin::File { path: user, line: 2 }));
    assert_eq!(value("list-timeout"), (15_000, Origin::Default));
}

#[test]
fn a_broken_file_is_never_an_empty_list() {
    let machine = Machine::new();
    machine.write("user/.metamcp/mcp.json", &file_of("user"));
    let project =
        machine.write("project/.mcp.json", "{ \"mcpServers\": {\n  \"a\": { \"command\": 1 }\n} }");
    assert_eq!(
        machine.error(),
        "/project/.mcp.json:2:21: mcpServers.a.command: expected a string or a list of strings, found a number"
    );
    fs::write(&project, "").unwrap();
    assert_eq!(machine.error(), "/project/.mcp.json:1:1: the file is empty");
    fs::write(&project, b"{ \xff }").unwrap();
    assert_eq!(machine.error(), "/project/.mcp.json:1:1: line 1 is not UTF-8");
    fs::write(&project, " ".repeat((1 << 20) + 1)).unwrap();
    assert_eq!(machine.error(), "the config file /project/.mcp.json is larger than 1048576 bytes");
    fs::remove_file(&project).unwrap();
    fs::create_dir(&project).unwrap();
    assert_eq!(machine.error(), "the config file /project/.mcp.json is a directory, not a file");
    fs::remove_dir(&project).unwrap();
    // The settings of the user's file count beneath the project's, so it must be sound as well.
    machine.write("project/.mcp.json", &file_of("project"));
    machine.write("user/.metamcp/mcp.json", "{");
    assert_eq!(machine.error(), "/user/.metamcp/mcp.json:1:1: this `{` is never closed");
}

#[cfg(unix)]
#[test]
fn links_to_nowhere_and_pipes_are_errors() {
    let machine = Machine::new();
    let project = machine.root.path().join("project/.mcp.json");
    std::os::unix::fs::symlink("missing.json", &project).unwrap();
    assert_eq!(machine.error(), "cannot read the config file /project/.mcp.json");
    fs::remove_file(&project).unwrap();
    nix::unistd::mkfifo(&project, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    assert_eq!(machine.error(), "the config file /project/.mcp.json is a named pipe, not a file");
}

#[test]
fn wrong_variables_are_named() {
    let mut machine = Machine::new();
    machine.variables.push(("METAMCP_COOLDOWN", "soon".to_owned()));
    machine.variables.push(("METAMCP_REPLAY", "always".to_owned()));
    assert_eq!(
        machine.error(),
        "variable METAMCP_COOLDOWN: expected a whole number, found `soon`; \
         variable METAMCP_REPLAY: expected `annotated` or `never`"
    );
}

#[test]
fn home_is_absolute_and_can_be_moved() {
    let mut machine = Machine::new();
    assert_eq!(
        machine.load().unwrap().config.settings.home,
        machine.root.path().join("user/.metamcp")
    );
    machine.variables.push(("METAMCP_HOME", "elsewhere".to_owned()));
    fs::create_dir(machine.root.path().join("project/elsewhere")).unwrap();
    machine.write("project/elsewhere/mcp.json", &file_of("moved"));
    let loaded = machine.load().unwrap();
    assert_eq!(loaded.config.settings.home, machine.root.path().join("project/elsewhere"));
    assert_eq!(names(&loaded), ["moved"]);
}

#[cfg(unix)]
#[test]
fn secrets_that_others_can_read_are_warned_of() {
    use std::os::unix::fs::PermissionsExt;
    let mut machine = Machine::new();
    machine.variables.push(("TOKEN", "from-the-environment-1".to_owned()));
    let text = |value: &str| {
        format!(
            r#"{{ "mcpServers": {{ "a": {{ "command": "x", "env": {{ "TOKEN": "{value}" }} }} }} }}"#
        )
    };
    let user = machine.write("user/.metamcp/mcp.json", &text("written-here-1"));
    let with_mode = |mode: u32| {
        fs::set_permissions(&user, fs::Permissions::from_mode(mode)).unwrap();
        machine.load().unwrap().remarks.len()
    };
    assert_eq!((with_mode(0o644), with_mode(0o600)), (1, 0));
    fs::write(&user, text("${TOKEN}")).unwrap();
    assert_eq!(with_mode(0o644), 0, "a variable's value is not in the file");
}

#[test]
fn warnings_of_unused_servers_are_not_repeated() {
    let machine = Machine::new();
    machine.write(
        "user/.metamcp/mcp.json",
        r#"{ "mcpServers": { "a": { "command": "${NOPE}" } }, "pool": { "poolSzie": 1 } }"#,
    );
    assert_eq!(machine.load().unwrap().remarks.len(), 2);
    machine.write("project/.mcp.json", &file_of("project"));
    let messages: Vec<String> =
        machine.load().unwrap().remarks.into_iter().map(|remark| remark.message).collect();
    assert_eq!(
        messages,
        ["unknown key, ignored", "its servers (1) are not used: the project has its own .mcp.json"]
    );
}
