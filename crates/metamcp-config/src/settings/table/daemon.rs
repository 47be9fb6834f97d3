//! Settings of the daemon, the one process that all clients of a user share.

use super::{Setting, TIME_OR_ZERO};
use crate::settings::value::{Kind, Value};
use crate::settings::words::DaemonMode;

pub(super) const SETTINGS: &[Setting] = &[
    Setting {
        key: Some("daemon.mode"),
        aliases: &[],
        flag: "daemon",
        env: "METAMCP_DAEMON",
        kind: Kind::Word(DaemonMode::WORDS),
        default: Some(Value::Word("auto")),
        help: "Whether clients share one gateway process and its servers",
        doc: "Who shares a server with whom is its `share` in the config file.",
        store: |settings, value| {
            settings.daemon.mode =
                DaemonMode::from_word(&value.text()).unwrap_or(settings.daemon.mode);
        },
    },
    Setting {
        key: Some("daemon.idleExit"),
        aliases: &["idleExitMs"],
        flag: "daemon-idle-exit",
        env: "METAMCP_DAEMON_IDLE_EXIT",
        kind: TIME_OR_ZERO,
        default: Some(Value::Number(600_000)),
        help: "How long the daemon stays after its last client has gone",
        doc: "Its servers end with it. 0 keeps it until `metamcp daemon stop`. The client that starts the daemon decides for its lifetime.",
        store: |settings, value| settings.daemon.idle_exit = value.millis(),
    },
    Setting {
        key: Some("ui.port"),
        aliases: &[],
        flag: "ui-port",
        env: "METAMCP_UI_PORT",
        kind: Kind::Count { min: 0, max: 65_535 },
        default: Some(Value::Number(0)),
        help: "Port of the page on 127.0.0.1; 0 takes a free one",
        doc: "`metamcp ui` opens the page; nothing listens before. The daemon reads this when it starts, from your own config file.",
        store: |settings, value| {
            settings.daemon.ui_port = u16::try_from(value.count()).unwrap_or(0);
        },
    },
];
