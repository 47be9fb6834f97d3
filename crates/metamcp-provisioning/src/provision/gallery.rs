//! The gallery: well-known servers, each checked at its version to install, start and list its tools; and the search in it.
//! Owns: the reading of `gallery/servers.toml`, which servers answer a need, the honest no.      Never: asks a registry.
//! In: a need in people's words.  Out: candidates, with the facts recorded when they were checked.
//! Tests: `tests/gallery.rs`, on the needs of `gallery/needs.toml`; `cargo xtask gallery` checks the servers themselves.

mod search;

use std::sync::LazyLock;

use metamcp_types::date::unix_millis;
use serde::Deserialize;

use super::candidate::{Argument, Candidate, Input, Kind, Offer, Source, Status};
use super::facts::Facts;
use super::names::server_name;

pub use search::in_gallery;

/// One file, so that a maintainer reads and edits one list.
const SERVERS: &str = include_str!("../../gallery/servers.toml");

/// Arguments that are secret whatever they are called: the address of a database holds its password.
const SECRET: [&str; 1] = ["connection"];

/// Checked servers, and those that wait for their check.
static GALLERY: LazyLock<(Vec<Listed>, Vec<Listed>)> = LazyLock::new(|| {
    let all = read(SERVERS).expect("a test reads the same file");
    all.into_iter().partition(|listed| listed.checked.is_some())
});

/// A server of the gallery.
#[derive(Debug, Clone)]
pub struct Listed {
    pub candidate: Candidate,
    /// The shelf it stands on: `files`, `databases`.
    pub group: String,
    /// What people call what it does, where the description has other words.
    pub words: String,
    /// The program of it that is started, where its name does not say which.
    pub program: Option<String>,
    /// What was found when it was checked; none before the first time.
    pub checked: Option<Checked>,
}

/// What `cargo xtask gallery` found.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checked {
    /// The hash of the package at its version.
    pub hash: String,
    /// The day it was published.
    pub published: String,
    /// The program that is started, as in [`Facts`].
    pub entry: String,
    /// How many packages are installed with it, itself among them.
    pub packages: usize,
    /// How many tools it listed; none if it does not do so without credentials that are real.
    pub tools: usize,
    /// What it said instead of listing its tools.
    #[serde(default)]
    pub needs: Option<String>,
}

/// The file as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    server: Vec<WrittenServer>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenServer {
    /// `npm:` or `pypi:`, and the package.
    package: String,
    version: String,
    group: String,
    about: String,
    words: String,
    #[serde(default)]
    program: Option<String>,
    /// Fixed arguments.
    #[serde(default)]
    args: Vec<String>,
    /// Arguments it cannot do without, which only the user knows.
    #[serde(default)]
    asks: Vec<WrittenInput>,
    #[serde(default)]
    vars: Vec<WrittenInput>,
    #[serde(default)]
    checked: Option<Checked>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenInput {
    name: String,
    about: String,
    #[serde(default)]
    flag: Option<String>,
    #[serde(default)]
    required: bool,
    /// What it is filled in with where nobody gives one.
    #[serde(default)]
    filled: Option<String>,
    /// What the check gives for it.
    #[serde(default)]
    #[expect(
        dead_code,
        reason = "read by `cargo xtask gallery`; named here so that a slip in it is found"
    )]
    dummy: Option<String>,
}

/// All servers that were checked, in the order of the file.
pub fn gallery() -> &'static [Listed] {
    &GALLERY.0
}

/// Servers that are written down and wait for their check. They answer no need; who names the whole package gets it.
pub fn waiting(package: &str) -> Option<Candidate> {
    let found = GALLERY.1.iter().find(|one| one.candidate.offer.identifier == package)?;
    Some(found.candidate.clone())
}

/// The same as candidates.
pub fn builtin() -> Vec<Candidate> {
    gallery().iter().map(|listed| listed.candidate.clone()).collect()
}

/// The entry of a candidate that is from the gallery.
pub fn listed(candidate: &Candidate) -> Option<&'static Listed> {
    let is_it = |one: &&Listed| {
        let offer = &one.candidate.offer;
        offer.kind == candidate.offer.kind && offer.identifier == candidate.offer.identifier
    };
    let mut all = gallery().iter().chain(&GALLERY.1);
    all.find(is_it).filter(|_| candidate.source == Source::Builtin)
}

impl Listed {
    /// What `metamcp add` knows it by: its short name, or its package where an earlier one has that name.
    pub fn name(&self) -> String {
        let short = |one: &Listed| server_name(&one.candidate.offer.identifier, |_| false);
        let own = short(self);
        let first = gallery().iter().find(|one| short(one) == own);
        let is_own = first.is_none_or(|first| first.candidate.name == self.candidate.name);
        if is_own { own } else { self.candidate.offer.identifier.clone() }
    }

    /// The facts of its package as they were when it was checked. What is installed is looked up again.
    pub fn facts(&self) -> Option<Facts> {
        let checked = self.checked.as_ref()?;
        Some(Facts {
            exists: true,
            integrity: Some(checked.hash.clone()),
            hashes: vec![checked.hash.clone()],
            published: unix_millis(&format!("{}T00:00:00Z", checked.published)),
            entry: Some(checked.entry.clone()),
            ..Facts::default()
        })
    }

    /// What a person should know of the check.
    pub fn found(&self) -> Option<String> {
        let Checked { packages, tools, needs, .. } = self.checked.as_ref()?;
        let with = match packages {
            1 => "it is one package".to_owned(),
            packages => format!("it is {packages} packages in all"),
        };
        Some(match needs {
            None => format!("when metamcp checked it, {with} and listed {tools} tools"),
            Some(needs) => {
                format!("when metamcp checked it, {with}; its tools are not known: {needs}")
            }
        })
    }
}

/// Reads the file; the error says where it is wrong.
pub fn read(text: &str) -> Result<Vec<Listed>, String> {
    let written: Written = toml_edit::de::from_str(text).map_err(|error| error.to_string())?;
    written.server.into_iter().map(WrittenServer::listed).collect()
}

impl WrittenServer {
    fn listed(self) -> Result<Listed, String> {
        let (kind, identifier) = match self.package.split_once(':') {
            Some(("npm", identifier)) => (Kind::Npm, identifier.to_owned()),
            Some(("pypi", identifier)) => (Kind::Pypi, identifier.to_owned()),
            _ => return Err(format!("{}: a package begins with npm: or pypi:", self.package)),
        };
        let fixed = self.args.into_iter().map(Argument::Fixed);
        let asked = self.asks.into_iter().map(|mut ask| Argument::Asked {
            flag: ask.flag.take(),
            input: Input { required: true, ..ask.input() },
        });
        let candidate = Candidate {
            name: identifier.clone(),
            title: None,
            description: self.about,
            source: Source::Builtin,
            status: Status::Active,
            published: None,
            offer: Offer {
                kind,
                identifier,
                version: self.version,
                integrity: self.checked.as_ref().map(|checked| checked.hash.clone()),
                arguments: fixed.chain(asked).collect(),
                environment: self.vars.into_iter().map(WrittenInput::input).collect(),
                runtime_arguments: Vec::new(),
            },
        };
        let Self { group, words, program, checked, .. } = self;
        Ok(Listed { candidate, group, words, program, checked })
    }
}

impl WrittenInput {
    fn input(self) -> Input {
        Input {
            secret: metamcp_types::secret::names_a_secret(&self.name)
                || SECRET.contains(&&*self.name),
            name: self.name,
            description: self.about,
            required: self.required,
            default: self.filled,
        }
    }
}
