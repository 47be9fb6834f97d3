//! Settings of a fleet: many gateways that are one to their clients.

use std::borrow::Cow;

use super::Setting;
use crate::settings::value::{Kind, Value};

/// A session that a client began this long ago is begun anew; a year is for ever.
const LIFETIME: Kind = Kind::Millis { min: 60_000, max: 365 * super::DAY };

pub(super) const SETTINGS: &[Setting] = &[
    Setting {
        key: Some("cluster.key"),
        aliases: &[],
        flag: "cluster-key",
        env: "METAMCP_CLUSTER_KEY",
        kind: Kind::Text,
        default: Some(Value::Text(Cow::Borrowed(""))),
        help: "Secret that all gateways of a fleet share: a file or a secret reference",
        doc: "The path of a file, or a reference such as `secretref:env:NAME`, `keychain://SERVICE/ACCOUNT`, `op://…` or `cmd:…`; never the key itself. \
              The key is at least 32 random bytes in base64 or hexadecimal digits, such as `openssl rand -base64 32` prints. \
              A second key in a second line is accepted but not used, which is how keys are replaced: add the new one in the second line everywhere, then swap the lines everywhere, then remove the old one. A file is read again when it changes. \
              Ids of HTTP sessions, `requestState` and cursors are sealed with it, so that any gateway with the same key, configuration and tokens continues what another began. \
              Needs `token-file`, `token-env` or `jwks`, the same for all.",
        store: |settings, value| settings.cluster.key = value.text().into_owned(),
    },
    Setting {
        key: Some("cluster.sessionLifetimeMs"),
        aliases: &[],
        flag: "session-lifetime",
        env: "METAMCP_SESSION_LIFETIME",
        kind: LIFETIME,
        default: Some(Value::Number(7 * super::DAY)),
        help: "How long a session may be continued by other gateways of a fleet",
        doc: "Counted from its beginning, since a gateway does not know when another one was last asked. After that the client gets 404 and has to initialize again. Without `cluster-key` only `session-timeout` counts.",
        store: |settings, value| settings.cluster.session_lifetime = value.millis(),
    },
];
