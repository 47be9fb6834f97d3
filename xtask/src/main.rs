//! The project's chores, one command each. `cargo xtask` lists them; CONTRIBUTING.md says when to use which.

mod bench;
mod codegen;
mod deny;
mod eval;
mod hardened;
mod place;
mod real;
mod run;
mod suite;
mod tidy;
mod train;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::place::Place;

/// One chore: what a person types, what it is for, and the function that does it.
struct Chore {
    name: &'static str,
    options: &'static str,
    about: &'static str,
    run: fn(&Place, &[String]) -> Result<()>,
}

/// A new chore is one line here and one room beside this file.
const CHORES: &[Chore] = &[
    Chore {
        name: "test",
        options: "[--quick] [--only STEP]...",
        about: "everything CI runs: real servers installed, format, lints, tidy, all tests, simulation",
        run: suite::run,
    },
    Chore {
        name: "tidy",
        options: "",
        about: "the rules of this tree that the compiler cannot see",
        run: tidy::run,
    },
    Chore {
        name: "codegen",
        options: "[--check]",
        about: "writes the generated pages under docs/; with --check only compares them",
        run: codegen::run,
    },
    Chore {
        name: "deny",
        options: "[--advisories]",
        about: "licences, bans and sources of all dependencies, by cargo-deny",
        run: deny::run,
    },
    Chore {
        name: "bench",
        options: "[--quick] [--only ROW]...",
        about: "direct, byte-copy relay and metamcp in one run; writes docs/benchmarks.md",
        run: bench::run,
    },
    Chore {
        name: "hardened",
        options: "[--twice]",
        about: "the engine as WASM, for builds with the feature `hardened`; with --twice compares two builds",
        run: hardened::run,
    },
    Chore {
        name: "train",
        options: "FOLDER [--floor]",
        about: "fits the weights of the hybrid ranking on the sets in FOLDER and writes them into the tree; with --floor, shows from which chance on a tool answers a need",
        run: train::run,
    },
    Chore {
        name: "eval",
        options: "[FOLDER] [--quick] [--scale TOOLS]",
        about: "how well tools are found on the sets in FOLDER or METAMCP_DATA, at which cost; writes docs/search.md",
        run: eval::run,
    },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match chosen(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // With stderr gone there is nobody left to tell; the exit code still says it.
            drop(writeln!(io::stderr(), "xtask: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn chosen(arguments: &[String]) -> Result<()> {
    let Some((name, options)) = arguments.split_first() else {
        return Ok(usage(&mut io::stdout())?);
    };
    if matches!(name.as_str(), "help" | "-h" | "--help") {
        return Ok(usage(&mut io::stdout())?);
    }
    let Some(chore) = CHORES.iter().find(|chore| chore.name == name) else {
        usage(&mut io::stderr())?;
        bail!("there is no chore named {name:?}");
    };
    if options.iter().any(|option| option == "-h" || option == "--help") {
        writeln!(io::stdout(), "cargo xtask {} {}\n\n{}", chore.name, chore.options, chore.about)?;
        return Ok(());
    }
    (chore.run)(&Place::find()?, options)
}

fn usage(out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "cargo xtask CHORE\n")?;
    for chore in CHORES {
        let typed = format!("{} {}", chore.name, chore.options);
        writeln!(out, "  {typed:<42}{}", chore.about)?;
    }
    Ok(())
}
