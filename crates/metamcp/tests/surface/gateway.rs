//! A gateway and its client, with helpers for the requests these tests share.

use std::path::Path;
use std::time::Duration;

use metamcp_testkit::{Answer, Client, Workspace};
use serde_json::{Value, json};

/// A longer wait means a hang.
pub(crate) const HUNG: Duration = Duration::from_mins(1);

pub(crate) struct Gateway {
    pub(crate) client: Client,
    pub(crate) workspace: Workspace,
}

impl Gateway {
    pub(crate) fn start(workspace: Workspace, args: &[&str]) -> Gateway {
        let mut command = workspace.command(Path::new(env!("CARGO_BIN_EXE_metamcp"))).unwrap();
        command.args(args);
        let client = Client::start(command).unwrap();
        client.initialize(&json!({}), HUNG).unwrap();
        Gateway { client, workspace }
    }

    pub(crate) fn call(&self, tool: &str, arguments: &Value) -> Answer {
        let id = self.client.call_tool(tool, arguments).unwrap();
        self.client.wait(id, HUNG).unwrap()
    }

    /// The structured result of a tool of the full surface, validated against its published output schema.
    pub(crate) fn full(&self, tool: &str, arguments: &Value) -> Value {
        let answer = self.call(tool, arguments);
        let result = &answer.value["result"];
        let structured = result["structuredContent"].clone();
        assert!(structured.is_object(), "{tool} {arguments}: {:#}", answer.value);
        let schema = self.tool(tool)["outputSchema"].clone();
        let validator = jsonschema::validator_for(&schema).unwrap();
        let wrong: Vec<String> =
            validator.iter_errors(&structured).map(|error| error.to_string()).collect();
        assert!(wrong.is_empty(), "{tool}: {wrong:?}\n{structured:#}");
        assert_eq!(
            result["isError"] == true,
            !structured["error"].is_null(),
            "{tool}: {:#}",
            answer.value
        );
        structured
    }

    /// The published definition of a tool.
    pub(crate) fn tool(&self, name: &str) -> Value {
        let list = self.client.ask("tools/list", &json!({}), HUNG).unwrap();
        let tools = list.value["result"]["tools"].as_array().unwrap().clone();
        tools.into_iter().find(|tool| tool["name"] == name).unwrap_or_default()
    }

    /// Requests and responses in order, as readable text, without what varies from run to run.
    pub(crate) fn transcript(&self, asked: &[(&str, Value)]) -> String {
        let mut page = String::new();
        for (tool, arguments) in asked {
            let answer = self.call(tool, arguments).value;
            page.push_str(&format!("> {tool} {arguments}\n"));
            match answer.get("error") {
                Some(error) => page.push_str(&format!("! {}\n\n", steady(error.clone()))),
                None => {
                    let result = &answer["result"];
                    if result["isError"] == true {
                        let line = result["content"][0]["text"].as_str().unwrap_or_default();
                        page.push_str(&format!("# {line}\n"));
                    }
                    let structured = steady(result["structuredContent"].clone());
                    page.push_str(&format!("< {structured:#}\n\n"));
                }
            }
        }
        page
    }
}

/// Replaces times, handles and cursors, which differ from run to run.
fn steady(mut value: Value) -> Value {
    match &mut value {
        Value::Object(map) => {
            for (key, value) in map.iter_mut() {
                *value = match key.as_str() {
                    "durationMs" => json!(0),
                    "nextCursor" if value.is_string() => json!("CURSOR"),
                    _ => steady(value.take()),
                };
            }
        }
        Value::Array(items) => {
            for item in items.iter_mut() {
                *item = steady(item.take());
            }
        }
        _ => {}
    }
    value
}
