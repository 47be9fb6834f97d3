use std::fs;
use std::time::Duration;

use metamcp_config::config::ServerOrigin;
use metamcp_config::settings::{CodeProfile, Origin, Value, by_flag};
use tempfile::TempDir;

use super::*;

/// A machine with a project folder and a home, both empty.
struct Machine {
    root: TempDir,
    variables: Vec<(&'static str, String)>,
    flags: Vec<Given>,
    has_lockdown: bool,
}

impl Machine {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("project")).unwrap();
        fs::create_dir_all(root.path().join("user/.metamcp")).unwrap();
        let home = root.path().join("user").display().to_string();
        Self { root, variables: vec![("HOME", home)], flags: Vec::new(), has_lockdown: true }
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
        let lack =
            |reason: &str| Some(Lack { reason: reason.to_owned(), cure: "install it".to_owned() });
        let lacks = |profile: CodeProfile| match profile {
            CodeProfile::Docker => lack("there is no Docker here"),
            CodeProfile::Standard if !self.has_lockdown => lack("there is no lockdown here"),
            _ => None,
        };
        load(LoadOptions {
            flags: self.flags.clone(),
            lookup: &lookup,
            variables: self.variables.iter().map(|(name, _)| (*name).to_owned()).collect(),
            lacks: &lacks,
            working_dir: &working_dir,
        })
    }

    /// Approves the project's file as it is.
    fn approve(&self) {
        self.load().unwrap().project.expect("a project's file").approve().unwrap();
    }

    /// Writes a project's file and approves it.
    fn write_approved(&self, text: &str) -> PathBuf {
        let path = self.write("project/.mcp.json", text);
        self.approve();
        path
    }

    /// The error text, with the temporary folder removed.
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
fn the_project_file_is_used_only_after_approval() {
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

    machine.write("project/.mcp.json", &file_of("project"));
    let loaded = machine.load().unwrap();
    assert_eq!(names(&loaded), ["user"], "nobody approved the project's");
    assert_eq!(loaded.remarks.len(), 1);
    let told = loaded.remarks[0].to_string();
    assert!(
        told.ends_with("is not approved, so nothing of it is used; 1 server waiting"),
        "{told}"
    );

    machine.approve();
    let loaded = machine.load().unwrap();
    assert_eq!(names(&loaded), ["user", "project"]);
    let origins: Vec<ServerOrigin> =
        loaded.config.servers.iter().map(|server| server.origin).collect();
    assert_eq!(origins, [ServerOrigin::User, ServerOrigin::Project]);
    assert!(matches!(loaded.source, Source::User(_)) && loaded.remarks.is_empty());
    fs::remove_file(machine.root.path().join("user/.metamcp/mcp.json")).unwrap();
    fs::remove_file(machine.root.path().join("user/.metamcp/.mcp.json")).unwrap();
    let loaded = machine.load().unwrap();
    assert!(matches!(loaded.source, Source::Project(_)), "{:?}", loaded.source);
    assert_eq!((names(&loaded), loaded.source.advice()), (vec!["project"], None));
}

#[test]
fn a_project_server_overrides_the_users_only_if_valid_and_approved() {
    let machine = Machine::new();
    machine.write(
        "user/.metamcp/mcp.json",
        r#"{ "mcpServers": { "a": { "command": "mine" }, "b": { "command": "mine" } } }"#,
    );
    let theirs = r#"{ "mcpServers": { "a": { "command": "theirs" }, "b": { "command": 5 } } }"#;
    let commands = || {
        let servers = machine.load().unwrap().config.servers;
        servers
            .iter()
            .map(|server| server.transport.command().unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
    };
    machine.write("project/.mcp.json", theirs);
    assert_eq!(commands(), ["mine", "mine"]);
    machine.approve();
    assert_eq!(commands(), ["theirs", "mine"], "what cannot be used takes nothing away");
}

#[test]
fn in_metamcps_home_the_file_is_the_users() {
    let mut machine = Machine::new();
    machine.variables.push(("METAMCP_HOME", ".".to_owned()));
    machine.write("project/.mcp.json", &file_of("own"));
    let loaded = machine.load().unwrap();
    assert_eq!(names(&loaded), ["own"]);
    assert!(loaded.project.is_none());
}

#[test]
fn a_client_file_that_names_only_the_gateway_is_ignored() {
    let machine = Machine::new();
    for clients in [
        r#"{ "mcpServers": { "all": { "command": "/opt/metamcp" } } }"#,
        r#"{ "mcpServers": { "all": { "command": "/opt/metamcp", "disabled": true } } }"#,
    ] {
        machine.write("project/.mcp.json", clients);
        machine.write("user/.metamcp/mcp.json", &file_of("user"));
        let loaded = machine.load().unwrap();
        assert_eq!(names(&loaded), ["user"], "{clients}");
        assert_eq!(loaded.project.unwrap().trust, ProjectTrust::Idle, "{clients}");
        assert_eq!(loaded.remarks, [], "there is nothing to approve: {clients}");
    }
    machine.write_approved(
        r#"{ "mcpServers": { "all": { "command": "/opt/metamcp" } }, "pool": { "poolSize": 3 } }"#,
    );
    let loaded = machine.load().unwrap();
    assert_eq!((names(&loaded), loaded.config.settings.pool.size), (vec!["user"], 3));
    assert!(loaded.remarks.iter().all(|remark| remark.severity == Severity::Note));
}

#[test]
fn a_gateway_that_reads_this_very_file_is_skipped() {
    let mut machine = Machine::new();
    machine.flag("config", ".mcp.json");
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
    let project = r#"{ "pool": { "poolSize": 2, "cooldownMs": 2, "idleTimeoutMs": 2 } }"#;
    machine.write("project/.mcp.json", project);
    assert_eq!(machine.load().unwrap().config.settings.pool.size, 1, "it is not approved");
    machine.approve();
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
    let user = machine.write("user/.metamcp/mcp.json", "{ \"mcpServers\": {\n  \"a\": } }");
    assert_eq!(machine.error(), "/user/.metamcp/mcp.json:2:8: `}` cannot stand here");
    fs::write(&user, "").unwrap();
    assert_eq!(machine.error(), "/user/.metamcp/mcp.json:1:1: the file is empty");
    fs::write(&user, b"{ \xff }").unwrap();
    assert_eq!(machine.error(), "/user/.metamcp/mcp.json:1:1: line 1 is not UTF-8");
    fs::write(&user, " ".repeat((1 << 20) + 1)).unwrap();
    assert_eq!(
        machine.error(),
        "the config file /user/.metamcp/mcp.json is larger than 1048576 bytes"
    );
    fs::remove_file(&user).unwrap();
    fs::create_dir(&user).unwrap();
    assert_eq!(
        machine.error(),
        "the config file /user/.metamcp/mcp.json is a directory, not a file"
    );
}

#[test]
fn one_invalid_entry_is_reported_and_the_rest_is_used() {
    let machine = Machine::new();
    let text =
        "{ \"mcpServers\": {\n  \"a\": { \"command\": 1 },\n \"b\": { \"command\": \"x\" } } }";
    machine.write("user/.metamcp/mcp.json", text);
    let loaded = machine.load().unwrap();
    let enabled: Vec<bool> = loaded
        .config
        .servers
        .iter()
        .map(metamcp_config::config::ServerConfig::is_enabled)
        .collect();
    assert_eq!((names(&loaded), enabled), (vec!["a", "b"], vec![false, true]));
    assert_eq!(loaded.remarks[0].severity, Severity::Error);
    let told =
        loaded.remarks[0].to_string().replace(&machine.root.path().display().to_string(), "");
    assert_eq!(
        told,
        "/user/.metamcp/mcp.json:2:21: mcpServers.a.command: expected a string or a list of strings, found a number"
    );
}

#[cfg(unix)]
#[test]
fn dangling_symlinks_and_pipes_are_errors() {
    let machine = Machine::new();
    let user = machine.root.path().join("user/.metamcp/mcp.json");
    std::os::unix::fs::symlink("missing.json", &user).unwrap();
    assert_eq!(machine.error(), "cannot read the config file /user/.metamcp/mcp.json");
    fs::remove_file(&user).unwrap();
    nix::unistd::mkfifo(&user, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    assert_eq!(
        machine.error(),
        "the config file /user/.metamcp/mcp.json is a named pipe, not a file"
    );
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
fn where_the_lockdown_cannot_be_had_the_default_is_the_engine_that_needs_none() {
    let mut machine = Machine::new();
    machine.has_lockdown = false;
    let loaded = machine.load().unwrap();
    assert_eq!(loaded.config.settings.code.profile, CodeProfile::Wasm);
    let shown = loaded.values.iter().find(|given| given.setting.flag == "code-profile").unwrap();
    assert_eq!((shown.value.text().as_ref(), &shown.origin), ("wasm", &Origin::Default));
    let told: Vec<String> = loaded.remarks.iter().map(ToString::to_string).collect();
    if cfg!(target_os = "linux") {
        let expect = "there is no lockdown here: scripts run in the profile `wasm`, where the engine alone holds them";
        assert_eq!(told, [expect]);
    } else {
        assert_eq!(told, [""; 0], "nothing is missing that could be there");
    }
    // What was chosen is never replaced.
    machine.flag("code-profile", "standard");
    let loaded = machine.load().unwrap();
    assert_eq!(loaded.config.settings.code.profile, CodeProfile::Standard);
    machine.flag("code-profile", "off");
    assert_eq!(machine.load().unwrap().config.settings.code.profile, CodeProfile::Off);
}

#[test]
fn an_isolation_profile_is_used_refused_or_reported() {
    let mut machine = Machine::new();
    machine
        .write("user/.metamcp/mcp.json", r#"{ "mcpServers": {}, "code": { "profile": "dev" } }"#);
    machine.variables.push(("METATOOLS_RUNTIME_PROFILE", "standard".to_owned()));
    let loaded = machine.load().unwrap();
    assert_eq!(loaded.config.settings.code.profile, CodeProfile::Docker, "before the file");
    let told = |loaded: &Loaded| -> Vec<String> {
        let remarks = loaded.remarks.iter().filter(|remark| remark.severity == Severity::Warning);
        remarks.map(ToString::to_string).collect()
    };
    let expect = "METATOOLS_RUNTIME_PROFILE asks for the profile `docker`, and there is no Docker here: scripts are refused";
    assert_eq!(told(&loaded), [expect]);
    assert_eq!(loaded.remarks.last().unwrap().hint.as_deref(), Some("install it"));

    machine.variables.push(("METATOOLS_WASM_ENABLED", "true".to_owned()));
    let loaded = machine.load().unwrap();
    assert_eq!(loaded.config.settings.code.profile, CodeProfile::Hardened);
    assert!(told(&loaded)[0].starts_with("Docker is not available"), "{:?}", told(&loaded));

    machine.flag("code-profile", "standard");
    let loaded = machine.load().unwrap();
    assert_eq!(loaded.config.settings.code.profile, CodeProfile::Standard, "a flag goes before");
    let expect = "METATOOLS_RUNTIME_PROFILE asks for the profile `hardened`, and flag --code-profile says `standard`, which goes before it";
    assert_eq!(told(&loaded), [expect]);

    machine.variables.push(("METATOOLS_RUNTIME_BACKEND", "gvisor".to_owned()));
    let error = machine.error();
    assert!(error.contains("METATOOLS_RUNTIME_BACKEND") && !error.contains("gvisor"), "{error}");
}

#[test]
fn unknown_variables_are_reported_without_their_values() {
    let mut machine = Machine::new();
    let file =
        r#"{ "mcpServers": { "a": { "command": "x", "env": { "T": "${METAMCP_MY_TOKEN}" } } } }"#;
    machine.write("user/.metamcp/mcp.json", file);
    for name in ["METAMCP_MY_TOKEN", "METAMCP_SERACH", "METAMCP_REGISTRY_TOKEN", "METAMCP_LEFT"] {
        machine.variables.push((name, "hunter2".to_owned()));
    }
    machine.flag("registries", "https://registry.example.com|METAMCP_REGISTRY_TOKEN");
    let loaded = machine.load().unwrap();
    let told: Vec<String> = loaded
        .remarks
        .iter()
        .map(|remark| format!("{remark} ({})", remark.hint.as_deref().unwrap_or("-")))
        .collect();
    assert_eq!(
        told,
        [
            "the variable METAMCP_LEFT is set, but metamcp has no such setting (-)",
            "the variable METAMCP_SERACH is set, but metamcp has no such setting (did you mean METAMCP_SEARCH?)",
        ]
    );
}

#[test]
fn a_project_makes_approvals_stricter_and_never_less_strict() {
    use metamcp_config::config::Approve::{Always, Destructive, Never};
    let machine = Machine::new();
    machine.write(
        "user/.metamcp/mcp.json",
        r#"{
            "mcpServers": {
                "files": { "command": "x", "approve": { "default": "destructive", "tools": { "send": "always" } } },
                "open": { "command": "x", "approve": "never" },
            },
            "approvals": { "rule": "destructive", "always": "pay" },
        }"#,
    );
    machine.write_approved(
        r#"{
            "mcpServers": {
                "files": { "command": "other", "approve": "never" },
                "open": { "command": "other", "approve": { "tools": { "wipe": "always" } } },
                "new": { "command": "y", "approve": "never" },
            },
            "approvals": { "rule": "never", "always": ["mail:*"], "waitMs": 1 },
        }"#,
    );
    let loaded = machine.load().unwrap();
    let rule = |server: &str, tool: &str| loaded.config.server(server).unwrap().approve(tool);
    assert_eq!((rule("files", "send"), rule("files", "read")), (Always, Destructive));
    assert_eq!((rule("open", "wipe"), rule("open", "read")), (Always, Never));
    assert_eq!((rule("new", "read"), rule("new", "pay")), (Destructive, Always));
    assert_eq!(loaded.config.settings.approvals.always, "pay,mail:*");
    assert_eq!(loaded.config.settings.approvals.wait, Duration::from_mins(5));
    let told: Vec<String> = loaded.remarks.iter().map(ToString::to_string).collect();
    for key in ["approvals.rule", "approvals.waitMs"] {
        assert!(told.iter().any(|one| one.contains(key)), "{told:?}");
    }
    // What does not count is not announced either.
    let preview = &loaded.project.as_ref().unwrap().preview;
    let keys: Vec<&str> = preview.settings.iter().map(|one| one.key.as_str()).collect();
    assert_eq!(keys, ["approvals.always"]);
    machine.write_approved(r#"{ "approvals": { "rule": "always" } }"#);
    let loaded = machine.load().unwrap();
    assert_eq!(loaded.config.server("open").unwrap().approve("read"), Never);
    assert_eq!(loaded.config.settings.approvals.rule, Always);
}

const DESCRIPTION: &str = "openapi: 3.0.3\ninfo: {title: Notes, version: '1'}\nservers: [{url: 'https://api.example/v1'}]\npaths:\n  /notes: {get: {operationId: list_notes}}\n";

fn digest_of(loaded: &Loaded, server: &str) -> Option<String> {
    loaded.config.server(server)?.transport.api()?.digest.clone()
}

#[test]
fn a_description_is_found_beside_the_file_that_names_it_and_a_change_of_it_is_one_of_the_configuration()
 {
    let machine = Machine::new();
    machine.write("user/.metamcp/notes.yaml", DESCRIPTION);
    machine.write(
        "user/.metamcp/mcp.json",
        r#"{"mcpServers": {"notes": {"openapi": "notes.yaml"}, "gone": {"openapi": "gone.yaml"}}}"#,
    );
    let before = machine.load().unwrap();
    let file = machine.root.path().join("user/.metamcp/notes.yaml");
    assert!(before.files.contains(&file), "it is watched");
    assert_eq!(digest_of(&before, "notes"), Some(crate::trust::sha256(DESCRIPTION.as_bytes())));
    let told = before.remarks.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    assert!(told.contains("the description of its server \"gone\" cannot be used"), "{told}");
    machine.write("user/.metamcp/notes.yaml", &DESCRIPTION.replace("list_notes", "all_notes"));
    let after = machine.load().unwrap();
    let diff = metamcp_config::config::diff(&before.config, &after.config);
    assert_eq!(diff.changed, ["notes"]);
}

#[test]
fn an_approval_covers_the_description_that_a_project_names() {
    let machine = Machine::new();
    machine.write("project/notes.yaml", DESCRIPTION);
    machine.write_approved(
        r#"{"mcpServers": {"notes": {"openapi": "./notes.yaml", "bearerToken": "${TOKEN:-t}"}}}"#,
    );
    let approved = machine.load().unwrap();
    assert_eq!(names(&approved), ["notes"]);
    assert_eq!(digest_of(&approved, "notes"), Some(crate::trust::sha256(DESCRIPTION.as_bytes())));
    let told = approved.project.unwrap().preview.told();
    assert!(told.contains("makes tools of the API: ./notes.yaml"), "{told}");
    assert!(told.contains("\"Notes\", 1 operations at https://api.example/v1"), "{told}");
    // Now the same entry would send the token elsewhere.
    machine.write("project/notes.yaml", &DESCRIPTION.replace("api.example", "evil.example"));
    let changed = machine.load().unwrap();
    assert!(names(&changed).is_empty());
    assert_eq!(changed.project.unwrap().trust, ProjectTrust::Waiting { changed: true });
    machine.write(
        "project/.mcp.json",
        r#"{"mcpServers": {"notes": {"openapi": "${WHERE}/notes.yaml"}}}"#,
    );
    let hidden = machine.load().unwrap().project.unwrap().trust;
    assert!(
        matches!(&hidden, ProjectTrust::Unusable(why) if why.contains("write it out")),
        "{hidden:?}"
    );
}
