//! The settings as a page of the reference.

use std::fmt::Write;

use super::{Kind, SETTINGS};

/// `docs/reference/settings.md`.
pub fn settings_markdown() -> String {
    let mut page = INTRODUCTION.to_owned();
    page.push_str("\n| flag | variable | file key | default |\n|---|---|---|---|\n");
    for setting in SETTINGS.iter() {
        let key = setting.key.map_or("–".to_owned(), |key| format!("`{key}`"));
        let default = setting
            .default
            .as_ref()
            .map_or("–".to_owned(), |value| format!("`{}`", value.text()));
        let anchor = setting.flag;
        let _infallible =
            writeln!(page, "| [`--{anchor}`](#{anchor}) | `{}` | {key} | {default} |", setting.env);
    }
    for setting in SETTINGS.iter() {
        let _infallible = write!(page, "\n## {}\n\n{}.\n", setting.flag, setting.help);
        if !setting.doc.is_empty() {
            let _infallible = writeln!(page, "{}", sentences(setting.doc));
        }
        page.push('\n');
        match setting.kind {
            Kind::Count { min, max } => {
                let _infallible = writeln!(page, "A whole number from {min} to {max}.");
            }
            Kind::Millis { min, max } => {
                let _infallible = writeln!(
                    page,
                    "Milliseconds, from {min} to {max}; flag and variable also take `90s`, `5m`, `1h`."
                );
            }
            Kind::Bytes { min, max } => {
                let _infallible = writeln!(
                    page,
                    "Bytes, from {min} to {max}; flag and variable also take `512KiB`, `16MiB`."
                );
            }
            Kind::Word(words) => {
                for known in words {
                    let also: String =
                        known.also.iter().map(|also| format!(" or `{also}`")).collect();
                    let _infallible = writeln!(page, "- `{}`{also}: {}", known.word, known.meaning);
                }
            }
            Kind::Switch => page.push_str("`true` or `false`.\n"),
            Kind::Path => page.push_str("A path.\n"),
            Kind::Text => page.push_str("A text.\n"),
            Kind::Names => {
                page.push_str("Names with commas between them; in a file also a list.\n");
            }
        }
        if !setting.env_aliases().is_empty() {
            let aliases: Vec<String> =
                setting.env_aliases().iter().map(|alias| format!("`{alias}`")).collect();
            let _infallible = writeln!(page, "As a variable also {}.", aliases.join(", "));
        }
        if !setting.aliases.is_empty() {
            let aliases: Vec<String> =
                setting.aliases.iter().map(|alias| format!("`{alias}`")).collect();
            let _infallible = writeln!(page, "In the file also {}.", aliases.join(", "));
        }
    }
    page
}

/// One sentence per line, as all our Markdown.
fn sentences(text: &str) -> String {
    text.replace(". ", ".\n")
}

const INTRODUCTION: &str = "\
<!-- Made from the code by `UPDATE_DOCS=1 cargo test -p metamcp reference`. Do not edit. -->
# Settings

Every global setting can be given as a flag, as an environment variable and, mostly, in the config file.
A flag goes before a variable, a variable before the project's `.mcp.json`, that before the user's own file, and that before the default.
`metamcp config check` shows each value that is not a default and where it comes from.
Settings of a single server are in [the config file](config.md).
";
