//! The keys of a server: names, aliases and help for the reference and schema, all declared here once.

use serde_json::{Value, json};

use super::Retry;
use super::read::{Foreign, Key};
use super::server::overrides::{HINTS, KEYS as OVERRIDE_KEYS};
use crate::scope::Scope;
use crate::settings::{Approve, Containment, Word};

/// A key of a server.
pub(super) struct ServerKey {
    pub(super) key: Key,
    /// One line for reference and schema.
    pub(super) help: &'static str,
    /// The JSON Schema of its value, without the description.
    pub(super) schema: fn() -> Value,
}

/// No time limit needs more than a day.
pub(super) const LONGEST_TIME: u64 = 86_400_000;
/// More calls at once than any server answers.
pub(super) const MOST_IN_FLIGHT: u64 = 65_536;
/// More of one server than the pool could ever have room for beside others.
pub(super) const MOST_INSTANCES: u64 = 32;
/// Labels that a server requires of a gateway, and one with its value in bytes: what gateways tell each other.
pub(super) const MOST_LABELS: usize = 32;
pub(super) const LONGEST_LABEL: usize = 128;

/// The transports with every spelling that is understood.
pub(super) const TRANSPORTS: &[(&str, &[&str])] = &[
    ("stdio", &["local"]),
    ("http", &["streamable-http", "streamableHttp", "streamable_http", "streamable", "remote"]),
    ("sse", &[]),
    ("openapi", &["rest"]),
];

const fn key(name: &'static str, aliases: &'static [&'static str]) -> Key {
    Key { name, aliases }
}

/// Every key of a server, in the order of the reference.
pub(super) static SERVER_KEYS: &[ServerKey] = &[
    ServerKey {
        key: key("type", &["transportType", "transport"]),
        help: "How the server is reached. Optional: `command` means `stdio`; with `url` it is detected.",
        schema: || {
            let words: Vec<&str> = TRANSPORTS
                .iter()
                .flat_map(|(name, aliases)| std::iter::once(*name).chain(aliases.iter().copied()))
                .collect();
            json!({ "enum": words })
        },
    },
    ServerKey {
        key: key("command", &["cmd"]),
        help: "The program to start. Not split and not passed to a shell; a list is the program followed by its first arguments.",
        schema: || json!({ "anyOf": [text(), { "type": "array", "items": { "type": "string" }, "minItems": 1 }] }),
    },
    ServerKey {
        key: key("args", &[]),
        help: "The arguments of the program, one string each.",
        schema: || json!({ "type": "array", "items": { "type": "string" } }),
    },
    ServerKey {
        key: key("env", &["environment"]),
        help: "Environment variables for the server. It gets these, what `passEnv` names, and the usual ones that programs and developers' tools need (PATH, HOME, SSH_AUTH_SOCK, KUBECONFIG, proxies and the like; docs/environment.md has the list), nothing else.",
        schema: || json!({ "type": "object", "additionalProperties": { "type": ["string", "number", "boolean"] } }),
    },
    ServerKey {
        key: key("passEnv", &[]),
        help: "Further variables of your environment that the server gets, by name; `*` in a name matches anything. One that is not set is skipped. `all` passes on every one. Added to those that the file's global `passEnv` names.",
        schema: || {
            let name = json!({ "type": "string", "pattern": r"^[^=\s${},]+$" });
            json!({ "anyOf": [name, { "type": "array", "items": name }] })
        },
    },
    ServerKey {
        key: key("cwd", &["workingDirectory", "working_directory"]),
        help: "The directory it runs in. `~/` is your home; a relative path starts from the directory metamcp runs in.",
        schema: text,
    },
    ServerKey {
        key: key("url", &["serverUrl", "httpUrl", "uri"]),
        help: "The address of a remote server, `http://` or `https://`.",
        schema: || json!({ "type": "string", "pattern": r"^[hH][tT][tT][pP][sS]?://|\$\{" }),
    },
    ServerKey {
        key: key("openapi", &["openApi", "openapiUrl"]),
        help: "The OpenAPI description (3.0 or 3.1, JSON or YAML) of a REST API, in place of a server: a file, relative to this one, or an address. Its operations are the tools. docs/openapi.md has the rest.",
        schema: text,
    },
    ServerKey {
        key: key("baseUrl", &["base_url"]),
        help: "Where the API of an `openapi` description is, in place of what the description says. Needed where the description says nothing, and where it is fetched and sends credentials to another origin than its own.",
        schema: || json!({ "type": "string", "pattern": r"^[hH][tT][tT][pP][sS]?://|\$\{" }),
    },
    ServerKey {
        key: key("credentials", &[]),
        help: "Credentials for the security schemes of an `openapi` description, by their names in it: a key, a token, or `user:password`. Sent where each scheme says, and only to the API's own origin.",
        schema: || json!({ "type": "object", "additionalProperties": { "type": "string" } }),
    },
    ServerKey {
        key: key("include", &[]),
        help: "Which operations of an `openapi` description become tools: `tag:NAME`, `GET`, `GET /path/*`, `/path/*` or the name of an operation; `*` matches anything. Default: all.",
        schema: patterns,
    },
    ServerKey {
        key: key("exclude", &[]),
        help: "Which operations of an `openapi` description do not, written the same. Goes before `include`.",
        schema: patterns,
    },
    ServerKey {
        key: key("headers", &["httpHeaders"]),
        help: "Headers sent with every request to a remote server.",
        schema: || json!({ "type": "object", "additionalProperties": { "type": "string" } }),
    },
    ServerKey {
        key: key("bearerToken", &["bearer_token"]),
        help: "A token for a remote server, as in `${TOKEN}`. The same as the header `Authorization: Bearer …`.",
        schema: text,
    },
    ServerKey {
        key: key("oauth", &["auth"]),
        help: "How to sign in to a remote server that requires it, where discovery does not suffice: `clientId`, `clientSecret` or `privateKey` (a PEM file), `scopes`, `grant` (`authorization_code` or `client_credentials`), `clientMetadataUrl`, `callbackPort`, `identityProvider` (`tokenUrl`, `clientId`, `idToken`: your company's identity provider), `authorizationUrl` and `tokenUrl` where the server publishes neither. `false`: never sign in.",
        schema: || {
            json!({ "anyOf": [
                { "const": false },
                { "const": "oauth" },
                {
                    "type": "object",
                    "properties": {
                        "enabled": flag(true),
                        "clientId": text(),
                        "clientSecret": text(),
                        "privateKey": text(),
                        "scopes": { "anyOf": [text(), { "type": "array", "items": { "type": "string" } }] },
                        "grant": { "enum": ["authorization_code", "client_credentials"] },
                        "clientMetadataUrl": { "type": "string", "pattern": "^https://" },
                        "callbackPort": number(1, 65_535),
                        "authorizationUrl": text(),
                        "tokenUrl": text(),
                        "identityProvider": {
                            "type": "object",
                            "properties": {
                                "tokenUrl": text(), "clientId": text(), "idToken": text(),
                            },
                            "required": ["tokenUrl", "clientId", "idToken"],
                            "additionalProperties": false,
                        },
                    },
                    "additionalProperties": false,
                },
            ] })
        },
    },
    ServerKey {
        key: key("tls", &[]),
        help: "Files for TLS to a remote server: `ca` (certificate authorities to trust beside the usual ones), `cert` and `key` (a client certificate). PEM; `~/` is your home.",
        schema: || {
            json!({
                "type": "object",
                "properties": { "ca": text(), "cert": text(), "key": text() },
                "additionalProperties": false,
            })
        },
    },
    ServerKey {
        key: key("timeoutMs", &["timeout"]),
        help: "Time limit of a call to this server, in milliseconds. Default: `timeouts.callTimeoutMs`.",
        schema: || number(1, LONGEST_TIME),
    },
    ServerKey {
        key: key("description", &[]),
        help: "What the server is for, in your words. The model reads it when it looks for tools.",
        schema: || json!({ "type": "string" }),
    },
    ServerKey {
        key: key("tags", &[]),
        help: "Words to group servers by: toolsets choose by them, and tools are shown with them.",
        schema: || json!({ "type": "array", "items": { "type": "string", "minLength": 1 } }),
    },
    ServerKey {
        key: key("examples", &[]),
        help: "Arguments to show as examples, by the name of the tool: a list of objects each.",
        schema: || json!({ "type": "object", "additionalProperties": { "type": "array", "items": { "type": "object" } } }),
    },
    ServerKey {
        key: key("disabled", &[]),
        help: "Do not use the server. It stays in lists, marked as disabled.",
        schema: || flag(false),
    },
    ServerKey {
        key: key("enabled", &[]),
        help: "The opposite of `disabled`, for files that say it this way.",
        schema: || flag(true),
    },
    ServerKey {
        key: key("vital", &[]),
        help: "Restart the server for a retry every time it dies, not only the first time.",
        schema: || flag(false),
    },
    ServerKey {
        key: key("lifecycle", &[]),
        help: "`keep-alive`: never stopped for being idle. `ephemeral`: stopped as soon as it is idle. Default: stopped after the idle timeout.",
        schema: || {
            json!({ "anyOf": [
                { "enum": ["keep-alive", "ephemeral"] },
                {
                    "type": "object",
                    "properties": {
                        "mode": { "enum": ["keep-alive", "ephemeral"] },
                        "idleTimeoutMs": number(1, LONGEST_TIME),
                    },
                    "required": ["mode"],
                    "additionalProperties": false,
                },
            ] })
        },
    },
    ServerKey {
        key: key("idleTimeoutMs", &[]),
        help: "How long this server may be idle before it is stopped, in milliseconds. Default: `pool.idleTimeoutMs`.",
        schema: || number(1, LONGEST_TIME),
    },
    ServerKey {
        key: key("retry", &[]),
        help: "Whether a call may be sent again when the server died before it answered: one word for all tools, or an object with exceptions by tool name, where `*` matches anything.",
        schema: || {
            json!({ "anyOf": [
                words(Retry::WORDS),
                {
                    "type": "object",
                    "properties": {
                        "default": words(Retry::WORDS),
                        "tools": { "type": "object", "additionalProperties": words(Retry::WORDS) },
                    },
                    "additionalProperties": false,
                },
            ] })
        },
    },
    ServerKey {
        key: key("approve", &[]),
        help: "Which calls need a person's approval before they are sent: one word for all tools, or an object with `default` and exceptions by tool name under `tools`, where `*` matches anything. Default: `approvals.rule`.",
        schema: || {
            json!({ "anyOf": [
                words(Approve::WORDS),
                {
                    "type": "object",
                    "properties": {
                        "default": words(Approve::WORDS),
                        "tools": { "type": "object", "additionalProperties": words(Approve::WORDS) },
                    },
                    "additionalProperties": false,
                },
            ] })
        },
    },
    ServerKey {
        key: key("eager", &[]),
        help: "Starts with the gateway instead of with the first call, for servers that start slowly behind clients with short timeouts.",
        schema: || flag(false),
    },
    ServerKey {
        key: key("exclusive", &[]),
        help: "One call at a time; the next waits.",
        schema: || flag(false),
    },
    ServerKey {
        key: key("maxInFlight", &[]),
        help: "Most calls at once. Default: `limits.maxInFlight`.",
        schema: || number(1, MOST_IN_FLIGHT),
    },
    ServerKey {
        key: key("share", &[]),
        help: "Who shares one process of the server: all clients of a fleet, all on the machine, those of one project, or nobody. Default: derived from what the server is; `metamcp list --why` explains it.",
        schema: || words(Scope::WORDS),
    },
    ServerKey {
        key: key("requires", &[]),
        help: "Labels that a gateway of a fleet must have to run the server, such as `{ \"gpu\": \"true\" }`; each gateway has those of `cluster.labels`. For servers with `\"share\": \"fleet\"`.",
        schema: || json!({ "type": "object", "additionalProperties": { "type": "string" } }),
    },
    ServerKey {
        key: key("pin", &[]),
        help: "The gateway of a fleet that runs the server, by its `cluster.node`: for files or a device of one machine. For servers with `\"share\": \"fleet\"`.",
        schema: || json!({ "type": "string" }),
    },
    ServerKey {
        key: key("instances", &[]),
        help: "Most processes of the server that run at once for the same clients. More than one is started only when calls queue, for servers that take one call at a time. No effect where each client has a process of its own. Default: 1.",
        schema: || number(1, MOST_INSTANCES),
    },
    ServerKey {
        key: key("tools", &[]),
        help: "Which tools may be seen and called: `allow` and `deny`, lists of names in which `*` matches anything. `deny` wins. A list alone is an `allow` list.",
        schema: || {
            json!({ "anyOf": [
                patterns(),
                {
                    "type": "object",
                    "properties": { "allow": patterns(), "deny": patterns() },
                    "additionalProperties": false,
                },
            ] })
        },
    },
    ServerKey {
        key: key("allowedTools", &["allowTools", "includeTools", "enabledTools", "enabled_tools"]),
        help: "The same as `tools.allow`.",
        schema: patterns,
    },
    ServerKey {
        key: key(
            "deniedTools",
            &["denyTools", "excludeTools", "disabledTools", "disabled_tools", "blockedTools"],
        ),
        help: "The same as `tools.deny`.",
        schema: patterns,
    },
    ServerKey {
        key: key("overrides", &[]),
        help: "What you say of the server's tools in its place, by the name that the server gives a tool, where `*` matches anything: `name`, `title`, `description`, `annotations`, `tags`, `defaults`, `hidden`, `enums`, `pin`. An exact name goes before a pattern.",
        schema: || {
            let property = |(name, help): (&str, &str)| {
                let schema = match name {
                    "name" | "title" | "description" => text(),
                    "annotations" => {
                        let hints =
                            HINTS.map(|hint| (hint.to_owned(), json!({ "type": "boolean" })));
                        json!({
                            "type": "object",
                            "properties": serde_json::Map::from_iter(hints),
                            "additionalProperties": false,
                        })
                    }
                    "tags" => patterns(),
                    "enums" => {
                        json!({ "type": "object", "additionalProperties": { "type": "array", "minItems": 1 } })
                    }
                    "pin" => json!({ "enum": [true, false, "auto"], "default": false }),
                    _ => json!({ "type": "object" }),
                };
                let mut schema = schema;
                schema["description"] = help.into();
                (name.to_owned(), schema)
            };
            json!({
                "type": "object",
                "additionalProperties": {
                    "type": "object",
                    "properties": serde_json::Map::from_iter(OVERRIDE_KEYS.map(property)),
                    "additionalProperties": false,
                },
            })
        },
    },
    ServerKey {
        key: key("containment", &[]),
        help: "How this server is prevented from outliving the gateway. Default: the global `containment`.",
        schema: || words(Containment::WORDS),
    },
];

const NO_APPROVAL: &str =
    "belongs to another client and has no effect here: `approve` says which calls need an approval";

/// Keys of servers that other programs know.
pub(super) static FOREIGN_SERVER_KEYS: &[Foreign] = &[
    harmless("autoApprove", NO_APPROVAL),
    harmless("alwaysAllow", NO_APPROVAL),
    harmless("autoAllow", NO_APPROVAL),
    harmless("trust", NO_APPROVAL),
    harmless("alwaysLoad", "has no effect here: tools are loaded when they are needed"),
    harmless("autoStart", "has no effect here: servers start when they are first needed"),
    harmless("dev", "is for the editor and has no effect here"),
    harmless("gallery", "is for the editor and has no effect here"),
    harmless("version", "has no effect here"),
    harmless("source", "has no effect here"),
    harmless("name", "has no effect here: a server is called by its key"),
    harmless("icon", "has no effect here"),
    harmless("iconPath", "has no effect here"),
    harmless("note", "has no effect here"),
    harmless("comment", "has no effect here"),
    Foreign { name: "envFile", reason: "is not read: put the variables into `env`", matters: true },
    Foreign {
        name: "env_vars",
        reason: "is not read: name the variables in `passEnv`",
        matters: true,
    },
];

/// Keys of the file that other programs know.
pub(super) static FOREIGN_FILE_KEYS: &[Foreign] = &[
    harmless(
        "inputs",
        "is for the editor: a server that uses `${input:…}` is disabled here; use `${VARIABLE}` instead",
    ),
    harmless("globalShortcut", "is for the desktop client and has no effect here"),
    harmless("preferences", "is for the desktop client and has no effect here"),
    harmless("version", "has no effect here"),
    harmless("comment", "has no effect here"),
];

const fn harmless(name: &'static str, reason: &'static str) -> Foreign {
    Foreign { name, reason, matters: false }
}

/// The schema of a value that is one of a few words.
pub(super) fn words(words: &[Word]) -> Value {
    let each: Vec<Value> = words
        .iter()
        .map(|known| json!({ "const": known.word, "description": known.meaning }))
        .collect();
    json!({ "oneOf": each })
}

/// The schema of a whole number.
pub(super) fn number(min: u64, max: u64) -> Value {
    json!({ "type": "integer", "minimum": min, "maximum": max })
}

fn text() -> Value {
    json!({ "type": "string", "minLength": 1 })
}

fn flag(default: bool) -> Value {
    json!({ "type": "boolean", "default": default })
}

fn patterns() -> Value {
    json!({ "type": "array", "items": { "type": "string", "minLength": 1 } })
}
