//! Settings of finding and installing servers.

use std::borrow::Cow;

use super::Setting;
use crate::settings::value::{Kind, Value};

/// The registry of the protocol's own project.
const OFFICIAL: &str = "https://registry.modelcontextprotocol.io";

pub(super) const SETTINGS: &[Setting] = &[
    Setting {
        key: Some("provision.enabled"),
        aliases: &[],
        flag: "provision",
        env: "METAMCP_PROVISION",
        kind: Kind::Switch,
        default: Some(Value::Switch(true)),
        help: "Whether servers can be found in registries and installed after approval",
        doc: "If off, the tool `mcp_provision` is not listed, and rejected if called. Installed servers stay.",
        store: |settings, value| settings.provision.is_on = value.is_on(),
    },
    Setting {
        key: Some("provision.registries"),
        aliases: &[],
        flag: "registries",
        env: "METAMCP_REGISTRIES",
        kind: Kind::Text,
        default: Some(Value::Text(Cow::Borrowed(OFFICIAL))),
        help: "URLs of the registries to search, separated by spaces",
        doc: "Each must implement `/v0.1/servers` like the official one. For one that requires a token, append a bar and the name of \
              the variable that holds it: `https://registry.example.com|REGISTRY_TOKEN`. With `none`, only the list of well-known servers in metamcp is searched.",
        store: |settings, value| settings.provision.registries = value.text().into_owned(),
    },
    Setting {
        key: Some("provision.minAgeDays"),
        aliases: &[],
        flag: "min-age-days",
        env: "METAMCP_MIN_AGE_DAYS",
        kind: Kind::Count { min: 0, max: 3650 },
        default: Some(Value::Number(7)),
        help: "How many days old a version must be before it is installed",
        doc: "Stolen accounts and poisoned versions are usually noticed within days. 0 allows any age.",
        store: |settings, value| settings.provision.least_days = value.number(),
    },
];
