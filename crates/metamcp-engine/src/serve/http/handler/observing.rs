//! `/metrics`, whose token reads it, and the trace that a request is part of.

use std::sync::Arc;

use hyper::header::{ACCEPT, HeaderMap};
use hyper::{Response, StatusCode};
use metamcp_wire::trace_context::TraceContext;

use super::head::{busy, joined};
use super::{ErrorResponse, Handler};
use crate::metrics::Format;
use crate::serve::http::access::Role;
use crate::serve::http::guard::Route;
use crate::serve::http::reply::{self, Answer, REFUSED};

/// Why a token does not open this, whatever toolset it is bound to.
pub(super) fn unfit(role: Role, route: Route) -> Option<&'static str> {
    match (role, route) {
        (Role::Metrics, Route::Metrics) | (Role::Owner, _) => None,
        (Role::Metrics, _) => Some("this token reads metrics and opens nothing else"),
        (Role::Tools, Route::Metrics) => Some(
            "this token does not read metrics; `metamcp token --metrics` prints the one that does, and in a token file a line may have `role=metrics`",
        ),
        (Role::Tools, _) => None,
    }
}

impl Handler {
    /// Everything that is counted. Reading what processes use takes a while, so it is done elsewhere.
    pub(super) async fn metrics(
        &self,
        headers: &HeaderMap,
    ) -> Result<Response<Answer>, ErrorResponse> {
        let Some(metrics) = self.metrics.clone() else {
            let message = "nothing is counted here; set metrics.enabled, and restart the gateway";
            return Err(Box::new(reply::refusal(StatusCode::NOT_FOUND, REFUSED, message)));
        };
        let format = Format::accepted(joined(headers, &ACCEPT).as_deref());
        let rendered = tokio::task::spawn_blocking(move || metrics.render(format)).await;
        let text = rendered.map_err(|_| {
            busy(StatusCode::INTERNAL_SERVER_ERROR, "the metrics could not be read; see the log")
        })?;
        Ok(reply::text(text, format.content_type()))
    }

    /// Where in a trace a request was made, if calls are traced.
    pub(in crate::serve::http) fn trace_of(
        &self,
        headers: &HeaderMap,
    ) -> Option<Arc<TraceContext>> {
        self.router.observer.tracer()?;
        let one = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        TraceContext::of(one("traceparent")?, one("tracestate"), one("baggage")).map(Arc::new)
    }
}
