//! What nodes say, as bytes: by `postcard`, under a version.
//! Owns: the envelope.      Never: seals or sends it.
//! In: messages and entries of `metamcp-fleet`.  Out: bytes, and back where they are exactly that.
//! Tests: below.

use bytes::Bytes;
use metamcp_fleet::identity::{NodeName, NodeRef, Stamp};
use metamcp_fleet::lease::Entry;
use metamcp_fleet::message::Message;
use serde::de::{Deserialize, Deserializer, Visitor};
use serde::{Serialize, Serializer};

use super::bus::Refused;

/// The form of the envelope. A node with another one is refused and told of in the log.
const VERSION: u8 = 1;

/// The bytes of a call, an answer, a piece of a result: passed on, not looked into.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Body(pub Bytes);

impl Serialize for Body {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(&self.0)
    }
}

impl<'a> Deserialize<'a> for Body {
    fn deserialize<D: Deserializer<'a>>(from: D) -> Result<Body, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Body;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("bytes")
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Body, E> {
                Ok(Body(Bytes::copy_from_slice(bytes)))
            }
        }
        from.deserialize_bytes(Reader)
    }
}

#[derive(Serialize)]
struct Written<'a> {
    from: Stamp,
    /// Which life of the receiver it is for; none if it is for all.
    to: Option<Stamp>,
    message: &'a Message<Body>,
}

#[derive(serde::Deserialize)]
struct Read {
    from: Stamp,
    to: Option<Stamp>,
    message: Message<Body>,
}

pub(super) fn message(from: &NodeRef, to: Option<&NodeRef>, message: &Message<Body>) -> Vec<u8> {
    let to = to.map(|node| node.incarnation);
    encoded(&Written { from: from.incarnation, to, message })
}

/// The message, who sends it, and for which life of the receiver it is.
pub(super) fn read_message(
    from: &NodeName,
    bytes: &[u8],
) -> Result<(NodeRef, Option<Stamp>, Message<Body>), Refused> {
    let read: Read = decoded(bytes)?;
    let from = NodeRef { name: from.clone(), incarnation: read.from };
    Ok((from, read.to, read.message))
}

pub(super) fn entry(entry: &Entry) -> Vec<u8> {
    encoded(entry)
}

pub(super) fn read_entry(bytes: &[u8]) -> Result<Entry, Refused> {
    decoded(bytes)
}

pub(super) fn encoded<T: Serialize>(value: &T) -> Vec<u8> {
    // It fails only for types that do not know their length.
    let written = postcard::to_extend(value, vec![VERSION]);
    written.unwrap_or_default()
}

pub(super) fn decoded<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, Refused> {
    match bytes.split_first() {
        Some((&VERSION, rest)) => match postcard::take_from_bytes(rest) {
            Ok((value, [])) => Ok(value),
            _ => Err(Refused::Content),
        },
        Some(_) => Err(Refused::Version),
        None => Err(Refused::Content),
    }
}

#[cfg(test)]
mod tests {
    use metamcp_fleet::identity::InstanceId;
    use metamcp_fleet::message::Part;

    use super::*;

    fn node(name: &str) -> NodeRef {
        let incarnation = Stamp { bucket: 7, revision: 9 };
        NodeRef { name: NodeName::parse(name).unwrap(), incarnation }
    }

    #[test]
    fn what_is_said_is_heard_as_it_was_said() {
        let (a, b) = (node("a"), node("b"));
        let body = || Body(Bytes::from_static(b"\x00{}\xff"));
        let stamp = Stamp { bucket: u64::MAX, revision: 0 };
        let messages = [
            Message::Call {
                number: 1,
                instance: InstanceId(u128::MAX),
                epoch: stamp,
                body: body(),
            },
            Message::Output { number: 2, sequence: 3, part: Part::Chunk(body()) },
            Message::Output { number: 2, sequence: 4, part: Part::Last(Body::default()) },
            Message::Poll { number: u64::MAX },
        ];
        for said in messages {
            let bytes = message(&a, Some(&b), &said);
            let (from, to, heard) = read_message(&a.name, &bytes).unwrap();
            assert_eq!((from, to, heard), (a.clone(), Some(b.incarnation), said));
            for cut in 0..bytes.len() {
                assert!(read_message(&a.name, &bytes[..cut]).is_err(), "cut at {cut}");
            }
            let longer = [&bytes[..], b"x"].concat();
            assert_eq!(read_message(&a.name, &longer).unwrap_err(), Refused::Content);
        }
        assert_eq!(read_message(&a.name, &[9, 9]).unwrap_err(), Refused::Version);
    }
}
