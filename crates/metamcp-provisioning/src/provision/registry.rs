//! Pages of a registry, as `/v0.1/servers` answers them. Entries that cannot be parsed are skipped.

use serde_json::Value;

use super::candidate::{Argument, Candidate, Input, Kind, Offer, Source, Status};
use super::names::valid;
use metamcp_types::date::unix_millis;
use metamcp_types::text;

/// Longest text taken from an entry.
const MAX_TEXT: usize = 400;
/// Most arguments or variables taken from an entry; an honest server has a dozen.
const MAX_INPUTS: usize = 64;
/// Longest argument.
const MAX_ARGUMENT: usize = 4096;
/// Longest name of an entry, of a value, and of a flag; honest ones have a few dozen characters.
const MAX_NAME: usize = 200;
/// Longest package, image or address, version, or hash; the longest that any client takes are shorter.
const MAX_IDENTIFIER: usize = 1024;

#[derive(Debug, Default)]
pub struct Page {
    /// What could be understood, deleted entries among it.
    pub candidates: Vec<Candidate>,
    /// Names of the entries that could not: they are there all the same.
    pub unusable: Vec<String>,
    /// Where the next page starts.
    pub next: Option<String>,
    /// Whether the document was a page at all.
    pub is_page: bool,
}

/// Reads a page of the registry at that address.
pub fn page(registry: &str, document: &Value) -> Page {
    let Some(servers) = document.get("servers").and_then(Value::as_array) else {
        return Page::default();
    };
    let metadata = document.get("metadata");
    let next = metadata.and_then(|all| either(all, "nextCursor", "next_cursor")?.as_str());
    let (mut candidates, mut unusable) = (Vec::new(), Vec::new());
    for entry in servers {
        match candidate(registry, entry).and_then(sound) {
            Some(candidate) => candidates.push(candidate),
            None => unusable.extend(words(entry.get("server").unwrap_or(entry), "name")),
        }
    }
    Page {
        candidates,
        unusable,
        next: next.filter(|next| !next.is_empty()).map(str::to_owned),
        is_page: true,
    }
}

/// A candidate as it may be stored and shown, wherever it was read: its texts cleaned, its names and values of the
/// length and shape that honest ones have. One that is not like that is none.
pub fn sound(mut candidate: Candidate) -> Option<Candidate> {
    let line = |text: &str| text::clean_line(text, MAX_TEXT).trim().to_owned();
    candidate.name = line(&candidate.name);
    candidate.description = line(&candidate.description);
    candidate.title = candidate.title.map(|title| line(&title));
    if let Status::Deprecated(message) | Status::Deleted(message) = &mut candidate.status {
        *message = line(message);
    }
    let Offer { kind, identifier, version, integrity, arguments, environment, runtime_arguments } =
        &mut candidate.offer;
    let mut is_sound = !candidate.name.is_empty() && candidate.name.len() <= MAX_NAME;
    for text in [&*identifier, &*version].into_iter().chain(integrity.as_ref()) {
        is_sound &= is_word(text, MAX_IDENTIFIER);
    }
    for list in [arguments.len(), environment.len(), runtime_arguments.len()] {
        is_sound &= list <= 2 * MAX_INPUTS;
    }
    is_sound &= runtime_arguments.iter().all(|text| is_word(text, MAX_ARGUMENT));
    for argument in arguments {
        is_sound &= match argument {
            Argument::Fixed(text) => is_word(text, MAX_ARGUMENT),
            Argument::Asked { flag, input } => {
                input.description = line(&input.description);
                flag.as_ref().is_none_or(|flag| is_word(flag, MAX_NAME)) && is_input(input)
            }
        };
    }
    for input in environment {
        input.description = line(&input.description);
        // Headers may hold dashes; they are not put into any environment.
        is_sound &= is_input(input) && (*kind == Kind::Remote || is_variable(&input.name));
    }
    is_sound.then_some(candidate)
}

fn is_input(input: &Input) -> bool {
    let is_name = text::clean_line(&input.name, MAX_NAME) == input.name && !input.name.is_empty();
    is_name && input.default.as_ref().is_none_or(|text| is_word(text, MAX_ARGUMENT))
}

/// Whether a text can be a word of a command line.
fn is_word(text: &str, most: usize) -> bool {
    text.len() <= most && !text.chars().any(char::is_control)
}

fn candidate(registry: &str, entry: &Value) -> Option<Candidate> {
    // Before there was an envelope, the entry was the server itself.
    let server = entry.get("server").unwrap_or(entry);
    let name = words(server, "name")?;
    let official =
        entry.get("_meta").and_then(|meta| meta.get("io.modelcontextprotocol.registry/official"));
    let said = |key: &str, old: &str| official.and_then(|meta| either(meta, key, old));
    if said("isLatest", "is_latest").and_then(Value::as_bool) == Some(false) {
        return None;
    }
    let message = || {
        let message = said("statusMessage", "status_message").and_then(Value::as_str);
        text::clean_line(message.unwrap_or_default(), MAX_TEXT).into_owned()
    };
    let status = said("status", "status").or(server.get("status")).and_then(Value::as_str);
    let status = match status {
        Some("deleted") => Status::Deleted(message()),
        Some("deprecated") => Status::Deprecated(message()),
        _ => Status::Active,
    };
    let published = said("publishedAt", "published_at").and_then(Value::as_str);
    Some(Candidate {
        description: words(server, "description").unwrap_or_default(),
        title: words(server, "title"),
        source: Source::Registry(registry.to_owned()),
        published: published.and_then(unix_millis),
        offer: offer(server, &status)?,
        status,
        name,
    })
}

/// The best way to get it. A package comes first, because it can be pinned to its hash; a service at an address can
/// become another one any day.
fn offer(server: &Value, status: &Status) -> Option<Offer> {
    let list = |key: &str| server.get(key).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let mut offers: Vec<Offer> = list("packages")
        .iter()
        .filter_map(package)
        .chain(list("remotes").iter().filter_map(remote))
        .collect();
    let order = |offer: &Offer| {
        let unusable = valid(offer.kind, &offer.identifier, &offer.version).is_err();
        let kind = match offer.kind {
            Kind::Npm => 0,
            Kind::Pypi => 1,
            Kind::Remote => 2,
            Kind::Oci => 3,
        };
        (unusable, kind)
    };
    offers.sort_by_key(order);
    let best = offers.into_iter().next();
    // One that was taken back is remembered by its name, whatever is left of it.
    best.or_else(|| matches!(status, Status::Deleted(_)).then(nothing))
}

fn nothing() -> Offer {
    Offer {
        kind: Kind::Remote,
        identifier: String::new(),
        version: String::new(),
        integrity: None,
        arguments: Vec::new(),
        environment: Vec::new(),
        runtime_arguments: Vec::new(),
    }
}

fn package(package: &Value) -> Option<Offer> {
    let kind = match either(package, "registryType", "registry_type")?.as_str()? {
        "npm" => Kind::Npm,
        "pypi" => Kind::Pypi,
        "oci" | "docker" => Kind::Oci,
        _ => return None,
    };
    let transport = package.get("transport").and_then(|transport| transport.get("type"));
    if transport.and_then(Value::as_str).is_some_and(|kind| kind != "stdio") {
        return None;
    }
    let identifier = package.get("identifier").or(package.get("name"))?.as_str()?.to_owned();
    let version = package.get("version").and_then(Value::as_str).unwrap_or_default();
    let all = |key: &str, old: &str| -> Vec<Value> {
        let found = either(package, key, old).and_then(Value::as_array).cloned();
        found.unwrap_or_default().into_iter().take(MAX_INPUTS).collect()
    };
    let runtime: Vec<Argument> =
        all("runtimeArguments", "runtime_arguments").iter().flat_map(argument).collect();
    let spelt = runtime.into_iter().map(|argument| match argument {
        Argument::Fixed(text) => text,
        Argument::Asked { flag, input } => flag.unwrap_or(input.name),
    });
    let sha = either(package, "fileSha256", "file_sha256").and_then(Value::as_str);
    Some(Offer {
        kind,
        identifier,
        version: if kind == Kind::Oci { String::new() } else { version.to_owned() },
        integrity: sha.map(|sha| format!("sha256:{}", sha.to_ascii_lowercase())),
        arguments: all("packageArguments", "package_arguments").iter().flat_map(argument).collect(),
        environment: all("environmentVariables", "environment_variables")
            .iter()
            .filter_map(|input| self::input(input, &["name"]))
            .filter(|input| is_variable(&input.name))
            .collect(),
        runtime_arguments: spelt.collect(),
    })
}

fn remote(remote: &Value) -> Option<Offer> {
    let kind = either(remote, "type", "transport_type")?.as_str()?;
    if !kind.starts_with("streamable") {
        return None;
    }
    let headers = remote.get("headers").and_then(Value::as_array);
    let headers = headers.map_or(&[][..], Vec::as_slice).iter().take(MAX_INPUTS);
    Some(Offer {
        identifier: remote.get("url")?.as_str()?.to_owned(),
        environment: headers.filter_map(|header| input(header, &["name"])).collect(),
        ..nothing()
    })
}

/// What one argument becomes: none, one or two words of a command line.
fn argument(argument: &Value) -> Vec<Argument> {
    let named = argument.get("type").and_then(Value::as_str) == Some("named");
    let flag = argument.get("name").and_then(Value::as_str).filter(|_| named).map(str::to_owned);
    let value = argument.get("value").and_then(Value::as_str);
    // A value with a placeholder has to be asked for.
    if let Some(value) = value.filter(|value| !value.contains('{')) {
        let words = flag.into_iter().chain((!value.is_empty()).then(|| value.to_owned()));
        return words.map(Argument::Fixed).collect();
    }
    let known = input(argument, &["valueHint", "value_hint", "name"]);
    match known {
        Some(input) if input.required || input.default.is_some() => {
            vec![Argument::Asked { flag, input }]
        }
        // A bare flag that is not required is omitted, like every option nobody set.
        _ => Vec::new(),
    }
}

fn input(value: &Value, names: &[&str]) -> Option<Input> {
    let name = names.iter().find_map(|key| words(value, key))?;
    let flag =
        |key: &str, old: &str| either(value, key, old).and_then(Value::as_bool).unwrap_or(false);
    let default = value.get("default").or(value.get("value")).and_then(Value::as_str);
    Some(Input {
        name: name.trim_start_matches('-').to_owned(),
        description: words(value, "description").unwrap_or_default(),
        required: flag("isRequired", "is_required"),
        secret: flag("isSecret", "is_secret"),
        default: default
            .filter(|text| text.len() <= MAX_ARGUMENT && !text.contains('{'))
            .map(str::to_owned),
    })
}

/// A text of an entry as it may be shown.
fn words(value: &Value, key: &str) -> Option<String> {
    let text = text::clean_line(value.get(key)?.as_str()?, MAX_TEXT).trim().to_owned();
    (!text.is_empty()).then_some(text)
}

/// A member under its name, or under the one it had before.
fn either<'a>(value: &'a Value, key: &str, old: &str) -> Option<&'a Value> {
    value.get(key).or_else(|| value.get(old))
}

fn is_variable(name: &str) -> bool {
    let fine = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && name.chars().all(fine) && !name.starts_with(|c: char| c.is_ascii_digit())
}
