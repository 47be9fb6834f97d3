//! `metamcp upgrade`: a newer version for those whom the install script served, the right command for everyone else.
//! Owns: what is fetched, verified, tried and said.      Never: touches what a package manager owns, installs what was not verified, an older version unasked.
//! In: how this program was installed, the address of the releases.  Out: another program in its place, or why not.
//! Tests: below and in `upgrade/`; `tests/config/upgrade.rs` with a server of releases.

mod archive;
mod place;
mod release;
mod trial;

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use metamcp_engine::download::Folder;
use metamcp_engine::env as engine_env;
use serde_json::json;
use sha2::{Digest, Sha256};

use self::place::Place;
use self::release::{Release, Version};
use self::trial::Ran;
use crate::args::UpgradeArgs;
use crate::exit::{Exit, OrMisuse};
use crate::install_method::{InstallMethod, RELEASES};
use crate::render::visible;
use crate::{console, env, progress, terminal};

/// The list of checksums of a release.
const SUMS: &str = "SHA256SUMS";
/// The variable that the install scripts read too.
const VARIABLE: &str = "METAMCP_BASE_URL";
/// The largest list, and the largest archive.
const MAX_SUMS: usize = 1024 * 1024;
const MAX_ARCHIVE: usize = 256 * 1024 * 1024;
/// How long a program may take to say its version, and GitHub's program to verify.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(20);
const ATTESTATION_TIMEOUT: Duration = Duration::from_mins(1);

pub(crate) fn run(args: &UpgradeArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let method = InstallMethod::here();
    if let Some(command) = method.command() {
        return by_package_manager(method, &command, args.json, out);
    }
    let program = engine_env::own_program().context("where this program is, is not known")?;
    let place = Place::of(&program).context("where this program is, is not known")?;
    if args.undo {
        place.undo()?;
        let version = own_version(place.program())?;
        return told(
            args.json,
            out,
            "undone",
            &version,
            &format!("{} is metamcp {version} again.", program.display()),
        );
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(upgrade(args, &place, out))
}

async fn upgrade(args: &UpgradeArgs, place: &Place, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let wanted = match &args.to {
        Some(text) => Some(
            Version::parse(text.trim_start_matches('v'))
                .with_context(|| format!("{text} is not a version; one looks like 0.2.0"))
                .or_misuse()?,
        ),
        None => None,
    };
    let given =
        args.base_url.clone().or_else(|| env::lookup(VARIABLE).filter(|url| !url.is_empty()));
    let base = match (&given, &wanted) {
        (Some(base), _) => base.clone(),
        (None, Some(version)) => format!("{RELEASES}/download/v{version}"),
        (None, None) => format!("{RELEASES}/latest/download"),
    };
    let source = Folder::parse(&base).or_misuse()?;
    let working = progress::step(format!("looking at {base}"));
    let sums = match source.fetch(SUMS, MAX_SUMS).await {
        Ok(sums) => sums,
        Err(error) => return unreachable_now(args.json, error.into(), out),
    };
    let sums = std::str::from_utf8(&sums).context("SHA256SUMS is not text")?;
    let release = release::archive(sums, std::env::consts::OS, std::env::consts::ARCH)
        .with_context(|| format!("{base}/{SUMS} is of no use here"))?;
    let current = Version::parse(env!("CARGO_PKG_VERSION")).context("our own version")?;
    match decided(&current, &release.version, wanted.as_ref()) {
        Decision::Wrong => {
            bail!("{base} has version {} instead of {}", release.version, wanted.unwrap_or(current))
        }
        Decision::Nothing => {
            drop(working);
            return told(
                args.json,
                out,
                "current",
                &current.to_string(),
                &format!("metamcp {current} is the newest version."),
            );
        }
        Decision::Install if args.check => {
            drop(working);
            let words = format!(
                "metamcp {} is there; this is {current}. `metamcp upgrade` installs it.",
                release.version
            );
            return told(args.json, out, "available", &release.version.to_string(), &words);
        }
        Decision::Install => {}
    }
    say(&working, &format!("Downloading {}.", release.file));
    let bytes = match source.fetch(&release.file, MAX_ARCHIVE).await {
        Ok(bytes) => bytes,
        Err(error) => return unreachable_now(args.json, error.into(), out),
    };
    check(&bytes, &release.sha256, &release.file)?;
    let attested = if given.is_some() {
        "The checksum matches; a mirror has no attestation.".to_owned()
    } else {
        attestation(&release, &bytes, place)?
    };
    say(&working, &attested);
    let members = archive::members(&release.file, &bytes)
        .with_context(|| format!("{} cannot be used", release.file))?;
    let replaced = place.prepare(&members).and_then(|waiting| {
        let version = own_version(&waiting)?;
        if version != release.version.to_string() {
            bail!(
                "the downloaded program says that it is {version} instead of {}",
                release.version
            );
        }
        place.replace(&members)
    });
    if let Err(error) = replaced {
        place.discard();
        return Err(error.context("nothing was upgraded"));
    }
    drop(working);
    let words = format!(
        "Upgraded metamcp from {current} to {}. A daemon that runs goes on with the old program: `metamcp daemon restart` changes that.\n\
         `metamcp upgrade --undo` goes back.",
        release.version
    );
    told(args.json, out, "upgraded", &release.version.to_string(), &words)
}

/// What to do with the version that is there.
#[derive(Debug, PartialEq, Eq)]
enum Decision {
    Install,
    Nothing,
    /// Another one than was asked for.
    Wrong,
}

/// An older version is installed only if it was asked for by its number.
fn decided(current: &Version, found: &Version, wanted: Option<&Version>) -> Decision {
    match wanted {
        Some(wanted) if wanted != found => Decision::Wrong,
        _ if found == current => Decision::Nothing,
        Some(_) => Decision::Install,
        None if found > current => Decision::Install,
        None => Decision::Nothing,
    }
}

fn by_package_manager(
    method: InstallMethod,
    command: &str,
    json: bool,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    if json {
        let told = json!({
            "status": "elsewhere", "version": env!("CARGO_PKG_VERSION"), "installedBy": method.name(), "command": command,
        });
        writeln!(out, "{told:#}")?;
    } else {
        writeln!(
            out,
            "This metamcp was installed by {}. To upgrade it:\n\n  {command}",
            method.words()
        )?;
    }
    Ok(Exit::Success)
}

fn told(
    json: bool,
    out: &mut dyn Write,
    status: &str,
    version: &str,
    words: &str,
) -> anyhow::Result<Exit> {
    if json {
        let told = json!({ "status": status, "version": version, "installedBy": InstallMethod::Script.name() });
        writeln!(out, "{told:#}")?;
    } else {
        writeln!(out, "{}", visible(words))?;
    }
    Ok(Exit::Success)
}

fn unreachable_now(json: bool, error: anyhow::Error, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let words = format!("{:#}", error.context("nothing was changed"));
    if json {
        writeln!(out, "{:#}", super::config::failure_json(&words))?;
    } else {
        writeln!(console::stderr(), "error: {}", visible(&words))?;
    }
    Ok(Exit::Unavailable)
}

fn say(working: &progress::Step, words: &str) {
    if terminal::is_watched() {
        working.say(visible(words));
    } else if !terminal::is_quiet() {
        // A closed stderr is no reason to stop.
        drop(writeln!(console::stderr(), "{}", visible(words)));
    }
}

/// Whether the bytes are those of the list.
fn check(bytes: &[u8], sha256: &str, file: &str) -> anyhow::Result<()> {
    let found: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    if found != sha256 {
        bail!(
            "{file} is not what {SUMS} says: its SHA-256 is {found} instead of {sha256}; nothing was changed"
        );
    }
    Ok(())
}

/// What a program says its version is; an error if it does not run here.
fn own_version(program: &Path) -> anyhow::Result<String> {
    let Ran::Well(said) = trial::run(program.as_os_str(), &["version"], TRIAL_TIMEOUT) else {
        bail!("{} does not run on this machine", program.display());
    };
    let version = said.trim().strip_prefix("metamcp ");
    version.map(str::to_owned).context("the program does not say its version")
}

/// Has GitHub's program verify where the archive was built, if that program is here and signed in.
fn attestation(release: &Release, bytes: &[u8], place: &Place) -> anyhow::Result<String> {
    let unchecked = |why: &str| {
        Ok(format!("The checksum matches; who built it was not verified, because {why}."))
    };
    let repository = env!("CARGO_PKG_REPOSITORY").strip_prefix("https://github.com/");
    let Some(repository) = repository else { return unchecked("it does not come from GitHub") };
    match trial::run("gh".as_ref(), &["auth", "status"], TRIAL_TIMEOUT) {
        Ran::Not => return unchecked("the program `gh` is not installed"),
        Ran::Badly => return unchecked("`gh` is not signed in"),
        Ran::Well(_) => {}
    }
    let path = place.waiting().with_extension("archive");
    std::fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
    let words = ["attestation", "verify", &path.to_string_lossy(), "--repo", repository];
    let verified = trial::run("gh".as_ref(), &words, ATTESTATION_TIMEOUT);
    // One that stays is overwritten by the next upgrade.
    drop(std::fs::remove_file(&path));
    match verified {
        Ran::Well(_) => Ok("The checksum and the attestation match.".to_owned()),
        Ran::Not | Ran::Badly => bail!(
            "{} has no attestation of {repository}, or a wrong one; nothing was changed (`gh attestation verify` says why)",
            release.file
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_version_is_installed_only_if_it_is_named() {
        let version = |text: &str| Version::parse(text).unwrap();
        let cases = [
            ("0.2.0", "0.3.0", None, Decision::Install),
            ("0.2.0", "0.2.0", None, Decision::Nothing),
            ("0.3.0", "0.2.0", None, Decision::Nothing),
            ("0.3.0", "0.2.0", Some("0.2.0"), Decision::Install),
            ("0.2.0", "0.2.0", Some("0.2.0"), Decision::Nothing),
            ("0.2.0", "0.3.0", Some("0.2.5"), Decision::Wrong),
        ];
        for (current, found, wanted, expected) in cases {
            let wanted = wanted.map(version);
            let decision = decided(&version(current), &version(found), wanted.as_ref());
            assert_eq!(decision, expected, "{current} {found} {wanted:?}");
        }
    }

    #[test]
    fn bytes_with_another_checksum_are_refused() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert!(check(b"", empty, "x").is_ok());
        assert!(check(b"a", empty, "x").unwrap_err().to_string().contains("nothing was changed"));
    }
}
