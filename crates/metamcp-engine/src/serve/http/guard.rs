//! Which requests come in at all: decided by the head alone, before anything of the body is read. Pure.

use std::net::IpAddr;

/// The endpoint of Streamable HTTP.
pub const MCP: &str = "/mcp";
/// The same, with servers shown as they are.
pub const DIRECT: &str = "/mcp/direct";
/// The same, with the vocabulary of metatools.
pub const FULL: &str = "/mcp/full";
/// Below it one for each toolset, by its name.
pub const TOOLSETS: &str = "/mcp/toolsets/";
/// Where clients of 2024 listen.
pub const SSE: &str = "/sse";
/// Where they post.
pub const MESSAGES: &str = "/messages";
/// Where it is said who gives out tokens.
pub const METADATA: &str = "/.well-known/oauth-protected-resource";

/// What nearly every client accepts, as nearly all of them write it: it need not be taken apart each time.
const BOTH: &str = "application/json, text/event-stream";

/// What the operator allows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// Whether only this machine can reach us.
    pub local: bool,
    /// Names besides `localhost`, in lower case, without ports.
    pub hosts: Vec<String>,
    /// Web origins that may use us, in lower case.
    pub origins: Vec<String>,
    /// Whether the transport of 2024 is served too.
    pub legacy: bool,
    /// Toolsets that have an endpoint of their own.
    pub toolsets: Vec<String>,
    /// The toolset that all other endpoints are kept to, where the operator wants that.
    pub restricted_to: Option<String>,
    /// Whether each request stands alone.
    pub stateless: bool,
    /// Whether answers are always single documents.
    pub json: bool,
}

/// What is read of a request's head.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Head<'a> {
    /// `GET` and so on.
    pub method: &'a str,
    /// Without the query.
    pub path: &'a str,
    /// What the request line names, where it names a host.
    pub authority: Option<&'a str>,
    /// The `Host` header.
    pub host: Option<&'a str>,
    /// The `Origin` header: which page sent it, if one did.
    pub origin: Option<&'a str>,
    /// The `Content-Type` header.
    pub content_type: Option<&'a str>,
    /// Whether the body is compressed or the like.
    pub is_encoded: bool,
    /// The `Accept` headers, joined.
    pub accept: Option<&'a str>,
    /// A header that may stand only once and stands more often, or is no text.
    pub doubtful: Option<&'a str>,
}

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// A message to us.
    Post,
    /// The general lane of a session.
    Listen,
    /// The end of a session.
    Delete,
    /// The one stream of a client of 2024.
    Sse,
    /// A message of such a client.
    Messages,
    /// A browser asks whether a page may ask.
    Preflight,
    /// Who gives out tokens.
    Metadata,
    /// Whether we are up.
    Health,
}

/// Which of the endpoints a request came to. A session goes on where it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// The one that shows what the operator configured.
    #[default]
    Main,
    /// Servers as they are.
    Direct,
    /// The vocabulary of metatools.
    Full,
    /// One toolset and nothing else, by its place among `Rules::toolsets`.
    Toolset(u16),
}

impl Route {
    /// Whether only clients with a token get there, where tokens are asked for.
    pub fn is_guarded(self) -> bool {
        !matches!(self, Route::Preflight | Route::Metadata | Route::Health)
    }
}

/// Why a request does not come in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A header cannot be trusted.
    #[error("the header {name} is given more than once or is not plain text")]
    Doubtful {
        /// Its name.
        name: String,
    },
    /// HTTP/1.1 wants one.
    #[error("the request has no Host header")]
    NoHost,
    /// It was meant for somebody else.
    #[error(
        "the host {host:?} is not served here; if it is a name of this gateway, add it to --allowed-hosts"
    )]
    Host {
        /// Whom it was meant for.
        host: String,
    },
    /// A page sent it that may not.
    #[error(
        "pages of the origin {origin:?} may not use this gateway; to let them, add it to --allowed-origins"
    )]
    Origin {
        /// The page's origin.
        origin: String,
    },
    /// A page without an origin of its own sent it: it could be any page.
    #[error(
        "pages without an origin of their own (Origin: null: sandboxed or opened from a file) may not use this gateway"
    )]
    NoOrigin,
    /// There is nothing.
    #[error("there is nothing at this path; MCP is spoken at {MCP}")]
    Path,
    /// Not in this way.
    #[error("the method is not allowed here; allowed: {allowed}")]
    Method {
        /// What is.
        allowed: &'static str,
    },
    /// Not in this form.
    #[error("the Content-Type must be application/json")]
    ContentType,
    /// Not as it is written.
    #[error("the body must not be compressed: send it without Content-Encoding")]
    Encoding,
    /// The answer could not be read.
    #[error("the client must accept {wanted}")]
    Accept {
        /// What it must accept.
        wanted: &'static str,
    },
}

impl Refusal {
    /// The HTTP status it is answered with.
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

/// A request that may come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Admitted<'a> {
    /// What it is for.
    pub route: Route,
    /// Where it came to.
    pub endpoint: Endpoint,
    /// The origin whose page may see the answer.
    pub shown_to: Option<&'a str>,
}

impl Rules {
    /// Lets a request in, or says why not. Whether it carries the right token is another question.
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

    /// Whether a name is one of ours. A bare address cannot be pointed at us by somebody else's name server, so where
    /// other machines may come in, any address will do.
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

    /// Whether an endpoint shows this toolset and nothing else.
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

/// The host of `host[:port]`; `None` where that is not its form.
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

/// Whether an origin is a page of this machine; `null`, which sandboxed pages have, is not.
fn is_loopback_origin(origin: &str) -> bool {
    let origin = origin.to_ascii_lowercase();
    let host = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    host.and_then(without_port).is_some_and(is_loopback_name)
}

fn is_json(content_type: &str) -> bool {
    let kind = content_type.split(';').next().unwrap_or_default();
    kind.trim().eq_ignore_ascii_case("application/json")
}

/// Whether a list of accepted types holds one, and not with the weight of nothing. What names a type more closely counts.
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

/// A header as it may be repeated in an answer.
fn shown(text: &str) -> String {
    const LONGEST: usize = 100;
    text.chars().filter(|c| !c.is_control()).take(LONGEST).collect()
}

#[cfg(test)]
mod tests;
