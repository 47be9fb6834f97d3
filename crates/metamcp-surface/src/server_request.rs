//! Server requests (elicitation, sampling, roots) as the client gets them.
//! Owns: the attribution to the server in front of its text; what is stripped.      Never: changes the schema that a response is validated by.
//! In: a server's name, a method, its params as the server wrote them.  Out: the params for the client, or why the request is rejected.
//! Tests: below; `metamcp/tests/hazards/questions.rs`.

use std::borrow::Cow;

use metamcp_wire::modern::input;
use metamcp_wire::scan::{Defect, MAX_DEPTH};
use metamcp_wire::{object, write};

use crate::direct::{Edits, is_visible};
use metamcp_types::text;

/// Longest message of an elicitation: a person reads it in a dialog.
const MAX_MESSAGE: usize = 4_000;
/// Members that an answer is checked by, or known by: cleaned they would be something else.
const FIXED: [&str; 3] = ["enum", "const", "elicitationId"];
/// The member of params that programs read and nobody is shown.
const UNSHOWN: &str = "_meta";

/// Why a request of a server is not put to anybody.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidServerRequest {
    /// There are no params, or they are something else than an object.
    #[error("its params are no object")]
    NotObject,
    /// Two readers could take it for two requests.
    #[error("its params can be read in more than one way")]
    Ambiguous(#[from] Defect),
    /// It has a name or a value that has to stay as it is, and that nobody could see whole.
    #[error("a {what} in its params holds line breaks or characters that cannot be seen")]
    Hidden { what: &'static str },
    /// What it is within cannot be read.
    #[error(transparent)]
    Input(#[from] input::InvalidInput),
}

/// The params of a server's request for a client: an elicitation says which server asks, line by line, so that no text of a
/// server can pass for a request of metamcp's own; nothing in it is invisible or moves a cursor. What another reader could
/// take for something else than we do is nothing that a client gets to see.
pub fn presented<'a>(
    server: &str,
    method: &str,
    params: Option<&'a [u8]>,
) -> Result<Option<Cow<'a, [u8]>>, InvalidServerRequest> {
    let Some(params) = params else {
        // Only `roots/list` has no params.
        return if method == "roots/list" {
            Ok(None)
        } else {
            Err(InvalidServerRequest::NotObject)
        };
    };
    if !params.starts_with(b"{") {
        return Err(InvalidServerRequest::NotObject);
    }
    object::unambiguous(params, MAX_DEPTH)?;
    if method != "elicitation/create" {
        object::pick(params, ["messages", "systemPrompt", "tools", UNSHOWN])?;
        return Ok(Some(cleaned(params, false)?));
    }
    let [message, ..] = object::pick(
        params,
        ["message", "mode", "requestedSchema", "url", "elicitationId", UNSHOWN],
    )?;
    let message = message.and_then(object::text).unwrap_or_default();
    let mut quoted = Vec::new();
    write::json_string(&mut quoted, &attributed(server, &message));
    let params = object::set_member(params, "message", b"\"\"");
    let params = cleaned(&params, true)?;
    Ok(Some(Cow::Owned(object::set_member(&params, "message", &quoted))))
}

/// An `input_required` result with every request in it as a client gets to see it. All other members stay.
pub fn presented_in(server: &str, result: &[u8]) -> Result<Vec<u8>, InvalidServerRequest> {
    let required = input::required(result)?;
    if required.questions.is_empty() {
        return Ok(result.to_vec());
    }
    let mut requests = vec![b'{'];
    for question in &required.questions {
        if requests.len() > 1 {
            requests.push(b',');
        }
        write::json_string(&mut requests, &question.key);
        requests.extend_from_slice(b":{\"method\":");
        write::json_string(&mut requests, &question.method);
        if let Some(params) = presented(server, &question.method, question.params.as_deref())? {
            requests.extend_from_slice(b",\"params\":");
            requests.extend_from_slice(&params);
        }
        requests.push(b'}');
    }
    requests.push(b'}');
    Ok(object::set_member(result, "inputRequests", &requests))
}

/// Params in which every text can be seen whole, whatever its member is called: a reader that knows more members than we
/// do, or takes their names less exactly, shows nothing else. In a form each text stays on its line, but for what a field
/// is filled with: a person would attribute the next line to somebody else.
fn cleaned(params: &[u8], is_form: bool) -> Result<Cow<'_, [u8]>, InvalidServerRequest> {
    let within = Within { is_form, is_fixed: false };
    let mut edits = Edits::new(params);
    for (name, value) in object::members(params) {
        within.check_name(&name)?;
        if name != UNSHOWN {
            walk(value, within.member(&name, value), &mut edits)?;
        }
    }
    Ok(edits.done())
}

/// Where a value stands.
#[derive(Clone, Copy)]
struct Within {
    is_form: bool,
    is_fixed: bool,
}

/// The depth was bounded by the check before.
fn walk(raw: &[u8], within: Within, edits: &mut Edits<'_>) -> Result<(), InvalidServerRequest> {
    for element in object::elements(raw) {
        walk(element, within, edits)?;
    }
    for (name, value) in object::members(raw) {
        within.check_name(&name)?;
        walk(value, within.member(&name, value), edits)?;
    }
    let Some(said) = object::text(raw).filter(|said| within.unseen(said)) else { return Ok(()) };
    if within.is_fixed {
        return Err(InvalidServerRequest::Hidden { what: "value to choose" });
    }
    let clean = match within.is_form {
        true => text::clean_line(&said, usize::MAX),
        false => text::clean(&said, usize::MAX),
    };
    let mut quoted = Vec::with_capacity(raw.len());
    write::json_string(&mut quoted, &clean);
    edits.replace(raw, &quoted);
    Ok(())
}

impl Within {
    /// The place of a member. A field of a form may be called as the author likes; its value is an object then.
    fn member(self, name: &str, value: &[u8]) -> Within {
        let is_object = value.starts_with(b"{");
        Within {
            is_form: self.is_form && (is_object || name != "default"),
            is_fixed: self.is_fixed || (!is_object && FIXED.contains(&name)),
        }
    }

    fn check_name(self, name: &str) -> Result<(), InvalidServerRequest> {
        let is_line = Within { is_form: true, ..self };
        if is_line.unseen(name) {
            Err(InvalidServerRequest::Hidden { what: "name" })
        } else {
            Ok(())
        }
    }

    /// Whether a text cannot stay here as it is.
    fn unseen(self, said: &str) -> bool {
        let breaks = ['\n', '\r', '\t', '\u{2028}', '\u{2029}'];
        !is_visible(said) || (self.is_form && said.contains(breaks))
    }
}

/// A server's text with its name in front. Where there are several lines, each is marked as a quotation: what stands
/// below an empty line would otherwise look like somebody else's text.
fn attributed(server: &str, message: &str) -> String {
    let message = text::clean(message, MAX_MESSAGE);
    let message = message.trim();
    let server = text::clean_line(server, 100);
    if message.contains('\n') {
        let lines: Vec<String> = message.lines().map(|line| format!("> {line}")).collect();
        return format!("The server \"{server}\" asks:\n{}", lines.join("\n"));
    }
    format!("The server \"{server}\" asks: {message}")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn shown(method: &str, params: &Value) -> Value {
        let raw = params.to_string();
        let shown = presented("files", method, Some(raw.as_bytes())).unwrap().unwrap();
        serde_json::from_slice(&shown).unwrap()
    }

    #[test]
    fn an_elicitation_names_its_server_and_hides_nothing() {
        let params = json!({
            "message": "Your \u{1b}[31mname\u{202e}?\u{e0041}",
            "requestedSchema": {"type": "object", "properties": {
                "name": {"type": "string", "title": "N\u{200b}ame", "description": "a\u{7}", "default": "x\ny\u{200b}"},
                "size": {"type": "string", "enum": ["s"], "enumNames": ["Sm\u{202e}all"]},
                "kind": {"oneOf": [{"const": "k", "title": "\u{1b}]0;x\u{7}Kind"}]},
                // Fields may be called as what means something elsewhere.
                "_meta": {"title": "a\u{202e}"},
                "default": {"Title": "a\n\nmetamcp asks:\u{2028}b"},
                "enum": {"description": "a\u{202e}"},
            }},
            "_meta": {"k": "\u{202e}"},
        });
        let shown = shown("elicitation/create", &params);
        assert_eq!(shown["message"], "The server \"files\" asks: Your name?");
        let properties = &shown["requestedSchema"]["properties"];
        assert_eq!(properties["name"]["title"], "Name");
        assert_eq!(properties["name"]["description"], "a");
        assert_eq!(properties["name"]["default"], "x\ny");
        assert_eq!(properties["size"]["enumNames"], json!(["Small"]));
        assert_eq!(properties["kind"]["oneOf"][0]["title"], "Kind");
        assert_eq!(properties["_meta"]["title"], "a");
        assert_eq!(properties["default"]["Title"], "a metamcp asks: b");
        assert_eq!(properties["enum"]["description"], "a");
        assert_eq!(shown["_meta"], params["_meta"]);
    }

    #[test]
    fn what_two_readers_could_take_for_two_questions_is_put_to_nobody() {
        let ask = "elicitation/create";
        let sample = "sampling/createMessage";
        for (method, params) in [
            (ask, r#"{"message":"ok","message":"This is a question of metamcp itself."}"#),
            (ask, r#"{"message":"ok","mess\u0061ge":"x"}"#),
            (ask, r#"{"message":"ok","MESSAGE":"x"}"#),
            (ask, r#"{"message":"ok","message\u0000":"x"}"#),
            (ask, r#"{"message":"ok","Url":"x"}"#),
            (ask, r#"{"message":"ok","reque\u017ftedSchema":{}}"#),
            (
                ask,
                r#"{"message":"ok","requestedSchema":{"properties":{"a":{"title":"x","title":"y"}}}}"#,
            ),
            (ask, r#"[{"message":"\u001b[2J"}]"#),
            (ask, "\"x\""),
            (ask, "null"),
            // Names and values that an answer repeats cannot be cleaned.
            (ask, r#"{"message":"m","requestedSchema":{"properties":{"a\u202eb":{}}}}"#),
            (ask, r#"{"message":"m","requestedSchema":{"properties":{"a\nmetamcp asks:":{}}}}"#),
            (
                ask,
                r#"{"message":"m","requestedSchema":{"properties":{"a":{"enum":["x","\u001b[1m"]}}}}"#,
            ),
            (
                ask,
                r#"{"message":"m","requestedSchema":{"properties":{"a":{"oneOf":[{"const":"k\u200b"}]}}}}"#,
            ),
            (ask, r#"{"message":"m","mode":"url","url":"https://a","elicitationId":"\u202e"}"#),
            (
                sample,
                r#"{"messages":[],"Messages":[{"role":"user","content":{"type":"text","text":"\u001b"}}]}"#,
            ),
            (sample, r#"{"messages":[],"systemPrompt":"a","systemPrompt":"\u001b"}"#),
            (sample, r#"{"messages":[{"role":"user","content":{"text":"a","text":"b"}}]}"#),
            (sample, "[]"),
            ("roots/list", "[\"\u{202e}\"]"),
            ("roots/list", r#"{"_meta":{"a":1,"a":2}}"#),
        ] {
            let result = presented("files", method, Some(params.as_bytes()));
            assert!(result.is_err(), "{method} {params}");
            let within = format!(
                r#"{{"inputRequests":{{"q":{{"method":"{method}","params":{params}}}}},"requestState":"s"}}"#
            );
            // What is no object at all was never read as params there; a list of roots needs none.
            if method != "roots/list" || params.starts_with('{') {
                assert!(presented_in("files", within.as_bytes()).is_err(), "{within}");
            }
        }
        let deep = format!(r#"{{"message":"m","x":{}1{}}}"#, "[".repeat(64), "]".repeat(64));
        assert!(presented("files", ask, Some(deep.as_bytes())).is_err());
        assert_eq!(presented("files", ask, None), Err(InvalidServerRequest::NotObject));
        assert_eq!(presented("files", sample, None), Err(InvalidServerRequest::NotObject));
        assert_eq!(presented("files", "roots/list", None), Ok(None));
    }

    #[test]
    fn no_line_of_a_server_passes_for_ours() {
        let params = json!({"message": "ok\n\nmetamcp asks: Install evil-package?\r\n\u{2028}Yes"});
        let shown = shown("elicitation/create", &params);
        let message = shown["message"].as_str().unwrap();
        let mut lines = message.split(['\n', '\u{2028}', '\u{2029}', '\u{85}', '\r']);
        assert_eq!(lines.next(), Some("The server \"files\" asks:"));
        assert!(lines.all(|line| line.starts_with("> ")), "{message:?}");
        for odd in [json!({}), json!({"message": 7}), json!({"message": null})] {
            assert_eq!(
                self::shown("elicitation/create", &odd)["message"],
                "The server \"files\" asks: "
            );
        }
        let long = json!({"message": "x".repeat(1_000_000)});
        assert!(
            self::shown("elicitation/create", &long)["message"].as_str().unwrap().len() < 5_000
        );
    }

    #[test]
    fn an_address_to_open_hides_nothing_and_a_prompt_neither() {
        let params =
            json!({"mode": "url", "url": "https://a.example/\u{202e}moc.b", "message": "m"});
        assert_eq!(shown("elicitation/create", &params)["url"], "https://a.example/moc.b");
        let params = json!({"systemPrompt": "a\u{e0041}b", "messages": [
            {"role": "user", "content": {"type": "text", "text": "c\u{200b}d"}},
            {"role": "user", "content": [{"type": "image", "data": "AA=="}, {"type": "text", "text": "e\u{1b}[1mf"}]},
        ], "maxTokens": 1.50});
        let shown = shown("sampling/createMessage", &params);
        assert_eq!(shown["systemPrompt"], "ab");
        assert_eq!(shown["messages"][0]["content"]["text"], "cd");
        assert_eq!(shown["messages"][1]["content"][1]["text"], "ef");
        // Members of any name are read by somebody.
        let params = json!({"messages": [{"role": "user", "content": {"type": "text", "Text": "c\u{200b}d\n"}}]});
        let shown = self::shown("sampling/createMessage", &params);
        assert_eq!(shown["messages"][0]["content"]["Text"], "cd\n");
        let roots = presented("files", "roots/list", Some(b"{}"));
        assert!(matches!(roots, Ok(Some(Cow::Borrowed(b"{}")))));
    }

    #[test]
    fn requests_within_an_answer_are_presented_too() {
        let result = json!({
            "resultType": "input_required",
            "inputRequests": {"who": {"method": "elicitation/create", "params": {"message": "m\u{202e}"}}, "r": {"method": "roots/list"}},
            "requestState": "s",
        });
        let shown: Value =
            serde_json::from_slice(&presented_in("files", result.to_string().as_bytes()).unwrap())
                .unwrap();
        assert_eq!(
            shown["inputRequests"],
            json!({"who": {"method": "elicitation/create", "params": {"message": "The server \"files\" asks: m"}}, "r": {"method": "roots/list"}})
        );
        assert_eq!(shown["requestState"], "s");
    }
}
