//! Validation of list elements. Most clients reject a whole list because of one invalid element, and with it the tools of
//! all other servers; so such an element is skipped. Equivalent forms are normalized: `null` for an absent member, and
//! `true` for a schema that accepts everything.

use std::borrow::Cow;

use metamcp_wire::object;

use super::edits::Edits;
use super::{Kind, words};

/// Why an element is skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidElement {
    /// It is something else altogether.
    #[error("it is no object")]
    NoObject,
    /// A member has to be there.
    #[error("it has no `{name}`")]
    Missing { name: &'static str },
    /// A member is there twice.
    #[error("it has `{name}` twice")]
    Twice { name: &'static str },
    /// A member is of another type.
    #[error("its `{name}` is not {wanted}")]
    Wrong {
        name: &'static str,
        /// What it should be.
        wanted: &'static str,
    },
    /// A name that cannot be seen, or is none.
    #[error("its `{name}` is empty or holds characters that cannot be seen")]
    Unseen { name: &'static str },
}

/// Whose list it is for: clients of the newest revision take any schema of a tool's results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// A client that began with `initialize`.
    Initialized,
    /// A client of the newest revision.
    Stateless,
}

/// A tool's definition as clients can take it.
pub fn tool(raw: &[u8], reader: Reader) -> Result<Cow<'_, [u8]>, InvalidElement> {
    if !raw.starts_with(b"{") {
        return Err(InvalidElement::NoObject);
    }
    let mut shown = fitted(&TOOL, "tool", raw)?;
    if reader == Reader::Initialized {
        let output = object::pick(&shown, ["outputSchema"]).ok().and_then(|[schema]| schema);
        if output.is_some_and(|schema| fitted(&Form::Schema, "outputSchema", schema).is_err()) {
            // The tool works without it.
            shown = Cow::Owned(object::without_member(&shown, "outputSchema"));
        }
    }
    Ok(words::cleaned_in(shown))
}

/// A resource, a template or a prompt as clients can take it.
pub fn element(kind: Kind, raw: &[u8]) -> Result<Cow<'_, [u8]>, InvalidElement> {
    let form = match kind {
        Kind::Resources => &RESOURCE,
        Kind::Templates => &TEMPLATE,
        Kind::Prompts => &PROMPT,
    };
    if !raw.starts_with(b"{") {
        return Err(InvalidElement::NoObject);
    }
    let shown = fitted(form, kind.member(), raw)?;
    let key = object::pick(&shown, [kind.key()]).ok().and_then(|[key]| object::text(key?));
    if key.is_none_or(|key| key.is_empty() || words::hides(&key) || key.contains(['\n', '\t'])) {
        return Err(InvalidElement::Unseen { name: kind.key() });
    }
    Ok(words::cleaned_in(shown))
}

/// What a value has to be.
enum Form {
    Text,
    Flag,
    Number,
    Object,
    /// One of two values.
    Either([&'static str; 2]),
    Many(&'static Form),
    Members(&'static [Member]),
    /// A schema of an object.
    Schema,
}

struct Member {
    name: &'static str,
    form: Form,
    needed: bool,
}

const fn needed(name: &'static str, form: Form) -> Member {
    Member { name, form, needed: true }
}

const fn may(name: &'static str, form: Form) -> Member {
    Member { name, form, needed: false }
}

static ICONS: Form = Form::Members(&[
    needed("src", Form::Text),
    may("mimeType", Form::Text),
    may("sizes", Form::Many(&Form::Text)),
    may("theme", Form::Either(["light", "dark"])),
]);

static TOOL: Form = Form::Members(&[
    needed("name", Form::Text),
    may("title", Form::Text),
    may("description", Form::Text),
    needed("inputSchema", Form::Schema),
    may("outputSchema", Form::Object),
    may(
        "annotations",
        Form::Members(&[
            may("title", Form::Text),
            may("readOnlyHint", Form::Flag),
            may("destructiveHint", Form::Flag),
            may("idempotentHint", Form::Flag),
            may("openWorldHint", Form::Flag),
        ]),
    ),
    may("execution", Form::Object),
    may("icons", Form::Many(&ICONS)),
    may("_meta", Form::Object),
]);

const ANNOTATIONS: Form = Form::Members(&[
    may("audience", Form::Many(&Form::Either(["user", "assistant"]))),
    may("priority", Form::Number),
    may("lastModified", Form::Text),
]);

static RESOURCE: Form = Form::Members(&[
    needed("uri", Form::Text),
    needed("name", Form::Text),
    may("title", Form::Text),
    may("description", Form::Text),
    may("mimeType", Form::Text),
    may("size", Form::Number),
    may("annotations", ANNOTATIONS),
    may("icons", Form::Many(&ICONS)),
    may("_meta", Form::Object),
]);

static TEMPLATE: Form = Form::Members(&[
    needed("uriTemplate", Form::Text),
    needed("name", Form::Text),
    may("title", Form::Text),
    may("description", Form::Text),
    may("mimeType", Form::Text),
    may("annotations", ANNOTATIONS),
    may("icons", Form::Many(&ICONS)),
    may("_meta", Form::Object),
]);

static PROMPT: Form = Form::Members(&[
    needed("name", Form::Text),
    may("title", Form::Text),
    may("description", Form::Text),
    may(
        "arguments",
        Form::Many(&Form::Members(&[
            needed("name", Form::Text),
            may("title", Form::Text),
            may("description", Form::Text),
            may("required", Form::Flag),
        ])),
    ),
    may("icons", Form::Many(&ICONS)),
    may("_meta", Form::Object),
]);

/// The value of the member `name`, if it has the form.
fn fitted<'a>(
    form: &Form,
    name: &'static str,
    raw: &'a [u8],
) -> Result<Cow<'a, [u8]>, InvalidElement> {
    let wrong = |wanted| InvalidElement::Wrong { name, wanted };
    let (is_fine, wanted) = match form {
        Form::Text => (raw.starts_with(b"\""), "a string"),
        Form::Flag => (matches!(raw, b"true" | b"false"), "true or false"),
        Form::Number => (raw.first().is_some_and(|b| b.is_ascii_digit() || *b == b'-'), "a number"),
        Form::Object => (raw.starts_with(b"{"), "an object"),
        Form::Either(words) => {
            let word = object::text(raw);
            (word.is_some_and(|word| words.contains(&&*word)), "one of the words for it")
        }
        Form::Many(one) => return many(one, name, raw),
        Form::Members(members) if raw.starts_with(b"{") => return all(members, raw),
        Form::Members(_) => (false, "an object"),
        Form::Schema if raw.starts_with(b"{") => return schema(name, raw),
        Form::Schema => (false, "an object"),
    };
    if is_fine { Ok(Cow::Borrowed(raw)) } else { Err(wrong(wanted)) }
}

fn many<'a>(
    one: &Form,
    name: &'static str,
    raw: &'a [u8],
) -> Result<Cow<'a, [u8]>, InvalidElement> {
    if !raw.starts_with(b"[") {
        return Err(InvalidElement::Wrong { name, wanted: "an array" });
    }
    let elements: Vec<Cow<'a, [u8]>> =
        object::elements(raw).map(|raw| fitted(one, name, raw)).collect::<Result<_, _>>()?;
    if elements.iter().all(|element| matches!(element, Cow::Borrowed(_))) {
        return Ok(Cow::Borrowed(raw));
    }
    let mut whole = vec![b'['];
    whole.extend_from_slice(&elements.join(&b','));
    whole.push(b']');
    Ok(Cow::Owned(whole))
}

fn all<'a>(members: &'static [Member], raw: &'a [u8]) -> Result<Cow<'a, [u8]>, InvalidElement> {
    let mut seen = vec![false; members.len()];
    let mut shown = Cow::Borrowed(raw);
    for (name, value) in object::members(raw) {
        let Some(at) = members.iter().position(|member| *member.name == *name) else { continue };
        let member = &members[at];
        if std::mem::replace(&mut seen[at], true) {
            return Err(InvalidElement::Twice { name: member.name });
        }
        if value == b"null" && !member.needed {
            shown = Cow::Owned(object::without_member(&shown, member.name));
        } else if let Cow::Owned(value) = fitted(&member.form, member.name, value)? {
            shown = Cow::Owned(object::replace_member(&shown, member.name, &value));
        }
    }
    match members.iter().zip(seen).find(|(member, seen)| member.needed && !seen) {
        Some((member, _)) => Err(InvalidElement::Missing { name: member.name }),
        None => Ok(shown),
    }
}

fn schema<'a>(name: &'static str, raw: &'a [u8]) -> Result<Cow<'a, [u8]>, InvalidElement> {
    let wrong = |wanted| InvalidElement::Wrong { name, wanted };
    let [kind, properties, required] = object::pick(raw, ["type", "properties", "required"])
        .map_err(|_| wrong("a schema that can be read in one way only"))?;
    if kind.and_then(object::text).as_deref() != Some("object") {
        return Err(wrong("a schema of the type \"object\""));
    }
    let mut shown = Cow::Borrowed(raw);
    match required {
        None => {}
        Some(b"null") => shown = Cow::Owned(object::without_member(&shown, "required")),
        Some(required) => {
            many(&Form::Text, name, required)
                .map_err(|_| wrong("a schema whose `required` is an array of strings"))?;
        }
    }
    match properties {
        None => {}
        Some(b"null") => shown = Cow::Owned(object::without_member(&shown, "properties")),
        Some(properties) => {
            let unfit = || wrong("a schema whose `properties` are schemas");
            if !properties.starts_with(b"{") {
                return Err(unfit());
            }
            let mut edits = Edits::new(properties);
            for (_, value) in object::members(properties) {
                match value {
                    b"true" => edits.replace(value, b"{}"),
                    b"false" => edits.replace(value, b"{\"not\":{}}"),
                    value if value.starts_with(b"{") => {}
                    _ => return Err(unfit()),
                }
            }
            if let Cow::Owned(rewritten) = edits.done() {
                shown = Cow::Owned(object::replace_member(&shown, "properties", &rewritten));
            }
        }
    }
    Ok(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(raw: &str, reader: Reader) -> Result<String, String> {
        let shown = tool(raw.as_bytes(), reader).map_err(|misfit| misfit.to_string())?;
        Ok(String::from_utf8(shown.into_owned()).unwrap())
    }

    #[test]
    fn tools_of_the_protocols_form_are_shown_as_they_are() {
        for raw in [
            r#"{"name":"t","inputSchema":{"type":"object"}}"#,
            r#"{ "x": 1.50, "name":"t","inputSchema":{"$schema":"s","type":"object","properties":{"a":{}},"required":["a"]},"annotations":{"readOnlyHint":true,"y":7}}"#,
            r#"{"name":"t","title":"T","description":"d\né","inputSchema":{"type":"object"},"outputSchema":{"type":"object"},"icons":[{"src":"s","sizes":["any"],"theme":"dark"}],"_meta":{}}"#,
        ] {
            for reader in [Reader::Initialized, Reader::Stateless] {
                assert_eq!(shown(raw, reader).as_deref(), Ok(raw));
            }
        }
    }

    #[test]
    fn tools_that_would_spoil_a_list_are_left_out() {
        for (raw, why) in [
            ("7", "it is no object"),
            (r#"{"name":"t"}"#, "it has no `inputSchema`"),
            (r#"{"name":"t","inputSchema":"x"}"#, "its `inputSchema` is not an object"),
            (r#"{"name":"t","inputSchema":null}"#, "its `inputSchema` is not an object"),
            (
                r#"{"name":"t","inputSchema":{"type":"array"}}"#,
                "its `inputSchema` is not a schema of the type \"object\"",
            ),
            (
                r#"{"name":"t","inputSchema":{"type":"object","properties":[]}}"#,
                "its `inputSchema` is not a schema whose `properties` are schemas",
            ),
            (
                r#"{"name":"t","inputSchema":{"type":"object","required":"a"}}"#,
                "its `inputSchema` is not a schema whose `required` is an array of strings",
            ),
            (
                r#"{"name":"t","inputSchema":{"type":"object"},"description":7}"#,
                "its `description` is not a string",
            ),
            (
                r#"{"name":"t","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":"yes"}}"#,
                "its `readOnlyHint` is not true or false",
            ),
            (
                r#"{"name":"t","inputSchema":{"type":"object"},"icons":{}}"#,
                "its `icons` is not an array",
            ),
            (r#"{"name":"t","inputSchema":{"type":"object"},"name":"u"}"#, "it has `name` twice"),
        ] {
            assert_eq!(shown(raw, Reader::Stateless), Err(why.to_owned()), "{raw}");
        }
    }

    #[test]
    fn what_means_the_same_is_rewritten() {
        let raw = r#"{"name":"t","title":null,"inputSchema":{"type":"object","properties":{"a":true,"b":{}},"required":null},"annotations":{"title":null,"readOnlyHint":true}}"#;
        assert_eq!(
            shown(raw, Reader::Initialized).as_deref(),
            Ok(
                r#"{"name":"t","inputSchema":{"type":"object","properties":{"a":{},"b":{}}},"annotations":{"readOnlyHint":true}}"#
            )
        );
        let raw = r#"{"name":"t","inputSchema":{"type":"object"},"outputSchema":{"type":"array"}}"#;
        assert_eq!(shown(raw, Reader::Stateless).as_deref(), Ok(raw));
        assert_eq!(
            shown(raw, Reader::Initialized).as_deref(),
            Ok(r#"{"name":"t","inputSchema":{"type":"object"}}"#)
        );
    }

    #[test]
    fn resources_and_prompts_are_held_to_the_same() {
        let is_shown = |kind, raw: &str| element(kind, raw.as_bytes()).is_ok();
        assert!(is_shown(Kind::Resources, r#"{"uri":"a:b","name":"n","x":1}"#));
        assert!(is_shown(Kind::Resources, r#"{"uri":"a:b","name":"n","size":7,"title":null}"#));
        assert!(!is_shown(Kind::Resources, r#"{"uri":"a:b"}"#));
        assert!(!is_shown(Kind::Resources, r#"{"uri":"a:\u0000b","name":"n"}"#));
        let audience = r#"{"uri":"a:b","name":"n","annotations":{"audience":["system"]}}"#;
        assert!(!is_shown(Kind::Resources, audience));
        assert!(is_shown(Kind::Templates, r#"{"uriTemplate":"a:{b}","name":"n"}"#));
        assert!(!is_shown(Kind::Templates, r#"{"uriTemplate":"a:{b}","name":7}"#));
        assert!(is_shown(Kind::Prompts, r#"{"name":"p","arguments":[{"name":"a"}]}"#));
        assert!(!is_shown(Kind::Prompts, r#"{"name":"p","arguments":[{"required":true}]}"#));
        assert!(!is_shown(Kind::Prompts, r#"{"name":"p","arguments":{}}"#));
        assert!(!is_shown(Kind::Prompts, r"[7]"));
    }
}
