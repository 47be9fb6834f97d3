//! What the daemon says of itself: for `metamcp status`, and to a client whose settings differ.

use std::collections::HashMap;
use std::sync::Arc;

use metamcp_calls::lifecycle::State;
use metamcp_calls::pool::ServerId;
use metamcp_child::memory;
use metamcp_config::settings::Settings;

use super::{Daemon, VERSION};
use crate::router::{Client as _, Instance, ScopeKey};
use crate::serve::daemon_status::{
    AuditStatus, DaemonStatus, InstanceStatus, ServerStatus, SessionStatus,
};

/// The same with the memory of each process, which has to be read from the system.
pub(super) fn with_memory(mut status: DaemonStatus) -> DaemonStatus {
    status.memory_bytes = memory::of_process(status.pid);
    for instance in status.servers.iter_mut().flat_map(|server| &mut server.instances) {
        instance.memory_bytes = instance.pid.and_then(memory::of_tree);
    }
    status
}

impl Daemon {
    pub(super) fn status(&self) -> DaemonStatus {
        let (now, router) = (self.now(), &self.machine.router);
        let age = |since| u64::try_from(now.since(since).as_millis()).unwrap_or(u64::MAX);
        let connections = self.connections.lock().clone();
        let mut sessions = Vec::new();
        let mut users: HashMap<ServerId, Vec<u64>> = HashMap::new();
        for connected in &connections {
            let session = connected.client.lock().as_ref().and_then(std::sync::Weak::upgrade);
            let client = session.as_ref().and_then(|session| session.identity().client.clone());
            for (id, _) in router.instances() {
                if session.as_ref().is_some_and(|session| session.uses(id)) {
                    users.entry(id).or_default().push(connected.session);
                }
            }
            sessions.push(SessionStatus {
                id: connected.session,
                kind: connected.kind.to_owned(),
                client: client
                    .map(|one| format!("{} {}", one.name, one.version))
                    .unwrap_or_default(),
                pid: Some(connected.pid),
                folder: connected.folder.clone(),
                age_ms: age(connected.since),
                calls: self.calls.0.lock().get(&connected.session).copied().unwrap_or(0),
                in_flight: session.map_or(0, |one| u32::try_from(one.in_flight()).unwrap_or(0)),
            });
        }
        let idle_exit = self.settings.daemon.idle_exit;
        DaemonStatus {
            version: VERSION.to_owned(),
            pid: std::process::id(),
            home: self.settings.home.display().to_string(),
            socket: self.places.socket().display().to_string(),
            log: self.places.log().display().to_string(),
            uptime_ms: age(self.started),
            memory_bytes: None,
            draining: self.is_draining.load(std::sync::atomic::Ordering::Relaxed),
            idle_exit_ms: (!idle_exit.is_zero())
                .then(|| u64::try_from(idle_exit.as_millis()).unwrap_or(u64::MAX)),
            audit: self.machine.audit.as_ref().map(|audit| AuditStatus::of(&audit.health())),
            contexts: u32::try_from(self.contexts.count()).unwrap_or(u32::MAX),
            listeners: connections
                .iter()
                .filter_map(|one| Some(one.listener.lock().as_ref()?.address.clone()))
                .collect(),
            servers: self.servers(&users, &sessions),
            sessions,
        }
    }

    fn servers(
        &self,
        users: &HashMap<ServerId, Vec<u64>>,
        sessions: &[SessionStatus],
    ) -> Vec<ServerStatus> {
        let router = &self.machine.router;
        let mut servers: Vec<(ServerId, ServerStatus)> = Vec::new();
        let mut by_definition: HashMap<crate::catalog::DefinitionId, usize> = HashMap::new();
        for (id, instance) in router.instances() {
            let Some(view) = router.view(id) else { continue };
            let definition = &instance.definition;
            let at = *by_definition.entry(definition.id).or_insert_with(|| {
                let scope = self.contexts.all().iter().find_map(|context| {
                    let context = &context.gateway.context;
                    let is_there = context.members().iter().any(|one| Arc::ptr_eq(one, definition));
                    is_there.then(|| context.scope_of(definition).0.as_str())
                });
                let name = definition.name.to_string();
                let scope = scope.unwrap_or_default().to_owned();
                servers.push((id, ServerStatus { name, scope, ..ServerStatus::default() }));
                servers.len() - 1
            });
            let server = &mut servers[at].1;
            server.queued += u32::try_from(view.queued).unwrap_or(0);
            let phase = view.breaker.word();
            if server.breaker.is_empty() || phase != "normal" {
                phase.clone_into(&mut server.breaker);
            }
            let failure = view.last_failure.as_ref().map(|failure| failure.fact.to_string());
            if failure.is_some() {
                server.failure.clone_from(&failure);
            }
            let Some(state) = view.state else { continue };
            let using = users.get(&id).cloned().unwrap_or_default();
            let pid = router.pid_of(id);
            server.instances.push(InstanceStatus {
                of: self.whose(&instance, sessions),
                state: state.word().to_owned(),
                pid,
                memory_bytes: None,
                age_ms: router.ready_since(id).map(|since| {
                    u64::try_from(self.now().since(since).as_millis()).unwrap_or(u64::MAX)
                }),
                breaker: phase.to_owned(),
                in_flight: match state {
                    State::Active { in_flight } => in_flight.get(),
                    _ => 0,
                },
                sessions: using,
                failure,
            });
        }
        servers.into_iter().map(|(_, server)| server).collect()
    }

    /// Whose an instance is, in words.
    fn whose(&self, instance: &Instance, sessions: &[SessionStatus]) -> String {
        match instance.key {
            ScopeKey::Fleet | ScopeKey::Principal(_) | ScopeKey::Machine => String::new(),
            ScopeKey::Project(_) => {
                let folder = instance.surroundings.folder.as_ref();
                folder.map(|folder| folder.display().to_string()).unwrap_or_default()
            }
            ScopeKey::Session(session) => {
                let its = sessions.iter().find(|known| known.id == session);
                its.map(|its| format!("{} #{session}", its.client)).unwrap_or_default()
            }
        }
    }

    /// Settings that hold for all servers together, and that a client wants otherwise: the daemon's are in force.
    pub(super) fn differences(&self, of_client: &Settings) -> Vec<String> {
        let own = &self.settings;
        let pairs = [
            ("pool", own.pool != of_client.pool),
            ("containment", own.containment != of_client.containment),
            ("passEnv", own.pass_env != of_client.pass_env),
            ("audit", own.audit != of_client.audit),
        ];
        let names: Vec<&str> =
            pairs.iter().filter(|(_, differs)| *differs).map(|(name, _)| *name).collect();
        if names.is_empty() {
            return Vec::new();
        }
        vec![format!(
            "the settings {} of this client differ from the daemon's, which hold for all clients; \
             put them into your own config file and run `metamcp daemon restart`, or use `--daemon off`",
            names.join(", ")
        )]
    }
}
