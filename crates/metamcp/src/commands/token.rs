//! `metamcp token`: the generated bearer token for clients over HTTP, and the one that reads metrics.

use std::io::Write;

use metamcp_engine::config::Loaded;
use metamcp_engine::serve::http::access::{Generated, Purpose};
use serde_json::json;

use crate::args::TokenArgs;
use crate::exit::Exit;
use crate::render::visible;

/// Prints the token, generated if there is none yet, or replaced by a new one.
pub(crate) fn run(
    loaded: &Loaded,
    args: &TokenArgs,
    out: &mut dyn Write,
    diagnostics: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let home = &loaded.config.settings.home;
    let purpose = if args.metrics { Purpose::Metrics } else { Purpose::Clients };
    let token = match args.rotate {
        true => Generated::rotated(home, purpose)?,
        false => Generated::of(home, purpose)?,
    };
    if args.json {
        let told = json!({ "file": token.path, "token": token.expose(), "rotated": args.rotate });
        writeln!(out, "{told:#}")?;
    } else {
        writeln!(out, "{}", token.expose())?;
        if args.rotate {
            let path = visible(&token.path.display().to_string());
            let rest = match purpose {
                Purpose::Clients => {
                    "open streams stay open. `metamcp init --http` writes it into your clients."
                }
                Purpose::Metrics => "write it where your scraper reads it.",
            };
            writeln!(
                diagnostics,
                "This is the new token, stored in {path}. Running gateways accept it, and reject the old one, within 30 \
                 seconds; {rest}"
            )?;
        }
    }
    out.flush()?;
    Ok(Exit::Success)
}
