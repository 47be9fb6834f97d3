//! What settings and the standard variables ask for. Pure.

use std::path::PathBuf;

use metamcp_config::config::TlsFiles;
use metamcp_config::settings::{OtelSettings, OtlpProtocol};
use opentelemetry_sdk::trace::Sampler;

/// Longest part of a variable in a message.
const MAX_QUOTED: usize = 100;

/// A kind of telemetry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signal {
    Traces,
    Metrics,
    Logs,
}

impl Signal {
    pub(super) fn word(self) -> &'static str {
        match self {
            Signal::Traces => "traces",
            Signal::Metrics => "metrics",
            Signal::Logs => "logs",
        }
    }
}

/// Where one signal goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    /// The whole address for HTTP, the base for gRPC; the exporter adds headers and the timeout from variables itself.
    pub(super) address: String,
    pub(super) is_grpc: bool,
    /// What is trusted, and shown, beside what every system knows.
    pub(super) tls: TlsFiles,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Plan {
    traces: Option<Target>,
    metrics: Option<Target>,
    logs: Option<Target>,
    sampler: Sampler,
    /// Whether variables name the service.
    pub(super) is_named: bool,
}

impl Plan {
    /// `None` where nothing is asked for.
    pub(super) fn of(
        settings: &OtelSettings,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<Plan>, String> {
        let get = |name: &str| {
            variable(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
        };
        if get("OTEL_SDK_DISABLED").is_some_and(|text| text.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        let target = |signal| target(settings, signal, &get);
        let [traces, metrics, logs] =
            [target(Signal::Traces)?, target(Signal::Metrics)?, target(Signal::Logs)?];
        if traces.is_none() && metrics.is_none() && logs.is_none() {
            return Ok(None);
        }
        let names_itself =
            |text: String| text.split(',').any(|one| one.trim().starts_with("service.name="));
        let is_named = get("OTEL_SERVICE_NAME").is_some()
            || get("OTEL_RESOURCE_ATTRIBUTES").is_some_and(names_itself);
        let sampler = sampler(settings, &get)?;
        Ok(Some(Plan { traces, metrics, logs, sampler, is_named }))
    }

    pub(super) fn target(&self, signal: Signal) -> Option<&Target> {
        match signal {
            Signal::Traces => self.traces.as_ref(),
            Signal::Metrics => self.metrics.as_ref(),
            Signal::Logs => self.logs.as_ref(),
        }
    }

    pub(super) fn sampler(&self) -> Sampler {
        self.sampler.clone()
    }
}

type Get<'a> = &'a dyn Fn(&str) -> Option<String>;

fn target(settings: &OtelSettings, signal: Signal, get: Get<'_>) -> Result<Option<Target>, String> {
    let upper = signal.word().to_ascii_uppercase();
    match get(&format!("OTEL_{upper}_EXPORTER")).as_deref() {
        None | Some("otlp") => {}
        Some("none") => return Ok(None),
        Some(other) => {
            return Err(format!(
                "OTEL_{upper}_EXPORTER is {:?}; it may be otlp or none",
                shown(other)
            ));
        }
    }
    let own = get(&format!("OTEL_EXPORTER_OTLP_{upper}_ENDPOINT"));
    let common = || get("OTEL_EXPORTER_OTLP_ENDPOINT");
    // An endpoint of one signal is the whole address; one for all is only its beginning.
    let (address, is_whole) = match (settings.endpoint.as_str(), own) {
        ("", Some(own)) => (own, true),
        ("", None) => match common() {
            Some(common) => (common, false),
            None => return Ok(None),
        },
        (set, _) => (set.to_owned(), false),
    };
    if !address.starts_with("http://") && !address.starts_with("https://") {
        return Err(format!(
            "the address {:?} of the collector begins with neither http:// nor https://",
            shown(&address)
        ));
    }
    let protocol = match settings.protocol {
        OtlpProtocol::Grpc => Some("grpc".to_owned()),
        OtlpProtocol::Http => Some("http/protobuf".to_owned()),
        OtlpProtocol::Auto => get(&format!("OTEL_EXPORTER_OTLP_{upper}_PROTOCOL"))
            .or_else(|| get("OTEL_EXPORTER_OTLP_PROTOCOL")),
    };
    let is_grpc = match protocol.as_deref() {
        Some("grpc") => true,
        Some("http/protobuf") => false,
        None => has_grpc_port(&address),
        Some(other) => {
            let other = shown(other);
            return Err(format!(
                "the protocol {other:?} is not known; it may be grpc or http/protobuf"
            ));
        }
    };
    let address = match is_grpc || is_whole {
        true => address,
        false => format!("{}/v1/{}", address.trim_end_matches('/'), signal.word()),
    };
    let file = |what: &str| {
        let own = get(&format!("OTEL_EXPORTER_OTLP_{upper}_{what}"));
        own.or_else(|| get(&format!("OTEL_EXPORTER_OTLP_{what}"))).map(PathBuf::from)
    };
    let (cert, key) = (file("CLIENT_CERTIFICATE"), file("CLIENT_KEY"));
    if cert.is_some() != key.is_some() {
        return Err(
            "a client certificate needs both OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and OTEL_EXPORTER_OTLP_CLIENT_KEY"
                .to_owned(),
        );
    }
    let tls = TlsFiles { ca: file("CERTIFICATE"), cert, key };
    Ok(Some(Target { address, is_grpc, tls }))
}

/// Port 4317 is that of gRPC.
fn has_grpc_port(address: &str) -> bool {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.ends_with(":4317")
}

fn sampler(settings: &OtelSettings, get: Get<'_>) -> Result<Sampler, String> {
    let Some(word) = get("OTEL_TRACES_SAMPLER") else {
        let ratio = f64::from(settings.sample_percent) / 100.0;
        return Ok(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(ratio))));
    };
    let ratio = || match get("OTEL_TRACES_SAMPLER_ARG") {
        None => Ok(1.0),
        Some(text) => {
            let ratio = text.parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
            ratio.ok_or_else(|| {
                format!("OTEL_TRACES_SAMPLER_ARG is {:?}; it is a number from 0 to 1", shown(&text))
            })
        }
    };
    let parent_based = |root| Sampler::ParentBased(Box::new(root));
    Ok(match word.as_str() {
        "always_on" => Sampler::AlwaysOn,
        "always_off" => Sampler::AlwaysOff,
        "traceidratio" => Sampler::TraceIdRatioBased(ratio()?),
        "parentbased_always_on" => parent_based(Sampler::AlwaysOn),
        "parentbased_always_off" => parent_based(Sampler::AlwaysOff),
        "parentbased_traceidratio" => parent_based(Sampler::TraceIdRatioBased(ratio()?)),
        other => {
            return Err(format!("OTEL_TRACES_SAMPLER is {:?}, which is not known", shown(other)));
        }
    })
}

fn shown(text: &str) -> String {
    metamcp_types::text::clean_line(text, MAX_QUOTED).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(endpoint: &str, variables: &[(&str, &str)]) -> Result<Option<Plan>, String> {
        let settings = OtelSettings {
            endpoint: endpoint.to_owned(),
            sample_percent: 100,
            ..OtelSettings::default()
        };
        let get = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        Plan::of(&settings, &get)
    }

    fn addresses(endpoint: &str, variables: &[(&str, &str)]) -> [Option<(String, bool)>; 3] {
        let plan = plan(endpoint, variables).unwrap().unwrap();
        [Signal::Traces, Signal::Metrics, Signal::Logs]
            .map(|signal| plan.target(signal).map(|one| (one.address.clone(), one.is_grpc)))
    }

    #[test]
    fn nothing_is_sent_unless_somebody_says_where_to() {
        assert!(plan("", &[]).unwrap().is_none());
        assert!(plan("", &[("OTEL_TRACES_EXPORTER", "otlp")]).unwrap().is_none());
        assert!(plan("http://c", &[("OTEL_SDK_DISABLED", "true")]).unwrap().is_none());
        let none = ["TRACES", "METRICS", "LOGS"].map(|signal| format!("OTEL_{signal}_EXPORTER"));
        let none: Vec<(&str, &str)> = none.iter().map(|name| (name.as_str(), "none")).collect();
        assert!(plan("http://c", &none).unwrap().is_none());
    }

    #[test]
    fn addresses_and_protocols_follow_the_specification() {
        let http = |path: &str| Some((format!("http://c:4318/v1/{path}"), false));
        let all = [http("traces"), http("metrics"), http("logs")];
        assert_eq!(addresses("http://c:4318/", &[]), all);
        assert_eq!(addresses("", &[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318")]), all);
        // A setting is stronger than a variable.
        assert_eq!(addresses("http://c:4318", &[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://d")]), all);
        let grpc = Some(("http://c:4317".to_owned(), true));
        assert_eq!(addresses("http://c:4317", &[]), [grpc.clone(), grpc.clone(), grpc.clone()]);
        let own = [
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://c:4318/own"),
            ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://c:4317"),
            ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "grpc"),
        ];
        assert_eq!(
            addresses("", &own),
            [Some(("http://c:4318/own".to_owned(), false)), grpc, None]
        );
    }

    #[test]
    fn certificates_are_those_of_the_signal_or_of_all() {
        let variables = [
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/all.pem"),
            ("OTEL_EXPORTER_OTLP_LOGS_CERTIFICATE", "/logs.pem"),
            ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "/own.pem"),
            ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "/own.key"),
        ];
        let made = plan("https://c", &variables).unwrap().unwrap();
        let tls = |signal| made.target(signal).unwrap().tls.clone();
        let path = |text: &str| Some(PathBuf::from(text));
        let (cert, key) = (path("/own.pem"), path("/own.key"));
        let all = TlsFiles { ca: path("/all.pem"), cert, key };
        assert_eq!((tls(Signal::Traces), tls(Signal::Metrics)), (all.clone(), all));
        assert_eq!(tls(Signal::Logs).ca, path("/logs.pem"));
        let half = plan("https://c", &variables[..3]).unwrap_err();
        assert!(half.contains("OTEL_EXPORTER_OTLP_CLIENT_KEY"), "{half}");
    }

    #[test]
    fn what_cannot_be_meant_is_told_and_stops_nothing_else() {
        for (endpoint, variable, words) in [
            ("collector:4317", ("X", ""), "neither http://"),
            ("http://c", ("OTEL_LOGS_EXPORTER", "console"), "otlp or none"),
            ("http://c", ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"), "grpc or http/protobuf"),
            ("http://c", ("OTEL_TRACES_SAMPLER", "xray"), "not known"),
        ] {
            let error = plan(endpoint, &[variable]).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
        let ratio = [("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "2")];
        assert!(plan("http://c", &ratio).unwrap_err().contains("from 0 to 1"));
    }

    #[test]
    fn the_service_is_ours_unless_it_is_named() {
        assert!(!plan("http://c", &[]).unwrap().unwrap().is_named);
        for variable in
            [("OTEL_SERVICE_NAME", "x"), ("OTEL_RESOURCE_ATTRIBUTES", "a=b, service.name=x")]
        {
            assert!(plan("http://c", &[variable]).unwrap().unwrap().is_named);
        }
    }
}
