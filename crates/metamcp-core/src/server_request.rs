//! Requests of servers to the person or the model behind a client, as that client gets to see them.
//! Owns: whose words they are, said in front of them; what is taken out.      Never: changes what an answer is checked by.
//! In: a server's name, a method, its params as the server wrote them.  Out: the params for the client.
//! Tests: below; `metamcp/tests/hazards/questions.rs`.

use std::borrow::Cow;

use metamcp_wire::modern::input;
use metamcp_wire::{object, write};

use crate::{direct, text};

/// Longest message of an elicitation: a person reads it in a dialog.
const MAX_MESSAGE: usize = 4_000;

/// The params of a server's request for a client: an elicitation says which server asks, line by line, so that no text of a
/// server can pass for a question of metamcp's own; nothing in it is invisible or moves a cursor.
pub fn presented<'a>(server: &str, method: &str, params: &'a [u8]) -> Cow<'a, [u8]> {
    match method {
        "elicitation/create" => Cow::Owned(elicitation(server, params)),
        "sampling/createMessage" => direct::cleaned_words(params, &["text", "systemPrompt"]),
        _ => Cow::Borrowed(params),
    }
}

/// The same for every request within an `input_required` result. All other members stay; of several members of one name,
/// which the reader has refused already, none is left.
pub fn presented_in(server: &str, result: &[u8]) -> Vec<u8> {
    let Ok(required) = input::required(result) else { return result.to_vec() };
    let mut requests = vec![b'{'];
    for question in &required.questions {
        if requests.len() > 1 {
            requests.push(b',');
        }
        write::json_string(&mut requests, &question.key);
        requests.extend_from_slice(b":{\"method\":");
        write::json_string(&mut requests, &question.method);
        if let Some(params) = &question.params {
            requests.extend_from_slice(b",\"params\":");
            requests.extend_from_slice(&presented(server, &question.method, params));
        }
        requests.push(b'}');
    }
    requests.push(b'}');
    object::set_member(result, "inputRequests", &requests)
}

fn elicitation(server: &str, params: &[u8]) -> Vec<u8> {
    let mut params = direct::cleaned_words(params, &["description", "title"]).into_owned();
    let Ok([message, url]) = object::pick(&params, ["message", "url"]) else { return params };
    let message = message.and_then(object::text).unwrap_or_default().into_owned();
    let url = url.and_then(object::text).map(Cow::into_owned);
    let mut quoted = Vec::new();
    write::json_string(&mut quoted, &attributed(server, &message));
    params = object::set_member(&params, "message", &quoted);
    if let Some(url) = url {
        let mut quoted = Vec::new();
        write::json_string(&mut quoted, &direct::visible(&url));
        params = object::set_member(&params, "url", &quoted);
    }
    params
}

/// A server's words with its name in front. Where there are several lines, each is marked as a quotation: what stands
/// below an empty line would otherwise look like somebody else's words.
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
        serde_json::from_slice(&presented("files", method, raw.as_bytes())).unwrap()
    }

    #[test]
    fn an_elicitation_names_its_server_and_hides_nothing() {
        let params = json!({
            "message": "Your \u{1b}[31mname\u{202e}?\u{e0041}",
            "requestedSchema": {"type": "object", "properties": {
                "name": {"type": "string", "title": "N\u{200b}ame", "description": "a\u{7}", "default": "x\u{200b}"},
                "size": {"type": "string", "enum": ["s"], "enumNames": ["Sm\u{202e}all"]},
                "kind": {"oneOf": [{"const": "k\u{200b}", "title": "\u{1b}]0;x\u{7}Kind"}]},
            }},
        });
        let shown = shown("elicitation/create", &params);
        assert_eq!(shown["message"], "The server \"files\" asks: Your name?");
        let properties = &shown["requestedSchema"]["properties"];
        assert_eq!(properties["name"]["title"], "Name");
        assert_eq!(properties["name"]["description"], "a");
        assert_eq!(properties["size"]["enumNames"], json!(["Small"]));
        assert_eq!(properties["kind"]["oneOf"][0]["title"], "Kind");
        // What an answer is checked by stays as the server wrote it.
        assert_eq!(properties["name"]["default"], "x\u{200b}");
        assert_eq!(properties["kind"]["oneOf"][0]["const"], "k\u{200b}");
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
        assert!(matches!(presented("files", "roots/list", b"{}"), Cow::Borrowed(b"{}")));
    }

    #[test]
    fn requests_within_an_answer_are_presented_too() {
        let result = json!({
            "resultType": "input_required",
            "inputRequests": {"who": {"method": "elicitation/create", "params": {"message": "m\u{202e}"}}, "r": {"method": "roots/list"}},
            "requestState": "s",
        });
        let shown: Value =
            serde_json::from_slice(&presented_in("files", result.to_string().as_bytes())).unwrap();
        assert_eq!(
            shown["inputRequests"],
            json!({"who": {"method": "elicitation/create", "params": {"message": "The server \"files\" asks: m"}}, "r": {"method": "roots/list"}})
        );
        assert_eq!(shown["requestState"], "s");
    }
}
