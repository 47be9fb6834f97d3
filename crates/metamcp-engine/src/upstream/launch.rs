//! What all connections to servers share.

use std::sync::Arc;
use std::time::Duration;

use metamcp_child::ShimCommand;
use metamcp_config::config::PassEnv;
use metamcp_config::settings::Settings;

use super::era_cache::EraCache;
use super::instructions_cache::InstructionsCache;
use super::openapi::description::Descriptions;
use super::remote::Sites;
use super::stdio::Processes;
use crate::login::{SharedLogins, Tokens};
use crate::observe::Observer;

/// The caches are under the home of the settings.
pub struct Launcher {
    pub era_cache: EraCache,
    pub instructions_cache: InstructionsCache,
    pub(super) processes: Processes,
    pub(super) sites: Sites,
    pub(super) descriptions: Descriptions,
}

impl Launcher {
    pub fn new(shim: ShimCommand, settings: &Settings, observer: &Arc<Observer>) -> Launcher {
        Launcher {
            era_cache: EraCache::under(&settings.home),
            instructions_cache: InstructionsCache::under(&settings.home),
            processes: Processes::new(shim, settings),
            sites: Sites::new(settings, observer),
            descriptions: Descriptions::under(&settings.home),
        }
    }

    /// The tokens of all logins at remote servers.
    pub fn tokens(&self) -> Arc<Tokens> {
        self.sites.tokens()
    }

    /// Has the logins in common with the other gateways of a fleet.
    pub fn share_logins(&self, logins: Arc<dyn SharedLogins>) {
        self.sites.share_logins(logins);
    }

    /// Which variables of a client every server gets.
    pub fn pass_env(&self) -> &PassEnv {
        self.processes.pass_env()
    }

    /// Waits for a pending authorization at a server, up to `limit`.
    pub async fn authorization_finished(&self, name: &str, limit: Duration) {
        self.sites.authorization_finished(name, limit).await;
    }
}

/// An error with all its causes: the outer one names the program, the inner one has the system's message.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut reason = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        reason.push_str(": ");
        reason.push_str(&cause.to_string());
        source = cause.source();
    }
    reason
}
