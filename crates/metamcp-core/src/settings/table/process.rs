//! Settings of the processes and the log.

use super::Setting;
use crate::settings::value::{Kind, Value};
use crate::settings::words::{Containment, LogLevel};

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
