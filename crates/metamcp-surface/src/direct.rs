//! Direct mode: names of tools and prompts of several servers, and pagination of their lists.
//! Owns: the naming rule, which elements of a page are shown, cursors.      Never: contacts a server, stores a list.
//! In: names of servers and tools, raw pages.  Out: names of at most 64 characters, elements, cursors.
//! Tests: below, and beside each part.

mod edits;
pub mod fit;
pub mod template;
mod words;

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use metamcp_wire::{object, write};
use sha2::{Digest, Sha256};

pub(crate) use edits::Edits;

/// Hosts refuse longer names of tools.
pub const MAX_NAME: usize = 64;
/// Between a server's name and its tool's.
const BETWEEN: &str = "__";
/// Pages of one server's list that are passed on before the next server has its turn: a server that needs more is
/// looping, and must not hide the others.
pub const MAX_PAGES: u32 = 200;
/// Longest cursor of a server that is passed on inside one of ours.
const MAX_CURSOR: usize = 16 * 1024;

/// The name of a tool or prompt among those of several servers: `server__tool`. It follows from the two names alone, so
/// that nothing another server does can change it. What would be too long, or holds characters that hosts refuse, or
/// could be read in two ways, is shortened and ends in a digest of the two names.
pub fn name(server: &str, tool: &str) -> String {
    let whole = format!("{server}{BETWEEN}{tool}");
    let is_clear = !server.contains(BETWEEN) && !server.ends_with('_') && !server.is_empty();
    if is_clear && whole.len() <= MAX_NAME && whole.chars().all(plain) {
        return whole;
    }
    shortened(&whole, server, tool)
}

/// The name of a tool or prompt where its server is the only one that is configured: its own, unless it is too long.
pub fn own_name(tool: &str) -> Cow<'_, str> {
    match tool.len() <= MAX_NAME || tool.chars().count() <= MAX_NAME {
        true => Cow::Borrowed(tool),
        false => Cow::Owned(shortened(tool, "", tool)),
    }
}

fn plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')
}

/// What fits of a name, and a digest of what it stands for.
fn shortened(whole: &str, server: &str, tool: &str) -> String {
    let mut hasher = Sha256::new();
    hasher.update((server.len() as u64).to_le_bytes());
    hasher.update(server.as_bytes());
    hasher.update(tool.as_bytes());
    let digest = hasher.finalize();
    let suffix: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    let room = MAX_NAME - suffix.len() - 1;
    let mut short: String =
        whole.chars().map(|c| if plain(c) { c } else { '_' }).take(room).collect();
    short.push('_');
    short.push_str(&suffix);
    short
}

/// Whether a name holds what no name of a tool or prompt that is shown here holds.
pub fn is_unseen(name: &str) -> bool {
    name.is_empty() || name.contains(['\n', '\r', '\t']) || words::hides(name)
}

/// The server and tool that a name reads as. It may also be one that ends in a digest, which only a look at all names can
/// tell: then the server has no tool of what was read. `is_server` knows the servers.
pub fn split(name: &str, is_server: impl Fn(&str) -> bool) -> Option<(&str, &str)> {
    let (server, tool) = name.split_once(BETWEEN)?;
    (is_server(server) && self::name(server, tool) == name).then_some((server, tool))
}

/// A definition or a schema whose descriptions and titles hold nothing that only models can see; all else is as it was.
pub fn cleaned(definition: &str) -> Cow<'_, str> {
    match words::cleaned(definition.as_bytes()) {
        Cow::Borrowed(_) => Cow::Borrowed(definition),
        Cow::Owned(clean) => String::from_utf8(clean).map_or(Cow::Borrowed(definition), Cow::Owned),
    }
}

/// Whether a text holds nothing that only models can see.
pub(crate) fn is_visible(said: &str) -> bool {
    !words::hides(said)
}

/// What a server says to models, without what only models can see.
pub fn visible(said: &str) -> Cow<'_, str> {
    match words::hides(said) {
        true => metamcp_types::text::clean(said, usize::MAX),
        false => Cow::Borrowed(said),
    }
}

/// A list of a server that is shown as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `resources/list`.
    Resources,
    /// `resources/templates/list`.
    Templates,
    /// `prompts/list`.
    Prompts,
}

impl Kind {
    /// The method that lists them.
    pub fn method(self) -> &'static str {
        match self {
            Kind::Resources => "resources/list",
            Kind::Templates => "resources/templates/list",
            Kind::Prompts => "prompts/list",
        }
    }

    /// The kind that a method lists.
    pub fn listed_by(method: &str) -> Option<Kind> {
        [Kind::Resources, Kind::Templates, Kind::Prompts]
            .into_iter()
            .find(|kind| kind.method() == method)
    }

    /// The member of the result that holds them.
    pub fn member(self) -> &'static str {
        match self {
            Kind::Resources => "resources",
            Kind::Templates => "resourceTemplates",
            Kind::Prompts => "prompts",
        }
    }

    /// The member that names one of them.
    pub fn key(self) -> &'static str {
        match self {
            Kind::Resources => "uri",
            Kind::Templates => "uriTemplate",
            Kind::Prompts => "name",
        }
    }

    /// One of them, for messages.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Resources => "resource",
            Kind::Templates => "template",
            Kind::Prompts => "prompt",
        }
    }

    /// The capability a server needs for them.
    pub fn capability(self) -> &'static str {
        match self {
            Kind::Resources | Kind::Templates => "resources",
            Kind::Prompts => "prompts",
        }
    }
}

/// One page of a server's list.
#[derive(Debug, PartialEq, Eq)]
pub struct Page<'a> {
    /// What is on it: the name or address of each, and the whole as the server wrote it.
    pub elements: Vec<(String, &'a [u8])>,
    /// Where the server goes on.
    pub next: Option<String>,
}

/// Parses a page. Elements that are not objects, or have no name, are skipped; `None` if it is not a page.
pub fn page(kind: Kind, result: &[u8]) -> Option<Page<'_>> {
    let [list, next] = object::pick(result, [kind.member(), "nextCursor"]).ok()?;
    let list = list.filter(|list| list.starts_with(b"["))?;
    let elements = object::elements(list).filter_map(|element| {
        let [key] = object::pick(element, [kind.key()]).ok()?;
        let key = object::text(key?)?.into_owned();
        (!key.is_empty()).then_some((key, element))
    });
    let next = next.and_then(object::text).map(std::borrow::Cow::into_owned);
    let next = next.filter(|next| next.len() <= MAX_CURSOR);
    Some(Page { elements: elements.collect(), next })
}

/// A page of a server that is passed on by itself, with only what clients can take; `None` if that is all of it. `left_out`
/// hears of the rest.
pub fn tidied(
    kind: Kind,
    result: &[u8],
    mut left_out: impl FnMut(&str, fit::InvalidElement),
) -> Option<Vec<u8>> {
    let [list, next] = object::pick(result, [kind.member(), "nextCursor"]).ok()?;
    let list = list.filter(|list| list.starts_with(b"["))?;
    let goes_on = next.is_some_and(|next| next.starts_with(b"\""));
    let mut is_all = next.is_none() || goes_on;
    let mut shown: Vec<Cow<'_, [u8]>> = Vec::new();
    for raw in object::elements(list) {
        match fit::element(kind, raw) {
            Ok(one) => {
                is_all &= matches!(one, Cow::Borrowed(_));
                shown.push(one);
            }
            Err(misfit) => {
                is_all = false;
                left_out(&key_of(kind, raw), misfit);
            }
        }
    }
    if is_all {
        return None;
    }
    let list = [b"[", &shown.join(&b',')[..], b"]"].concat();
    let page = object::replace_member(result, kind.member(), &list);
    // What is no cursor leads nowhere.
    Some(if goes_on { page } else { object::without_member(&page, "nextCursor") })
}

/// The name or address of an element, as far as it has one.
fn key_of(kind: Kind, raw: &[u8]) -> String {
    let key = object::members(raw).find(|(name, _)| *name == *kind.key());
    key.and_then(|(_, key)| object::text(key)).unwrap_or_default().into_owned()
}

/// Where a list of several servers goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// With which server.
    pub server: String,
    /// Pages of it that were given out.
    pub pages: u32,
    /// Its own cursor.
    pub cursor: Option<String>,
}

impl Place {
    /// As a cursor. It is not sealed: all it can do is ask a server for a page, which anybody may.
    pub fn encode(&self) -> String {
        let mut text = b"[".to_vec();
        write::json_string(&mut text, &self.server);
        text.extend_from_slice(format!(",{}", self.pages).as_bytes());
        if let Some(cursor) = &self.cursor {
            text.push(b',');
            write::json_string(&mut text, cursor);
        }
        text.push(b']');
        URL_SAFE_NO_PAD.encode(&text)
    }

    /// From a cursor.
    pub fn decode(cursor: &str) -> Option<Place> {
        let text = URL_SAFE_NO_PAD.decode(cursor).ok()?;
        let parts: Vec<serde_json::Value> = serde_json::from_slice(&text).ok()?;
        let [server, pages, rest @ ..] = parts.as_slice() else { return None };
        Some(Place {
            server: server.as_str()?.to_owned(),
            pages: u32::try_from(pages.as_u64()?).ok()?,
            cursor: rest.first().and_then(|cursor| cursor.as_str().map(str::to_owned)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_short_stable_and_apart() {
        assert_eq!(name("files", "read_text"), "files__read_text");
        assert_eq!(name("a.b-c", "x.y"), "a.b-c__x.y");
        // These read the same without the digest.
        let alike =
            [("a", "b__c"), ("a__b", "c"), ("a", "_b"), ("a_", "b"), ("a b", "c"), ("a_b", "c")];
        let names: std::collections::BTreeSet<String> =
            alike.iter().map(|(server, tool)| name(server, tool)).collect();
        assert_eq!(names.len(), alike.len(), "{names:?}");
        let long = name("server", &"t".repeat(128));
        assert_eq!(long.len(), MAX_NAME);
        assert!(long.starts_with("server__ttt"), "{long}");
        assert_ne!(long, name("server", &"t".repeat(127)));
        assert_eq!(long, name("server", &"t".repeat(128)));
        assert_eq!(
            name("files", "grüße"),
            "files__gr__e_".to_owned() + &name("files", "grüße")[13..]
        );
    }

    #[test]
    fn the_names_of_the_only_server_are_its_own_unless_they_are_too_long() {
        for name in ["read text", "gr\u{fc}\u{df}e", &"t".repeat(MAX_NAME)] {
            assert_eq!(own_name(name), name);
        }
        let long = own_name(&"t".repeat(65)).into_owned();
        assert_eq!((long.len(), &long[..4]), (MAX_NAME, "tttt"));
        assert_ne!(long, own_name(&"t".repeat(66)));
    }

    #[test]
    fn a_page_that_is_passed_on_keeps_what_can_be_shown() {
        let fine = br#"{"resources":[{"uri":"a","name":"n"}],"nextCursor":"c"}"#;
        assert_eq!(tidied(Kind::Resources, fine, |_, _| panic!("all fit")), None);
        let mixed = br#"{"resources":[{"uri":"a","name":"n"}, {"uri":"b"},7],"nextCursor":"c"}"#;
        let mut left = Vec::new();
        let shown = tidied(Kind::Resources, mixed, |key, why| left.push(format!("{key}: {why}")));
        assert_eq!(shown.as_deref(), Some(&fine[..]));
        assert_eq!(left, ["b: it has no `name`", ": it is no object"]);
        let lost = br#"{"resources":[{"uri":"a","name":"n"}],"nextCursor":7}"#;
        let shown = tidied(Kind::Resources, lost, |_, _| panic!("all fit"));
        assert_eq!(shown.as_deref(), Some(&br#"{"resources":[{"uri":"a","name":"n"}]}"#[..]));
    }

    #[test]
    fn names_are_read_back_where_they_can_be() {
        let known = |server: &str| matches!(server, "files" | "a__b");
        assert_eq!(split("files__read__all", known), Some(("files", "read__all")));
        assert_eq!(split("other__read", known), None);
        assert_eq!(split("read", known), None);
        assert_eq!(split("a__b__c", known), None, "such a server's names end in a digest");
    }

    proptest! {
        #[test]
        fn any_name_fits(server in ".{0,80}", tool in ".{0,140}") {
            let made = name(&server, &tool);
            prop_assert!(made.len() <= MAX_NAME);
            prop_assert!(made.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')));
        }

        #[test]
        fn different_pairs_have_different_names(
            one in ("[ab_]{1,4}", "[ab_]{1,4}"),
            other in ("[ab_]{1,4}", "[ab_]{1,4}"),
        ) {
            prop_assert_eq!(one == other, name(&one.0, &one.1) == name(&other.0, &other.1));
        }
    }

    #[test]
    fn what_cannot_be_shown_is_left_out() {
        let result = br#"{"resources":[{"uri":"a","x": 1.50},7,null,{"uri":7},{"uri":""},{"name":"n"},[],{"uri":"b","uri":"c"},{"uri":"d"}],"nextCursor":"n"}"#;
        let page = page(Kind::Resources, result).unwrap();
        assert_eq!(page.elements[0], ("a".to_owned(), &br#"{"uri":"a","x": 1.50}"#[..]));
        assert_eq!(
            page.elements.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(),
            ["a", "d"]
        );
        assert_eq!(page.next.as_deref(), Some("n"));
    }

    #[test]
    fn nonsense_is_no_page() {
        for result in [
            "7",
            "[]",
            "{}",
            r#"{"prompts":{}}"#,
            r#"{"prompts":"x"}"#,
            r#"{"prompts":[],"prompts":[]}"#,
        ] {
            assert_eq!(page(Kind::Prompts, result.as_bytes()), None, "{result}");
        }
        let long = format!(r#"{{"prompts":[],"nextCursor":"{}"}}"#, "x".repeat(MAX_CURSOR + 1));
        assert_eq!(page(Kind::Prompts, long.as_bytes()).unwrap().next, None);
        assert_eq!(page(Kind::Prompts, br#"{"prompts":[],"nextCursor":7}"#).unwrap().next, None);
    }

    #[test]
    fn places_survive_the_way_to_the_client_and_back() {
        for cursor in [None, Some("x\"\n\\ü".to_owned())] {
            let place = Place { server: "a:b".into(), pages: 3, cursor };
            assert_eq!(Place::decode(&place.encode()), Some(place));
        }
        for forged in [
            "",
            "!",
            "W10=",
            &URL_SAFE_NO_PAD.encode(b"[7,1]"),
            &URL_SAFE_NO_PAD.encode(b"[\"a\",-1]"),
        ] {
            assert_eq!(Place::decode(forged), None, "{forged}");
        }
    }
}
