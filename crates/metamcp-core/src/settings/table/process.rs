//! Settings of the processes and the log.

use super::Setting;
use crate::settings::value::{Kind, Value};
use crate::settings::words::{Containment, LogLevel, TokenStore};

pub(super) const SETTINGS: &[Setting] = &[
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
