//! `metamcp ui`: opens the page of the daemon in a browser.
//! Owns: the start of a daemon if there is none, the link, the browser.      Never: serves the page (the daemon does).
//! In: the folder, flags and variables the page is about.  Out: the link, once.
//! Tests: `tests/daemon/page.rs`, `tests/real/page.rs`.

use std::io::Write;

use anyhow::{Context, bail};
use metamcp_config::settings::DaemonMode;
use metamcp_wire::local::{Kind, MAX_HELLO};
use serde_json::json;

use super::auth;
use super::daemon_client::{self, Absent, Admin, Answered};
use super::remote::shell;
use crate::args::UiArgs;
use crate::exit::Exit;
use crate::render::{DIM, styled};
use crate::{ConfigRequest, cannot_load, prompt};

pub(crate) fn run(
    config_request: &ConfigRequest,
    args: &UiArgs,
    out: &mut dyn Write,
    diagnostics: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let loaded = match crate::load(config_request.flags.clone())? {
        Ok(loaded) => loaded,
        Err(error) => return cannot_load(&error, args.json),
    };
    let settings = &loaded.config.settings;
    if settings.daemon.mode == DaemonMode::Off {
        bail!(
            "the page is the daemon's, and the configuration says `daemon.mode: off`; `--daemon auto` overrides it"
        );
    }
    let hello = shell::hello_of(Kind::Admin, &config_request.flags);
    let hello = hello.context("the working directory is not known, or is not UTF-8")?.to_line();
    anyhow::ensure!(hello.len() <= MAX_HELLO, "the environment is too large for the daemon");
    let home = &settings.home;
    let admin = match Admin::introduced(home, &hello)? {
        Err(Absent::NotRunning) => {
            daemon_client::start(home)?;
            Admin::introduced(home, &hello)?
        }
        known => known,
    };
    let mut admin = match admin {
        Ok(admin) => admin,
        Err(absent) => bail!("{absent}"),
    };
    // Approvals on the page count as a person's only if a person could have asked for it.
    let params = json!({ "person": prompt::is_there() });
    let link = match admin.ask("page.open", &params)? {
        Answered::Value(link) => link,
        Answered::Refused(refused) => bail!("{refused}"),
    };
    let url = link["url"].as_str().context("the daemon gave no link")?;
    if args.json {
        writeln!(out, "{link:#}")?;
    } else if args.no_open {
        writeln!(out, "{url}")?;
        writeln!(diagnostics, "{}", styled(DIM, "It works once, and for a minute."))?;
    } else {
        writeln!(out, "Opening {url}")?;
        writeln!(diagnostics, "{}", styled(DIM, "The link works once, and for a minute."))?;
    }
    out.flush()?;
    if !args.no_open && !args.json {
        auth::open(url);
    }
    Ok(Exit::Success)
}
