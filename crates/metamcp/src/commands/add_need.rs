//! `metamcp add NEED`: which servers could do what is needed, and what installing each would do.
//! Owns: what is a need and what a name, the choice at a terminal.      Never: installs; chooses for anybody.
//! In: words.  Out: the candidate that a person chose, or the answer alone.
//! Tests: `tests/config/first.rs`, `tests/real/gallery.rs`.

use std::collections::BTreeSet;
use std::io::Write;

use anyhow::bail;
use metamcp_engine::provision::{Found, Provisioner};
use metamcp_provisioning::provision::{
    self as core, Candidate, Listed, Plan, builtin, described, gallery, server_name, told,
};
use metamcp_types::nearest::nearest;
use metamcp_types::text;
use serde_json::{Value, json};

use crate::args::AddArgs;
use crate::exit::misuse;
use crate::render::visible;
use crate::{progress, prompt};

/// Longest description in the list to choose from.
const MAX_ABOUT: usize = 160;

/// What the words after `metamcp add` came to.
pub(super) enum Answer {
    /// They are a name, of whatever.
    Name,
    Chosen(Box<Candidate>),
    /// It was told what there is, and nothing more was wanted.
    Told,
    /// Nobody chose any of them.
    Declined,
}

/// Answers a need; a name is left to others.
pub(super) async fn answer(
    provisioner: &Provisioner,
    names: &BTreeSet<String>,
    args: &AddArgs,
    out: &mut dyn Write,
) -> anyhow::Result<Answer> {
    let need = args.name.trim();
    let is_taken = |name: &str| names.contains(name);
    let is_phrase = need.contains(char::is_whitespace);
    // With `--yes` a single word can only be a name: nobody is asked to choose.
    if !is_phrase && (args.yes || is_a_name(need)) {
        return Ok(Answer::Name);
    }
    let plans = provisioner.find_in_gallery(need, &is_taken).await;
    let found = match (plans.is_empty(), is_phrase) {
        (false, _) => Found { plans, notes: Vec::new() },
        // A single word may be the name of a server in a registry.
        (true, false) => return Ok(Answer::Name),
        (true, true) => {
            let _working = progress::step("looking in the registries".to_owned());
            provisioner.find(need, &is_taken, true).await
        }
    };
    if args.yes {
        return Err(misuse(
            "--yes installs a server by its name; without it, this shows which there are for a need",
        ));
    }
    if found.plans.is_empty() {
        return Err(nothing(need, &found.notes));
    }
    if args.write.json {
        writeln!(out, "{:#}", for_programs(need, &found))?;
        return Ok(Answer::Told);
    }
    show(&found, out)?;
    if args.write.dry_run {
        return Ok(Answer::Told);
    }
    choose(found.plans, out)
}

/// What installs it.
fn name_of(candidate: &Candidate) -> String {
    core::listed(candidate).map_or_else(|| candidate.name.clone(), Listed::name)
}

/// Whether a word is a server of the gallery, a slip of one, or what a package or an entry is called.
fn is_a_name(word: &str) -> bool {
    let listed = builtin();
    if word.contains(['/', '@', '.', ':']) || !core::named(word, &listed).is_empty() {
        return true;
    }
    let short: Vec<String> =
        listed.iter().map(|one| server_name(&one.offer.identifier, |_| false)).collect();
    !nearest(word, short.iter().map(String::as_str), 1).is_empty()
}

fn nothing(need: &str, notes: &[String]) -> anyhow::Error {
    let notes: String = notes.iter().map(|note| format!("\n{}", visible(note))).collect();
    anyhow::anyhow!(
        "no server was found for \"{}\", neither among the {} of the gallery nor in the registries\n\
         Say it in other words, or give the command of a server after `--`.{notes}",
        visible(need),
        gallery().len()
    )
}

fn for_programs(need: &str, found: &Found) -> Value {
    let now = metamcp_engine::clock::unix_millis();
    let choice = |(candidate, plan): &(Candidate, Plan)| {
        let mut choice = described(plan, now);
        choice["add"] = json!(name_of(candidate));
        choice
    };
    let choices: Vec<Value> = found.plans.iter().map(choice).collect();
    json!({ "need": need, "choices": choices, "notes": found.notes, "done": "nothing" })
}

/// The first in full: it is the likeliest. Any other is shown in full once it is chosen.
fn show(found: &Found, out: &mut dyn Write) -> anyhow::Result<()> {
    for (number, (candidate, plan)) in found.plans.iter().enumerate() {
        let about = text::first_sentence(&plan.description, MAX_ABOUT);
        let refused = if plan.is_refused() { " (refused by the rules)" } else { "" };
        writeln!(
            out,
            "{}. {}  {}{refused}\n   {}",
            number + 1,
            visible(&plan.server),
            visible(&candidate.package()),
            visible(&about)
        )?;
    }
    if let Some((_, plan)) = found.plans.first() {
        writeln!(out, "\nInstalling {} would do this:\n\n{}", plan.server, visible(&told(plan)))?;
    }
    for note in &found.notes {
        writeln!(out, "Note: {}", visible(note))?;
    }
    Ok(())
}

fn choose(plans: Vec<(Candidate, Plan)>, out: &mut dyn Write) -> anyhow::Result<Answer> {
    if !prompt::is_there() {
        bail!(
            "nothing was installed: there is no terminal to choose at; `metamcp add NAME` installs one of them, such as `metamcp add {}`",
            plans.first().map_or_else(|| "NAME".to_owned(), |(candidate, _)| name_of(candidate))
        );
    }
    let question = match plans.len() {
        1 => "Which one? 1, or Enter for none: ".to_owned(),
        count => format!("Which one? 1 to {count}, or Enter for none: "),
    };
    let said = prompt::line(out, &question)?;
    let place = said.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
    Ok(match place.and_then(|place| plans.into_iter().nth(place)) {
        Some((candidate, _)) => Answer::Chosen(Box::new(candidate)),
        None => Answer::Declined,
    })
}
