//! The arguments of a chain's step: references replaced by results of earlier steps, byte for byte.

use std::borrow::Cow;

use metamcp_wire::object;
use metamcp_wire::write::json_string;

/// Most steps of one chain: more than anybody writes by hand, few enough to show the results of all.
pub const MAX_STEPS: usize = 32;
/// Where a reference looks.
const FROM: &str = "$from";

/// An earlier step, for those that refer to it.
#[derive(Debug, Clone, Copy)]
pub struct CompletedStep<'a> {
    /// What it is called, where it has a name.
    pub id: Option<&'a str>,
    /// What it gave, as JSON.
    pub structured: &'a [u8],
}

/// A reference that leads nowhere.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadReference {
    /// Not written as one.
    #[error(
        "a reference is {{\"$from\": step id or index, \"path\": \"/json/pointer\"}}, and {what}"
    )]
    Malformed { what: &'static str },
    /// No such step before this one.
    #[error("no step before this one is called {name:?}{known}")]
    NoSuchStep {
        name: String,
        /// Those there are, as the end of a sentence.
        known: String,
    },
    /// The step's result has nothing there.
    #[error("the result of step {step} has nothing at {path:?}; it is {shape}")]
    NothingThere {
        step: usize,
        path: String,
        /// What its result is.
        shape: String,
    },
}

/// The arguments of a step with every reference replaced, and the previous result put in where that is wanted.
/// Whatever is not a reference stays as it was written.
pub fn arguments_of<'a>(
    args: Option<&'a [u8]>,
    use_previous: bool,
    done: &[CompletedStep<'_>],
) -> Result<Cow<'a, [u8]>, BadReference> {
    let args = args.unwrap_or(b"{}");
    // The name may be written with escapes, which only a parser can resolve.
    let may_refer = memchr_any(args);
    let mut out = if may_refer {
        let mut out = Vec::with_capacity(args.len());
        write(&mut out, args, done)?;
        Cow::Owned(out)
    } else {
        Cow::Borrowed(args)
    };
    if use_previous {
        let previous = done.last().map_or(&b"null"[..], |done| done.structured);
        out = Cow::Owned(object::set_member(&out, "previous", previous));
    }
    Ok(out)
}

/// What a JSON pointer leads to, raw.
pub fn pointed<'a>(raw: &'a [u8], pointer: &str) -> Option<&'a [u8]> {
    if pointer.is_empty() {
        return Some(raw);
    }
    let mut at = raw;
    for part in pointer.strip_prefix('/')?.split('/') {
        let name = part.replace("~1", "/").replace("~0", "~");
        at = if at.starts_with(b"[") {
            let plain = name == "0" || !name.starts_with(['0', '+']);
            let index: usize = name.parse().ok().filter(|_| plain)?;
            object::elements(at).nth(index)?
        } else {
            object::members(at).find(|(key, _)| *key == name)?.1
        };
    }
    Some(at)
}

fn memchr_any(args: &[u8]) -> bool {
    args.contains(&b'$') || args.windows(2).any(|pair| pair == b"\\u")
}

fn write(out: &mut Vec<u8>, raw: &[u8], done: &[CompletedStep<'_>]) -> Result<(), BadReference> {
    match raw.first() {
        Some(b'{') => {
            if let Some(found) = reference(raw, done)? {
                out.extend_from_slice(found);
                return Ok(());
            }
            out.push(b'{');
            for (index, (name, value)) in object::members(raw).enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                json_string(out, &name);
                out.push(b':');
                write(out, value, done)?;
            }
            out.push(b'}');
        }
        Some(b'[') => {
            out.push(b'[');
            for (index, value) in object::elements(raw).enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write(out, value, done)?;
            }
            out.push(b']');
        }
        _ => out.extend_from_slice(raw),
    }
    Ok(())
}

/// What a reference leads to; `None` if the object is none.
fn reference<'d>(raw: &[u8], done: &[CompletedStep<'d>]) -> Result<Option<&'d [u8]>, BadReference> {
    let malformed = |what| Err(BadReference::Malformed { what });
    let (mut from, mut path, mut other) = (None, None, false);
    for (name, value) in object::members(raw) {
        match &*name {
            FROM if from.is_none() => from = Some(value),
            "path" if path.is_none() => path = Some(value),
            _ => other = true,
        }
    }
    let Some(from) = from else { return Ok(None) };
    if other {
        return malformed("this one has something else in it");
    }
    let path = match path.map(|raw| (raw, object::text(raw))) {
        None | Some((b"null", _)) => Cow::Borrowed(""),
        Some((_, Some(path))) => path,
        Some((_, None)) => return malformed("the path of this one is no string"),
    };
    let step = match object::text(from) {
        // A name goes before a number that is written as text.
        Some(name) => {
            let named = done.iter().position(|done| done.id == Some(&*name));
            let counted = || name.parse().ok().filter(|index: &usize| *index < done.len());
            named.or_else(counted).ok_or_else(|| no_such_step(&name, done))?
        }
        None => {
            let written = std::str::from_utf8(from).unwrap_or_default();
            match written.parse::<usize>() {
                Ok(index) if index < done.len() => index,
                Ok(_) => return Err(no_such_step(written, done)),
                Err(_) => return malformed("this one names no step"),
            }
        }
    };
    let structured = done[step].structured;
    match pointed(structured, &path) {
        Some(found) => Ok(Some(found)),
        None => Err(BadReference::NothingThere {
            step,
            path: path.into_owned(),
            shape: crate::excerpt::shape_of(structured),
        }),
    }
}

fn no_such_step(name: &str, done: &[CompletedStep<'_>]) -> BadReference {
    let ids: Vec<&str> = done.iter().filter_map(|done| done.id).collect();
    let known = match (done.len(), ids.is_empty()) {
        (0, _) => "; it is the first".to_owned(),
        (count, true) => format!("; there are 0 to {}", count - 1),
        (count, false) => format!("; there are 0 to {} and {}", count - 1, ids.join(", ")),
    };
    BadReference::NoSuchStep { name: metamcp_types::text::shown(name), known }
}
