//! A compiled schema as a flat table of nodes, small enough to cache for every tool that was ever called.

use serde_json::Value;

use super::validate::Number;

/// The index of a node in its checker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NodeId(pub(super) u32);

impl NodeId {
    pub(super) const ROOT: NodeId = NodeId(0);
    /// Accepts everything without knowing: for what was not read.
    pub(super) const UNKNOWN: NodeId = NodeId(1);
}

/// A set of JSON types, one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Types(pub(super) u8);

impl Types {
    pub(super) const NULL: Types = Types(1);
    pub(super) const BOOLEAN: Types = Types(2);
    pub(super) const INTEGER: Types = Types(4);
    pub(super) const NUMBER: Types = Types(8);
    pub(super) const STRING: Types = Types(16);
    pub(super) const ARRAY: Types = Types(32);
    pub(super) const OBJECT: Types = Types(64);
    pub(super) const ALL: Types = Types(127);
    pub(super) const NONE: Types = Types(0);

    pub(super) fn has(self, other: Types) -> bool {
        self.0 & other.0 != 0
    }

    pub(super) fn with(self, other: Types) -> Types {
        Types(self.0 | other.0)
    }

    pub(super) fn named(name: &str) -> Option<Types> {
        Some(match name {
            "null" => Types::NULL,
            "boolean" => Types::BOOLEAN,
            "integer" => Types::INTEGER,
            "number" => Types::NUMBER,
            "string" => Types::STRING,
            "array" => Types::ARRAY,
            "object" => Types::OBJECT,
            _ => return None,
        })
    }
}

#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) types: Types,
    /// Has a keyword that is not supported here: valid by the others then means unknown.
    pub(super) partial: bool,
    /// Null may pass although the types leave it out (an OpenAPI habit that children honour).
    pub(super) nullable: bool,
    pub(super) constants: Option<Box<[Value]>>,
    pub(super) bounds: Option<Box<Bounds>>,
    pub(super) object: Option<Box<ObjectRules>>,
    pub(super) array: Option<Box<ArrayRules>>,
    pub(super) combinations: Box<[Combination]>,
}

impl Node {
    pub(super) fn anything() -> Self {
        Self {
            types: Types::ALL,
            partial: false,
            nullable: false,
            constants: None,
            bounds: None,
            object: None,
            array: None,
            combinations: Box::default(),
        }
    }

    pub(super) fn accepts_any_object(&self) -> bool {
        let easy = self.object.as_ref().is_none_or(|rules| {
            rules.required == 0
                && rules.min == 0
                && rules.max == u64::MAX
                && rules.additional.is_none()
                && rules.properties.is_empty()
        });
        self.types.has(Types::OBJECT)
            && self.constants.is_none()
            && easy
            && self.combinations.is_empty()
    }
}

/// Limits of numbers and strings.
#[derive(Debug, Clone)]
pub(super) struct Bounds {
    pub(super) minimum: Option<Number>,
    pub(super) maximum: Option<Number>,
    pub(super) above: Option<Number>,
    pub(super) below: Option<Number>,
    pub(super) min_length: u64,
    pub(super) max_length: u64,
}

#[derive(Debug, Clone)]
pub(super) struct ObjectRules {
    pub(super) properties: Box<[Property]>,
    /// How many of them must be there.
    pub(super) required: usize,
    /// For members not named; `None` lets them pass.
    pub(super) additional: Option<NodeId>,
    /// Patterns may cover members not named: then `additional` cannot be sure.
    pub(super) patterns: bool,
    pub(super) min: u64,
    pub(super) max: u64,
}

#[derive(Debug, Clone)]
pub(super) struct Property {
    pub(super) name: Box<str>,
    /// `None` when only `required` names it.
    pub(super) schema: Option<NodeId>,
    pub(super) required: bool,
}

impl ObjectRules {
    pub(super) fn property(&self, name: &str) -> Option<&Property> {
        // Most tools have few parameters, for which a scan beats a search.
        if self.properties.len() <= 8 {
            return self.properties.iter().find(|property| &*property.name == name);
        }
        let at = self.properties.binary_search_by(|property| (*property.name).cmp(name)).ok()?;
        self.properties.get(at)
    }
}

#[derive(Debug, Clone)]
pub(super) struct ArrayRules {
    pub(super) prefix: Box<[NodeId]>,
    pub(super) rest: Option<NodeId>,
    pub(super) min: u64,
    pub(super) max: u64,
}

/// Schemas that refer to other schemas for the same value.
#[derive(Debug, Clone)]
pub(super) enum Combination {
    All(Box<[NodeId]>),
    Any(Box<[NodeId]>),
    One(Box<[NodeId]>),
    Not(NodeId),
    If { test: NodeId, then: Option<NodeId>, otherwise: Option<NodeId> },
    Reference(NodeId),
}
