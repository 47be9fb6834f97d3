//! Misspelt `METAMCP_*` variables, so that one without effect is at least reported.

use super::{SETTINGS, runtime};
use metamcp_types::nearest::nearest;
use metamcp_types::text;

/// How variables of ours begin, and those of metatools.
const PREFIXES: [&str; 2] = ["METAMCP_", "METATOOLS_"];
/// Variables that gateways and installed servers set for one another, and the place of the daemon's socket, which is no
/// setting because it has to be known before any is read.
const INTERNAL: [&str; 3] = ["METAMCP_GATEWAYS_ABOVE", "METAMCP_ARGUMENTS", "METAMCP_RUNTIME_DIR"];
/// What `metamcp upgrade` and the install scripts read; no file can set them, since no gateway does either.
const INSTALLATION: [&str; 2] = ["METAMCP_BASE_URL", "METAMCP_PREFIX"];
/// Most that are named.
const MOST: usize = 20;
/// Longest name that is repeated.
const LONGEST: usize = 80;

/// A variable that is set and that nothing reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownVariable {
    /// Its name, fit to be shown. Its value is nobody's business.
    pub name: String,
    /// The variable that was probably meant.
    pub nearest: Option<&'static str>,
}

/// Which of the variables that are set look like ours and mean nothing; `is_used` says what the configuration itself
/// refers to.
pub fn unknown_variables<'a>(
    set: impl IntoIterator<Item = &'a str>,
    is_used: &dyn Fn(&str) -> bool,
) -> Vec<UnknownVariable> {
    let known: Vec<&'static str> = SETTINGS
        .iter()
        .flat_map(|setting| {
            std::iter::once(setting.env).chain(setting.env_aliases().iter().copied())
        })
        .chain(runtime::VARIABLES)
        .collect();
    let is_unknown = |name: &&str| {
        without_prefix(name).is_some()
            && !known.contains(name)
            && !INTERNAL.contains(name)
            && !INSTALLATION.contains(name)
            && !is_used(name)
    };
    let mut unknown: Vec<&str> = set.into_iter().filter(is_unknown).collect();
    unknown.sort_unstable();
    unknown.dedup();
    unknown.truncate(MOST);
    let shown = |name: &str| UnknownVariable {
        name: text::clean_line(name, LONGEST).into_owned(),
        nearest: meant(name, &known),
    };
    unknown.into_iter().map(shown).collect()
}

/// The prefix says nothing about what was meant, and is common to all; the rest does.
fn meant(name: &str, known: &[&'static str]) -> Option<&'static str> {
    let rest = without_prefix(name)?;
    let rests = known.iter().filter_map(|known| without_prefix(known));
    let near = *nearest(rest, rests, 1).first()?;
    let mut ways = known.iter().filter(|known| without_prefix(known) == Some(near));
    // Suggestions have the same prefix as the misspelt name.
    let own = ways.clone().find(|known| name.starts_with(prefix(known)));
    own.or_else(|| ways.next()).copied()
}

fn prefix(name: &str) -> &'static str {
    PREFIXES.into_iter().find(|prefix| name.starts_with(prefix)).unwrap_or_default()
}

fn without_prefix(name: &str) -> Option<&str> {
    PREFIXES.into_iter().find_map(|prefix| name.strip_prefix(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(set: &[&str]) -> Vec<(String, Option<&'static str>)> {
        let unknown = unknown_variables(set.iter().copied(), &|name| name == "METAMCP_MY_TOKEN");
        unknown.into_iter().map(|one| (one.name, one.nearest)).collect()
    }

    #[test]
    fn every_variable_of_ours_that_nothing_reads_is_told_with_the_nearest() {
        let told = told(&[
            "PATH",
            "METAMCP_HOME",
            "METAMCP_SERACH",
            "METATOOLS_RUNTIME_PROFIL",
            "METAMCP_RUNTIME_BACKEND",
            "METATOOLS_SEARCH_STRATEGY",
            "METATOOLS_RUNTIME_PROFILE",
            "METATOOLS_QUX",
            "METAMCP_MY_TOKEN",
            "METAMCP_GATEWAYS_ABOVE",
            "METAMCP_BASE_URL",
            "METAMCP",
        ]);
        let expect = [
            ("METAMCP_RUNTIME_BACKEND", Some("METATOOLS_RUNTIME_BACKEND")),
            ("METAMCP_SERACH", Some("METAMCP_SEARCH")),
            ("METATOOLS_QUX", None),
            ("METATOOLS_RUNTIME_PROFIL", Some("METATOOLS_RUNTIME_PROFILE")),
        ];
        assert_eq!(told, expect.map(|(name, near)| (name.to_owned(), near)));
    }

    #[test]
    fn names_are_data() {
        let long = format!("METAMCP_{}", "X".repeat(10_000));
        let many: Vec<String> = (0..1000).map(|n| format!("METAMCP_Z{n:04}")).collect();
        let mut set: Vec<&str> = many.iter().map(String::as_str).collect();
        set.insert(0, &long);
        set.insert(0, "METAMCP_\u{1b}[31mRED\n");
        let told = told(&set);
        assert_eq!(told.len(), MOST);
        for (name, _) in told {
            assert!(name.chars().count() <= LONGEST + 1 && !name.contains(char::is_control));
        }
    }

    #[test]
    fn no_setting_is_unknown() {
        let all: Vec<&str> = SETTINGS
            .iter()
            .flat_map(|setting| {
                std::iter::once(setting.env).chain(setting.env_aliases().iter().copied())
            })
            .collect();
        assert_eq!(told(&all), []);
    }
}
