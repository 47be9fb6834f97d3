//! The child's command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::hazards::{HAZARDS, Hazard};
use super::offers::Offers;
use super::stateless::Era;

/// Maximum lifetime of a child that is never stopped: longer than any test, so that a forgotten one does not stay for
/// ever.
const LIFETIME: Duration = Duration::from_mins(5);

pub(super) enum Mode {
    Serve(Options),
    Descendant(Descendant),
    List,
}

/// Options of a child server.
#[derive(Debug)]
pub(super) struct Options {
    pub selected: Vec<SelectedHazard>,
    pub journal: Option<PathBuf>,
    /// Calls that stay correct before the hazard takes effect.
    pub after: u64,
    /// Only calls whose key has this prefix are affected.
    pub only: Option<String>,
    /// How many of a thousand calls are affected; the key and the seed decide which.
    pub odds: u64,
    pub seed: u64,
    /// The process that manages to create this file misbehaves; all later ones are correct.
    pub once: Option<PathBuf>,
    pub lifetime: Duration,
    /// The protocol era it supports.
    pub era: Era,
    /// What it offers beside tools.
    pub offers: Option<Offers>,
    /// Whether it has the tools of a server that keeps state.
    pub stateful: bool,
    /// Whether it has a tool whose calls are tasks.
    pub tasks: bool,
    /// The name by which its pages call it, if it has pages.
    pub pages: Option<String>,
}

/// Options of a process started by the child.
#[derive(Debug)]
pub(super) struct Descendant {
    pub kind: String,
    pub journal: Option<PathBuf>,
    pub lifetime: Duration,
}

/// One hazard with its amount, as selected on the command line.
#[derive(Clone, Copy, Debug)]
pub struct SelectedHazard {
    pub hazard: &'static Hazard,
    /// Its amount.
    pub amount: u64,
}

impl SelectedHazard {
    /// Parses `die-before-reply` or `answer-initialize-late=1500`.
    pub fn parse(text: &str) -> Result<Self> {
        let (name, amount) = match text.split_once('=') {
            Some((name, amount)) => (
                name,
                Some(
                    amount
                        .parse()
                        .with_context(|| format!("{amount:?} in {text:?} is not a number"))?,
                ),
            ),
            None => (text, None),
        };
        let hazard = HAZARDS
            .iter()
            .find(|hazard| hazard.name == name)
            .with_context(|| format!("no misbehaviour {name:?}; see --list"))?;
        let amount = match (amount, &hazard.parameter) {
            (Some(_), None) => bail!("misbehaviour {name:?} takes no number"),
            (Some(amount), Some(_)) => amount,
            (None, parameter) => parameter.as_ref().map_or(0, |parameter| parameter.default),
        };
        Ok(Self { hazard, amount })
    }
}

/// Whether the call with this key is among the `odds` of a thousand that are affected. A pure function of the key, so
/// a test knows beforehand which calls will be hit.
pub fn fires_by_odds(seed: u64, key: &str, odds: u64) -> bool {
    let mut hash = key.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash ^= hash >> 29;
    hash = hash.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash ^= hash >> 32;
    hash % 1000 < odds
}

pub(super) fn parse(mut arguments: impl Iterator<Item = OsString>) -> Result<Mode> {
    let mut options = Options {
        selected: Vec::new(),
        journal: None,
        after: 0,
        only: None,
        odds: 1000,
        seed: 0,
        once: None,
        lifetime: LIFETIME,
        era: Era::default(),
        offers: None,
        stateful: false,
        tasks: false,
        pages: None,
    };
    let mut descendant = None;
    while let Some(flag) = arguments.next() {
        let flag = flag.to_string_lossy().into_owned();
        if flag == "--list" {
            return Ok(Mode::List);
        }
        let value = arguments.next().with_context(|| format!("{flag} needs a value"))?;
        let text = value.to_str().with_context(|| format!("the value of {flag} is not UTF-8"))?;
        let number =
            || text.parse::<u64>().with_context(|| format!("{flag} {text:?} is not a number"));
        match flag.as_str() {
            "--do" => {
                for hazard in text.split(',').filter(|hazard| !hazard.is_empty()) {
                    options.selected.push(SelectedHazard::parse(hazard)?);
                }
            }
            "--journal" => options.journal = Some(PathBuf::from(&value)),
            "--after" => options.after = number()?,
            "--only" => options.only = Some(text.to_owned()),
            "--odds" => options.odds = number()?,
            "--seed" => options.seed = number()?,
            "--once" => options.once = Some(PathBuf::from(&value)),
            "--lifetime-ms" => options.lifetime = Duration::from_millis(number()?),
            "--era" => {
                options.era = Era::named(text).with_context(|| format!("no era {text:?}"))?;
            }
            "--offers" => {
                let offers = Offers::named(text).with_context(|| format!("no offers {text:?}"))?;
                options.offers = Some(offers);
            }
            "--stateful" => options.stateful = text == "yes",
            "--tasks" => options.tasks = text == "yes",
            "--pages" => options.pages = Some(text.to_owned()),
            "--descendant" => descendant = Some(text.to_owned()),
            _ => bail!(
                "unknown flag {flag}; there are --do --journal --after --only --odds --seed --once --lifetime-ms --era --offers --stateful --tasks --pages --list"
            ),
        }
    }
    options.selected.sort_by_key(|selected| {
        HAZARDS.iter().position(|known| known.name == selected.hazard.name)
    });
    Ok(match descendant {
        Some(kind) => Mode::Descendant(Descendant {
            kind,
            journal: options.journal,
            lifetime: options.lifetime,
        }),
        None => Mode::Serve(options),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hazard_is_written_as_its_name_with_an_amount() {
        let selected = SelectedHazard::parse("answer-initialize-late=1500").unwrap();
        assert_eq!((selected.hazard.name, selected.amount), ("answer-initialize-late", 1500));
        assert_eq!(
            SelectedHazard::parse("die-before-reply").unwrap().hazard.name,
            "die-before-reply"
        );
        assert!(SelectedHazard::parse("37").is_err());
        assert!(SelectedHazard::parse("die-before-reply=4").is_err(), "it takes no number");
        assert!(SelectedHazard::parse("answer-initialize-late=soon").is_err());
    }

    #[test]
    fn odds_hit_about_their_share_and_always_the_same_calls() {
        let hit =
            |seed| (0..100_000).filter(|n| fires_by_odds(seed, &format!("call-{n}"), 10)).count();
        assert!((800..1200).contains(&hit(1)), "{}", hit(1));
        assert_eq!(hit(7), hit(7));
        assert!(!fires_by_odds(0, "x", 0));
        assert!(fires_by_odds(0, "x", 1000));
    }
}
