//! One server of the gallery, tried: `metamcp add` installs it into a home of its own, starts it in its sandbox and pins
//! its tools.
//! Owns: the home, the limits of time and memory, what is read from the record.      Never: touches the user's own home.
//! In: an entry of the file.  Out: `Found`, or why it cannot be installed.
//! Tests: below; a server that is tried needs a registry.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use toml_edit::{Item, Table};

use crate::run;

/// Installing takes most of it, on a slow line.
const TIME: Duration = Duration::from_mins(10);
/// Memory that one of its processes may write, in kilobytes: what a browser's driver takes, and not the whole machine.
const MEMORY: u64 = 4 * 1024 * 1024;
const POLL: Duration = Duration::from_millis(100);
/// Longest reason that is kept of a server that does not list its tools.
const MAX_REASON: usize = 200;
/// How a plan says that a version is deprecated.
const DEPRECATED: &str = "its publisher deprecated this version: ";
/// How `metamcp add` begins the reason.
const UNKNOWN: &str = "its tools are not known yet: ";
const DAY: u64 = 24 * 60 * 60 * 1000;

/// What a trial begins with.
#[derive(Debug)]
pub(super) struct Trial {
    /// As the file has it, with its kind.
    pub(super) package: String,
    /// Values for arguments and variables, as they are written.
    dummies: Vec<(String, String)>,
}

/// What a trial found.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) hash: String,
    pub(super) published: String,
    pub(super) entry: String,
    pub(super) packages: i64,
    pub(super) tools: i64,
    pub(super) needs: Option<String>,
    pub(super) age_days: u64,
    pub(super) deprecated: Option<String>,
}

impl Trial {
    pub(super) fn read(server: &Table) -> Result<Trial> {
        let package = server.get("package").and_then(Item::as_str);
        let package = package.context("an entry without a package")?.to_owned();
        let mut dummies = Vec::new();
        for list in ["asks", "vars"] {
            for input in server.get(list).and_then(Item::as_array).into_iter().flatten() {
                let member = |name: &str| input.as_inline_table()?.get(name)?.as_str();
                let name = member("name")
                    .with_context(|| format!("{package}: an input without a name"))?;
                dummies.extend(member("dummy").map(|dummy| (name.to_owned(), dummy.to_owned())));
            }
        }
        Ok(Trial { package, dummies })
    }

    pub(super) fn is_called(&self, name: &str) -> bool {
        let bare = self.package.split_once(':').map_or(&*self.package, |(_, bare)| bare);
        [&*self.package, bare].contains(&name) || bare.rsplit('/').next() == Some(name)
    }

    /// Installs and starts it, with a home that is empty but for the caches.
    pub(super) fn carry_out(&self, binary: &Path, home: &Path, caches: &Path) -> Result<Found> {
        let folder = home.join("work");
        for stale in [&home.join(".metamcp"), &folder] {
            if stale.exists() {
                fs::remove_dir_all(stale)?;
            }
        }
        prepare(&folder)?;
        let (_, name) = self.package.split_once(':').context("a package without a kind")?;
        let mut command = limited(binary);
        command.args(["add", name, "--yes", "--json"]);
        for (name, dummy) in &self.dummies {
            command.arg("-e").arg(format!("{name}={}", filled(dummy, &folder)));
        }
        command
            .env("METAMCP_HOME", home.join(".metamcp"))
            .env("METAMCP_REGISTRIES", "none")
            .env("npm_config_cache", caches.join("npm"))
            .env("UV_CACHE_DIR", caches.join("uv"))
            .current_dir(&folder);
        let said = output(command)?;
        let told: Value = serde_json::from_str(&said)
            .with_context(|| format!("metamcp add did not print JSON: {}", said.trim()))?;
        let record = record(&home.join(".metamcp")).with_context(|| {
            told["errors"][0]["message"].as_str().unwrap_or("nothing was installed").to_owned()
        })?;
        let found = found(&told, &record)?;
        fs::remove_dir_all(home.join(".metamcp"))?;
        Ok(found)
    }
}

/// What dummies may refer to: files that look right and hold nothing.
fn prepare(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder.join("repository"))?;
    fs::write(
        folder.join("key.json"),
        r#"{"installed":{"client_id":"dummy","client_secret":"dummy","redirect_uris":["http://localhost"]}}"#,
    )?;
    fs::write(
        folder.join("kubeconfig"),
        "apiVersion: v1\nkind: Config\nclusters: []\ncontexts: []\nusers: []\n",
    )?;
    run::quiet(
        Command::new("git").args(["init", "--quiet"]).current_dir(folder.join("repository")),
    )?;
    Ok(())
}

fn filled(dummy: &str, folder: &Path) -> String {
    let path = |of: &Path| of.display().to_string();
    dummy
        .replace("${repository}", &path(&folder.join("repository")))
        .replace("${folder}", &path(folder))
}

/// With limits, where a shell can set them: they are unknown programs.
fn limited(binary: &Path) -> Command {
    if cfg!(windows) {
        return Command::new(binary);
    }
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("ulimit -d {MEMORY}; exec nice -n 15 \"$0\" \"$@\"")).arg(binary);
    command
}

/// What it prints, within the time. When it is ended, what it started ends with it.
fn output(mut command: Command) -> Result<String> {
    let child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let mut child = Ended(child);
    let mut out = child.0.stdout.take().context("its stdout is a pipe")?;
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        std::io::Read::read_to_string(&mut out, &mut text).map(|_| text)
    });
    let end = Instant::now() + TIME;
    while child.0.try_wait()?.is_none() {
        if Instant::now() > end {
            bail!("it was not installed and started within {} minutes", TIME.as_secs() / 60);
        }
        std::thread::sleep(POLL);
    }
    Ok(reader.join().map_err(|_| anyhow::anyhow!("its output was not read"))??)
}

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It has ended already, unless its time was over.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// The record of the one server that is installed in this home.
fn record(home: &Path) -> Option<Value> {
    let all = fs::read_dir(home.join("provisioned")).ok()?;
    let mut records = all.filter_map(|one| {
        serde_json::from_slice(&fs::read(one.ok()?.path().join("server.json")).ok()?).ok()
    });
    records.next()
}

fn found(told: &Value, record: &Value) -> Result<Found> {
    let plan = &record["plan"];
    let text = |name: &str| {
        plan[name].as_str().map(str::to_owned).with_context(|| format!("its plan has no {name}"))
    };
    let published = plan["published"].as_u64().context("nobody says how old it is")?;
    let installed = record["installed"].as_u64().unwrap_or(published);
    let reasons = plan["verdict"]["reasons"].as_array().cloned().unwrap_or_default();
    let deprecated =
        reasons.iter().filter_map(Value::as_str).find_map(|one| one.strip_prefix(DEPRECATED));
    let tools = told["tools"].as_object().map_or(0, serde_json::Map::len);
    let needs = match (tools, told["note"].as_str()) {
        (0, note) => {
            let note = note.unwrap_or("it lists no tools");
            let said = note.strip_prefix(UNKNOWN).unwrap_or(note);
            Some(said.chars().take(MAX_REASON).collect())
        }
        _ => None,
    };
    Ok(Found {
        hash: text("integrity")?,
        published: day(published),
        entry: entry(plan).context("its command line has no program")?,
        packages: plan["lock"]["packages"].as_i64().context("its plan has no lock")?,
        tools: i64::try_from(tools)?,
        needs,
        age_days: installed.saturating_sub(published) / DAY,
        deprecated: deprecated.map(str::to_owned),
    })
}

/// The program that is started, as a path within the package, or as the name of a script.
fn entry(plan: &Value) -> Option<String> {
    let words = plan["argv"].as_array()?.iter().filter_map(|word| word["Fixed"].as_str());
    let prefix = plan["prefix"].as_str()?;
    let package = format!("{prefix}/node_modules/{}/", plan["identifier"].as_str()?);
    let script = format!("{prefix}/venv/bin/");
    let mut entries = words.take(2).filter_map(|word| {
        word.strip_prefix(&package).or_else(|| word.strip_prefix(&script)).map(str::to_owned)
    });
    entries.next()
}

/// The day of a moment, by the calendar that counts from March, as there is no library for it here.
fn day(millis: u64) -> String {
    let days = millis / DAY + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    format!("{:04}-{month:02}-{day:02}", era * 400 + year + u64::from(month <= 2))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_recorded_of_an_installation_is_read() {
        let record = json!({ "installed": 1_790_352_269_000_u64 + 40 * DAY, "plan": {
            "identifier": "@x/one", "integrity": "sha512-x", "published": 1_790_352_269_000_u64,
            "prefix": "/p", "lock": { "packages": 7 },
            "argv": [{ "Fixed": "node" }, { "Fixed": "/p/node_modules/@x/one/dist/a.js" }, { "Asked": "y" }],
            "verdict": { "reasons": ["its publisher deprecated this version: moved"] },
        } });
        let told = json!({ "tools": { "a": {}, "b": {} } });
        let one = found(&told, &record).unwrap();
        assert_eq!((&*one.entry, one.packages, one.tools), ("dist/a.js", 7, 2));
        assert_eq!((&*one.published, one.age_days), ("2026-09-25", 40));
        assert_eq!((one.deprecated.as_deref(), one.needs), (Some("moved"), None));
        let mute =
            found(&json!({ "note": "its tools are not known yet: no key" }), &record).unwrap();
        assert_eq!((mute.tools, mute.needs.as_deref()), (0, Some("no key")));
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        assert_eq!(day(0), "1970-01-01");
        assert_eq!(day(951_782_400_000), "2000-02-29");
        assert_eq!(day(1_798_675_200_000), "2026-12-31");
    }

    #[test]
    fn dummies_are_read_and_filled_in() {
        let document: toml_edit::DocumentMut =
            "package = \"pypi:two\"\nasks = [{ name = \"dir\", dummy = \"${folder}/x\" }]\nvars = [{ name = \"KEY\" }]"
                .parse()
                .unwrap();
        let trial = Trial::read(document.as_table()).unwrap();
        assert_eq!(trial.dummies, [("dir".to_owned(), "${folder}/x".to_owned())]);
        assert_eq!(filled("${folder}/x", Path::new("/f")), "/f/x");
        assert_eq!(filled("${repository}", Path::new("/f")), "/f/repository");
        assert!(trial.is_called("two") && trial.is_called("pypi:two") && !trial.is_called("one"));
    }
}
