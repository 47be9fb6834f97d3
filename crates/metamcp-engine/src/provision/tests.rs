//! Installed servers replace no others, and their secrets are stored nowhere else.

use metamcp_config::config::LocalCommand;
use metamcp_config::settings::ProvisionSettings;
use metamcp_provisioning::provision::{Input, Kind, Verdict, Word, builtin};

use super::*;

fn provisioner(home: &Path) -> Provisioner {
    let settings = ProvisionSettings { registries: "none".to_owned(), ..Default::default() };
    Provisioner::new(home, &settings, Box::new(|_| {}))
}

/// A remote server: nothing has to be downloaded for it.
fn plan(provisioner: &Provisioner, server: &str, url: &str) -> Plan {
    let mut candidate =
        builtin().into_iter().find(|one| one.name.ends_with("server-memory")).unwrap();
    candidate.offer.kind = Kind::Remote;
    candidate.offer.identifier = url.to_owned();
    candidate.offer.version = String::new();
    candidate.offer.environment.clear();
    let facts = Facts { exists: true, ..Facts::default() };
    let prefix = provisioner.store.prefix(&candidate.package());
    Plan::new(server.to_owned(), &candidate, &facts, Verdict::default(), &prefix, Ok(()))
}

#[tokio::test]
async fn an_installed_server_replaces_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let provisioner = provisioner(&folder.path().join("home"));
    let install = async |plan: &Plan, taken: &str| {
        let consent = plan.complete(&[]).unwrap();
        provisioner.install(plan, &consent, &|name| name == taken).await
    };
    let first = plan(&provisioner, "notes", "https://one.example.com/mcp");
    let configured = install(&first, "notes").await;
    assert!(matches!(configured, Err(InstallError::NameTaken { name }) if name == "notes"));
    assert!(provisioner.store.records().is_empty());
    install(&first, "").await.unwrap();
    // Planned before the first was there, under the same name.
    let second = plan(&provisioner, "notes", "https://two.example.com/mcp");
    assert!(matches!(install(&second, "").await, Err(InstallError::NameTaken { .. })));
    let again = plan(&provisioner, "other", "https://one.example.com/mcp");
    assert!(
        matches!(install(&again, "").await, Err(InstallError::There { name }) if name == "notes")
    );
    let records = provisioner.store.records();
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].plan, first);
}

#[tokio::test(start_paused = true)]
async fn two_processes_do_not_install_concurrently() {
    let folder = tempfile::tempdir().unwrap();
    let provisioner = provisioner(&folder.path().join("home"));
    let plan = plan(&provisioner, "notes", "https://one.example.com/mcp");
    let consent = plan.complete(&[]).unwrap();
    let other = provisioner.store.open_lock().unwrap();
    other.lock().unwrap();
    let busy = provisioner.install(&plan, &consent, &|_| false).await;
    assert!(matches!(busy, Err(InstallError::Busy)));
    drop(other);
    provisioner.install(&plan, &consent, &|_| false).await.unwrap();
}

/// The program of the server below.
const PG: &str = "node_modules/@modelcontextprotocol/server-postgres/dist/index.js";

/// Postgres' own server: it takes its address, password and all, as an argument.
fn postgres(provisioner: &Provisioner) -> Plan {
    let mut candidate =
        builtin().into_iter().find(|one| one.name.ends_with("server-postgres")).unwrap();
    let token = Input { name: "EXTRA_TOKEN".to_owned(), ..Input::default() };
    let path = Input { name: "KEY_FILE".to_owned(), secret: true, ..Input::default() };
    candidate.offer.environment = vec![token, path];
    let entry = Some("dist/index.js".to_owned());
    let facts = Facts { exists: true, entry, ..Facts::default() };
    let prefix = provisioner.store.prefix(&candidate.package());
    Plan::new("pg".to_owned(), &candidate, &facts, Verdict::default(), &prefix, Ok(()))
}

/// Every file under a folder that contains a text.
fn holding(folder: &Path, text: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(holding(&path, text));
        } else if String::from_utf8_lossy(&std::fs::read(&path).unwrap()).contains(text) {
            found.push(path);
        }
    }
    found
}

#[tokio::test]
async fn a_secret_is_in_no_plan_approval_or_record() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    let mut provisioner = provisioner(&home);
    provisioner.secret_store.place = TokenStore::File;
    let plan = postgres(&provisioner);
    let key = folder.path().join("key");
    std::fs::write(&key, "k").unwrap();
    let address = "postgresql://ada:hunter2@db/notes";
    let given = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let values = vec![
        given("connection", address),
        given("EXTRA_TOKEN", "t0ken-canary"),
        given("KEY_FILE", key.to_str().unwrap()),
    ];
    let store = &provisioner.store;
    store.wait_for_yes(&plan).unwrap();
    let put = provisioner.put_away(&plan, values).await.unwrap();
    store.agree(&plan, put).unwrap();
    let secrets = home.join("provision/secrets");
    for canary in ["hunter2", "t0ken-canary"] {
        let files = holding(&home, canary);
        assert!(files.len() == 1 && files[0].starts_with(&secrets), "{files:?}");
    }
    let consent = store.use_yes(&plan).unwrap().unwrap();
    let record = Record::new(plan.clone(), &consent, 1);
    store.remember_installed(&record).unwrap();
    let record = store.record("pg").unwrap();
    assert_eq!(plan.shown(&record.argv).last().map(String::as_str), Some("[secret connection]"));
    // At use it is resolved again.
    let config = store::server_config(&record);
    assert!(!format!("{config:?}").contains("hunter2"));
    let started = crate::secrets::resolved(&config, &crate::env::Variables::default())
        .await
        .unwrap()
        .unwrap();
    let LocalCommand { args, env, .. } = started.transport.local().unwrap();
    let prefix = Path::new(&plan.prefix);
    let (ours, entry) = (prefix.join("metamcp-start.cjs"), prefix.join(PG));
    let words = ["--require", ours.to_str().unwrap(), entry.to_str().unwrap()];
    assert_eq!(args[..3], words);
    assert_eq!(args[3..], ["[secret connection]"], "it is in no command line");
    assert_eq!(env[2].1.expose(), format!("[[0,{address:?}]]"));
    assert!(std::fs::read_to_string(&ours).unwrap().contains("process.argv"));
    assert_eq!(env[0].1.expose(), "t0ken-canary");
    // The path of a key is not a secret; and access to the file is granted.
    assert_eq!(env[1].1.expose(), key.to_str().unwrap());
    assert!(started.secrets().iter().any(|secret| secret.expose() == address));
    provisioner.remove("pg").await.unwrap();
    assert_eq!(std::fs::read_dir(&secrets).unwrap().count(), 0, "they go with their server");
}

#[tokio::test]
async fn records_contain_no_secrets_whoever_approved() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    let mut provisioner = provisioner(&home);
    provisioner.secret_store.place = TokenStore::File;
    let mut plan = plan(&provisioner, "far", "https://one.example.com/mcp");
    plan.environment = vec![Input { name: "X-Api-Key".to_owned(), ..Input::default() }];
    let consent = plan.complete(&[("X-Api-Key".to_owned(), "k3y-canary".to_owned())]).unwrap();
    provisioner.install(&plan, &consent, &|_| false).await.unwrap();
    let files = holding(&home, "k3y-canary");
    assert!(files.len() == 1 && files[0].starts_with(home.join("provision/secrets")), "{files:?}");
    // A failed installation leaves none.
    let again =
        provisioner.put_away(&plan, vec![("X-Api-Key".to_owned(), "0ther-canary".to_owned())]);
    let consent = plan.complete(&again.await.unwrap()).unwrap();
    assert_eq!(holding(&home, "0ther-canary").len(), 1);
    assert!(provisioner.install(&plan, &consent, &|_| false).await.is_err());
    assert!(holding(&home, "0ther-canary").is_empty());
}

#[test]
fn only_a_persons_secret_values_are_resolved() {
    let folder = tempfile::tempdir().unwrap();
    let provisioner = provisioner(&folder.path().join("home"));
    let mut plan = postgres(&provisioner);
    let late = |plan: &Plan, value: &str| {
        let consent = plan.complete(&[("connection".to_owned(), value.to_owned())]).unwrap();
        let config = store::server_config(&Record::new(plan.clone(), &consent, 1));
        config.secret_arguments.map_or(0, |arguments| arguments.values.len())
    };
    assert_eq!(late(&plan, "op://work/db/address"), 1);
    assert_eq!(late(&plan, "cmd:touch /tmp/x"), 1);
    plan.asked[0].default = Some("cmd:touch /tmp/x".to_owned());
    assert_eq!(late(&plan, "cmd:touch /tmp/x"), 0, "it is its publisher's");
    // A non-secret value is typed into a client, perhaps by a model.
    plan.asked[0].secret = false;
    assert_eq!(late(&plan, "cmd:touch /tmp/y"), 0);
}

#[test]
fn secrets_of_older_records_are_not_in_the_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let provisioner = provisioner(&folder.path().join("home"));
    let address = "postgresql://ada:hunter2@db/notes";
    let record = |kind: Kind, program: &[&str]| {
        let mut plan = postgres(&provisioner);
        plan.kind = kind;
        let fixed = program.iter().map(|word| Word::Fixed((*word).to_owned()));
        plan.argv = fixed.chain([Word::Asked("connection".to_owned())]).collect();
        let argv = program.iter().copied().chain([address]).map(str::to_owned).collect();
        Record::new(plan, &Consent { argv, environment: Vec::new() }, 1)
    };
    let written = |config: &ServerConfig| {
        let words = config.transport.words().into_iter().map(|word| {
            let own = Path::new(word).strip_prefix(provisioner.store.home()).ok();
            own.and_then(Path::file_name).map_or(word, |name| name.to_str().unwrap())
        });
        words.collect::<Vec<_>>().join(" ")
    };
    let config = store::server_config(&record(Kind::Npm, &["node", "/x/index.js"]));
    let expected = "node --require metamcp-start.cjs /x/index.js [secret connection]";
    assert_eq!(written(&config), expected);
    let config = store::server_config(&record(Kind::Pypi, &["/x/venv/bin/pg"]));
    assert_eq!(written(&config), "python metamcp-start.py /x/venv/bin/pg [secret connection]");
    // Nor into a program that is not a Python script.
    for (line, can) in [("#!/usr/bin/env python3", true), ("#!/bin/sh", false)] {
        let program = folder.path().join("pg");
        std::fs::write(&program, format!("{line}\n")).unwrap();
        let config = store::server_config(&record(Kind::Pypi, &[program.to_str().unwrap()]));
        assert!(!written(&config).contains("hunter2"), "{config:?}");
        let why = config.state.against().unwrap_or_default();
        assert_eq!(why.contains("a program that is not a Python script"), !can, "{line}: {why}");
    }
    // A container cannot get one either.
    let config = store::server_config(&record(Kind::Oci, &["docker", "run", "image"]));
    assert!(!written(&config).contains("hunter2"), "{config:?}");
    let why = config.state.against().unwrap();
    assert!(why.contains("it takes connection, a secret, as an argument"), "{why}");
}

/// An argument that was not declared a secret is one if its value is.
#[test]
fn a_program_that_cannot_receive_a_secret_safely_is_not_installed_with_one() {
    let folder = tempfile::tempdir().unwrap();
    let provisioner = provisioner(&folder.path().join("home"));
    let program = folder.path().join("notes");
    std::fs::write(&program, "#!/bin/sh\n").unwrap();
    let mut plan = postgres(&provisioner);
    plan.kind = Kind::Pypi;
    plan.asked = vec![Input { name: "place".to_owned(), ..Input::default() }];
    let program = program.to_str().unwrap().to_owned();
    plan.argv = vec![Word::Fixed(program.clone()), Word::Asked("place".to_owned())];
    let agreed = |value: &str| Consent {
        argv: vec![program.clone(), value.to_owned()],
        environment: Vec::new(),
    };
    assert!(!store::takes_secrets(&plan, &agreed("/home/ada/notes")));
    assert!(store::takes_secrets(&plan, &agreed("postgresql://ada:hunter2@db/notes")));
    let refused = install::can_be_handed_secrets(&plan).unwrap_err().to_string();
    assert!(refused.contains("its program is not a Python script"), "{refused}");
    std::fs::write(&program, "#!/opt/venv/bin/python\n").unwrap();
    install::can_be_handed_secrets(&plan).unwrap();
}

#[tokio::test]
async fn an_installation_that_cannot_be_recorded_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    let mut provisioner = provisioner(&home);
    provisioner.secret_store.place = TokenStore::File;
    let mut plan = plan(&provisioner, "far", "https://one.example.com/mcp");
    plan.environment = vec![Input { name: "X-Api-Key".to_owned(), ..Input::default() }];
    let consent = plan.complete(&[("X-Api-Key".to_owned(), "k3y-canary".to_owned())]).unwrap();
    let secrets = home.join("provision/secrets");
    std::fs::create_dir_all(secrets.parent().unwrap()).unwrap();
    std::fs::write(&secrets, "in the way").unwrap();
    let failed = provisioner.install(&plan, &consent, &|_| false).await;
    assert!(matches!(failed, Err(InstallError::SecretStore(_))), "{failed:?}");
    assert!(!Path::new(&plan.prefix).exists());
}

#[cfg(unix)]
#[test]
fn a_symlink_in_place_of_a_package_grants_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (prefix, users) = (folder.path().join("prefix"), folder.path().join("users"));
    std::fs::create_dir_all(prefix.join("node_modules/@a")).unwrap();
    std::fs::create_dir_all(users.join("wheel")).unwrap();
    let own = Path::new("node_modules/@a/wheel");
    std::os::unix::fs::symlink(users.join("wheel"), prefix.join(own)).unwrap();
    assert_eq!(install::inside(&prefix, own), None);
    std::fs::remove_file(prefix.join(own)).unwrap();
    std::fs::create_dir(prefix.join(own)).unwrap();
    let real = prefix.canonicalize().unwrap().join(own);
    assert_eq!(install::inside(&prefix, own), Some(real));
    std::fs::remove_dir_all(prefix.join("node_modules/@a")).unwrap();
    std::os::unix::fs::symlink(&users, prefix.join("node_modules/@a")).unwrap();
    assert_eq!(install::inside(&prefix, own), None);
}
