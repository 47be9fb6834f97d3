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
use metamcp_config::config::{Config, Everywhere, IdleRule, Lifecycle, ServerConfig};
use metamcp_config::settings::{Bm25Settings, CodeSettings, Replay, Settings};
use metamcp_sandbox::host::Launch;
use metamcp_search::search::{Strategy, Tuning};
use metamcp_types::next::Audience;
use parking_lot::Mutex;

use crate::approvals::ApprovalStore;
use crate::audit::Audit;
use crate::catalog::Catalog;
use crate::catalog::schema_cache::SchemaCache;
use crate::change_notifier::ChangeNotifier;
use crate::clock::Clock;
use crate::cluster_key::Keyring;
use crate::compute;
use crate::env::Surroundings;
use crate::metrics::Metrics;
use crate::observe::{EventLog, Identity, Observer, Redactions, Subscriber};
#[cfg(feature = "otlp")]
use crate::otel::Otel;
use crate::provision::{self, Pinned, Provisioner};
use crate::results::{self, Results};
use crate::router::{Context, Router, Servers, Timing};
use crate::shapes::Shapes;
use crate::surface::execute::CodeMode;
use crate::surface::{Options, Parts, Scope, SharedRedactor, Surface, View, semantic};
use crate::task;
use crate::upstream::launch::Launcher;
use crate::usage_history::{UsageFile, UsageStore};
use crate::vectors::Local;

/// What all gateways of a process share: the router, and with it the pool of servers.
pub struct Machine {
    pub router: Arc<Router>,
    /// Which session led to which call; files of the home.
    observer: Arc<Observer>,
    /// What is counted, unless the operator disabled it.
    pub metrics: Option<Arc<Metrics>>,
    #[cfg(feature = "otlp")]
    otel: Option<Otel>,
    /// The audit log, unless it is switched off.
    pub audit: Option<Arc<Audit>>,
    /// In a fleet: the key that its gateways share.
    pub keyring: Option<Arc<Keyring>>,
    shim: ShimCommand,
    shared: Mutex<Shared>,
}

/// The settings name the bus of a fleet, and this build has none.
#[cfg(not(feature = "fleet"))]
#[derive(Debug, thiserror::Error)]
#[error(
    "--cluster is set, but this build has no fleet; install a package of metamcp, or build with --features fleet"
)]
pub struct NoFleet;

/// Parts that gateways with equal settings have in common.
#[derive(Default)]
struct Shared {
    usage_history: Option<Arc<UsageStore>>,
    shapes: Option<Arc<Shapes>>,
    results: Option<Arc<Results>>,
    /// The transformer: loaded once, whoever searches.
    local: Option<Arc<Local>>,
    code: Vec<(CodeSettings, Arc<CodeMode>)>,
}

impl Machine {
    /// With the limits that these settings have for all servers together. Must be called inside a runtime.
    pub fn start(settings: &Settings, shim: ShimCommand) -> Arc<Machine> {
        Machine::start_in_fleet(settings, shim, None)
    }

    /// The same as one of a fleet, with the key that its gateways share.
    pub fn start_in_fleet(
        settings: &Settings,
        shim: ShimCommand,
        keyring: Option<Arc<Keyring>>,
    ) -> Arc<Machine> {
        let observer = Arc::new(Observer::default());
        let launcher = Launcher::new(shim.clone(), settings, &observer);
        let timing = Timing {
            list: settings.timeouts.list,
            line_bytes: settings.limits.line_bytes,
            tools: settings.limits.tools_per_server,
        };
        observer.attach(Arc::new(EventLog::new()));
        observer.attach(Arc::new(Redactions::default()));
        let router = Router::start(
            Clock::start(),
            limits(settings),
            timing,
            launcher,
            Arc::clone(&observer),
        );
        router.ask_persons(ApprovalStore::new(&settings.home), settings.approvals.wait);
        let metrics = settings.metrics.then(|| Arc::new(Metrics::new(&router)));
        if let Some(metrics) = &metrics {
            observer.attach(Arc::clone(metrics) as Arc<dyn Subscriber>);
        }
        #[cfg(feature = "otlp")]
        let otel = Otel::start(&settings.otel, &router, &observer, metrics.as_ref());
        #[cfg(not(feature = "otlp"))]
        say_that_none_is_sent(settings);
        let audit = Machine::audit(settings, &router);
        let home = settings.home.clone();
        // Results that a killed gateway left behind have no owner any more. Most homes have none.
        if home.join("results").exists() {
            drop(tokio::task::spawn_blocking(move || results::left_behind(&home, true)));
        }
        Arc::new(Machine {
            router,
            observer,
            metrics,
            audit,
            #[cfg(feature = "otlp")]
            otel,
            keyring,
            shim,
            shared: Mutex::default(),
        })
    }

    /// The audit log, which redacts what any server of this process knows.
    fn audit(settings: &Settings, router: &Arc<Router>) -> Option<Arc<Audit>> {
        let secrets = SharedRedactor::new(router, router.launcher.tokens(), true);
        let audit =
            Audit::start(settings, move |text| secrets.now().redact_text(text).into_owned())?;
        router.observer.attach(Arc::clone(&audit) as Arc<dyn Subscriber>);
        if audit.is_required() {
            router.record_first(&audit);
        }
        Some(audit)
    }

    /// Becomes part of a fleet, where the settings say so.
    ///
    /// # Errors
    /// Why it cannot: then it does not start, because clients would miss what others have.
    #[cfg(feature = "fleet")]
    pub async fn join_fleet(&self, settings: &Settings) -> Result<(), crate::fleet::FleetError> {
        use crate::fleet::{Fleet, FleetConfig, Host, patiently};
        if settings.cluster.servers.trim().is_empty() {
            return Ok(());
        }
        let Some(config) = FleetConfig::of(&settings.cluster, self.keyring.clone()).await? else {
            return Ok(());
        };
        let clock = self.router.clock;
        let joined = patiently(clock, || Fleet::join(config.clone(), clock)).await?;
        self.router.join_fleet(&joined.fleet);
        let host = Arc::downgrade(&self.router) as std::sync::Weak<dyn Host>;
        let fleet = joined.run(host);
        let operated = self.router.operated(settings.timeouts.drain);
        crate::fleet::operator::serve(&fleet.bus, operated).await?;
        Ok(())
    }

    /// A build without it does not start as if it were one gateway of many.
    ///
    /// # Errors
    /// The settings name a bus.
    #[cfg(not(feature = "fleet"))]
    #[expect(clippy::unused_async, reason = "as it is with the feature")]
    pub async fn join_fleet(&self, settings: &Settings) -> Result<(), NoFleet> {
        if settings.cluster.servers.trim().is_empty() { Ok(()) } else { Err(NoFleet) }
    }

    /// Leaves the fleet: what this gateway owns may start elsewhere, calls that run here finish.
    pub fn drain_fleet(&self, within: Duration) {
        #[cfg(feature = "fleet")]
        if let Some(fleet) = self.router.fleet() {
            fleet.drain(within);
        }
        #[cfg(not(feature = "fleet"))]
        let _none = within;
    }

    /// Waits until it has left.
    pub async fn left_fleet(&self, within: Duration) {
        #[cfg(feature = "fleet")]
        if let Some(fleet) = self.router.fleet() {
            fleet.left(within).await;
        }
        #[cfg(not(feature = "fleet"))]
        let _none = within;
    }

    fn usage_history(&self, settings: &Settings) -> Option<Arc<UsageStore>> {
        // In a fleet each gateway has seen other calls: the next page of a search would come in another order.
        if !settings.learn || self.keyring.is_some() {
            return None;
        }
        let mut shared = self.shared.lock();
        let usage_history = shared.usage_history.get_or_insert_with(|| {
            let usage_history = UsageStore::start(UsageFile::new(&settings.home));
            self.observer.attach(Arc::clone(&usage_history) as Arc<dyn Subscriber>);
            usage_history
        });
        Some(Arc::clone(usage_history))
    }

    fn shapes(&self, settings: &Settings) -> Arc<Shapes> {
        let mut shared = self.shared.lock();
        let shapes = shared.shapes.get_or_insert_with(|| {
            let shapes = Arc::new(Shapes::new(&settings.home));
            self.observer.attach(Arc::clone(&shapes) as Arc<dyn Subscriber>);
            shapes
        });
        Arc::clone(shapes)
    }

    fn results(&self, settings: &Settings) -> Arc<Results> {
        let mut shared = self.shared.lock();
        let results = shared.results.get_or_insert_with(|| Arc::new(Results::new(&settings.home)));
        Arc::clone(results)
    }

    fn local(&self, settings: &Settings) -> Arc<Local> {
        let mut shared = self.shared.lock();
        Arc::clone(shared.local.get_or_insert_with(|| Arc::new(Local::new(&settings.home))))
    }

    /// Code mode by these settings: gateways with the same share its workers, and their places.
    fn code(&self, settings: &Settings, worker: Launch) -> Arc<CodeMode> {
        let mut shared = self.shared.lock();
        if let Some((_, known)) = shared.code.iter().find(|(of, _)| *of == settings.code) {
            return Arc::clone(known);
        }
        let code = Arc::new(CodeMode::new(&settings.code, worker));
        shared.code.push((settings.code.clone(), Arc::clone(&code)));
        code
    }

    /// Tells everything that happens to one more.
    pub fn observe(&self, subscriber: Arc<dyn Subscriber>) {
        self.observer.attach(subscriber);
    }

    /// Waits until the usage history and the audit log are on disk, and telemetry is sent.
    pub async fn saved(&self) {
        #[cfg(feature = "otlp")]
        if let Some(otel) = &self.otel {
            otel.finish().await;
        }
        if let Some(audit) = &self.audit {
            audit.finish().await;
        }
        let usage_history = self.shared.lock().usage_history.clone();
        if let Some(usage_history) = usage_history {
            usage_history.finish().await;
        }
    }

    /// Removes what must not outlive the process.
    pub fn end(&self) {
        let results = self.shared.lock().results.clone();
        if let Some(results) = results {
            results.end();
        }
    }
}

/// A running gateway: one configuration, and what its clients see. No server is started before something needs it.
#[derive(Clone)]
pub struct Gateway {
    /// What it shares with other gateways of the process.
    pub machine: Arc<Machine>,
    /// The path of every call.
    pub router: Arc<Router>,
    /// Its servers by name.
    pub context: Arc<Context>,
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
    /// A gateway alone in its process. Must be called inside a runtime.
    pub fn start(config: &Config, shim: ShimCommand, worker: Launch) -> Gateway {
        Gateway::start_in_fleet(config, shim, worker, None)
    }

    /// The same as one of a fleet, with the key that its gateways share.
    pub fn start_in_fleet(
        config: &Config,
        shim: ShimCommand,
        worker: Launch,
        keyring: Option<Arc<Keyring>>,
    ) -> Gateway {
        let machine = Machine::start_in_fleet(&config.settings, shim, keyring);
        Gateway::join(&machine, config, worker, Surroundings::default())
    }

    /// Becomes part of a fleet, where the settings say so, and has in common with it what this gateway knows.
    ///
    /// # Errors
    /// Why it cannot: then it does not start.
    #[cfg(feature = "fleet")]
    pub async fn join_fleet(&self, settings: &Settings) -> Result<(), crate::fleet::FleetError> {
        use crate::fleet::patiently;
        use crate::shared::{FleetLogins, FleetResults, share_lists};
        self.machine.join_fleet(settings).await?;
        let Some(fleet) = self.router.fleet() else { return Ok(()) };
        share_lists(&fleet.bus, &self.catalog);
        let clock = self.router.clock;
        let logins = patiently(clock, || FleetLogins::open(&fleet.bus)).await?;
        self.router.launcher.share_logins(Arc::new(logins));
        let results = patiently(clock, || FleetResults::open(&fleet.bus)).await?;
        self.view.surface.results.share(Arc::new(results));
        Ok(())
    }

    /// The same in a build without it.
    ///
    /// # Errors
    /// The settings name a bus.
    #[cfg(not(feature = "fleet"))]
    pub async fn join_fleet(&self, settings: &Settings) -> Result<(), NoFleet> {
        self.machine.join_fleet(settings).await
    }

    /// One of several: for clients in these surroundings. Must be called inside a runtime.
    pub fn join(
        machine: &Arc<Machine>,
        config: &Config,
        worker: Launch,
        surroundings: Surroundings,
    ) -> Gateway {
        let settings = &config.settings;
        let router = Arc::clone(&machine.router);
        let cache = SchemaCache::new(&settings.home);
        let pinned = Arc::new(Pinned::new(&settings.home));
        let catalog = Catalog::new(Some(cache), settings.catalog_ttl).tuned(tuning(settings));
        let catalog = Arc::new(catalog.pinned(Arc::clone(&pinned)));
        let pace = settings
            .notify
            .list_changed
            .then_some(Pace { quiet: settings.notify.debounce, longest: settings.notify.max_wait });
        let change_notifier = ChangeNotifier::new(pace, router.clock);
        let variables = surroundings.variables.clone();
        let context = Context::new(&router, Arc::clone(&catalog), change_notifier, surroundings);
        let join = {
            // Not strongly: the provisioner is part of what the context's sessions hold.
            let (context, catalog) = (Arc::downgrade(&context), Arc::clone(&catalog));
            let settings = settings.clone();
            move |mut server: ServerConfig| {
                server.approvals.everywhere = Everywhere::from(&settings.approvals);
                let server = Arc::new(server);
                let policy = policy(&server, &settings);
                let put = context.upgrade().and_then(|one| one.put(Arc::clone(&server), policy));
                if let Some(definition) = put {
                    catalog.add(definition.id, server);
                }
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
            .installing(machine.shim.clone(), settings.token_store)
            .observed_by(Arc::clone(&machine.observer));
        let ranking = semantic::configured(
            settings.search,
            &settings.embedding,
            &settings.home,
            router.clock,
            &variables,
            || machine.local(settings),
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
            task_after: settings.timeouts.task_after,
            pin_tokens: settings.pin_tokens,
            replay: match settings.replay {
                Replay::Annotated => Rule::Annotated,
                Replay::Never => Rule::Never,
            },
        };
        let usage_history = machine.usage_history(settings);
        let parts = Parts {
            router: Arc::clone(&router),
            catalog: Arc::clone(&catalog),
            usage_history: usage_history.clone(),
            code: machine.code(settings, worker),
            shapes: machine.shapes(settings),
            results: machine.results(settings),
            redacts: settings.redact,
            tokens: router.launcher.tokens(),
            provisioner,
            keyring: machine.keyring.clone(),
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
            seat: context.seat(Identity::owner().session),
            tool_surface,
            scope,
            audience,
            principal: 0,
            lasting: Some([0; 32]),
            principal_name: Arc::from("owner"),
            approves: true,
        };
        let machine = Arc::clone(machine);
        Gateway { machine, router, context, catalog, view, usage_history, scopes, pinned }
    }

    /// Its servers, as its own view uses them.
    pub fn servers(&self) -> Arc<Servers> {
        self.view.seat.servers()
    }

    /// What a new session of its owner sees.
    pub fn session_view(&self) -> View {
        self.session_view_of(Identity::owner().session)
    }

    /// The same, for a session that has its number already.
    pub fn session_view_of(&self, session: u64) -> View {
        self.view.seated(self.context.seat(session))
    }

    /// The same gateway for a command of a shell, which has no later call to fetch the rest of a result with.
    #[must_use]
    pub fn for_shell(&self) -> Gateway {
        let view = View { audience: Audience::Shell, ..self.session_view() };
        Gateway { view, ..self.clone() }
    }

    /// Starts the eager servers and the first `count` of the others without waiting for a call.
    pub fn warm(&self, view: &View, count: usize) {
        let servers = view.seat.servers();
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
        instances: server.instances.max(1),
    }
}
/// A build without the exporters that is asked for telemetry says what to do.
#[cfg(not(feature = "otlp"))]
fn say_that_none_is_sent(settings: &Settings) {
    const ENDPOINTS: [&str; 4] = [
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
        "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT",
    ];
    let is_set = |name: &&str| crate::env::var(name).is_some_and(|address| !address.is_empty());
    let by_setting = (!settings.otel.endpoint.is_empty()).then_some("otel.endpoint");
    if let Some(asked) = by_setting.or_else(|| ENDPOINTS.into_iter().find(is_set)) {
        tracing::warn!(
            "no telemetry is sent, although {asked} is set: this build has no OTLP; install a package of metamcp, or build with --features otlp"
        );
    }
}
