//! Lines of the log as log records: what stands on stderr, cleaned in the same way.

use std::time::Duration;

use opentelemetry::logs::{AnyValue, LogRecord as _, Logger as _, LoggerProvider as _, Severity};
use opentelemetry_otlp::LogExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::logs::{SdkLogger, SdkLoggerProvider};
use tracing::Level;

use super::SCOPE;
use super::watched::Watched;
use crate::clock;

pub(super) struct Logs {
    provider: SdkLoggerProvider,
    logger: SdkLogger,
}

impl Logs {
    pub(super) fn new(exporter: Watched<LogExporter>, resource: Resource) -> Logs {
        let provider = SdkLoggerProvider::builder().with_resource(resource);
        let provider = provider.with_batch_exporter(exporter).build();
        let logger = provider.logger(SCOPE);
        Logs { provider, logger }
    }

    /// Puts a line into the queue.
    pub(super) fn emit(&self, level: Level, line: &str) {
        let (severity, text) = match level {
            Level::ERROR => (Severity::Error, "ERROR"),
            Level::WARN => (Severity::Warn, "WARN"),
            Level::INFO => (Severity::Info, "INFO"),
            Level::DEBUG => (Severity::Debug, "DEBUG"),
            Level::TRACE => (Severity::Trace, "TRACE"),
        };
        let mut record = self.logger.create_log_record();
        record.set_timestamp(clock::system_time());
        record.set_severity_number(severity);
        record.set_severity_text(text);
        record.set_body(AnyValue::String(line.to_owned().into()));
        self.logger.emit(record);
    }

    pub(super) fn shut_down(&self, limit: Duration) {
        // What could not be sent is lost, which nobody can be told any more.
        drop(self.provider.shutdown_with_timeout(limit));
    }
}
