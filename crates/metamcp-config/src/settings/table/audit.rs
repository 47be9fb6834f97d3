//! Settings of the audit log.

use super::Setting;
use crate::settings::value::{Kind, Value};

pub(super) const SETTINGS: &[Setting] = &[
    Setting {
        key: Some("audit.enabled"),
        aliases: &[],
        flag: "audit",
        env: "METAMCP_AUDIT",
        kind: Kind::Switch,
        default: Some(Value::Switch(false)),
        help: "Whether calls and decisions are recorded in the audit log",
        doc: "One JSON line for each call, approval, installation, sign-in, trust decision, change of the configuration and refusal, in `audit/` in the home; see [audit.md](../audit.md). \
              With a daemon its own settings are in force: put them into your own config file and run `metamcp daemon restart`.",
        store: |settings, value| settings.audit.is_on = value.is_on(),
    },
    Setting {
        key: Some("audit.required"),
        aliases: &[],
        flag: "audit-required",
        env: "METAMCP_AUDIT_REQUIRED",
        kind: Kind::Switch,
        default: Some(Value::Switch(false)),
        help: "Whether a call that cannot be recorded is refused",
        doc: "Each call is then recorded before it is sent, and again when it has ended. While the log cannot be written, as on a full disk, calls fail with `audit_unavailable`. Turns the audit log on.",
        store: |settings, value| settings.audit.is_required = value.is_on(),
    },
    Setting {
        key: Some("audit.values"),
        aliases: &[],
        flag: "audit-values",
        env: "METAMCP_AUDIT_VALUES",
        kind: Kind::Switch,
        default: Some(Value::Switch(false)),
        help: "Whether the audit log holds arguments and results too",
        doc: "The first 16,384 bytes of each, with secrets redacted, whatever `scrub` says.",
        store: |settings, value| settings.audit.has_values = value.is_on(),
    },
    Setting {
        key: Some("audit.maxFileBytes"),
        aliases: &[],
        flag: "audit-max-file-bytes",
        env: "METAMCP_AUDIT_MAX_FILE_BYTES",
        kind: Kind::Bytes { min: 64 * 1024, max: 1024 * 1024 * 1024 },
        default: Some(Value::Number(16 * 1024 * 1024)),
        help: "Size at which the audit log begins a new file",
        doc: "",
        store: |settings, value| settings.audit.file_bytes = value.number(),
    },
    Setting {
        key: Some("audit.maxFiles"),
        aliases: &[],
        flag: "audit-max-files",
        env: "METAMCP_AUDIT_MAX_FILES",
        kind: Kind::Count { min: 2, max: 100_000 },
        default: Some(Value::Number(16)),
        help: "How many files of the audit log are kept",
        doc: "The oldest is removed when a new one begins.",
        store: |settings, value| settings.audit.files = value.number(),
    },
];
