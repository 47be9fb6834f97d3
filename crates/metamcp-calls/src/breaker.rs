//! The circuit breaker of one server: closed, open, or half-open with a single probe.
//! Owns: the failure count, the cooldown, the one probe.      Never: decides what a failure is, touches a child.
//! In: `admit(now)`, `settle(permit, outcome, now)`.  Out: permits, refusals.
//! Tests: `breaker/tests.rs`: every history up to a length, long random ones, and the races that matter.

use std::time::Duration;

use metamcp_types::moment::Moment;

/// When to trip and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Consecutive failures that open the breaker.
    pub threshold: u32,
    /// How long it stays open.
    pub cooldown: Duration,
    /// How long a probe may take before it counts as failed.
    pub probe_limit: Duration,
}

/// Leave to make one call, including its one retry. It must be settled, exactly once.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a permit that is not settled can wedge the breaker until its probe times out"]
pub struct Permit {
    epoch: u64,
    probe: bool,
}

impl Permit {
    /// Whether this is the one call that decides if the server is back.
    pub fn is_probe(&self) -> bool {
        self.probe
    }
}

/// How a call ended, as far as the breaker cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Success,
    Failure,
    /// Nothing was learnt: cancelled, refused elsewhere, or a matter of credentials.
    Neutral,
}

/// A call that was not let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// When asking again may help.
    pub retry_after: Duration,
}

/// What an operator sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Letting calls through; so many failed in a row.
    Normal {
        /// Consecutive failures so far.
        failures: u32,
    },
    /// Refusing until then.
    Open {
        /// End of the cooldown.
        until: Moment,
    },
    /// One call is out to see whether the server is back.
    Probing {
        /// When that call counts as failed.
        deadline: Moment,
    },
}

impl Phase {
    pub fn word(self) -> &'static str {
        match self {
            Phase::Normal { .. } => "normal",
            Phase::Open { .. } => "open",
            Phase::Probing { .. } => "probing",
        }
    }
}

#[derive(Debug)]
pub struct Breaker {
    policy: Policy,
    phase: Phase,
    /// Moves at every change of phase, so that permits of an earlier phase say nothing about this one.
    epoch: u64,
}

impl Breaker {
    /// A breaker that has seen nothing yet.
    pub fn new(policy: Policy) -> Breaker {
        Breaker { policy, phase: Phase::Normal { failures: 0 }, epoch: 0 }
    }

    /// What an operator sees.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// The next moment at which something changes by itself.
    pub fn deadline(&self) -> Moment {
        match self.phase {
            Phase::Probing { deadline } => deadline,
            _ => Moment::NEVER,
        }
    }

    /// Whether [`Breaker::admit`] would let a call through.
    pub fn would_admit(&self, now: Moment) -> bool {
        match self.phase {
            Phase::Normal { .. } => true,
            Phase::Open { until } => now >= until,
            Phase::Probing { .. } => false,
        }
    }

    /// Lets a call through or refuses it at once.
    pub fn admit(&mut self, now: Moment) -> Result<Permit, Refused> {
        match self.phase {
            Phase::Normal { .. } => Ok(Permit { epoch: self.epoch, probe: false }),
            Phase::Open { until } if now >= until => {
                self.enter(Phase::Probing { deadline: now + self.policy.probe_limit });
                Ok(Permit { epoch: self.epoch, probe: true })
            }
            Phase::Open { until } => Err(Refused { retry_after: until.since(now) }),
            Phase::Probing { deadline } if now >= deadline => {
                self.open(now, Duration::ZERO);
                Err(Refused { retry_after: self.policy.cooldown })
            }
            // The probe is likely to end long before it would time out.
            Phase::Probing { deadline } => {
                Err(Refused { retry_after: deadline.since(now).min(self.policy.cooldown) })
            }
        }
    }

    /// Takes a permit back with what was learnt. `jitter` lengthens a cooldown that starts here, so that many
    /// breakers that tripped together do not all probe together. Says whether the permit still meant something.
    #[expect(clippy::needless_pass_by_value, reason = "a permit is used up by settling it")]
    pub fn settle(
        &mut self,
        permit: Permit,
        outcome: Outcome,
        now: Moment,
        jitter: Duration,
    ) -> bool {
        if permit.epoch != self.epoch {
            return false;
        }
        match (self.phase, outcome) {
            (Phase::Normal { .. }, Outcome::Success) => self.phase = Phase::Normal { failures: 0 },
            (Phase::Normal { failures }, Outcome::Failure) => {
                let failures = failures + 1;
                if failures >= self.policy.threshold {
                    self.open(now, jitter);
                } else {
                    self.phase = Phase::Normal { failures };
                }
            }
            (Phase::Probing { .. }, Outcome::Success) => self.enter(Phase::Normal { failures: 0 }),
            (Phase::Probing { .. }, Outcome::Failure) => self.open(now, jitter),
            // The probe was called off: the next caller may be the probe.
            (Phase::Probing { .. }, Outcome::Neutral) => self.enter(Phase::Open { until: now }),
            (Phase::Normal { .. }, Outcome::Neutral) | (Phase::Open { .. }, _) => {}
        }
        true
    }

    /// Ends a probe that took too long.
    pub fn expire(&mut self, now: Moment) {
        if let Phase::Probing { deadline } = self.phase
            && now >= deadline
        {
            self.open(now, Duration::ZERO);
        }
    }

    /// Starts over with another policy. Permits that are still out say nothing about what comes now.
    pub fn reset(&mut self, policy: Policy) {
        self.policy = policy;
        self.enter(Phase::Normal { failures: 0 });
    }

    fn open(&mut self, now: Moment, jitter: Duration) {
        self.enter(Phase::Open { until: now + self.policy.cooldown + jitter });
    }

    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.epoch += 1;
    }
}

#[cfg(test)]
mod tests;
