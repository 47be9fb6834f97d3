//! The table of all global settings. Flags, variables, file keys, help, docs and schema are generated from it.
//! Owns: names, kinds, defaults and help of every setting, one file per subject.      Never: reads a value from anywhere.
//! In: nothing.  Out: [`SETTINGS`].
//! Tests: `settings/tests.rs`.

mod approvals;
mod audit;
mod cluster;
mod code;
mod daemon;
mod notify;
mod observe;
mod output;
mod pool;
mod process;
mod provision;
mod search;
mod serve;

use std::sync::LazyLock;

use super::Settings;
use super::value::{Kind, Value};

#[derive(Clone)]
pub struct Setting {
    /// Its key in the file, with a dot between object and key; `None` where a file cannot set it.
    pub key: Option<&'static str>,
    /// Other names of the last part of the key.
    pub aliases: &'static [&'static str],
    /// Its flag without the dashes. Also what identifies the setting.
    pub flag: &'static str,
    pub env: &'static str,
    /// Its type and range.
    pub kind: Kind,
    /// Its value where nobody says anything.
    pub default: Option<Value>,
    /// One line, for `--help`.
    pub help: &'static str,
    /// More, for the reference.
    pub doc: &'static str,
    /// Puts a value of this kind into its place.
    pub(super) store: fn(&mut Settings, &Value),
}

impl PartialEq for Setting {
    fn eq(&self, other: &Self) -> bool {
        self.flag == other.flag
    }
}

impl Eq for Setting {}

impl std::fmt::Debug for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Setting({})", self.flag)
    }
}

/// Variables of metatools that mean the same as ours, for those who come from there.
const METATOOLS: &[(&str, &[&str])] = &[
    ("search", &["METATOOLS_SEARCH_STRATEGY"]),
    ("bm25-name-boost", &["METATOOLS_SEARCH_BM25_NAME_BOOST"]),
    ("bm25-namespace-boost", &["METATOOLS_SEARCH_BM25_NAMESPACE_BOOST"]),
    ("bm25-tags-boost", &["METATOOLS_SEARCH_BM25_TAGS_BOOST"]),
    ("bm25-max-tools", &["METATOOLS_SEARCH_BM25_MAX_DOCS"]),
    ("bm25-max-text", &["METATOOLS_SEARCH_BM25_MAX_DOCTEXT_LEN"]),
    ("transport", &["METATOOLS_TRANSPORT", "METATOOLS_TRANSPORT_TYPE"]),
    ("host", &["METATOOLS_HOST", "METATOOLS_TRANSPORT_STREAMABLE_HOST"]),
    ("port", &["METATOOLS_PORT", "METATOOLS_TRANSPORT_STREAMABLE_PORT"]),
    ("tls", &["METATOOLS_TLS", "METATOOLS_TRANSPORT_STREAMABLE_TLS_ENABLED"]),
    ("tls-cert", &["METATOOLS_TLS_CERT", "METATOOLS_TRANSPORT_STREAMABLE_TLS_CERT"]),
    ("tls-key", &["METATOOLS_TLS_KEY", "METATOOLS_TRANSPORT_STREAMABLE_TLS_KEY"]),
    ("stateless", &["METATOOLS_STATELESS", "METATOOLS_TRANSPORT_STREAMABLE_STATELESS"]),
    ("json-response", &["METATOOLS_JSON_RESPONSE", "METATOOLS_TRANSPORT_STREAMABLE_JSON_RESPONSE"]),
    (
        "session-timeout",
        &["METATOOLS_SESSION_TIMEOUT", "METATOOLS_TRANSPORT_STREAMABLE_SESSION_TIMEOUT"],
    ),
    (
        "notify-list-changed",
        &["METATOOLS_NOTIFY_LIST_CHANGED", "METATOOLS_NOTIFY_TOOL_LIST_CHANGED"],
    ),
    (
        "notify-debounce",
        &["METATOOLS_NOTIFY_DEBOUNCE_MS", "METATOOLS_NOTIFY_TOOL_LIST_CHANGED_DEBOUNCE_MS"],
    ),
    ("notify-max-wait", &["METATOOLS_NOTIFY_MAX_WAIT_MS"]),
];

impl Setting {
    /// Whether its default could open what a value that cannot be read was meant to keep shut. Such a value is never
    /// replaced by the default. What is new under `serve` or `provision` counts as one until somebody says otherwise.
    pub fn is_guard(&self) -> bool {
        const HARMLESS: [&str; 6] =
            ["transport", "host", "port", "stateless", "json-response", "session-timeout"];
        const GUARDS: [&str; 8] = [
            "config",
            "containment",
            "learn",
            "profile",
            "replay",
            "scrub",
            "token-store",
            "toolset",
        ];
        let key = self.key.unwrap_or_default();
        match key.split_once('.') {
            Some(("serve" | "provision", _)) => !HARMLESS.contains(&self.flag),
            Some(("code", "profile" | "image") | ("approvals" | "audit" | "cluster", _)) => true,
            _ => GUARDS.contains(&self.flag),
        }
    }

    /// Other variables that set it, read after its own.
    pub fn env_aliases(&self) -> &'static [&'static str] {
        METATOOLS.iter().find(|(flag, _)| *flag == self.flag).map_or(&[], |(_, names)| names)
    }
}

/// The setting with this key in the file, under its own name or another.
pub fn by_file_key(path: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| {
        let Some(key) = setting.key else { return false };
        key == path
            || setting.aliases.iter().any(|alias| match key.rsplit_once('.') {
                Some((object, _)) => {
                    path.strip_prefix(object).and_then(|rest| rest.strip_prefix('.'))
                        == Some(*alias)
                }
                None => path == *alias,
            })
    })
}

/// The setting with this flag, given without the dashes.
pub fn by_flag(flag: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.flag == flag)
}

/// No time limit needs more, and the sum of a few stays far from overflow.
const DAY: u64 = 86_400_000;
/// More child processes than one machine carries.
const MOST_CONNECTIONS: u64 = 4_096;

const TIME: Kind = Kind::Millis { min: 1, max: DAY };
const TIME_OR_ZERO: Kind = Kind::Millis { min: 0, max: DAY };

/// Every global setting, in the order of the reference.
pub static SETTINGS: LazyLock<Vec<Setting>> = LazyLock::new(|| {
    [
        pool::SETTINGS,
        search::SETTINGS,
        output::SETTINGS,
        approvals::SETTINGS,
        provision::SETTINGS,
        code::SETTINGS,
        serve::SETTINGS,
        cluster::SETTINGS,
        daemon::SETTINGS,
        audit::SETTINGS,
        notify::SETTINGS,
        observe::SETTINGS,
        process::SETTINGS,
    ]
    .concat()
});
