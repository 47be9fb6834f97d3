//! Compiles a JSON Schema into the table of nodes: without recursion, references resolved.

use std::collections::{HashMap, VecDeque};

use serde_json::{Map, Value};

use super::Checker;
use super::node::{ArrayRules, Bounds, Combination, Node, NodeId, ObjectRules, Property, Types};
use super::validate::Number;

/// Schema parts that are read. Parts beyond it count as unknown.
const MAX_NODES: usize = 4_096;

/// How deep JSON may be nested that comes from the parser.
const MAX_NESTING: usize = 128;

/// Revisions of the standard as far as they change a verdict here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Draft {
    D4,
    D6,
    D7,
    D2019,
    D2020,
}

/// Keywords that can reject a value and are not judged here.
const NOT_JUDGED: &[&str] = &[
    "pattern",
    "format",
    "patternProperties",
    "propertyNames",
    "contains",
    "minContains",
    "maxContains",
    "uniqueItems",
    "multipleOf",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "unevaluatedProperties",
    "unevaluatedItems",
    "$dynamicRef",
    "$recursiveRef",
    "contentEncoding",
    "contentMediaType",
    "contentSchema",
    "extends",
    "disallow",
    "divisibleBy",
];

pub(super) fn compile(schema: &Value) -> Checker {
    let draft = draft_of(schema);
    let mut unknown = Node::anything();
    unknown.partial = true;
    let mut compiler = Compiler {
        root: schema,
        draft,
        local_references: !has_inner_id(schema),
        nodes: vec![unknown.clone(), unknown],
        seen: HashMap::new(),
        queue: VecDeque::new(),
    };
    compiler.seen.insert(address(schema), NodeId::ROOT);
    compiler.queue.push_back((NodeId::ROOT, schema));
    while let Some((id, part)) = compiler.queue.pop_front() {
        let node = compiler.read(part);
        compiler.nodes[id.0 as usize] = node;
    }
    Checker { nodes: compiler.nodes.into(), old_integers: draft == Draft::D4, flat: None }
}

struct Compiler<'a> {
    root: &'a Value,
    draft: Draft,
    local_references: bool,
    nodes: Vec<Node>,
    /// Each part of the schema is read once, however many references lead to it.
    seen: HashMap<usize, NodeId>,
    queue: VecDeque<(NodeId, &'a Value)>,
}

impl<'a> Compiler<'a> {
    /// The node for a part of the schema, to be read later.
    fn child(&mut self, part: &'a Value) -> NodeId {
        if !matches!(part, Value::Object(_) | Value::Bool(_)) {
            return NodeId::UNKNOWN;
        }
        if let Some(&id) = self.seen.get(&address(part)) {
            return id;
        }
        let Some(id) =
            u32::try_from(self.nodes.len()).ok().filter(|_| self.nodes.len() < MAX_NODES)
        else {
            return NodeId::UNKNOWN;
        };
        self.nodes.push(Node::anything());
        self.seen.insert(address(part), NodeId(id));
        self.queue.push_back((NodeId(id), part));
        NodeId(id)
    }

    fn children(&mut self, parts: &'a [Value]) -> Box<[NodeId]> {
        parts.iter().map(|part| self.child(part)).collect()
    }

    fn read(&mut self, part: &'a Value) -> Node {
        let mut node = Node::anything();
        let map = match part {
            Value::Bool(true) => return node,
            Value::Bool(false) => {
                node.types = Types::NONE;
                return node;
            }
            Value::Object(map) => map,
            _ => {
                node.partial = true;
                return node;
            }
        };
        let mut combinations = Vec::new();
        if let Some(reference) = map.get("$ref") {
            combinations.push(Combination::Reference(self.reference(reference)));
            if self.draft <= Draft::D7 {
                // Up to draft 7 nothing beside a reference counts.
                node.combinations = combinations.into();
                return node;
            }
        }
        node.partial = NOT_JUDGED.iter().any(|keyword| map.contains_key(*keyword))
            || (map.contains_key("$schema") && !std::ptr::eq(part, self.root));
        node.nullable = map.get("nullable") == Some(&Value::Bool(true));
        self.read_types(map, &mut node);
        self.read_constants(map, &mut node);
        self.read_bounds(map, &mut node);
        self.read_object(map, &mut node);
        self.read_array(map, &mut node);
        self.read_combinations(map, &mut node, &mut combinations);
        node.combinations = combinations.into();
        node
    }

    fn reference(&mut self, reference: &Value) -> NodeId {
        let pointer = reference.as_str().and_then(|text| text.strip_prefix('#'));
        let pointer = pointer.filter(|pointer| self.local_references && !pointer.contains('%'));
        match pointer.and_then(|pointer| self.root.pointer(pointer)) {
            Some(target) => self.child(target),
            None => NodeId::UNKNOWN,
        }
    }

    fn read_types(&self, map: &Map<String, Value>, node: &mut Node) {
        let Some(written) = map.get("type") else { return };
        let names = match written {
            Value::Array(names) => names.as_slice(),
            one => std::slice::from_ref(one),
        };
        let mut types = Types::NONE;
        for name in names {
            match name.as_str().and_then(Types::named) {
                Some(one) => types = types.with(one),
                None => {
                    node.partial = true;
                    return;
                }
            }
        }
        node.types = types;
    }

    fn read_constants(&self, map: &Map<String, Value>, node: &mut Node) {
        let listed = map.get("enum").map(|values| values.as_array().map(Vec::as_slice));
        let single = map.get("const").filter(|_| self.draft >= Draft::D6).map(std::slice::from_ref);
        match (listed, single) {
            (None, None) => {}
            (Some(Some(values)), None) | (None, Some(values)) => {
                node.constants = Some(values.into());
            }
            // Both at once, or an enumeration that is not a list: read neither rather than one of them.
            _ => node.partial = true,
        }
    }

    fn read_bounds(&self, map: &Map<String, Value>, node: &mut Node) {
        let mut bounds = Bounds {
            minimum: number(map, "minimum", node),
            maximum: number(map, "maximum", node),
            above: None,
            below: None,
            min_length: count(map, "minLength", 0, node),
            max_length: count(map, "maxLength", u64::MAX, node),
        };
        if self.draft == Draft::D4 {
            // In draft 4 these are flags that sharpen the plain bounds.
            for (keyword, plain, strict) in [
                ("exclusiveMinimum", &mut bounds.minimum, &mut bounds.above),
                ("exclusiveMaximum", &mut bounds.maximum, &mut bounds.below),
            ] {
                match map.get(keyword) {
                    None | Some(Value::Bool(false)) => {}
                    Some(Value::Bool(true)) => *strict = plain.take(),
                    Some(_) => node.partial = true,
                }
            }
        } else {
            bounds.above = number(map, "exclusiveMinimum", node);
            bounds.below = number(map, "exclusiveMaximum", node);
        }
        let free = bounds.minimum.is_none()
            && bounds.maximum.is_none()
            && bounds.above.is_none()
            && bounds.below.is_none()
            && bounds.min_length == 0
            && bounds.max_length == u64::MAX;
        if !free {
            node.bounds = Some(Box::new(bounds));
        }
    }

    fn read_object(&mut self, map: &'a Map<String, Value>, node: &mut Node) {
        let keywords =
            ["properties", "required", "additionalProperties", "minProperties", "maxProperties"];
        if !keywords.iter().any(|keyword| map.contains_key(*keyword)) {
            return;
        }
        let mut properties: Vec<Property> = Vec::new();
        match map.get("properties") {
            Some(Value::Object(named)) => {
                for (name, part) in named {
                    let schema = Some(self.child(part));
                    properties.push(Property {
                        name: name.as_str().into(),
                        schema,
                        required: false,
                    });
                }
            }
            Some(_) => node.partial = true,
            None => {}
        }
        properties.sort_by(|a, b| a.name.cmp(&b.name));
        let required: Vec<&str> = match map.get("required") {
            Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
            Some(_) => {
                node.partial = true;
                Vec::new()
            }
            None => Vec::new(),
        };
        let declared = properties.len();
        for name in required {
            match properties[..declared].binary_search_by(|property| (*property.name).cmp(name)) {
                Ok(at) => properties[at].required = true,
                Err(_) => {
                    properties.push(Property { name: name.into(), schema: None, required: true });
                }
            }
        }
        properties.sort_by(|a, b| a.name.cmp(&b.name));
        properties.dedup_by(|a, b| a.name == b.name);
        let additional = map.get("additionalProperties").filter(|part| **part != Value::Bool(true));
        node.object = Some(Box::new(ObjectRules {
            required: properties.iter().filter(|property| property.required).count(),
            properties: properties.into(),
            additional: additional.map(|part| self.child(part)),
            patterns: map.contains_key("patternProperties"),
            min: count(map, "minProperties", 0, node),
            max: count(map, "maxProperties", u64::MAX, node),
        }));
    }

    fn read_array(&mut self, map: &'a Map<String, Value>, node: &mut Node) {
        let modern = self.draft == Draft::D2020;
        let items = map.get("items");
        let (prefix, rest) = match (items, map.get("prefixItems")) {
            (Some(Value::Array(tuple)), None) => (tuple.as_slice(), map.get("additionalItems")),
            (items, Some(Value::Array(tuple))) if modern => (tuple.as_slice(), items),
            (items, Some(_)) if modern => {
                node.partial = true;
                (&[][..], items)
            }
            (items, _) => (&[][..], items),
        };
        let rest = rest.filter(|part| **part != Value::Bool(true));
        let min = count(map, "minItems", 0, node);
        let max = count(map, "maxItems", u64::MAX, node);
        if prefix.is_empty() && rest.is_none() && min == 0 && max == u64::MAX {
            return;
        }
        let prefix = self.children(prefix);
        let rest = rest.map(|part| self.child(part));
        node.array = Some(Box::new(ArrayRules { prefix, rest, min, max }));
    }

    fn read_combinations(
        &mut self,
        map: &'a Map<String, Value>,
        node: &mut Node,
        combinations: &mut Vec<Combination>,
    ) {
        type Make = fn(Box<[NodeId]>) -> Combination;
        let makers: [(&str, Make); 3] =
            [("allOf", Combination::All), ("anyOf", Combination::Any), ("oneOf", Combination::One)];
        for (keyword, make) in makers {
            match map.get(keyword) {
                Some(Value::Array(parts)) if !parts.is_empty() => {
                    combinations.push(make(self.children(parts)));
                }
                Some(_) => node.partial = true,
                None => {}
            }
        }
        if let Some(part) = map.get("not") {
            combinations.push(Combination::Not(self.child(part)));
        }
        if let Some(test) = map.get("if").filter(|_| self.draft >= Draft::D7) {
            let test = self.child(test);
            let then = map.get("then").map(|part| self.child(part));
            let otherwise = map.get("else").map(|part| self.child(part));
            if then.is_some() || otherwise.is_some() {
                combinations.push(Combination::If { test, then, otherwise });
            }
        }
    }
}

fn number(map: &Map<String, Value>, keyword: &str, node: &mut Node) -> Option<Number> {
    let value = map.get(keyword)?;
    let read = value.as_number().and_then(Number::of);
    node.partial |= read.is_none();
    read
}

fn count(map: &Map<String, Value>, keyword: &str, default: u64, node: &mut Node) -> u64 {
    let Some(value) = map.get(keyword) else { return default };
    let whole =
        value.as_f64().filter(|number| number.fract() == 0.0 && (0.0..9e15).contains(number));
    match value.as_u64().or(whole.map(|number| number as u64)) {
        Some(number) => number,
        None => {
            node.partial = true;
            default
        }
    }
}

fn draft_of(schema: &Value) -> Draft {
    let named = schema.get("$schema").and_then(Value::as_str).unwrap_or_default();
    let known = [
        ("draft-04", Draft::D4),
        ("draft-06", Draft::D6),
        ("draft-07", Draft::D7),
        ("2019-09", Draft::D2019),
    ];
    known.iter().find(|(mark, _)| named.contains(mark)).map_or(Draft::D2020, |(_, draft)| *draft)
}

/// An inner id moves the base that references start from; then none of them is followed. Nor are they in
/// a schema nested deeper than any that was parsed, which is not worth the stack it would take to look.
fn has_inner_id(schema: &Value) -> bool {
    fn inside(value: &Value, depth: usize) -> bool {
        let Some(depth) = depth.checked_sub(1) else { return true };
        match value {
            Value::Array(items) => items.iter().any(|item| inside(item, depth)),
            Value::Object(map) => {
                ["$id", "id"].iter().any(|key| map.get(*key).is_some_and(Value::is_string))
                    || map.values().any(|item| inside(item, depth))
            }
            _ => false,
        }
    }
    match schema {
        Value::Object(map) => map.values().any(|value| inside(value, MAX_NESTING)),
        _ => false,
    }
}

/// Parts of one borrowed schema are told apart by where they lie.
fn address(part: &Value) -> usize {
    std::ptr::from_ref(part) as usize
}
