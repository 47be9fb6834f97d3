//! `metamcp auth`: signing in to remote servers with OAuth, and signing out.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use metamcp_config::config::{Grant, HttpOptions, RemoteEndpoint, ServerConfig};
use metamcp_engine::config::Loaded;
use metamcp_engine::login::{self, Login, LoginStatus, LoginStorage};
use metamcp_types::text;
use metamcp_types::web::Address;
use serde_json::{Value, json};

use super::audited::Audited;
use crate::args::{AuthCommand, AuthServerArgs, AuthStatusArgs, LoginArgs};
use crate::exit::{Exit, OrMisuse, misuse};
use crate::progress;
use crate::render::visible;

pub(crate) fn run(
    loaded: &Loaded,
    command: &AuthCommand,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let audited = Audited::new(&loaded.config.settings);
        let done = match command {
            AuthCommand::Login(args) => log_in(loaded, &audited, args, out).await,
            AuthCommand::Logout(args) => log_out(loaded, &audited, args, out).await,
            AuthCommand::Status(args) => status(loaded, args, out).await,
        };
        audited.check()?;
        done
    })
}

async fn log_in(
    loaded: &Loaded,
    audited: &Audited,
    args: &LoginArgs,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let server = named(loaded, &args.server)?;
    let (login, options) = login_of(loaded, server, Some(audited))?;
    if options.login.grant == Grant::Machine {
        let _working = progress::step(format!("signing in to {}", visible(&server.name)));
        login::start_machine(&login).await?;
        return logged_in(&login, args, out).await;
    }
    let started = login::start(&login).await?;
    // The address was assembled from parts; only a browser may get it, never a shell.
    let address = Address::parse(&started.address).context("the address cannot be opened")?;
    if !address.is_confidential() {
        bail!("the address to sign in at is not encrypted: {}", visible(&address.origin()));
    }
    if args.json {
        writeln!(out, "{}", json!({ "server": server.name, "url": address.to_string() }))?;
    } else {
        writeln!(out, "Open this address in a browser on this machine:\n\n  {address}\n")?;
    }
    out.flush()?;
    if !args.no_browser {
        open(&address.to_string());
    }
    let waiting = progress::step("waiting for the browser");
    let done = started.done.await;
    drop(waiting);
    match done {
        Ok(Ok(())) => logged_in(&login, args, out).await,
        Ok(Err(why)) => bail!("{}", visible(&why)),
        Err(_) => bail!("the sign-in was abandoned"),
    }
}

async fn logged_in(
    login: &Arc<Login>,
    args: &LoginArgs,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let status = login.status().await?;
    if args.json {
        writeln!(out, "{}", status_json(&args.server, status.as_ref()))?;
    } else {
        writeln!(out, "Signed in to {}.", visible(&args.server))?;
    }
    Ok(Exit::Success)
}

async fn log_out(
    loaded: &Loaded,
    audited: &Audited,
    args: &AuthServerArgs,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let (login, _) = login_of(loaded, named(loaded, &args.server)?, Some(audited))?;
    let was = login.forget().await?;
    let name = visible(&args.server);
    if args.json {
        writeln!(out, "{}", json!({ "server": args.server, "forgotten": was }))?;
    } else if was {
        writeln!(out, "Deleted the token of {name}. It was not revoked at the server.")?;
    } else {
        writeln!(out, "There was no token for {name}.")?;
    }
    Ok(Exit::Success)
}

async fn status(
    loaded: &Loaded,
    args: &AuthStatusArgs,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let servers: Vec<&ServerConfig> = match &args.server {
        Some(name) => vec![named(loaded, name)?],
        None => {
            let remote = |server: &&ServerConfig| server.transport.is_remote();
            loaded.config.servers.iter().filter(remote).collect()
        }
    };
    let mut all = Vec::new();
    for server in servers {
        let (login, _) = login_of(loaded, server, None)?;
        all.push((server, login.status().await?));
    }
    if args.json {
        let all: Vec<Value> =
            all.iter().map(|(server, status)| status_json(&server.name, status.as_ref())).collect();
        writeln!(out, "{:#}", Value::from(all))?;
        return Ok(Exit::Success);
    }
    if all.is_empty() {
        writeln!(out, "No remote server is configured.")?;
    }
    for (server, status) in &all {
        writeln!(out, "{:<20} {}", visible(&server.name), words(server, status.as_ref()))?;
    }
    Ok(Exit::Success)
}

/// The state of a sign-in, as text.
pub(crate) enum LoginSummary {
    /// Nothing to do.
    Fine(String),
    /// Not signed in, which may be fine.
    Open(String),
    /// The sign-in expired.
    Ended(String),
    /// The stored token cannot be read.
    Unreadable(String),
}

/// The sign-ins at every enabled remote server.
pub(crate) fn login_summaries(loaded: &Loaded) -> anyhow::Result<Vec<(String, LoginSummary)>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let servers = loaded.config.servers.iter().filter(|server| server.is_enabled());
    let mut all = Vec::new();
    for server in servers {
        let Ok((login, options)) = login_of(loaded, server, None) else { continue };
        let summary = match runtime.block_on(login.status()) {
            Err(error) => LoginSummary::Unreadable(visible(&error.to_string())),
            Ok(None) if is_configured(server) || !options.login.wanted => {
                LoginSummary::Fine(words(server, None))
            }
            Ok(None) => LoginSummary::Open(words(server, None)),
            Ok(Some(status)) => {
                let words = words(server, Some(&status));
                if status.expires_in_ms == Some(0) && !status.refreshes {
                    LoginSummary::Ended(words)
                } else {
                    LoginSummary::Fine(words)
                }
            }
        };
        all.push((server.name.clone(), summary));
    }
    Ok(all)
}

/// Whether the configuration itself has a token.
fn is_configured(server: &ServerConfig) -> bool {
    let is_token = |(name, _): &(String, _)| name.eq_ignore_ascii_case("authorization");
    server.transport.remote().is_some_and(|remote| remote.headers.iter().any(is_token))
}

fn words(server: &ServerConfig, status: Option<&LoginStatus>) -> String {
    let Some(status) = status else {
        let words = if is_configured(server) { "token in the config" } else { "no token" };
        return words.to_owned();
    };
    let issuer = visible(&status.issuer);
    let until = match status.expires_in_ms {
        Some(0) => "the token has expired".to_owned(),
        Some(left) => {
            format!("the token expires in {}", text::duration(Duration::from_millis(left)))
        }
        None => "the token has no known expiry".to_owned(),
    };
    let again =
        if status.refreshes { "is refreshed automatically" } else { "needs a new sign-in then" };
    format!("signed in at {issuer}; {until} and {again}")
}

fn status_json(server: &str, status: Option<&LoginStatus>) -> Value {
    match status {
        None => json!({ "server": server, "logged_in": false }),
        Some(status) => json!({
            "server": server,
            "logged_in": true,
            "issuer": status.issuer,
            "scopes": status.scopes,
            "expires_in_ms": status.expires_in_ms,
            "refreshes": status.refreshes,
        }),
    }
}

fn named<'a>(loaded: &'a Loaded, name: &str) -> anyhow::Result<&'a ServerConfig> {
    let known = || {
        let names: Vec<&str> = loaded.config.servers.iter().map(|server| &*server.name).collect();
        names.join(", ")
    };
    let found = loaded.config.server(name);
    found
        .with_context(|| format!("no server {name:?} is configured; there are: {}", known()))
        .or_misuse()
}

fn login_of<'a>(
    loaded: &Loaded,
    server: &'a ServerConfig,
    audited: Option<&Audited>,
) -> anyhow::Result<(Arc<Login>, &'a HttpOptions)> {
    let Some(RemoteEndpoint { url, options, .. }) = server.transport.remote() else {
        let name = &server.name;
        return Err(misuse(format!(
            "the server {name:?} is local: there is nothing to sign in to"
        )));
    };
    if url.is_empty() {
        let name = &server.name;
        return Err(misuse(format!(
            "the entry of {name:?} does not say where its API is: set `baseUrl` to sign in there"
        )));
    }
    let address = Address::parse(url).context("its url is invalid")?;
    let settings = &loaded.config.settings;
    let login_storage = LoginStorage::new(&settings.home, settings.token_store);
    let login_storage = match audited {
        Some(audited) => login_storage.observed_by(Arc::clone(&audited.observer)),
        None => login_storage,
    };
    Ok((Login::new(address, options, &login_storage), options))
}

/// Opens a browser, if there is one. The address is passed as a single argument, without a shell.
#[expect(clippy::disallowed_methods, reason = "the user's browser, which is no server")]
pub(crate) fn open(address: &str) {
    let (program, arguments): (&str, &[&str]) = if cfg!(target_os = "macos") {
        ("open", &[])
    } else if cfg!(windows) {
        ("rundll32", &["url.dll,FileProtocolHandler"])
    } else {
        ("xdg-open", &[])
    };
    let mut command = Command::new(program);
    command.args(arguments).arg(address);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // Without a browser, the address was printed.
    drop(metamcp_child::start_outliving(&mut command));
}
