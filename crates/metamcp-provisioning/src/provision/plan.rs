//! A plan: exactly what would be installed and run; and the approval of it, valid once and for a limited time.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::assessment::Verdict;
use super::candidate::{Argument, Candidate, Input, Kind, Source};
use super::facts::{Facts, Lock, hex};
use super::secret_ref::secret_ref;

/// How long an approval given in a terminal is valid.
const APPROVAL_LIFETIME: u64 = 15 * 60 * 1000;
/// Longest value a person may give.
const MAX_VALUE: usize = 4096;

/// One word of a command line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Word {
    Fixed(String),
    /// What the person gives under that name.
    Asked(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// What the server will be called here.
    pub server: String,
    /// The publisher's description.
    pub description: String,
    /// As its source names it.
    pub candidate: String,
    pub source: Source,
    /// How it is brought here.
    pub kind: Kind,
    /// The package, the image or the address.
    pub identifier: String,
    pub version: String,
    pub integrity: Option<String>,
    /// Everything it needs, pinned.
    pub lock: Option<Lock>,
    /// The folder of its own that it is installed into.
    pub prefix: String,
    /// The command line; for a remote one, its address alone.
    pub argv: Vec<Word>,
    /// Values for it that only the person has.
    pub asked: Vec<Input>,
    /// The variables it gets from the environment of the gateway, and no others.
    pub environment: Vec<Input>,
    /// When this version was published, in milliseconds since 1970.
    pub published: Option<u64>,
    /// What is to be said for and against it.
    pub verdict: Verdict,
    /// What keeps it from everything else on this machine.
    #[serde(default)]
    pub contained: Contained,
}

/// What keeps an installed server from everything else on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Contained {
    /// A process sandbox: it has the system's folders and its own.
    #[serde(rename = "walls")]
    Sandbox,
    /// A container of docker.
    Container,
    /// Another machine.
    Elsewhere,
    Nothing {
        why: String,
    },
}

impl Default for Contained {
    fn default() -> Contained {
        Contained::Nothing { why: "it was planned before there was a sandbox".to_owned() }
    }
}

/// A person's approval of one plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approval {
    /// The plan's digest.
    pub digest: String,
    /// The values that the person gave.
    pub values: Vec<(String, String)>,
    /// Until when it is good, in milliseconds since 1970.
    pub expires: u64,
}

/// A plan somebody agreed to, complete with values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Consent {
    /// The command line, every word of it.
    pub argv: Vec<String>,
    /// What the person gave for variables; those not given come from the gateway's own.
    pub environment: Vec<(String, String)>,
}

/// Why an approval is not valid for this plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// To something else.
    #[error("the approval is for another plan")]
    Other,
    /// Too long ago.
    #[error("the approval has expired")]
    Expired,
    /// A value is missing.
    #[error("the value {name} is missing")]
    Missing { name: String },
    /// A value no program may be given.
    #[error(
        "the value {name} cannot be used: it starts with a dash, is too long, or holds a control character"
    )]
    Value { name: String },
    /// A secret that could be handed over only where everybody can read it.
    #[error(
        "the value {name} looks like a secret, and an argument of docker can be read by every user of this machine"
    )]
    InTheOpen { name: String },
    /// What is refused stays refused.
    #[error("the plan is refused")]
    Refused,
}

impl Plan {
    /// Puts a plan together. `prefix` is the folder it may be installed into; `sandbox_available` says whether they can be had
    /// here, or why not.
    pub fn new(
        server: String,
        candidate: &Candidate,
        facts: &Facts,
        verdict: Verdict,
        prefix: &str,
        sandbox_available: Result<(), String>,
    ) -> Plan {
        let offer = &candidate.offer;
        let mut argv: Vec<Word> =
            start(candidate, facts, prefix).into_iter().map(Word::Fixed).collect();
        let mut asked = Vec::new();
        for argument in &offer.arguments {
            match argument {
                Argument::Fixed(text) => argv.push(Word::Fixed(text.clone())),
                Argument::Asked { flag, input } => {
                    argv.extend(flag.clone().map(Word::Fixed));
                    argv.push(Word::Asked(input.name.clone()));
                    asked.push(input.clone());
                }
            }
        }
        Plan {
            server,
            description: candidate.description.clone(),
            candidate: candidate.name.clone(),
            source: candidate.source.clone(),
            kind: offer.kind,
            identifier: offer.identifier.clone(),
            version: offer.version.clone(),
            integrity: facts.integrity.clone(),
            lock: facts.lock.clone(),
            prefix: prefix.to_owned(),
            argv,
            asked,
            environment: offer.environment.clone(),
            published: facts.published,
            verdict,
            contained: match (offer.kind, sandbox_available) {
                (Kind::Remote, _) => Contained::Elsewhere,
                (Kind::Oci, _) => Contained::Container,
                (Kind::Npm | Kind::Pypi, Ok(())) => Contained::Sandbox,
                (Kind::Npm | Kind::Pypi, Err(why)) => Contained::Nothing { why },
            },
        }
    }

    /// Covers everything that is approved: who offers it, what is fetched, what is run, what it is handed, with the
    /// values that are used where the person gives none.
    pub fn digest(&self) -> String {
        let lock = self.lock.as_ref().map(|lock| &lock.digest);
        let what = (
            (&self.server, self.kind, &self.identifier, &self.version, &self.integrity, lock),
            (&self.prefix, &self.argv, self.verdict.scripts_agreed, &self.contained),
            (&self.source, &self.candidate, &self.asked, &self.environment),
        );
        // Everything in there is text and lists of it, which can always be written.
        hex(&Sha256::digest(serde_json::to_vec(&what).unwrap_or_default()))
    }

    /// The package with its version, for a sentence; of an image, its digest says it all.
    pub fn package(&self) -> String {
        format!("{} {}", self.identifier, self.version).trim_end().to_owned()
    }

    /// What a person types to mean this plan.
    pub fn id(&self) -> String {
        self.digest().chars().take(12).collect()
    }

    /// Whether it may be run once a person approves it.
    pub fn is_refused(&self) -> bool {
        !self.verdict.refusals.is_empty()
    }

    /// An approval of this plan, given now.
    pub fn approve(&self, values: Vec<(String, String)>, now: u64) -> Approval {
        Approval { digest: self.digest(), values, expires: now.saturating_add(APPROVAL_LIFETIME) }
    }

    /// Whether an approval is for this very plan.
    pub fn agreed(&self, approval: &Approval, now: u64) -> Result<Consent, Rejected> {
        if approval.digest != self.digest() {
            return Err(Rejected::Other);
        }
        // One from far in the future was written by a clock that was wrong, or by somebody else.
        if now > approval.expires || approval.expires - now > APPROVAL_LIFETIME {
            return Err(Rejected::Expired);
        }
        self.complete(&approval.values)
    }

    /// The plan with the given values filled in.
    pub fn complete(&self, values: &[(String, String)]) -> Result<Consent, Rejected> {
        if self.is_refused() {
            return Err(Rejected::Refused);
        }
        let value = |name: &String| {
            let given =
                values.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
            let default = self.asked.iter().find(|input| input.name == *name)?.default.as_deref();
            given.filter(|given| !given.is_empty()).or(default).map(str::to_owned)
        };
        let mut argv = Vec::with_capacity(self.argv.len());
        for word in &self.argv {
            argv.push(match word {
                Word::Fixed(text) => text.clone(),
                Word::Asked(name) => {
                    let value =
                        value(name).ok_or_else(|| Rejected::Missing { name: name.clone() })?;
                    if !usable(&value) || value.starts_with('-') {
                        return Err(Rejected::Value { name: name.clone() });
                    }
                    if self.kind == Kind::Oci && self.is_secret(name, &value) {
                        return Err(Rejected::InTheOpen { name: name.clone() });
                    }
                    value
                }
            });
        }
        if argv.iter().any(|word| !usable(word)) {
            return Err(Rejected::Value { name: "of its publisher".to_owned() });
        }
        let mut environment = Vec::new();
        for (name, value) in values {
            let is_known = self.environment.iter().any(|input| input.name == *name);
            if is_known && !value.is_empty() {
                if !usable(value) {
                    return Err(Rejected::Value { name: name.clone() });
                }
                environment.push((name.clone(), value.clone()));
            }
        }
        Ok(Consent { argv, environment })
    }

    /// The command line as it may be shown: what must not be is named in its place.
    pub fn shown(&self, argv: &[String]) -> Vec<String> {
        let words = argv.iter().enumerate();
        let shown = words.map(|(at, word)| match self.asked_at(at) {
            Some(input) if input.is_secret() || secret_ref(word).is_some() => {
                format!("[secret {}]", input.name)
            }
            _ => word.clone(),
        });
        shown.collect()
    }

    /// The input at that place of the command line, if there is one.
    pub fn asked_at(&self, at: usize) -> Option<&Input> {
        let Some(Word::Asked(name)) = self.argv.get(at) else { return None };
        self.asked.iter().find(|input| input.name == *name)
    }

    /// The values that the person gave, taken from the resulting command line. A publisher's own value is
    /// none of these, even if the person repeated it.
    pub fn given<'a>(&'a self, argv: &'a [String]) -> impl Iterator<Item = &'a str> {
        self.argv.iter().zip(argv).filter_map(move |(word, value)| {
            let Word::Asked(name) = word else { return None };
            let input = self.asked.iter().find(|input| input.name == *name)?;
            (input.default.as_ref() != Some(value)).then_some(value.as_str())
        })
    }

    /// Whether it cannot be run without a secret among its arguments, which only a terminal asks for.
    pub fn asks_for_a_secret(&self) -> bool {
        self.asked.iter().any(|input| input.is_secret() && input.default.is_none())
    }

    /// Whether a value for an argument is a secret, or stands for one.
    fn is_secret(&self, name: &str, value: &str) -> bool {
        let mut inputs = self.asked.iter().filter(|input| input.name == name);
        secret_ref(value).is_some() || inputs.any(|input| input.is_worth_keeping(value))
    }

    /// Values without which it cannot be run, given those that are there; `has` says which variables the gateway has.
    pub fn missing(&self, values: &[(String, String)], has: &dyn Fn(&str) -> bool) -> Vec<&Input> {
        let given = |input: &Input| {
            values.iter().any(|(name, value)| *name == input.name && !value.is_empty())
        };
        let lacks = |input: &&Input| input.default.is_none() && !given(input);
        let asked = self.asked.iter().filter(lacks);
        let named = self.environment.iter().filter(lacks);
        asked.chain(named.filter(|input| input.required && !has(&input.name))).collect()
    }
}

fn usable(word: &str) -> bool {
    word.len() <= MAX_VALUE && !word.chars().any(char::is_control)
}

/// A container of its own for each start, which is gone afterwards with all that was written in it. `--init` passes
/// signals on to servers that would not hear them as the first process. Nothing is pulled at a start; nothing of what
/// is said goes into a log of the engine's; the root of the container has no rights beyond its own files.
const CONTAINER: [&str; 14] = [
    "docker",
    "run",
    "-i",
    "--rm",
    "--init",
    "--pull",
    "never",
    "--log-driver",
    "none",
    "--cap-drop",
    "ALL",
    "--security-opt",
    "no-new-privileges",
    "--label=metamcp=provisioned",
];

/// The table of runtimes: what comes before the arguments of the server itself. Nothing in it is taken from a
/// registry but names that were checked.
fn start(candidate: &Candidate, facts: &Facts, prefix: &str) -> Vec<String> {
    let offer = &candidate.offer;
    let entry = facts.entry.as_deref().unwrap_or_default();
    match offer.kind {
        Kind::Npm => {
            vec!["node".to_owned(), format!("{prefix}/node_modules/{}/{entry}", offer.identifier)]
        }
        Kind::Pypi => vec![format!("{prefix}/venv/bin/{entry}")],
        Kind::Oci => {
            let mut argv: Vec<String> = CONTAINER.map(str::to_owned).to_vec();
            for input in &offer.environment {
                argv.extend(["-e".to_owned(), input.name.clone()]);
            }
            argv.push(offer.identifier.clone());
            argv
        }
        Kind::Remote => vec![offer.identifier.clone()],
    }
}
