//! The hostile child: a correct MCP server over stdio that misbehaves on demand.
//! Owns: the table of hazards, the tools, the journal of what really ran.  Never: async, unsafe, unbounded.
//! In: `--do ITEM[=N][,ITEM…]`, `--journal FILE`, `--era` and when to misbehave.  Out: bytes no gateway should die of.
//! Tests: `tests/it/{honest,hazards}.rs`, and the hazard matrix of the gateway.

mod descendant;
mod hazards;
mod honest;
mod hooks;
mod message;
mod offers;
mod options;
mod output;
mod pages;
mod server;
mod server_state;
mod stateful;
mod stateless;
mod tasks;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

pub use hazards::{HAZARDS, Hazard, Parameter};
pub use options::{SelectedHazard, fires_by_odds};

use options::Mode;

/// Runs the child until stdin ends or a hazard ends it.
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let run = match options::parse(arguments) {
        Ok(Mode::Serve(options)) => server::serve(options),
        Ok(Mode::Descendant(descendant)) => descendant::run(&descendant),
        Ok(Mode::List) => list(&mut io::stdout()).map_err(Into::into),
        Err(error) => Err(error),
    };
    match run {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // With stderr closed as well there is nowhere left to report to.
            drop(writeln!(io::stderr(), "chaos-child: {error:#}"));
            ExitCode::from(2)
        }
    }
}

fn list(out: &mut impl Write) -> io::Result<()> {
    for hazard in HAZARDS {
        write!(out, "{:<28} {}", hazard.name, hazard.what)?;
        if let Some(parameter) = &hazard.parameter {
            write!(out, " (={}, default {})", parameter.what, parameter.default)?;
        }
        writeln!(out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_holds_every_hazard_once() {
        let mut names: Vec<&str> = HAZARDS.iter().map(|hazard| hazard.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 60, "names are unique");
    }

    #[test]
    fn the_list_names_hazards_and_parameters() {
        let mut out = Vec::new();
        list(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.lines().count(), 60);
        assert!(text.contains("die-before-reply"), "{text}");
        assert!(text.contains("(=milliseconds, default 90000)"), "{text}");
    }
}
