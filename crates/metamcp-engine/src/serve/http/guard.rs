//! Admission by the head alone, before any of the body is read: host, origin (DNS rebinding), path, method, types. Pure.

use std::net::IpAddr;

/// The endpoint of Streamable HTTP.
pub const MCP: &str = "/mcp";
/// The same, with the direct surface.
pub const DIRECT: &str = "/mcp/direct";
/// The same, with the full surface.
pub const FULL: &str = "/mcp/full";
/// Prefix of the endpoints of toolsets.
pub const TOOLSETS: &str = "/mcp/toolsets/";
/// Metrics, for Prometheus and its like.
pub const METRICS: &str = "/metrics";
/// The stream of the HTTP+SSE transport of 2024.
pub const SSE: &str = "/sse";
/// The endpoint its clients post to.
pub const MESSAGES: &str = "/messages";
/// OAuth protected resource metadata (RFC 9728).
pub const METADATA: &str = "/.well-known/oauth-protected-resource";

/// The `Accept` of nearly every client, recognised without parsing it.
const BOTH: &str = "application/json, text/event-stream";

/// What the operator configured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// Whether the listener is on a loopback address.
    pub local: bool,
    /// Allowed host names besides `localhost`, in lower case, without ports.
    pub hosts: Vec<String>,
    /// Allowed web origins, in lower case.
    pub origins: Vec<String>,
    /// Whether the HTTP+SSE transport of 2024 is served too.
    pub legacy: bool,
    /// Toolsets with their own endpoint.
    pub toolsets: Vec<String>,
    /// The toolset all other endpoints are restricted to, if configured.
    pub restricted_to: Option<String>,
    /// Whether each request stands alone.
    pub stateless: bool,
    /// Whether answers are always single documents.
    pub json: bool,
}

/// The parts of a request's head that decide.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Head<'a> {
    /// `GET` and so on.
    pub method: &'a str,
    /// Without the query.
    pub path: &'a str,
    /// The authority of the request line, if it has one.
    pub authority: Option<&'a str>,
    /// The `Host` header.
    pub host: Option<&'a str>,
    /// The `Origin` header, which browsers send.
    pub origin: Option<&'a str>,
    /// The `Content-Type` header.
    pub content_type: Option<&'a str>,
    /// Whether `Content-Encoding` is anything but identity.
    pub is_encoded: bool,
    /// The `Accept` headers, joined.
    pub accept: Option<&'a str>,
    /// A single-value header that is repeated or not text.
    pub doubtful: Option<&'a str>,
}

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// POST of messages.
    Post,
    /// GET of a session's general stream.
    Listen,
    /// DELETE of a session.
    Delete,
    /// The stream of an HTTP+SSE client.
    Sse,
    /// A POST of such a client.
    Messages,
    /// A CORS preflight.
    Preflight,
    /// OAuth protected resource metadata.
    Metadata,
    /// Health check.
    Health,
    /// What the gateway counts.
    Metrics,
}

/// The endpoint of a request. A session is valid only at the one where it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// The surface the operator configured.
    #[default]
    Main,
    /// The direct surface.
    Direct,
    /// The full surface.
    Full,
    /// One toolset, by its index in `Rules::toolsets`.
    Toolset(u16),
}

impl Route {
    /// Whether it needs a token, where tokens are configured.
    pub fn is_guarded(self) -> bool {
        !matches!(self, Route::Preflight | Route::Metadata | Route::Health)
    }
}

/// Why a request is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A header is repeated or not text.
    #[error("the header {name} is given more than once or is not plain text")]
    Doubtful {
        /// Its name.
        name: String,
    },
    /// No `Host` header.
    #[error("the request has no Host header")]
    NoHost,
    /// The host is not allowed.
    #[error(
        "the host {host:?} is not served here; if it is a name of this gateway, add it to --allowed-hosts"
    )]
    Host {
        /// As the client sent it.
        host: String,
    },
    /// The origin is not allowed.
    #[error(
        "pages of the origin {origin:?} may not use this gateway; to let them, add it to --allowed-origins"
    )]
    Origin {
        /// As the browser sent it.
        origin: String,
    },
    /// An opaque origin (`null`): it could be any page.
    #[error(
        "pages without an origin of their own (Origin: null: sandboxed or opened from a file) may not use this gateway"
    )]
    NoOrigin,
    /// Unknown path.
    #[error("there is nothing at this path; MCP is spoken at {MCP}")]
    Path,
    /// Method not allowed.
    #[error("the method is not allowed here; allowed: {allowed}")]
    Method {
        /// The `Allow` header.
        allowed: &'static str,
    },
    /// Unsupported Content-Type.
    #[error("the Content-Type must be application/json")]
    ContentType,
    /// Unsupported Content-Encoding.
    #[error("the body must not be compressed: send it without Content-Encoding")]
    Encoding,
    /// `Accept` excludes every form of response.
    #[error("the client must accept {wanted}")]
    Accept {
        /// The types it must accept.
        wanted: &'static str,
    },
}

impl Refusal {
    /// Whether it says who may come in, rather than how a request is written.
    pub fn is_about_access(&self) -> bool {
        self.status() == 403
    }

    /// The HTTP status.
    pub fn status(&self) -> u16 {
        match self {
            Refusal::Doubtful { .. } | Refusal::NoHost => 400,
            Refusal::Host { .. } | Refusal::Origin { .. } | Refusal::NoOrigin => 403,
            Refusal::Path => 404,
            Refusal::Method { .. } => 405,
            Refusal::Accept { .. } => 406,
            Refusal::ContentType | Refusal::Encoding => 415,
        }
    }
}

/// An admitted request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Admitted<'a> {
    /// By path and method.
    pub route: Route,
    /// By path.
    pub endpoint: Endpoint,
    /// The origin for CORS headers.
    pub shown_to: Option<&'a str>,
}

impl Rules {
    /// Admits a request or says why not. Tokens are checked elsewhere.
    pub fn admit<'a>(&self, head: &Head<'a>) -> Result<Admitted<'a>, Refusal> {
        if let Some(name) = head.doubtful {
            return Err(Refusal::Doubtful { name: name.to_owned() });
        }
        if matches!(head.method, "GET" | "HEAD") && matches!(head.path, "/healthz" | "/readyz") {
            let (route, endpoint) = (Route::Health, Endpoint::Main);
            return Ok(Admitted { route, endpoint, shown_to: None });
        }
        let host = head.host.ok_or(Refusal::NoHost)?;
        for host in [Some(host), head.authority].into_iter().flatten() {
            if !self.is_ours(host) {
                return Err(Refusal::Host { host: shown(host) });
            }
        }
        let shown_to = match head.origin {
            None => None,
            Some(origin) if self.is_listed(origin) => Some(origin),
            Some(origin) if self.local && is_loopback_origin(origin) => None,
            Some(origin) if origin.eq_ignore_ascii_case("null") => return Err(Refusal::NoOrigin),
            Some(origin) => return Err(Refusal::Origin { origin: shown(origin) }),
        };
        let route = self.route(head, shown_to.is_some())?;
        if matches!(route, Route::Post | Route::Messages) && !head.content_type.is_some_and(is_json)
        {
            return Err(Refusal::ContentType);
        }
        if head.is_encoded {
            return Err(Refusal::Encoding);
        }
        self.check_accept(route, head.accept)?;
        let endpoint = match route {
            Route::Metadata => self.endpoint(&head.path[METADATA.len()..]),
            _ => self.endpoint(head.path),
        };
        Ok(Admitted { route, endpoint: endpoint.unwrap_or_default(), shown_to })
    }

    fn route(&self, head: &Head<'_>, from_a_page: bool) -> Result<Route, Refusal> {
        let (routes, allowed): (&[(&str, Route)], _) = match head.path {
            path if self.endpoint(path).is_some() && self.stateless => {
                (&[("POST", Route::Post)], "POST")
            }
            path if self.endpoint(path).is_some() => (
                &[("POST", Route::Post), ("GET", Route::Listen), ("DELETE", Route::Delete)],
                "POST, GET, DELETE",
            ),
            SSE if self.legacy => (&[("GET", Route::Sse)], "GET"),
            MESSAGES if self.legacy => (&[("POST", Route::Messages)], "POST"),
            METRICS => (&[("GET", Route::Metrics)], "GET"),
            path if self.is_metadata(path) => (&[("GET", Route::Metadata)], "GET"),
            _ => return Err(Refusal::Path),
        };
        if head.method == "OPTIONS" && from_a_page {
            return Ok(Route::Preflight);
        }
        let found = routes.iter().find(|(method, _)| *method == head.method);
        found.map(|(_, route)| *route).ok_or(Refusal::Method { allowed })
    }

    fn check_accept(&self, route: Route, accept: Option<&str>) -> Result<(), Refusal> {
        let accepts = |kind: &str, subkind: &str| {
            accept.is_none_or(|all| all == BOTH || accepts(all, kind, subkind))
        };
        let (document, events) = (accepts("application", "json"), accepts("text", "event-stream"));
        let (is_fine, wanted) = match route {
            Route::Post if self.json => (document, "application/json"),
            Route::Post => (document && events, "both application/json and text/event-stream"),
            Route::Listen | Route::Sse => (events, "text/event-stream"),
            _ => return Ok(()),
        };
        if is_fine { Ok(()) } else { Err(Refusal::Accept { wanted }) }
    }

    /// Whether a host is allowed. DNS rebinding needs a name, so a gateway that is not local accepts any IP address.
    fn is_ours(&self, host: &str) -> bool {
        let Some(name) = without_port(host) else { return false };
        let is_listed = || self.hosts.iter().any(|listed| listed.eq_ignore_ascii_case(name));
        if is_loopback_name(name) || is_listed() {
            return true;
        }
        !self.local && address(name).is_some()
    }

    /// The endpoint at a path.
    fn endpoint(&self, path: &str) -> Option<Endpoint> {
        match path {
            MCP => Some(Endpoint::Main),
            DIRECT => Some(Endpoint::Direct),
            FULL => Some(Endpoint::Full),
            _ => {
                let name = path.strip_prefix(TOOLSETS)?;
                let place = self.toolsets.iter().position(|known| known == name)?;
                u16::try_from(place).ok().map(Endpoint::Toolset)
            }
        }
    }

    /// Whether an endpoint is restricted to this toolset.
    pub fn is_kept_to(&self, endpoint: Endpoint, toolset: &str) -> bool {
        match endpoint {
            Endpoint::Toolset(place) => {
                self.toolsets.get(usize::from(place)).is_some_and(|name| name == toolset)
            }
            Endpoint::Main | Endpoint::Direct | Endpoint::Full => {
                self.restricted_to.as_deref() == Some(toolset)
            }
        }
    }

    /// The path of an endpoint.
    pub fn path(&self, endpoint: Endpoint) -> String {
        match endpoint {
            Endpoint::Main => MCP.to_owned(),
            Endpoint::Direct => DIRECT.to_owned(),
            Endpoint::Full => FULL.to_owned(),
            Endpoint::Toolset(place) => {
                let name = self.toolsets.get(usize::from(place)).map_or("", String::as_str);
                format!("{TOOLSETS}{name}")
            }
        }
    }

    fn is_metadata(&self, path: &str) -> bool {
        path.strip_prefix(METADATA)
            .is_some_and(|rest| matches!(rest, "" | SSE) || self.endpoint(rest).is_some())
    }

    fn is_listed(&self, origin: &str) -> bool {
        self.origins.iter().any(|listed| listed.eq_ignore_ascii_case(origin))
    }
}

/// The host of `host[:port]`; `None` if it is malformed.
fn without_port(host: &str) -> Option<&str> {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => {
            let end = rest.find(']')?;
            (&host[..end + 2], &host[end + 2..])
        }
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let digits = match port.strip_prefix(':') {
        Some(digits) => digits,
        None if port.is_empty() => "0",
        None => return None,
    };
    let is_port =
        !digits.is_empty() && digits.len() <= 5 && digits.bytes().all(|b| b.is_ascii_digit());
    (is_port && !name.is_empty()).then_some(name)
}

fn address(name: &str) -> Option<IpAddr> {
    let bare = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
    bare.parse().ok()
}

fn is_loopback_name(name: &str) -> bool {
    name.eq_ignore_ascii_case("localhost")
        || address(name).is_some_and(|address| address.is_loopback())
}

/// Whether an origin is on this machine; the `null` of sandboxed pages is not.
fn is_loopback_origin(origin: &str) -> bool {
    let origin = origin.to_ascii_lowercase();
    let host = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    host.and_then(without_port).is_some_and(is_loopback_name)
}

fn is_json(content_type: &str) -> bool {
    let kind = content_type.split(';').next().unwrap_or_default();
    kind.trim().eq_ignore_ascii_case("application/json")
}

/// Whether an `Accept` list holds a type with a weight above zero. The most specific entry counts.
fn accepts(all: &str, kind: &str, subkind: &str) -> bool {
    let ranges = all.split(',').filter_map(|one| {
        let mut parts = one.split(';');
        let (first, second) = parts.next().unwrap_or_default().trim().split_once('/')?;
        let fits = |given: &str, wanted: &str| given == "*" || given.eq_ignore_ascii_case(wanted);
        let closeness = usize::from(first != "*") + usize::from(second != "*");
        let refused = parts.any(|part| {
            let (name, weight) = part.split_once('=').unwrap_or_default();
            name.trim().eq_ignore_ascii_case("q")
                && weight.trim().parse().is_ok_and(|weight: f32| weight <= 0.0)
        });
        (fits(first, kind) && fits(second, subkind)).then_some((closeness, !refused))
    });
    ranges.max().is_some_and(|(_, wanted)| wanted)
}

/// A header value, bounded, for an error message.
fn shown(text: &str) -> String {
    const LONGEST: usize = 100;
    text.chars().filter(|c| !c.is_control()).take(LONGEST).collect()
}

#[cfg(test)]
mod tests;
