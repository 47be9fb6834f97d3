//! The child's command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::misbehaviours::{MISBEHAVIOURS, Misbehaviour};
use super::offers::Offers;
use super::stateless::Era;

/// Longest life of a child nobody stops: no test lasts longer, and a forgotten one must not stay for ever.
const LIFETIME: Duration = Duration::from_secs(300);

pub(super) enum Mode {
    Serve(Options),
    Descendant(Descendant),
    List,
}

/// How to be a child server.
#[derive(Debug)]
pub(super) struct Options {
    pub told: Vec<Told>,
    pub journal: Option<PathBuf>,
    /// Calls that stay honest before misbehaviour begins.
    pub after: u64,
    /// Only calls whose key begins so are mistreated.
    pub only: Option<String>,
    /// Of a thousand calls, how many are mistreated; the key and the seed decide which.
    pub odds: u64,
    pub seed: u64,
    /// The process that manages to create this file misbehaves; all later ones are honest.
    pub once: Option<PathBuf>,
    pub lifetime: Duration,
    /// What it speaks.
    pub era: Era,
    /// What it has beside tools.
    pub offers: Option<Offers>,
}

/// How to be a process started by the child.
#[derive(Debug)]
pub(super) struct Descendant {
    pub kind: String,
    pub journal: Option<PathBuf>,
    pub lifetime: Duration,
}

/// One misbehaviour with its number, as told on the command line.
#[derive(Clone, Copy, Debug)]
pub struct Told {
    /// What to do.
    pub item: &'static Misbehaviour,
    /// How much of it.
    pub amount: u64,
}

impl Told {
    /// Reads `37`, `die-before-reply` or `5=1500`.
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
        let item = MISBEHAVIOURS
            .iter()
            .find(|item| item.name == name || name.parse() == Ok(item.number))
            .with_context(|| format!("no misbehaviour {name:?}; see --list"))?;
        let amount = match (amount, &item.parameter) {
            (Some(_), None) => bail!("misbehaviour {name:?} takes no number"),
            (Some(amount), Some(_)) => amount,
            (None, parameter) => parameter.as_ref().map_or(0, |parameter| parameter.default),
        };
        Ok(Self { item, amount })
    }
}

/// Whether the call with this key is among the `odds` of a thousand that are mistreated.
/// A pure function of the key, so a test knows beforehand which calls will be hit.
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
        told: Vec::new(),
        journal: None,
        after: 0,
        only: None,
        odds: 1000,
        seed: 0,
        once: None,
        lifetime: LIFETIME,
        era: Era::default(),
        offers: None,
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
                for item in text.split(',').filter(|item| !item.is_empty()) {
                    options.told.push(Told::parse(item)?);
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
            "--descendant" => descendant = Some(text.to_owned()),
            _ => bail!(
                "unknown flag {flag}; there are --do --journal --after --only --odds --seed --once --lifetime-ms --era --offers --list"
            ),
        }
    }
    options.told.sort_by_key(|told| told.item.number);
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
    fn an_item_is_named_by_number_or_name_with_an_amount() {
        let told = Told::parse("answer-initialize-late=1500").unwrap();
        assert_eq!((told.item.number, told.amount), (5, 1500));
        assert_eq!(Told::parse("37").unwrap().item.name, "die-before-reply");
        assert!(Told::parse("61").is_err());
        assert!(Told::parse("37=4").is_err(), "37 takes no number");
        assert!(Told::parse("5=soon").is_err());
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
