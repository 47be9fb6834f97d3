//! The contexts that are open: one gateway for each folder, flags and environment that clients came with.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use metamcp_config::config::Toolset;
use metamcp_config::settings::Settings;
use metamcp_types::moment::Moment;
use metamcp_wire::local::Refusal;
use parking_lot::Mutex;

use super::{ClientContext, Connected, Daemon};
use crate::config::{LoadError, Loaded};
use crate::env::{Surroundings, Variables};
use crate::gateway::Gateway;
use crate::reload;
use crate::router::environment_of;

/// Contexts without a session that are kept: a person works in fewer folders at a time.
const MOST_IDLE: usize = 32;

/// A configuration in use.
pub(super) struct OpenContext {
    pub(super) folder: PathBuf,
    flags: Vec<String>,
    pub(super) gateway: Arc<Gateway>,
    loaded: Mutex<Arc<Loaded>>,
    /// What its gateway was built with: settings that changed since hold for those who come from now on.
    built: (Settings, Vec<Toolset>),
    /// What the configuration asked of the environment, and what it was told.
    asked: Arc<Mutex<BTreeMap<String, Option<String>>>>,
    /// What of the client's environment reaches its servers.
    environment: Mutex<Vec<(OsString, OsString)>>,
    users: Mutex<Users>,
}

#[derive(Default)]
struct Users {
    count: usize,
    idle_since: Option<Moment>,
}

impl OpenContext {
    /// Whether a client with these variables has this very configuration.
    fn fits_variables(&self, variables: &Variables) -> bool {
        let asked = self.asked.lock();
        if asked.iter().any(|(name, value)| variables.get(name) != *value) {
            return false;
        }
        drop(asked);
        let loaded = self.loaded();
        let pass = self.gateway.router.pass_env();
        environment_of(&loaded.config, pass, variables) == *self.environment.lock()
    }

    /// Whether its gateway has the settings that its files have now.
    fn is_current(&self) -> bool {
        let config = &self.loaded().config;
        config.settings == self.built.0 && config.toolsets == self.built.1
    }

    fn fits(&self, client: &ClientContext) -> bool {
        self.folder == client.folder
            && self.is_current()
            && self.flags == client.flags
            && self.fits_variables(&client.variables)
    }

    pub(super) fn loaded(&self) -> Arc<Loaded> {
        Arc::clone(&self.loaded.lock())
    }

    /// A session took a place in it.
    fn entered(&self) {
        let mut users = self.users.lock();
        users.count += 1;
        users.idle_since = None;
    }

    /// A session left.
    pub(super) fn left(&self, now: Moment) {
        let mut users = self.users.lock();
        users.count = users.count.saturating_sub(1);
        if users.count == 0 {
            users.idle_since = Some(now);
        }
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct Contexts {
    open: Mutex<Vec<Arc<OpenContext>>>,
    /// One is opened at a time: fifty clients of one folder must not make fifty.
    opening: tokio::sync::Mutex<()>,
}

impl Contexts {
    pub(super) fn count(&self) -> usize {
        self.open.lock().len()
    }

    pub(super) fn all(&self) -> Vec<Arc<OpenContext>> {
        self.open.lock().clone()
    }

    fn find(&self, client: &ClientContext) -> Option<Arc<OpenContext>> {
        let open = self.open.lock();
        let found = open.iter().find(|known| known.fits(client))?;
        found.entered();
        Some(Arc::clone(found))
    }

    /// Whether calls run on for clients that may come back.
    pub(super) fn are_running(&self) -> bool {
        self.all().iter().any(|known| known.gateway.view.surface.tasks.are_running())
    }

    /// Closes what nobody has used for long.
    pub(super) fn forget_idle(&self, now: Moment, linger: Duration) {
        let mut gone = Vec::new();
        let mut open = self.open.lock();
        let idle = open.iter().filter(|known| known.users.lock().idle_since.is_some()).count();
        let mut excess = idle.saturating_sub(MOST_IDLE);
        open.retain(|known| {
            let Some(since) = known.users.lock().idle_since else { return true };
            if known.gateway.view.surface.tasks.are_running() {
                return true;
            }
            let is_old = now.since(since) >= linger || excess > 0 || !known.is_current();
            if is_old {
                excess = excess.saturating_sub(1);
                gone.push(Arc::clone(known));
            }
            !is_old
        });
        drop(open);
        // Their servers end here, outside of the lock.
        drop(gone);
    }

    /// Waits until what is known of tools is on disk.
    pub(super) async fn written(&self) {
        for context in self.all() {
            context.gateway.catalog.written().await;
        }
    }
}

impl Daemon {
    /// The context of a client, opened if it is the first there; it counts as used until it is left.
    pub(super) async fn context(
        self: &Arc<Self>,
        client: ClientContext,
    ) -> Result<Arc<OpenContext>, Refusal> {
        if let Some(known) = self.contexts.find(&client) {
            return Ok(known);
        }
        let _alone = self.contexts.opening.lock().await;
        if let Some(known) = self.contexts.find(&client) {
            return Ok(known);
        }
        let asked: Arc<Mutex<BTreeMap<String, Option<String>>>> = Arc::default();
        let load = {
            let (host, asked) = (Arc::clone(&self.host), Arc::clone(&asked));
            let client =
                ClientContext { variables: client.variables.recording(&asked), ..client.clone() };
            Arc::new(move || host.load(&client))
        };
        let first = Arc::clone(&load);
        let loaded = tokio::task::spawn_blocking(move || first()).await;
        let loaded = loaded.map_err(|_| {
            let words = "the configuration could not be loaded";
            Refusal::new(super::VERSION, metamcp_wire::local::Code::Internal, words)
        })??;
        let surroundings = Surroundings {
            folder: Some(client.folder.clone()),
            variables: client.variables.clone(),
        };
        let worker = self.host.worker(&loaded);
        let gateway = Gateway::join(&self.machine, &loaded.config, worker, surroundings);
        let environment =
            environment_of(&loaded.config, self.machine.router.pass_env(), &client.variables);
        let context = Arc::new(OpenContext {
            folder: client.folder,
            flags: client.flags,
            gateway: Arc::new(gateway),
            built: (loaded.config.settings.clone(), loaded.config.toolsets.clone()),
            loaded: Mutex::new(Arc::new(loaded)),
            asked,
            environment: Mutex::new(environment),
            users: Mutex::default(),
        });
        context.entered();
        let again = {
            let (daemon, context) = (Arc::downgrade(self), Arc::downgrade(&context));
            let variables = client.variables.clone();
            move || {
                let loaded =
                    load().map_err(|refusal| LoadError::Elsewhere { words: refusal.error })?;
                if let (Some(daemon), Some(context)) = (daemon.upgrade(), context.upgrade()) {
                    let pass = daemon.machine.router.pass_env();
                    *context.environment.lock() = environment_of(&loaded.config, pass, &variables);
                    *context.loaded.lock() = Arc::new(loaded.clone());
                    daemon.send_away_strangers(&context, loaded.config.settings.timeouts.drain);
                }
                Ok(loaded)
            }
        };
        let loaded = context.loaded();
        reload::watch(&context.gateway, &loaded, Arc::new(again));
        // Who shares a server is decided by its tools too; they are on disk.
        context.gateway.catalog.loaded().await;
        context.gateway.context.adopt_lists().await;
        self.contexts.open.lock().push(Arc::clone(&context));
        Ok(context)
    }

    /// A configuration that was read again may refer to variables it did not refer to before. Sessions that have other
    /// values there have no place in this context any more: they come back, and get one of their own. Waits until they
    /// left, since none of their calls may reach a server that was started with another's values.
    fn send_away_strangers(&self, context: &Arc<OpenContext>, drain: Duration) {
        let is_stranger = |connected: &&Arc<Connected>| {
            let is_here = connected.context.as_ref().is_some_and(|one| Arc::ptr_eq(one, context));
            is_here && !context.fits_variables(&connected.variables)
        };
        let mut departures = self.departures.subscribe();
        let mut are_any = false;
        for connected in self.connections.lock().iter().filter(is_stranger) {
            connected.leave.notify_one();
            are_any = true;
        }
        if are_any {
            let left = departures
                .wait_for(|()| !self.connections.lock().iter().any(|one| is_stranger(&one)));
            let limit = drain + Duration::from_secs(1);
            // This runs where blocking is allowed, as reading files is. After the limit they are gone in any case.
            let waited = async { drop(tokio::time::timeout(limit, left).await) };
            tokio::runtime::Handle::current().block_on(waited);
        }
    }
}
