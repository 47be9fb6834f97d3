//! Admission of a browser's request by its head alone: the host (DNS rebinding), the origin, the method, the type of the
//! body. Pure.

/// The parts of a head that decide. A header that is given twice or is not text is `Some("")`, which fits nowhere.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Head<'a> {
    pub(super) method: &'a str,
    /// Whether the request line names a host too.
    pub(super) is_absolute: bool,
    pub(super) host: Option<&'a str>,
    pub(super) origin: Option<&'a str>,
    /// `Sec-Fetch-Site`, which browsers send and scripts cannot.
    pub(super) site: Option<&'a str>,
    /// `Sec-Fetch-Mode`.
    pub(super) mode: Option<&'a str>,
    pub(super) content_type: Option<&'a str>,
}

/// Why a request is turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Stranger {
    #[error("this address does not belong to the page; run `metamcp ui` for one that does")]
    Host,
    #[error("another site may not use the page")]
    Origin,
    #[error("this is neither a GET nor a POST")]
    Method,
    #[error("a request to the page is application/json")]
    Type,
}

/// Whether the request comes from the page itself, or is a person's first look at it.
pub(super) fn admit(head: &Head<'_>, port: u16) -> Result<(), Stranger> {
    let ours = [format!("127.0.0.1:{port}"), format!("localhost:{port}")];
    let host = head.host.filter(|host| ours.iter().any(|our| our == host)).ok_or(Stranger::Host)?;
    if head.is_absolute {
        return Err(Stranger::Host);
    }
    let is_own_site = head.site.is_none_or(|site| matches!(site, "same-origin" | "none"));
    match head.method {
        "GET" | "HEAD" => {
            // A link somewhere else may lead here, which shows nothing: the strict cookie does not come along.
            let is_visit = head.mode == Some("navigate");
            let is_own = head.origin.is_none_or(|origin| is_origin(origin, host));
            if is_own && (is_own_site || is_visit) { Ok(()) } else { Err(Stranger::Origin) }
        }
        "POST" => {
            // Browsers always send it with a POST; what sends none has to prove who it is no less.
            if !head.origin.is_some_and(|origin| is_origin(origin, host)) || !is_own_site {
                return Err(Stranger::Origin);
            }
            let kind = head.content_type.unwrap_or_default();
            let kind = kind.split(';').next().unwrap_or_default().trim();
            if kind.eq_ignore_ascii_case("application/json") { Ok(()) } else { Err(Stranger::Type) }
        }
        _ => Err(Stranger::Method),
    }
}

fn is_origin(origin: &str, host: &str) -> bool {
    origin.strip_prefix("http://") == Some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: Head<'_> = Head {
        method: "GET",
        is_absolute: false,
        host: Some("127.0.0.1:7000"),
        origin: None,
        site: None,
        mode: None,
        content_type: None,
    };
    const POST: Head<'_> = Head {
        method: "POST",
        origin: Some("http://127.0.0.1:7000"),
        site: Some("same-origin"),
        content_type: Some("application/json"),
        ..GET
    };

    #[test]
    fn only_our_own_pages_get_in() {
        use Stranger::{Host, Method, Origin, Type};
        for (head, expect) in [
            (GET, Ok(())),
            (Head { method: "HEAD", ..GET }, Ok(())),
            (Head { host: Some("localhost:7000"), ..GET }, Ok(())),
            (Head { host: Some("localhost"), ..GET }, Err(Host)),
            (Head { host: Some("127.0.0.1:7001"), ..GET }, Err(Host)),
            (Head { host: Some("127.0.0.1.evil.example:7000"), ..GET }, Err(Host)),
            (Head { host: Some("evil.example:7000"), ..GET }, Err(Host)),
            (Head { host: Some("LOCALHOST:7000"), ..GET }, Err(Host)),
            (Head { host: Some("[::1]:7000"), ..GET }, Err(Host)),
            (Head { host: Some(""), ..GET }, Err(Host)),
            (Head { host: None, ..GET }, Err(Host)),
            (Head { is_absolute: true, ..GET }, Err(Host)),
            (Head { site: Some("none"), mode: Some("navigate"), ..GET }, Ok(())),
            (Head { site: Some("cross-site"), mode: Some("navigate"), ..GET }, Ok(())),
            (Head { site: Some("cross-site"), mode: Some("no-cors"), ..GET }, Err(Origin)),
            (Head { site: Some("same-site"), mode: Some("cors"), ..GET }, Err(Origin)),
            (Head { origin: Some("http://evil.example"), ..GET }, Err(Origin)),
            (Head { origin: Some("null"), ..GET }, Err(Origin)),
            (POST, Ok(())),
            (Head { site: None, ..POST }, Ok(())),
            (Head { content_type: Some("Application/JSON; charset=utf-8"), ..POST }, Ok(())),
            (Head { origin: None, ..POST }, Err(Origin)),
            (Head { origin: Some("null"), ..POST }, Err(Origin)),
            (Head { origin: Some("http://127.0.0.1:7001"), ..POST }, Err(Origin)),
            (Head { origin: Some("https://127.0.0.1:7000"), ..POST }, Err(Origin)),
            // The right one for the other name.
            (Head { host: Some("localhost:7000"), ..POST }, Err(Origin)),
            (Head { site: Some("same-site"), ..POST }, Err(Origin)),
            (Head { site: Some("cross-site"), ..POST }, Err(Origin)),
            (Head { site: Some(""), ..POST }, Err(Origin)),
            (Head { content_type: Some("text/plain"), ..POST }, Err(Type)),
            (Head { content_type: Some("application/jsonx"), ..POST }, Err(Type)),
            (Head { content_type: None, ..POST }, Err(Type)),
            (Head { method: "PUT", ..POST }, Err(Method)),
            (Head { method: "OPTIONS", ..GET }, Err(Method)),
        ] {
            assert_eq!(admit(&head, 7000), expect, "{head:?}");
        }
    }
}
