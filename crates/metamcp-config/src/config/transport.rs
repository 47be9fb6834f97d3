//! How a server is reached, as its entry says, and everything that is asked of that. To be reached in a new way takes a
//! variant here and a line where `upstream/transport.rs` of the engine chooses.

use std::borrow::Cow;
use std::path::PathBuf;

use metamcp_types::secret::Secret;

/// See the module. Whoever only wants to know something of it asks the methods.
#[derive(Debug, Clone, PartialEq)]
pub enum Transport {
    /// A local process spoken to over its stdin and stdout.
    Stdio(LocalCommand),
    /// A remote server.
    Http(RemoteEndpoint),
    /// An API that has no MCP server: its description makes one of it.
    OpenApi(ApiEndpoint),
}

/// What starts a local server.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LocalCommand {
    /// The program. Never split, never given to a shell.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables on top of the inherited allowlist, in file order.
    pub env: Vec<(String, Secret)>,
    /// Where it runs; a relative path is taken from the gateway's own working directory.
    pub cwd: Option<PathBuf>,
}

/// Where a remote server is.
#[derive(Debug, Clone, PartialEq)]
pub struct RemoteEndpoint {
    /// Its address, `http` or `https`.
    pub url: String,
    /// Headers of every request, in file order.
    pub headers: Vec<(String, Secret)>,
    /// Which of the two HTTP transports it speaks.
    pub kind: HttpKind,
    /// What few servers need.
    pub options: Box<HttpOptions>,
}

/// A REST API and its description.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiEndpoint {
    /// Where its OpenAPI description is: an address, or a file.
    pub description: String,
    /// What the file held when the configuration was read, as SHA-256: nothing else is used.
    pub digest: Option<String>,
    /// Operations that become tools; all where none is named.
    pub include: Vec<String>,
    /// Operations that do not.
    pub exclude: Vec<String>,
    /// Where the API is, if its description does not say or is not to decide it, and what its requests carry. A
    /// credential for one of its security schemes is among the headers, under a name that no header can have.
    pub remote: RemoteEndpoint,
}

/// In front of the name of a security scheme, in the place of a header's name.
const CREDENTIAL: &str = "credentials:";

impl ApiEndpoint {
    /// Whether the description is fetched rather than read from a disk.
    pub fn is_fetched(&self) -> bool {
        let scheme = self.description.split("://").next().unwrap_or_default();
        scheme.len() < self.description.len()
            && ["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known))
    }

    /// Where the API is, if the configuration says so.
    pub fn base_url(&self) -> Option<&str> {
        Some(self.remote.url.as_str()).filter(|url| !url.is_empty())
    }

    /// The name under which a credential is kept among the headers.
    pub fn credential_name(scheme: &str) -> String {
        format!("{CREDENTIAL}{scheme}")
    }

    /// Headers of every request.
    pub fn headers(&self) -> impl Iterator<Item = &(String, Secret)> {
        self.remote.headers.iter().filter(|(name, _)| !name.starts_with(CREDENTIAL))
    }

    /// Credentials by the names of their security schemes.
    pub fn credentials(&self) -> impl Iterator<Item = (&str, &Secret)> {
        self.remote
            .headers
            .iter()
            .filter_map(|(name, value)| Some((name.strip_prefix(CREDENTIAL)?, value)))
    }
}

impl From<ApiEndpoint> for Transport {
    fn from(api: ApiEndpoint) -> Transport {
        Transport::OpenApi(api)
    }
}

impl From<LocalCommand> for Transport {
    fn from(local: LocalCommand) -> Transport {
        Transport::Stdio(local)
    }
}

impl From<RemoteEndpoint> for Transport {
    fn from(remote: RemoteEndpoint) -> Transport {
        Transport::Http(remote)
    }
}

impl Transport {
    /// What starts it, where it is a process of ours.
    pub fn local(&self) -> Option<&LocalCommand> {
        match self {
            Transport::Stdio(local) => Some(local),
            Transport::Http(_) | Transport::OpenApi(_) => None,
        }
    }

    /// Where it is, if that is elsewhere.
    pub fn remote(&self) -> Option<&RemoteEndpoint> {
        match self {
            Transport::Stdio(_) => None,
            Transport::Http(remote) | Transport::OpenApi(ApiEndpoint { remote, .. }) => {
                Some(remote)
            }
        }
    }

    /// The description that makes a server of it, if one does.
    pub fn api(&self) -> Option<&ApiEndpoint> {
        match self {
            Transport::OpenApi(api) => Some(api),
            Transport::Stdio(_) | Transport::Http(_) => None,
        }
    }

    /// The same, to be changed.
    pub fn api_mut(&mut self) -> Option<&mut ApiEndpoint> {
        match self {
            Transport::OpenApi(api) => Some(api),
            Transport::Stdio(_) | Transport::Http(_) => None,
        }
    }

    /// Whether it runs elsewhere: there is nothing to start.
    pub fn is_remote(&self) -> bool {
        self.remote().is_some()
    }

    /// The program that starts it, where there is one.
    pub fn command(&self) -> Option<&str> {
        self.local().map(|local| local.command.as_str())
    }

    /// The transport's name, as an entry may give it under `type`.
    pub fn name(&self) -> &'static str {
        match self {
            Transport::Stdio(_) => "stdio",
            Transport::Http(RemoteEndpoint { kind: HttpKind::Sse, .. }) => "sse",
            Transport::Http(_) => "http",
            Transport::OpenApi(_) => "openapi",
        }
    }

    /// What people know it by: its command line, word by word, or its address.
    pub fn words(&self) -> Vec<&str> {
        match self {
            Transport::Stdio(LocalCommand { command, args, .. }) => {
                std::iter::once(command).chain(args).map(String::as_str).collect()
            }
            Transport::Http(remote) => vec![&remote.url],
            Transport::OpenApi(api) => {
                std::iter::once(api.description.as_str()).chain(api.base_url()).collect()
            }
        }
    }

    /// What it is given by name: variables of its environment, or headers.
    pub fn given(&self) -> &[(String, Secret)] {
        match self {
            Transport::Stdio(local) => &local.env,
            Transport::Http(remote) | Transport::OpenApi(ApiEndpoint { remote, .. }) => {
                &remote.headers
            }
        }
    }

    /// The same, to be changed.
    pub fn given_mut(&mut self) -> &mut Vec<(String, Secret)> {
        match self {
            Transport::Stdio(local) => &mut local.env,
            Transport::Http(remote) | Transport::OpenApi(ApiEndpoint { remote, .. }) => {
                &mut remote.headers
            }
        }
    }

    /// Those that have to be kept out of errors and logs: sensitive variables, and every header.
    pub fn secrets(&self) -> impl Iterator<Item = &Secret> {
        let always = self.is_remote();
        let given = self.given().iter().map(|(_, value)| value);
        given.filter(move |value| always || value.is_sensitive())
    }

    /// What makes a server the one it is for what is remembered of it: its command, not its name. Values of the
    /// environment are left out, since they may be secrets and hardly ever make it another one; so are headers.
    pub fn fingerprint(&self) -> Vec<Cow<'_, str>> {
        match self {
            Transport::Stdio(LocalCommand { env, cwd, .. }) => {
                let mut parts: Vec<Cow<'_, str>> =
                    self.words().into_iter().map(Cow::Borrowed).collect();
                parts.push("env".into());
                parts.extend(env.iter().map(|(name, _)| Cow::Borrowed(name.as_str())));
                parts.push("cwd".into());
                parts.extend(cwd.as_ref().map(|cwd| cwd.to_string_lossy()));
                parts
            }
            Transport::Http(remote) => vec!["url".into(), remote.url.as_str().into()],
            Transport::OpenApi(api) => {
                let mut parts: Vec<Cow<'_, str>> = vec!["openapi".into()];
                parts.extend(self.words().into_iter().map(Cow::Borrowed));
                // Another description makes other tools.
                parts.extend(api.digest.as_deref().map(Cow::Borrowed));
                for (word, rules) in [("include", &api.include), ("exclude", &api.exclude)] {
                    parts.push(word.into());
                    parts.extend(rules.iter().map(|rule| Cow::Borrowed(rule.as_str())));
                }
                parts
            }
        }
    }

    /// What two entries of one server have in common, however they are written; `found` says where a program is that is
    /// only named.
    pub(crate) fn identity(&self, found: &dyn Fn(&str) -> String) -> Vec<String> {
        let mut parts = Vec::new();
        let header = |(name, value): &(String, Secret)| {
            format!("header {}: {}", name.to_ascii_lowercase(), value.expose())
        };
        match self {
            Transport::Stdio(LocalCommand { command, args, env, cwd }) => {
                let program = command.rsplit(['/', '\\']).next().unwrap_or_default();
                let runs_packages = matches!(program, "npx" | "npx.cmd" | "bunx");
                parts.push(found(command));
                // It only answers a question that nobody could be asked.
                let means =
                    |arg: &&String| !(runs_packages && matches!(arg.as_str(), "-y" | "--yes"));
                let (before, behind) =
                    args.split_at(args.iter().take_while(|arg| arg.starts_with('-')).count());
                parts.extend(
                    before.iter().filter(means).chain(behind).map(|arg| format!("arg {arg}")),
                );
                let mut env: Vec<String> = env
                    .iter()
                    .map(|(name, value)| format!("env {name}={}", value.expose()))
                    .collect();
                env.sort();
                parts.extend(env);
                parts.extend(cwd.iter().map(|cwd| format!("cwd {}", cwd.display())));
            }
            Transport::Http(RemoteEndpoint { url, headers, kind, .. }) => {
                parts.push(url.clone());
                let is_old = *kind == HttpKind::Sse;
                parts.extend(is_old.then(|| "sse".to_owned()));
                let mut headers: Vec<String> = headers.iter().map(header).collect();
                headers.sort();
                parts.extend(headers);
            }
            Transport::OpenApi(api) => {
                parts.extend(self.fingerprint().into_iter().map(Cow::into_owned));
                let mut headers: Vec<String> = api.remote.headers.iter().map(header).collect();
                headers.sort();
                parts.extend(headers);
            }
        }
        parts
    }

    /// Whether this starts the gateway on the same file: a client's `.mcp.json` names us, and we read that very file.
    /// Started all the same, each gateway would start the next. One with a file of its own is a server like any other.
    pub fn is_the_gateway(&self) -> bool {
        let Some(LocalCommand { command, args, env, .. }) = self.local() else { return false };
        let serves =
            args.iter().find(|arg| !arg.starts_with('-')).is_none_or(|verb| verb == "serve");
        let own_file = args.iter().any(|arg| arg == "--config" || arg.starts_with("--config="))
            || env.iter().any(|(name, _)| name == "METAMCP_CONFIG");
        is_called_as_we_are(command) && serves && !own_file
    }

    /// The file that a gateway started by this would read, where the entry names one. Which program it is and whether
    /// the file is the one that holds the entry is for those to say who can look.
    pub fn config_of_a_gateway(&self) -> Option<&str> {
        let LocalCommand { args, env, .. } = self.local()?;
        let named =
            args.iter().enumerate().find_map(|(at, arg)| match arg.strip_prefix("--config") {
                Some("") => args.get(at + 1).map(String::as_str),
                Some(rest) => rest.strip_prefix('='),
                None => None,
            });
        let variable = env.iter().find(|(name, _)| name == "METAMCP_CONFIG");
        named.or_else(|| variable.map(|(_, value)| value.expose()))
    }
}

/// Whether a program is called as this one is, wherever it lies.
pub fn is_called_as_we_are(command: &str) -> bool {
    let program = command.rsplit(['/', '\\']).next().unwrap_or_default();
    program.strip_suffix(".exe").unwrap_or(program) == "metamcp"
}

/// The two HTTP transports of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpKind {
    /// The file does not say: the current one is tried, then the older one.
    Either,
    /// Streamable HTTP, the current one.
    Streamable,
    /// HTTP with server-sent events, the older one.
    Sse,
}

/// What few remote servers need.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HttpOptions {
    /// Files for TLS.
    pub tls: TlsFiles,
    /// How we log in where it wants that.
    pub login: Login,
}

/// Files for TLS beside what every system knows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct TlsFiles {
    /// Certificates of authorities that are trusted too.
    pub ca: Option<PathBuf>,
    /// Our own certificate, for servers that want to see one.
    pub cert: Option<PathBuf>,
    /// Its key.
    pub key: Option<PathBuf>,
}

/// How we log in.
#[derive(Debug, Clone, PartialEq)]
pub struct Login {
    /// Whether at all.
    pub wanted: bool,
    /// As whom, where the server's owner gave us a name.
    pub client_id: Option<String>,
    /// The secret that belongs to it.
    pub client_secret: Option<Secret>,
    /// A key that proves us in place of a secret.
    pub private_key: Option<PathBuf>,
    /// Rights that are asked for beyond those the server names.
    pub scopes: Vec<String>,
    /// Who agrees to it.
    pub grant: Grant,
    /// A document on the web that describes this gateway.
    pub metadata_url: Option<String>,
    /// The port to come back to, where it has to be a fixed one.
    pub callback_port: Option<u16>,
    /// Whoever vouches for the person, so that nobody has to agree again.
    pub identity_provider: Option<IdentityProvider>,
    /// Where a person agrees and where tokens come from, for a server that does not publish it.
    pub endpoints: Option<OAuthEndpoints>,
}

/// The addresses of an authorization server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OAuthEndpoints {
    /// Where a person agrees; none where nobody has to.
    pub authorization_url: Option<String>,
    /// Where tokens come from.
    pub token_url: String,
}

/// An identity provider at which the person is logged in already.
#[derive(Debug, Clone, PartialEq)]
pub struct IdentityProvider {
    /// Where its tokens come from.
    pub token_url: String,
    /// Our name there.
    pub client_id: String,
    /// The token that says who the person is, or where it is.
    pub id_token: Secret,
}

impl Default for Login {
    fn default() -> Self {
        Login {
            wanted: true,
            client_id: None,
            client_secret: None,
            private_key: None,
            scopes: Vec::new(),
            grant: Grant::Person,
            metadata_url: None,
            callback_port: None,
            identity_provider: None,
            endpoints: None,
        }
    }
}

/// Who agrees to a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grant {
    /// A person, in a browser.
    Person,
    /// Nobody: the client's own secret is enough.
    Machine,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local() -> Transport {
        let value = |name: &str| (name.to_owned(), Secret::new(name, "x"));
        Transport::from(LocalCommand {
            command: "npx".to_owned(),
            args: vec!["-y".to_owned(), "a b".to_owned()],
            env: vec![value("PLAIN"), value("API_TOKEN")],
            cwd: Some("/tmp".into()),
        })
    }

    fn remote(kind: HttpKind) -> Transport {
        let headers = vec![("X-Plain".to_owned(), Secret::new("X-Plain", "x"))];
        let url = "https://a.example/mcp".to_owned();
        Transport::from(RemoteEndpoint { url, headers, kind, options: Box::default() })
    }

    #[test]
    fn what_is_asked_of_a_transport() {
        let names = |transport: &Transport| {
            transport.secrets().map(|secret| secret.name().to_owned()).collect::<Vec<_>>()
        };
        let (here, there) = (local(), remote(HttpKind::Either));
        assert_eq!((here.is_remote(), there.is_remote()), (false, true));
        assert_eq!((here.command(), there.command()), (Some("npx"), None));
        assert_eq!(here.words(), ["npx", "-y", "a b"]);
        assert_eq!(there.words(), ["https://a.example/mcp"]);
        assert_eq!(here.given().len(), 2);
        assert_eq!(names(&here), ["API_TOKEN"], "variables are secrets by their names");
        assert_eq!(names(&there), ["X-Plain"], "every header is one");
        assert_eq!(
            here.fingerprint(),
            ["npx", "-y", "a b", "env", "PLAIN", "API_TOKEN", "cwd", "/tmp"]
        );
        assert_eq!(there.fingerprint(), ["url", "https://a.example/mcp"]);
    }

    #[test]
    fn the_name_is_the_one_that_an_entry_may_give() {
        assert_eq!(local().name(), "stdio");
        for (kind, name) in
            [(HttpKind::Either, "http"), (HttpKind::Streamable, "http"), (HttpKind::Sse, "sse")]
        {
            assert_eq!(remote(kind).name(), name);
        }
    }
}
