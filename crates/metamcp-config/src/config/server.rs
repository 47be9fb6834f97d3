//! Reads one server.
//! Owns: the meaning of a server's keys, defaults, contradictions between keys.      Never: names the keys (`keys.rs` does).
//! In: one value of `mcpServers`, a way to look up variables.  Out: a `ServerConfig`, or problems in the report.
//! Tests: `config/tests.rs`.

pub(super) mod overrides;
mod remote;
mod transport;

use std::time::Duration;

use jsonc_parser::ast::Value;
use jsonc_parser::common::Range;

use self::overrides::read_overrides;
use self::transport::{Values, read_transport};
use super::keys::{
    FOREIGN_SERVER_KEYS, LONGEST_LABEL, LONGEST_TIME, MOST_IN_FLIGHT, MOST_INSTANCES, MOST_LABELS,
    SERVER_KEYS,
};
use super::read::{Fields, Key, Node, properties};
use super::report::Report;
use super::toolset::read_words;
use super::{
    ApprovalRules, Approve, ApproveRule, Containment, Lifecycle, PassEnv, Pattern, Retry,
    RetryRule, ServerConfig, ServerOrigin, ServerState, ToolFilter, Transport,
};
use crate::scope::Scope;
use crate::settings::{Kind, Word};

/// What becomes of variables in values.
#[derive(Clone, Copy)]
pub(super) enum Lookup<'l> {
    /// Each is replaced by what this answers for it.
    Resolved(&'l dyn Fn(&str) -> Option<String>),
    /// They stay as written, and are not looked up.
    AsWritten,
}

/// A `timeout` below this is more likely seconds, as other clients count, than milliseconds.
const SECONDS_OR_MILLIS: u64 = 1_000;

/// Reads one server; `None` after at least one problem was reported.
pub(super) fn read_server(
    report: &mut Report<'_>,
    name: &str,
    key_range: Range,
    node: &Node<'_, '_>,
    lookup: Lookup<'_>,
) -> Option<ServerConfig> {
    let before = report.problems.len();
    let object = node.object(report)?;
    let keys: Vec<Key> = SERVER_KEYS.iter().map(|known| known.key).collect();
    let mut fields = Fields::read(report, object, &node.path, &keys, FOREIGN_SERVER_KEYS);

    let disabled = read_disabled(report, &mut fields);
    let mut values = Values {
        report,
        lookup,
        is_used: !disabled,
        is_script: false,
        missing: Vec::new(),
        secrets: Vec::new(),
    };
    let transport = read_transport(&mut values, &mut fields, key_range, &node.path);
    let overrides = fields.take("overrides");
    let overrides = overrides.map(|field| read_overrides(&mut values, &field.node));
    let Values { missing, secrets: expanded_secrets, .. } = values;

    let itself = transport.as_ref().is_some_and(Transport::is_the_gateway);
    if itself && !disabled {
        report.note(
            key_range,
            &node.path,
            "is this gateway itself, as your client starts it; skipped",
        );
    }
    let timeout = read_timeout(report, &mut fields);
    let idle_timeout = read_idle(report, &mut fields);
    let (lifecycle, idle_timeout) = read_lifecycle(report, &mut fields, idle_timeout);
    let retry = fields.take("retry").and_then(|field| read_retry(report, &field.node));
    let approve = fields.take("approve").and_then(|field| read_approve(report, &field.node));
    let eager = read_flag(report, &mut fields, "eager");
    let exclusive = read_flag(report, &mut fields, "exclusive");
    let max_in_flight = read_in_flight(report, &mut fields, exclusive);
    let share = fields.take("share").and_then(|field| word(report, &field.node, Scope::WORDS));
    let share = share.and_then(Scope::from_word);
    let instances = read_instances(report, &mut fields, share);
    let requires = read_requires(report, &mut fields, share);
    let pin = read_pin(report, &mut fields, share);
    let description = fields.take("description").and_then(|field| field.node.string(report));
    let tags = fields.take("tags").map(|field| read_words(report, &field.node));
    let tags = tags.unwrap_or_default();
    let examples = fields.take("examples").map(|field| read_examples(report, &field.node));
    let examples = examples.unwrap_or_default();
    let vital = read_flag(report, &mut fields, "vital");
    let tools = read_tools(report, &mut fields);
    let containment =
        fields.take("containment").and_then(|field| word(report, &field.node, Containment::WORDS));
    let pass_env = read_pass_env(report, &mut fields, transport.as_ref());
    let server = ServerConfig {
        name: name.to_owned(),
        origin: ServerOrigin::default(),
        transport: transport?,
        state: state(disabled, itself, &missing),
        description: description.map(str::to_owned),
        tags,
        examples,
        timeout,
        vital,
        lifecycle,
        idle_timeout,
        retry: retry.unwrap_or_default(),
        approvals: ApprovalRules { own: approve.unwrap_or_default(), ..ApprovalRules::default() },
        eager,
        exclusive,
        max_in_flight,
        share,
        requires,
        pin,
        instances,
        tools,
        overrides: overrides.unwrap_or_default(),
        pass_env,
        containment: containment.and_then(Containment::from_word),
        sandbox_policy: None,
        in_container: false,
        installed_in: None,
        expanded_secrets,
        secret_arguments: None,
    };
    (report.problems.len() == before).then_some(server)
}

/// Why an entry is skipped that would start the gateway again on its own file.
pub const ITSELF: &str = "this is the gateway itself";

/// Why a server is disabled that its owner turned off.
pub const SWITCHED_OFF: &str = "turned off in the config file";

fn state(disabled: bool, itself: bool, missing: &[String]) -> ServerState {
    if disabled {
        ServerState::Disabled { reason: SWITCHED_OFF.to_owned() }
    } else if itself {
        ServerState::Disabled { reason: ITSELF.to_owned() }
    } else if missing.is_empty() {
        ServerState::Enabled
    } else {
        ServerState::Disabled { reason: missing.join("; ") }
    }
}

fn read_flag(report: &mut Report<'_>, fields: &mut Fields<'_, '_>, key: &str) -> bool {
    fields.take(key).and_then(|field| field.node.boolean(report)).unwrap_or(false)
}

fn read_disabled(report: &mut Report<'_>, fields: &mut Fields<'_, '_>) -> bool {
    let disabled = fields.take("disabled").and_then(|field| field.node.boolean(report));
    let enabled = fields.take("enabled");
    let said = enabled.as_ref().and_then(|field| field.node.boolean(report));
    if let (Some(disabled), Some(said), Some(field)) = (disabled, said, &enabled)
        && disabled == said
    {
        let hint = "keep one of the two".to_owned();
        report.problem_with(field.node.range(), &field.node.path, "contradicts `disabled`", hint);
    }
    disabled.unwrap_or(false) || said == Some(false)
}

fn read_millis(report: &mut Report<'_>, node: &Node<'_, '_>) -> Option<Duration> {
    node.number(report, "a whole number of milliseconds", 1, LONGEST_TIME)
        .map(Duration::from_millis)
}

/// `timeoutMs` is plain; `timeout` is seconds with some clients and milliseconds with others.
fn read_timeout(report: &mut Report<'_>, fields: &mut Fields<'_, '_>) -> Option<Duration> {
    let field = fields.take("timeoutMs")?;
    let timeout = read_millis(report, &field.node)?;
    let millis = timeout.as_millis();
    if field.written == "timeout" && millis < u128::from(SECONDS_OR_MILLIS) {
        let message = format!("{millis} may be seconds or milliseconds, ignored");
        let hint = format!("write \"timeoutMs\": {} for {millis} seconds", millis * 1_000);
        report.warn(field.node.range(), &field.node.path, message, hint);
        return None;
    }
    Some(timeout)
}

fn read_idle(
    report: &mut Report<'_>,
    fields: &mut Fields<'_, '_>,
) -> Option<(Duration, Range, String)> {
    let field = fields.take("idleTimeoutMs")?;
    Some((read_millis(report, &field.node)?, field.node.range(), field.node.path))
}

fn read_lifecycle(
    report: &mut Report<'_>,
    fields: &mut Fields<'_, '_>,
    own: Option<(Duration, Range, String)>,
) -> (Lifecycle, Option<Duration>) {
    let (mode, inner) = match fields.take("lifecycle") {
        Some(field) => read_mode(report, &field.node),
        None => (None, None),
    };
    if let (Some(inner), Some((own, range, path))) = (inner, &own)
        && inner != *own
    {
        report.problem(*range, path, "contradicts `lifecycle.idleTimeoutMs`");
    }
    let timeout = inner.or(own.as_ref().map(|(own, ..)| *own));
    match mode {
        Some("keep-alive") => (Lifecycle::KeepAlive { idle_timeout: timeout }, timeout),
        Some(_) => {
            if let Some((_, range, path)) = own {
                report.warn(range, &path, "has no effect on an ephemeral server, ignored", None);
            }
            (Lifecycle::Ephemeral, None)
        }
        None => (Lifecycle::Default, timeout),
    }
}

const MODES: &[Word] = &[
    Word { word: "keep-alive", also: &[], meaning: "Never stopped for being idle." },
    Word { word: "ephemeral", also: &[], meaning: "Stopped as soon as it is idle." },
];

fn read_mode(
    report: &mut Report<'_>,
    node: &Node<'_, '_>,
) -> (Option<&'static str>, Option<Duration>) {
    let Value::Object(object) = node.value else {
        if !matches!(node.value, Value::StringLit(_)) {
            return (node.wrong(report, "a string or an object with `mode`"), None);
        }
        return (word(report, node, MODES), None);
    };
    let keys = [Key { name: "mode", aliases: &[] }, Key { name: "idleTimeoutMs", aliases: &[] }];
    let mut fields = Fields::read(report, object, &node.path, &keys, &[]);
    let timeout = fields.take("idleTimeoutMs").and_then(|field| read_millis(report, &field.node));
    let Some(mode) = fields.take("mode") else {
        let hint = "`keep-alive` or `ephemeral`".to_owned();
        report.problem_with(node.range(), &node.path, "`mode` is missing", hint);
        return (None, timeout);
    };
    (word(report, &mode.node, MODES), timeout)
}

/// An enumerated value; case and separators are ignored.
fn word(
    report: &mut Report<'_>,
    node: &Node<'_, '_>,
    words: &'static [Word],
) -> Option<&'static str> {
    let written = node.string(report)?;
    let folded = |word: &str| word.replace(['-', '_'], "").to_ascii_lowercase();
    let known = words.iter().find(|known| folded(known.word) == folded(written));
    if known.is_none()
        && let Err(error) = Kind::Word(words).from_word(written)
    {
        report.problem(node.range(), &node.path, error.message);
    }
    known.map(|known| known.word)
}

fn read_retry(report: &mut Report<'_>, node: &Node<'_, '_>) -> Option<RetryRule> {
    let rule = |report: &mut Report<'_>, node: &Node<'_, '_>| {
        word(report, node, Retry::WORDS).and_then(Retry::from_word)
    };
    let object = match node.value {
        Value::StringLit(_) => {
            return Some(RetryRule { default: rule(report, node)?, per_tool: Vec::new() });
        }
        Value::Object(object) => object,
        _ => return node.wrong(report, "a string or an object with `default` and `tools`"),
    };
    let keys = [Key { name: "default", aliases: &[] }, Key { name: "tools", aliases: &[] }];
    let mut fields = Fields::read(report, object, &node.path, &keys, &[]);
    let default =
        fields.take("default").and_then(|field| rule(report, &field.node)).unwrap_or_default();
    let mut per_tool = Vec::new();
    if let Some(field) = fields.take("tools") {
        let object = field.node.object(report)?;
        for (tool, _, node) in properties(report, object, &field.node.path) {
            per_tool.push((Pattern::new(tool), rule(report, &node)?));
        }
    }
    Some(RetryRule { default, per_tool })
}

fn read_approve(report: &mut Report<'_>, node: &Node<'_, '_>) -> Option<ApproveRule> {
    let rule = |report: &mut Report<'_>, node: &Node<'_, '_>| {
        word(report, node, Approve::WORDS).and_then(Approve::from_word)
    };
    let object = match node.value {
        Value::StringLit(_) => {
            return Some(ApproveRule { default: Some(rule(report, node)?), per_tool: Vec::new() });
        }
        Value::Object(object) => object,
        _ => return node.wrong(report, "a string or an object with `default` and `tools`"),
    };
    let keys = [Key { name: "default", aliases: &[] }, Key { name: "tools", aliases: &[] }];
    let mut fields = Fields::read_rules(report, object, &node.path, &keys);
    let default = fields.take("default").and_then(|field| rule(report, &field.node));
    let mut per_tool = Vec::new();
    if let Some(field) = fields.take("tools") {
        let object = field.node.object(report)?;
        for (tool, _, node) in properties(report, object, &field.node.path) {
            per_tool.push((Pattern::new(tool), rule(report, &node)?));
        }
    }
    Some(ApproveRule { default, per_tool })
}

/// A list of names, or one of them alone: `all` is written as a word.
fn read_pass_env(
    report: &mut Report<'_>,
    fields: &mut Fields<'_, '_>,
    transport: Option<&Transport>,
) -> PassEnv {
    let usual = PassEnv::Usual(Vec::new());
    let Some(field) = fields.take("passEnv") else { return usual };
    if transport.is_some_and(Transport::is_remote) {
        let message = "has no meaning for a remote server, ignored";
        report.warn(field.node.range(), &field.node.path, message, None);
        return usual;
    }
    let names = match field.node.value {
        Value::StringLit(_) => field.node.string(report).map(|name| vec![(name, field.node)]),
        Value::Array(_) => field.node.strings(report),
        _ => field.node.wrong(report, "a list of names of variables, or `all`"),
    };
    let Some(names) = names else { return usual };
    for (name, node) in &names {
        if let Some(fault) = metamcp_types::pass_env::fault(name) {
            report.problem(node.range(), &node.path, fault);
        }
    }
    PassEnv::named(names.into_iter().map(|(name, _)| name))
}

fn read_in_flight(
    report: &mut Report<'_>,
    fields: &mut Fields<'_, '_>,
    exclusive: bool,
) -> Option<u32> {
    let field = fields.take("maxInFlight")?;
    let number = field.node.number(report, "a whole number", 1, MOST_IN_FLIGHT)?;
    if exclusive && number > 1 {
        let message = "has no effect: `exclusive` allows one call at a time";
        report.warn(field.node.range(), &field.node.path, message, None);
    }
    u32::try_from(number).ok()
}

fn read_instances(
    report: &mut Report<'_>,
    fields: &mut Fields<'_, '_>,
    share: Option<Scope>,
) -> u32 {
    let Some(field) = fields.take("instances") else { return 1 };
    let number = field.node.number(report, "a whole number", 1, MOST_INSTANCES);
    if share == Some(Scope::Session) && number.is_some_and(|number| number > 1) {
        let message = "has no effect: `share` gives each client a process of its own";
        report.warn(field.node.range(), &field.node.path, message, None);
    }
    number.and_then(|number| u32::try_from(number).ok()).unwrap_or(1)
}

/// Labels a node must have.
fn read_requires(
    report: &mut Report<'_>,
    fields: &mut Fields<'_, '_>,
    share: Option<Scope>,
) -> Vec<(String, String)> {
    let Some(field) = fields.take("requires") else { return Vec::new() };
    let Some(object) = field.node.object(report) else { return Vec::new() };
    only_in_a_fleet(report, &field.node, share);
    let mut labels = Vec::new();
    for (name, _, node) in properties(report, object, &field.node.path) {
        let Some(value) = node.string(report) else { continue };
        if labels.len() == MOST_LABELS || name.len() + value.len() > LONGEST_LABEL {
            let message =
                "a server requires at most 32 labels, each of at most 128 bytes with its value";
            report.warn(node.range(), &node.path, message, None);
            break;
        }
        labels.push((name.to_owned(), value.to_owned()));
    }
    labels.sort();
    labels
}

fn read_pin(
    report: &mut Report<'_>,
    fields: &mut Fields<'_, '_>,
    share: Option<Scope>,
) -> Option<String> {
    let field = fields.take("pin")?;
    let name = field.node.string(report)?;
    only_in_a_fleet(report, &field.node, share);
    if !is_node_name(name) {
        return field.node.wrong(report, "the name of a gateway: 1 to 64 letters, digits, - and _");
    }
    Some(name.to_owned())
}

fn only_in_a_fleet(report: &mut Report<'_>, node: &Node<'_, '_>, share: Option<Scope>) {
    if !matches!(share, Some(Scope::Fleet | Scope::Principal)) {
        let message = "has no effect: only a server with `\"share\": \"fleet\"` or `\"principal\"` runs elsewhere than where it is called";
        report.warn(node.range(), &node.path, message, None);
    }
}

/// What the bus of a fleet takes as the name of a gateway.
fn is_node_name(name: &str) -> bool {
    let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    !name.is_empty() && name.len() <= 64 && name.bytes().all(is_fit)
}

fn read_tools(report: &mut Report<'_>, fields: &mut Fields<'_, '_>) -> ToolFilter {
    let mut filter = ToolFilter::default();
    let mut allow = Vec::new();
    let mut deny = Vec::new();
    if let Some(field) = fields.take("tools") {
        match field.node.value {
            Value::Array(_) => allow.push(field),
            Value::Object(object) => {
                let keys = [
                    Key { name: "allow", aliases: &["allowed"] },
                    Key { name: "deny", aliases: &["denied"] },
                ];
                let mut inner = Fields::read_rules(report, object, &field.node.path, &keys);
                allow.extend(inner.take("allow"));
                deny.extend(inner.take("deny"));
            }
            _ => {
                field
                    .node
                    .wrong::<()>(report, "an object with `allow` and `deny`, or a list of names");
            }
        }
    }
    allow.extend(fields.take("allowedTools"));
    deny.extend(fields.take("deniedTools"));
    for (lists, is_allow) in [(allow, true), (deny, false)] {
        if let [_, second, ..] = lists.as_slice() {
            let hint = "keep one of the two".to_owned();
            report.problem_with(
                second.node.range(),
                &second.node.path,
                "given twice under two names",
                hint,
            );
        }
        let Some(list) = lists.first() else { continue };
        let Some(patterns) = read_patterns(report, &list.node) else { continue };
        if !is_allow {
            filter.deny = patterns;
            continue;
        }
        if patterns.is_empty() {
            let hint = "remove it to allow every tool".to_owned();
            report.warn(
                list.node.range(),
                &list.node.path,
                "an empty list allows no tool at all",
                hint,
            );
        }
        filter.allow = Some(patterns);
    }
    filter
}

/// Most examples of one tool that are read; no answer shows more.
const MOST_EXAMPLES: usize = 5;

fn read_examples(
    report: &mut Report<'_>,
    node: &Node<'_, '_>,
) -> Vec<(String, Vec<serde_json::Value>)> {
    let Some(object) = node.object(report) else { return Vec::new() };
    let mut all = Vec::new();
    for (tool, _, node) in properties(report, object, &node.path) {
        let Some(elements) = node.elements(report, "a list of objects with arguments") else {
            continue;
        };
        let mut examples = Vec::new();
        for node in elements.into_iter().take(MOST_EXAMPLES) {
            if node.object(report).is_some() {
                examples.push(plain(node.value));
            }
        }
        all.push((tool.to_owned(), examples));
    }
    all
}

/// A value as it is meant, without its place in the file.
fn plain(value: &Value<'_>) -> serde_json::Value {
    use serde_json::Value as Plain;
    match value {
        Value::StringLit(literal) => Plain::from(&*literal.value),
        Value::NumberLit(literal) => serde_json::from_str(literal.value).unwrap_or_default(),
        Value::BooleanLit(literal) => literal.value.into(),
        Value::Object(object) => {
            let member = |property: &jsonc_parser::ast::ObjectProp<'_>| {
                (property.name.as_str().to_owned(), plain(&property.value))
            };
            Plain::Object(object.properties.iter().map(member).collect())
        }
        Value::Array(array) => array.elements.iter().map(plain).collect(),
        Value::NullKeyword(_) => Plain::Null,
    }
}

fn read_patterns(report: &mut Report<'_>, node: &Node<'_, '_>) -> Option<Vec<Pattern>> {
    let mut patterns = Vec::new();
    for (text, node) in node.strings(report)? {
        if text.is_empty() {
            report.problem(
                node.range(),
                &node.path,
                "is empty: expected a tool's name or a pattern",
            );
        }
        patterns.push(Pattern::new(text));
    }
    Some(patterns)
}
