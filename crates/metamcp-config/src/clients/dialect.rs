//! The formats in which clients write a server, where they differ from the usual `command`, `args`, `env` or `url`.

use serde_json::{Map, Value, json};

/// How a client writes its servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// `command`, `args`, `env`, or `url`, `headers`.
    Standard,
    /// The same with a `type` that must be there.
    Typed,
    /// The same with `source: "custom"`, and in older files a `command` that is an object.
    Zed,
    /// `httpUrl` is HTTP, `url` is SSE.
    Gemini,
    /// One list for program and arguments, `environment`, `type: "local"`.
    OpenCode,
    /// The usual with a `timeout` in seconds.
    Cline,
    /// The same with a `type` that must be there.
    Crush,
    /// `cmd`, `envs`, `env_keys`, `uri`, a `timeout` in seconds.
    Goose,
    /// The usual with headers under `requestOptions`, and a `name` that is the key elsewhere.
    Continue,
    /// TOML with `http_headers`, `bearer_token_env_var`, time-outs in seconds.
    Codex,
}

/// Call timeout in seconds, for clients whose entries have one.
const PATIENCE_SECONDS: u32 = 300;

impl Dialect {
    /// The entry by which a client starts this gateway.
    pub fn own_entry(self, command: &str, args: &[String]) -> Value {
        match self {
            Dialect::Standard | Dialect::Gemini | Dialect::Codex | Dialect::Continue => {
                json!({ "command": command, "args": args })
            }
            // They end a call sooner than we do, and the first one may have to wait for an install.
            Dialect::Cline => {
                json!({ "command": command, "args": args, "timeout": PATIENCE_SECONDS })
            }
            Dialect::Typed => json!({ "type": "stdio", "command": command, "args": args }),
            Dialect::Crush => {
                json!({ "type": "stdio", "command": command, "args": args, "timeout": PATIENCE_SECONDS })
            }
            Dialect::Zed => {
                json!({ "source": "custom", "command": command, "args": args, "env": {} })
            }
            Dialect::OpenCode => {
                let words: Vec<&str> =
                    std::iter::once(command).chain(args.iter().map(String::as_str)).collect();
                json!({ "type": "local", "command": words, "enabled": true })
            }
            Dialect::Goose => json!({
                "name": "metamcp",
                "type": "stdio",
                "cmd": command,
                "args": args,
                "envs": {},
                "enabled": true,
                "timeout": PATIENCE_SECONDS,
            }),
        }
    }

    /// What it calls the table of variables.
    pub(super) fn env_key(self) -> &'static str {
        match self {
            Dialect::OpenCode => "environment",
            Dialect::Goose => "envs",
            _ => "env",
        }
    }

    /// An entry as our own file takes it. Keys without meaning to us stay: they are somebody's.
    pub(super) fn to_standard(self, entry: &Value) -> Result<Value, String> {
        let Value::Object(entry) = entry else { return Err("is not an object".to_owned()) };
        let mut entry = entry.clone();
        match self {
            Dialect::Standard | Dialect::Typed | Dialect::OpenCode => {}
            Dialect::Cline | Dialect::Crush => seconds(&mut entry, "timeout"),
            Dialect::Gemini => {
                if entry.contains_key("url") && !entry.contains_key("type") {
                    entry.insert("type".to_owned(), "sse".into());
                }
            }
            Dialect::Zed => zed(&mut entry)?,
            Dialect::Goose => goose(&mut entry)?,
            Dialect::Codex => codex(&mut entry)?,
            Dialect::Continue => continued(&mut entry),
        }
        Ok(Value::Object(entry))
    }
}

fn rename(entry: &mut Map<String, Value>, from: &str, to: &str) {
    if let Some(value) = entry.remove(from) {
        entry.insert(to.to_owned(), value);
    }
}

fn zed(entry: &mut Map<String, Value>) -> Result<(), String> {
    entry.remove("source");
    if entry.get("command").is_none_or(Value::is_null) && !entry.contains_key("url") {
        return Err("is an extension of that client, without a command of its own".to_owned());
    }
    if let Some(Value::Object(inner)) = entry.get("command").cloned() {
        entry.remove("command");
        for (key, value) in inner {
            entry.insert(if key == "path" { "command".to_owned() } else { key }, value);
        }
    }
    entry.retain(|_, value| !value.is_null());
    Ok(())
}

fn goose(entry: &mut Map<String, Value>) -> Result<(), String> {
    match entry.get("type").and_then(Value::as_str) {
        Some("stdio" | "sse" | "streamable_http") | None => {}
        Some(kind) => return Err(format!("is of type `{kind}`, which is part of that client")),
    }
    rename(entry, "cmd", "command");
    rename(entry, "envs", "env");
    rename(entry, "uri", "url");
    for key in ["url", "headers"] {
        let (env, keys) = (entry.get("env").cloned(), entry.get("env_keys").cloned());
        if let Some(value) = entry.get_mut(key) {
            filled_in(value, &env.unwrap_or_default(), &keys.unwrap_or_default());
        }
    }
    seconds(entry, "timeout");
    if let Some(Value::Array(names)) = entry.remove("env_keys") {
        // Goose keeps their values to itself; here they are looked for in the environment.
        for name in names.iter().filter_map(Value::as_str) {
            let env = table(entry, "env", "envs")?;
            env.entry(name).or_insert_with(|| format!("${{{name}}}").into());
        }
    }
    for key in ["name", "display_name", "bundled", "available_tools"] {
        entry.remove(key);
    }
    let is_remote = entry.contains_key("url");
    entry.retain(|key, value| !(value.is_null() || is_remote && key == "env"));
    Ok(())
}

/// Goose fills in `$NAME` and `${NAME}` of remote servers from what the entry itself names, and from nothing else. The
/// text was read as one without variables, so a brace behind a dollar is written as our own file does.
fn filled_in(value: &mut Value, env: &Value, keys: &Value) {
    match value {
        Value::Object(all) => all.values_mut().for_each(|one| filled_in(one, env, keys)),
        Value::String(text) => {
            let names = env.as_object().into_iter().flatten();
            let names = names.filter_map(|(name, value)| Some((name, value.as_str()?.to_owned())));
            let kept = keys.as_array().into_iter().flatten().filter_map(Value::as_str);
            let kept = kept.map(|name| (name.to_owned(), format!("${{{name}}}")));
            let names = names.map(|(name, value)| (name.clone(), value));
            let mut all: Vec<(String, String)> = names.chain(kept).collect();
            // `$TOKEN_2` is not `$TOKEN` with something behind it.
            all.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
            for (name, value) in all {
                // A mark that is in no text, so that what was put in is not read again.
                let mark = "\u{0}";
                *text =
                    text.replace(&format!("$${{{name}}}"), mark).replace(&format!("${name}"), mark);
                *text = text.replace(mark, &value);
            }
        }
        _ => {}
    }
}

fn continued(entry: &mut Map<String, Value>) {
    if let Some(Value::Object(mut options)) = entry.remove("requestOptions")
        && let Some(headers) = options.remove("headers")
    {
        entry.insert("headers".to_owned(), headers);
    }
    seconds(entry, "connectionTimeout");
    entry.remove("timeoutMs");
    entry.remove("faviconUrl");
}

fn codex(entry: &mut Map<String, Value>) -> Result<(), String> {
    rename(entry, "http_headers", "headers");
    if let Some(Value::Object(named)) = entry.remove("env_http_headers") {
        let headers = table(entry, "headers", "http_headers")?;
        for (header, variable) in named {
            let Some(variable) = variable.as_str() else { continue };
            headers.insert(header, format!("${{{variable}}}").into());
        }
    }
    if let Some(Value::String(variable)) = entry.remove("bearer_token_env_var") {
        let headers = table(entry, "headers", "http_headers")?;
        headers.insert("Authorization".to_owned(), format!("Bearer ${{{variable}}}").into());
    }
    if let Some(names) = entry.remove("env_vars") {
        let Value::Array(names) = names else {
            return Err("has an `env_vars` that is not a list".to_owned());
        };
        if names.iter().any(|one| one["source"] == "remote") {
            return Err(
                "takes variables from another machine, which only that client can do".into()
            );
        }
        // Those that are not set are skipped, by Codex as by us.
        let name = |one: &Value| one.as_str().or(one["name"].as_str()).map(str::to_owned);
        let names: Vec<String> = names.iter().filter_map(name).collect();
        if !names.is_empty() && !entry.contains_key("url") {
            entry.insert("passEnv".to_owned(), names.into());
        }
    }
    seconds(entry, "tool_timeout_sec");
    for key in ["startup_timeout_sec", "startup_timeout_ms", "required"] {
        entry.remove(key);
    }
    Ok(())
}

/// The table under a key, made if it is not there; `written` is what its client calls it.
fn table<'e>(
    entry: &'e mut Map<String, Value>,
    key: &str,
    written: &str,
) -> Result<&'e mut Map<String, Value>, String> {
    let value = entry.entry(key).or_insert_with(|| json!({}));
    value.as_object_mut().ok_or_else(|| format!("has a `{written}` that is not a table"))
}

/// A time in seconds, as the milliseconds we count in.
fn seconds(entry: &mut Map<String, Value>, key: &str) {
    if let Some(time) =
        entry.remove(key).and_then(|value| value.as_f64()).filter(|time| *time > 0.0)
    {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "positive, and a longer time limit than fits is refused by the reader"
        )]
        let millis = (time * 1_000.0) as u64;
        entry.insert("timeoutMs".to_owned(), millis.into());
    }
}
