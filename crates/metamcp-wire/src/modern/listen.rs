//! `subscriptions/listen`: what is requested, what is granted, and the messages with the subscription's id.

use std::borrow::Cow;

use super::Fault;
use super::meta::SUBSCRIPTION;
use crate::object::{elements, members, pick, replace_member, set_member, text, without_member};
use crate::write::json_string;

/// Most resources one subscription may name.
const MAX_RESOURCES: usize = 1000;

/// Which notifications a subscription is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// `notifications/tools/list_changed`.
    pub tools: bool,
    /// `notifications/prompts/list_changed`.
    pub prompts: bool,
    /// `notifications/resources/list_changed`.
    pub resources: bool,
    /// `notifications/resources/updated`, of these.
    pub uris: Vec<String>,
}

impl Filter {
    pub fn read(params: &[u8]) -> Result<Filter, Fault> {
        let unusable = || Fault::invalid("subscriptions/listen needs `notifications`, an object");
        let [wanted] = pick(params, ["notifications"]).map_err(|_| unusable())?;
        let [tools, prompts, resources, uris] = pick(
            wanted.ok_or_else(unusable)?,
            [
                "toolsListChanged",
                "promptsListChanged",
                "resourcesListChanged",
                "resourceSubscriptions",
            ],
        )
        .map_err(|_| unusable())?;
        let uris: Vec<String> = uris
            .map(|raw| {
                elements(raw).take(MAX_RESOURCES + 1).filter_map(text).map(Into::into).collect()
            })
            .unwrap_or_default();
        if uris.len() > MAX_RESOURCES {
            return Err(Fault::invalid(format!(
                "resourceSubscriptions may name at most {MAX_RESOURCES} resources"
            )));
        }
        let yes = |raw: Option<&[u8]>| raw == Some(b"true");
        Ok(Filter { tools: yes(tools), prompts: yes(prompts), resources: yes(resources), uris })
    }

    /// The part of this that is also in `offered`; resources are granted as a whole, if `offered` names any.
    pub fn granted(self, offered: &Filter) -> Filter {
        Filter {
            tools: self.tools && offered.tools,
            prompts: self.prompts && offered.prompts,
            resources: self.resources && offered.resources,
            uris: if offered.uris.is_empty() { Vec::new() } else { self.uris },
        }
    }

    /// Whether a notification of this method, about this resource, belongs to the subscription.
    pub fn covers(&self, method: &str, uri: Option<&str>) -> bool {
        match method {
            "notifications/tools/list_changed" => self.tools,
            "notifications/prompts/list_changed" => self.prompts,
            "notifications/resources/list_changed" => self.resources,
            "notifications/resources/updated" => {
                uri.is_some_and(|uri| self.uris.iter().any(|known| known == uri))
            }
            _ => false,
        }
    }

    fn json(&self) -> Vec<u8> {
        let mut out = vec![b'{'];
        for (name, yes) in [
            ("toolsListChanged", self.tools),
            ("promptsListChanged", self.prompts),
            ("resourcesListChanged", self.resources),
        ] {
            if yes {
                separate(&mut out);
                json_string(&mut out, name);
                out.extend_from_slice(b":true");
            }
        }
        if !self.uris.is_empty() {
            separate(&mut out);
            out.extend_from_slice(b"\"resourceSubscriptions\":[");
            for (number, uri) in self.uris.iter().enumerate() {
                if number > 0 {
                    out.push(b',');
                }
                json_string(&mut out, uri);
            }
            out.push(b']');
        }
        out.push(b'}');
        out
    }
}

fn separate(out: &mut Vec<u8>) {
    if out.last() != Some(&b'{') {
        out.push(b',');
    }
}

/// The first notification on a subscription.
pub const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";

/// Its params: what was granted to the subscription whose request had this id, raw.
pub fn acknowledgement(id: &[u8], granted: &Filter) -> Vec<u8> {
    let mut out = b"{\"_meta\":{\"".to_vec();
    out.extend_from_slice(SUBSCRIPTION.as_bytes());
    out.extend_from_slice(b"\":");
    out.extend_from_slice(id);
    out.extend_from_slice(b"},\"notifications\":");
    out.extend_from_slice(&granted.json());
    out.push(b'}');
    out
}

/// The params of a notification, with the id of the subscription it is delivered on.
pub fn tagged(params: Option<&[u8]>, id: &[u8]) -> Vec<u8> {
    let params = params.filter(|params| params.starts_with(b"{")).unwrap_or(b"{}");
    let meta = pick(params, ["_meta"]).ok().and_then(|[meta]| meta);
    let meta = meta.filter(|meta| meta.starts_with(b"{")).unwrap_or(b"{}");
    set_member(params, "_meta", &set_member(meta, SUBSCRIPTION, id))
}

/// The params of a notification without the id of the subscription it came on.
pub fn untagged(params: &[u8]) -> Cow<'_, [u8]> {
    let meta = pick(params, ["_meta"]).ok().and_then(|[meta]| meta);
    match meta.filter(|meta| members(meta).any(|(name, _)| name == SUBSCRIPTION)) {
        None => Cow::Borrowed(params),
        Some(meta) => {
            let rest = without_member(meta, SUBSCRIPTION);
            if members(&rest).next().is_none() {
                return Cow::Owned(without_member(params, "_meta"));
            }
            Cow::Owned(replace_member(params, "_meta", &rest))
        }
    }
}

/// The result that ends a subscription on our side.
pub fn ended(id: &[u8]) -> Vec<u8> {
    let mut out = b"{\"resultType\":\"complete\",\"_meta\":{\"".to_vec();
    out.extend_from_slice(SUBSCRIPTION.as_bytes());
    out.extend_from_slice(b"\":");
    out.extend_from_slice(id);
    out.extend_from_slice(b"}}");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_offered_is_granted_and_said() {
        let wanted = Filter::read(
            br#"{"notifications":{"toolsListChanged":true,"promptsListChanged":true,"resourceSubscriptions":["a\"b"]}}"#,
        )
        .unwrap();
        let offered = Filter { tools: true, ..Filter::default() };
        let granted = wanted.clone().granted(&offered);
        assert_eq!(granted, offered);
        let said = acknowledgement(b"\"x\"", &granted);
        assert_eq!(
            said,
            br#"{"_meta":{"io.modelcontextprotocol/subscriptionId":"x"},"notifications":{"toolsListChanged":true}}"#
        );
        let all = Filter { tools: true, prompts: true, resources: true, uris: vec!["*".into()] };
        let said = acknowledgement(b"1", &wanted.granted(&all));
        assert!(String::from_utf8(said).unwrap().ends_with(
            r#""notifications":{"toolsListChanged":true,"promptsListChanged":true,"resourceSubscriptions":["a\"b"]}}"#
        ));
    }

    #[test]
    fn notifications_outside_the_filter_are_not_its_own() {
        let filter = Filter { tools: true, uris: vec!["file:///a".into()], ..Filter::default() };
        assert!(filter.covers("notifications/tools/list_changed", None));
        assert!(!filter.covers("notifications/prompts/list_changed", None));
        assert!(filter.covers("notifications/resources/updated", Some("file:///a")));
        assert!(!filter.covers("notifications/resources/updated", Some("file:///b")));
        assert!(!filter.covers("notifications/message", None));
    }

    #[test]
    fn messages_carry_the_id_as_it_was_written() {
        assert_eq!(
            tagged(Some(br#"{"uri":"a","_meta":{"k":1}}"#), b"7"),
            br#"{"uri":"a","_meta":{"k":1,"io.modelcontextprotocol/subscriptionId":7}}"#
        );
        let tagged_twice = tagged(Some(br#"{"uri":"a","_meta":{"k":1}}"#), b"7");
        assert_eq!(&*untagged(&tagged_twice), br#"{"uri":"a","_meta":{"k":1}}"#);
        assert_eq!(&*untagged(&tagged(Some(br#"{"uri":"a"}"#), b"7")), br#"{"uri":"a"}"#);
        assert_eq!(
            tagged(None, b"7"),
            br#"{"_meta":{"io.modelcontextprotocol/subscriptionId":7}}"#
        );
        assert_eq!(
            ended(b"7"),
            br#"{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":7}}"#
        );
        assert!(Filter::read(b"{}").is_err());
        assert!(Filter::read(br#"{"notifications":[]}"#).is_err());
    }
}
