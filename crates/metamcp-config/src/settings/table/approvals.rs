//! Settings of the approval of calls.

use std::borrow::Cow;

use super::{Setting, TIME};
use crate::settings::value::{Kind, Value};
use crate::settings::words::Approve;

pub(super) const SETTINGS: &[Setting] = &[
    Setting {
        key: Some("approvals.rule"),
        aliases: &["approve"],
        flag: "approve",
        env: "METAMCP_APPROVE",
        kind: Kind::Word(Approve::WORDS),
        default: Some(Value::Word("never")),
        help: "Which calls need a person's approval before they are sent",
        doc: "A server's own `approve` overrides it. The `.mcp.json` of a project can make it stricter, and not less strict. More in [approvals.md](../approvals.md).",
        store: |settings, value| {
            let rule = Approve::from_word(&value.text());
            settings.approvals.rule = rule.unwrap_or(settings.approvals.rule);
        },
    },
    Setting {
        key: Some("approvals.always"),
        aliases: &[],
        flag: "approve-always",
        env: "METAMCP_APPROVE_ALWAYS",
        kind: Kind::Names,
        default: Some(Value::Text(Cow::Borrowed(""))),
        help: "Tools whose every call needs an approval",
        doc: "`server:tool`, or a tool's name, separated by commas; `*` matches anything. No rule of a server takes one off this list. What a project's file names is added to it.",
        store: |settings, value| settings.approvals.always = value.text().into_owned(),
    },
    Setting {
        key: Some("approvals.waitMs"),
        aliases: &[],
        flag: "approval-wait",
        env: "METAMCP_APPROVAL_WAIT",
        kind: TIME,
        default: Some(Value::Number(300_000)),
        help: "How long a call waits for the answer of a person who was asked",
        doc: "Then it is refused, and `metamcp approve` allows it for the next time. A script waits within its own time limit. Not read from a project's file.",
        store: |settings, value| settings.approvals.wait = value.millis(),
    },
];
