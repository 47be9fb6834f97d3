//! Messages for violations: path, expected, found.

use serde_json::Value;

use super::node::{Combination, Node, NodeId, Types};
use super::validate::{Number, Validator, Validity};
use super::{Checker, MAX_VIOLATIONS, Violation};
use metamcp_types::nearest::nearest;
use metamcp_types::text;

/// Longest value or list of choices that is shown.
const MAX_SHOWN: usize = 60;

/// Choices that are listed.
const MAX_CHOICES: usize = 8;

/// How deep a description of an alternative looks.
const MAX_DESCRIBED: usize = 3;

/// The violations behind a verdict of no; at least one.
pub(super) fn explain(checker: &Checker, arguments: &Value) -> Vec<Violation> {
    let mut explanation =
        Explanation { checker, run: Validator::new(checker), violations: Vec::new() };
    explanation.tell(NodeId::ROOT, arguments, &Path::Root);
    if explanation.violations.is_empty() {
        explanation.add(
            &Path::Root,
            "arguments that fit the input schema".to_owned(),
            shown(arguments),
        );
    }
    explanation.violations
}

/// Where we are; written out only when something is wrong there.
enum Path<'a> {
    Root,
    Member(&'a Path<'a>, &'a str),
    Item(&'a Path<'a>, usize),
}

impl Path<'_> {
    fn write(&self, out: &mut String) {
        match self {
            Path::Root => {}
            Path::Member(parent, name) => {
                parent.write(out);
                if !out.is_empty() {
                    out.push('.');
                }
                out.push_str(&text::clean_line(name, MAX_SHOWN));
            }
            Path::Item(parent, index) => {
                parent.write(out);
                out.push_str(&format!("[{index}]"));
            }
        }
    }
}

struct Explanation<'c> {
    checker: &'c Checker,
    run: Validator<'c>,
    violations: Vec<Violation>,
}

impl<'c> Explanation<'c> {
    fn add(&mut self, path: &Path<'_>, expected: String, got: String) {
        if self.violations.len() >= MAX_VIOLATIONS {
            return;
        }
        let mut written = String::new();
        path.write(&mut written);
        let violation = Violation { path: written, expected, got };
        if !self.violations.contains(&violation) {
            self.violations.push(violation);
        }
    }

    fn is_done(&self) -> bool {
        self.violations.len() >= MAX_VIOLATIONS || self.run.is_spent()
    }

    fn refuses(&mut self, id: NodeId, value: &Value) -> bool {
        self.run.validate(id, value) == Validity::No
    }

    fn tell(&mut self, id: NodeId, value: &Value, path: &Path<'_>) {
        if self.is_done() || !self.refuses(id, value) {
            return;
        }
        let node = self.checker.node(id);
        if self.run.type_fits(node, value) == Validity::No {
            return self.add(path, self.describe(id, 0), shown(value));
        }
        if let Some(constants) = &node.constants
            && self.run.is_constant(constants, value) == Validity::No
        {
            self.add(path, choices(constants), shown(value));
        }
        if let Some(bounds) = &node.bounds
            && self.run.within(bounds, value) == Validity::No
        {
            let got = match value {
                Value::String(text) => counted(text.chars().count() as u64, "character"),
                other => shown(other),
            };
            self.add(path, self.describe(id, 0), got);
        }
        match value {
            Value::Object(map) => self.tell_object(node, map, path),
            Value::Array(items) => self.tell_array(node, items, path),
            _ => {}
        }
        for combination in &node.combinations {
            if self.run.combination(combination, value) == Validity::No {
                self.tell_combination(combination, value, path);
            }
        }
    }

    fn tell_object(
        &mut self,
        node: &'c Node,
        map: &serde_json::Map<String, Value>,
        path: &Path<'_>,
    ) {
        let Some(rules) = &node.object else { return };
        for property in rules.properties.iter().filter(|property| property.required) {
            if !map.contains_key(&*property.name) {
                let wanted =
                    property.schema.map_or_else(|| "a value".to_owned(), |id| self.describe(id, 0));
                // One that is there and unknown, and nearly of that name, is most likely meant.
                let strangers = map.keys().filter(|name| rules.property(name).is_none());
                let close = nearest(&property.name, strangers.map(String::as_str), 1);
                let got = close.first().map_or_else(
                    || "nothing".to_owned(),
                    |close| format!("nothing, but `{}`", text::clean_line(close, 60)),
                );
                let here = Path::Member(path, &property.name);
                self.add(&here, format!("{wanted} (required)"), got);
            }
        }
        for (name, member) in map {
            if self.is_done() {
                return;
            }
            let here = Path::Member(path, name);
            match rules.property(name).and_then(|property| property.schema) {
                Some(schema) => self.tell(schema, member, &here),
                None if self.run.additional(rules, member) == Validity::No => {
                    let Some(schema) = rules.additional else { continue };
                    if self.checker.node(schema).types.0 != 0 {
                        self.tell(schema, member, &here);
                        continue;
                    }
                    let names = || rules.properties.iter().map(|property| &*property.name);
                    let close = nearest(name, names(), 1);
                    let (hint, got) = match close.first() {
                        Some(close) => {
                            (format!("`{close}`"), "a parameter the tool does not have".to_owned())
                        }
                        None if rules.properties.is_empty() => {
                            ("no parameters".to_owned(), shown(member))
                        }
                        None => {
                            let known: Vec<&str> = names().take(MAX_CHOICES).collect();
                            let known = text::clean_line(&known.join(", "), 120).into_owned();
                            (
                                format!("one of {known}"),
                                "a parameter the tool does not have".to_owned(),
                            )
                        }
                    };
                    self.add(&here, hint, got);
                }
                None => {}
            }
        }
        let size = map.len() as u64;
        if size < rules.min {
            self.add(path, format!("at least {}", counted(rules.min, "member")), size.to_string());
        } else if size > rules.max {
            self.add(path, format!("at most {}", counted(rules.max, "member")), size.to_string());
        }
    }

    fn tell_array(&mut self, node: &'c Node, items: &[Value], path: &Path<'_>) {
        let Some(rules) = &node.array else { return };
        let size = items.len() as u64;
        if size < rules.min {
            self.add(path, format!("at least {}", counted(rules.min, "item")), size.to_string());
        } else if size > rules.max {
            self.add(path, format!("at most {}", counted(rules.max, "item")), size.to_string());
        }
        for (index, item) in items.iter().enumerate() {
            let Some(schema) = rules.prefix.get(index).copied().or(rules.rest) else { return };
            if self.is_done() {
                return;
            }
            self.tell(schema, item, &Path::Item(path, index));
        }
    }

    fn tell_combination(&mut self, combination: &'c Combination, value: &Value, path: &Path<'_>) {
        match combination {
            Combination::Reference(id) => self.tell(*id, value, path),
            Combination::All(ids) => ids.iter().for_each(|id| self.tell(*id, value, path)),
            Combination::Not(_) => {
                self.add(path, "a value the schema does not rule out".to_owned(), shown(value));
            }
            Combination::Any(ids) | Combination::One(ids) => {
                self.tell_alternatives(ids, value, path);
            }
            Combination::If { test, then, otherwise } => {
                let branch = if self.refuses(*test, value) { otherwise } else { then };
                if let Some(id) = branch.or(*then) {
                    self.tell(id, value, path);
                }
            }
        }
    }

    /// Where only one alternative is of the value's type, that is the one that was meant.
    fn tell_alternatives(&mut self, ids: &[NodeId], value: &Value, path: &Path<'_>) {
        let fitting = ids
            .iter()
            .filter(|id| !self.run.is_spent() && self.run.validate(**id, value) == Validity::Yes);
        let fitting = fitting.count();
        if fitting > 1 {
            let expected = format!("a value that fits exactly one of {} alternatives", ids.len());
            return self.add(path, expected, format!("{} that fits {fitting}", shown(value)));
        }
        let checker = self.checker;
        let mut meant = ids.iter().filter(|id| {
            self.run.type_fits(checker.node(checker.resolved(**id)), value) != Validity::No
        });
        if let (Some(only), None) = (meant.next(), meant.next()) {
            return self.tell(*only, value, path);
        }
        let mut wanted: Vec<String> = Vec::new();
        for id in ids.iter().take(MAX_CHOICES) {
            let one = self.describe(*id, 1);
            if !wanted.contains(&one) {
                wanted.push(one);
            }
        }
        self.add(path, wanted.join(" or "), shown(value));
    }

    /// What a node wants, as a phrase.
    fn describe(&self, id: NodeId, depth: usize) -> String {
        let node = self.checker.node(self.checker.resolved(id));
        if let Some(constants) = &node.constants {
            return choices(constants);
        }
        if node.types == Types::ALL {
            let alternatives = node.combinations.iter().find_map(|combination| match combination {
                Combination::Any(ids) | Combination::One(ids) => Some(ids),
                _ => None,
            });
            return match alternatives {
                Some(ids) if depth < MAX_DESCRIBED => {
                    let mut all: Vec<String> = Vec::new();
                    for id in ids.iter().take(MAX_CHOICES) {
                        let one = self.describe(*id, depth + 1);
                        if !all.contains(&one) {
                            all.push(one);
                        }
                    }
                    all.join(" or ")
                }
                _ => limits(node).unwrap_or_else(|| "a value".to_owned()),
            };
        }
        let mut phrase = types(node.types);
        if let Some(limits) = limits(node) {
            phrase.push(' ');
            phrase.push_str(&limits);
        }
        phrase
    }
}

impl Checker {
    /// Past references that stand alone, as far as a short chain of them goes.
    fn resolved(&self, id: NodeId) -> NodeId {
        let mut id = id;
        for _ in 0..8 {
            match (&*self.node(id).combinations, self.node(id).types) {
                ([Combination::Reference(target)], Types::ALL) => id = *target,
                _ => break,
            }
        }
        id
    }
}

fn types(set: Types) -> String {
    let names = [
        (Types::STRING, "string"),
        (Types::NUMBER, "number"),
        (Types::INTEGER, "integer"),
        (Types::BOOLEAN, "boolean"),
        (Types::ARRAY, "array"),
        (Types::OBJECT, "object"),
        (Types::NULL, "null"),
    ];
    let held: Vec<&str> =
        names.iter().filter(|(one, _)| set.has(*one)).map(|(_, name)| *name).collect();
    if held.is_empty() { "nothing".to_owned() } else { held.join(" or ") }
}

fn limits(node: &Node) -> Option<String> {
    let bounds = node.bounds.as_ref()?;
    let mut parts = Vec::new();
    let signs =
        [(">=", bounds.minimum), (">", bounds.above), ("<=", bounds.maximum), ("<", bounds.below)];
    for (sign, bound) in signs {
        match bound {
            Some(Number::Whole(number)) => parts.push(format!("{sign} {number}")),
            Some(Number::Real(number)) => parts.push(format!("{sign} {number}")),
            None => {}
        }
    }
    if node.types.has(Types::STRING) {
        match (bounds.min_length, bounds.max_length) {
            (0, u64::MAX) => {}
            (min, u64::MAX) => parts.push(format!("of at least {}", counted(min, "character"))),
            (0, max) => parts.push(format!("of at most {}", counted(max, "character"))),
            (min, max) => parts.push(format!("of {min} to {}", counted(max, "character"))),
        }
    }
    (!parts.is_empty()).then(|| parts.join(" and "))
}

fn counted(number: u64, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

fn choices(constants: &[Value]) -> String {
    let mut shown_ones: Vec<String> = constants.iter().take(MAX_CHOICES).map(shown).collect();
    if constants.len() > MAX_CHOICES {
        shown_ones.push(format!("{} more", constants.len() - MAX_CHOICES));
    }
    match shown_ones.as_slice() {
        [] => "nothing at all".to_owned(),
        [only] => only.clone(),
        many => format!("one of {}", many.join(", ")),
    }
}

/// A value as JSON, or its kind where that would be long.
fn shown(value: &Value) -> String {
    match value {
        Value::Object(map) if map.is_empty() => "{}".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::Array(items) if items.is_empty() => "[]".to_owned(),
        Value::Array(items) => format!("an array of {}", items.len()),
        Value::String(words) => {
            Value::from(text::clean_line(words, MAX_SHOWN).as_ref()).to_string()
        }
        scalar => scalar.to_string(),
    }
}
