//! A parameter that the tool does not have and that is nearly one that is missing. JSON Schema lets it pass where a tool
//! does not forbid more parameters, and the tool then ignores it: the caller gets an answer to another question.

use serde_json::Value;

use super::node::NodeId;
use super::{Checker, Violation};
use metamcp_types::nearest::is_slip;
use metamcp_types::text;

/// Shorter names differ in one letter too easily.
const MIN_CHARS: usize = 3;
/// Longest name that is compared and shown.
const MAX_NAME: usize = 60;

impl Checker {
    /// The first parameter that is most likely another one, mistyped. Only where the schema names its parameters and says
    /// nothing about others.
    pub fn mistyped(&self, arguments: &Value) -> Option<Violation> {
        let root = self.node(NodeId::ROOT);
        let rules = root.object.as_ref()?;
        let is_open = rules.additional.is_none() && !rules.patterns;
        if !is_open || root.partial || !root.combinations.is_empty() {
            return None;
        }
        let given = arguments.as_object()?;
        for name in given.keys().filter(|name| rules.property(name).is_none()) {
            let missing = rules.properties.iter().filter(|one| !given.contains_key(&*one.name));
            let mut meant =
                missing.filter(|one| is_slip(name, &one.name) || is_one_off(name, &one.name));
            if let (Some(meant), None) = (meant.next(), meant.next()) {
                return Some(Violation {
                    path: text::clean_line(name, MAX_NAME).into_owned(),
                    expected: format!("`{}`", text::clean_line(&meant.name, MAX_NAME)),
                    got: "a parameter the tool does not have".to_owned(),
                });
            }
        }
        None
    }
}

/// Whether two names differ in one letter: changed, added or left out.
fn is_one_off(name: &str, meant: &str) -> bool {
    let (name, meant): (Vec<char>, Vec<char>) = (name.chars().collect(), meant.chars().collect());
    let (short, long) = if name.len() < meant.len() { (name, meant) } else { (meant, name) };
    if short.len() < MIN_CHARS || long.len() > MAX_NAME || long.len() - short.len() > 1 {
        return false;
    }
    let same = short.iter().zip(&long).take_while(|(a, b)| a == b).count();
    let rest = usize::from(short.len() == long.len());
    short.get(same + rest..) == long.get(same + 1..)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn mistyped(schema: &Value, arguments: &Value) -> Option<String> {
        Checker::new(schema).mistyped(arguments).map(|violation| violation.to_string())
    }

    #[test]
    fn a_slip_is_told_and_what_is_no_slip_passes() {
        let schema = json!({"type": "object", "properties": {"path": {}, "max_count": {}, "limit": {}, "id": {}}});
        for (name, meant) in
            [("pth", "path"), ("maxCount", "max_count"), ("limt", "limit"), ("limits", "limit")]
        {
            let told =
                format!("{name}: expected `{meant}`, got a parameter the tool does not have");
            assert_eq!(mistyped(&schema, &json!({ name: 1 })), Some(told));
            // The right one is there as well: then it is something of its own.
            assert_eq!(mistyped(&schema, &json!({ name: 1, meant: 1 })), None);
        }
        for other in ["ip", "title", "patterns", "p", "counted", "format"] {
            assert_eq!(mistyped(&schema, &json!({ other: 1 })), None, "{other}");
        }
    }

    #[test]
    fn a_schema_that_says_something_about_others_decides_itself() {
        let properties = json!({"path": {"type": "string"}});
        for more in [
            json!({"additionalProperties": {"type": "string"}}),
            json!({"additionalProperties": false}),
            json!({"patternProperties": {"^p": {}}}),
            json!({"anyOf": [{"required": ["pth"]}, {"required": ["path"]}]}),
        ] {
            let mut schema = json!({"type": "object", "properties": properties});
            schema.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            assert_eq!(mistyped(&schema, &json!({"pth": "x"})), None, "{schema}");
        }
        assert_eq!(mistyped(&json!(true), &json!({"pth": 1})), None);
        assert_eq!(mistyped(&json!({"type": "object"}), &json!({"pth": 1})), None);
    }
}
