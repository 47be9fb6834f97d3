//! Landlock: denies files, network and scopes, and verifies each.

use std::fs::File;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetError,
    Scope,
};
use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::getppid;

use super::Report;
use crate::layer;

/// The newest Landlock ABI whose rights are denied. The crate skips what an older kernel does not support, and the
/// checks below detect that.
const RIGHTS: ABI = ABI::V6;

/// Denies everything and reports what is in force.
pub(super) fn restrict_all(report: &mut Report) {
    if let Err(error) = restrict() {
        let reason = error.to_string();
        for name in [layer::LANDLOCK_FILES, layer::LANDLOCK_NETWORK, layer::LANDLOCK_SCOPE] {
            report.note(name, Err(reason.clone()));
        }
        return;
    }
    report.note(layer::LANDLOCK_FILES, files());
    report.note(layer::LANDLOCK_NETWORK, network());
    report.note(layer::LANDLOCK_SCOPE, scope());
}

/// Whether the kernel can deny files. Restricts nothing.
pub(super) fn can_restrict_files() -> bool {
    Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(ABI::V1))
        .and_then(Ruleset::create)
        .is_ok()
}

/// A ruleset without a single rule.
fn restrict() -> Result<(), RulesetError> {
    Ruleset::default()
        .handle_access(AccessFs::from_all(RIGHTS))?
        .handle_access(AccessNet::from_all(RIGHTS))?
        .scope(Scope::from_all(RIGHTS))?
        .create()?
        .restrict_self()
        .map(drop)
}

fn files() -> Result<(), String> {
    for path in ["/", "/proc/self/status", "/dev/null"] {
        match File::open(path) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {}
            Err(error) => return Err(format!("opening {path} gives {error}")),
            Ok(_) => {
                return Err(format!(
                    "{path} can be opened; landlock needs Linux 5.13, and to be enabled"
                ));
            }
        }
    }
    Ok(())
}

fn network() -> Result<(), String> {
    let needs = "landlock knows the network since Linux 6.7";
    match TcpListener::bind((Ipv4Addr::LOCALHOST, 0)) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {}
        Err(error) => return Err(format!("binding a port gives {error}; {needs}")),
        Ok(_) => return Err(format!("a port can be bound; {needs}")),
    }
    match TcpStream::connect((Ipv4Addr::LOCALHOST, 1)) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(()),
        Err(error) => Err(format!("connecting gives {error}; {needs}")),
        Ok(_) => Err(format!("a connection can be made; {needs}")),
    }
}

fn scope() -> Result<(), String> {
    // Signal 0 to our parent, the gateway or the zygote. It has our user, so only the scope can deny it.
    match kill(getppid(), None) {
        Err(Errno::EPERM) => Ok(()),
        other => Err(format!(
            "signalling the parent gives {other:?}; landlock knows scopes since Linux 6.12"
        )),
    }
}
