//! `metamcp config`: the effective configuration, its sources, and its problems.

use std::io::Write;

use metamcp_config::config::{
    Config, Lifecycle, LocalCommand, Problem, RemoteEndpoint, ServerConfig, ServerState, Severity,
    json_schema,
};
use metamcp_config::settings::{Given, Origin};
use metamcp_engine::config::{LoadError, Loaded, ProjectTrust, Remark, Source};
use metamcp_types::secret::shown;
use serde_json::{Value, json};

use crate::args::{CheckArgs, DocsArgs, ManArgs, PathArgs};
use crate::exit::Exit;
use crate::render::{BOLD, DIM, YELLOW, load_error, plural, remarks, styled, table, visible};

pub(crate) fn check(
    loaded: Result<Loaded, LoadError>,
    arguments: &CheckArgs,
    out: &mut dyn Write,
    diagnostics: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let loaded = match loaded {
        Ok(loaded) => loaded,
        Err(error) => {
            if arguments.json {
                writeln!(out, "{:#}", error_json(&error))?;
            } else {
                load_error(diagnostics, &error)?;
            }
            return Ok(Exit::Config);
        }
    };
    let warned = loaded.remarks.iter().any(|remark| remark.severity == Severity::Warning);
    let is_faulty = loaded.remarks.iter().any(|remark| remark.severity == Severity::Error);
    let exit = match loaded.source {
        Source::Nowhere { .. } => Exit::Config,
        _ if is_faulty => Exit::Config,
        _ if arguments.strict && warned => Exit::Config,
        _ => Exit::Success,
    };
    if arguments.json {
        writeln!(out, "{:#}", check_json(&loaded, exit == Exit::Success))?;
    } else if let Some(advice) = loaded.source.advice() {
        remarks(diagnostics, &loaded.remarks)?;
        write!(diagnostics, "{advice}")?;
    } else {
        check_text(&loaded, out, diagnostics)?;
    }
    Ok(exit)
}

pub(crate) fn schema(out: &mut dyn Write) -> anyhow::Result<Exit> {
    writeln!(out, "{:#}", json_schema())?;
    Ok(Exit::Success)
}

pub(crate) fn path(
    loaded: &Loaded,
    arguments: &PathArgs,
    out: &mut dyn Write,
    diagnostics: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let path = loaded.source.path();
    if arguments.json {
        let mut told = source_json(&loaded.source);
        told["project"] = project_json(loaded);
        writeln!(out, "{told:#}")?;
    } else if let Some(path) = path {
        writeln!(out, "{}", path.display())?;
    } else if let Some(advice) = loaded.source.advice() {
        write!(diagnostics, "{advice}")?;
    }
    Ok(if path.is_some() { Exit::Success } else { Exit::Config })
}

pub(crate) fn docs(arguments: &DocsArgs) -> anyhow::Result<Exit> {
    std::fs::create_dir_all(&arguments.folder)?;
    for (name, page) in crate::reference::pages() {
        std::fs::write(arguments.folder.join(name), page)?;
    }
    Ok(Exit::Success)
}

/// Writes the manual pages, which packages contain.
pub(crate) fn man(arguments: &ManArgs) -> anyhow::Result<Exit> {
    std::fs::create_dir_all(&arguments.folder)?;
    for (name, page) in crate::reference::manual()? {
        std::fs::write(arguments.folder.join(name), page)?;
    }
    Ok(Exit::Success)
}

fn check_text(
    loaded: &Loaded,
    out: &mut dyn Write,
    diagnostics: &mut dyn Write,
) -> anyhow::Result<()> {
    if let Some(path) = loaded.source.path() {
        writeln!(out, "{}", styled(BOLD, &visible(&path.display().to_string())))?;
    }
    let Config { servers, .. } = &loaded.config;
    let rows: Vec<Vec<String>> = servers
        .iter()
        .map(|server| {
            vec![
                visible(&server.name),
                server.transport.name().to_owned(),
                server.origin.as_str().to_owned(),
                summary(server),
            ]
        })
        .collect();
    table(out, &rows)?;
    let changed: Vec<Vec<String>> = loaded
        .values
        .iter()
        .filter(|given| given.origin != Origin::Default)
        .map(|given| {
            vec![
                name_of(given).to_owned(),
                given.value.text().into_owned(),
                given.origin.to_string(),
            ]
        })
        .collect();
    if !changed.is_empty() {
        writeln!(out, "\n{}", styled(DIM, "settings that are not at their default"))?;
        table(out, &changed)?;
    }
    out.flush()?;
    remarks(diagnostics, &loaded.remarks)?;
    let disabled = servers.iter().filter(|server| !server.is_enabled()).count();
    let count = |severity: Severity, word: &str| {
        plural(loaded.remarks.iter().filter(|remark| remark.severity == severity).count(), word)
    };
    writeln!(
        out,
        "\n{}, {disabled} disabled, {}, {}",
        plural(servers.len(), "server"),
        count(Severity::Error, "error"),
        count(Severity::Warning, "warning")
    )?;
    Ok(())
}

/// The command or URL of a server, or why it is disabled.
fn summary(server: &ServerConfig) -> String {
    if let ServerState::Disabled { reason } | ServerState::Invalid { reason } = &server.state {
        return format!("{} {}", styled(YELLOW, "disabled:"), visible(reason));
    }
    visible(&shown(&server.transport.words().join(" "), server.secrets()))
}

/// The name of a setting for people: its key in the file, else its flag.
fn name_of(given: &Given) -> &'static str {
    given.setting.key.unwrap_or(given.setting.flag)
}

fn check_json(loaded: &Loaded, ok: bool) -> Value {
    json!({
        "ok": ok,
        "source": source_json(&loaded.source),
        "servers": loaded.config.servers.iter().map(server_json).collect::<Vec<_>>(),
        "settings": loaded.values.iter().map(setting_json).collect::<Vec<_>>(),
        "project": project_json(loaded),
        "warnings": remarks_of(loaded, |severity| severity != Severity::Error),
        "errors": remarks_of(loaded, |severity| severity == Severity::Error),
    })
}

fn remarks_of(loaded: &Loaded, wanted: impl Fn(Severity) -> bool) -> Vec<Value> {
    loaded.remarks.iter().filter(|remark| wanted(remark.severity)).map(remark_json).collect()
}

/// The project's file and whether it is used.
fn project_json(loaded: &Loaded) -> Value {
    let Some(project) = &loaded.project else { return Value::Null };
    let used = project.trust == ProjectTrust::Trusted;
    json!({ "path": project.path, "used": used, "waiting": project.is_waiting() })
}

/// The `--json` output of a command that failed.
pub(crate) fn failure_json(message: &str) -> Value {
    json!({ "ok": false, "errors": [{ "message": message }], "warnings": [] })
}

/// The `--json` output when there is no configuration at all.
pub(crate) fn nowhere_json(source: &Source) -> Value {
    let looked = match source {
        Source::Nowhere { looked } => looked.as_slice(),
        Source::Named(_) | Source::Project(_) | Source::User(_) => &[],
    };
    let mut told = failure_json("no config file was found");
    told["errors"][0]["looked"] = json!(looked);
    told["errors"][0]["hint"] = json!("metamcp init imports the servers of your clients");
    told
}

/// The `--json` output when the configuration is invalid.
pub(crate) fn error_json(error: &LoadError) -> Value {
    let errors: Vec<Value> = match error {
        LoadError::Broken { path, error } => error
            .problems
            .iter()
            .map(|Problem { place, message, hint, .. }| {
                json!({
                    "file": path, "line": place.line, "column": place.column, "path": place.path,
                    "message": message, "hint": hint,
                })
            })
            .collect(),
        LoadError::Environment { errors } => {
            errors.iter().map(|error| json!({ "message": error.to_string() })).collect()
        }
        LoadError::Unreadable { path, source } => {
            vec![json!({ "file": path, "message": format!("{error}: {source}") })]
        }
        LoadError::NotAFile { path, .. } | LoadError::TooLarge { path } => {
            vec![json!({ "file": path, "message": error.to_string() })]
        }
        LoadError::NoSuchToolset { .. } | LoadError::Elsewhere { .. } | LoadError::NoHome => {
            vec![json!({ "message": error.to_string() })]
        }
    };
    let warnings: Vec<Value> = match error {
        LoadError::Broken { path, error } => error
            .warnings
            .iter()
            .map(|warning| remark_json(&Remark::of_file(path, warning)))
            .collect(),
        _ => Vec::new(),
    };
    json!({ "ok": false, "errors": errors, "warnings": warnings })
}

fn source_json(source: &Source) -> Value {
    let kind = match source {
        Source::Named(_) => "named",
        Source::Project(_) => "project",
        Source::User(_) => "user",
        Source::Nowhere { looked } => {
            return json!({ "kind": "none", "path": null, "looked": looked });
        }
    };
    json!({ "kind": kind, "path": source.path() })
}

/// A server without the values of its variables and headers.
pub(crate) fn server_json(server: &ServerConfig) -> Value {
    let clean = |text: &str| shown(text, server.secrets());
    let names = |named: &[(String, metamcp_types::secret::Secret)]| {
        named.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>()
    };
    let mut json = json!({ "name": server.name, "type": server.transport.name() });
    if let Some(LocalCommand { command, args, env, cwd }) = server.transport.local() {
        json["command"] = json!(clean(command));
        json["args"] = json!(args.iter().map(|arg| clean(arg)).collect::<Vec<_>>());
        json["env"] = json!(names(env));
        json["cwd"] = json!(cwd);
    }
    if let Some(api) = server.transport.api() {
        json["openapi"] = json!(clean(&api.description));
        json["include"] = json!(api.include);
        json["exclude"] = json!(api.exclude);
    }
    if let Some(RemoteEndpoint { url, headers, .. }) = server.transport.remote() {
        json["url"] = json!(clean(url));
        json["headers"] = json!(names(headers));
    }
    json["enabled"] = json!(server.is_enabled());
    json["origin"] = json!(server.origin.as_str());
    if let ServerState::Disabled { reason } | ServerState::Invalid { reason } = &server.state {
        json["reason"] = json!(reason);
    }
    json["description"] = json!(server.description);
    json["lifecycle"] = match server.lifecycle {
        Lifecycle::Default => Value::Null,
        Lifecycle::KeepAlive { .. } => json!("keep-alive"),
        Lifecycle::Ephemeral => json!("ephemeral"),
    };
    json
}

fn setting_json(given: &Given) -> Value {
    let value = match &given.value {
        metamcp_config::settings::Value::Number(number) => json!(number),
        metamcp_config::settings::Value::Switch(on) => json!(on),
        other => json!(other.text()),
    };
    json!({
        "key": given.setting.key,
        "flag": given.setting.flag,
        "env": given.setting.env,
        "value": value,
        "origin": given.origin.to_string(),
    })
}

fn remark_json(remark: &Remark) -> Value {
    let place = remark.place.as_ref();
    json!({
        "severity": match remark.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Note => "note",
        },
        "file": remark.path,
        "line": place.map(|place| place.line),
        "column": place.map(|place| place.column),
        "path": place.map(|place| place.path.as_str()),
        "message": remark.message,
        "hint": remark.hint,
    })
}
