//! `metamcp doctor`: what is wrong, and what to do about it.
//! Owns: the order of the examinations, how findings look, the exit code.      Never: changes anything without `--fix`, or anything that is not ours with it.
//! In: the configuration, or why there is none.  Out: findings, each with its cure.
//! Tests: `tests/config/doctor.rs`.

mod installed;
mod machine;
mod tried;

use std::io::Write;

use metamcp_core::config::Severity;
use metamcp_engine::config::{LoadError, Loaded};
use serde_json::{Value, json};

use crate::args::DoctorArgs;
use crate::commands::auth::{self, Stands};
use crate::exit::Exit;
use crate::render::{self, DIM, GREEN, RED, YELLOW, plural, styled, visible};

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    Good,
    Note,
    Warning,
    Problem,
}

impl Level {
    fn word(self) -> &'static str {
        match self {
            Level::Good => "good",
            Level::Note => "note",
            Level::Warning => "warning",
            Level::Problem => "problem",
        }
    }
}

/// One thing that was found.
#[derive(Debug, Clone)]
pub(crate) struct Finding {
    level: Level,
    area: &'static str,
    message: String,
    /// What to do about it.
    cure: Option<String>,
    /// Last words of a process, line by line.
    lines: Vec<String>,
    millis: Option<u128>,
    fixed: bool,
}

impl Finding {
    fn new(level: Level, area: &'static str, message: impl Into<String>) -> Finding {
        let message = message.into();
        Finding { level, area, message, cure: None, lines: Vec::new(), millis: None, fixed: false }
    }

    fn cure(mut self, cure: impl Into<String>) -> Finding {
        self.cure = Some(cure.into());
        self
    }

    /// It was mended: nothing is left to do.
    fn mended(mut self) -> Finding {
        self.fixed = true;
        self
    }

    fn json(&self) -> Value {
        json!({
            "level": self.level.word(),
            "area": self.area,
            "message": self.message,
            "cure": self.cure,
            "stderr": self.lines,
            "took_ms": self.millis.map(|millis| u64::try_from(millis).unwrap_or(u64::MAX)),
            "fixed": self.fixed,
        })
    }
}

/// Examines everything.
pub(crate) fn run(
    loaded: &Result<Loaded, LoadError>,
    args: &DoctorArgs,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let mut findings = vec![machine::version()];
    let unusable;
    match loaded {
        Ok(loaded) => {
            findings.extend(configuration(loaded, args.fix));
            unusable = loaded.source.path().is_none();
            // What a registry took back is kept from use before it would be tried.
            let of_registries = installed::registries(loaded)?;
            let (tried, missing) = tried::servers(loaded)?;
            findings.extend(machine::programs(&loaded.config, &missing));
            findings.extend(machine::clients());
            findings.extend(of_registries);
            findings.extend(tried);
            findings.extend(logins(loaded)?);
            findings.extend(installed::servers(loaded)?);
            findings.extend(machine::cache(&loaded.config.settings.home, args.fix));
            findings.extend(machine::model(&loaded.config.settings));
        }
        Err(error) => {
            unusable = true;
            let mut told = Vec::new();
            render::load_error(&mut told, error)?;
            let told = anstream::adapter::strip_bytes(&told).into_vec();
            let told = String::from_utf8_lossy(&told).trim_end().to_owned();
            let cure = "mend the file; `metamcp config check` shows the same";
            findings.push(Finding::new(Level::Problem, "config", told).cure(cure));
            findings.extend(machine::clients());
        }
    }
    findings.extend(machine::left_behind());
    let count =
        |level| findings.iter().filter(|finding| finding.level == level && !finding.fixed).count();
    let (problems, warnings) = (count(Level::Problem), count(Level::Warning));
    if args.json {
        let all: Vec<Value> = findings.iter().map(Finding::json).collect();
        let told = json!({ "problems": problems, "warnings": warnings, "findings": all });
        writeln!(out, "{told:#}")?;
    } else {
        show(&findings, out)?;
        let (problems, warnings) = (plural(problems, "problem"), plural(warnings, "warning"));
        writeln!(out, "\n{problems}, {warnings}")?;
    }
    Ok(match (unusable, problems) {
        (true, _) => Exit::Config,
        (false, 0) => Exit::Success,
        (false, _) => Exit::Failure,
    })
}

fn show(findings: &[Finding], out: &mut dyn Write) -> anyhow::Result<()> {
    let mut area = "";
    for finding in findings {
        if finding.area != area {
            area = finding.area;
            writeln!(out, "{}", styled(DIM, area))?;
        }
        let sign = match finding.level {
            _ if finding.fixed => styled(GREEN, "mended"),
            Level::Good => styled(GREEN, "ok"),
            Level::Note => "note".to_owned(),
            Level::Warning => styled(YELLOW, "warning"),
            Level::Problem => styled(RED, "problem"),
        };
        let took = finding.millis.map(|millis| format!(" ({millis} ms)")).unwrap_or_default();
        writeln!(out, "  {sign}: {}{took}", visible(&finding.message))?;
        for line in &finding.lines {
            writeln!(out, "    {} {}", styled(DIM, "stderr:"), visible(line))?;
        }
        if let Some(cure) = finding.cure.as_ref().filter(|_| !finding.fixed) {
            writeln!(out, "    {} {}", styled(GREEN, "cure:"), visible(cure))?;
        }
    }
    Ok(())
}

/// How the logins at remote servers stand.
fn logins(loaded: &Loaded) -> anyhow::Result<Vec<Finding>> {
    const AREA: &str = "logins";
    let mut findings = Vec::new();
    for (name, stands) in auth::standings(loaded)? {
        let cure = format!("metamcp auth login {name}");
        findings.push(match stands {
            Stands::Fine(words) => Finding::new(Level::Good, AREA, format!("{name}: {words}")),
            Stands::Open(words) => Finding::new(Level::Note, AREA, format!("{name}: {words}"))
                .cure(format!("if it wants one: {cure}")),
            Stands::Ended(words) => {
                Finding::new(Level::Problem, AREA, format!("{name}: {words}")).cure(cure)
            }
            Stands::Unreadable(words) => {
                let cure = format!("metamcp auth logout {name}, then {cure}");
                Finding::new(Level::Problem, AREA, format!("{name}: {words}")).cure(cure)
            }
        });
    }
    Ok(findings)
}

/// The file that is read, what was remarked about it, and servers that are left out.
fn configuration(loaded: &Loaded, fix: bool) -> Vec<Finding> {
    let Some(path) = loaded.source.path() else {
        let cure = "run `metamcp init`, or `metamcp add NAME -- COMMAND`";
        let level = if super::advice(loaded).is_some() { Level::Problem } else { Level::Note };
        return vec![Finding::new(level, "config", "there is no config file").cure(cure)];
    };
    let count = plural(loaded.config.servers.len(), "server");
    let words = format!("{} names {count}", path.display());
    let mut findings = vec![Finding::new(Level::Good, "config", words)];
    for remark in
        loaded.remarks.iter().filter(|remark| tried::left_out_for(loaded, remark).is_none())
    {
        let level = match remark.severity {
            Severity::Warning => Level::Warning,
            Severity::Note => Level::Note,
        };
        let mut finding = Finding::new(level, "config", remark.to_string());
        finding.cure.clone_from(&remark.hint);
        // The one remark that a machine can act on is about the mode of a file that holds secrets.
        let about_mode = remark.hint.as_ref().is_some_and(|hint| hint.starts_with("chmod 600 "));
        if fix && about_mode && remark.path.as_deref().is_some_and(machine::make_private) {
            finding = finding.mended();
        }
        findings.push(finding);
    }
    findings
}
