//! Validates a value against a node in a bounded number of steps: valid, invalid, or unknown.

use std::cmp::Ordering;

use serde_json::Value;

use super::node::{ArrayRules, Bounds, Combination, Node, NodeId, ObjectRules, Types};
use super::{Checker, MAX_STEPS};

/// Nodes within nodes that are followed. Values are at most 128 deep; references add to that.
const MAX_DEPTH: u32 = 320;

/// Bytes of a string whose characters are counted in one step.
const BYTES_PER_STEP: usize = 256;

/// Three-valued, because what is not judged must not turn into a wrong "no" beneath a `not`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Validity {
    Yes,
    Unknown,
    No,
}

impl Validity {
    fn of(holds: bool) -> Self {
        if holds { Validity::Yes } else { Validity::No }
    }

    fn and(self, other: Validity) -> Validity {
        match (self, other) {
            (Validity::No, _) | (_, Validity::No) => Validity::No,
            (Validity::Yes, Validity::Yes) => Validity::Yes,
            _ => Validity::Unknown,
        }
    }

    fn negated(self) -> Validity {
        match self {
            Validity::Yes => Validity::No,
            Validity::Unknown => Validity::Unknown,
            Validity::No => Validity::Yes,
        }
    }
}

/// A number that keeps whole numbers exact.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Number {
    Whole(i128),
    Real(f64),
}

impl Number {
    pub(super) fn of(number: &serde_json::Number) -> Option<Number> {
        if let Some(whole) = number.as_i64() {
            return Some(Number::Whole(i128::from(whole)));
        }
        if let Some(whole) = number.as_u64() {
            return Some(Number::Whole(i128::from(whole)));
        }
        let real = number.as_f64()?;
        // Small whole reals are exact as integers: 1.0 is 1.
        if real.fract() == 0.0 && real.abs() < 9e15 {
            return Some(Number::Whole(real as i128));
        }
        Some(Number::Real(real))
    }

    /// `None` where a large integer and a real are too close to tell.
    pub(super) fn compare(self, other: Number) -> Option<Ordering> {
        match (self, other) {
            (Number::Whole(a), Number::Whole(b)) => Some(a.cmp(&b)),
            (Number::Real(a), Number::Real(b)) => a.partial_cmp(&b),
            (Number::Whole(a), Number::Real(b)) => mixed(a, b),
            (Number::Real(a), Number::Whole(b)) => mixed(b, a).map(Ordering::reverse),
        }
    }
}

fn mixed(whole: i128, real: f64) -> Option<Ordering> {
    (whole as f64).partial_cmp(&real).filter(|order| *order != Ordering::Equal)
}

/// One check under way.
pub(super) struct Validator<'c> {
    checker: &'c Checker,
    steps: u32,
    depth: u32,
}

impl<'c> Validator<'c> {
    pub(super) fn new(checker: &'c Checker) -> Self {
        Self { checker, steps: 0, depth: 0 }
    }

    /// Out of steps: every verdict from here on is unknown.
    pub(super) fn is_spent(&self) -> bool {
        self.steps >= MAX_STEPS
    }

    fn spend(&mut self, steps: usize) {
        self.steps = self.steps.saturating_add(u32::try_from(steps).unwrap_or(u32::MAX));
    }

    /// What the node says about the value.
    pub(super) fn validate(&mut self, id: NodeId, value: &Value) -> Validity {
        self.spend(1);
        if self.is_spent() {
            return Validity::Unknown;
        }
        if self.depth >= MAX_DEPTH {
            // A loop of references, or a value nested beyond what is judged: the whole check is off.
            self.steps = MAX_STEPS;
            return Validity::Unknown;
        }
        self.depth += 1;
        let validity = self.validate_node(self.checker.node(id), value);
        self.depth -= 1;
        if self.is_spent() { Validity::Unknown } else { validity }
    }

    fn validate_node(&mut self, node: &'c Node, value: &Value) -> Validity {
        let mut validity = if node.partial { Validity::Unknown } else { Validity::Yes };
        validity = validity.and(self.type_fits(node, value));
        if validity == Validity::No {
            return Validity::No;
        }
        if let Some(constants) = &node.constants {
            validity = validity.and(self.is_constant(constants, value));
        }
        if let Some(bounds) = &node.bounds {
            validity = validity.and(self.within(bounds, value));
        }
        match value {
            Value::Object(map) => {
                if let Some(rules) = &node.object {
                    validity = validity.and(self.object(rules, map));
                }
            }
            Value::Array(items) => {
                if let Some(rules) = &node.array {
                    validity = validity.and(self.array(rules, items));
                }
            }
            _ => {}
        }
        for combination in &node.combinations {
            if validity == Validity::No {
                return Validity::No;
            }
            validity = validity.and(self.combination(combination, value));
        }
        validity
    }

    pub(super) fn type_fits(&self, node: &Node, value: &Value) -> Validity {
        let types = node.types;
        if types == Types::ALL {
            return Validity::Yes;
        }
        match value {
            Value::Null if node.nullable && !types.has(Types::NULL) => Validity::Unknown,
            Value::Null => Validity::of(types.has(Types::NULL)),
            Value::Bool(_) => Validity::of(types.has(Types::BOOLEAN)),
            Value::String(_) => Validity::of(types.has(Types::STRING)),
            Value::Array(_) => Validity::of(types.has(Types::ARRAY)),
            Value::Object(_) => Validity::of(types.has(Types::OBJECT)),
            Value::Number(_) if types.has(Types::NUMBER) => Validity::Yes,
            Value::Number(_) if !types.has(Types::INTEGER) => Validity::No,
            Value::Number(number) if number.is_i64() || number.is_u64() => Validity::Yes,
            Value::Number(number) => match number.as_f64() {
                Some(real) if real.fract() != 0.0 => Validity::No,
                // Draft 4 told 1.0 from 1; later ones do not.
                _ if self.checker.old_integers => Validity::Unknown,
                _ => Validity::Yes,
            },
        }
    }

    pub(super) fn is_constant(&mut self, constants: &[Value], value: &Value) -> Validity {
        let mut unsure = false;
        for constant in constants {
            match self.equal(constant, value) {
                Validity::Yes => return Validity::Yes,
                Validity::Unknown => unsure = true,
                Validity::No => {}
            }
        }
        if unsure { Validity::Unknown } else { Validity::No }
    }

    fn equal(&mut self, a: &Value, b: &Value) -> Validity {
        self.spend(1);
        if self.is_spent() {
            return Validity::Unknown;
        }
        match (a, b) {
            (Value::Number(a), Value::Number(b)) => match (Number::of(a), Number::of(b)) {
                (Some(a), Some(b)) => {
                    a.compare(b).map_or(Validity::Unknown, |order| Validity::of(order.is_eq()))
                }
                _ => Validity::Unknown,
            },
            (Value::Array(a), Value::Array(b)) if a.len() == b.len() => a
                .iter()
                .zip(b)
                .fold(Validity::Yes, |validity, (a, b)| validity.and(self.equal(a, b))),
            (Value::Object(a), Value::Object(b)) if a.len() == b.len() => {
                a.iter().fold(Validity::Yes, |validity, (key, a)| match b.get(key) {
                    Some(b) => validity.and(self.equal(a, b)),
                    None => Validity::No,
                })
            }
            (Value::Array(_), Value::Array(_)) | (Value::Object(_), Value::Object(_)) => {
                Validity::No
            }
            (a, b) => Validity::of(a == b),
        }
    }

    pub(super) fn within(&mut self, bounds: &Bounds, value: &Value) -> Validity {
        match value {
            Value::Number(number) => {
                let Some(number) = Number::of(number) else { return Validity::Unknown };
                let holds = |bound: Option<Number>, fits: fn(Ordering) -> bool| match bound {
                    None => Validity::Yes,
                    Some(bound) => number
                        .compare(bound)
                        .map_or(Validity::Unknown, |order| Validity::of(fits(order))),
                };
                holds(bounds.minimum, Ordering::is_ge)
                    .and(holds(bounds.maximum, Ordering::is_le))
                    .and(holds(bounds.above, Ordering::is_gt))
                    .and(holds(bounds.below, Ordering::is_lt))
            }
            Value::String(text) => {
                if bounds.min_length == 0 && bounds.max_length == u64::MAX {
                    return Validity::Yes;
                }
                self.spend(text.len() / BYTES_PER_STEP);
                let length = text.chars().count() as u64;
                Validity::of((bounds.min_length..=bounds.max_length).contains(&length))
            }
            _ => Validity::Yes,
        }
    }

    fn object(&mut self, rules: &ObjectRules, map: &serde_json::Map<String, Value>) -> Validity {
        let size = map.len() as u64;
        if size < rules.min || size > rules.max {
            return Validity::No;
        }
        let mut validity = Validity::Yes;
        let mut missing = rules.required;
        for (name, member) in map {
            self.spend(1);
            let property = rules.property(name);
            missing -= usize::from(property.is_some_and(|property| property.required));
            let one = match property.and_then(|property| property.schema) {
                Some(schema) => self.validate(schema, member),
                None => self.additional(rules, member),
            };
            validity = validity.and(one);
            if validity == Validity::No || self.is_spent() {
                return validity;
            }
        }
        if missing > 0 { Validity::No } else { validity }
    }

    pub(super) fn additional(&mut self, rules: &ObjectRules, member: &Value) -> Validity {
        match rules.additional {
            None => Validity::Yes,
            Some(_) if rules.patterns => Validity::Unknown,
            Some(schema) => self.validate(schema, member),
        }
    }

    fn array(&mut self, rules: &ArrayRules, items: &[Value]) -> Validity {
        let size = items.len() as u64;
        if size < rules.min || size > rules.max {
            return Validity::No;
        }
        let mut validity = Validity::Yes;
        for (index, item) in items.iter().enumerate() {
            let Some(schema) = rules.prefix.get(index).copied().or(rules.rest) else { break };
            validity = validity.and(self.validate(schema, item));
            if validity == Validity::No || self.is_spent() {
                break;
            }
        }
        validity
    }

    pub(super) fn combination(&mut self, combination: &Combination, value: &Value) -> Validity {
        match combination {
            Combination::Reference(id) => self.validate(*id, value),
            Combination::Not(id) => self.validate(*id, value).negated(),
            Combination::All(ids) => {
                let mut validity = Validity::Yes;
                for id in ids {
                    validity = validity.and(self.validate(*id, value));
                    if validity == Validity::No {
                        break;
                    }
                }
                validity
            }
            Combination::Any(ids) => {
                let mut validity = Validity::No;
                for id in ids {
                    match self.validate(*id, value) {
                        Validity::Yes => return Validity::Yes,
                        Validity::Unknown => validity = Validity::Unknown,
                        Validity::No => {}
                    }
                }
                validity
            }
            Combination::One(ids) => {
                let (mut sure, mut unsure) = (0, 0);
                for id in ids {
                    match self.validate(*id, value) {
                        Validity::Yes => sure += 1,
                        Validity::Unknown => unsure += 1,
                        Validity::No => {}
                    }
                }
                match (sure, unsure) {
                    (1, 0) => Validity::Yes,
                    (0, 0) | (2.., _) => Validity::No,
                    _ => Validity::Unknown,
                }
            }
            Combination::If { test, then, otherwise } => {
                let mut follow = |branch: &Option<NodeId>| {
                    branch.map_or(Validity::Yes, |id| self.validate(id, value))
                };
                match follow(&Some(*test)) {
                    Validity::Yes => follow(then),
                    Validity::No => follow(otherwise),
                    Validity::Unknown => {
                        let (yes, no) = (follow(then), follow(otherwise));
                        if yes == no { yes } else { Validity::Unknown }
                    }
                }
            }
        }
    }
}
