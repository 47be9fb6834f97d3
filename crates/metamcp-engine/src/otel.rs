//! Traces, metrics and logs by OTLP, with the official OpenTelemetry crates.
//! Owns: where telemetry goes, its batches and their bounds.      Never: delays a call, holds more than its queues, sends an argument or a result.
//! In: records of calls, the readings of `metrics`, lines of the log.  Out: requests to a collector, by gRPC or HTTP.
//! Tests: below `otel/`, `metamcp/tests/observability/`; decoded by the official Python packages in `metamcp/tests/real/observability.rs`.
//!
//! Each signal has a queue of bounded length and a thread of the SDK that empties it; what does not fit is dropped.

mod exporters;
mod http_client;
mod instruments;
mod logs;
mod plan;
mod spans;
mod watched;

use std::sync::Arc;
use std::time::Duration;

use metamcp_config::settings::OtelSettings;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::BatchSpanProcessor;

use crate::env;
use crate::metrics::Metrics;
use crate::observe::{Observer, Subscriber};
use crate::router::Router;
use crate::telemetry;
use instruments::Instruments;
use logs::Logs;
use plan::{Plan, Signal};
use spans::Spans;

/// How long the end of the process waits for what is still in the queues.
const LAST_EXPORT: Duration = Duration::from_secs(2);
/// Our name in what is sent: the scope of every span, metric and line.
const SCOPE: &str = "metamcp";

/// What is running.
pub struct Otel {
    spans: Option<Arc<Spans>>,
    instruments: Option<Arc<Instruments>>,
    logs: Option<Arc<Logs>>,
}

impl Otel {
    /// Starts what settings and variables ask for; `None` where that is nothing. Must be called inside a runtime.
    pub fn start(
        settings: &OtelSettings,
        router: &Arc<Router>,
        observer: &Arc<Observer>,
        metrics: Option<&Arc<Metrics>>,
    ) -> Option<Otel> {
        let plan = match Plan::of(settings, &env::var) {
            Ok(plan) => plan?,
            Err(why) => {
                tracing::warn!("no telemetry is sent: {why}");
                return None;
            }
        };
        let resource = resource(&plan);
        let mut otel = Otel { spans: None, instruments: None, logs: None };
        if let Some(target) = plan.target(Signal::Traces) {
            let exporter = exporters::spans(target);
            otel.spans = started(Signal::Traces, exporter, |exporter| {
                let mut exporter = BatchSpanProcessor::builder(exporter).build();
                opentelemetry_sdk::trace::SpanProcessor::set_resource(&mut exporter, &resource);
                Arc::new(Spans::new(exporter, plan.sampler(), router.clock))
            });
        }
        if let Some(target) = plan.target(Signal::Metrics) {
            let exporter = exporters::metrics(target);
            let readings = match metrics {
                Some(metrics) => Arc::clone(metrics),
                None => Arc::new(Metrics::new(router)),
            };
            otel.instruments = started(Signal::Metrics, exporter, |exporter| {
                Arc::new(Instruments::new(exporter, resource.clone(), &readings))
            });
        }
        if let Some(target) = plan.target(Signal::Logs) {
            let exporter = exporters::logs(target);
            otel.logs = started(Signal::Logs, exporter, |exporter| {
                Arc::new(Logs::new(exporter, resource.clone()))
            });
        }
        otel.attach(observer);
        Some(otel)
    }

    fn attach(&self, observer: &Observer) {
        if let Some(spans) = &self.spans {
            observer.trace_with(Arc::clone(spans) as _);
            observer.attach(Arc::clone(spans) as Arc<dyn Subscriber>);
        }
        if let Some(instruments) = &self.instruments {
            observer.attach(Arc::clone(instruments) as Arc<dyn Subscriber>);
        }
        if let Some(logs) = &self.logs {
            let logs = Arc::clone(logs);
            telemetry::also_to(Box::new(move |level, line| logs.emit(level, line)));
        }
    }

    /// Sends what is left, for a while. A collector that does not answer does not hold up the end for longer.
    pub async fn finish(&self) {
        let (spans, instruments, logs) =
            (self.spans.clone(), self.instruments.clone(), self.logs.clone());
        let last = tokio::task::spawn_blocking(move || {
            // The three wait for the same collector, so they do it at once.
            std::thread::scope(|scope| {
                if let Some(spans) = &spans {
                    scope.spawn(|| spans.shut_down(LAST_EXPORT));
                }
                if let Some(instruments) = &instruments {
                    scope.spawn(|| instruments.shut_down(LAST_EXPORT));
                }
                if let Some(logs) = &logs {
                    scope.spawn(|| logs.shut_down(LAST_EXPORT));
                }
            });
        });
        drop(tokio::time::timeout(LAST_EXPORT, last).await);
    }
}

/// A signal whose exporter could be made; a wrong address costs that signal, and is told.
fn started<E, T>(
    signal: Signal,
    exporter: Result<E, String>,
    start: impl FnOnce(E) -> T,
) -> Option<T> {
    match exporter {
        Ok(exporter) => Some(start(exporter)),
        Err(why) => {
            let signal = signal.word();
            tracing::warn!("no {signal} are sent by OTLP: {why}; see OTEL_EXPORTER_OTLP_ENDPOINT");
            None
        }
    }
}

/// What all of it is about: this gateway.
fn resource(plan: &Plan) -> Resource {
    let mut resource = Resource::builder();
    if !plan.is_named {
        resource = resource.with_service_name(SCOPE);
    }
    let version = opentelemetry::KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    resource.with_attribute(version).build()
}
