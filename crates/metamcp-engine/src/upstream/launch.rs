//! What connections to servers share, from one start to the next.

use std::sync::Arc;
use std::time::Duration;

use metamcp_child::ShimCommand;
use metamcp_config::settings::Settings;

use super::era_cache::EraCache;
use super::instructions_cache::InstructionsCache;
use super::remote::Sites;
use super::stdio::Processes;
use crate::login::Tokens;
use crate::observe::Observer;

/// See the module. What is remembered of servers lies under the home of the settings.
pub struct Launcher {
    /// What servers turned out to speak.
    pub era_cache: EraCache,
    /// What each server said of its use.
    pub instructions_cache: InstructionsCache,
    /// What starts local servers.
    pub(super) processes: Processes,
    /// The ways to remote servers.
    pub(super) sites: Sites,
}

impl Launcher {
    /// Nothing is started or read yet.
    pub fn new(shim: ShimCommand, settings: &Settings, observer: &Arc<Observer>) -> Launcher {
        Launcher {
            era_cache: EraCache::under(&settings.home),
            instructions_cache: InstructionsCache::under(&settings.home),
            processes: Processes::new(shim, settings),
            sites: Sites::new(settings, observer),
        }
    }

    /// The tokens that logins at remote servers hold.
    pub fn tokens(&self) -> Arc<Tokens> {
        self.sites.tokens()
    }

    /// Waits for the person who was sent to log in at a server, at most so long.
    pub async fn authorization_finished(&self, name: &str, limit: Duration) {
        self.sites.authorization_finished(name, limit).await;
    }
}

/// An error with all its causes: the outer one names the program, the inner says what the system said.
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
