//! Plans as people and models read them. Whatever a publisher wrote is cleaned before it is shown.

use serde_json::{Map, Value, json};

use super::candidate::{Input, Kind, Source};
use super::plan::{Contained, Plan, Word};
use metamcp_types::text;

/// Longest text of a publisher that is shown.
const MAX_SHOWN: usize = 300;
const DAY: u64 = 24 * 60 * 60 * 1000;

/// Everything a person needs to know before approving, every word of the command line included.
pub fn told(plan: &Plan) -> String {
    let mut out = String::new();
    let shown = |text: &str| text::clean_line(text, MAX_SHOWN).into_owned();
    let mut line = |name: &str, value: &str| out.push_str(&format!("{name:<10} {value}\n"));
    line("server", &format!("{} ({})", plan.server, shown(&plan.description)));
    let source = match &plan.source {
        Source::Registry(base) => format!("{} in {}", shown(&plan.candidate), shown(base)),
        Source::Builtin => "metamcp's gallery of checked servers".to_owned(),
        Source::Npm => "npm search: UNVETTED, in no registry of MCP servers".to_owned(),
    };
    line("found in", &source);
    let package = match plan.kind {
        Kind::Npm | Kind::Pypi => {
            let (package, version) = (shown(&plan.identifier), shown(&plan.version));
            format!("{} {package} {version}", plan.kind.word())
        }
        Kind::Oci => format!("image {}", shown(&plan.identifier)),
        Kind::Remote => "nothing: a remote service".to_owned(),
    };
    line("installs", &package);
    if let Some(integrity) = &plan.integrity {
        line("hash", &shown(integrity));
    }
    if let Some(lock) = &plan.lock {
        line("with", &format!("{} packages in all, each pinned to its hash", lock.packages));
    }
    let (runs, into) =
        if plan.kind == Kind::Remote { ("speaks to", "") } else { ("runs", &*plan.prefix) };
    line(runs, &command(plan));
    if matches!(plan.kind, Kind::Npm | Kind::Pypi) {
        line("into", into);
    }
    line("sandbox", &contained(plan));
    line("variables", &variables(plan));
    for input in &plan.asked {
        let about = format!("{} ({})", shown(&input.name), shown(&input.description));
        line("asks for", &format!("{about}{}", unless(input)));
    }
    // An image that takes one so is refused.
    let is_handed = matches!(plan.kind, Kind::Npm | Kind::Pypi);
    for input in plan.asked.iter().filter(|input| is_handed && input.is_secret()) {
        let name = shown(&input.name);
        line(
            "secret",
            &format!(
                "{name} is not on the command line, where every user of this machine could read it: a small loader of metamcp passes it on"
            ),
        );
    }
    if plan.verdict.scripts_agreed {
        line("scripts", scripts(plan));
    }
    for reason in &plan.verdict.reasons {
        line("note", &shown(reason));
    }
    for refusal in &plan.verdict.refusals {
        line("REFUSED", &text::clean_line(&refusal.to_string(), 1000));
    }
    out
}

/// The same for programs: what installing it would do. `now` is in milliseconds since 1970.
pub fn described(plan: &Plan, now: u64) -> Value {
    let input = |input: &Input| {
        json!({
            "name": input.name, "about": input.description, "required": input.required,
            "secret": input.is_secret(), "default": input.default,
        })
    };
    let age = plan.published.map(|published| now.saturating_sub(published) / DAY);
    let refusals: Vec<String> = plan.verdict.refusals.iter().map(ToString::to_string).collect();
    json!({
        "server": plan.server,
        "about": plan.description,
        "source": plan.kind.word(),
        "package": plan.identifier,
        "version": plan.version,
        "integrity": plan.integrity,
        "age_days": age,
        "runs": command(plan),
        "sandbox": contained(plan),
        "asks": plan.asked.iter().map(input).collect::<Vec<_>>(),
        "variables": plan.environment.iter().map(input).collect::<Vec<_>>(),
        "verdict": plan.verdict.word(),
        "reasons": plan.verdict.reasons,
        "refusals": refusals,
    })
}

fn contained(plan: &Plan) -> String {
    match &plan.contained {
        Contained::Sandbox => {
            let named = if plan.asked.is_empty() { "" } else { ", and what you name" };
            format!(
                "it reads the system's folders and its own, writes only its own{named}; none of your other files, no keychain, no SSH agent; the network is not restricted"
            )
        }
        Contained::Container => "a container without your folders and without capabilities; the network is not restricted".to_owned(),
        Contained::Elsewhere => "not needed: it runs on another machine and sees only what it is sent".to_owned(),
        Contained::Nothing { why } => {
            format!(
                "NONE, so it can read and change every file that you can: {}",
                text::clean_line(why, MAX_SHOWN)
            )
        }
    }
}

/// What keeps the code that runs while it is installed.
fn scripts(plan: &Plan) -> &'static str {
    match plan.contained {
        Contained::Sandbox => {
            "its install scripts run sandboxed as well: they write only its packages and its own folder, read none of your other files, and may use the network"
        }
        _ => {
            "its install scripts run WITHOUT a sandbox: they can read and change every file that you can"
        }
    }
}

/// The command line, quoted so that its arguments are unambiguous.
fn command(plan: &Plan) -> String {
    let word = |word: &Word| match word {
        Word::Fixed(text)
            if text.chars().all(|c| c.is_ascii_graphic() && !"\"'\\$`".contains(c)) =>
        {
            text.clone()
        }
        Word::Fixed(text) => quoted(text),
        Word::Asked(name) => {
            let input = plan.asked.iter().find(|input| input.name == *name);
            let default = input.and_then(|input| input.default.as_deref());
            let default = default.map(|value| format!(" = {}", quoted(value)));
            format!("<{}{}>", text::clean_line(name, MAX_SHOWN), default.unwrap_or_default())
        }
    };
    plan.argv.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// Escapes stand for what cannot be seen; nothing is cut.
fn quoted(text: &str) -> String {
    format!("{text:?}")
}

/// What is used if the person gives no value, and what that means.
fn unless(input: &Input) -> String {
    match &input.default {
        Some(default) => format!(
            "; default {}, which as the publisher's value grants no access to your folders",
            quoted(default)
        ),
        None => String::new(),
    }
}

fn variables(plan: &Plan) -> String {
    let name = |input: &Input| {
        let default = input.default.as_ref().map(|value| format!(" = {}", quoted(value)));
        let need = if input.required && default.is_none() { " (required)" } else { "" };
        let name = text::clean_line(&input.name, MAX_SHOWN);
        format!("{name}{}{need}", default.unwrap_or_default())
    };
    if plan.environment.is_empty() {
        return "none of yours".to_owned();
    }
    plan.environment.iter().map(name).collect::<Vec<_>>().join(", ")
}

/// The params of the elicitation for a person. It never asks for a secret: what is typed into a client is stored by it,
/// and may be read by a model. What the model says it is for is quoted as that.
pub fn question(plan: &Plan, context: Option<&str>) -> Value {
    let said =
        context.map(|said| text::clean_line(said, MAX_SHOWN)).map_or_else(String::new, |said| {
            format!(" In its own words, which nobody checked, it is for: {}", quoted(&said))
        });
    let message = format!(
        "A model asks to install and run an MCP server on this machine. Approve only if you want this server.{said}\n\n{}",
        told(plan)
    );
    let mut properties = Map::new();
    properties.insert(
        "install".to_owned(),
        json!({
            "type": "boolean",
            "title": format!("Install and run {}", plan.server),
            "description": "Exactly what is shown, this once",
            "default": false,
        }),
    );
    let mut required = vec!["install".to_owned()];
    for input in plan.asked.iter().filter(|input| !input.is_secret()) {
        let mut field = json!({
            "type": "string",
            "title": text::clean_line(&input.name, MAX_SHOWN),
            "description": text::clean_line(&input.description, MAX_SHOWN),
        });
        match &input.default {
            Some(default) => field["default"] = json!(default),
            None => required.push(input.name.clone()),
        }
        properties.insert(input.name.clone(), field);
    }
    json!({
        "mode": "form",
        "message": message,
        "requestedSchema": { "type": "object", "properties": properties, "required": required },
    })
}

/// The plans as a model reads them.
pub fn candidates_text(plans: &[Plan]) -> String {
    let mut out = String::new();
    for (number, plan) in plans.iter().enumerate() {
        let about = text::first_sentence(&plan.description, 160);
        let vetted = if plan.source == Source::Npm { " (unvetted, by npm search)" } else { "" };
        let heading = format!(
            "{}. {} {} {}{vetted}: {}",
            number + 1,
            plan.kind.word(),
            text::clean_line(&plan.identifier, MAX_SHOWN),
            text::clean_line(&plan.version, MAX_SHOWN),
            text::clean_line(&about, 160)
        );
        out.push_str(heading.replace("  ", " ").trim_end());
        out.push_str(&format!(
            "\n   runs: {}\n   environment: {}\n",
            command(plan),
            variables(plan)
        ));
        let why: Vec<String> = if plan.is_refused() {
            plan.verdict.refusals.iter().map(ToString::to_string).collect()
        } else {
            plan.verdict.reasons.clone()
        };
        let why = text::clean_line(&why.join("; "), 1000).into_owned();
        out.push_str(&format!("   verdict: {}: {why}\n", plan.verdict.word()));
    }
    out
}
