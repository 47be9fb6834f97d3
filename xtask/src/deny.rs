//! The policy on dependencies (deny.toml), checked by cargo-deny where it is installed.
//! Owns: how cargo-deny is called.      Never: holds the policy.
//! In: `--advisories`.  Out: cargo-deny's verdict.
//! Tests: none; it is one command.

use anyhow::{Result, bail};

use crate::place::Place;
use crate::run;

pub(crate) fn run(place: &Place, options: &[String]) -> Result<()> {
    let advisories = match options {
        [] => false,
        [only] if only == "--advisories" => true,
        _ => bail!("deny takes --advisories or nothing"),
    };
    if !is_installed(place) {
        bail!("cargo-deny is not installed; `cargo install cargo-deny --locked` gets it");
    }
    check(place)?;
    if advisories {
        // Apart from the rest because it downloads the advisory database.
        run::loud(place.cargo().args(["deny", "--locked", "check", "advisories"]))?;
    }
    Ok(())
}

/// Licences, bans and sources: all that needs no network.
pub(crate) fn check(place: &Place) -> Result<()> {
    run::loud(place.cargo().args(["deny", "--locked", "check", "bans", "licenses", "sources"]))?;
    Ok(())
}

pub(crate) fn is_installed(place: &Place) -> bool {
    run::quiet(place.cargo().args(["deny", "--version"])).is_ok()
}
