//! The fast path for the command lines that clients start a gateway with: settings and nothing else, parsed without
//! clap. Building a parser for two dozen commands takes longer than everything else before the first response, and a
//! megabyte of memory that is never freed. Anything not recognized here, mistakes included, is left to clap.

use std::ffi::OsString;

use metamcp_config::settings::{Given, Origin, SETTINGS, Setting, Value};

use super::flags;

/// The settings of a command line that serves and has nothing else, in the order of their table.
pub(crate) fn serving(words: &[OsString]) -> Option<Vec<Given>> {
    let mut words = words.iter().map(|word| word.to_str());
    let mut found: Vec<(usize, Value)> = Vec::new();
    let mut is_said = false;
    while let Some(word) = words.next() {
        let word = word?;
        if word == "serve" && !is_said {
            is_said = true;
            continue;
        }
        let (name, joined) = match word.strip_prefix("--")?.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word.strip_prefix("--")?, None),
        };
        let place = SETTINGS.iter().position(|setting| setting.flag == name)?;
        let text = match joined {
            Some(value) => value,
            None if flags::is_bare(&SETTINGS[place]) => "true",
            None => words.next()??,
        };
        // A value that looks like a flag is most likely a forgotten value, and a flag given twice is a mistake.
        let is_doubtful = joined.is_none() && text.starts_with('-');
        if is_doubtful || found.iter().any(|(taken, _)| *taken == place) {
            return None;
        }
        found.push((place, SETTINGS[place].kind.from_text(text).ok()?));
    }
    found.sort_by_key(|(place, _)| *place);
    let given = |(place, value): (usize, Value)| {
        let setting: &'static Setting = &SETTINGS[place];
        Given { setting, value, origin: Origin::Flag { name: setting.flag } }
    };
    Some(found.into_iter().map(given).collect())
}
