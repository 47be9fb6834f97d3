//! The exporters of the official crates, over gRPC or over our own HTTP client.

use opentelemetry_otlp::tonic_types::transport::ClientTlsConfig;
use opentelemetry_otlp::{
    LogExporter, MetricExporter, Protocol, SpanExporter, WithExportConfig as _,
    WithHttpConfig as _, WithTonicConfig as _,
};

use super::http_client::HttpClient;
use super::plan::{Signal, Target};
use super::watched::Watched;

pub(super) fn spans(target: &Target) -> Result<Watched<SpanExporter>, String> {
    let built = if target.is_grpc {
        let grpc = SpanExporter::builder().with_tonic().with_endpoint(&target.address);
        match tls(target) {
            Some(tls) => grpc.with_tls_config(tls).build(),
            None => grpc.build(),
        }
    } else {
        let http = SpanExporter::builder().with_http().with_http_client(HttpClient::new()?);
        http.with_protocol(Protocol::HttpBinary).with_endpoint(&target.address).build()
    };
    let built = built.map_err(|error| error.to_string())?;
    Ok(Watched::new(built, Signal::Traces, target))
}

pub(super) fn metrics(target: &Target) -> Result<Watched<MetricExporter>, String> {
    let built = if target.is_grpc {
        let grpc = MetricExporter::builder().with_tonic().with_endpoint(&target.address);
        match tls(target) {
            Some(tls) => grpc.with_tls_config(tls).build(),
            None => grpc.build(),
        }
    } else {
        let http = MetricExporter::builder().with_http().with_http_client(HttpClient::new()?);
        http.with_protocol(Protocol::HttpBinary).with_endpoint(&target.address).build()
    };
    let built = built.map_err(|error| error.to_string())?;
    Ok(Watched::new(built, Signal::Metrics, target))
}

pub(super) fn logs(target: &Target) -> Result<Watched<LogExporter>, String> {
    let built = if target.is_grpc {
        let grpc = LogExporter::builder().with_tonic().with_endpoint(&target.address);
        match tls(target) {
            Some(tls) => grpc.with_tls_config(tls).build(),
            None => grpc.build(),
        }
    } else {
        let http = LogExporter::builder().with_http().with_http_client(HttpClient::new()?);
        http.with_protocol(Protocol::HttpBinary).with_endpoint(&target.address).build()
    };
    let built = built.map_err(|error| error.to_string())?;
    Ok(Watched::new(built, Signal::Logs, target))
}

/// By default gRPC would trust nobody; with this it trusts whom our HTTP client trusts.
fn tls(target: &Target) -> Option<ClientTlsConfig> {
    target.address.starts_with("https://").then(|| ClientTlsConfig::new().with_webpki_roots())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_signal_can_be_sent_each_way_with_and_without_tls() {
        for scheme in ["http", "https"] {
            for is_grpc in [false, true] {
                let target = Target { address: format!("{scheme}://127.0.0.1:9"), is_grpc };
                assert!(spans(&target).is_ok(), "{target:?}");
                assert!(metrics(&target).is_ok(), "{target:?}");
                assert!(logs(&target).is_ok(), "{target:?}");
            }
        }
        let wrong = Target { address: "http://[".to_owned(), is_grpc: true };
        assert!(spans(&wrong).is_err());
    }
}
