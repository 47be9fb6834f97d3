//! `metamcp service`: the daemon as a service of the user: a systemd unit, a launchd agent, a task at logon.
//! Owns: what is written and run for each system.      Never: needs administrator rights, runs a shell.
//! In: the system, our program and its home.  Out: a `Plan`, shown and carried out.
//! Tests: below for every system, `tests/config/daemon.rs` for what happens on this one.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use serde_json::json;

use crate::args::ServiceArgs;
use crate::commands::init;
use crate::env;
use crate::exit::Exit;
use crate::render::{self, DIM, styled, visible};

/// The name of the unit, the agent and the task.
const NAME: &str = "metamcp";
const LABEL: &str = "metamcp.daemon";

/// A system with services of a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum System {
    Systemd,
    Launchd,
    Windows,
}

impl System {
    fn here() -> Option<System> {
        match std::env::consts::OS {
            "linux" => Some(System::Systemd),
            "macos" => Some(System::Launchd),
            "windows" => Some(System::Windows),
            _ => None,
        }
    }
}

/// Where things are.
struct Surroundings {
    /// The program with its first arguments.
    program: Vec<String>,
    /// The user's home.
    user: PathBuf,
    /// `XDG_CONFIG_HOME`, if it is set.
    config: Option<PathBuf>,
    uid: u32,
    /// The user's name with its domain, as Windows writes it.
    account: String,
    /// The home of metamcp.
    home: PathBuf,
}

/// What is to be done, in order. A step that may fail is one that undoes what may not be there.
#[derive(Debug, PartialEq, Eq)]
struct Plan {
    /// The file, and its content unless it is removed.
    file: Option<(PathBuf, Option<String>)>,
    /// Commands before the file is touched, when it is removed.
    before: Vec<Vec<String>>,
    after: Vec<Vec<String>>,
}

pub(crate) fn run(
    home: &Path,
    is_install: bool,
    args: ServiceArgs,
    out: &mut dyn Write,
    diagnostics: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let Some(system) = System::here() else {
        bail!(
            "there is no kind of service for {} in this program; clients start the daemon by themselves",
            std::env::consts::OS
        );
    };
    let surroundings = surroundings(home)?;
    let plan = match is_install {
        true => install(system, &surroundings),
        false => uninstall(system, &surroundings),
    };
    let doubt = is_install
        .then(|| init::doubt(Path::new(&surroundings.program[0])))
        .flatten()
        .map(|words| words.replace("clients will start", "the service would start"))
        .map(|words| words.replace("run init from there", "install the service from there"));
    if let Some(doubt) = &doubt {
        writeln!(diagnostics, "{}: {}", styled(render::YELLOW, "warning"), visible(doubt))?;
    }
    if args.dry_run {
        show(&plan, args.json, out)?;
        return Ok(Exit::Success);
    }
    let done = carry_out(&plan)?;
    tell(&plan, &done, is_install, args.json, out, diagnostics)?;
    Ok(if done.failure.is_some() { Exit::Failure } else { Exit::Success })
}

fn surroundings(home: &Path) -> anyhow::Result<Surroundings> {
    let user = env::lookup_os(if cfg!(windows) { "USERPROFILE" } else { "HOME" })
        .map(PathBuf::from)
        .filter(|home| home.is_absolute())
        .context("the home folder is not known: HOME is not set")?;
    let program = init::own_program()?.to_string_lossy().into_owned();
    let mut program = vec![program, "daemon".to_owned(), "run".to_owned()];
    // A service has none of the shell's variables.
    if home != user.join(".metamcp") {
        program.extend(["--home".to_owned(), home.to_string_lossy().into_owned()]);
    }
    let config = env::lookup_os("XDG_CONFIG_HOME").map(PathBuf::from);
    let config = config.filter(|folder| folder.is_absolute());
    let variable = |name: &str| env::lookup(name).filter(|value| !value.is_empty());
    let name = variable("USERNAME").unwrap_or_default();
    let account = variable("USERDOMAIN").map_or(name.clone(), |domain| format!("{domain}\\{name}"));
    Ok(Surroundings { program, user, config, uid: uid(), account, home: home.to_owned() })
}

#[cfg(unix)]
fn uid() -> u32 {
    nix::unistd::getuid().as_raw()
}

#[cfg(windows)]
fn uid() -> u32 {
    0
}

fn install(system: System, at: &Surroundings) -> Plan {
    let file = |content: String| Some((file_of(system, at), Some(content)));
    match system {
        System::Systemd => Plan {
            file: file(unit(&at.program)),
            before: Vec::new(),
            after: vec![
                words(&["systemctl", "--user", "daemon-reload"]),
                words(&["systemctl", "--user", "enable", "--now", "metamcp.service"]),
            ],
        },
        System::Launchd => {
            let path = file_of(system, at);
            let domain = format!("gui/{}", at.uid);
            Plan {
                file: file(agent(&at.program)),
                // An agent that is loaded already would keep its old definition.
                before: vec![words(&["launchctl", "bootout", &format!("{domain}/{LABEL}")])],
                after: vec![words(&["launchctl", "bootstrap", &domain, &path.to_string_lossy()])],
            }
        }
        System::Windows => {
            let path = file_of(system, at);
            let path = path.to_string_lossy();
            Plan {
                file: file(task(&at.program, &at.account)),
                before: Vec::new(),
                after: vec![
                    words(&["schtasks", "/Create", "/F", "/TN", NAME, "/XML", &path]),
                    words(&["schtasks", "/Run", "/TN", NAME]),
                ],
            }
        }
    }
}

fn uninstall(system: System, at: &Surroundings) -> Plan {
    let file = Some((file_of(system, at), None));
    let (before, after) = match system {
        System::Systemd => (
            vec![words(&["systemctl", "--user", "disable", "--now", "metamcp.service"])],
            vec![words(&["systemctl", "--user", "daemon-reload"])],
        ),
        System::Launchd => {
            (vec![words(&["launchctl", "bootout", &format!("gui/{}/{LABEL}", at.uid)])], Vec::new())
        }
        System::Windows => (
            vec![
                words(&["schtasks", "/End", "/TN", NAME]),
                words(&["schtasks", "/Delete", "/F", "/TN", NAME]),
            ],
            Vec::new(),
        ),
    };
    Plan { file, before, after }
}

fn file_of(system: System, at: &Surroundings) -> PathBuf {
    match system {
        System::Systemd => {
            let config = at.config.clone().unwrap_or_else(|| at.user.join(".config"));
            config.join("systemd/user/metamcp.service")
        }
        System::Launchd => at.user.join(format!("Library/LaunchAgents/{LABEL}.plist")),
        System::Windows => at.home.join("logon-task.xml"),
    }
}

fn words(all: &[&str]) -> Vec<String> {
    all.iter().map(|&word| word.to_owned()).collect()
}

/// The unit. It ends when nobody needs it, as every daemon does, unless it is told to stay; it is started again only
/// after a crash, and at once: clients wait.
fn unit(program: &[String]) -> String {
    let line: Vec<String> = program.iter().map(|word| systemd_word(word)).collect();
    format!(
        "# Written by `metamcp service install`; `metamcp service uninstall` removes it.\n\
         [Unit]\n\
         Description=metamcp: one gateway for the MCP clients of this user\n\
         \n\
         [Service]\n\
         ExecStart={}\n\
         Environment=METAMCP_DAEMON_IDLE_EXIT=0\n\
         Restart=on-failure\n\
         RestartSec=1\n\
         \n\
         [Install]\n\
         WantedBy=default.target\n",
        line.join(" ")
    )
}

/// A word of `ExecStart`: `%` and `$` would be expanded, and quotes read.
fn systemd_word(word: &str) -> String {
    let escaped = word
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('%', "%%")
        .replace('$', "$$")
        .replace('\n', "\\n");
    format!("\"{escaped}\"")
}

fn agent(program: &[String]) -> String {
    let words: Vec<String> =
        program.iter().map(|word| format!("    <string>{}</string>\n", xml(word))).collect();
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <!-- Written by `metamcp service install`; `metamcp service uninstall` removes it. -->\n\
         <!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" \"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">\n\
         <plist version=\"1.0\">\n\
         <dict>\n\
         \x20 <key>Label</key>\n\
         \x20 <string>{LABEL}</string>\n\
         \x20 <key>ProgramArguments</key>\n\
         \x20 <array>\n\
         {}\
         \x20 </array>\n\
         \x20 <key>EnvironmentVariables</key>\n\
         \x20 <dict>\n\
         \x20   <key>METAMCP_DAEMON_IDLE_EXIT</key>\n\
         \x20   <string>0</string>\n\
         \x20 </dict>\n\
         \x20 <key>RunAtLoad</key>\n\
         \x20 <true/>\n\
         \x20 <key>KeepAlive</key>\n\
         \x20 <dict>\n\
         \x20   <key>SuccessfulExit</key>\n\
         \x20   <false/>\n\
         \x20 </dict>\n\
         </dict>\n\
         </plist>\n",
        words.concat()
    )
}

fn xml(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The task. Whoever may not administrate the machine may have one for the own logon, which the short form of `schtasks`
/// does not know; nor that no task is ended after three days, or on batteries.
fn task(program: &[String], account: &str) -> String {
    let (program, rest) = program.split_first().map_or(("", &[][..]), |(a, b)| (a.as_str(), b));
    let apart = ["--apart", "--daemon-idle-exit=0"].map(str::to_owned);
    let line: Vec<String> = rest.iter().chain(&apart).map(|word| windows_word(word)).collect();
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <!-- Written by `metamcp service install`; `metamcp service uninstall` removes it. -->\n\
         <Task version=\"1.2\" xmlns=\"http://schemas.microsoft.com/windows/2004/02/mit/task\">\n\
         \x20 <Triggers>\n\
         \x20   <LogonTrigger>\n\
         \x20     <UserId>{account}</UserId>\n\
         \x20   </LogonTrigger>\n\
         \x20 </Triggers>\n\
         \x20 <Principals>\n\
         \x20   <Principal id=\"Author\">\n\
         \x20     <UserId>{account}</UserId>\n\
         \x20     <LogonType>InteractiveToken</LogonType>\n\
         \x20     <RunLevel>LeastPrivilege</RunLevel>\n\
         \x20   </Principal>\n\
         \x20 </Principals>\n\
         \x20 <Settings>\n\
         \x20   <DisallowStartIfOnBatteries>false</DisallowStartIfOnBatteries>\n\
         \x20   <StopIfGoingOnBatteries>false</StopIfGoingOnBatteries>\n\
         \x20   <ExecutionTimeLimit>PT0S</ExecutionTimeLimit>\n\
         \x20 </Settings>\n\
         \x20 <Actions Context=\"Author\">\n\
         \x20   <Exec>\n\
         \x20     <Command>{}</Command>\n\
         \x20     <Arguments>{}</Arguments>\n\
         \x20   </Exec>\n\
         \x20 </Actions>\n\
         </Task>\n",
        xml(program),
        xml(&line.join(" ")),
        account = xml(account),
    )
}

/// A word of a Windows command line. A path cannot contain a quote.
fn windows_word(word: &str) -> String {
    if word.contains(' ') { format!("\"{word}\"") } else { word.to_owned() }
}

/// What happened.
#[derive(Default)]
struct Done {
    /// Whether the file was changed.
    changed: bool,
    ran: Vec<String>,
    /// Why it has no effect yet.
    failure: Option<String>,
}

fn carry_out(plan: &Plan) -> anyhow::Result<Done> {
    let mut done = Done::default();
    let is_removal = plan.file.as_ref().is_none_or(|(_, content)| content.is_none());
    for command in &plan.before {
        // It undoes what may not be there.
        if start(command).is_ok() {
            done.ran.push(command.join(" "));
        }
    }
    match &plan.file {
        Some((path, Some(content))) => done.changed = write(path, content)?,
        Some((path, None)) => done.changed = remove(path)?,
        None => {}
    }
    for command in &plan.after {
        match start(command) {
            Ok(()) => done.ran.push(command.join(" ")),
            // Without the file there is nothing left that could have an effect.
            Err(_) if is_removal && plan.file.is_some() => {}
            Err(why) => {
                done.failure = Some(format!("`{}`: {why}", command.join(" ")));
                break;
            }
        }
    }
    Ok(done)
}

/// Writes the file, and says whether it was different.
fn write(path: &Path, content: &str) -> anyhow::Result<bool> {
    if std::fs::read_to_string(path).is_ok_and(|there| there == content) {
        return Ok(false);
    }
    let cannot = || format!("cannot write {}", path.display());
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(cannot)?;
    }
    std::fs::write(path, content).with_context(cannot)?;
    Ok(true)
}

fn remove(path: &Path) -> anyhow::Result<bool> {
    match std::fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).with_context(|| format!("cannot remove {}", path.display())),
    }
}

/// Runs one of the system's own programs, silently; the error is the last it said.
#[expect(
    clippy::disallowed_methods,
    reason = "the system's own service manager, which is no server"
)]
fn start(words: &[String]) -> Result<(), String> {
    let [program, arguments @ ..] = words else { return Ok(()) };
    let ran = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    match ran {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let last = said.lines().rfind(|line| !line.trim().is_empty());
            Err(last.map_or_else(|| output.status.to_string(), |line| line.trim().to_owned()))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err("this machine does not have that program".to_owned())
        }
        Err(error) => Err(error.to_string()),
    }
}

fn show(plan: &Plan, json: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    let commands: Vec<String> =
        plan.before.iter().chain(&plan.after).map(|command| command.join(" ")).collect();
    if json {
        let file = plan.file.as_ref().map(|(path, _)| path.display().to_string());
        let content = plan.file.as_ref().and_then(|(_, content)| content.clone());
        let told =
            json!({ "dryRun": true, "file": file, "content": content, "commands": commands });
        writeln!(out, "{told:#}")?;
        return Ok(());
    }
    match &plan.file {
        Some((path, Some(content))) => {
            writeln!(out, "Would write {}:\n", visible(&path.display().to_string()))?;
            for line in content.lines() {
                let line = if line.is_empty() {
                    String::new()
                } else {
                    format!("  {}", styled(DIM, &visible(line)))
                };
                writeln!(out, "{line}")?;
            }
            writeln!(out, "\nWould run:\n")?;
        }
        Some((path, None)) => {
            writeln!(out, "Would remove {} and run:\n", visible(&path.display().to_string()))?;
        }
        None => writeln!(out, "Would run:\n")?,
    }
    for command in commands {
        writeln!(out, "  {}", visible(&command))?;
    }
    Ok(())
}

fn tell(
    plan: &Plan,
    done: &Done,
    is_install: bool,
    json: bool,
    out: &mut dyn Write,
    diagnostics: &mut dyn Write,
) -> anyhow::Result<()> {
    let file = plan.file.as_ref().map(|(path, _)| path.display().to_string());
    if json {
        let told = json!({
            "file": file,
            "changed": done.changed,
            "commands": done.ran,
            "error": done.failure,
        });
        writeln!(out, "{told:#}")?;
        return Ok(());
    }
    if let Some(file) = &file {
        let words = match (is_install, done.changed) {
            (true, true) => "Wrote",
            (true, false) => "Nothing to write, it is up to date:",
            (false, true) => "Removed",
            (false, false) => "Nothing to remove, there is no",
        };
        writeln!(out, "{words} {}", visible(file))?;
    }
    for command in &done.ran {
        writeln!(out, "Ran   {}", visible(command))?;
    }
    match &done.failure {
        None if is_install => {
            writeln!(out, "The daemon starts at login; `metamcp status` shows it.")?;
        }
        None => writeln!(out, "Clients still start the daemon when they need it.")?,
        Some(why) => {
            let label = styled(render::RED, "error");
            writeln!(diagnostics, "{label}: the service is not in effect: {}", visible(why))?;
            let rest: Vec<String> = plan.after.iter().map(|command| command.join(" ")).collect();
            let hint = format!(
                "where it can be used, run: {}; until then clients start the daemon by themselves",
                rest.join(" && ")
            );
            render::hint(diagnostics, Some(&hint))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at() -> Surroundings {
        let program = ["/people/a b/bin/metamcp", "daemon", "run", "--home", "/x%y/$z & <co>"];
        Surroundings {
            program: words(&program),
            user: PathBuf::from("/people/a b"),
            config: None,
            uid: 501,
            account: r"PC\ada".to_owned(),
            home: PathBuf::from("/x%y/$z & <co>"),
        }
    }

    #[test]
    fn what_is_written_and_run_on_each_system() {
        let mut told = String::new();
        for system in [System::Systemd, System::Launchd, System::Windows] {
            for plan in [install(system, &at()), uninstall(system, &at())] {
                let mut out = Vec::new();
                show(&plan, false, &mut out).unwrap();
                let out = anstream::adapter::strip_bytes(&out).into_vec();
                told += &format!("== {system:?}\n{}", String::from_utf8(out).unwrap());
            }
        }
        insta::assert_snapshot!(told);
    }

    #[test]
    fn a_file_is_written_once_and_removed_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/metamcp.service");
        assert!(write(&path, "x").unwrap());
        assert!(!write(&path, "x").unwrap());
        assert!(write(&path, "y").unwrap());
        assert!(remove(&path).unwrap());
        assert!(!remove(&path).unwrap());
    }

    #[test]
    fn a_program_that_is_not_there_and_one_that_fails_say_so() {
        let missing = start(&words(&["/nonexistent/systemctl", "--user"]));
        assert_eq!(missing.unwrap_err(), "this machine does not have that program");
        let plan = Plan {
            file: None,
            before: vec![words(&["/nonexistent/x"])],
            after: vec![words(&["/nonexistent/y"]), words(&["/nonexistent/z"])],
        };
        let done = carry_out(&plan).unwrap();
        assert!(done.ran.is_empty() && done.failure.unwrap().contains("/nonexistent/y"));
    }
}
