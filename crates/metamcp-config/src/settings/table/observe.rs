//! Settings of metrics and of telemetry by OTLP.

use std::borrow::Cow;

use super::Setting;
use crate::settings::value::{Kind, Value};
use crate::settings::words::OtlpProtocol;

pub(super) const SETTINGS: &[Setting] = &[
    Setting {
        key: Some("metrics.enabled"),
        aliases: &[],
        flag: "metrics-enabled",
        env: "METAMCP_METRICS_ENABLED",
        kind: Kind::Switch,
        default: Some(Value::Switch(true)),
        help: "Count calls and what they cost, for `/metrics`",
        doc: "What is counted is in docs/observability.md. Listeners on HTTP show it at `/metrics`, to the owner's token and to the one of `metamcp token --metrics`. \
              The client that starts the daemon decides for its lifetime.",
        store: |settings, value| settings.metrics = value.is_on(),
    },
    Setting {
        key: Some("otel.endpoint"),
        aliases: &[],
        flag: "otel-endpoint",
        env: "METAMCP_OTEL_ENDPOINT",
        kind: Kind::Text,
        default: Some(Value::Text(Cow::Borrowed(""))),
        help: "Send traces, metrics and logs to this OpenTelemetry collector",
        doc: "An address such as `http://127.0.0.1:4317`. Without it, the variables `OTEL_EXPORTER_OTLP_ENDPOINT` and its relatives decide; with neither, nothing is sent. \
              The daemon has the variables of the client that started it, so what should always hold belongs here.",
        store: |settings, value| settings.otel.endpoint = value.text().into_owned(),
    },
    Setting {
        key: Some("otel.protocol"),
        aliases: &[],
        flag: "otel-protocol",
        env: "METAMCP_OTEL_PROTOCOL",
        kind: Kind::Word(OtlpProtocol::WORDS),
        default: Some(Value::Word("auto")),
        help: "How telemetry reaches that collector",
        doc: "A collector listens for gRPC on port 4317 and for HTTP on port 4318 as a rule.",
        store: |settings, value| {
            settings.otel.protocol =
                OtlpProtocol::from_word(&value.text()).unwrap_or(settings.otel.protocol);
        },
    },
    Setting {
        key: Some("otel.samplePercent"),
        aliases: &[],
        flag: "otel-sample-percent",
        env: "METAMCP_OTEL_SAMPLE_PERCENT",
        kind: Kind::Count { min: 0, max: 100 },
        default: Some(Value::Number(100)),
        help: "How many of 100 traces that begin here are recorded",
        doc: "A client that sends a trace context decides itself. `OTEL_TRACES_SAMPLER`, where it is set, is obeyed instead.",
        store: |settings, value| settings.otel.sample_percent = value.count(),
    },
];
