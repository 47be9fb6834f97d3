//! What a seed is about: the size of the fleet, what is unreliable, what happens when.

use metamcp_fleet::identity::InstanceId;
use metamcp_fleet::serving::Limits;

use crate::rng::Rng;

pub(crate) const MS: u64 = 1000;
pub(crate) const SECOND: u64 = 1000 * MS;

/// Something that happens to the world.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fault {
    Crash {
        node: usize,
        back_after: u64,
    },
    /// A process with the same name starts while this one lives.
    Supersede {
        node: usize,
    },
    Pause {
        node: usize,
        length: u64,
    },
    /// The link to the bus breaks in one direction or both.
    Cut {
        node: usize,
        outward: bool,
        inward: bool,
        length: u64,
    },
    /// No node reaches the bus.
    BusGone {
        length: u64,
    },
    /// Another bus server leads: nothing is written for a while, and its clock is another one.
    Failover {
        length: u64,
        offset: i64,
    },
    /// Everything the bus held is lost.
    Amnesia,
    /// The node drains, stops when it is idle, and comes back as a new process.
    Upgrade {
        node: usize,
    },
    /// An operator moves an instance, or nobody uses it.
    Leave {
        instance: usize,
        to: Option<usize>,
    },
    /// A message that nobody of the protocol would send.
    Hostile {
        node: usize,
    },
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub(crate) at: u64,
    pub(crate) node: usize,
    pub(crate) instance: usize,
    pub(crate) is_harmless: bool,
    pub(crate) cancel_after: Option<u64>,
    /// Parts before the last one, and how long the server takes for each.
    pub(crate) parts: u64,
    pub(crate) pace: u64,
    /// Which part is a request to the client.
    pub(crate) asks: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Plan {
    /// Nothing fails: every call is answered.
    pub(crate) is_calm: bool,
    pub(crate) nodes: usize,
    pub(crate) instances: Vec<InstanceId>,
    /// The instance that needs a label, which half of the nodes have.
    pub(crate) labelled: Option<usize>,
    pub(crate) ttl_ms: u64,
    pub(crate) rates: Vec<u64>,
    pub(crate) bus_rate: u64,
    /// Per mille of messages and answers.
    pub(crate) lost: u32,
    pub(crate) doubled: u32,
    pub(crate) late: u32,
    /// Pauses in the middle of a list of effects, per hundred thousand.
    pub(crate) stumbles: u64,
    pub(crate) slowest: u64,
    pub(crate) limits: Limits,
    pub(crate) calls: Vec<Call>,
    pub(crate) faults: Vec<(u64, Fault)>,
    pub(crate) end: u64,
}

impl Plan {
    pub(crate) fn new(seed: u64) -> Plan {
        let mut rng = Rng::of(seed, 1, 0);
        let is_calm = rng.chance(200);
        let nodes = if rng.chance(40) { rng.size(6, 12) } else { rng.size(2, 5) };
        let many = rng.size(1, 3);
        let instances =
            (0..many).map(|_| InstanceId(u128::from(rng.next()) << 64 | u128::from(rng.next())));
        let instances: Vec<InstanceId> = instances.collect();
        let ttl_ms = if rng.chance(150) { 10_000 } else { 4_000 };
        let end = rng.between(6, 16) * SECOND;
        let rates = (0..nodes).map(|_| rng.between(950_000, 1_050_000)).collect();
        let is_rough = !is_calm;
        let of = |rng: &mut Rng, values: &[u32]| if is_rough { rng.pick(values) } else { 0 };
        let mut plan = Plan {
            is_calm,
            nodes,
            labelled: (rng.chance(150) && (nodes > 2 || !is_calm)).then_some(0),
            ttl_ms,
            rates,
            bus_rate: rng.between(950_000, 1_050_000),
            lost: of(&mut rng, &[0, 0, 10, 50, 200]),
            doubled: of(&mut rng, &[0, 20, 100, 300]),
            late: of(&mut rng, &[0, 0, 20, 100]),
            stumbles: u64::from(of(&mut rng, &[0, 0, 100, 500])),
            slowest: if is_calm { 20 * MS } else { rng.pick(&[5, 20, 120]) * MS },
            limits: Limits {
                calls: if is_rough && rng.chance(200) { rng.size(1, 4) } else { 1000 },
                window: if is_rough && rng.chance(200) { rng.between(1, 4) } else { 1024 },
            },
            calls: Vec::new(),
            faults: Vec::new(),
            instances,
            end,
        };
        plan.calls(&mut rng, many);
        plan.faults(&mut rng, many);
        plan
    }

    fn calls(&mut self, rng: &mut Rng, instances: usize) {
        for _ in 0..rng.size(5, 40) {
            let is_long = rng.chance(150);
            let is_large = !is_long && rng.chance(60);
            self.calls.push(Call {
                at: rng.below(self.end),
                node: rng.size(0, self.nodes - 1),
                instance: rng.size(0, instances - 1),
                is_harmless: rng.chance(200),
                cancel_after: rng.chance(80).then(|| rng.below(2 * SECOND)),
                parts: if is_large { rng.between(20, 60) } else { rng.below(5) },
                pace: if is_long { rng.between(100, 1500) } else { rng.below(50) } * MS,
                asks: rng.chance(200).then(|| rng.below(4)),
            });
        }
    }

    fn faults(&mut self, rng: &mut Rng, instances: usize) {
        let count = rng.size(0, 6);
        for _ in 0..count {
            let at = rng.below(self.end);
            let node = rng.size(0, self.nodes - 1);
            let kind = if self.is_calm { rng.below(30) } else { rng.below(120) };
            let fault = match kind {
                0..=14 => Fault::Upgrade { node },
                15..=29 => Fault::Leave {
                    instance: rng.size(0, instances - 1),
                    to: rng.chance(500).then(|| rng.size(0, self.nodes - 1)),
                },
                30..=46 => {
                    Fault::Crash { node, back_after: rng.span(100, 8000).as_micros() as u64 }
                }
                47..=62 => Fault::Pause { node, length: rng.span(100, 12_000).as_micros() as u64 },
                63..=82 => {
                    let way = rng.below(3);
                    let length = rng.span(100, 12_000).as_micros() as u64;
                    Fault::Cut { node, outward: way != 1, inward: way != 2, length }
                }
                83..=88 => Fault::BusGone { length: rng.span(100, 10_000).as_micros() as u64 },
                89..=98 => Fault::Failover {
                    length: rng.span(50, 3000).as_micros() as u64,
                    offset: rng.between(0, self.ttl_ms * 100) as i64 - (self.ttl_ms * 50) as i64,
                },
                99..=102 => Fault::Amnesia,
                103..=107 => Fault::Supersede { node },
                _ => Fault::Hostile { node },
            };
            self.faults.push((at, fault));
        }
    }
}
