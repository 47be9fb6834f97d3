//! Yes, no, or not sure: the verdict of a node on a value, in a bounded number of steps.

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
pub(super) enum Verdict {
    Yes,
    Unknown,
    No,
}

impl Verdict {
    fn of(holds: bool) -> Self {
        if holds { Verdict::Yes } else { Verdict::No }
    }

    fn and(self, other: Verdict) -> Verdict {
        match (self, other) {
            (Verdict::No, _) | (_, Verdict::No) => Verdict::No,
            (Verdict::Yes, Verdict::Yes) => Verdict::Yes,
            _ => Verdict::Unknown,
        }
    }

    fn negated(self) -> Verdict {
        match self {
            Verdict::Yes => Verdict::No,
            Verdict::Unknown => Verdict::Unknown,
            Verdict::No => Verdict::Yes,
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
pub(super) struct Run<'c> {
    checker: &'c Checker,
    steps: u32,
    depth: u32,
}

impl<'c> Run<'c> {
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
    pub(super) fn verdict(&mut self, id: NodeId, value: &Value) -> Verdict {
        self.spend(1);
        if self.is_spent() {
            return Verdict::Unknown;
        }
        if self.depth >= MAX_DEPTH {
            // A loop of references, or a value nested beyond what is judged: the whole check is off.
            self.steps = MAX_STEPS;
            return Verdict::Unknown;
        }
        self.depth += 1;
        let verdict = self.judge(self.checker.node(id), value);
        self.depth -= 1;
        if self.is_spent() { Verdict::Unknown } else { verdict }
    }

    fn judge(&mut self, node: &'c Node, value: &Value) -> Verdict {
        let mut verdict = if node.partial { Verdict::Unknown } else { Verdict::Yes };
        verdict = verdict.and(self.type_fits(node, value));
        if verdict == Verdict::No {
            return Verdict::No;
        }
        if let Some(constants) = &node.constants {
            verdict = verdict.and(self.is_constant(constants, value));
        }
        if let Some(bounds) = &node.bounds {
            verdict = verdict.and(self.within(bounds, value));
        }
        match value {
            Value::Object(map) => {
                if let Some(rules) = &node.object {
                    verdict = verdict.and(self.object(rules, map));
                }
            }
            Value::Array(items) => {
                if let Some(rules) = &node.array {
                    verdict = verdict.and(self.array(rules, items));
                }
            }
            _ => {}
        }
        for combination in &node.combinations {
            if verdict == Verdict::No {
                return Verdict::No;
            }
            verdict = verdict.and(self.combination(combination, value));
        }
        verdict
    }

    pub(super) fn type_fits(&self, node: &Node, value: &Value) -> Verdict {
        let types = node.types;
        if types == Types::ALL {
            return Verdict::Yes;
        }
        match value {
            Value::Null if node.nullable && !types.has(Types::NULL) => Verdict::Unknown,
            Value::Null => Verdict::of(types.has(Types::NULL)),
            Value::Bool(_) => Verdict::of(types.has(Types::BOOLEAN)),
            Value::String(_) => Verdict::of(types.has(Types::STRING)),
            Value::Array(_) => Verdict::of(types.has(Types::ARRAY)),
            Value::Object(_) => Verdict::of(types.has(Types::OBJECT)),
            Value::Number(_) if types.has(Types::NUMBER) => Verdict::Yes,
            Value::Number(_) if !types.has(Types::INTEGER) => Verdict::No,
            Value::Number(number) if number.is_i64() || number.is_u64() => Verdict::Yes,
            Value::Number(number) => match number.as_f64() {
                Some(real) if real.fract() != 0.0 => Verdict::No,
                // Draft 4 told 1.0 from 1; later ones do not.
                _ if self.checker.old_integers => Verdict::Unknown,
                _ => Verdict::Yes,
            },
        }
    }

    pub(super) fn is_constant(&mut self, constants: &[Value], value: &Value) -> Verdict {
        let mut unsure = false;
        for constant in constants {
            match self.equal(constant, value) {
                Verdict::Yes => return Verdict::Yes,
                Verdict::Unknown => unsure = true,
                Verdict::No => {}
            }
        }
        if unsure { Verdict::Unknown } else { Verdict::No }
    }

    fn equal(&mut self, a: &Value, b: &Value) -> Verdict {
        self.spend(1);
        if self.is_spent() {
            return Verdict::Unknown;
        }
        match (a, b) {
            (Value::Number(a), Value::Number(b)) => match (Number::of(a), Number::of(b)) {
                (Some(a), Some(b)) => {
                    a.compare(b).map_or(Verdict::Unknown, |order| Verdict::of(order.is_eq()))
                }
                _ => Verdict::Unknown,
            },
            (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
                a.iter().zip(b).fold(Verdict::Yes, |verdict, (a, b)| verdict.and(self.equal(a, b)))
            }
            (Value::Object(a), Value::Object(b)) if a.len() == b.len() => {
                a.iter().fold(Verdict::Yes, |verdict, (key, a)| match b.get(key) {
                    Some(b) => verdict.and(self.equal(a, b)),
                    None => Verdict::No,
                })
            }
            (Value::Array(_), Value::Array(_)) | (Value::Object(_), Value::Object(_)) => {
                Verdict::No
            }
            (a, b) => Verdict::of(a == b),
        }
    }

    pub(super) fn within(&mut self, bounds: &Bounds, value: &Value) -> Verdict {
        match value {
            Value::Number(number) => {
                let Some(number) = Number::of(number) else { return Verdict::Unknown };
                let holds = |bound: Option<Number>, fits: fn(Ordering) -> bool| match bound {
                    None => Verdict::Yes,
                    Some(bound) => number
                        .compare(bound)
                        .map_or(Verdict::Unknown, |order| Verdict::of(fits(order))),
                };
                holds(bounds.minimum, Ordering::is_ge)
                    .and(holds(bounds.maximum, Ordering::is_le))
                    .and(holds(bounds.above, Ordering::is_gt))
                    .and(holds(bounds.below, Ordering::is_lt))
            }
            Value::String(text) => {
                if bounds.min_length == 0 && bounds.max_length == u64::MAX {
                    return Verdict::Yes;
                }
                self.spend(text.len() / BYTES_PER_STEP);
                let length = text.chars().count() as u64;
                Verdict::of((bounds.min_length..=bounds.max_length).contains(&length))
            }
            _ => Verdict::Yes,
        }
    }

    fn object(&mut self, rules: &ObjectRules, map: &serde_json::Map<String, Value>) -> Verdict {
        let size = map.len() as u64;
        if size < rules.min || size > rules.max {
            return Verdict::No;
        }
        let mut verdict = Verdict::Yes;
        let mut missing = rules.required;
        for (name, member) in map {
            self.spend(1);
            let property = rules.property(name);
            missing -= usize::from(property.is_some_and(|property| property.required));
            let one = match property.and_then(|property| property.schema) {
                Some(schema) => self.verdict(schema, member),
                None => self.additional(rules, member),
            };
            verdict = verdict.and(one);
            if verdict == Verdict::No || self.is_spent() {
                return verdict;
            }
        }
        if missing > 0 { Verdict::No } else { verdict }
    }

    pub(super) fn additional(&mut self, rules: &ObjectRules, member: &Value) -> Verdict {
        match rules.additional {
            None => Verdict::Yes,
            Some(_) if rules.patterns => Verdict::Unknown,
            Some(schema) => self.verdict(schema, member),
        }
    }

    fn array(&mut self, rules: &ArrayRules, items: &[Value]) -> Verdict {
        let size = items.len() as u64;
        if size < rules.min || size > rules.max {
            return Verdict::No;
        }
        let mut verdict = Verdict::Yes;
        for (index, item) in items.iter().enumerate() {
            let Some(schema) = rules.prefix.get(index).copied().or(rules.rest) else { break };
            verdict = verdict.and(self.verdict(schema, item));
            if verdict == Verdict::No || self.is_spent() {
                break;
            }
        }
        verdict
    }

    pub(super) fn combination(&mut self, combination: &Combination, value: &Value) -> Verdict {
        match combination {
            Combination::Reference(id) => self.verdict(*id, value),
            Combination::Not(id) => self.verdict(*id, value).negated(),
            Combination::All(ids) => {
                let mut verdict = Verdict::Yes;
                for id in ids {
                    verdict = verdict.and(self.verdict(*id, value));
                    if verdict == Verdict::No {
                        break;
                    }
                }
                verdict
            }
            Combination::Any(ids) => {
                let mut verdict = Verdict::No;
                for id in ids {
                    match self.verdict(*id, value) {
                        Verdict::Yes => return Verdict::Yes,
                        Verdict::Unknown => verdict = Verdict::Unknown,
                        Verdict::No => {}
                    }
                }
                verdict
            }
            Combination::One(ids) => {
                let (mut sure, mut unsure) = (0, 0);
                for id in ids {
                    match self.verdict(*id, value) {
                        Verdict::Yes => sure += 1,
                        Verdict::Unknown => unsure += 1,
                        Verdict::No => {}
                    }
                }
                match (sure, unsure) {
                    (1, 0) => Verdict::Yes,
                    (0, 0) | (2.., _) => Verdict::No,
                    _ => Verdict::Unknown,
                }
            }
            Combination::If { test, then, otherwise } => {
                let mut follow = |branch: &Option<NodeId>| {
                    branch.map_or(Verdict::Yes, |id| self.verdict(id, value))
                };
                match follow(&Some(*test)) {
                    Verdict::Yes => follow(then),
                    Verdict::No => follow(otherwise),
                    Verdict::Unknown => {
                        let (yes, no) = (follow(then), follow(otherwise));
                        if yes == no { yes } else { Verdict::Unknown }
                    }
                }
            }
        }
    }
}
