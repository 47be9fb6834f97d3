//! Writing response heads, with the same content as hyper's.

use hyper::body::Body;
use hyper::header::CONNECTION;
use hyper::{Response, StatusCode};
use metamcp_types::date;
use metamcp_wire::write;

use crate::clock;
use crate::serve::http::reply::{self, Answer, Content};

/// Writes response heads into one reused buffer.
#[derive(Default)]
pub(super) struct HeadWriter {
    /// The head written last.
    pub(super) bytes: Vec<u8>,
    /// The second of the last `date` header, and its text.
    second: u64,
    date: String,
}

impl HeadWriter {
    /// Writes the head of a response that is a document or empty. Returns whether the connection closes after it: if
    /// `closes`, or if the response says so.
    pub(super) fn compose(&mut self, response: &Response<Answer>, closes: bool) -> bool {
        let second = clock::unix_millis() / 1000;
        if second != self.second {
            self.second = second;
            self.date = date::http(second);
        }
        let out = &mut self.bytes;
        out.clear();
        match response.status() {
            StatusCode::OK => out.extend_from_slice(b"HTTP/1.1 200 OK\r\n"),
            status => {
                out.extend_from_slice(b"HTTP/1.1 ");
                out.extend_from_slice(status.as_str().as_bytes());
                out.push(b' ');
                out.extend_from_slice(status.canonical_reason().unwrap_or("").as_bytes());
                out.extend_from_slice(b"\r\n");
            }
        }
        if let Content::Document(Some(_)) = response.body().content {
            out.extend_from_slice(b"content-type: ");
            out.extend_from_slice(reply::JSON.as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        for (name, value) in response.headers() {
            out.extend_from_slice(name.as_str().as_bytes());
            out.extend_from_slice(b": ");
            out.extend_from_slice(value.as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        let says_so = response.headers().get(CONNECTION).is_some_and(|value| value == "close");
        if closes && !says_so {
            out.extend_from_slice(b"connection: close\r\n");
        }
        // A 204 must not have a Content-Length (RFC 9110, 8.6).
        if response.status() != StatusCode::NO_CONTENT {
            out.extend_from_slice(b"content-length: ");
            write::number(out, response.body().size_hint().lower());
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"date: ");
        out.extend_from_slice(self.date.as_bytes());
        out.extend_from_slice(b"\r\n\r\n");
        closes || says_so
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn written(response: &Response<Answer>, closes: bool) -> (String, bool) {
        let mut writer = HeadWriter::default();
        let closes = writer.compose(response, closes);
        let text = String::from_utf8(writer.bytes).unwrap();
        let (head, date) = text.split_once("date: ").unwrap();
        assert!(date.ends_with(" GMT\r\n\r\n"), "{date}");
        (head.to_owned(), closes)
    }

    #[test]
    fn a_head_says_the_status_the_headers_and_how_it_goes_on() {
        let json = "content-type: application/json\r\n";
        let mut answer = reply::document("{}".into());
        let plain = format!("HTTP/1.1 200 OK\r\n{json}content-length: 2\r\n");
        assert_eq!(written(&answer, false), (plain, false));
        let last = format!("HTTP/1.1 200 OK\r\n{json}connection: close\r\ncontent-length: 2\r\n");
        assert_eq!(written(&answer, true), (last.clone(), true));
        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        assert_eq!(written(&answer, false), (last.clone(), true));
        assert_eq!(written(&answer, true), (last, true));
        let refused = written(&reply::refusal(StatusCode::NOT_FOUND, -1, "no"), false).0;
        assert!(refused.starts_with("HTTP/1.1 404 Not Found\r\n"), "{refused}");
        let nothing = written(&reply::empty(StatusCode::NO_CONTENT), false).0;
        assert_eq!(nothing, "HTTP/1.1 204 No Content\r\n");
    }
}
