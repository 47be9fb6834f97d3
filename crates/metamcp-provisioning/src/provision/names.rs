//! Names of packages: validation, typosquatting, and the server name derived from one.

use super::candidate::Kind;

/// Longest name of a package; npm allows 214.
const MAX_NAME: usize = 214;
/// Longest version.
const MAX_VERSION: usize = 64;
/// Shorter names are too close to each other to say which pretends to be which.
const LEAST_COMPARED: usize = 8;
/// Names that mean something else here.
const RESERVED: [&str; 6] =
    ["metamcp", "mcp", "mcp_call", "mcp_discover", "mcp_execute", "mcp_provision"];
/// Hosts that images may come from.
const IMAGE_HOSTS: [&str; 3] = ["docker.io", "ghcr.io", "mcr.microsoft.com"];
/// The same, with a part of their own in front.
const IMAGE_SUFFIXES: [&str; 2] = [".pkg.dev", ".azurecr.io"];

/// Whether a name and a version can be handed to a client as they are; the error says what is wrong. What passes
/// holds no character that any client reads as more than a name.
pub fn valid(kind: Kind, identifier: &str, version: &str) -> Result<(), &'static str> {
    let plain = |text: &str, more: &str| {
        !text.is_empty()
            && text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c))
    };
    if identifier.len() > MAX_NAME || version.len() > MAX_VERSION {
        return Err("its name or version is too long");
    }
    let named = match kind {
        Kind::Npm => match identifier.strip_prefix('@') {
            Some(scoped) => scoped
                .split_once('/')
                .is_some_and(|(scope, name)| plain(scope, "-._") && plain(name, "-._")),
            None => plain(identifier, "-._"),
        },
        Kind::Pypi => plain(identifier, "-._"),
        Kind::Oci => return image(identifier),
        Kind::Remote => return address(identifier),
    };
    if !named {
        return Err("its name is not a valid package name");
    }
    if !(version.starts_with(|c: char| c.is_ascii_digit()) && plain(version, ".-+")) {
        return Err("its version is not exact");
    }
    Ok(())
}

fn image(identifier: &str) -> Result<(), &'static str> {
    let Some((name, digest)) = identifier.split_once("@sha256:") else {
        return Err("the image is not named by its digest");
    };
    if digest.len() != 64 || !digest.chars().all(|c| c.is_ascii_hexdigit()) {
        return Err("the image is not named by its digest");
    }
    let host = name.split('/').next().unwrap_or_default();
    let known = IMAGE_HOSTS.contains(&host)
        || IMAGE_SUFFIXES.iter().any(|suffix| host.ends_with(suffix) && host.len() > suffix.len());
    if !known {
        return Err("the image comes from a host that is not on the list");
    }
    let fine = name.chars().all(|c| c.is_ascii_alphanumeric() || "-._/:".contains(c));
    if fine { Ok(()) } else { Err("its name is not a valid image name") }
}

fn address(url: &str) -> Result<(), &'static str> {
    let Some(rest) = url.strip_prefix("https://") else {
        return Err("its address does not use https");
    };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let named = host.contains('.')
        && host.starts_with(|c: char| c.is_ascii_alphanumeric())
        && host.chars().all(|c| c.is_ascii_alphanumeric() || "-.:".contains(c));
    let fine = url.chars().all(|c| c.is_ascii_graphic() && !"\"'`<>\\^{}|".contains(c));
    if named && fine { Ok(()) } else { Err("its address is invalid") }
}

/// The known name that this one can be taken for, if there is one. `known` are names of the same kind.
pub fn look_alike<'a>(
    name: &str,
    known: impl IntoIterator<Item = &'a str> + Clone,
) -> Option<&'a str> {
    if known.clone().into_iter().any(|known| known == name) {
        return None;
    }
    let own = folded(name);
    let (own_scope, known_scopes): (_, Vec<_>) =
        (scope(name), known.clone().into_iter().filter_map(scope).collect());
    known.into_iter().find(|known| {
        let whole = folded(known);
        let last = folded(known.rsplit('/').next().unwrap_or(known));
        match (own_scope, scope(known)) {
            // Whoever owns a scope may publish in it; only another one that reads like it pretends.
            (Some(own), Some(scope)) => {
                let (read, theirs) = (folded(own), folded(scope));
                !known_scopes.contains(&own) && (read == theirs || near(&read, &theirs))
            }
            (Some(_), None) => false,
            // The same without its scope, or with the scope as part of the name.
            (None, Some(_)) => {
                own == whole
                    || near(&own, &whole)
                    || (last.len() >= LEAST_COMPARED && (own == last || near(&own, &last)))
            }
            (None, None) => own == whole || near(&own, &whole),
        }
    })
}

/// The scope of a name of npm, without its sign.
fn scope(name: &str) -> Option<&str> {
    name.strip_prefix('@').and_then(|rest| rest.split('/').next())
}

/// A name without differences of case, separators and look-alike characters.
fn folded(name: &str) -> String {
    let letters = name.chars().filter(char::is_ascii_alphanumeric).map(|c| match c {
        '0' => 'o',
        '1' | 'I' => 'l',
        '5' => 's',
        c => c.to_ascii_lowercase(),
    });
    letters.collect()
}

/// One or two slips apart; two only in long names.
fn near(a: &str, b: &str) -> bool {
    if a.len().min(b.len()) < LEAST_COMPARED {
        return false;
    }
    let most = if a.len().min(b.len()) >= 2 * LEAST_COMPARED { 2 } else { 1 };
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    a.len().abs_diff(b.len()) <= most && metamcp_types::nearest::distance(&a, &b) <= most
}

/// A short name for the server of a package that none of `taken` has.
pub fn server_name(identifier: &str, taken: impl Fn(&str) -> bool) -> String {
    let path = identifier.strip_prefix("https://").unwrap_or(identifier);
    let path = path.split('@').find(|part| !part.is_empty()).unwrap_or(path);
    let plain = |text: &str| {
        let folded: String = text
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
            .collect();
        folded.trim_matches('-').to_owned()
    };
    let last = path.rsplit('/').find(|part| !part.is_empty()).unwrap_or(path);
    let mut short = plain(last);
    for frill in ["mcp-server-", "server-", "mcp-"] {
        short = short.strip_prefix(frill).map_or(short.clone(), str::to_owned);
    }
    for frill in ["-mcp-server", "-server", "-mcp"] {
        short = short.strip_suffix(frill).map_or(short.clone(), str::to_owned);
    }
    // `@sentry/mcp-server` says by its scope what it is.
    if ["", "mcp", "server"].contains(&short.as_str())
        && let Some(scope) = path.rsplit('/').filter(|part| !part.is_empty()).nth(1)
    {
        short = plain(scope);
    }
    let free =
        |name: &String| !name.is_empty() && !RESERVED.contains(&name.as_str()) && !taken(name);
    let long: String = plain(path).chars().take(60).collect();
    let tries = [short, long.clone()].into_iter();
    let numbered = (2..1000).map(|number| format!("{long}-{number}"));
    tries.chain(numbered).find(free).unwrap_or(long)
}
