//! Bodies: JSON, forms, multipart with files, text and bytes.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use serde_json::{Map, Value};

use super::style::{Pair, pairs};
use super::{ArgumentError, escape_text, text_or_json};
use crate::operation::{BodyForm, Encoding, Operation, Style};

impl Operation {
    pub(super) fn body_of(
        &self,
        arguments: &Map<String, Value>,
    ) -> Result<Option<(String, Vec<u8>)>, ArgumentError> {
        let Some(body) = &self.body else { return Ok(None) };
        let Some(value) = arguments.get(&body.key) else {
            return match body.is_required {
                true => Err(ArgumentError::new(&body.key, "is required")),
                false => Ok(None),
            };
        };
        let key = body.key.as_str();
        Ok(Some(match &body.form {
            BodyForm::Json => (body.media.clone(), value.to_string().into_bytes()),
            BodyForm::Text => {
                (format!("{}; charset=utf-8", body.media), text_or_json(value).into_bytes())
            }
            BodyForm::Bytes => (body.media.clone(), decoded(key, value)?),
            BodyForm::Form(encodings) => (body.media.clone(), form(key, value, encodings)?),
            BodyForm::Multipart(encodings, files) => {
                multipart(key, &body.media, value, encodings, files)?
            }
        }))
    }
}

fn members<'v>(key: &str, value: &'v Value) -> Result<&'v Map<String, Value>, ArgumentError> {
    value
        .as_object()
        .ok_or_else(|| ArgumentError::new(key, "must be an object: it is sent as a form"))
}

fn encoding_of<'e>(all: &'e [(String, Encoding)], name: &str) -> Option<&'e Encoding> {
    all.iter().find(|(own, _)| own == name).map(|(_, encoding)| encoding)
}

/// `application/x-www-form-urlencoded`. Objects are written deep, as nearly every server reads them, unless the description
/// says otherwise.
fn form(
    key: &str,
    value: &Value,
    encodings: &[(String, Encoding)],
) -> Result<Vec<u8>, ArgumentError> {
    let mut all: Vec<String> = Vec::new();
    for (name, value) in members(key, value)? {
        let encoding = encoding_of(encodings, name);
        let is_json =
            encoding.and_then(|one| one.media.as_deref()).is_some_and(crate::operation::is_json);
        let holds_parts = |value: &Value| value.is_object() || value.is_array();
        let usual = match value {
            Value::Object(_) => Style::Deep,
            Value::Array(all) if all.iter().any(holds_parts) => Style::Deep,
            _ => Style::Form,
        };
        let style = encoding.and_then(|one| one.style).unwrap_or(usual);
        let explode = encoding
            .and_then(|one| one.explode)
            .unwrap_or(matches!(style, Style::Form | Style::Deep));
        let argument = format!("{key}.{name}");
        let written = if is_json && holds_parts(value) {
            vec![Pair { name: name.clone(), value: escape_text(&value.to_string()) }]
        } else {
            pairs(&argument, name, value, style, explode, false)?
        };
        all.extend(written.iter().map(Pair::to_text));
    }
    Ok(all.join("&").into_bytes())
}

struct Part<'a> {
    name: &'a str,
    filename: Option<String>,
    media: Option<String>,
    bytes: Vec<u8>,
}

fn multipart(
    key: &str,
    media: &str,
    value: &Value,
    encodings: &[(String, Encoding)],
    files: &[String],
) -> Result<(String, Vec<u8>), ArgumentError> {
    let mut parts = Vec::new();
    for (name, value) in members(key, value)? {
        let media = encoding_of(encodings, name).and_then(|one| one.media.clone());
        let argument = format!("{key}.{name}");
        let each = match value {
            Value::Array(all) => all.iter().collect::<Vec<_>>(),
            Value::Null => continue,
            one => vec![one],
        };
        for one in each {
            parts.push(if files.contains(name) {
                file(&argument, name, media.as_deref(), one)?
            } else {
                let is_whole = one.is_object() || one.is_array();
                let media =
                    media.clone().or_else(|| is_whole.then(|| "application/json".to_owned()));
                Part { name, filename: None, media, bytes: text_or_json(one).into_bytes() }
            });
        }
    }
    let boundary = boundary(&parts);
    let mut out = Vec::new();
    for part in parts {
        let mut head = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"{}\"",
            quoted(part.name)
        );
        if let Some(filename) = part.filename {
            head.push_str(&format!("; filename=\"{}\"", quoted(&filename)));
        }
        if let Some(media) = part.media {
            head.push_str(&format!("\r\nContent-Type: {media}"));
        }
        head.push_str("\r\n\r\n");
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(&part.bytes);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    Ok((format!("{media}; boundary={boundary}"), out))
}

/// A file: base64 alone, or an object that names it.
fn file<'a>(
    argument: &str,
    name: &'a str,
    media: Option<&str>,
    value: &Value,
) -> Result<Part<'a>, ArgumentError> {
    let usual = || media.filter(|media| !media.contains('*')).map(str::to_owned);
    let octets = "application/octet-stream".to_owned();
    let Some(said) = value.as_object() else {
        let media = Some(usual().unwrap_or(octets));
        return Ok(Part {
            name,
            filename: Some("file".to_owned()),
            media,
            bytes: decoded(argument, value)?,
        });
    };
    let text = |key: &str| said.get(key).and_then(Value::as_str);
    let (bytes, plain) = match (said.get("base64"), text("text")) {
        (Some(base64), None) => (decoded(&format!("{argument}.base64"), base64)?, octets),
        (None, Some(text)) => (text.as_bytes().to_vec(), "text/plain; charset=utf-8".to_owned()),
        _ => return Err(ArgumentError::new(argument, "needs either `base64` or `text`")),
    };
    let given = text("contentType").map(str::to_owned);
    if given.as_ref().is_some_and(|media| media.contains(|c: char| c.is_control() || !c.is_ascii()))
    {
        return Err(ArgumentError::new(&format!("{argument}.contentType"), "is no content type"));
    }
    let filename = text("filename").unwrap_or("file").to_owned();
    Ok(Part { name, filename: Some(filename), media: given.or_else(usual).or(Some(plain)), bytes })
}

fn decoded(argument: &str, value: &Value) -> Result<Vec<u8>, ArgumentError> {
    let wrong = || ArgumentError::new(argument, "must be base64");
    let text = value.as_str().ok_or_else(wrong)?;
    // What some programs put in front, and line breaks.
    let text = text
        .strip_prefix("data:")
        .and_then(|rest| Some(rest.split_once(";base64,")?.1))
        .unwrap_or(text);
    let text: String = text.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    STANDARD.decode(&text).or_else(|_| URL_SAFE.decode(&text)).map_err(|_| wrong())
}

/// As browsers write names.
fn quoted(name: &str) -> String {
    name.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A")
}

/// A boundary that is in none of the parts.
fn boundary(parts: &[Part<'_>]) -> String {
    let mut number = 0;
    loop {
        let boundary = format!("----metamcp-{number:08}");
        let holds = |part: &Part<'_>| {
            part.bytes.windows(boundary.len()).any(|window| window == boundary.as_bytes())
        };
        if !parts.iter().any(holds) {
            return boundary;
        }
        number += 1;
    }
}
