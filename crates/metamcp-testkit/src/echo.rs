//! The trivial child of the benchmarks: minimal work between a request and its response.
//! Owns: reading in chunks, answering all complete lines of a chunk with one write.  Never: parses more than it must.
//! In: `initialize`, `tools/list`, calls of `echo` and `blob`.  Out: their responses; notifications are ignored.
//! Tests: below and `tests/it/programs.rs`.

mod scan;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use memchr::memchr;

use crate::relay::unbuffered;

/// Minimum free buffer space for a read: one pipe buffer, so that one read drains a pipe.
const ROOM: usize = 64 * 1024;

/// Serves on stdin and stdout until stdin ends.
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    match options(arguments).and_then(|options| serve(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // With stderr closed as well there is nowhere left to report to.
            drop(writeln!(io::stderr(), "echo-child: {error:#}"));
            ExitCode::from(2)
        }
    }
}

#[derive(Debug, Default)]
struct Options {
    /// Number of tools to list besides `echo` and `blob`.
    tools: usize,
    /// Delay before the first read.
    slow_start: Duration,
}

fn options(mut arguments: impl Iterator<Item = OsString>) -> Result<Options> {
    let mut options = Options::default();
    while let Some(flag) = arguments.next() {
        let value =
            arguments.next().with_context(|| format!("{} needs a number", flag.display()))?;
        let number: u64 = value
            .to_str()
            .and_then(|text| text.parse().ok())
            .with_context(|| format!("{} is not a number", value.display()))?;
        match flag.to_str() {
            Some("--tools") => options.tools = usize::try_from(number)?,
            Some("--slow-start") => options.slow_start = Duration::from_millis(number),
            _ => bail!("unknown flag {}; there are --tools N and --slow-start MS", flag.display()),
        }
    }
    Ok(options)
}

fn serve(options: &Options) -> Result<()> {
    thread::sleep(options.slow_start);
    let mut responder = Responder::new(options.tools);
    let (mut input, mut output) = (unbuffered(io::stdin()), unbuffered(io::stdout()));
    let mut buffer = vec![0; 2 * ROOM];
    // `buffer[start..end]` is unanswered; `buffer[start..seen]` is known to contain no newline.
    let (mut start, mut seen, mut end) = (0, 0, 0);
    let mut answers = Vec::with_capacity(ROOM);
    loop {
        if buffer.len() - end < ROOM {
            buffer.copy_within(start..end, 0);
            (seen, end, start) = (seen - start, end - start, 0);
            if buffer.len() - end < ROOM {
                buffer.resize(buffer.len() * 2, 0);
            }
        }
        let length = input.read(&mut buffer[end..])?;
        if length == 0 {
            return Ok(());
        }
        end += length;
        while let Some(newline) = memchr(b'\n', &buffer[seen..end]) {
            responder.answer(&buffer[start..seen + newline], &mut answers);
            start = seen + newline + 1;
            seen = start;
        }
        seen = end;
        if start == end {
            (start, seen, end) = (0, 0, 0);
        }
        if !answers.is_empty() {
            output.write_all(&answers)?;
            answers.clear();
        }
    }
}

struct Responder {
    tools: String,
    /// The last blob and its size: a benchmark requests the same one over and over.
    blob: (usize, String),
}

impl Responder {
    fn new(synthetic: usize) -> Self {
        Self { tools: tool_list(synthetic), blob: (0, blob_result(0)) }
    }

    /// Appends the response to one line, if it needs one.
    fn answer(&mut self, line: &[u8], answers: &mut Vec<u8>) {
        let (mut id, mut method, mut params) = (None, &b""[..], &b""[..]);
        for (key, value) in scan::members(line) {
            match key {
                b"id" => id = Some(value),
                b"method" => method = value,
                b"params" => params = value,
                _ => {}
            }
        }
        let Some(id) = id else { return };
        answers.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
        answers.extend_from_slice(id);
        match method {
            br#""tools/call""# => self.call(params, answers),
            br#""initialize""# => answers.extend_from_slice(
                br#","result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"echo-child","version":"0.1.0"}}"#,
            ),
            br#""tools/list""# => answers.extend_from_slice(self.tools.as_bytes()),
            br#""ping""# => answers.extend_from_slice(br#","result":{}"#),
            _ => answers.extend_from_slice(br#","error":{"code":-32601,"message":"method not found"}"#),
        }
        answers.extend_from_slice(b"}\n");
    }

    fn call(&mut self, params: &[u8], answers: &mut Vec<u8>) {
        let name = scan::member(params, b"name").unwrap_or_default();
        let arguments = scan::member(params, b"arguments").unwrap_or_default();
        if name == br#""blob""# {
            let bytes = scan::member(arguments, b"bytes").and_then(scan::number).unwrap_or(0);
            if bytes != self.blob.0 {
                self.blob = (bytes, blob_result(bytes));
            }
            answers.extend_from_slice(self.blob.1.as_bytes());
            return;
        }
        let text = scan::member(arguments, b"text").filter(|text| text.first() == Some(&b'"'));
        answers.extend_from_slice(br#","result":{"content":[{"type":"text","text":"#);
        answers.extend_from_slice(text.unwrap_or(br#""""#));
        answers.extend_from_slice(b"}]}");
    }
}

fn blob_result(bytes: usize) -> String {
    format!(r#","result":{{"content":[{{"type":"text","text":"{}"}}]}}"#, "x".repeat(bytes))
}

fn tool_list(synthetic: usize) -> String {
    let mut list = String::from(concat!(
        r#","result":{"tools":[{"name":"echo","description":"Answers with the text it was given.","#,
        r#""inputSchema":{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]},"#,
        r#""annotations":{"readOnlyHint":true}},"#,
        r#"{"name":"blob","description":"Answers with that many bytes.","#,
        r#""inputSchema":{"type":"object","properties":{"bytes":{"type":"integer"}},"required":["bytes"]},"#,
        r#""annotations":{"readOnlyHint":true}}"#,
    ));
    for number in 0..synthetic {
        write!(
            list,
            concat!(
                r#",{{"name":"synthetic_{n}","description":"Synthetic tool {n}: files topic {t} under heading {h}.","#,
                r#""inputSchema":{{"type":"object","properties":{{"topic_{t}":{{"type":"string","description":"what to file"}},"#,
                r#""limit":{{"type":"integer"}}}},"required":["topic_{t}"]}}}}"#
            ),
            n = number,
            t = number % 17,
            h = number % 5,
        )
        .expect("writing to a String cannot fail");
    }
    list.push_str("]}");
    list
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn answer_to(line: &str) -> Option<Value> {
        let mut answers = Vec::new();
        Responder::new(3).answer(line.as_bytes(), &mut answers);
        (!answers.is_empty()).then(|| serde_json::from_slice(&answers).unwrap())
    }

    #[test]
    fn echo_gives_back_the_text_whatever_the_order_of_keys() {
        let answer = answer_to(
            r#" { "params" : {"arguments":{"x":{"text":"}not this"},"text":"a\"}\\ \u00e9"},"_meta":{},"name":"echo"}, "method":"tools/call","id": "a-7" , "jsonrpc":"2.0"} "#,
        )
        .unwrap();
        assert_eq!(answer["id"], "a-7");
        assert_eq!(answer["result"]["content"][0]["text"], "a\"}\\ é");
    }

    #[test]
    fn blob_has_the_size_asked_for() {
        let line = json!({"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"blob","arguments":{"bytes":4096}}});
        let answer = answer_to(&line.to_string()).unwrap();
        assert_eq!(answer["result"]["content"][0]["text"].as_str().unwrap().len(), 4096);
    }

    #[test]
    fn the_list_has_the_synthetic_tools_too() {
        let answer = answer_to(r#"{"jsonrpc":"2.0","id":0,"method":"tools/list"}"#).unwrap();
        assert_eq!(answer["result"]["tools"].as_array().unwrap().len(), 5);
    }

    #[test]
    fn notifications_and_noise_are_not_answered() {
        assert_eq!(answer_to(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#), None);
        assert_eq!(answer_to("banner"), None);
        assert_eq!(answer_to(""), None);
        assert_eq!(answer_to(r#"{"id"#), None);
        assert_eq!(answer_to(r#"{"id":[[["#), None);
    }

    #[test]
    fn unknown_methods_are_refused() {
        let answer =
            answer_to(r#"{"jsonrpc":"2.0","id":3,"method":"server/discover","params":{}}"#)
                .unwrap();
        assert_eq!(answer["error"]["code"], -32601);
    }
}
