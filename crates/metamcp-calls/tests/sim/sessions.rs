//! Sessions that come with servers of their own and take them along, siblings of a server, and the ids of both.

use std::time::Duration;

use metamcp_calls::breaker::Phase;
use metamcp_calls::dispatch::{Removal, ServerPolicy};
use metamcp_calls::pool::ServerId;
use metamcp_calls::siblings::{self, Choice, Load};
use metamcp_types::moment::Moment;

use crate::books::{Check, Event, Server, Stage, Step, ensure};
use crate::plan::{CallerPlan, SESSION, ServerPlan, server_plan};
use crate::rng::Rng;
use crate::world::World;

impl World {
    /// Adds a server. Returns its number here; its id may have the place of one that is gone.
    pub(crate) fn add_server(&mut self, plan: ServerPlan) -> usize {
        let number = self.servers.len();
        let id = self.dispatch.add_server(plan.policy);
        assert_eq!(self.numbers.insert(id, number), None, "{id:?} was given before");
        let held = |server: &&Server| !server.reclaimed;
        let same = self.servers.iter().filter(held).find(|other| other.id.place() == id.place());
        assert!(same.is_none(), "{id:?} has the place of {:?}", same.map(|server| server.id));
        self.most_at_once = self.most_at_once.max(self.servers.iter().filter(held).count() + 1);
        assert!(id.place() < self.most_at_once, "{id:?}, though there are free places");
        if self.servers.iter().any(|other| other.id.place() == id.place()) {
            self.sights.add("a place used again");
        }
        self.servers.push(Server::new(id, plan));
        self.seen.phases.push(Phase::Normal { failures: 0 });
        number
    }

    /// The number of a server that the dispatch names: one that was taken back is never named again.
    pub(crate) fn number_of(&self, id: ServerId) -> Result<usize, String> {
        let number = self.numbers.get(&id).copied();
        let number = number.filter(|&number| !self.servers[number].reclaimed);
        number.ok_or_else(|| format!("{id:?} is nobody's"))
    }

    /// A session comes with two servers of its own, calls them and others, and leaves.
    pub(crate) fn join(&mut self, lane: u64, vice: u32, defaults: bool) -> Check {
        let mut rng = Rng::of(self.plan.seed, SESSION, lane);
        let own: Vec<usize> = (0..2)
            .map(|_| {
                let plan = server_plan(&mut rng, vice, defaults);
                let policy = ServerPolicy { owner: Some(lane), ..plan.policy };
                self.add_server(ServerPlan { policy, ..plan })
            })
            .collect();
        let length = rng.span(10, 2000);
        for _ in 0..rng.below(8) {
            let server =
                if rng.chance(700) { rng.pick(&own) } else { rng.size(0, self.servers.len() - 1) };
            // Some come when the session is gone, as a task that was slow would.
            let after = length / 1000 * u32::try_from(rng.below(1200)).unwrap_or(0);
            self.add_caller(CallerPlan {
                at: self.now + after,
                server,
                lane,
                harmless: rng.chance(400),
                timeout: None,
                patience: rng.chance(100).then(|| rng.span(1, 1000)),
            });
        }
        self.after(length, Event::Leave(lane));
        self.settle(Step::Add)
    }

    pub(crate) fn leave(&mut self, lane: u64) -> Check {
        let own = |number: &usize| {
            let server = &self.servers[*number];
            server.plan.policy.owner == Some(lane) && !server.reclaimed
        };
        let own: Vec<usize> = (0..self.servers.len()).filter(own).collect();
        for number in own {
            self.remove(number, Removal::AtOnce)?;
        }
        self.reclaim()
    }

    pub(crate) fn remove(&mut self, number: usize, removal: Removal) -> Check {
        let server = &mut self.servers[number];
        server.removed = true;
        server.attached = None;
        let id = server.id;
        self.dispatch.remove_server(id, removal, self.now, &mut self.effects);
        match removal {
            Removal::Finish => self.settle(Step::Remove(number)),
            Removal::AtOnce => {
                self.settle(Step::RemoveAtOnce(number))?;
                for &process in &self.alive {
                    let life = &self.processes[process];
                    ensure!(
                        life.server != number || life.brisk || life.stage == Stage::Lost,
                        "the session is gone, and its server takes its time: {life:?}"
                    );
                }
                let on_it = |who: &&u32| self.callers[**who as usize].server == number;
                let open = self.open.iter().find(on_it);
                ensure!(open.is_none(), "caller {open:?} still waits for it");
                Ok(())
            }
        }
    }

    /// Takes back the places of all servers of which nothing is left, and of no other.
    pub(crate) fn reclaim(&mut self) -> Check {
        let mut given = self.dispatch.reclaim();
        given.sort_unstable();
        let is_left = |number: usize| {
            self.alive.iter().any(|&process| self.processes[process].server == number)
                || self.open.iter().any(|&who| self.callers[who as usize].server == number)
        };
        let over = |number: &usize| {
            let server = &self.servers[*number];
            server.removed && !server.reclaimed && !is_left(*number)
        };
        let over: Vec<usize> = (0..self.servers.len()).filter(over).collect();
        let mut expected: Vec<ServerId> = over.iter().map(|&at| self.servers[at].id).collect();
        expected.sort_unstable();
        ensure!(given == expected, "{given:?} were taken back, not {expected:?}");
        for number in over {
            self.servers[number].reclaimed = true;
        }
        self.settle(Step::Nothing)
    }

    /// The server that takes a call to this one: itself, or a sibling of it.
    pub(crate) fn sibling_for_call(&mut self, first: usize) -> Result<usize, String> {
        let plan = self.servers[first].plan;
        if plan.policy.instances <= 1 || self.servers[first].removed || self.stopping {
            return Ok(first);
        }
        let mut group = vec![first];
        group.extend(&self.servers[first].siblings);
        let load = |number: &usize| self.dispatch.load(self.servers[*number].id, self.now);
        let loads: Vec<(usize, Load)> =
            group.iter().filter_map(|number| Some((*number, load(number)?))).collect();
        let free = self.dispatch.has_free_slot(plan.policy.owner);
        let pool = self.dispatch.pool();
        ensure!(
            !free || pool.count() + pool.waiting().count() < pool.limits().size,
            "a slot is said to be free"
        );
        let only: Vec<Load> = loads.iter().map(|load| load.1).collect();
        match siblings::choose(&only, plan.policy.instances, free) {
            Choice::Use(index) => {
                if index > 0 {
                    self.sights.add("a sibling takes a call");
                }
                Ok(loads[index].0)
            }
            Choice::Start => {
                ensure!(loads.len() < plan.policy.instances as usize, "too many: {loads:?}");
                let policy = siblings::policy(plan.policy, loads.len());
                let number = self.add_server(ServerPlan {
                    policy: ServerPolicy { instances: 1, ..policy },
                    ..plan
                });
                self.servers[first].siblings.push(number);
                self.at_nobodys_cost = true;
                self.sights.add("a sibling started");
                Ok(number)
            }
        }
    }
}

impl Server {
    pub(crate) fn new(id: ServerId, plan: ServerPlan) -> Server {
        Server {
            id,
            plan,
            removed: false,
            reclaimed: false,
            siblings: Vec::new(),
            attached: None,
            waiting: 0,
            starts: Vec::new(),
            due: false,
            not_before: Moment::START,
            owed: false,
            crashes: 0,
            last_crash: Moment::START,
            epoch: 0,
            processes: 0,
            last_first: std::collections::HashMap::new(),
            passed: std::collections::HashMap::new(),
            woken_by: Vec::new(),
            list_due: false,
        }
    }
}

/// How long a process takes to exit when it was ordered to be brisk: it is killed after 600 ms.
pub(crate) fn brisk_end(usual: Duration) -> Duration {
    usual.min(Duration::from_millis(605))
}
