//! Whether a plan may be approved at all, and whether it needs a person's approval.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::candidate::{Argument, Candidate, Kind, Offer, Source, Status};
use super::facts::Facts;
use super::names::{look_alike, valid};
use super::variables::is_allowed;

const DAY: u64 = 24 * 60 * 60 * 1000;

/// Why a package is not run, whoever agrees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// Nothing that a client may be given.
    #[error("{why}")]
    Unusable { why: String },
    /// Its registry took it back.
    #[error("its registry marks it as deleted{}", said(message))]
    Deleted {
        /// What the registry says about it.
        message: String,
    },
    /// It is named, but not there.
    #[error("{package} does not exist at its source: it was removed, or never existed")]
    Vanished {
        /// What was looked for.
        package: String,
    },
    /// Published a moment ago.
    #[error(
        "this version is {age} old, less than the minimum of {least} days: hijacked accounts are usually noticed in that time"
    )]
    TooYoung {
        /// How old.
        age: String,
        /// How old it must be.
        least: u64,
    },
    /// Nobody says how old it is.
    #[error("its source does not say when this version was published")]
    AgeUnknown,
    /// It reads like another.
    #[error("its name resembles {of}, a well-known other package (typosquatting)")]
    LookAlike { of: String },
    /// The same version, other bytes.
    #[error("the hash of this version changed: it was {was} and is {is}")]
    HashChanged {
        /// As it was seen before, or as somebody vouches for it.
        was: String,
        /// As it is now.
        is: String,
    },
    /// Nothing to pin it to.
    #[error("{what} is not pinned to a hash")]
    NoHash { what: String },
    /// Parts of it come from no registry of packages.
    #[error("it depends on something outside of package registries, whose age is unknown: {what}")]
    Elsewhere {
        /// Which, with where they are from.
        what: String,
    },
    /// It would run code while it is installed.
    #[error(
        "it has install scripts ({what}); list {grant} under installScripts in trusted.json to allow them"
    )]
    InstallScripts {
        what: String,
        /// What to write into the trust file.
        grant: String,
    },
}

fn said(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(": {message}") }
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Verdict {
    /// Whether the trust file approves it in advance.
    pub granted: bool,
    /// Why not, if it must not be run.
    pub refusals: Vec<Refusal>,
    /// What a person should know before approving.
    pub reasons: Vec<String>,
    /// Whether its install scripts were agreed to.
    pub scripts_agreed: bool,
}

impl Verdict {
    /// One word.
    pub fn word(&self) -> &'static str {
        match (self.refusals.is_empty(), self.granted) {
            (false, _) => "refused",
            (true, true) => "trusted",
            (true, false) => "needs approval",
        }
    }
}

/// What the user grants in advance: `trusted.json` in the home of metamcp.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trust {
    publishers: BTreeSet<String>,
    scripts: BTreeSet<String>,
}

impl Trust {
    /// Reads the file; the error says what is wrong with it.
    pub fn read(raw: &[u8]) -> Result<Trust, String> {
        let document: Value = serde_json::from_slice(raw).map_err(|error| error.to_string())?;
        let list = |key: &str| match document.get(key) {
            None => Ok(BTreeSet::new()),
            Some(Value::Array(all)) => all
                .iter()
                .map(|one| one.as_str().map(str::to_owned))
                .collect::<Option<_>>()
                .ok_or_else(|| format!("{key} must hold strings")),
            Some(_) => Err(format!("{key} must be a list of strings")),
        };
        Ok(Trust { publishers: list("publishers")?, scripts: list("installScripts")? })
    }

    fn grants(list: &BTreeSet<String>, kind: Kind, identifier: &str) -> bool {
        list.contains(&format!("{}:{identifier}", kind.word()))
            || list.contains(&publisher(kind, identifier))
    }
}

/// Who publishes it, as the trust file writes it. A scope of npm has one owner; a name without a scope stands for
/// itself only.
fn publisher(kind: Kind, identifier: &str) -> String {
    let who = match kind {
        Kind::Npm if identifier.starts_with('@') => {
            identifier.split('/').next().unwrap_or(identifier)
        }
        Kind::Remote => {
            let rest = identifier.strip_prefix("https://").unwrap_or(identifier);
            rest.split(['/', '?', '#']).next().unwrap_or(rest)
        }
        Kind::Oci => identifier.rsplit_once('/').map_or(identifier, |(owner, _)| owner),
        _ => identifier,
    };
    format!("{}:{who}", kind.word())
}

/// Everything a verdict depends on beside the package.
#[derive(Debug, Clone)]
pub struct Circumstances<'a> {
    /// The time, in milliseconds since 1970.
    pub now: u64,
    /// How many days old a version must be.
    pub least_days: u64,
    /// The hash under which this very version was seen before.
    pub seen: Option<&'a str>,
    /// What is granted.
    pub trust: &'a Trust,
    /// Well-known names of the same kind.
    pub known: &'a [&'a str],
}

/// Judges a candidate by what is known of its package.
pub fn assess(candidate: &Candidate, facts: &Facts, at: &Circumstances<'_>) -> Verdict {
    let offer = &candidate.offer;
    let mut verdict = Verdict::default();
    if let Status::Deleted(message) = &candidate.status {
        verdict.refusals.push(Refusal::Deleted { message: message.clone() });
        return verdict;
    }
    if let Err(why) = valid(offer.kind, &offer.identifier, &offer.version) {
        verdict.refusals.push(Refusal::Unusable { why: why.to_owned() });
        return verdict;
    }
    if offer.kind == Kind::Oci && !offer.runtime_arguments.is_empty() {
        let why = format!(
            "it has arguments for docker itself ({}), which could expose the whole machine",
            offer.runtime_arguments.join(" ")
        );
        verdict.refusals.push(Refusal::Unusable { why });
    }
    verdict.refusals.extend(in_the_open(offer));
    if candidate.source != Source::Builtin {
        verdict.refusals.extend(variables(offer));
    }
    if let Some(of) = look_alike(&offer.identifier, at.known.iter().copied()) {
        verdict.refusals.push(Refusal::LookAlike { of: of.to_owned() });
    }
    if !facts.exists {
        verdict.refusals.push(Refusal::Vanished { package: candidate.package() });
        return verdict;
    }
    if candidate.source == Source::Npm {
        let reason = "unvetted: found by npm search, in no registry of MCP servers";
        verdict.reasons.push(reason.to_owned());
    }
    age(offer.kind, facts, at, &mut verdict);
    hashes(candidate, facts, at, &mut verdict);
    scripts(candidate, facts, at.trust, &mut verdict);
    if let Some(client) = &facts.client {
        verdict.reasons.push(format!("versions, hashes and dates are from {client}"));
    }
    if let Some(lock) = facts.lock.as_ref().filter(|_| at.least_days > 0) {
        verdict.reasons.push(match lock.undated.as_slice() {
            [] => format!("no dependency is younger than {} days", at.least_days),
            undated => format!("the age of these is unknown: {}", undated.join(", ")),
        });
    }
    if let Status::Deprecated(message) = &candidate.status {
        verdict.reasons.push(format!("its registry marks it as deprecated{}", said(message)));
    }
    if let Some(message) = &facts.deprecated {
        verdict.reasons.push(format!("its publisher deprecated this version: {message}"));
    }
    if facts.yanked {
        verdict.refusals.push(Refusal::Deleted { message: "yanked by its publisher".to_owned() });
    }
    if verdict.refusals.is_empty()
        && Trust::grants(&at.trust.publishers, offer.kind, &offer.identifier)
    {
        let who = publisher(offer.kind, &offer.identifier);
        // Whoever wrote an entry need not be who published the package, and a trusted program obeys its arguments.
        verdict.granted = candidate.source == Source::Builtin || is_bare(offer);
        verdict.reasons.push(if verdict.granted {
            format!("{who} is in your trusted.json")
        } else {
            format!(
                "{who} is in your trusted.json, but its arguments and variables come from a registry entry"
            )
        });
    }
    verdict
}

/// Whether nobody but its publisher says how it is run.
fn is_bare(offer: &Offer) -> bool {
    offer.arguments.is_empty() && offer.environment.is_empty()
}

/// A secret that a container takes as an argument would be in the command line of `docker`.
fn in_the_open(offer: &Offer) -> Option<Refusal> {
    let secret = offer.arguments.iter().find_map(|argument| match argument {
        Argument::Asked { input, .. } if input.is_secret() => Some(&input.name),
        _ => None,
    });
    let name = secret.filter(|_| offer.kind == Kind::Oci)?;
    let why = format!(
        "it takes {name}, a secret, only as an argument, and an argument of docker can be read by every user of this machine in the process list"
    );
    Some(Refusal::Unusable { why })
}

fn variables(offer: &Offer) -> Option<Refusal> {
    // A service elsewhere is sent headers, which mean nothing here.
    if offer.kind == Kind::Remote {
        return None;
    }
    let named = offer.environment.iter().find(|input| !is_allowed(input))?;
    let why = format!(
        "its entry sets the variable {}, which does not look like a setting of a service and could change what programs load or whom they contact; configure it by hand with `metamcp add` if you trust it",
        named.name
    );
    Some(Refusal::Unusable { why })
}

fn age(kind: Kind, facts: &Facts, at: &Circumstances<'_>, verdict: &mut Verdict) {
    // A service at an address has no version that could age.
    if kind == Kind::Remote {
        verdict.reasons.push(
            "a remote service: nothing is installed, and it can change at any time".to_owned(),
        );
        return;
    }
    match facts.published {
        Some(published) => {
            let age = at.now.saturating_sub(published);
            if age < at.least_days * DAY {
                let age = match age / DAY {
                    0 => format!("{} hours", age / (DAY / 24)),
                    days => format!("{days} days"),
                };
                verdict.refusals.push(Refusal::TooYoung { age, least: at.least_days });
            } else {
                verdict.reasons.push(format!("this version is {} days old", age / DAY));
            }
        }
        None if at.least_days == 0 => {}
        None => verdict.refusals.push(Refusal::AgeUnknown),
    }
}

fn hashes(candidate: &Candidate, facts: &Facts, at: &Circumstances<'_>, verdict: &mut Verdict) {
    if candidate.offer.kind == Kind::Remote {
        return;
    }
    let Some(is) = &facts.integrity else {
        verdict.refusals.push(Refusal::NoHash { what: candidate.package() });
        return;
    };
    let vouched = candidate.offer.integrity.as_deref();
    let locked = facts.lock.as_ref().and_then(|lock| lock.integrity.as_deref());
    // A version of PyPI may have a file for each kind of machine; which of them comes first says nothing.
    let is_of_it = |hash: &str| hash == is || facts.hashes.iter().any(|known| known == hash);
    let strange = [vouched, at.seen, locked].into_iter().flatten().find(|hash| !is_of_it(hash));
    // Where somebody vouches for one file, it is this one that is installed.
    let exchanged = vouched.zip(locked).filter(|(vouched, locked)| vouched != locked);
    let changed = strange.map(|was| (was, is.as_str())).or(exchanged);
    if let Some((was, is)) = changed {
        verdict.refusals.push(Refusal::HashChanged { was: was.to_owned(), is: is.to_owned() });
        return;
    }
    if let Some(lock) = facts.lock.as_ref().filter(|lock| !lock.elsewhere.is_empty())
        && at.least_days > 0
    {
        verdict.refusals.push(Refusal::Elsewhere { what: lock.elsewhere.join(", ") });
    }
    if let Some(lock) = facts.lock.as_ref().filter(|lock| !lock.unpinned.is_empty()) {
        verdict.refusals.push(Refusal::NoHash { what: lock.unpinned.join(", ") });
    }
    if vouched.is_some() {
        verdict.reasons.push("its hash is the one in metamcp's own list".to_owned());
    }
}

fn scripts(candidate: &Candidate, facts: &Facts, trust: &Trust, verdict: &mut Verdict) {
    let locked =
        facts.lock.iter().flat_map(|lock| &lock.scripted).map(|name| format!("{name}: install"));
    let mut all: Vec<String> = facts.scripts.iter().cloned().chain(locked).collect();
    all.dedup();
    if all.is_empty() {
        verdict.reasons.push("it has no install scripts".to_owned());
        return;
    }
    let offer = &candidate.offer;
    if Trust::grants(&trust.scripts, offer.kind, &offer.identifier) {
        verdict.scripts_agreed = true;
        verdict.reasons.push(format!("has install scripts that you allowed: {}", all.join(", ")));
    } else {
        let grant = format!("\"{}:{}\"", offer.kind.word(), offer.identifier);
        verdict.refusals.push(Refusal::InstallScripts { what: all.join(", "), grant });
    }
}
