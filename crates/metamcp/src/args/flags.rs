//! The settings' flags, generated from the table of settings.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser, ValueParser};
use clap::{Arg, ArgMatches, Command, ValueHint};
use metamcp_config::settings::{Given, Kind, LogLevel, Origin, SETTINGS, Setting, Value, by_flag};

/// Shown by `-h` too; the rest only by `--help`.
const OFTEN_NEEDED: &[&str] = &["config", "log-level"];
/// Also shown by `serve -h`: what people usually look for there.
const FOR_SERVING: &[&str] =
    &["config", "log-level", "transport", "host", "port", "toolset", "surface"];
/// Commands that read no configuration, and `config`, which only groups others.
const NO_CONFIG: &[&str] =
    &["demo", "completions", "schema", "docs", "man", "config", "version", "upgrade"];
/// Shown in the help of every other subcommand.
const EVERYWHERE: &[&str] = &["config", "home", "daemon", "log-level"];

/// The settings given on the command line.
#[derive(Debug, Clone, Default)]
pub(crate) struct SettingFlags {
    pub(crate) given: Vec<Given>,
}

impl SettingFlags {
    /// Sets the log level from `-v` and `-q`; an explicit `--log-level` takes precedence.
    pub(super) fn loudness(&mut self, verbose: u8, quiet: bool) {
        let (level, name) = match (verbose, quiet) {
            (0, false) => return,
            (0, true) => (LogLevel::Error, "quiet"),
            (1, _) => (LogLevel::Info, "verbose"),
            (2, _) => (LogLevel::Debug, "verbose"),
            _ => (LogLevel::Trace, "verbose"),
        };
        let is_level = |given: &Given| given.setting.flag == LOG_LEVEL;
        if let Some(setting) = by_flag(LOG_LEVEL).filter(|_| !self.given.iter().any(is_level)) {
            let value = Value::Word(level.as_str());
            self.given.push(Given { setting, value, origin: Origin::Flag { name } });
        }
    }
}

const LOG_LEVEL: &str = "log-level";

impl clap::FromArgMatches for SettingFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.given = SETTINGS
            .iter()
            .filter_map(|setting| {
                let value = matches.get_one::<Value>(setting.flag)?.clone();
                Some(Given { setting, value, origin: Origin::Flag { name: setting.flag } })
            })
            .collect();
        Ok(())
    }
}

impl clap::Args for SettingFlags {
    fn augment_args(command: Command) -> Command {
        command.args(SETTINGS.iter().map(flag))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// Settings' flags work on every command; below the top level most are hidden from the help, which they would flood.
/// Only the wanted commands are filled in: there are many, and a run uses one.
pub(super) fn settle(command: Command, is_wanted: &dyn Fn(&str) -> bool) -> Command {
    let names: Vec<String> =
        command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    names.into_iter().filter(|name| is_wanted(name)).fold(command, |command, name| {
        command.mut_subcommand(name, |sub| settle_subcommand(sub, is_wanted))
    })
}

fn settle_subcommand(command: Command, is_wanted: &dyn Fn(&str) -> bool) -> Command {
    if command.get_name() == "serve" {
        let shown = |setting: &'static Setting| {
            flag(setting).hide_short_help(!FOR_SERVING.contains(&setting.flag))
        };
        return command.args(SETTINGS.iter().map(shown));
    }
    let reads_config = !NO_CONFIG.contains(&command.get_name());
    let quiet = |setting: &'static Setting| {
        let shown = reads_config && EVERYWHERE.contains(&setting.flag);
        flag(setting).hide(!shown)
    };
    let own_help = command.get_after_long_help().or(command.get_after_help());
    let own_help = own_help.map(ToString::to_string);
    let footer = reads_config.then_some("The settings of `metamcp help` are understood here too.");
    let after: Vec<&str> = own_help.as_deref().into_iter().chain(footer).collect();
    let command = command.args(SETTINGS.iter().map(quiet)).after_long_help(after.join("\n\n"));
    settle(command, is_wanted)
}

fn flag(setting: &'static Setting) -> Arg {
    let mut notes = vec![format!("env: {}", setting.env)];
    if let Some(key) = setting.key {
        notes.push(format!("file: {key}"));
    }
    if setting.default.is_some() {
        notes.push(format!("default: {}", setting.default_text()));
    }
    let arg = Arg::new(setting.flag);
    let arg = if is_bare(setting) {
        arg.num_args(0..=1).require_equals(true).default_missing_value("true")
    } else {
        arg
    };
    arg.long(setting.flag)
        .global(true)
        .help_heading("Settings")
        .hide_short_help(!OFTEN_NEEDED.contains(&setting.flag))
        .hide_possible_values(true)
        .value_name(placeholder(setting))
        .value_hint(if setting.kind == Kind::Path { ValueHint::AnyPath } else { ValueHint::Other })
        .value_parser(parser(setting))
        .help(help(setting))
        .long_help(format!("{}\n[{}]", help(setting), notes.join(", ")))
}

/// A switch that is off by default needs no value to turn it on; `--flag=false` still turns it off.
pub(super) fn is_bare(setting: &Setting) -> bool {
    setting.default == Some(Value::Switch(false))
}

/// The possible values are listed by name; the reference explains them.
fn help(setting: &Setting) -> String {
    match setting.kind {
        Kind::Word(_) | Kind::Switch => {
            format!("{}: {}", setting.help, setting.kind.describe().replace('`', ""))
        }
        _ => setting.help.to_owned(),
    }
}

fn placeholder(setting: &Setting) -> &'static str {
    match setting.kind {
        Kind::Count { .. } => "N",
        Kind::Millis { .. } => "MS",
        Kind::Bytes { .. } => "BYTES",
        Kind::Word(_) => "WORD",
        Kind::Switch => "BOOL",
        Kind::Path if setting.flag == "home" => "DIR",
        Kind::Path => "FILE",
        Kind::Text => "TEXT",
        Kind::Names => "NAMES",
    }
}

fn parser(setting: &'static Setting) -> ValueParser {
    let kind = setting.kind;
    let read = move |text: &str| kind.from_text(text).map_err(|error| error.message);
    match kind {
        Kind::Word(words) => {
            let values = words.iter().map(|known| {
                PossibleValue::new(known.word).aliases(known.also).help(known.meaning)
            });
            PossibleValuesParser::new(values).try_map(move |word| kind.from_text(&word)).into()
        }
        _ => ValueParser::new(read),
    }
}
