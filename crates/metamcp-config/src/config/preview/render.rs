//! The preview rendered: in full for a terminal, short for an elicitation, as JSON, as counts.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{ConfigPreview, ServerPreview};

/// Longest elicitation: about a screen. What is longer is decided in a terminal.
const LONGEST_QUESTION: usize = 3_000;

impl ConfigPreview {
    /// All of it, for a terminal.
    pub fn told(&self) -> String {
        let mut out = String::new();
        for server in &self.servers {
            server_told(&mut out, server);
        }
        if !self.settings.is_empty() {
            line(&mut out, "settings it changes");
            for setting in &self.settings {
                let (key, to, from) =
                    (&setting.key, or_empty(&setting.to), or_empty(&setting.from));
                let origin = &setting.origin;
                let now = match setting.is_overridden {
                    false => format!("in place of {from} ({origin})"),
                    true => format!("once nothing else sets it; now {from} ({origin})"),
                };
                line(&mut out, &format!("  {key}: {to} {now}"));
            }
        }
        if !self.toolsets.is_empty() {
            line(&mut out, "toolsets");
            for toolset in &self.toolsets {
                let replaces = if toolset.replaces { ", in place of your own" } else { "" };
                line(&mut out, &format!("  {}{replaces}: {}", toolset.name, toolset.rules));
            }
        }
        if !self.faults.is_empty() {
            line(&mut out, "cannot be used");
            self.faults.iter().for_each(|fault| line(&mut out, &format!("  {fault}")));
        }
        out
    }

    /// How much it is, without a word of the file.
    pub fn counts(&self) -> String {
        let count = |number: usize, word: &str| match number {
            0 => None,
            1 => Some(format!("1 {word}")),
            _ => Some(format!("{number} {word}s")),
        };
        let parts: Vec<String> = [
            count(self.servers.len(), "server"),
            count(self.settings.len(), "setting"),
            count(self.toolsets.len(), "toolset"),
        ]
        .into_iter()
        .flatten()
        .collect();
        match parts.as_slice() {
            [] => "nothing".to_owned(),
            [only] => only.clone(),
            [first @ .., last] => format!("{} and {last}", first.join(", ")),
        }
    }

    /// The elicitation for a client; `path` is where the file is. None where all of it cannot be
    /// shown: what a person did not see they cannot approve.
    pub fn question(&self, path: &str) -> Option<Value> {
        let told = self.told();
        if self.is_cut || told.chars().count() > LONGEST_QUESTION {
            return None;
        }
        let message = format!(
            "This request is from metamcp itself, not from a server. The folder has a config file that you have not approved:\n{path}\n\nIf approved, it may start these programs as you, and its settings apply. Approve it only if you trust whoever wrote it.\n\n{told}"
        );
        Some(json!({
            "mode": "form",
            "message": message,
            "requestedSchema": {
                "type": "object",
                "properties": {
                    "trust": {
                        "type": "boolean",
                        "title": "Trust this config file",
                        "description": "Exactly as it is now; after a change you will be asked again",
                        "default": false,
                    },
                },
                "required": ["trust"],
            },
        }))
    }

    /// All of it, for programs.
    pub fn json(&self) -> Value {
        let servers = self.servers.iter().map(|server| {
            let named = |pairs: &[(String, String)]| {
                pairs
                    .iter()
                    .map(|(name, value)| json!({ "name": name, "value": value }))
                    .collect::<Vec<_>>()
            };
            json!({
                "name": server.name,
                "replaces": server.replaces,
                "command": (!server.is_remote).then_some(&server.runs),
                "url": (server.is_remote && server.openapi.is_none()).then_some(&server.runs),
                "openapi": server.openapi.is_some().then_some(&server.runs),
                "cwd": server.cwd,
                "gives": named(&server.gives),
                "reads": server.reads,
                "lookups": server.lookups,
                "other": named(&server.others),
                "unused": server.unused,
                "doubts": server.doubts,
            })
        });
        let settings = self.settings.iter().map(|setting| {
            json!({ "key": setting.key, "to": setting.to, "from": setting.from, "origin": setting.origin, "overridden": setting.is_overridden })
        });
        let toolsets = self
            .toolsets
            .iter()
            .map(|toolset| json!({ "name": toolset.name, "replaces": toolset.replaces, "rules": toolset.rules }));
        json!({
            "servers": servers.collect::<Vec<_>>(),
            "settings": settings.collect::<Vec<_>>(),
            "toolsets": toolsets.collect::<Vec<_>>(),
            "faults": self.faults,
            "cut": self.is_cut,
        })
    }
}

fn server_told(out: &mut String, server: &ServerPreview) {
    let replaces = match server.replaces {
        None => String::new(),
        Some("user") => ", in place of your own server of this name".to_owned(),
        Some(other) => format!(", in place of your server of this name ({other})"),
    };
    line(out, &format!("{}{replaces}", server.name));
    if let Some(why) = &server.unused {
        line(out, &format!("  is not used: {why}"));
    }
    if !server.runs.is_empty() {
        let verb = match (server.is_remote, &server.openapi) {
            (_, Some(_)) => "makes tools of the API",
            (true, None) => "connects to",
            (false, None) => "runs",
        };
        line(out, &format!("  {verb}: {}", server.runs));
    }
    if let Some(cwd) = &server.cwd {
        line(out, &format!("  in: {cwd}"));
    }
    let what = if server.is_remote { "header" } else { "variable" };
    for (name, value) in &server.gives {
        match name.strip_prefix("credentials:") {
            Some(scheme) => line(out, &format!("  credential: {scheme} = {}", or_empty(value))),
            None => line(out, &format!("  {what}: {name} = {}", or_empty(value))),
        }
    }
    if !server.reads.is_empty() {
        line(out, &format!("  gets from your environment: {}", server.reads.join(", ")));
    }
    for lookup in &server.lookups {
        line(out, &format!("  runs for a secret: {lookup}"));
    }
    for (key, value) in &server.others {
        line(out, &format!("  {key}: {value}"));
    }
    for doubt in &server.doubts {
        line(out, &format!("  careful: {doubt}"));
    }
}

fn or_empty(text: &str) -> &str {
    if text.is_empty() { "(empty)" } else { text }
}

fn line(out: &mut String, line: &str) {
    writeln!(out, "{line}").expect("writing to a string cannot fail");
}
