//! From a server's configuration to a running, contained process, or to the way to where it runs.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::Path;
use std::str::FromStr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HeaderName, HeaderValue};
use metamcp_calls::failure::Fact;
use metamcp_child::environment::TEMPORARY;
use metamcp_child::{Containment, Parts, ShimCommand, SpawnError, Spawner, Spec, resolve};
use metamcp_config::config::{
    self, HttpOptions, Installed, PassEnv, ServerConfig, TlsFiles, Transport,
};
use metamcp_config::settings::Settings;
use metamcp_types::web::Address;

use super::Remote;
use super::container_reaper::ContainerReaper;
use super::era_cache::EraCache;
use super::instructions_cache::InstructionsCache;
use super::remote::{Credentials, Mirrors, Site};
use crate::login::{Login, LoginStorage, Tokens};
use crate::manifest;
use crate::observe::Observer;
use crate::rlimits;
use crate::web::{Plan, Tunnel, Web};

/// Files that a start takes: three pipes and a socket with two ends each, and one to spare.
const START_FILES: usize = 9;

/// A remote host that does not take a connection in this time is not there.
const REACHED: Duration = Duration::from_secs(10);
/// Connections kept to each remote host that does not multiplex: as many as calls usually run at once.
const KEPT: usize = 16;

/// Programs that may download before the server itself starts: they get more time while they show life.
const INSTALLERS: [&str; 12] =
    ["npx", "npm", "pnpm", "yarn", "bunx", "bun", "deno", "uvx", "uv", "pipx", "docker", "podman"];

/// Starts servers' processes. The supervising thread starts with the first of them.
pub struct Launcher {
    shim: ShimCommand,
    containment: config::Containment,
    pass_env: PassEnv,
    auto: OnceLock<Spawner>,
    namespace: OnceLock<Spawner>,
    plain: OnceLock<Spawner>,
    /// What servers turned out to speak.
    pub era_cache: EraCache,
    /// What each server said of its use.
    pub instructions_cache: InstructionsCache,
    ways: Mutex<HashMap<TlsFiles, Web>>,
    login_storage: LoginStorage,
    logins: Mutex<HashMap<String, Arc<Login>>>,
}

/// Whether a server's command is one that may install first.
pub fn installs(config: &ServerConfig) -> bool {
    let Transport::Stdio { command, .. } = &config.transport else { return false };
    let name = Path::new(command).file_stem().map(|name| name.to_string_lossy().into_owned());
    name.is_some_and(|name| INSTALLERS.contains(&name.as_str()))
}

impl Launcher {
    /// A launcher that contains as told unless a server's configuration says otherwise.
    /// What is remembered of servers lies under the home of the settings.
    pub fn new(shim: ShimCommand, settings: &Settings, observer: &Arc<Observer>) -> Launcher {
        let era_cache = EraCache::under(&settings.home);
        Launcher {
            shim,
            containment: settings.containment,
            pass_env: PassEnv::from_text(&settings.pass_env),
            auto: OnceLock::new(),
            namespace: OnceLock::new(),
            plain: OnceLock::new(),
            era_cache,
            instructions_cache: InstructionsCache::under(&settings.home),
            ways: Mutex::default(),
            login_storage: LoginStorage::new(&settings.home, settings.token_store)
                .observed_by(Arc::clone(observer)),
            logins: Mutex::default(),
        }
    }

    /// The tokens that logins at remote servers hold.
    pub fn tokens(&self) -> Arc<Tokens> {
        self.login_storage.tokens()
    }

    /// Starts a server's process. An `npx` or `uvx` that is installed already is skipped; if what it would have
    /// run cannot be executed, the command runs as written.
    pub async fn start(&self, config: &ServerConfig) -> Result<Parts, Fact> {
        let mut spec = spec(config, &self.pass_env)?;
        // The process between us and the server needs some too, and could not say so.
        rlimits::files(START_FILES).map_err(|reason| Fact::OutOfFiles { reason })?;
        let spawner = self.spawner(config.containment.unwrap_or(self.containment))?;
        if config.in_container && cfg!(target_os = "linux") {
            let none = |error| Fact::SpawnFailed {
                reason: format!("nothing can see to the end of its container: {error}"),
            };
            let container_reaper =
                ContainerReaper::start(&self.shim, &spec.program).map_err(none)?;
            spec.args = container_reaper.named(spec.args);
            let child = spawner.spawn(spec).await.map_err(|error| failed(&error))?;
            let parts = child.into_parts();
            crate::task::spawn("sweeper", container_reaper.follow(parts.handle.watch()));
            return Ok(parts);
        }
        if let Some(Installed { folder, manifest }) = config.installed_in.clone() {
            let verify = move || manifest::verify(&folder, manifest.as_deref());
            let verified = tokio::task::spawn_blocking(verify).await;
            let changed = |why: String| Fact::SpawnFailed {
                reason: format!(
                    "its installed files are not what was approved: {why}; look at them, or install it again: `metamcp remove {name}`, then `metamcp add {name}`",
                    name = config.name
                ),
            };
            verified
                .map_err(|error| changed(error.to_string()))?
                .map_err(|error| changed(error.to_string()))?;
        }
        let literal = spec.clone();
        let prepared = move || {
            if let Some(sandbox_policy) = &spec.sandbox_policy {
                // Without it the server is told so when it first wants it.
                std::fs::create_dir_all(sandbox_policy.home.join(TEMPORARY)).ok();
            }
            resolve::resolve(&spec)
        };
        let resolved = tokio::task::spawn_blocking(prepared).await.ok().flatten();
        if let Some(resolved) = resolved
            && let Ok(child) = spawner.spawn(resolved).await
        {
            return Ok(child.into_parts());
        }
        let child = spawner.spawn(literal).await.map_err(|error| failed(&error))?;
        Ok(child.into_parts())
    }

    /// A remote server, to be spoken to over connections that all servers with the same files for TLS share.
    pub fn remote(
        &self,
        config: &ServerConfig,
        line_bytes: usize,
        mirrors: Mirrors,
    ) -> Result<Remote, Fact> {
        let Transport::Http { url, headers, kind, options } = &config.transport else {
            return Err(Fact::Unsupported { reason: "is no remote server".to_owned() });
        };
        let address = Address::parse(url)
            .map_err(|error| Fact::Unreachable { reason: format!("its address {error}") })?;
        let plan = Plan {
            http2: true,
            tls: options.tls.clone(),
            tunnel: Tunnel::from_surroundings(),
            ..Plan::plain(REACHED, KEPT)
        };
        let web = {
            let mut ways = self.ways.lock().unwrap_or_else(PoisonError::into_inner);
            match ways.get(&options.tls) {
                Some(web) => web.clone(),
                None => {
                    let web = Web::new(plan.clone())
                        .map_err(|error| Fact::Insecure { reason: chain(&error) })?;
                    ways.insert(options.tls.clone(), web.clone());
                    web
                }
            }
        };
        let mut fixed = HeaderMap::new();
        for (name, value) in headers {
            let pair = (HeaderName::from_str(name), HeaderValue::from_str(value.expose()));
            let (Ok(name), Ok(mut value)) = pair else {
                let reason = format!("its header {name:?} cannot be sent");
                return Err(Fact::Unsupported { reason });
            };
            value.set_sensitive(true);
            fixed.insert(name, value);
        }
        let credentials = if fixed.contains_key(AUTHORIZATION) {
            Credentials::Configured
        } else {
            Credentials::Login(self.login(&config.name, &address, options))
        };
        Ok(Remote::new(Site {
            address,
            headers: fixed,
            kind: *kind,
            web,
            plan,
            line_bytes,
            credentials,
            mirrors,
        }))
    }

    /// The login at a server, the same across its connections: a person may be on their way back to it.
    fn login(&self, name: &str, address: &Address, options: &HttpOptions) -> Arc<Login> {
        let mut logins = self.logins.lock().unwrap_or_else(PoisonError::into_inner);
        let known = logins.entry(name.to_owned());
        Arc::clone(
            known.or_insert_with(|| Login::new(address.clone(), options, &self.login_storage)),
        )
    }

    /// Waits for the person who was sent to log in at a server, at most so long.
    pub async fn authorization_finished(&self, name: &str, limit: Duration) {
        let login = {
            let logins = self.logins.lock().unwrap_or_else(PoisonError::into_inner);
            logins.get(name).cloned()
        };
        if let Some(login) = login {
            // Whether they came or not, the call finds out.
            drop(tokio::time::timeout(limit, login.authorization_finished()).await);
        }
    }

    fn spawner(&self, containment: config::Containment) -> Result<&Spawner, Fact> {
        let (cell, containment) = match containment {
            config::Containment::Auto => (&self.auto, Containment::Auto),
            config::Containment::Namespace => (&self.namespace, Containment::Namespace),
            config::Containment::Shim => (&self.plain, Containment::Shim),
        };
        if let Some(spawner) = cell.get() {
            return Ok(spawner);
        }
        let started = Spawner::start(self.shim.clone(), containment).map_err(|error| {
            match rlimits::out_of_files(&error) {
                Some(reason) => Fact::OutOfFiles { reason },
                None => Fact::SpawnFailed { reason: format!("no supervising thread: {error}") },
            }
        })?;
        Ok(cell.get_or_init(|| started))
    }
}

fn spec(config: &ServerConfig, global: &PassEnv) -> Result<Spec, Fact> {
    let Transport::Stdio { command, args, env, cwd } = &config.transport else {
        return Err(Fact::Unsupported {
            reason: "is remote: there is nothing to start".to_owned(),
        });
    };
    Ok(Spec {
        program: command.into(),
        args: args.iter().map(OsString::from).collect(),
        env: env
            .iter()
            .map(|(name, value)| (name.into(), value.expose().into()))
            .chain([(crate::config::ABOVE.into(), crate::config::below().into())])
            .collect(),
        cwd: cwd.clone(),
        pass_env: config.pass_env.with(global),
        sandbox_policy: config.sandbox_policy.clone(),
    })
}

/// The whole chain of causes: the outer error names the program, the inner says what the system said.
fn failed(error: &SpawnError) -> Fact {
    if let Some(reason) = rlimits::out_of_files(error) {
        return Fact::OutOfFiles { reason };
    }
    if let Some(reason) = rlimits::out_of_processes(error) {
        return Fact::OutOfProcesses { reason };
    }
    Fact::SpawnFailed { reason: chain(error) }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut reason = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        reason.push_str(": ");
        reason.push_str(&cause.to_string());
        source = cause.source();
    }
    reason
}
