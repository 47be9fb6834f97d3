//! Settings of list-changed notifications.

use super::{Setting, TIME, TIME_OR_ZERO};
use crate::settings::value::{Kind, Value};

pub(super) const SETTINGS: &[Setting] = &[
    Setting {
        key: Some("notify.listChanged"),
        aliases: &["toolListChanged"],
        flag: "notify-list-changed",
        env: "METAMCP_NOTIFY_LIST_CHANGED",
        kind: Kind::Switch,
        default: Some(Value::Switch(true)),
        help: "Notify clients when the tools, resources or prompts they see change",
        doc: "Only where tools are shown as they are (`surface` is `direct`): the other surfaces do not change while the gateway runs.",
        store: |settings, value| settings.notify.list_changed = value.is_on(),
    },
    Setting {
        key: Some("notify.debounceMs"),
        aliases: &["toolListChangedDebounceMs"],
        flag: "notify-debounce",
        env: "METAMCP_NOTIFY_DEBOUNCE",
        kind: TIME_OR_ZERO,
        default: Some(Value::Number(150)),
        help: "How long a list has to be stable before clients are notified",
        doc: "",
        store: |settings, value| settings.notify.debounce = value.millis(),
    },
    Setting {
        key: Some("notify.maxWaitMs"),
        aliases: &[],
        flag: "notify-max-wait",
        env: "METAMCP_NOTIFY_MAX_WAIT",
        kind: TIME,
        default: Some(Value::Number(2000)),
        help: "When clients are notified of a list that keeps changing",
        doc: "",
        store: |settings, value| settings.notify.max_wait = value.millis(),
    },
];
