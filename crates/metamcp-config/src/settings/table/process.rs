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
        help: "How long calls in flight may take to finish when metamcp is told to end",
        doc: "On SIGTERM, SIGINT and the end of input alike, as long as somebody can read the answer. New calls are refused meanwhile. \
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
        help: "How servers are kept from outliving the gateway",
        doc: "A server's own `containment` goes before it.",
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
        help: "Variables of yours that every server gets beside the usual ones, or all",
        doc: "Names with commas between them; `*` in a name stands for anything, `all` is every variable. A server's own `passEnv` adds to it. Servers that metamcp installed get none of these. Which ones are usual is in [environment.md](../environment.md).",
        store: |settings, value| settings.pass_env = value.text().into_owned(),
    },
    Setting {
        key: Some("tokenStore"),
        aliases: &[],
        flag: "token-store",
        env: "METAMCP_TOKEN_STORE",
        kind: Kind::Word(TokenStore::WORDS),
        default: Some(Value::Word("auto")),
        help: "Where the key to the tokens of remote servers is kept",
        doc: "The tokens themselves lie encrypted in `tokens/`. With `keyring` a key that lay in a file is moved.",
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
