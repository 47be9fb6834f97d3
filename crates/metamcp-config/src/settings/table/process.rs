//! Settings of the processes and the log.

use std::borrow::Cow;

use super::{Setting, TIME_OR_ZERO};
use crate::settings::value::{Kind, Value};
use crate::settings::words::{Containment, LogLevel, TokenStore};

pub(super) const SETTINGS: &[Setting] = &[
    Setting {
        key: Some("shutdownDrainMs"),
        aliases: &[],
        flag: "shutdown-drain",
        env: "METAMCP_SHUTDOWN_DRAIN",
        kind: TIME_OR_ZERO,
        default: Some(Value::Number(5_000)),
        help: "How long calls in flight may take to finish at shutdown",
        doc: "On SIGTERM, SIGINT and the end of input alike, as long as somebody can read the answer. New calls are rejected with `shutting_down` meanwhile. \
              With nothing in flight nothing waits, and a second signal ends the wait. 0 never waits.",
        store: |settings, value| settings.timeouts.drain = value.millis(),
    },
    Setting {
        key: Some("containment"),
        aliases: &[],
        flag: "containment",
        env: "METAMCP_CONTAINMENT",
        kind: Kind::Word(Containment::WORDS),
        default: Some(Value::Word("auto")),
        help: "How servers are prevented from outliving the gateway",
        doc: "A server's own `containment` overrides it.",
        store: |settings, value| {
            settings.containment =
                Containment::from_word(&value.text()).unwrap_or(settings.containment);
        },
    },
    Setting {
        key: Some("passEnv"),
        aliases: &[],
        flag: "pass-env",
        env: "METAMCP_PASS_ENV",
        kind: Kind::Names,
        default: Some(Value::Text(Cow::Borrowed(""))),
        help: "Variables that every server gets beside the usual ones, or `all`",
        doc: "Names separated by commas; `*` in a name matches anything, `all` is every variable. A server's own `passEnv` adds to it. Servers that metamcp installed get none of these. Which ones are usual is in [environment.md](../environment.md).",
        store: |settings, value| settings.pass_env = value.text().into_owned(),
    },
    Setting {
        key: Some("tokenStore"),
        aliases: &[],
        flag: "token-store",
        env: "METAMCP_TOKEN_STORE",
        kind: Kind::Word(TokenStore::WORDS),
        default: Some(Value::Word("auto")),
        help: "Where the encryption key of stored OAuth tokens is",
        doc: "The tokens themselves are encrypted files in `tokens/`. With `keyring` an existing key file is moved into the keyring.",
        store: |settings, value| {
            settings.token_store =
                TokenStore::from_word(&value.text()).unwrap_or(settings.token_store);
        },
    },
    Setting {
        key: Some("logLevel"),
        aliases: &[],
        flag: "log-level",
        env: "METAMCP_LOG_LEVEL",
        kind: Kind::Word(LogLevel::WORDS),
        default: Some(Value::Word("warn")),
        help: "How much is written to the log on stderr",
        doc: "",
        store: |settings, value| {
            settings.log_level = LogLevel::from_word(&value.text()).unwrap_or(settings.log_level);
        },
    },
];
