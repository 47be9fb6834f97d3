//! The whole gateway: the only file that wires the modules together.
//! Owns: the order in which things start.      Never: decides anything.
//! In: a `Config`.  Out: a running `Gateway`.
//! Tests: every test of the binary.

use std::sync::Arc;
use std::time::Duration;

use metamcp_calls::dispatch::{Limits, ServerPolicy};
use metamcp_calls::notify::Pace;
use metamcp_calls::pool::{self, Keep};
use metamcp_calls::replay::Rule;
use metamcp_child::ShimCommand;
use metamcp_config::config::{Config, IdleRule, Lifecycle, ServerConfig};
use metamcp_config::settings::{Bm25Settings, Replay, Settings};
use metamcp_sandbox::host::Launch;
use metamcp_search::search::{Strategy, Tuning};
use metamcp_types::next::Audience;

use crate::catalog::Catalog;
use crate::catalog::schema_cache::SchemaCache;
use crate::clock::Clock;
use crate::compute;
use crate::observe::{EventLog, Observer, Redactions, Subscriber};
use crate::provision::{self, Pinned, Provisioner};
use crate::results::{self, Results};
use crate::router::{Router, Timing};
use crate::shapes::Shapes;
use crate::surface::execute::CodeMode;
use crate::surface::{Options, Parts, Scope, Surface, View, semantic};
use crate::task;
use crate::upstream::launch::Launcher;
use crate::usage_history::{UsageFile, UsageStore};
use crate::vectors::Local;

/// A running gateway. No server is started before something needs it.
pub struct Gateway {
    /// The path of every call.
    pub router: Arc<Router>,
    /// What is known of tools.
    pub catalog: Arc<Catalog>,
    /// What clients see.
    pub view: View,
    /// Usage history, unless the operator disabled it.
    pub usage_history: Option<Arc<UsageStore>>,
    /// The toolsets by name, for endpoints that serve one of them.
    pub scopes: Vec<(String, Arc<Scope>)>,
    /// The servers that metamcp installed.
    pub pinned: Arc<Pinned>,
}

impl Gateway {
    /// Builds a gateway. Must be called inside a runtime.
    pub fn start(config: &Config, shim: ShimCommand, worker: Launch) -> Gateway {
        let settings = &config.settings;
        let cache = SchemaCache::new(&settings.home);
        let pinned = Arc::new(Pinned::new(&settings.home));
        let catalog = Catalog::new(Some(cache), settings.catalog_ttl).tuned(tuning(settings));
        let catalog = Arc::new(catalog.pinned(Arc::clone(&pinned)));
        let installer = shim.clone();
        let observer = Arc::new(Observer::default());
        let launcher = Launcher::new(shim, settings, &observer);
        let tokens = launcher.tokens();
        let timing = Timing {
            list: settings.timeouts.list,
            line_bytes: settings.limits.line_bytes,
            tools: settings.limits.tools_per_server,
            notify: settings.notify.list_changed.then_some(Pace {
                quiet: settings.notify.debounce,
                longest: settings.notify.max_wait,
            }),
        };
        observer.attach(Arc::new(EventLog::new()));
        observer.attach(Arc::new(Redactions::default()));
        let router = Router::start(
            Clock::start(),
            limits(settings),
            timing,
            Arc::clone(&catalog),
            launcher,
            Arc::clone(&observer),
        );
        let join = {
            let (router, catalog, settings) =
                (Arc::clone(&router), Arc::clone(&catalog), settings.clone());
            move |server: ServerConfig| {
                let server = Arc::new(server);
                let id = router.add(Arc::clone(&server), policy(&server, &settings));
                catalog.add(id, server);
            }
        };
        config.servers.iter().cloned().for_each(&join);
        // Configured servers take precedence over installed ones.
        let installed = provision::installed(&settings.home).into_iter();
        for (server, _) in installed.filter(|(one, _)| config.server(&one.name).is_none()) {
            pinned.add(&server.name);
            join(server);
        }
        catalog.load();
        let join = Box::new({
            let pinned = Arc::clone(&pinned);
            move |server: ServerConfig| {
                pinned.add(&server.name);
                join(server);
            }
        });
        let provisioner = Provisioner::new(&settings.home, &settings.provision, join)
            .installing(installer, settings.token_store);
        let ranking = semantic::configured(
            settings.search,
            &settings.embedding,
            &settings.home,
            router.clock,
        );
        if let Some(local) = ranking.local() {
            keep_reading(local, &catalog, &router);
        }
        let options = Options {
            ranking,
            discover_budget: settings.timeouts.discover_budget,
            list_wait: settings.timeouts.install + settings.timeouts.list,
            pool_wait: settings.pool.wait_timeout,
            result_chars: settings.limits.result_chars,
            replay: match settings.replay {
                Replay::Annotated => Rule::Annotated,
                Replay::Never => Rule::Never,
            },
        };
        let home = settings.home.clone();
        // Results that a killed gateway left behind have no owner any more. Most homes have none.
        if home.join("results").exists() {
            drop(tokio::task::spawn_blocking(move || results::left_behind(&home, true)));
        }
        let usage_history =
            settings.learn.then(|| UsageStore::start(UsageFile::new(&settings.home)));
        let code = CodeMode::new(&settings.code, worker);
        let shapes = Arc::new(Shapes::new(&settings.home));
        observer.attach(Arc::clone(&shapes) as Arc<dyn Subscriber>);
        if let Some(usage_history) = &usage_history {
            observer.attach(Arc::clone(usage_history) as Arc<dyn Subscriber>);
        }
        let parts = Parts {
            router: Arc::clone(&router),
            catalog: Arc::clone(&catalog),
            usage_history: usage_history.clone(),
            code,
            shapes,
            results: Results::new(&settings.home),
            redacts: settings.redact,
            tokens,
            provisioner,
        };
        let surface = Arc::new(Surface::new(parts, options));
        let scopes: Vec<(String, Arc<Scope>)> = config
            .toolsets
            .iter()
            .map(|toolset| (toolset.name.clone(), Arc::new(Scope::new(toolset.clone()))))
            .collect();
        let scope = scopes.iter().find(|(name, _)| *name == settings.toolset);
        let scope = scope.map(|(_, scope)| Arc::clone(scope));
        let audience = Audience::default();
        let tool_surface = settings.surface;
        let view = View {
            surface,
            tool_surface,
            scope,
            audience,
            principal: 0,
            principal_name: Arc::from("owner"),
            approves: true,
        };
        Gateway { router, catalog, view, usage_history, scopes, pinned }
    }

    /// Starts the eager servers and the first `count` of the others without waiting for a call.
    pub fn warm(&self, count: usize) {
        let servers = self.router.servers();
        let (eager, others): (Vec<_>, Vec<_>) = servers
            .iter()
            .filter(|entry| entry.config.is_enabled())
            .partition(|entry| entry.config.eager);
        for entry in eager.into_iter().chain(others.into_iter().take(count)) {
            // The next caller gets the reason why it cannot start.
            drop(self.router.wake(entry.id));
        }
    }
}

/// Lets the transformer embed tools as they become known, not only at the first search for them.
fn keep_reading(local: &Arc<Local>, catalog: &Arc<Catalog>, router: &Arc<Router>) {
    let local = Arc::downgrade(local);
    let (catalog, router) = (Arc::clone(catalog), Arc::downgrade(router));
    task::spawn("transformer", async move {
        catalog.loaded().await;
        let mut read = None;
        while let (Some(local), Some(router)) = (local.upgrade(), router.upgrade()) {
            let mut seen = router.state_changes.now();
            let snapshot = catalog.snapshot();
            if read == Some(snapshot.generation) {
                drop((local, snapshot));
            } else {
                read = Some(snapshot.generation);
                // Where it fails, the next search offers them.
                drop(compute::run(move || local.offer(snapshot.index())).await);
            }
            router.state_changes.moved_on(&mut seen).await;
            drop(router);
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
    });
}

/// How often to check for new tools while state changes: every call is a change.
const BETWEEN_LOOKS: Duration = Duration::from_millis(500);

/// Weights of `bm25`, where that is the strategy: whole numbers, in their usual notation.
fn tuning(settings: &Settings) -> Tuning {
    if settings.search != Strategy::Bm25 {
        return Tuning::default();
    }
    let (bm25, usual) = (&settings.bm25, Bm25Settings::USUAL);
    let times = |given: u32, usual: u32| given as f32 / usual as f32;
    Tuning {
        name: times(bm25.name_boost, usual.name_boost),
        server: times(bm25.namespace_boost, usual.namespace_boost),
        tags: times(bm25.tags_boost, usual.tags_boost),
        tools: bm25.max_tools,
        chars: bm25.max_text,
    }
}

fn limits(settings: &Settings) -> Limits {
    let pool = &settings.pool;
    Limits {
        pool: pool::Limits {
            size: pool.size as usize,
            reserve: pool.reserve_size as usize,
            reserve_after: pool.reserve_timeout,
            minimum: pool.min_size as usize,
            idle_timeout: pool.idle_timeout,
            per_owner: (pool.size as usize * 3 / 4).max(1),
        },
        breaker_threshold: pool.failure_threshold,
        breaker_cooldown: pool.cooldown,
        pool_wait: pool.wait_timeout,
        connect_timeout: settings.timeouts.connect,
        install_timeout: settings.timeouts.install,
    }
}

pub(crate) fn policy(server: &ServerConfig, settings: &Settings) -> ServerPolicy {
    let keep = match server.lifecycle {
        Lifecycle::Default => Keep::UntilTimeout,
        Lifecycle::KeepAlive { .. } => Keep::Alive,
        Lifecycle::Ephemeral => Keep::Ephemeral,
    };
    let idle_timeout = match server.idle_rule(settings.pool.idle_timeout) {
        IdleRule::After(timeout) => Some(timeout),
        IdleRule::AtOnce | IdleRule::Never => None,
    };
    ServerPolicy {
        timeout: server.timeout.unwrap_or(settings.timeouts.call),
        max_in_flight: server.in_flight_limit(settings.limits.in_flight),
        vital: server.vital,
        keep,
        idle_timeout,
        one_pipe: !server.transport.is_remote(),
        owner: None,
        instances: 1,
    }
}
