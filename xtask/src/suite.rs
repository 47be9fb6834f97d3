//! Everything CI runs, as named steps with times; the same command for people and machines.
//! Owns: the order of the steps and the summary.      Never: stops at the first failure.
//! In: `--quick`, `--only STEP`.  Out: progress on stderr, the summary on stdout.
//! Tests: below.

use std::io::{self, Write};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::place::Place;
use crate::run::{self, Said};
use crate::{deny, real, tidy};

/// Histories the simulation plays in CI; the count at which its invariants are promised.
const SIM_SEEDS: &str = "100000";

/// How one step ended.
enum Ended {
    Fine { note: String, closing: Vec<String> },
    Skipped { why: String },
}

impl From<Said> for Ended {
    fn from(said: Said) -> Ended {
        Ended::Fine { note: String::new(), closing: said.closing }
    }
}

struct Step {
    name: &'static str,
    about: &'static str,
    /// Part of `--quick`: what one runs before every commit.
    quick: bool,
    run: fn(&Place, Extent) -> Result<Ended>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Extent {
    Quick,
    Whole,
}

/// Cheap steps first: most failures show within seconds.
const STEPS: &[Step] = &[
    Step { name: "fmt", about: "the format", quick: true, run: fmt },
    Step { name: "tidy", about: "the rules of the tree", quick: true, run: tidy_step },
    Step {
        name: "real",
        about: "real servers and clients, installed once",
        quick: false,
        run: install,
    },
    Step { name: "clippy", about: "lints, warnings are errors", quick: true, run: clippy },
    Step {
        name: "tests",
        about: "all tests; --quick leaves out the real servers",
        quick: true,
        run: tests,
    },
    Step { name: "doctests", about: "the examples in doc comments", quick: false, run: doctests },
    Step {
        name: "examples",
        about: "every config under examples/ passes the check",
        quick: false,
        run: examples,
    },
    Step { name: "sim", about: "the simulation with all its seeds", quick: false, run: sim },
    Step {
        name: "deny",
        about: "the policy on dependencies, where cargo-deny is installed",
        quick: false,
        run: deny_step,
    },
];

struct Outcome {
    step: &'static str,
    took: Duration,
    result: Result<Ended>,
}

pub(crate) fn run(place: &Place, options: &[String]) -> Result<()> {
    let (extent, steps) = chosen(options)?;
    let began = Instant::now();
    let mut outcomes = Vec::new();
    for step in steps {
        writeln!(io::stderr(), "\n== {}: {}", step.name, step.about)?;
        let began = Instant::now();
        let result = (step.run)(place, extent);
        if let Err(error) = &result {
            // The summary tells the whole of it.
            let first = format!("{error:#}").lines().next().unwrap_or_default().to_owned();
            writeln!(io::stderr(), "== {} failed: {first}", step.name)?;
        }
        outcomes.push(Outcome { step: step.name, took: began.elapsed(), result });
    }
    summary(&mut io::stdout(), &outcomes, began.elapsed())?;
    let failed: Vec<&str> = outcomes
        .iter()
        .filter(|outcome| outcome.result.is_err())
        .map(|outcome| outcome.step)
        .collect();
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}

fn chosen(options: &[String]) -> Result<(Extent, Vec<&'static Step>)> {
    let mut extent = Extent::Whole;
    let mut only = Vec::new();
    let mut options = options.iter();
    while let Some(option) = options.next() {
        match option.as_str() {
            "--quick" => extent = Extent::Quick,
            "--only" => {
                let name = options.next().context("--only needs the name of a step")?;
                only.push(named(name)?);
            }
            other => match other.strip_prefix("--only=") {
                Some(name) => only.push(named(name)?),
                None => bail!("test does not know {other:?}; it takes --quick and --only STEP"),
            },
        }
    }
    if only.is_empty() {
        only = STEPS.iter().filter(|step| extent == Extent::Whole || step.quick).collect();
    }
    Ok((extent, only))
}

fn named(name: &str) -> Result<&'static Step> {
    STEPS.iter().find(|step| step.name == name).with_context(|| {
        let known: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
        format!("there is no step {name:?}; the steps are {}", known.join(", "))
    })
}

/// One line per step, and under it the closing lines of its test runner.
fn summary(out: &mut impl Write, outcomes: &[Outcome], took: Duration) -> io::Result<()> {
    writeln!(out, "\n{:<10} {:<8} {:>9}", "step", "result", "time")?;
    for outcome in outcomes {
        let (verdict, note, closing) = match &outcome.result {
            Ok(Ended::Fine { note, closing }) => ("ok", note.as_str(), condensed(closing)),
            Ok(Ended::Skipped { why }) => ("skipped", why.as_str(), Vec::new()),
            Err(_) => ("FAILED", "", Vec::new()),
        };
        let line = format!(
            "{:<10} {verdict:<8} {:>7.1} s  {note}",
            outcome.step,
            outcome.took.as_secs_f64()
        );
        writeln!(out, "{}", line.trim_end())?;
        for line in closing {
            writeln!(out, "    {line}")?;
        }
        if let Err(error) = &outcome.result {
            writeln!(out, "    {}", format!("{error:#}").replace('\n', "\n    "))?;
        }
    }
    let failed = outcomes.iter().filter(|outcome| outcome.result.is_err()).count();
    let verdict = if failed == 0 { "all passed".to_owned() } else { format!("{failed} failed") };
    writeln!(out, "{} steps, {verdict}, {:.0} s", outcomes.len(), took.as_secs_f64())
}

/// libtest sums up each binary on its own; many of those become one line.
fn condensed(closing: &[String]) -> Vec<String> {
    let (libtest, mut rest): (Vec<&String>, Vec<&String>) =
        closing.iter().partition(|line| line.starts_with("test result:"));
    // nextest names a failure when it happens and again at the end.
    rest.dedup();
    let mut lines: Vec<String> = rest.into_iter().cloned().collect();
    if !libtest.is_empty() {
        let total = |what: &str| libtest.iter().map(|line| counted(line, what)).sum::<u64>();
        lines.push(format!(
            "test result: {} passed, {} failed, {} ignored, in {} binaries",
            total("passed"),
            total("failed"),
            total("ignored"),
            libtest.len()
        ));
    }
    lines
}

/// The number before a word of libtest's closing line.
fn counted(line: &str, what: &str) -> u64 {
    line.split([';', '.'])
        .filter_map(|piece| piece.trim().strip_suffix(what)?.trim().parse().ok())
        .next()
        .unwrap_or(0)
}

fn fine(note: impl Into<String>) -> Ended {
    Ended::Fine { note: note.into(), closing: Vec::new() }
}

fn fmt(place: &Place, _: Extent) -> Result<Ended> {
    run::loud(place.cargo().args(["fmt", "--all", "--check"]))
        .context("`cargo fmt` puts it right")?;
    Ok(fine(""))
}

fn tidy_step(place: &Place, _: Extent) -> Result<Ended> {
    Ok(fine(tidy::check(place)?))
}

fn install(place: &Place, _: Extent) -> Result<Ended> {
    Ok(fine(real::install(place)?))
}

fn clippy(place: &Place, _: Extent) -> Result<Ended> {
    run::loud(place.cargo().args([
        "clippy",
        "--workspace",
        "--all-targets",
        "--locked",
        "--",
        "--deny",
        "warnings",
    ]))?;
    Ok(fine(""))
}

fn tests(place: &Place, extent: Extent) -> Result<Ended> {
    let mut command = place.cargo();
    if run::quiet(place.cargo().args(["nextest", "--version"])).is_ok() {
        command.args(["nextest", "run", "--workspace", "--locked", "--no-fail-fast"]);
        if extent == Extent::Quick {
            command.args(["--filterset", "not binary(real)"]);
        }
    } else {
        command.args(["test", "--workspace", "--locked", "--no-fail-fast"]);
        match extent {
            // Not naming the kind of target would run the doctests too; they are a step of their own.
            Extent::Whole => command.arg("--tests"),
            Extent::Quick => {
                command.args(["--lib", "--bins"]);
                for name in integration_tests(place).filter(|name| *name != "real") {
                    command.args(["--test", name]);
                }
                &mut command
            }
        };
    }
    Ok(run::loud(&mut command)?.into())
}

/// The names of all integration test binaries of the workspace.
fn integration_tests(place: &Place) -> impl Iterator<Item = &str> {
    let packages = place.metadata["packages"].as_array().into_iter().flatten();
    let targets = packages.flat_map(|package| package["targets"].as_array().into_iter().flatten());
    targets
        .filter(|target| {
            target["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "test"))
        })
        .filter_map(|target| target["name"].as_str())
}

fn doctests(place: &Place, _: Extent) -> Result<Ended> {
    Ok(run::loud(place.cargo().args(["test", "--workspace", "--locked", "--doc"]))?.into())
}

fn examples(place: &Place, _: Extent) -> Result<Ended> {
    let mut configs: Vec<_> = std::fs::read_dir(place.root.join("examples"))
        .context("cannot read examples/")?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    configs.retain(|path| path.extension().is_some_and(|end| end == "json" || end == "jsonc"));
    configs.sort();
    if configs.is_empty() {
        bail!("examples/ holds no config");
    }
    // With the features that all of the workspace needs together, as the tests built it; alone it would be built again.
    run::quiet(place.cargo().args(["build", "--workspace", "--locked", "--bin", "metamcp"]))?;
    let program = place.target.join("debug/metamcp");
    for config in &configs {
        run::quiet(Command::new(&program).args(["config", "check", "--config"]).arg(config))?;
    }
    Ok(fine(format!("{} configs", configs.len())))
}

fn sim(place: &Place, _: Extent) -> Result<Ended> {
    let mut command = place.cargo();
    command.args(["test", "--locked", "--workspace", "--test", "sim"]).env("SIM_SEEDS", SIM_SEEDS);
    Ok(run::loud(&mut command)?.into())
}

fn deny_step(place: &Place, _: Extent) -> Result<Ended> {
    if !deny::is_installed(place) {
        return Ok(Ended::Skipped { why: "cargo-deny is not installed".to_owned() });
    }
    deny::check(place)?;
    Ok(fine(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(options: &[&str]) -> Result<Vec<&'static str>> {
        let options: Vec<String> = options.iter().map(ToString::to_string).collect();
        Ok(chosen(&options)?.1.iter().map(|step| step.name).collect())
    }

    #[test]
    fn options_choose_the_steps() {
        assert_eq!(names(&[]).unwrap().len(), STEPS.len());
        assert_eq!(names(&["--quick"]).unwrap(), ["fmt", "tidy", "clippy", "tests"]);
        assert_eq!(names(&["--only", "sim", "--only=fmt"]).unwrap(), ["sim", "fmt"]);
        let wrong = names(&["--only", "sin"]).unwrap_err().to_string();
        assert!(wrong.contains("sin") && wrong.contains("doctests"), "{wrong}");
        assert!(names(&["--only"]).is_err());
        assert!(names(&["--fast"]).is_err());
    }

    #[test]
    fn the_summary_shows_closing_lines_failures_and_skips() {
        let lines = |text: &[&str]| text.iter().map(ToString::to_string).collect::<Vec<_>>();
        let outcome = |step, result| Outcome { step, took: Duration::from_millis(1500), result };
        let outcomes = [
            outcome(
                "tests",
                Ok(Ended::Fine {
                    note: String::new(),
                    closing: lines(&["Summary [ 1.0s] 7 tests run: 7 passed, 0 skipped"]),
                }),
            ),
            outcome(
                "doctests",
                Ok(Ended::Fine {
                    note: String::new(),
                    closing: lines(&[
                        "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out",
                        "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out",
                    ]),
                }),
            ),
            outcome("sim", Err(anyhow::anyhow!("seed 7 failed"))),
            outcome("deny", Ok(Ended::Skipped { why: "not installed".to_owned() })),
        ];
        let mut out = Vec::new();
        summary(&mut out, &outcomes, Duration::from_secs(6)).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "
step       result        time
tests      ok           1.5 s
    Summary [ 1.0s] 7 tests run: 7 passed, 0 skipped
doctests   ok           1.5 s
    test result: 15 passed, 0 failed, 1 ignored, in 2 binaries
sim        FAILED       1.5 s
    seed 7 failed
deny       skipped      1.5 s  not installed
4 steps, 1 failed, 6 s
"
        );
    }
}
