//! Who and what: stamps that the bus gives out, nodes, server instances.
//! Owns: their order and their form.      Never: makes a stamp: only the bus does.
//! In: names and numbers from the bus.  Out: values that compare.
//! Tests: below.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The longest name of a node.
const MAX_NAME: usize = 64;

/// A revision that the bus gave out. Those of one bucket increase strictly, so whatever has to be ordered across nodes,
/// epochs and incarnations, is one of these, and no clock is needed for it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Stamp {
    /// Which bucket: its revisions begin anew if it is lost and made again.
    pub bucket: u64,
    pub revision: u64,
}

impl fmt::Debug for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.bucket, self.revision)
    }
}

/// A server instance: the digest of its definition and of whose it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct InstanceId(pub u128);

/// The name of a node, fit for a subject of the bus.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeName(Arc<str>);

impl NodeName {
    /// Letters, digits, `-` and `_`: what the bus takes as one token of a subject.
    pub fn parse(text: &str) -> Option<NodeName> {
        let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        (!text.is_empty() && text.len() <= MAX_NAME && text.bytes().all(is_fit))
            .then(|| NodeName(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A name that is not fit for a subject of the bus.
#[derive(Debug)]
pub struct UnfitName;

impl fmt::Display for UnfitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the name of a node has 1 to {MAX_NAME} letters, digits, - and _")
    }
}

impl TryFrom<String> for NodeName {
    type Error = UnfitName;

    fn try_from(text: String) -> Result<NodeName, UnfitName> {
        NodeName::parse(&text).ok_or(UnfitName)
    }
}

impl From<NodeName> for String {
    fn from(name: NodeName) -> String {
        name.0.as_ref().to_owned()
    }
}

impl fmt::Debug for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One life of a node: its incarnation is the revision of its registration, so a later one is greater.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeRef {
    pub name: NodeName,
    pub incarnation: Stamp,
}

impl fmt::Debug for NodeRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}@{:?}", self.name, self.incarnation)
    }
}

/// Values behind an `Arc`, as they travel.
pub(crate) mod shared {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<T: Serialize, S: Serializer>(
        value: &Arc<T>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        T::serialize(value, to)
    }

    pub(crate) fn deserialize<'a, T: Deserialize<'a>, D: Deserializer<'a>>(
        from: D,
    ) -> Result<Arc<T>, D::Error> {
        T::deserialize(from).map(Arc::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_token_of_a_subject() {
        for good in ["a", "node-7", "A_b", &"x".repeat(64)] {
            assert_eq!(NodeName::parse(good).expect(good).as_str(), good);
        }
        for bad in ["", "a.b", "*", ">", "a b", "ä", "a\n", &"x".repeat(65)] {
            assert_eq!(NodeName::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_bucket_made_again_comes_after_the_one_that_was_lost() {
        let old = Stamp { bucket: 1, revision: 900 };
        assert!(Stamp { bucket: 2, revision: 1 } > old);
        assert!(Stamp { bucket: 1, revision: 901 } > old);
    }
}
