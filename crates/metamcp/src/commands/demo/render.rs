//! The demonstration's report, as text for a terminal and as one JSON document.
//! Owns: the report and its format.      Never: runs anything.
//! In: steps and costs.  Out: text with colours (stripped by the stream where there is no terminal), or JSON.
//! Tests: below, as snapshots.

use std::io::{self, Write};
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::tokens;

/// Lines shown of one response; the whole demonstration fits two screens.
const MAX_LINES: usize = 6;
/// Characters shown of one line.
const MAX_WIDTH: usize = 100;

const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();
const BAD: Style = AnsiColor::Red.on_default();
const GOOD: Style = AnsiColor::Green.on_default();

/// The tool lists of ten servers people commonly connect: name, tools, cl100k tokens of the whole list, and of name,
/// description and input schema alone. Counted, not estimated, from the responses of server-filesystem, -memory and
/// -sequential-thinking 2026.8.31, server-github 2025.4.8, mcp-server-git and -time 2026.10.19, mcp-server-fetch
/// 2026.10.24, @playwright/mcp 0.0.83, @upstash/context7-mcp 4.1.1 and chrome-devtools-mcp 1.11.0.
const WELL_KNOWN: [(&str, usize, usize, usize); 10] = [
    ("filesystem", 14, 2758, 1638),
    ("git", 12, 1406, 1105),
    ("memory", 9, 2287, 871),
    ("time", 2, 536, 267),
    ("fetch", 1, 250, 224),
    ("sequential-thinking", 1, 993, 861),
    ("github", 26, 3395, 3395),
    ("playwright", 25, 4310, 3688),
    ("context7", 2, 1055, 989),
    ("chrome-devtools", 32, 6416, 6048),
];

pub(super) struct Report {
    /// The gateway's own tools as listed.
    pub(super) surface: Vec<Value>,
    pub(super) steps: Vec<Step>,
    /// All tools of all servers, each listed directly.
    pub(super) alone: Cost,
    pub(super) gateway: Cost,
}

/// One request and its response.
#[derive(Default)]
pub(super) struct Step {
    pub(super) title: &'static str,
    pub(super) tool: &'static str,
    pub(super) arguments: Value,
    pub(super) text: String,
    pub(super) structured: Option<Value>,
    pub(super) is_error: bool,
    /// Estimated tokens of request and response.
    pub(super) tokens: usize,
    pub(super) took: Duration,
    /// Why the step failed, if it did.
    pub(super) problem: Option<String>,
}

/// What a list of tools costs a model.
#[derive(Default)]
pub(super) struct Cost {
    pub(super) tools: usize,
    /// Estimated tokens of the list as it comes over the wire.
    pub(super) whole: usize,
    /// Of name, description and input schema alone, which is what most clients pass to the model.
    pub(super) handed: usize,
}

impl Cost {
    /// Adds one `tools/list` response.
    pub(super) fn add(&mut self, listed: &Value) -> Result<()> {
        let tools =
            listed["tools"].as_array().context("tools/list answered without a list of tools")?;
        let handed: Vec<Value> = tools
            .iter()
            .map(|tool| {
                json!({ "name": tool["name"], "description": tool["description"], "inputSchema": tool["inputSchema"] })
            })
            .collect();
        self.tools += tools.len();
        self.whole += tokens::about(&listed["tools"].to_string());
        self.handed += tokens::about(&Value::from(handed).to_string());
        Ok(())
    }

    fn to_json(&self) -> Value {
        json!({ "tools": self.tools, "tokensAbout": self.whole, "tokensHandedToModelAbout": self.handed })
    }
}

impl Step {
    /// The request as one would type it.
    pub(super) fn asked(&self) -> String {
        match &self.arguments {
            Value::Null => self.tool.to_owned(),
            arguments => format!("{} {arguments}", self.tool),
        }
    }

    fn to_json(&self) -> Value {
        json!({
            "title": self.title,
            "tool": self.tool,
            "arguments": self.arguments,
            "ok": self.problem.is_none(),
            "problem": self.problem,
            "isError": self.is_error,
            "text": self.text,
            "structuredContent": self.structured,
            "tokensAbout": self.tokens,
            "milliseconds": self.took.as_secs_f64() * 1_000.0,
        })
    }
}

impl Report {
    pub(super) fn to_json(&self) -> Value {
        json!({
            "ok": self.steps.iter().all(|step| step.problem.is_none()),
            "tools": self.surface,
            "steps": self.steps.iter().map(Step::to_json).collect::<Vec<_>>(),
            "cost": {
                "everyToolOfEveryServer": self.alone.to_json(),
                "metamcp": self.gateway.to_json(),
                "ratio": ratio(self.alone.whole, self.gateway.whole),
                "ratioHandedToModel": ratio(self.alone.handed, self.gateway.handed),
                "conversationAbout": self.conversation(),
                "tenWellKnownServers": WELL_KNOWN.map(|(name, tools, whole, handed)| {
                    json!({ "name": name, "tools": tools, "tokens": whole, "tokensHandedToModel": handed })
                }),
            },
        })
    }

    /// The report as text.
    pub(super) fn print(&self, output: &mut impl Write) -> io::Result<()> {
        let (servers, tools) = (crate::example::SERVERS.len(), self.alone.tools);
        writeln!(
            output,
            "{BOLD}{servers} example servers with {tools} tools, behind one gateway{BOLD:#}"
        )?;
        for step in &self.steps {
            self.print_step(step, output)?;
        }
        self.print_costs(output)
    }

    fn print_step(&self, step: &Step, output: &mut impl Write) -> io::Result<()> {
        let (tokens, took) = (grouped(step.tokens), step.took.as_secs_f64() * 1_000.0);
        writeln!(
            output,
            "\n{BOLD}{}{BOLD:#} {DIM}(about {tokens} tokens, {took:.0} ms){DIM:#}",
            step.title
        )?;
        if step.tool != "tools/list" && !step.tool.is_empty() {
            writeln!(output, "{DIM}>{DIM:#} {}", shortened(&step.asked()))?;
        }
        match &step.problem {
            Some(problem) => writeln!(
                output,
                "  {BAD}failed:{BAD:#} {}",
                shortened(&problem.replace('\n', " "))
            )?,
            None if step.tool == "tools/list" => self.print_surface(output)?,
            None => {}
        }
        let lines: Vec<&str> = step.text.lines().filter(|line| !line.trim().is_empty()).collect();
        let shown = if lines.len() > MAX_LINES { MAX_LINES - 1 } else { lines.len() };
        for line in &lines[..shown] {
            writeln!(output, "  {}", shortened(line))?;
        }
        if lines.len() > shown {
            writeln!(output, "  {DIM}… {} more lines{DIM:#}", lines.len() - shown)?;
        }
        Ok(())
    }

    fn print_surface(&self, output: &mut impl Write) -> io::Result<()> {
        for tool in &self.surface {
            let name = tool["name"].as_str().unwrap_or_default();
            let description = tool["description"].as_str().unwrap_or_default();
            let first = description.lines().next().unwrap_or_default();
            writeln!(output, "  {}", shortened(&format!("{name:<13} {first}")))?;
        }
        Ok(())
    }

    fn print_costs(&self, output: &mut impl Write) -> io::Result<()> {
        let ten = WELL_KNOWN
            .iter()
            .fold((0, 0, 0), |sum, row| (sum.0 + row.1, sum.1 + row.2, sum.2 + row.3));
        writeln!(
            output,
            "\n{BOLD}{:<44}{:>6}{:>12}{:>18}{BOLD:#}",
            "Tokens before the first prompt, about", "tools", "whole list", "passed to model*"
        )?;
        for (name, cost) in [
            ("every tool of the example servers", &self.alone),
            ("metamcp in front of them", &self.gateway),
        ] {
            let (whole, handed) = (grouped(cost.whole), grouped(cost.handed));
            writeln!(output, "  {name:<42}{:>6}{whole:>12}{handed:>18}", cost.tools)?;
        }
        let times = |alone, gateway| format!("{:.1} times", ratio(alone, gateway));
        let (whole, handed) = (
            times(self.alone.whole, self.gateway.whole),
            times(self.alone.handed, self.gateway.handed),
        );
        writeln!(output, "  {GOOD}{:<48}{whole:>12}{handed:>18}{GOOD:#}", "less by")?;
        let (whole, handed) = (grouped(ten.1), grouped(ten.2));
        writeln!(
            output,
            "  {:<42}{:>6}{whole:>12}{handed:>18}",
            "for comparison: ten well-known servers**", ten.0
        )?;
        let conversation = grouped(self.conversation());
        writeln!(
            output,
            "\nThe requests and responses above took about {conversation} more tokens, including the mistake."
        )?;
        let names: Vec<&str> = WELL_KNOWN.iter().map(|row| row.0).collect();
        writeln!(
            output,
            "{DIM}*  name, description and input schema, which is all that most clients pass on{DIM:#}"
        )?;
        writeln!(output, "{DIM}** counted from {}{DIM:#}", names[..5].join(", "))?;
        writeln!(output, "{DIM}   {}{DIM:#}", names[5..].join(", "))
    }

    /// Tokens of the requests and responses after `tools/list`.
    fn conversation(&self) -> usize {
        self.steps.iter().filter(|step| step.tool != "tools/list").map(|step| step.tokens).sum()
    }
}

/// `one` divided by `other`, to a tenth.
fn ratio(one: usize, other: usize) -> f64 {
    (one as f64 / other.max(1) as f64 * 10.0).round() / 10.0
}

/// A line cut to the width of the report. Control characters are dropped: responses come from servers, and a terminal
/// obeys escape codes.
fn shortened(line: &str) -> String {
    let line: String = line.chars().filter(|c| !c.is_control()).collect();
    if line.chars().count() <= MAX_WIDTH {
        return line;
    }
    let cut: String = line.chars().take(MAX_WIDTH - 1).collect();
    format!("{cut}…")
}

/// A number with thousands separators.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let listed = Step {
            title: "Everything the model sees at first",
            tool: "tools/list",
            tokens: 300,
            ..Step::default()
        };
        let found = Step {
            title: "A need",
            tool: "mcp_discover",
            arguments: json!({ "query": "x" }),
            text: "one\n\u{1b}[31mtwo\n\nthree\nfour\nfive\nsix\nseven".to_owned(),
            tokens: 1_200,
            took: Duration::from_micros(2_400),
            ..Step::default()
        };
        let failed = Step {
            title: "A call",
            tool: "mcp_call",
            arguments: json!({ "tool": "a:b" }),
            problem: Some("the gateway ended".to_owned()),
            ..Step::default()
        };
        Report {
            surface: vec![json!({ "name": "mcp_call", "description": "Call a tool.\nMore." })],
            steps: vec![listed, found, failed],
            alone: Cost { tools: 30, whole: 5_000, handed: 3_000 },
            gateway: Cost { tools: 2, whole: 400, handed: 300 },
        }
    }

    #[test]
    fn the_report_in_words() {
        let mut plain = anstream::StripStream::new(Vec::new());
        report().print(&mut plain).unwrap();
        insta::assert_snapshot!(String::from_utf8(plain.into_inner()).unwrap());
    }

    #[test]
    fn the_report_as_json() {
        let json = report().to_json();
        assert_eq!((&json["ok"], &json["steps"][2]["ok"]), (&json!(false), &json!(false)));
        assert_eq!(
            (&json["cost"]["ratio"], &json["cost"]["conversationAbout"]),
            (&json!(12.5), &json!(1_200))
        );
        assert_eq!(json["steps"][2]["problem"], "the gateway ended");
    }

    #[test]
    fn numbers_and_lines_for_people() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(shortened("a\u{1b}]0;x\u{7}b"), "a]0;xb");
        assert_eq!(shortened(&"é".repeat(200)).chars().count(), MAX_WIDTH);
    }
}
