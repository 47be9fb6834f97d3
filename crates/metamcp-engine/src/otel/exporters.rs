//! The exporters of the official crates, over gRPC or over our own HTTP client.

use std::fs;
use std::path::Path;

use opentelemetry_otlp::tonic_types::transport::{Certificate, ClientTlsConfig, Identity};
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
        match tls(target)? {
            Some(tls) => grpc.with_tls_config(tls).build(),
            None => grpc.build(),
        }
    } else {
        let http =
            SpanExporter::builder().with_http().with_http_client(HttpClient::new(&target.tls)?);
        http.with_protocol(Protocol::HttpBinary).with_endpoint(&target.address).build()
    };
    let built = built.map_err(|error| error.to_string())?;
    Ok(Watched::new(built, Signal::Traces, target))
}

pub(super) fn metrics(target: &Target) -> Result<Watched<MetricExporter>, String> {
    let built = if target.is_grpc {
        let grpc = MetricExporter::builder().with_tonic().with_endpoint(&target.address);
        match tls(target)? {
            Some(tls) => grpc.with_tls_config(tls).build(),
            None => grpc.build(),
        }
    } else {
        let http =
            MetricExporter::builder().with_http().with_http_client(HttpClient::new(&target.tls)?);
        http.with_protocol(Protocol::HttpBinary).with_endpoint(&target.address).build()
    };
    let built = built.map_err(|error| error.to_string())?;
    Ok(Watched::new(built, Signal::Metrics, target))
}

pub(super) fn logs(target: &Target) -> Result<Watched<LogExporter>, String> {
    let built = if target.is_grpc {
        let grpc = LogExporter::builder().with_tonic().with_endpoint(&target.address);
        match tls(target)? {
            Some(tls) => grpc.with_tls_config(tls).build(),
            None => grpc.build(),
        }
    } else {
        let http =
            LogExporter::builder().with_http().with_http_client(HttpClient::new(&target.tls)?);
        http.with_protocol(Protocol::HttpBinary).with_endpoint(&target.address).build()
    };
    let built = built.map_err(|error| error.to_string())?;
    Ok(Watched::new(built, Signal::Logs, target))
}

/// By default gRPC would trust nobody; with this it trusts whom our HTTP client trusts.
fn tls(target: &Target) -> Result<Option<ClientTlsConfig>, String> {
    if !target.address.starts_with("https://") {
        return Ok(None);
    }
    let mut tls = ClientTlsConfig::new().with_webpki_roots();
    if let Some(path) = &target.tls.ca {
        tls = tls.ca_certificate(Certificate::from_pem(read(path)?));
    }
    if let (Some(cert), Some(key)) = (&target.tls.cert, &target.tls.key) {
        tls = tls.identity(Identity::from_pem(read(cert)?, read(key)?));
    }
    Ok(Some(tls))
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use metamcp_config::config::TlsFiles;

    use super::*;

    #[tokio::test]
    async fn each_signal_can_be_sent_each_way_with_and_without_tls() {
        for scheme in ["http", "https"] {
            for is_grpc in [false, true] {
                let address = format!("{scheme}://127.0.0.1:9");
                let target = Target { address, is_grpc, tls: TlsFiles::default() };
                assert!(spans(&target).is_ok(), "{target:?}");
                assert!(metrics(&target).is_ok(), "{target:?}");
                assert!(logs(&target).is_ok(), "{target:?}");
            }
        }
        let tls = TlsFiles::default();
        let wrong = Target { address: "http://[".to_owned(), is_grpc: true, tls };
        assert!(spans(&wrong).is_err());
        for is_grpc in [false, true] {
            let tls = TlsFiles { ca: Some("/nonexistent/ca.pem".into()), ..TlsFiles::default() };
            let target = Target { address: "https://127.0.0.1:9".to_owned(), is_grpc, tls };
            let error = spans(&target).err().unwrap();
            assert!(error.contains("/nonexistent/ca.pem"), "{error}");
        }
    }
}
