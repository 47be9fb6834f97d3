//! An exporter whose failures are told: once when they begin, and once when they are over.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use metamcp_types::text;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::logs::{LogBatch, LogExporter};
use opentelemetry_sdk::metrics::Temporality;
use opentelemetry_sdk::metrics::data::ResourceMetrics;
use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};

use super::plan::{Signal, Target};

/// Longest reason: a collector may answer with a page.
const MAX_REASON: usize = 200;

#[derive(Debug)]
pub(super) struct Watched<E> {
    exporter: E,
    signal: Signal,
    /// Host and port, without anything that might be a secret.
    place: String,
    fails: AtomicBool,
}

impl<E> Watched<E> {
    pub(super) fn new(exporter: E, signal: Signal, target: &Target) -> Watched<E> {
        Watched { exporter, signal, place: place(&target.address), fails: AtomicBool::new(false) }
    }

    fn told(&self, result: OTelSdkResult) -> OTelSdkResult {
        let (signal, place) = (self.signal.word(), &self.place);
        match &result {
            Ok(()) if self.fails.swap(false, Ordering::Relaxed) => {
                tracing::info!("the collector at {place} takes {signal} again");
            }
            Err(error) if !self.fails.swap(true, Ordering::Relaxed) => {
                let why = match error {
                    OTelSdkError::InternalFailure(why) => text::clean_line(why, MAX_REASON),
                    other => other.to_string().into(),
                };
                tracing::warn!(
                    "the collector at {place} takes no {signal}, which are lost until it does: {why}"
                );
            }
            _ => {}
        }
        result
    }
}

fn place(address: &str) -> String {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    text::clean_line(host, MAX_REASON).into_owned()
}

impl<E: SpanExporter> SpanExporter for Watched<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.told(self.exporter.export(batch).await)
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

impl<E: PushMetricExporter> PushMetricExporter for Watched<E> {
    async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
        self.told(self.exporter.export(metrics).await)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn temporality(&self) -> Temporality {
        self.exporter.temporality()
    }
}

impl<E: LogExporter> LogExporter for Watched<E> {
    async fn export(&self, batch: LogBatch<'_>) -> OTelSdkResult {
        self.told(self.exporter.export(batch).await)
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_shows_no_secret() {
        for (address, shown) in [
            ("http://127.0.0.1:4317", "127.0.0.1:4317"),
            ("https://me:key@c.example:4318/v1/traces?token=x", "c.example:4318"),
        ] {
            assert_eq!(place(address), shown);
        }
    }
}
