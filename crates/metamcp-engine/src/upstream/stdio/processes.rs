//! From a server's configuration to a running, contained process.

use std::ffi::OsString;
use std::path::Path;
use std::sync::OnceLock;

use metamcp_calls::failure::Fact;
use metamcp_child::environment::TEMPORARY;
use metamcp_child::{Containment, Parts, ShimCommand, SpawnError, Spawner, Spec, resolve};
use metamcp_config::config::{self, Installed, LocalCommand, PassEnv, ServerConfig};
use metamcp_config::settings::Settings;

use crate::env::Surroundings;
use crate::upstream::container_reaper::ContainerReaper;
use crate::upstream::launch::chain;
use crate::{manifest, rlimits, task};

/// File descriptors that a start needs: three pipes and a socket with two ends each, and one to spare.
const START_FILES: usize = 9;

/// Commands that may download before the server itself starts: they get more time while they show activity.
const INSTALLERS: [&str; 12] =
    ["npx", "npm", "pnpm", "yarn", "bunx", "bun", "deno", "uvx", "uv", "pipx", "docker", "podman"];

/// Starts server processes. The supervising thread starts with the first of them.
pub struct Processes {
    shim: ShimCommand,
    containment: config::Containment,
    pass_env: PassEnv,
    auto: OnceLock<Spawner>,
    namespace: OnceLock<Spawner>,
    plain: OnceLock<Spawner>,
}

/// Whether a server's command may install first.
pub fn installs(config: &ServerConfig) -> bool {
    let Some(command) = config.transport.command() else { return false };
    let name = Path::new(command).file_stem().map(|name| name.to_string_lossy().into_owned());
    name.is_some_and(|name| INSTALLERS.contains(&name.as_str()))
}

impl Processes {
    /// Contained as the settings say, unless a server's configuration says otherwise.
    pub fn new(shim: ShimCommand, settings: &Settings) -> Processes {
        Processes {
            shim,
            containment: settings.containment,
            pass_env: PassEnv::from_text(&settings.pass_env),
            auto: OnceLock::new(),
            namespace: OnceLock::new(),
            plain: OnceLock::new(),
        }
    }

    /// Which variables of a client every server gets.
    pub fn pass_env(&self) -> &PassEnv {
        &self.pass_env
    }

    /// Starts a server's process. An `npx` or `uvx` whose package is installed already is skipped; if the package's program
    /// cannot be executed, the command runs as written.
    pub async fn start(
        &self,
        config: &ServerConfig,
        local: &LocalCommand,
        client: Option<&Surroundings>,
    ) -> Result<Parts, Fact> {
        let mut spec = spec(config, local, &self.pass_env, client);
        // The shim needs some too, and could not report a lack of them.
        rlimits::files(START_FILES).map_err(|reason| Fact::OutOfFiles { reason })?;
        let spawner = self.spawner(config.containment.unwrap_or(self.containment))?;
        if config.in_container && cfg!(target_os = "linux") {
            let none = |error| Fact::SpawnFailed {
                reason: format!("the container reaper could not be started: {error}"),
            };
            let container_reaper =
                ContainerReaper::start(&self.shim, &spec.program).map_err(none)?;
            spec.args = container_reaper.named(spec.args);
            let child = spawner.spawn(spec).await.map_err(|error| failed(&error))?;
            let parts = child.into_parts();
            task::spawn("sweeper", container_reaper.follow(parts.handle.watch()));
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
                // If this fails, the server reports it when it first needs the folder.
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
                None => Fact::SpawnFailed {
                    reason: format!("the supervising thread could not be started: {error}"),
                },
            }
        })?;
        Ok(cell.get_or_init(|| started))
    }
}

fn spec(
    config: &ServerConfig,
    local: &LocalCommand,
    global: &PassEnv,
    client: Option<&Surroundings>,
) -> Spec {
    let LocalCommand { command, args, env, cwd } = local;
    let variables = client.map(|client| client.variables.clone()).unwrap_or_default();
    Spec {
        program: command.into(),
        args: args.iter().map(OsString::from).collect(),
        env: env
            .iter()
            .map(|(name, value)| (name.into(), value.expose().into()))
            .chain([(crate::config::ABOVE.into(), crate::config::below(&variables).into())])
            .collect(),
        cwd: match (cwd, client.and_then(|client| client.folder.as_ref())) {
            (Some(cwd), Some(folder)) => Some(folder.join(cwd)),
            (cwd, folder) => cwd.as_ref().or(folder).cloned(),
        },
        inherited: client.and_then(|client| client.variables.of_client()),
        pass_env: config.pass_env.with(global),
        sandbox_policy: config.sandbox_policy.clone(),
    }
}

/// The whole chain of causes: the outer error names the program, the inner one has the system's message.
fn failed(error: &SpawnError) -> Fact {
    if let Some(reason) = rlimits::out_of_files(error) {
        return Fact::OutOfFiles { reason };
    }
    if let Some(reason) = rlimits::out_of_processes(error) {
        return Fact::OutOfProcesses { reason };
    }
    Fact::SpawnFailed { reason: chain(error) }
}
