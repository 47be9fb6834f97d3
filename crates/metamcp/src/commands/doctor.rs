//! `metamcp doctor`: what is wrong, and how to fix it.
//! Owns: the order and format of the checks, the exit code.      Never: changes files without `--fix`, or others' ever.
//! In: the configuration, or why there is none.  Out: findings, each with a fix.
//! Tests: `tests/config/doctor.rs`.

mod code_mode;
mod installed;
mod machine;
mod server_checks;

use std::io::Write;

use metamcp_config::config::{ServerOrigin, Severity};
use metamcp_engine::config::{LoadError, Loaded, ProjectTrust, Source};
use metamcp_engine::provision;
use metamcp_types::nearest::nearest;
use serde_json::{Value, json};

use crate::args::DoctorArgs;
use crate::commands::auth::{self, LoginSummary};
use crate::exit::{Exit, misuse};
use crate::progress;
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

#[derive(Debug, Clone)]
pub(crate) struct Finding {
    level: Level,
    area: &'static str,
    message: String,
    /// What to do about it.
    hint: Option<String>,
    /// The end of a process's stderr, line by line.
    lines: Vec<String>,
    millis: Option<u128>,
    fixed: bool,
}

impl Finding {
    fn new(level: Level, area: &'static str, message: impl Into<String>) -> Finding {
        let message = message.into();
        Finding { level, area, message, hint: None, lines: Vec::new(), millis: None, fixed: false }
    }

    fn hint(mut self, hint: impl Into<String>) -> Finding {
        self.hint = Some(hint.into());
        self
    }

    /// Marks it as fixed by `--fix`.
    fn mark_fixed(mut self) -> Finding {
        self.fixed = true;
        self
    }

    fn json(&self) -> Value {
        json!({
            "level": self.level.word(),
            "area": self.area,
            "message": self.message,
            "cure": self.hint,
            "stderr": self.lines,
            "took_ms": self.millis.map(|millis| u64::try_from(millis).unwrap_or(u64::MAX)),
            "fixed": self.fixed,
        })
    }
}

/// Runs all checks.
pub(crate) fn run(
    loaded: &Result<Loaded, LoadError>,
    args: &DoctorArgs,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let mut findings = Vec::new();
    let unusable;
    match loaded {
        Ok(loaded) if !args.servers.is_empty() => {
            unusable = false;
            findings.extend(of_servers(loaded, &args.servers)?);
        }
        Ok(loaded) => {
            findings.push(machine::version());
            findings.extend(configuration(loaded, args.fix));
            unusable = loaded.source.path().is_none();
            // Before a gateway is started, which would remove leftovers there.
            let of_home = machine::home(&loaded.config.settings.home, args.fix);
            // A server that its registry withdrew must be withheld before it would be started.
            let working = progress::step("checking the registries of installed servers");
            let of_registries = installed::registries(loaded)?;
            drop(working);
            let (tried, missing) = server_checks::servers(loaded, &[])?;
            findings.extend(machine::programs(&loaded.config, &missing));
            findings.extend(machine::environment(&loaded.config));
            findings.extend(machine::clients(loaded.source.path()));
            findings.extend(of_registries);
            findings.extend(tried);
            findings.extend(code_mode::sandbox(loaded)?);
            let _working = progress::step("checking sign-ins, versions and the cache");
            findings.extend(logins(loaded)?);
            findings.extend(installed::servers(loaded)?);
            findings.extend(of_home);
            findings.extend(machine::cache(&loaded.config.settings.home, args.fix));
            findings.extend(machine::model(&loaded.config.settings));
        }
        Err(error) => {
            unusable = true;
            findings.push(machine::version());
            let mut told = Vec::new();
            render::load_error(&mut told, error)?;
            let told = anstream::adapter::strip_bytes(&told).into_vec();
            let told = String::from_utf8_lossy(&told).trim_end().to_owned();
            let hint = "correct the file; `metamcp config check` shows the same errors";
            findings.push(Finding::new(Level::Problem, "config", told).hint(hint));
            findings.extend(machine::clients(None));
        }
    }
    if args.servers.is_empty() {
        findings.extend(machine::left_behind());
    }
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

/// Checks some servers, and nothing else.
fn of_servers(loaded: &Loaded, names: &[String]) -> anyhow::Result<Vec<Finding>> {
    let installed = provision::installed(&loaded.config.settings.home);
    let configured = loaded.config.servers.iter();
    let known: Vec<&str> = configured
        .chain(installed.iter().map(|(server, _)| server))
        .map(|server| server.name.as_str())
        .collect();
    if let Some(name) = names.iter().find(|name| !known.contains(&name.as_str())) {
        let near = nearest(name, known.iter().copied(), 1);
        let hint = near.first().map(|near| format!("; did you mean `{}`?", visible(near)));
        let hint = hint.unwrap_or_else(|| "; `metamcp list` lists the servers".to_owned());
        return Err(misuse(format!("there is no server `{}`{hint}", visible(name))));
    }
    let is_chosen = |name: &str| names.iter().any(|chosen| chosen == name);
    let mut chosen = loaded.clone();
    chosen.config.servers.retain(|server| is_chosen(&server.name));
    // A place in the file is written as the path of keys to it.
    chosen.remarks.retain(|remark| {
        remark.place.as_ref().is_some_and(|place| place.path.split('.').any(is_chosen))
    });
    let mut findings = remarks(&chosen, false);
    let (tried, missing) = server_checks::servers(&chosen, names)?;
    // Programs that these servers do not need are noted as well.
    let programs = machine::programs(&chosen.config, &missing).into_iter();
    findings.extend(programs.filter(|finding| finding.level != Level::Note));
    findings.extend(tried);
    findings.extend(logins(&chosen)?);
    Ok(findings)
}

fn show(findings: &[Finding], out: &mut dyn Write) -> anyhow::Result<()> {
    let mut area = "";
    for finding in findings {
        if finding.area != area {
            area = finding.area;
            writeln!(out, "{}", styled(DIM, area))?;
        }
        let sign = match finding.level {
            _ if finding.fixed => styled(GREEN, "fixed"),
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
        if let Some(hint) = finding.hint.as_ref().filter(|_| !finding.fixed) {
            // A note is nothing to fix.
            let label = if finding.level == Level::Note { "hint:" } else { "fix:" };
            writeln!(out, "    {} {}", styled(GREEN, label), visible(hint))?;
        }
    }
    Ok(())
}

/// The state of sign-ins at remote servers.
fn logins(loaded: &Loaded) -> anyhow::Result<Vec<Finding>> {
    const AREA: &str = "logins";
    let mut findings = Vec::new();
    for (name, summary) in auth::login_summaries(loaded)? {
        let hint = format!("metamcp auth login {name}");
        findings.push(match summary {
            LoginSummary::Fine(words) => {
                Finding::new(Level::Good, AREA, format!("{name}: {words}"))
            }
            LoginSummary::Open(words) => {
                Finding::new(Level::Note, AREA, format!("{name}: {words}"))
                    .hint(format!("if the server requires it: {hint}"))
            }
            LoginSummary::Ended(words) => {
                Finding::new(Level::Problem, AREA, format!("{name}: {words}")).hint(hint)
            }
            LoginSummary::Unreadable(words) => {
                let hint = format!("metamcp auth logout {name}, then {hint}");
                Finding::new(Level::Problem, AREA, format!("{name}: {words}")).hint(hint)
            }
        });
    }
    Ok(findings)
}

/// The config file in use, and the remarks about it.
fn configuration(loaded: &Loaded, fix: bool) -> Vec<Finding> {
    let Some(path) = loaded.source.path() else {
        let hint = "run `metamcp init`, or `metamcp add NAME -- COMMAND`";
        let level = if super::advice(loaded).is_some() { Level::Problem } else { Level::Note };
        let mut findings =
            vec![Finding::new(level, "config", "there is no config file").hint(hint)];
        findings.extend(loaded.remarks.iter().map(|remark| {
            let mut finding = Finding::new(Level::Warning, "config", remark.to_string());
            finding.hint.clone_from(&remark.hint);
            finding
        }));
        return findings;
    };
    let named = |origin: &dyn Fn(ServerOrigin) -> bool| {
        let servers = loaded.config.servers.iter();
        plural(servers.filter(|server| origin(server.origin)).count(), "server")
    };
    let is_own = |origin| origin != ServerOrigin::Project;
    let is_projects = |origin| origin == ServerOrigin::Project;
    let count = match loaded.source {
        Source::Project(_) => named(&is_projects),
        _ => named(&is_own),
    };
    let words = format!("{} names {count}", path.display());
    let mut findings = vec![Finding::new(Level::Good, "config", words)];
    let used = loaded.project.as_ref().filter(|project| project.trust == ProjectTrust::Trusted);
    if let Some(project) = used.filter(|project| project.path != path) {
        let words =
            format!("{} adds {}, and is approved", project.path.display(), named(&is_projects));
        findings.push(Finding::new(Level::Good, "config", words));
    }
    findings.extend(remarks(loaded, fix));
    findings
}

/// Remarks about the file, except about disabled servers: those have their own finding.
fn remarks(loaded: &Loaded, fix: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for remark in
        loaded.remarks.iter().filter(|remark| server_checks::left_out_for(loaded, remark).is_none())
    {
        let level = match remark.severity {
            Severity::Error => Level::Problem,
            Severity::Warning => Level::Warning,
            Severity::Note => Level::Note,
        };
        let mut finding = Finding::new(level, "config", remark.to_string());
        finding.hint.clone_from(&remark.hint);
        // The one remark that can be fixed automatically is about the mode of a file with secrets.
        let about_mode = remark.hint.as_ref().is_some_and(|hint| hint.starts_with("chmod 600 "));
        if fix && about_mode && remark.path.as_deref().is_some_and(machine::make_private) {
            finding = finding.mark_fixed();
        }
        findings.push(finding);
    }
    findings
}
