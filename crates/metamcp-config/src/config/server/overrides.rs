//! The overrides of a server's tools: what the user says of them in the server's place.

use jsonc_parser::ast::Value;
use metamcp_types::pattern::Pattern;
use metamcp_types::secret::{Reference, Secret};
use metamcp_types::tool_override::{Hidden, Pin, ToolOverride, ToolOverrides};
use serde_json::Map;

use super::plain;
use super::transport::Values;
use crate::config::read::{Fields, Key, Node, properties};
use crate::config::report::Report;
use crate::config::toolset::read_words;

/// The keys of an override, with what they mean.
pub(in crate::config) const KEYS: [(&str, &str); 9] = [
    ("name", "Another name for the tool. Not for a pattern."),
    ("title", "Its title, for people."),
    ("description", "Its description, in place of the server's."),
    (
        "annotations",
        "Hints about its effects, which replace the server's: `readOnlyHint`, `destructiveHint`, `idempotentHint`, `openWorldHint`.",
    ),
    (
        "tags",
        "Words to find it by. They are added to its description, where search and readers see them.",
    ),
    ("defaults", "Values of arguments that callers leave out."),
    (
        "hidden",
        "Arguments that metamcp fills in: callers neither see nor give them. Texts may hold variables and references to secrets, as in `env`.",
    ),
    ("enums", "The only values that callers may give for an argument: a list of them for each."),
    (
        "pin",
        "`true`: list the tool beside metamcp's own, with its whole schema. `auto`: if it is among your most used. Within `pins.maxTokens`.",
    ),
];

/// The hints that can be set.
pub(in crate::config) const HINTS: [&str; 4] =
    ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"];

/// Longest name of a tool; the protocol advises the same.
const LONGEST_NAME: usize = 128;

pub(super) fn read_overrides(
    values: &mut Values<'_, '_, '_>,
    node: &Node<'_, '_>,
) -> ToolOverrides {
    let mut by_tool: Vec<(Pattern, ToolOverride)> = Vec::new();
    let Some(object) = node.object(values.report) else { return ToolOverrides::default() };
    for (tool, _, node) in properties(values.report, object, &node.path) {
        let Some(one) = read_one(values, tool, &node) else { continue };
        let is_taken =
            |name: &str| by_tool.iter().any(|(_, one)| one.name.as_deref() == Some(name));
        if one.name.as_deref().is_some_and(is_taken) {
            let message = "gives a tool the name that another one was given";
            values.report.problem(node.range(), &node.path, message);
        }
        by_tool.push((Pattern::new(tool), one));
    }
    ToolOverrides { by_tool }
}

fn read_one(
    values: &mut Values<'_, '_, '_>,
    tool: &str,
    node: &Node<'_, '_>,
) -> Option<ToolOverride> {
    let object = node.object(values.report)?;
    let keys = KEYS.map(|(name, _)| Key { name, aliases: &[] });
    let mut fields = Fields::read_rules(values.report, object, &node.path, &keys);
    let mut text = |values: &mut Values<'_, '_, '_>, key: &str| {
        let field = fields.take(key)?;
        field.node.string(values.report).map(str::to_owned)
    };
    let (name, title) = (text(values, "name"), text(values, "title"));
    let description = text(values, "description");
    if let Some(fault) = name.as_deref().and_then(|name| name_fault(tool, name)) {
        values.report.problem(node.range(), &node.path, fault);
    }
    let mut one = ToolOverride { name, title, description, ..ToolOverride::default() };
    if let Some(field) = fields.take("annotations") {
        one.annotations = read_annotations(values.report, &field.node);
    }
    if let Some(field) = fields.take("tags") {
        one.tags = read_words(values.report, &field.node);
    }
    if let Some(field) = fields.take("defaults") {
        let object = field.node.object(values.report)?;
        for (name, _, node) in properties(values.report, object, &field.node.path) {
            one.defaults.push((name.to_owned(), plain(node.value)));
        }
    }
    if let Some(field) = fields.take("hidden") {
        let object = field.node.object(values.report)?;
        for (name, _, node) in properties(values.report, object, &field.node.path) {
            let value = match node.value {
                Value::StringLit(literal) => {
                    Hidden::Text(read_text(values, name, &node, &literal.value)?)
                }
                other => Hidden::Plain(plain(other)),
            };
            one.hidden.push((name.to_owned(), value));
        }
    }
    if let Some(field) = fields.take("enums") {
        let object = field.node.object(values.report)?;
        for (name, _, node) in properties(values.report, object, &field.node.path) {
            let allowed = node.elements(values.report, "a list of values")?;
            if allowed.is_empty() {
                values.report.problem(node.range(), &node.path, "allows no value at all");
            }
            let allowed = allowed.iter().map(|node| plain(node.value)).collect();
            one.enums.push((name.to_owned(), allowed));
        }
    }
    if let Some(field) = fields.take("pin") {
        one.pin = match field.node.value {
            Value::StringLit(literal) if literal.value == "auto" => Pin::Auto,
            Value::BooleanLit(literal) if literal.value => Pin::Yes,
            Value::BooleanLit(_) => Pin::No,
            _ => field.node.wrong(values.report, "`true`, `false` or `auto`").unwrap_or_default(),
        };
    }
    for (name, _) in &one.hidden {
        let is_given = |given: &str| given == name;
        if one.defaults.iter().any(|(given, _)| is_given(given))
            || one.enums.iter().any(|(given, _)| is_given(given))
        {
            let message = format!("the argument {name:?} is hidden, so nobody can give it");
            values.report.problem(node.range(), &node.path, message);
        }
    }
    Some(one)
}

/// A text with its variables replaced; one that says where a secret is stays as it is until the server starts.
fn read_text(
    values: &mut Values<'_, '_, '_>,
    name: &str,
    node: &Node<'_, '_>,
    written: &str,
) -> Option<Secret> {
    let is_reference = Reference::is_one(written);
    let value = values.text(node)?;
    let wrap = if is_reference { Secret::reference } else { Secret::new };
    Some(wrap(name, value))
}

fn read_annotations(
    report: &mut Report<'_>,
    node: &Node<'_, '_>,
) -> Map<String, serde_json::Value> {
    let mut annotations = Map::new();
    let Some(object) = node.object(report) else { return annotations };
    let keys = HINTS.map(|name| Key { name, aliases: &[] });
    let mut fields = Fields::read_rules(report, object, &node.path, &keys);
    for hint in HINTS {
        let value = fields.take(hint).and_then(|field| field.node.boolean(report));
        annotations.extend(value.map(|value| (hint.to_owned(), value.into())));
    }
    annotations
}

fn name_fault(tool: &str, name: &str) -> Option<String> {
    if tool.contains('*') {
        return Some("a pattern may fit several tools, which cannot have one name".to_owned());
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    let fits = (1..=LONGEST_NAME).contains(&name.len()) && name.chars().all(is_plain);
    (!fits).then(|| {
        format!("a tool's name has 1 to {LONGEST_NAME} letters, digits, `-`, `_`, `.` or `/`")
    })
}

#[cfg(test)]
mod tests {
    use metamcp_types::tool_override::{Hidden, Pin};
    use serde_json::{Value, json};

    use crate::config::{ServerConfig, ServerState, parse};

    fn server(overrides: &Value) -> ServerConfig {
        let file = json!({ "mcpServers": { "a": { "command": "x", "overrides": overrides } } });
        let lookup = |name: &str| (name == "REGION").then(|| "eu-west-1".to_owned());
        let loaded = parse(&file.to_string(), &lookup).unwrap();
        loaded.config.server("a").unwrap().clone()
    }

    #[test]
    fn an_override_is_read_with_all_its_keys() {
        let read = server(&json!({
            "q": {
                "name": "list_issues", "title": "T", "description": "D",
                "annotations": { "readOnlyHint": true }, "tags": ["bugs"],
                "defaults": { "limit": 30 },
                "hidden": { "region": "${REGION}", "token": "file:/run/token", "dry": false },
                "enums": { "state": ["open", "closed"] },
                "pin": true,
            },
            "*": { "pin": "auto" },
        }));
        assert!(read.is_enabled(), "{:?}", read.state);
        let one = read.overrides.for_tool("q").unwrap();
        assert_eq!((one.name.as_deref(), one.pin), (Some("list_issues"), Pin::Yes));
        assert_eq!(one.defaults, [("limit".to_owned(), json!(30))]);
        assert_eq!(one.enums[0].1, [json!("open"), json!("closed")]);
        let hidden: Vec<(&str, bool)> =
            one.hidden.iter().map(|(name, value)| (name.as_str(), value.is_secret())).collect();
        // In doubt a text is a secret.
        assert_eq!(hidden, [("region", true), ("token", true), ("dry", false)]);
        let Hidden::Text(region) = &one.hidden[0].1 else { panic!("a text") };
        let Hidden::Text(token) = &one.hidden[1].1 else { panic!("a text") };
        assert_eq!((region.expose(), region.is_reference()), ("eu-west-1", false));
        assert!(token.is_reference());
        assert_eq!(read.overrides.for_tool("other").unwrap().pin, Pin::Auto);
        assert!(read.permits("list_issues"));
        assert!(!format!("{read:?}").contains("eu-west-1"));
    }

    #[test]
    fn an_override_that_cannot_be_meant_disables_its_server() {
        for (wrong, why) in [
            (json!({ "q*": { "name": "x" } }), "several tools"),
            (json!({ "q": { "name": "a b" } }), "letters"),
            (json!({ "q": { "nmae": "x" } }), "unknown key"),
            (json!({ "q": { "name": "x" }, "r": { "name": "x" } }), "another one was given"),
            (json!({ "q": { "hidden": { "a": 1 }, "defaults": { "a": 2 } } }), "nobody can give"),
            (json!({ "q": { "hidden": { "a": 1 }, "enums": { "a": [2] } } }), "nobody can give"),
            (json!({ "q": { "enums": { "a": [] } } }), "no value at all"),
            (json!({ "q": { "annotations": { "readOnly": true } } }), "unknown key"),
            (json!({ "q": { "pin": "often" } }), "`auto`"),
            (json!({ "q": { "hidden": { "a": "${" } } }), "not closed"),
            (json!([]), "expected an object"),
        ] {
            match server(&wrong).state {
                ServerState::Invalid { reason } => {
                    assert!(reason.contains(why), "{wrong}: {reason}");
                }
                other => panic!("{wrong}: {other:?}"),
            }
        }
        // A variable that is not set disables the server too, as anywhere else.
        let read = server(&json!({ "q": { "hidden": { "a": "${NOPE}" } } }));
        assert!(matches!(read.state, ServerState::Disabled { .. }));
    }
}
