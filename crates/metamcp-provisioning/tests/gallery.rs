//! The gallery: its file is sound, and people's needs find the right server or an honest no.

use std::collections::{BTreeMap, BTreeSet};

use metamcp_provisioning::provision::{
    Argument, Input, Kind, Listed, builtin, gallery, in_gallery, named, read, valid,
};
use serde::Deserialize;

/// How many servers of an answer are looked at: as many as `mcp_provision` shows.
const SHOWN: usize = 3;

/// How many servers there are at least: entries are lost by accident, too.
const LEAST: usize = 90;

/// Names that begin a line as their owners write them.
const LOWERCASE: [&str; 5] = ["monday.com", "n8n", "dbt", "arXiv", "shadcn/ui"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Needs {
    looked_at: Half,
    held_out: Half,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Half {
    /// Needs, with the servers that are right.
    covered: BTreeMap<String, Vec<String>>,
    uncovered: Vec<String>,
    /// Those of the first whose servers all still wait for their check.
    #[serde(skip)]
    waiting: BTreeMap<String, Vec<String>>,
}

fn needs() -> Needs {
    let mut needs: Needs = toml_edit::de::from_str(include_str!("../gallery/needs.toml"))
        .expect("the needs can be read");
    let all: BTreeSet<&str> =
        gallery().iter().map(|one| one.candidate.offer.identifier.as_str()).collect();
    for half in [&mut needs.looked_at, &mut needs.held_out] {
        let (covered, waiting) = std::mem::take(&mut half.covered)
            .into_iter()
            .partition(|(_, right)| right.iter().any(|one| all.contains(one.as_str())));
        half.covered = covered;
        half.waiting = waiting;
    }
    needs
}

fn answer(need: &str) -> Vec<String> {
    let found = in_gallery(need, SHOWN);
    found.iter().map(|(listed, _)| listed.candidate.offer.identifier.clone()).collect()
}

/// How many needs are met, and the answers to those that are not.
fn met(half: &Half) -> (usize, Vec<String>) {
    let mut missed = Vec::new();
    for (need, right) in &half.covered {
        let found = answer(need);
        if !found.iter().any(|one| right.contains(one)) {
            missed.push(format!("{need}: {found:?}"));
        }
    }
    (half.covered.len() - missed.len(), missed)
}

/// The needs that no server covers and that are answered all the same.
fn wrongly(half: &Half) -> Vec<String> {
    let answered = half.uncovered.iter().map(|need| (need, answer(need)));
    answered
        .filter(|(_, found)| !found.is_empty())
        .map(|(need, found)| format!("{need}: {found:?}"))
        .collect()
}

#[test]
fn people_find_the_right_server_among_the_first_three() {
    let Needs { looked_at, held_out } = needs();
    let all = |half: &Half| half.covered.len() + half.waiting.len();
    assert!(all(&held_out) >= all(&looked_at) && all(&looked_at) + all(&held_out) >= 100);
    assert!(looked_at.uncovered.len() + held_out.uncovered.len() >= 25);
    for (name, half) in [("looked at", &looked_at), ("held out", &held_out)] {
        let ((met, missed), wrongly) = (met(half), wrongly(half));
        let (covered, uncovered) = (half.covered.len(), half.uncovered.len());
        let waiting = half.waiting.len();
        // Of the held-out half the counts are all that is shown, so that nobody tunes to it by accident.
        let details = match name {
            "looked at" => format!("missed: {missed:#?}\nanswered: {wrongly:#?}"),
            _ => String::new(),
        };
        assert!(
            met * 100 >= covered * 80,
            "{name}: only {met} of {covered} needs are met, {waiting} wait for a server\n{details}"
        );
        assert!(
            wrongly.len() * 100 <= uncovered * 35,
            "{name}: {} of {uncovered} answered\n{details}",
            wrongly.len()
        );
    }
}

#[test]
fn what_is_right_for_a_need_is_known_and_no_need_is_there_twice() {
    let written = read(include_str!("../gallery/servers.toml")).unwrap();
    let all: BTreeSet<&str> =
        written.iter().map(|one| one.candidate.offer.identifier.as_str()).collect();
    let Needs { looked_at, held_out } = needs();
    let mut seen = BTreeSet::new();
    for half in [&looked_at, &held_out] {
        for (need, right) in &half.covered {
            assert!(right.iter().any(|one| all.contains(one.as_str())), "{need}: none is there");
        }
        let whole = half.covered.keys().chain(half.waiting.keys()).chain(&half.uncovered);
        for need in whole {
            assert!(seen.insert(need.clone()), "{need}: twice");
        }
    }
}

#[test]
fn every_server_was_checked_and_is_written_as_the_others_are() {
    assert!(gallery().len() >= LEAST, "{} servers", gallery().len());
    let mut names = BTreeSet::new();
    let mut groups: Vec<&str> = Vec::new();
    for listed in gallery() {
        let offer = &listed.candidate.offer;
        let name = &offer.identifier;
        assert_eq!(valid(offer.kind, name, &offer.version), Ok(()), "{name}");
        // `metamcp add` takes the short one.
        let short = listed.name();
        assert!(names.insert(short.clone()), "{name}: another server is called {short} too");
        let named = named(&short, &builtin());
        assert_eq!(named.len(), 1, "{short} means several");
        assert_eq!(&named[0].offer.identifier, name, "{short} means another");
        if groups.last() != Some(&listed.group.as_str()) {
            assert!(
                !groups.contains(&&*listed.group),
                "{name}: its group {} is elsewhere",
                listed.group
            );
            groups.push(&listed.group);
        }
        let checked = listed.checked.as_ref().unwrap();
        let is_hash = match offer.kind {
            Kind::Npm => checked.hash.starts_with("sha512-") && checked.hash.len() == 95,
            _ => checked.hash.strip_prefix("sha256:").is_some_and(|hex| {
                hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit())
            }),
        };
        assert!(is_hash, "{name}: {} is no hash of its kind", checked.hash);
        assert!(!checked.entry.is_empty() && !checked.entry.starts_with('/'), "{name}");
        assert!(checked.packages >= 1, "{name}");
        assert_eq!(
            checked.tools == 0,
            checked.needs.is_some(),
            "{name}: it says why it lists none"
        );
        assert!(listed.facts().and_then(|facts| facts.published).is_some(), "{name}");
        well_written(listed);
    }
}

/// Lines as STYLE.md wants them: no full stop, no praise, nothing that is cut where it is shown.
fn well_written(listed: &Listed) {
    let name = &listed.candidate.offer.identifier;
    let about = &listed.candidate.description;
    assert!((15..=120).contains(&about.chars().count()), "{name}: {about}");
    let is_named = LOWERCASE.iter().any(|brand| about.starts_with(brand));
    assert!(is_named || about.starts_with(char::is_uppercase), "{name}: {about}");
    assert!((10..=200).contains(&listed.words.chars().count()), "{name}: {}", listed.words);
    for text in [about, &listed.words] {
        assert!(!text.ends_with(['.', ',', ' ']) && text.trim() == text, "{name}: {text}");
        assert!(text.chars().all(|c| !c.is_control() && c != '!'), "{name}: {text}");
        let lower = text.to_lowercase();
        for praise in ["powerful", "seamless", "mcp server", "easily", "comprehensive", "official"]
        {
            assert!(!lower.contains(praise), "{name}: {praise:?} says nothing");
        }
    }
    let offer = &listed.candidate.offer;
    let asked = offer.arguments.iter().filter_map(|argument| match argument {
        Argument::Asked { input, .. } => Some(input),
        Argument::Fixed(_) => None,
    });
    let mut seen = BTreeSet::new();
    for Input { name: input, description, .. } in asked.chain(&offer.environment) {
        assert!(seen.insert(input), "{name}: {input} twice");
        assert!((3..=100).contains(&description.chars().count()), "{name}: {input}");
        assert!(!description.ends_with('.'), "{name}: {description}");
    }
}

#[test]
fn a_slip_in_the_file_is_found() {
    let entry = "[[server]]\npackage = \"npm:x\"\nversion = \"1\"\ngroup = \"g\"\nabout = \"a\"\nwords = \"w\"\n";
    assert_eq!(read(entry).unwrap().len(), 1);
    for wrong in ["flags = []\n", "vars = [{ name = \"A\" }]\n", "[server.checked]\nhash = 3\n"] {
        assert!(read(&format!("{entry}{wrong}")).is_err(), "{wrong}");
    }
    assert!(read(&entry.replace("npm:", "cargo:")).unwrap_err().contains("begins with npm:"));
}
