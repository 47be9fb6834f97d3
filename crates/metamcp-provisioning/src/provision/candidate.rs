//! Candidates: servers that a registry offers, before their packages are looked up; and the ranking of them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::json;

use metamcp_search::search::{CachedTokenizer, Index, ServerIndex, Strategy, covers};
use metamcp_tools::tool::Listing;

/// How a server is brought onto this machine. There are no others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A package of npm, run by `node`.
    Npm,
    /// A package of PyPI, run by a Python of its own.
    Pypi,
    /// An image, run by `docker`.
    Oci,
    /// Not brought here at all: spoken to over HTTPS.
    Remote,
}

impl Kind {
    /// The word in texts and in the trust file.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Npm => "npm",
            Kind::Pypi => "pypi",
            Kind::Oci => "oci",
            Kind::Remote => "url",
        }
    }
}

/// A value that only the user has.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Input {
    /// Its name: of the variable, or of the argument.
    pub name: String,
    /// What it is for.
    #[serde(default)]
    pub description: String,
    /// Whether the server cannot do without.
    #[serde(default)]
    pub required: bool,
    /// Whether it must not be shown.
    #[serde(default)]
    pub secret: bool,
    /// What it is unless somebody says otherwise.
    #[serde(default)]
    pub default: Option<String>,
}

/// One part of what a server is started with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Argument {
    /// As the publisher wrote it.
    Fixed(String),
    /// From the user, after a flag where it has one.
    Asked {
        /// `--root`, say.
        flag: Option<String>,
        input: Input,
    },
}

/// One way to get a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    pub kind: Kind,
    /// The package, the image, or the address.
    pub identifier: String,
    /// The exact version; empty where the identifier says it all.
    pub version: String,
    /// The hash somebody vouches for, in the form of that kind.
    pub integrity: Option<String>,
    /// What it is started with.
    pub arguments: Vec<Argument>,
    /// The variables it reads; the headers it wants, where it is remote.
    pub environment: Vec<Input>,
    /// Arguments for the runtime itself that the entry has; never honoured.
    pub runtime_arguments: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// A registry, by its address.
    Registry(String),
    /// The list in this binary.
    Builtin,
    /// The user's own npm, which vets nothing: whoever published it called it a server.
    Npm,
}

/// What its registry says of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Status {
    /// Nothing special.
    #[default]
    Active,
    /// Its publisher advises against it.
    Deprecated(String),
    /// It was taken back.
    Deleted(String),
}

/// A server that could be had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// As its source names it.
    pub name: String,
    /// For people.
    #[serde(default)]
    pub title: Option<String>,
    pub description: String,
    pub source: Source,
    /// What the source says of it.
    #[serde(default)]
    pub status: Status,
    /// When the source published this version, in milliseconds since 1970.
    #[serde(default)]
    pub published: Option<u64>,
    /// How it can be had, the best way first.
    pub offer: Offer,
}

impl Candidate {
    /// What would be fetched: `npm:@scope/name@1.2.3`.
    pub fn package(&self) -> String {
        let Offer { kind, identifier, version, .. } = &self.offer;
        if version.is_empty() {
            format!("{}:{identifier}", kind.word())
        } else {
            format!("{}:{identifier}@{version}", kind.word())
        }
    }

    /// About how many bytes it takes up.
    pub fn weight(&self) -> usize {
        let of_input = |input: &Input| {
            let default = input.default.as_ref().map_or(0, String::len);
            size_of::<Input>() + input.name.len() + input.description.len() + default
        };
        let of_argument = |argument: &Argument| match argument {
            Argument::Fixed(text) => size_of::<Argument>() + text.len(),
            Argument::Asked { flag, input } => {
                flag.as_ref().map_or(0, String::len) + of_input(input)
            }
        };
        let Offer { identifier, version, arguments, environment, runtime_arguments, .. } =
            &self.offer;
        let texts = [&self.name, &self.description, identifier, version];
        size_of::<Candidate>()
            + texts.iter().map(|text| text.len()).sum::<usize>()
            + self.title.as_ref().map_or(0, String::len)
            + arguments.iter().map(of_argument).sum::<usize>()
            + environment.iter().map(of_input).sum::<usize>()
            + runtime_arguments.iter().map(|text| size_of::<String>() + text.len()).sum::<usize>()
    }
}

/// The candidates that fit a need, best first, by the search that also finds tools. At most `limit`.
pub fn ranked<'a>(
    need: &str,
    candidates: &'a [Candidate],
    limit: usize,
) -> Vec<(&'a Candidate, Option<f32>)> {
    let mut tokenizer = CachedTokenizer::default();
    let mut parts = Vec::with_capacity(candidates.len());
    for (at, candidate) in candidates.iter().enumerate() {
        let name = candidate.name.rsplit('/').next().unwrap_or(&candidate.name);
        let page = json!({ "tools": [{
            "name": name,
            "title": candidate.title,
            "description": candidate.description,
            "inputSchema": { "type": "object" },
        }] });
        let mut listing = Listing::new();
        if listing.page(page.to_string().as_bytes()).is_err() {
            continue;
        }
        let tools = Arc::new(listing.finish(None, None));
        // Numbered, so that two sources may offer the same name.
        parts.push(Arc::new(ServerIndex::build_with(
            &mut tokenizer,
            &at.to_string(),
            None,
            &tools,
        )));
    }
    let hits = Index::new(parts).search(need, Strategy::Hybrid, limit, None);
    let found = hits.into_iter().filter_map(|hit| {
        let at: usize = hit.server.parse().ok()?;
        // In a short list a word like "current" is rare, and would make a clock a weather service.
        if !covers(&hit, need) {
            return None;
        }
        Some((candidates.get(at)?, hit.confidence))
    });
    found.collect()
}

/// The candidates of a name: as their source calls them, by their package, or by the last part of either. Whole names
/// go before parts: only if there is none of those are parts looked at.
pub fn named(name: &str, candidates: &[Candidate]) -> Vec<Candidate> {
    let usable = || candidates.iter().filter(|one| !matches!(one.status, Status::Deleted(_)));
    let whole = |one: &&Candidate| one.name == name || one.offer.identifier == name;
    let found: Vec<Candidate> = usable().filter(whole).cloned().collect();
    if !found.is_empty() {
        return found;
    }
    let part = |one: &&Candidate| {
        let last = |text: &str| text.rsplit('/').next() == Some(name);
        last(&one.name)
            || last(&one.offer.identifier)
            || super::server_name(&one.offer.identifier, |_| false) == name
    };
    let mut found: Vec<Candidate> = usable().filter(part).cloned().collect();
    // A short name of the gallery is that of the first server that has it; the others go by their packages.
    let mut is_named = false;
    found.retain(|one| one.source != Source::Builtin || !std::mem::replace(&mut is_named, true));
    found
}
