//! The commands grouped by purpose: the list in `metamcp --help`.

use clap::Command;
use clap::builder::StyledStr;

/// Every command, in the order of the help. clap itself can only print one list.
pub(super) const GROUPS: &[(&str, &[&str])] = &[
    (
        "Set up",
        &[
            "init", "add", "add-json", "import", "remove", "enable", "disable", "trust", "untrust",
            "auth", "token",
        ],
    ),
    ("Servers and tools", &["list", "tools", "get", "search", "call", "run"]),
    ("The daemon", &["status", "top", "ui", "calls", "logs", "restart", "daemon", "service"]),
    ("A fleet", &["fleet"]),
    ("Installed by metamcp", &["approve", "provisioned", "registry"]),
    ("When something is wrong", &["doctor", "config", "audit"]),
    ("Search", &["model", "forget", "eval"]),
    ("More", &["serve", "demo", "completions", "version", "upgrade", "help"]),
];

/// The summary of `help`, a command that clap generates.
const HELP: &str = "Explain a command, with examples";

/// The help template: the commands by group, then the options.
pub(super) fn template(command: &Command) -> StyledStr {
    let styles = command.get_styles();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let named = |name: &str| {
        command.find_subcommand(name).and_then(Command::get_about).map(ToString::to_string)
    };
    let all = GROUPS.iter().flat_map(|(_, names)| names.iter());
    let width = all.map(|name| name.len()).max().unwrap_or_default();
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (group, names) in GROUPS {
        text.push_str(&format!("\n{header}{group}:{header:#}\n"));
        for name in *names {
            let about = named(name).unwrap_or_else(|| HELP.to_owned());
            let space = " ".repeat(width - name.len());
            text.push_str(&format!("  {literal}{name}{literal:#}{space}  {about}\n"));
        }
    }
    text.push_str(&format!("\n{header}Options:{header:#}\n{{options}}{{after-help}}"));
    text.into()
}
