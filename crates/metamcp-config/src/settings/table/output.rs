//! Settings of what a model sees: toolset and redaction.

use std::borrow::Cow;

use super::Setting;
use crate::settings::value::{Kind, Value};

pub(super) const SETTINGS: &[Setting] = &[
    Setting {
        key: Some("scrub"),
        aliases: &[],
        flag: "scrub",
        env: "METAMCP_SCRUB",
        kind: Kind::Switch,
        default: Some(Value::Switch(true)),
        help: "Whether secrets are redacted from everything a model sees",
        doc: "Values of `env` and `headers` that are secrets, and tokens of well-known shapes (GitHub, AWS, Slack, signed tokens, private keys and the like): \
              they are replaced with `[secret NAME]`. A result without secrets passes byte for byte.",
        store: |settings, value| settings.redact = value.is_on(),
    },
    Setting {
        key: Some("pins.maxTokens"),
        aliases: &[],
        flag: "pin-tokens",
        env: "METAMCP_PIN_TOKENS",
        kind: Kind::Count { min: 0, max: 100_000 },
        default: Some(Value::Number(2_000)),
        help: "Most tokens that pinned tools add to the list of tools",
        doc: "Tools with `pin` in their `overrides` are listed beside metamcp's own, as long as their definitions fit; about three characters count as a token. `metamcp doctor` says what does not fit.",
        store: |settings, value| settings.pin_tokens = value.size(),
    },
    Setting {
        key: Some("toolset"),
        aliases: &[],
        flag: "toolset",
        env: "METAMCP_TOOLSET",
        kind: Kind::Text,
        default: Some(Value::Text(Cow::Borrowed(""))),
        help: "The one toolset that clients may use",
        doc: "A name of `toolsets` in the configuration. Nothing outside of it is listed, found, described or called, on any surface.",
        store: |settings, value| settings.toolset = value.text().into_owned(),
    },
];
