//! Everything CI runs, as named and timed steps; the same command for people and machines.
//! Owns: the order of the steps and the summary.      Never: stops at the first failure.
//! In: `--quick`, `--only STEP`; `--windows` is a run of its own.  Out: progress on stderr, the summary on stdout.
//! Tests: below.

use std::io::{self, Write};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::run::{self, CapturedOutput};
use crate::times::{self, Row};
use crate::workspace::{FEATURES, PACKAGED, Workspace};
use crate::{deny, hardened, oldest, real, tidy, windows, workflows};

/// Time budget of a full run on two otherwise idle cores, from an empty build folder. Exceeding it is reported, not an
/// error.
const BUDGET: Duration = Duration::from_mins(20);

/// Seeds for the simulation in CI; the count for which its invariants are documented.
const SIM_SEEDS: &str = "100000";
/// The same for the simulation of a fleet.
const FLEET_SEEDS: &str = "100000";

/// The tests that need what the step `real` installs; `--quick` leaves them out.
const INSTALLED: [&str; 2] = ["real", "fleet"];

/// The outcome of a step that did not fail.
enum StepStatus {
    Passed {
        note: String,
        closing: Vec<String>,
        binaries: Vec<String>,
    },
    /// What could be checked is fine, but something could not be checked.
    Partly {
        note: String,
    },
    Skipped {
        why: String,
    },
}

impl From<CapturedOutput> for StepStatus {
    fn from(said: CapturedOutput) -> StepStatus {
        StepStatus::Passed { note: String::new(), closing: said.closing, binaries: said.binaries }
    }
}

struct Step {
    name: &'static str,
    about: &'static str,
    /// Part of `--quick`: run before every commit.
    quick: bool,
    run: fn(&Workspace, Extent) -> Result<StepStatus>,
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
        name: "workflows",
        about: "the workflows of CI and releases, by actionlint and zizmor",
        quick: false,
        run: workflows_step,
    },
    Step {
        name: "real",
        about: "real servers and clients, installed once",
        quick: false,
        run: install,
    },
    Step {
        name: "engine",
        about: "the engine of scripts as WASM, made once; where it is, its tests are among the others",
        quick: false,
        run: engine,
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
        about: "the policy on dependencies, and advisories against them",
        quick: false,
        run: deny_step,
    },
    Step {
        name: "oldest",
        about: "the oldest supported compiler, where it is installed",
        quick: false,
        run: oldest_step,
    },
];

struct StepResult {
    step: &'static str,
    took: Duration,
    result: Result<StepStatus>,
}

pub(crate) fn run(workspace: &Workspace, options: &[String]) -> Result<()> {
    if let Some((first, rest)) = options.split_first()
        && first == "--windows"
    {
        return windows::run(workspace, rest);
    }
    let (extent, steps) = chosen(options)?;
    let began = Instant::now();
    let mut outcomes = Vec::new();
    for step in steps {
        writeln!(io::stderr(), "\n== {}: {}", step.name, step.about)?;
        let began = Instant::now();
        let result = (step.run)(workspace, extent);
        if let Err(error) = &result {
            // The summary has the full error.
            let first = format!("{error:#}").lines().next().unwrap_or_default().to_owned();
            writeln!(io::stderr(), "== {} failed: {first}", step.name)?;
        }
        outcomes.push(StepResult { step: step.name, took: began.elapsed(), result });
    }
    let mut out = io::stdout();
    times::write(&mut out, &tests_by_binary(workspace, &outcomes))?;
    summary(&mut out, &outcomes, began.elapsed())?;
    if extent == Extent::Whole && began.elapsed() > BUDGET {
        writeln!(out, "that is above the {} minutes of two quiet cores", BUDGET.as_secs() / 60)?;
    }
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
fn summary(out: &mut impl Write, outcomes: &[StepResult], took: Duration) -> io::Result<()> {
    writeln!(out, "\n{:<10} {:<8} {:>9}", "step", "result", "time")?;
    for outcome in outcomes {
        let (verdict, note, closing) = match &outcome.result {
            Ok(StepStatus::Passed { note, closing, .. }) => {
                ("ok", note.as_str(), condensed(closing))
            }
            Ok(StepStatus::Partly { note }) => ("PARTLY", note.as_str(), Vec::new()),
            Ok(StepStatus::Skipped { why }) => ("skipped", why.as_str(), Vec::new()),
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
    let open =
        |outcome: &&StepResult| !matches!(outcome.result, Ok(StepStatus::Passed { .. }) | Err(_));
    let verdict = match (failed, outcomes.iter().filter(open).count()) {
        (0, 0) => "all passed".to_owned(),
        (0, open) => format!("none failed, {open} not wholly checked"),
        (failed, _) => format!("{failed} failed"),
    };
    writeln!(out, "{} steps, {verdict}, {:.0} s", outcomes.len(), took.as_secs_f64())
}

/// Merges libtest's summaries, one per binary, into one line.
fn condensed(closing: &[String]) -> Vec<String> {
    let (libtest, mut rest): (Vec<&String>, Vec<&String>) =
        closing.iter().partition(|line| line.starts_with("test result:"));
    // nextest reports a failure when it happens and again at the end.
    rest.dedup();
    let mut lines: Vec<String> = rest.into_iter().cloned().collect();
    if !libtest.is_empty() {
        let total =
            |what: &str| libtest.iter().map(|line| times::counted(line, what)).sum::<usize>();
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

fn passed(note: impl Into<String>) -> StepStatus {
    StepStatus::Passed { note: note.into(), closing: Vec::new(), binaries: Vec::new() }
}

fn fmt(workspace: &Workspace, _: Extent) -> Result<StepStatus> {
    run::loud(workspace.cargo().args(["fmt", "--all", "--check"]))
        .context("`cargo fmt` puts it right")?;
    Ok(passed(""))
}

fn tidy_step(workspace: &Workspace, _: Extent) -> Result<StepStatus> {
    Ok(passed(tidy::check(workspace)?))
}

fn workflows_step(workspace: &Workspace, _: Extent) -> Result<StepStatus> {
    Ok(passed(workflows::check(workspace)?))
}

fn install(workspace: &Workspace, _: Extent) -> Result<StepStatus> {
    Ok(passed(real::install(workspace)?))
}

fn engine(workspace: &Workspace, _: Extent) -> Result<StepStatus> {
    hardened::ready(workspace)?;
    Ok(passed(""))
}

/// What packages turn on, or what of it needs nothing but a compiler, where nobody made the engine of scripts as WASM.
fn features(workspace: &Workspace) -> [&'static str; 2] {
    if hardened::is_ready(workspace) { PACKAGED } else { FEATURES }
}

fn clippy(workspace: &Workspace, _: Extent) -> Result<StepStatus> {
    let what = ["clippy", "--workspace", "--all-targets", "--locked"];
    let denied = ["--", "--deny", "warnings"];
    run::loud(workspace.cargo().args(what).args(features(workspace)).args(denied))?;
    Ok(passed(""))
}

fn tests(workspace: &Workspace, extent: Extent) -> Result<StepStatus> {
    let mut command = workspace.cargo();
    times::forget_report(&workspace.root)?;
    if run::quiet(workspace.cargo().args(["nextest", "--version"])).is_ok() {
        command.args(["nextest", "run", "--workspace", "--locked", "--no-fail-fast"]);
        command.args(features(workspace));
        command.args(["--test-threads", &at_once()]);
        if extent == Extent::Quick {
            let installed = INSTALLED.map(|name| format!("binary({name})")).join(" or ");
            command.args(["--filterset", &format!("not ({installed})")]);
        }
    } else {
        command
            .args(["test", "--workspace", "--locked", "--no-fail-fast"])
            .args(features(workspace));
        match extent {
            // Without `--tests` the doctests would run too; they are a step of their own.
            Extent::Whole => command.arg("--tests"),
            Extent::Quick => {
                command.args(["--lib", "--bins"]);
                for name in integration_tests(workspace).filter(|name| !INSTALLED.contains(name)) {
                    command.args(["--test", name]);
                }
                &mut command
            }
        };
    }
    Ok(run::loud(&mut command)?.into())
}

/// Two tests per core: most of the long ones wait for processes and deadlines.
fn at_once() -> String {
    (2 * std::thread::available_parallelism().map_or(1, usize::from)).to_string()
}

/// The times of the tests, if they ran: from nextest's report, which a failed run leaves too, or from libtest's output.
fn tests_by_binary(workspace: &Workspace, outcomes: &[StepResult]) -> Vec<Row> {
    let Some(tests) = outcomes.iter().find(|outcome| outcome.step == "tests") else {
        return Vec::new();
    };
    match (times::report(&workspace.root), &tests.result) {
        (Some(report), _) => times::of_report(&report),
        (None, Ok(StepStatus::Passed { binaries, .. })) => times::of_libtest(binaries),
        (None, _) => Vec::new(),
    }
}

/// The names of all integration test binaries of the workspace.
fn integration_tests(workspace: &Workspace) -> impl Iterator<Item = &str> {
    let packages = workspace.metadata["packages"].as_array().into_iter().flatten();
    let targets = packages.flat_map(|package| package["targets"].as_array().into_iter().flatten());
    targets
        .filter(|target| {
            target["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "test"))
        })
        .filter_map(|target| target["name"].as_str())
}

fn doctests(workspace: &Workspace, _: Extent) -> Result<StepStatus> {
    let what = ["test", "--workspace", "--locked", "--doc"];
    Ok(run::loud(workspace.cargo().args(what).args(features(workspace)))?.into())
}

fn examples(workspace: &Workspace, _: Extent) -> Result<StepStatus> {
    let mut configs: Vec<_> = std::fs::read_dir(workspace.root.join("examples"))
        .context("cannot read examples/")?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    configs.retain(|path| path.extension().is_some_and(|end| end == "json" || end == "jsonc"));
    configs.sort();
    if configs.is_empty() {
        bail!("examples/ holds no config");
    }
    // Build it as part of the tests, with the features they enable; alone it would be rebuilt with most of its
    // dependencies. Any test of the program builds it.
    let build = ["test", "--workspace", "--locked", "--no-run", "--test", "config"];
    run::quiet(workspace.cargo().args(build).args(features(workspace)))?;
    let program = workspace.target.join("debug/metamcp");
    for config in &configs {
        run::quiet(Command::new(&program).args(["config", "check", "--config"]).arg(config))?;
    }
    Ok(passed(format!("{} configs", configs.len())))
}

fn sim(workspace: &Workspace, _: Extent) -> Result<StepStatus> {
    let mut command = workspace.cargo();
    let tests = ["--test", "sim", "--test", "connector_sim"];
    command.args(["test", "--locked", "--workspace"]).args(features(workspace)).args(tests);
    command.env("SIM_SEEDS", SIM_SEEDS).env("FLEET_SEEDS", FLEET_SEEDS);
    Ok(run::loud(&mut command)?.into())
}

fn deny_step(workspace: &Workspace, _: Extent) -> Result<StepStatus> {
    let advisories = deny::check(workspace)?;
    let note = advisories.to_string();
    Ok(if advisories == deny::Advisories::Unchecked {
        StepStatus::Partly { note }
    } else {
        passed(note)
    })
}

fn oldest_step(workspace: &Workspace, _: Extent) -> Result<StepStatus> {
    Ok(match oldest::check(workspace)? {
        oldest::Checked::IsThisOne(version) => {
            passed(format!("all steps ran with {version}, which is the oldest"))
        }
        oldest::Checked::Compiles(toolchain) => {
            passed(format!("everything compiles with {toolchain}"))
        }
        oldest::Checked::NotHere(version) => StepStatus::Skipped {
            why: format!(
                "NOT CHECKED: {version} is not installed; `rustup toolchain install {version}` gets it"
            ),
        },
    })
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
        let outcome = |step, result| StepResult { step, took: Duration::from_millis(1500), result };
        let outcomes = [
            outcome(
                "tests",
                Ok(StepStatus::Passed {
                    note: String::new(),
                    closing: lines(&["Summary [ 1.0s] 7 tests run: 7 passed, 0 skipped"]),
                    binaries: Vec::new(),
                }),
            ),
            outcome(
                "doctests",
                Ok(StepStatus::Passed {
                    note: String::new(),
                    closing: lines(&[
                        "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out",
                        "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out",
                    ]),
                    binaries: Vec::new(),
                }),
            ),
            outcome("sim", Err(anyhow::anyhow!("seed 7 failed"))),
            outcome("deny", Ok(StepStatus::Partly { note: "NOT CHECKED: a".to_owned() })),
            outcome("oldest", Ok(StepStatus::Skipped { why: "not installed".to_owned() })),
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
deny       PARTLY       1.5 s  NOT CHECKED: a
oldest     skipped      1.5 s  not installed
5 steps, 1 failed, 6 s
"
        );
    }
}
