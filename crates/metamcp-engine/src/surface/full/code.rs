//! `execute_code`: runs a script in code mode, and renders its outcome for the full surface.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use metamcp_sandbox::host::Status;
use metamcp_surface::excerpt;
use metamcp_surface::full_surface::{self, BadArguments, CodeRequest, CodeResponse};

use super::refused;
use super::run::millis;
use crate::clock;
use crate::router::Caller;
use crate::surface::execute::{FinishedScript, ScriptRequest, ended};
use crate::surface::reply::{Code, ErrorObject};
use crate::surface::script::Transcript;
use crate::surface::sub_request::Progress;
use crate::surface::{Finished, Running, Step, View};

const OP: &str = "execute_code";

impl View {
    pub(super) fn execute_code(
        &self,
        arguments: Option<&[u8]>,
        meta: Option<&[u8]>,
        caller: &Caller,
    ) -> Result<Step, BadArguments> {
        let request = CodeRequest::decode(arguments)?;
        if !request.is_known_language() {
            let message = format!(
                "code in {:?} does not run here",
                request.language.as_deref().unwrap_or_default()
            );
            let object = ErrorObject::new(Code::ValidationInput, message)
                .hint("Nothing was run. Write it in typescript or javascript.");
            return Ok(Step::Now(Finished::Result(refused(OP, object))));
        }
        let timeout = request.timeout_ms.map(Duration::from_millis);
        let most = request.max_tool_calls.map(|calls| u32::try_from(calls).unwrap_or(u32::MAX));
        let script_request = ScriptRequest::new(&request.code, timeout, most);
        let transcript = Transcript::new();
        let (view, recording, began) =
            (self.clone(), Arc::clone(&transcript), clock::std_instant());
        let progress = Progress::new(caller, meta);
        let unended = Arc::clone(&progress);
        let final_response = move || {
            unended.script_ended();
            let (logs, calls) = transcript.so_far();
            let object = ended().by(OP);
            let error = object.to_json();
            let ran = CodeResponse {
                value: b"null",
                handle: None,
                logs: &logs.lines,
                calls: &calls,
                duration_ms: millis(began),
                error: Some(&error),
            };
            let line = object.to_line();
            Finished::Result(full_surface::answer(&full_surface::code(&ran), Some(&line), &[]))
        };
        let future = async move {
            Finished::Result(
                match view.execute("execute_code", &script_request, &progress, recording).await {
                    Ok(ran) => view.ran_code(script_request.source(), &ran, began),
                    Err(object) => refused(OP, object),
                },
            )
        };
        Ok(Step::Running(Running {
            future: Box::pin(future),
            final_response: Box::new(final_response),
        }))
    }

    fn ran_code(&self, source: &str, script: &FinishedScript, began: Instant) -> Vec<u8> {
        let outcome = &script.outcome;
        let (mut logs, calls) = self.output(outcome);
        logs.lines.extend(script.notes().map(|note| format!("warn: {note}")));
        let value = outcome.value.as_ref().filter(|_| outcome.status == Status::Ok);
        let error = value.is_none().then(|| self.script_error(source, outcome).by(OP));
        let error_json = error.as_ref().map(ErrorObject::to_json);
        let value = value.map_or("null", String::as_str);
        let is_long = value.chars().count() > self.shown_chars();
        let handle = is_long.then(|| {
            self.surface.results.put(&self.owner(), Bytes::copy_from_slice(value.as_bytes()))
        });
        let shown = handle.as_ref().map(|handle| {
            excerpt::preview(value.as_bytes(), self.shown_chars(), handle).to_string()
        });
        let ran = CodeResponse {
            value: shown.as_deref().unwrap_or(value).as_bytes(),
            handle: handle.as_deref(),
            logs: &logs.lines,
            calls: &calls,
            duration_ms: millis(began),
            error: error_json.as_ref(),
        };
        let line = error.as_ref().map(ErrorObject::to_line);
        full_surface::answer(&full_surface::code(&ran), line.as_deref(), &[])
    }
}
