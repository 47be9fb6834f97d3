//! The project's tasks, one command each. `cargo xtask` lists them; CONTRIBUTING.md says when to use which.

#![expect(clippy::disallowed_methods, reason = "development tools start programs and measure")]

mod bench;
mod codegen;
mod coverage;
mod cross;
mod deny;
mod dist;
mod eval;
mod fuzz;
mod gallery;
mod hardened;
mod notes;
mod oldest;
mod openapi;
mod pictures;
mod real;
mod run;
mod suite;
mod tidy;
mod times;
mod tokens;
mod tools;
mod train;
mod windows;
mod workflows;
mod workspace;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::workspace::Workspace;

/// One task: its command, its summary and its function.
struct Task {
    name: &'static str,
    options: &'static str,
    about: &'static str,
    run: fn(&Workspace, &[String]) -> Result<()>,
}

/// A new task is one line here and one module beside this file.
const TASKS: &[Task] = &[
    Task {
        name: "test",
        options: "[--quick] [--only STEP]... | --windows [--kills N] [NAME]...",
        about: "everything CI runs: real servers installed, format, lints, tidy, workflows, all tests, simulation, dependencies, the oldest compiler; with --windows, the tests of the Windows build under Wine",
        run: suite::run,
    },
    Task {
        name: "tidy",
        options: "",
        about: "the rules of this tree that the compiler cannot see",
        run: tidy::run,
    },
    Task {
        name: "codegen",
        options: "[--check]",
        about: "writes the generated pages under docs/; with --check only compares them",
        run: codegen::run,
    },
    Task {
        name: "pictures",
        options: "",
        about: "takes the pictures of the documentation from the last run of the page's tests",
        run: pictures::run,
    },
    Task {
        name: "deny",
        options: "[--advisories]",
        about: "licences, bans, sources and advisories of all dependencies, by cargo-deny; with --advisories fails unless today's could be fetched",
        run: deny::run,
    },
    Task {
        name: "fuzz",
        options: "[TARGET]... [--seconds N]",
        about: "each fuzz target for a while, by cargo-fuzz",
        run: fuzz::run,
    },
    Task {
        name: "coverage",
        options: "",
        about: "which lines the tests reach, by cargo-llvm-cov; writes target/coverage",
        run: coverage::run,
    },
    Task {
        name: "bench",
        options: "[--quick] [--only ROW]... | [--clients] [--warm] [--binary BINARY]",
        about: "direct, byte-copy relay and metamcp in one run; writes docs/benchmarks.md; with --clients, what five clients cost with the daemon and without, with --warm, what its connector costs",
        run: bench::run,
    },
    Task {
        name: "tokens",
        options: "[--against BINARY] [--binary BINARY] [--rounds N] [--only PART]... [--transcript] [--json] [--check] | --record",
        about: "what the tool surface costs a model: lists, searches and conversations, over recorded and real servers; writes docs/tokens.md",
        run: tokens::run,
    },
    Task {
        name: "hardened",
        options: "[--twice] [--target TRIPLE]...",
        about: "the engine as WASM, for builds with the feature `hardened`, for all systems or those named; with --twice compares two builds",
        run: hardened::run,
    },
    Task {
        name: "notes",
        options: "TAG [--repository ADDRESS]",
        about: "what CHANGELOG.md says of the version of a tag; fails unless that is the version of this tree",
        run: notes::run,
    },
    Task {
        name: "dist",
        options: "[--target T]... [--binaries FOLDER] [--twice] [--test [--only TRIAL]...]",
        about: "everything that is released: archives, packages of npm, PyPI and Debian, an image, manifests, install scripts; with --twice compares two runs, with --test installs each and uses it",
        run: dist::run,
    },
    Task {
        name: "cross",
        options: "[TARGET]... [--profile PROFILE] [--plain] | --test [FILTER] [--arm64]",
        about: "the binary with all features for Linux (static), Windows and macOS, in a root folder of its own with the compilers, as root; with --test, the tests of this machine against the static build, with --arm64 against that of arm64 under qemu",
        run: cross::run,
    },
    Task {
        name: "gallery",
        options: "[--only NAME]... [--missing] [--check] [--binary BINARY]",
        about: "installs and starts the servers of the gallery in the sandbox, and writes down what they list; with --missing those never checked, with --check only says what changed",
        run: gallery::run,
    },
    Task {
        name: "train",
        options: "FOLDER [--floor]",
        about: "fits the weights of the hybrid ranking on the sets in FOLDER and writes them into the tree; with --floor, shows from which chance on a tool answers a need",
        run: train::run,
    },
    Task {
        name: "eval",
        options: "[FOLDER] [--quick | --cut] [--scale TOOLS]",
        about: "how well tools are found on the sets in FOLDER or METAMCP_DATA, at which cost; writes docs/search.md",
        run: eval::run,
    },
    Task {
        name: "openapi",
        options: "[FILE]...",
        about: "reads published descriptions of APIs, or those named, as the gateway does, and checks every schema; writes the table of docs/openapi.md",
        run: openapi::run,
    },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match chosen(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // With stderr closed there is nobody left to tell; the exit code still reports it.
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
    let Some(task) = TASKS.iter().find(|task| task.name == name) else {
        usage(&mut io::stderr())?;
        bail!("there is no chore named {name:?}");
    };
    if options.iter().any(|option| option == "-h" || option == "--help") {
        writeln!(io::stdout(), "cargo xtask {} {}\n\n{}", task.name, task.options, task.about)?;
        return Ok(());
    }
    (task.run)(&Workspace::find()?, options)
}

fn usage(out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "cargo xtask CHORE\n")?;
    for task in TASKS {
        let typed = format!("{} {}", task.name, task.options);
        writeln!(out, "  {typed:<42}{}", task.about)?;
    }
    Ok(())
}
