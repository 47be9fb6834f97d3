//! The transport of a server: program and arguments, or URL and headers, with variables expanded.

use std::path::PathBuf;

use jsonc_parser::ast::Value;
use jsonc_parser::common::Range;

use super::Lookup;
use super::remote::read_options;
use crate::config::expand::expand;
use crate::config::keys::TRANSPORTS;
use crate::config::read::{Field, Fields, Node, properties};
use crate::config::report::Report;
use crate::config::{ApiEndpoint, HttpKind, LocalCommand, RemoteEndpoint, Transport};
use crate::settings::shown;
use metamcp_types::secret::{Reference, Secret, names_a_secret};

/// Reads values in which variables may stand.
pub(super) struct Values<'r, 'a, 'l> {
    pub(super) report: &'r mut Report<'a>,
    pub(super) lookup: Lookup<'l>,
    /// Variables of a disabled server are not reported.
    pub(super) is_used: bool,
    /// The next word is read by a shell.
    pub(super) is_script: bool,
    pub(super) missing: Vec<String>,
    pub(super) secrets: Vec<Secret>,
}

impl Values<'_, '_, '_> {
    /// A string with its variables replaced.
    pub(super) fn text(&mut self, node: &Node<'_, '_>) -> Option<String> {
        let written = node.string(self.report)?;
        self.expanded(written, node, true)
    }

    fn expanded(
        &mut self,
        written: &str,
        node: &Node<'_, '_>,
        keep_secrets: bool,
    ) -> Option<String> {
        if written.contains('\0') {
            self.report.problem(
                node.range(),
                &node.path,
                "holds a NUL character, which no program can be given",
            );
            return None;
        }
        let expanded = match self.lookup {
            Lookup::Resolved(lookup) => expand(written, lookup),
            Lookup::AsWritten => expand(written, &|_| None),
        };
        let expanded = match expanded {
            Ok(expanded) => expanded,
            Err(message) => {
                self.report.problem(node.range(), &node.path, message);
                return None;
            }
        };
        if !self.is_used || matches!(self.lookup, Lookup::AsWritten) {
            return Some(written.to_owned());
        }
        for reason in expanded.missing {
            let hint = match reason
                .strip_prefix("environment variable ")
                .and_then(|rest| rest.split(' ').next())
            {
                Some(name) => format!("set {name}, or give a default: ${{{name}:-…}}"),
                None => "use an environment variable instead: ${NAME}".to_owned(),
            };
            let message = format!("{reason}; the server is disabled");
            self.report.warn(node.range(), &node.path, message, hint);
            if !self.missing.contains(&reason) {
                self.missing.push(reason);
            }
        }
        if let Some(name) = shell_variable(written).filter(|_| !self.is_script) {
            let message = format!(
                "`${}` is passed on as it is; write `${{{name}}}` for the variable's value",
                shown(name)
            );
            self.report.note(node.range(), &node.path, message);
        }
        if keep_secrets {
            let is_one =
                |name: &str, value: &str| names_a_secret(name) || carries_a_password(value);
            let secrets = expanded.used.into_iter().filter(|(name, value)| is_one(name, value));
            self.secrets.extend(secrets.map(|(name, value)| Secret::new(name, value)));
        }
        Some(expanded.text)
    }

    /// The same for a value that is a secret as a whole, whatever its variables are called.
    pub(super) fn secret(&mut self, node: &Node<'_, '_>, name: &str) -> Option<String> {
        let written = node.string(self.report)?;
        let secret = self.expanded(written, node, false)?;
        self.secrets.push(Secret::new(name, secret.clone()));
        Some(secret)
    }

    /// A path, from the user's home where it says so.
    pub(super) fn path(&mut self, node: &Node<'_, '_>) -> Option<PathBuf> {
        let text = self.text(node)?;
        if text.is_empty() {
            self.report.problem(node.range(), &node.path, "is empty");
            return None;
        }
        let from_home = if text == "~" { Some("") } else { text.strip_prefix("~/") };
        let Lookup::Resolved(lookup) = self.lookup else { return Some(PathBuf::from(text)) };
        match from_home.and_then(|rest| Some((rest, lookup("HOME")?))) {
            Some((rest, home)) => Some(PathBuf::from(home).join(rest)),
            None => Some(PathBuf::from(text)),
        }
    }

    pub(super) fn texts(&mut self, node: &Node<'_, '_>) -> Option<Vec<String>> {
        let strings = node.strings(self.report)?;
        strings.into_iter().map(|(written, node)| self.expanded(written, &node, true)).collect()
    }

    fn arguments(&mut self, node: &Node<'_, '_>) -> Option<Vec<String>> {
        let strings = node.strings(self.report)?;
        let mut words = Vec::with_capacity(strings.len());
        let mut before = "";
        for (written, node) in strings {
            // `sh -c 'echo $HOME'`: there is a shell to fill it in.
            self.is_script = matches!(before, "-c" | "-lc" | "-ic" | "-ec");
            let word = self.argument(written, &node);
            self.is_script = false;
            words.push(word?);
            before = written;
        }
        Some(words)
    }

    /// One word of a command line, which every user of the machine can read while the server runs.
    fn argument(&mut self, written: &str, node: &Node<'_, '_>) -> Option<String> {
        let known = self.secrets.len();
        let text = self.expanded(written, node, true)?;
        for secret in &self.secrets[known..] {
            let name = secret.name();
            let message = format!(
                "the value of {name} is put into the command line of the server, which every user of this machine can read"
            );
            let hint = format!(
                "if the server reads a variable too, give it there instead: \"env\": {{ \"{name}\": \"${{{name}}}\" }}"
            );
            self.report.warn(node.range(), &node.path, message, hint);
        }
        let value = written.split_once('=').map_or(written, |(_, value)| value);
        let is_reference = [written, value].into_iter().any(Reference::is_plainly_one);
        if is_reference && self.is_used {
            let message = "is passed on unchanged: references to secrets are resolved in `env` and `headers` only, since every user of this machine can read a command line";
            let hint = "give it in \"env\", under the name of a variable that the server reads";
            self.report.warn(node.range(), &node.path, message, hint.to_owned());
        }
        Some(text)
    }

    /// An object of names and values; `check` says what is wrong with a name or value, if anything.
    fn named(
        &mut self,
        node: &Node<'_, '_>,
        scalars: bool,
        check: fn(&str, &str) -> Option<&'static str>,
    ) -> Option<Vec<(String, Secret)>> {
        let object = node.object(self.report)?;
        let mut named = Vec::new();
        for (name, _, node) in properties(self.report, object, &node.path) {
            let value = match node.value {
                Value::StringLit(literal) => self.expanded(&literal.value, &node, false),
                Value::NumberLit(literal) if scalars => Some(literal.value.to_owned()),
                Value::BooleanLit(literal) if scalars => Some(literal.value.to_string()),
                _ if scalars => node.wrong(self.report, "a string, a number or `true` or `false`"),
                _ => node.wrong(self.report, "a string"),
            };
            let Some(value) = value else { continue };
            if let Some(fault) = check(name, &value) {
                self.report.problem(node.range(), &node.path, fault);
            }
            // Judged by what is written: a variable whose value looks like a reference is a value.
            let is_reference = matches!(node.value, Value::StringLit(literal) if Reference::is_one(&literal.value));
            let wrap = if is_reference { Secret::reference } else { Secret::new };
            named.push((name.to_owned(), wrap(name, value)));
        }
        Some(named)
    }
}

/// Whether a value is an address with a password in it, whatever its variable is called.
fn carries_a_password(value: &str) -> bool {
    let authority = value.split_once("://").map(|(_, rest)| rest.split('/').next().unwrap_or(rest));
    let user = authority.and_then(|authority| authority.rsplit_once('@')).map(|(user, _)| user);
    user.and_then(|user| user.split_once(':')).is_some_and(|(_, password)| !password.is_empty())
}

/// The name of a variable as a shell would fill it in, `$NAME`, which we do not: alone, or behind what usually stands
/// before one, as in `Bearer $NAME` and `--key=$NAME`. What may be part of a password, `pa$$word` or `x$Y`, is none.
fn shell_variable(written: &str) -> Option<&str> {
    if Reference::is_one(written) {
        return None;
    }
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    written.match_indices('$').find_map(|(at, _)| {
        let behind = &written[at + 1..];
        let name = &behind[..behind.find(|c| !is_word(c)).unwrap_or(behind.len())];
        let begins = written[..at].chars().next_back().is_none_or(|c| " =:/,;@\"'".contains(c));
        let ends = !behind[name.len()..].starts_with('$');
        (begins && ends && is_variable_name(name)).then_some(name)
    })
}

fn is_variable_name(name: &str) -> bool {
    !name.is_empty()
        && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
        && name.starts_with(|c: char| !c.is_ascii_digit())
}

pub(super) fn read_transport(
    values: &mut Values<'_, '_, '_>,
    fields: &mut Fields<'_, '_>,
    key_range: Range,
    path: &str,
) -> Option<Transport> {
    let kind = fields.take("type");
    let stated = match &kind {
        Some(field) => Some(transport_kind(values.report, &field.node)?),
        None => None,
    };
    let (command, url) = (fields.take("command"), fields.take("url"));
    if let Some(description) = fields.take("openapi") {
        return read_api(values, &description, stated, [command, url], fields);
    }
    for key in ["baseUrl", "credentials", "include", "exclude"] {
        let unused = fields.take(key);
        ignored(values.report, unused.into_iter(), "a server without `openapi`");
    }
    match (stated, command, url) {
        (None, Some(_), Some(url)) => {
            let message = "both `command` and a URL are given";
            let hint = "keep one, or set `type` to `stdio` or `http`".to_owned();
            values.report.problem_with(url.node.range(), path, message, hint);
            None
        }
        (None | Some("stdio"), Some(command), unused) => {
            let others = ["headers", "tls", "oauth", "bearerToken"].map(|key| fields.take(key));
            ignored(
                values.report,
                unused.into_iter().chain(others.into_iter().flatten()),
                "a local process",
            );
            read_stdio(values, &command, fields)
        }
        (None | Some("http" | "sse"), unused, Some(url)) => {
            let others = ["args", "env", "cwd"].map(|key| fields.take(key));
            ignored(
                values.report,
                unused.into_iter().chain(others.into_iter().flatten()),
                "a remote server",
            );
            let kind = match stated {
                Some("sse") => HttpKind::Sse,
                Some(_) => HttpKind::Streamable,
                None => HttpKind::Either,
            };
            read_http(values, &url, kind, fields)
        }
        (None, None, None) => {
            let hint = "a local server needs `command`, a remote one needs `url`, an API without a server needs `openapi`".to_owned();
            values.report.problem_with(key_range, path, "has neither `command` nor `url`", hint);
            None
        }
        (Some(kind), ..) => {
            let needed = match kind {
                "stdio" => "command",
                "openapi" => "openapi",
                _ => "url",
            };
            values.report.problem(
                key_range,
                path,
                format!("is of type `{kind}` but has no `{needed}`"),
            );
            None
        }
    }
}

/// The transport by its main name. Case and separators do not count: every client spells them its own way.
fn transport_kind(report: &mut Report<'_>, node: &Node<'_, '_>) -> Option<&'static str> {
    let folded = |word: &str| word.replace(['-', '_'], "").to_ascii_lowercase();
    let written = node.string(report)?;
    let wanted = folded(written);
    let known = TRANSPORTS.iter().find(|(name, aliases)| {
        *name == wanted || aliases.iter().any(|alias| folded(alias) == wanted)
    });
    if known.is_none() {
        let message = format!(
            "unknown transport `{}`: expected `stdio`, `http`, `sse` or `openapi`",
            shown(written)
        );
        report.problem(node.range(), &node.path, message);
    }
    known.map(|(name, _)| *name)
}

fn ignored<'n, 'a: 'n>(
    report: &mut Report<'_>,
    fields: impl Iterator<Item = Field<'n, 'a>>,
    for_what: &str,
) {
    for field in fields {
        let message = format!("has no meaning for {for_what}, ignored");
        report.warn(field.node.range(), &field.node.path, message, None);
    }
}

fn read_stdio(
    values: &mut Values<'_, '_, '_>,
    field: &Field<'_, '_>,
    fields: &mut Fields<'_, '_>,
) -> Option<Transport> {
    let node = &field.node;
    let (command, mut args) = match node.value {
        Value::Array(_) => {
            let mut words = values.arguments(node)?.into_iter();
            let Some(command) = words.next() else {
                values.report.problem(
                    node.range(),
                    &node.path,
                    "is an empty list: the program is missing",
                );
                return None;
            };
            (command, words.collect())
        }
        Value::StringLit(_) => (values.text(node)?, Vec::new()),
        _ => return node.wrong(values.report, "a string or a list of strings"),
    };
    if command.trim().is_empty() {
        values.report.problem(node.range(), &node.path, "is empty: the program is missing");
    }
    if let Some(field) = fields.take("args") {
        args.extend(values.arguments(&field.node)?);
    }
    if args.is_empty() && is_whole_line(&command) {
        let mut words = command.split_whitespace();
        let program = words.next().unwrap_or_default();
        let rest: Vec<String> = words.map(|word| format!("{:?}", shown(word))).collect();
        let hint = format!(
            "no shell splits it; did you mean \"command\": {:?}, \"args\": [{}]?",
            shown(program),
            rest.join(", ")
        );
        values.report.warn(node.range(), &node.path, "the program's name has spaces in it", hint);
    }
    let env = match fields.take("env") {
        Some(field) => values.named(&field.node, true, env_fault)?,
        None => Vec::new(),
    };
    let cwd = match fields.take("cwd") {
        Some(field) => Some(values.path(&field.node)?),
        None => None,
    };
    Some(LocalCommand { command, args, env, cwd }.into())
}

/// Whether a command is a whole line rather than a program whose path has spaces in it.
fn is_whole_line(command: &str) -> bool {
    let mut words = command.split_whitespace();
    let is_path = words.next().is_some_and(|program| program.contains(['/', '\\']));
    match (is_path, words.next()) {
        (_, None) => false,
        (false, Some(_)) => true,
        (true, Some(second)) => second.starts_with('-') || words.any(|word| word.starts_with('-')),
    }
}

fn env_fault(name: &str, value: &str) -> Option<&'static str> {
    if name.is_empty() || name.contains(['=', '\0']) {
        Some("is not a possible name of a variable")
    } else if value.contains('\0') {
        Some("holds a NUL character, which no program can be given")
    } else {
        None
    }
}

fn read_http(
    values: &mut Values<'_, '_, '_>,
    field: &Field<'_, '_>,
    kind: HttpKind,
    fields: &mut Fields<'_, '_>,
) -> Option<Transport> {
    let node = &field.node;
    let incomplete = values.missing.len();
    let url = values.text(node)?;
    let is_written_out = matches!(values.lookup, Lookup::Resolved(_)) || !url.contains("${");
    let is_complete = values.is_used && values.missing.len() == incomplete && is_written_out;
    if let Some(fault) = url_fault(&url).filter(|_| is_complete) {
        values.report.problem(node.range(), &node.path, fault);
        return None;
    }
    let mut headers = match fields.take("headers") {
        Some(field) => read_headers(values, &field.node)?,
        None => Vec::new(),
    };
    let options = read_options(values, fields, &mut headers)?;
    if is_complete && !headers.is_empty() && is_open_to_listeners(&url) {
        let message = "headers go to this server unencrypted".to_owned();
        values.report.warn(node.range(), &node.path, message, "use https://".to_owned());
    }
    Some(RemoteEndpoint { url, headers, kind, options: Box::new(options) }.into())
}

/// An API and its description. `others` are keys that say something else.
fn read_api(
    values: &mut Values<'_, '_, '_>,
    field: &Field<'_, '_>,
    stated: Option<&str>,
    others: [Option<Field<'_, '_>>; 2],
    fields: &mut Fields<'_, '_>,
) -> Option<Transport> {
    let node = &field.node;
    if let Some(kind) = stated.filter(|kind| *kind != "openapi") {
        let message = format!("contradicts `type`, which is `{kind}`");
        let hint = "remove `type`, or set it to `openapi`".to_owned();
        values.report.problem_with(node.range(), &node.path, message, hint);
        return None;
    }
    if let Some(other) = others.into_iter().flatten().next() {
        let message = "contradicts `openapi`";
        let hint = "keep one of the two; where the API is says `baseUrl`".to_owned();
        values.report.problem_with(other.node.range(), &other.node.path, message, hint);
        return None;
    }
    let unused = ["args", "env", "cwd"].map(|key| fields.take(key));
    ignored(values.report, unused.into_iter().flatten(), "an API");
    let written = values.text(node)?;
    let is_whole = !written.contains("${");
    let description = if written.contains("://") {
        if let Some(fault) = url_fault(&written).filter(|_| is_whole) {
            values.report.problem(node.range(), &node.path, fault);
            return None;
        }
        written
    } else {
        values.path(node)?.to_string_lossy().into_owned()
    };
    let mut url = String::new();
    if let Some(field) = fields.take("baseUrl") {
        url = values.text(&field.node)?;
        if let Some(fault) = url_fault(&url).filter(|_| !url.contains("${")) {
            values.report.problem(field.node.range(), &field.node.path, fault);
            return None;
        }
    }
    let mut headers = match fields.take("headers") {
        Some(field) => read_headers(values, &field.node)?,
        None => Vec::new(),
    };
    let signs_in = fields.holds("oauth");
    let mut options = read_options(values, fields, &mut headers)?;
    // APIs publish nothing of how to sign in, so nobody looks for it unasked.
    options.login.wanted &= signs_in;
    if let Some(field) = fields.take("credentials") {
        let all = values.named(&field.node, false, credential_fault)?;
        headers.extend(
            all.into_iter().map(|(name, value)| (ApiEndpoint::credential_name(&name), value)),
        );
    }
    let mut rules = |key: &str| -> Option<Vec<String>> {
        let Some(field) = fields.take(key) else { return Some(Vec::new()) };
        Some(
            field
                .node
                .strings(values.report)?
                .into_iter()
                .map(|(rule, _)| rule.to_owned())
                .collect(),
        )
    };
    let (include, exclude) = (rules("include")?, rules("exclude")?);
    if !headers.is_empty() && is_open_to_listeners(&url) {
        let message = "credentials go to this API unencrypted".to_owned();
        values.report.warn(node.range(), &node.path, message, "use https://".to_owned());
    }
    let options = Box::new(options);
    let remote = RemoteEndpoint { url, headers, kind: HttpKind::Streamable, options };
    Some(ApiEndpoint { description, digest: None, include, exclude, remote }.into())
}

fn credential_fault(_name: &str, value: &str) -> Option<&'static str> {
    let is_control = |c: char| c.is_control();
    value.contains(is_control).then_some("holds a line break or another control character")
}

fn read_headers(
    values: &mut Values<'_, '_, '_>,
    node: &Node<'_, '_>,
) -> Option<Vec<(String, Secret)>> {
    let headers = values.named(node, false, header_fault)?;
    for (at, (name, _)) in headers.iter().enumerate() {
        if headers[..at].iter().any(|(other, _)| other.eq_ignore_ascii_case(name)) {
            let message = format!("header `{}` is given twice: case is ignored", shown(name));
            values.report.problem(node.range(), &node.path, message);
        }
    }
    Some(headers)
}

fn header_fault(name: &str, value: &str) -> Option<&'static str> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_token) {
        Some("is not a possible name of a header")
    } else if value.contains(|c: char| c.is_control() && c != '\t') {
        Some("holds a line break or another control character, which no header can")
    } else {
        None
    }
}

fn url_fault(url: &str) -> Option<&'static str> {
    let Some(rest) = address(url) else {
        return Some("expected an address with http:// or https://");
    };
    if url.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Some("an address cannot hold spaces or control characters");
    }
    host(rest).is_empty().then_some("the address names no host")
}

/// The address behind `http://` or `https://`.
fn address(url: &str) -> Option<&str> {
    let (scheme, rest) = url.split_once("://")?;
    ["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known)).then_some(rest)
}

fn host(address: &str) -> &str {
    let authority = address.split(['/', '?', '#']).next().unwrap_or("");
    let host = authority.rsplit('@').next().unwrap_or("");
    match host.strip_prefix('[') {
        Some(literal) => literal.split(']').next().unwrap_or(""),
        None => host.split(':').next().unwrap_or(""),
    }
}

fn is_open_to_listeners(url: &str) -> bool {
    let is_plain = url.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http://"));
    let host = host(address(url).unwrap_or_default());
    let is_local = host == "localhost" || host == "::1" || host.starts_with("127.");
    is_plain && !is_local
}
