//! Plans that wait, a yes that is used once, what is installed.

use metamcp_core::provision::{Candidate, Facts, Plan, Verdict, builtin};

use metamcp_core::config::ServerState;

use super::*;

fn plan(store: &Store) -> Plan {
    let candidate: Candidate = builtin().remove(1);
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
fn a_yes_is_used_once_and_only_for_its_plan() {
    let (_folder, store) = store();
    let plan = plan(&store);
    assert!(store.agree(&plan.id(), Vec::new()).is_err());
    let id = store.wait_for_yes(&plan).unwrap();
    assert_eq!(store.wait_for_yes(&plan).unwrap(), id);
    assert_eq!(store.pending().len(), 1);
    assert!(store.use_yes(&plan).unwrap().is_none());
    store.agree(&id, Vec::new()).unwrap();
    let mut other = plan.clone();
    other.version = "9.9.9".to_owned();
    assert!(store.use_yes(&other).unwrap().is_none());
    assert!(store.use_yes(&plan).unwrap().is_some());
    assert!(store.use_yes(&plan).unwrap().is_none());
    assert!(store.pending().is_empty());
}

#[test]
fn a_plan_that_was_changed_on_disk_does_not_wait_under_its_old_id() {
    let (_folder, store) = store();
    let plan = plan(&store);
    let id = store.wait_for_yes(&plan).unwrap();
    let mut evil = plan.clone();
    evil.argv.push(metamcp_core::provision::Word::Fixed("--evil".to_owned()));
    let folder = store.part(PENDING).unwrap();
    let swapped = Pending { plan: evil, since: unix_millis() };
    write(&folder, &format!("{id}.json"), &swapped).unwrap();
    assert!(store.pending().is_empty());
    assert!(matches!(store.agree(&id, Vec::new()), Err(StoreError::NoPlan { .. })));
}

#[test]
fn plans_that_wait_are_bounded() {
    let (_folder, store) = store();
    let plan = plan(&store);
    for number in 0..MOST_PENDING + 10 {
        let mut one = plan.clone();
        one.version = format!("1.0.{number}");
        store.wait_for_yes(&one).unwrap();
    }
    assert!(store.pending().len() <= MOST_PENDING);
}

#[test]
fn what_is_installed_is_remembered_and_removed_whole() {
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
fn a_server_without_its_variables_waits_for_them() {
    let (_folder, store) = store();
    let mut plan = plan(&store);
    plan.environment.push(metamcp_core::provision::Input {
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
fn a_broken_trust_file_grants_nothing_and_says_so() {
    let (folder, store) = store();
    assert!(store.trust().is_ok());
    let home = folder.path().join("home");
    std::fs::create_dir_all(&home).unwrap();
    std::fs::write(home.join("trusted.json"), "{").unwrap();
    assert!(store.trust().unwrap_err().contains("trusted.json"));
}
