//! Pending plans, approvals that are used once, installed servers.

use metamcp_config::config::ServerState;
use metamcp_provisioning::provision::{
    Candidate, Facts, Input, Plan, Source, Verdict, Word, builtin,
};

use super::config::named;
use super::*;

fn plan(store: &Store) -> Plan {
    let candidate: Candidate =
        builtin().into_iter().find(|one| one.name.ends_with("server-memory")).unwrap();
    let facts = Facts { exists: true, entry: Some("index.js".to_owned()), ..Facts::default() };
    let prefix = store.prefix(&candidate.package());
    Plan::new("memory".to_owned(), &candidate, &facts, Verdict::default(), &prefix, Ok(()))
}

fn store() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(&folder.path().join("home"));
    (folder, store)
}

#[test]
fn an_approval_is_used_once_and_only_for_its_plan() {
    let (_folder, store) = store();
    let plan = plan(&store);
    assert!(store.agree(&plan, Vec::new()).is_err());
    let id = store.wait_for_yes(&plan).unwrap();
    assert_eq!(store.wait_for_yes(&plan).unwrap(), id);
    assert_eq!(store.pending().len(), 1);
    assert!(store.use_yes(&plan).unwrap().is_none());
    store.agree(&plan, Vec::new()).unwrap();
    let mut other = plan.clone();
    other.version = "9.9.9".to_owned();
    assert!(store.use_yes(&other).unwrap().is_none());
    assert!(store.use_yes(&plan).unwrap().is_some());
    assert!(store.use_yes(&plan).unwrap().is_none());
    assert!(store.pending().is_empty());
}

#[test]
fn a_plan_changed_on_disk_is_not_pending_under_its_old_id() {
    let (_folder, store) = store();
    let plan = plan(&store);
    let id = store.wait_for_yes(&plan).unwrap();
    let mut evil = plan.clone();
    evil.argv.push(metamcp_provisioning::provision::Word::Fixed("--evil".to_owned()));
    let folder = store.part(PENDING).unwrap();
    let swapped = Pending { plan: evil, since: unix_millis() };
    write(&folder, &format!("{id}.json"), &swapped).unwrap();
    assert!(store.pending().is_empty());
    assert!(matches!(store.agree(&plan, Vec::new()), Err(StoreError::NoPlan { .. })));
}

#[test]
fn an_approval_is_for_the_plan_that_was_shown() {
    let (_folder, store) = store();
    let mut plan = plan(&store);
    plan.asked.push(Input { name: "folder".to_owned(), ..Input::default() });
    store.wait_for_yes(&plan).unwrap();
    let mut seen = plan.clone();
    seen.asked[0].default = Some("/".to_owned());
    assert!(matches!(store.agree(&seen, Vec::new()), Err(StoreError::NoPlan { .. })));
    store.agree(&plan, Vec::new()).unwrap();
    assert!(store.use_yes(&seen).unwrap().is_none());
    assert!(store.use_yes(&plan).unwrap().is_some());
}

#[test]
fn pending_plans_are_bounded() {
    let (_folder, store) = store();
    let plan = plan(&store);
    for number in 0..MAX_PENDING + 10 {
        let mut one = plan.clone();
        one.version = format!("1.0.{number}");
        store.wait_for_yes(&one).unwrap();
    }
    assert!(store.pending().len() <= MAX_PENDING);
}

#[test]
fn installed_servers_are_recorded_and_removed_completely() {
    let (_folder, store) = store();
    let plan = plan(&store);
    let consent = plan.complete(&[]).unwrap();
    store.remember_installed(&Record::new(plan.clone(), &consent, 1)).unwrap();
    std::fs::create_dir(Path::new(&plan.prefix).join("node_modules")).unwrap();
    assert_eq!(store.records()[0].plan, plan);
    let config = server_config(&store.records()[0]);
    assert_eq!((config.name.as_str(), config.is_enabled()), ("memory", true));
    store.remove("memory").unwrap();
    assert!(store.records().is_empty() && !Path::new(&plan.prefix).exists());
    assert!(matches!(store.remove("memory"), Err(StoreError::NotInstalled { .. })));
}

#[test]
fn a_server_without_its_variables_is_disabled() {
    let (_folder, store) = store();
    let mut plan = plan(&store);
    plan.environment.push(Input {
        name: "METAMCP_TEST_NOT_SET_ANYWHERE".to_owned(),
        required: true,
        ..Default::default()
    });
    let consent = plan.complete(&[]).unwrap();
    let config = server_config(&Record::new(plan.clone(), &consent, 1));
    let ServerState::Disabled { reason } = &config.state else { panic!("it is enabled") };
    assert!(reason.contains("METAMCP_TEST_NOT_SET_ANYWHERE"));
}

#[test]
fn a_broken_trust_file_grants_nothing_and_is_an_error() {
    let (folder, store) = store();
    assert!(store.trust().is_ok());
    let home = folder.path().join("home");
    std::fs::create_dir_all(&home).unwrap();
    std::fs::write(home.join("trusted.json"), "{").unwrap();
    assert!(store.trust().unwrap_err().contains("trusted.json"));
}

/// A plan from a registry that asks for a folder and reads a variable that is not set.
fn asking(store: &Store, default: Option<&str>) -> Plan {
    let mut plan = plan(store);
    let default = default.map(str::to_owned);
    plan.source = Source::Registry("https://registry.example.com".to_owned());
    plan.argv.push(Word::Asked("folder".to_owned()));
    let input =
        |name: &str| Input { name: name.to_owned(), default: default.clone(), ..Input::default() };
    plan.asked = vec![input("folder")];
    plan.environment = vec![input("METAMCP_TEST_NOT_SET_EITHER")];
    plan
}

fn opened(plan: &Plan, values: &[(String, String)]) -> Vec<PathBuf> {
    let record = Record::new(plan.clone(), &plan.complete(values).unwrap(), 1);
    let own = Path::new(&plan.prefix);
    let sandbox_policy = server_config(&record).sandbox_policy.unwrap();
    sandbox_policy.writes.into_iter().filter(|path| !path.starts_with(own)).collect()
}

#[test]
fn a_publishers_default_grants_no_access() {
    let (folder, store) = store();
    let real = folder.path().canonicalize().unwrap();
    let (theirs, mine) = (real.join("theirs"), real.join("mine"));
    std::fs::create_dir(&theirs).unwrap();
    std::fs::create_dir(&mine).unwrap();
    let plan = asking(&store, theirs.to_str());
    assert_eq!(opened(&plan, &[]), Vec::<PathBuf>::new());
    let given = |name: &str, path: &Path| (name.to_owned(), path.display().to_string());
    assert_eq!(opened(&plan, &[given("folder", &mine)]), std::slice::from_ref(&mine));
    let variable = [given("METAMCP_TEST_NOT_SET_EITHER", &mine)];
    assert_eq!(opened(&plan, &variable), std::slice::from_ref(&mine));
    assert_eq!(opened(&plan, &[given("folder", Path::new("/"))]), Vec::<PathBuf>::new());
}

#[test]
fn a_value_grants_the_path_it_names_but_never_a_home() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().canonicalize().unwrap().join("ada");
    for inside in ["notes/deep", ".ssh", ".config/app"] {
        std::fs::create_dir_all(home.join(inside)).unwrap();
    }
    for file in ["notes/list.db", ".ssh/config", "loose.db"] {
        std::fs::write(home.join(file), "x").unwrap();
    }
    let door = |path: &Path| named(path.to_str().unwrap(), Some(&home));
    let inside = |path: &str| door(&home.join(path));
    for itself in ["notes", "notes/list.db", ".ssh/config", "loose.db", ".config"] {
        assert_eq!(inside(itself), Some(home.join(itself)), "{itself}");
    }
    // A file that does not exist yet needs its folder.
    assert_eq!(inside("notes/new.db"), Some(home.join("notes")));
    for shut in ["new.db", ".ssh/new", ".config/app/new", "", "notes/..", "nowhere/new.db"] {
        assert_eq!(inside(shut), None, "{shut}");
    }
    assert_eq!(door(home.parent().unwrap()), None);
    assert_eq!(door(Path::new("/")), None);
    assert_eq!(named("notes", Some(&home)), None);
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(&home, home.join("notes/way-home")).unwrap();
        assert_eq!(inside("notes/way-home"), None);
    }
}

#[test]
fn only_the_person_may_give_a_secret_reference() {
    let (_folder, store) = store();
    let plan = asking(&store, Some("cmd:touch /tmp/ran"));
    let handed = |values: &[(String, String)]| {
        let mut all = vec![("folder".to_owned(), "x".to_owned())];
        all.extend(values.iter().cloned());
        let record = Record::new(plan.clone(), &plan.complete(&all).unwrap(), 1);
        server_config(&record).transport.given()[0].1.clone()
    };
    assert!(!handed(&[]).is_reference());
    let value = ("METAMCP_TEST_NOT_SET_EITHER".to_owned(), "op://work/github/token".to_owned());
    assert!(handed(&[value]).is_reference());
    let value = ("METAMCP_TEST_NOT_SET_EITHER".to_owned(), "plain".to_owned());
    assert!(!handed(&[value]).is_reference());
}

#[test]
fn accepted_tools_are_those_that_were_shown() {
    let (_folder, store) = store();
    let plan = plan(&store);
    let mut record = Record::new(plan.clone(), &plan.complete(&[]).unwrap(), 1);
    record.pins.insert("turn".to_owned(), "a".to_owned());
    store.remember_installed(&record).unwrap();
    assert!(matches!(store.accept(&record), Err(StoreError::NothingBlocked { .. })));
    let tool = |print: &str| Blocked {
        print: print.to_owned(),
        is_new: false,
        signature: "turn()".to_owned(),
        description: "Turns".to_owned(),
    };
    record.blocked.insert("turn".to_owned(), tool("b"));
    store.remember_installed(&record).unwrap();
    let shown = store.record("memory").unwrap();
    // It changes once more while the person reads.
    record.blocked.insert("turn".to_owned(), tool("c"));
    record.blocked.insert("mail".to_owned(), tool("d"));
    store.remember_installed(&record).unwrap();
    let accepted = store.accept(&shown).unwrap();
    assert_eq!(accepted.pins.get("turn").map(String::as_str), Some("b"));
    assert_eq!((accepted.pins.len(), accepted.blocked.len(), accepted.accepted), (1, 2, 1));
}
