//! Hot reload: watches the config files and applies their changes to the running gateway.
//! Owns: when the files are read again, how a difference is applied.      Never: takes a broken file for an empty one, touches a server that did not change.
//! In: a function that loads the configuration.  Out: servers added, changed, removed; log lines.
//! Tests: `metamcp/tests/promises/reload.rs`.

#[cfg_attr(not(target_os = "linux"), path = "reload/portable.rs")]
#[cfg_attr(target_os = "linux", path = "reload/linux.rs")]
mod folders;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use metamcp_config::config::{self, Config, Everywhere, ServerOrigin};
use metamcp_types::text::clean_line;

use self::folders::Folders;
use crate::catalog::Catalog;
use crate::config::{LoadError, Loaded, Project, Source};
use crate::gateway::{Gateway, policy};
use crate::observe::{Action, Event, Subject};
use crate::provision::{self, Pinned};
use crate::router::{Context, Router, as_written};
use crate::surface::Surface;
use crate::task;

/// How often the files are polled even without a notification: links, network disks and systems without inotify.
const POLL: Duration = Duration::from_secs(2);
/// Debounce: changes within this time are read together.
const SETTLE: Duration = Duration::from_millis(10);
/// A broken file may be one that is being written; it is read again after this before anything is logged.
const SECOND_LOOK: Duration = Duration::from_millis(150);

/// Longest line about a project's file in the log.
const LONGEST_REMARK: usize = 1_000;

/// Loads the configuration from all its sources.
pub type Load = dyn Fn() -> Result<Loaded, LoadError> + Send + Sync;

/// Watches the files of a configuration for as long as the gateway runs.
pub fn watch(gateway: &Gateway, loaded: &Loaded, load: Arc<Load>) {
    let mut config = loaded.config.clone();
    let accepted = with_installed(&mut config);
    let live = Live {
        router: Arc::clone(&gateway.router),
        context: Arc::downgrade(&gateway.context),
        catalog: Arc::clone(&gateway.catalog),
        pinned: Arc::clone(&gateway.pinned),
        config,
        accepted,
        source: loaded.source.clone(),
        surface: Arc::clone(&gateway.view.surface),
        complaint: None,
        named: Vec::new(),
    };
    live.publish_project(loaded.project.as_ref());
    let mut files = loaded.files.clone();
    files.push(provision::changed_file(&loaded.config.settings.home));
    // Watched before this returns: a change made from now on is not missed.
    let folders = Folders::of(&files);
    let seen = stamps(&files);
    task::spawn("reload", live.follow(files, folders, seen, load));
}

/// How often changed tools of installed servers were accepted, by name.
type Accepted = BTreeMap<String, u64>;

/// What tells one state of a file from another; links are followed.
type Stamp = Option<(Option<SystemTime>, u64)>;

fn stamps(files: &[PathBuf]) -> Vec<Stamp> {
    let stamp =
        |file: &PathBuf| fs::metadata(file).ok().map(|file| (file.modified().ok(), file.len()));
    files.iter().map(stamp).collect()
}

/// The gateway as it runs, and the configuration it runs with.
struct Live {
    router: Arc<Router>,
    /// Not strongly: with the last session of a context its files need no watching.
    context: Weak<Context>,
    catalog: Arc<Catalog>,
    pinned: Arc<Pinned>,
    /// Including the installed servers.
    config: Config,
    /// How often changed tools of installed servers were accepted, by name.
    accepted: Accepted,
    source: Source,
    /// Publishes the current state of the project's file.
    surface: Arc<Surface>,
    /// The last error that was logged about the files.
    complaint: Option<String>,
    /// The files of the configuration that was read last.
    named: Vec<PathBuf>,
}

impl Live {
    async fn follow(
        mut self,
        mut files: Vec<PathBuf>,
        folders: Folders,
        mut seen: Vec<Stamp>,
        load: Arc<Load>,
    ) {
        loop {
            let notified = tokio::time::timeout(POLL, folders.changed()).await.is_ok();
            if self.context.strong_count() == 0 {
                return;
            }
            if notified {
                tokio::time::sleep(SETTLE).await;
            }
            let now = stamps(&files);
            // Two states may have the same stamp, so a notification counts on its own.
            if notified || now != seen {
                seen = now;
                self.reload(&load).await;
                // Descriptions that were not named before.
                for file in std::mem::take(&mut self.named) {
                    if !files.contains(&file) {
                        seen.extend(stamps(std::slice::from_ref(&file)));
                        files.push(file);
                    }
                }
            }
        }
    }

    async fn reload(&mut self, load: &Arc<Load>) {
        self.add_installed();
        let mut loaded = read(load).await;
        if !matches!(&loaded, Ok((loaded, _)) if loaded.source == self.source) {
            tokio::time::sleep(SECOND_LOOK).await;
            loaded = read(load).await;
        }
        let is_user = |source: &Source| matches!(source, Source::User(_));
        let complaint = match loaded {
            Ok((mut loaded, accepted)) if is_user(&self.source) && !is_user(&loaded.source) => {
                // The user's servers stay; those of a project that is no longer approved are removed all the same.
                let mut servers = self.config.servers.clone();
                servers.retain(|server| {
                    server.origin == ServerOrigin::User
                        && loaded.config.server(&server.name).is_none()
                });
                servers.append(&mut loaded.config.servers);
                loaded.config.servers = servers;
                loaded.config.settings = self.config.settings.clone();
                loaded.source = self.source.clone();
                self.apply(loaded, accepted).await;
                "the config file is gone".to_owned()
            }
            Ok((mut loaded, accepted)) => {
                self.complaint = None;
                self.named = std::mem::take(&mut loaded.files);
                return self.apply(loaded, accepted).await;
            }
            Err(error) => error.to_string(),
        };
        if self.complaint.as_ref() != Some(&complaint) {
            let message = format!("{complaint}; the current configuration stays in force");
            tracing::error!("{message}");
            self.complaint = Some(complaint);
        }
    }

    /// Adds servers that this gateway installed since the last reload, so that their removal is noticed. Runs before the
    /// files are read, so that one installed after that does not count as removed.
    fn add_installed(&mut self) {
        let members = self.context.upgrade().map(|context| context.members());
        for known in members.iter().flat_map(|members| members.iter()) {
            if self.config.server(&known.name).is_none() {
                self.config.servers.push(as_written(&known.config()));
            }
        }
    }

    /// Publishes the state of the project's file, and logs it if it changed.
    fn publish_project(&self, project: Option<&Project>) {
        let is_new = self.surface.project.send_if_modified(|known| {
            let is_same = known.as_deref() == project;
            if !is_same {
                *known = project.cloned().map(Arc::new);
            }
            !is_same
        });
        if is_new && let Some(remark) = project.and_then(Project::remark) {
            let hint = remark.hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default();
            let line = clean_line(&format!("{remark}{hint}"), LONGEST_REMARK).into_owned();
            tracing::warn!("{line}");
        }
    }

    async fn apply(&mut self, loaded: Loaded, accepted: Accepted) {
        self.publish_project(loaded.project.as_ref());
        let Loaded { config, source, .. } = loaded;
        let mut diff = config::diff(&self.config, &config);
        // Tools that were accepted are shown again: the catalog entry of such a server is rebuilt.
        let newly_accepted =
            |name: &&String| self.accepted.get(*name).is_some_and(|at| at != &accepted[*name]);
        for name in accepted.keys().filter(newly_accepted) {
            if !diff.changed.contains(name) {
                diff.changed.push(name.clone());
            }
        }
        for name in accepted.keys() {
            self.pinned.add(name);
        }
        self.accepted = accepted;
        let is_same =
            config.settings == self.config.settings && config.toolsets == self.config.toolsets;
        if !is_same {
            let message =
                "settings or toolsets changed; they take effect after a restart of metamcp";
            tracing::warn!("{message}");
        }
        self.source = source;
        if !is_same || !diff.is_empty() {
            let subject = Subject::Config {
                file: None,
                added: &diff.added,
                changed: &diff.changed,
                removed: &diff.removed,
                settings: !is_same,
            };
            self.router.observer.publish(&Event::Action(Action::new(subject, "changed")));
        }
        if diff.is_empty() {
            self.config = config;
            return self.arrange();
        }
        let Some(context) = self.context.upgrade() else { return };
        let mut removed = Vec::new();
        for name in &diff.removed {
            removed.extend(context.remove(name).map(|known| known.id));
        }
        let mut changed = Vec::new();
        for name in diff.added.iter().chain(&diff.changed) {
            let Some(server) = config.server(name) else { continue };
            let before = context.member(name);
            // One that this gateway installed is in use already.
            let known = before.as_ref().filter(|_| diff.added.contains(name));
            if known.is_some_and(|known| as_written(&known.config()) == *server) {
                continue;
            }
            let policy = policy(server, &self.config.settings);
            let server = Arc::new(server.clone());
            let Some(now) = context.put(Arc::clone(&server), policy) else { continue };
            if let Some(before) = before.filter(|before| before.id != now.id) {
                removed.push(before.id);
            }
            changed.push((now.id, server));
        }
        self.catalog.reconfigure(changed, &removed).await;
        context.adopt_lists().await;
        context.tools_changed();
        self.config = config;
        self.arrange();
        self.router.state_changes.step();
        tracing::info!(
            "the configuration changed: {} added, {} changed, {} removed",
            diff.added.len(),
            diff.changed.len(),
            diff.removed.len()
        );
    }

    fn arrange(&self) {
        let names: Vec<&str> =
            self.config.servers.iter().map(|server| server.name.as_str()).collect();
        if let Some(context) = self.context.upgrade() {
            context.arrange(&names);
        }
    }
}

/// Appends the installed servers; returns how often the tools of each were accepted.
fn with_installed(config: &mut Config) -> Accepted {
    let mut accepted = Accepted::new();
    let everywhere = Everywhere::from(&config.settings.approvals);
    for (mut server, times) in provision::installed(&config.settings.home) {
        server.approvals.everywhere = everywhere.clone();
        // Configured servers take precedence over installed ones.
        if config.server(&server.name).is_none() {
            accepted.insert(server.name.clone(), times);
            config.servers.push(server);
        }
    }
    accepted
}

/// Reads the files off the runtime's threads: the disk may be slow.
async fn read(load: &Arc<Load>) -> Result<(Loaded, Accepted), LoadError> {
    let load = Arc::clone(load);
    let read = move || {
        let mut loaded = load()?;
        let accepted = with_installed(&mut loaded.config);
        Ok((loaded, accepted))
    };
    match tokio::task::spawn_blocking(read).await {
        Ok(read) => read,
        Err(_) => Err(LoadError::NoHome),
    }
}

#[cfg(test)]
mod tests {
    use metamcp_config::config::ServerConfig;
    use metamcp_types::secret::Secret;

    use super::*;

    #[test]
    fn a_server_whose_secrets_were_resolved_is_unchanged() {
        let written = ServerConfig::stdio("notes", "notes-server", &["--stdio"]);
        let mut used = written.clone();
        used.expanded_secrets.push(Secret::new("API_KEY", "t0ken-canary"));
        let of = |server: ServerConfig| Config { servers: vec![server], ..Config::default() };
        assert!(config::diff(&of(as_written(&used)), &of(written)).is_empty());
    }
}
