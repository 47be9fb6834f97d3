//! Servers that are installed take nobody's place.

use metamcp_core::provision::{Kind, Verdict, builtin};
use metamcp_core::settings::ProvisionSettings;

use super::*;

fn provisioner(home: &Path) -> Provisioner {
    let settings = ProvisionSettings { registries: "none".to_owned(), ..Default::default() };
    Provisioner::new(home, &settings, Box::new(|_| {}))
}

/// A service elsewhere: nothing has to be fetched for it.
fn plan(provisioner: &Provisioner, server: &str, url: &str) -> Plan {
    let mut candidate = builtin().remove(1);
    candidate.offer.kind = Kind::Remote;
    candidate.offer.identifier = url.to_owned();
    candidate.offer.version = String::new();
    candidate.offer.environment.clear();
    let facts = Facts { exists: true, ..Facts::default() };
    let prefix = provisioner.store.prefix(&candidate.package());
    Plan::new(server.to_owned(), &candidate, &facts, Verdict::default(), &prefix, Ok(()))
}

#[tokio::test]
async fn an_installed_server_takes_the_place_of_no_other() {
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
async fn two_processes_do_not_install_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let provisioner = provisioner(&folder.path().join("home"));
    let plan = plan(&provisioner, "notes", "https://one.example.com/mcp");
    let consent = plan.complete(&[]).unwrap();
    let other = provisioner.store.turnstile().unwrap();
    other.lock().unwrap();
    let busy = provisioner.install(&plan, &consent, &|_| false).await;
    assert!(matches!(busy, Err(InstallError::Busy)));
    drop(other);
    provisioner.install(&plan, &consent, &|_| false).await.unwrap();
}
