//! A reference model of each server's circuit breaker, derived from observable state and the outcomes of calls.

use metamcp_calls::breaker::Phase;
use metamcp_calls::lifecycle::State;

use crate::books::{Check, End, Step};
use crate::world::World;

impl World {
    pub(crate) fn check_breaker(&mut self, step: Step, number: usize, after: Phase) -> Check {
        let before = self.seen.phases[number];
        let (phase, epoch, owed) = self.retell(step, number, before, after).ok_or_else(|| {
            let ended: Vec<_> =
                self.ended.iter().map(|end| (&self.callers[end.0 as usize], end.1)).collect();
            format!("the breaker of {number} went from {before:?} to {after:?} by {ended:?}")
        })?;
        self.servers[number].owed = owed;
        if let Phase::Probing { .. } = before
            && epoch != self.servers[number].epoch
            && !matches!(step, Step::Change(_))
        {
            self.sights.add(match phase {
                Phase::Normal { .. } => "probe succeeded",
                Phase::Open { until } if until == self.now => "probe called off",
                _ => "probe failed",
            });
        }
        self.servers[number].epoch = epoch;
        self.seen.phases[number] = phase;
        let probing = matches!(phase, Phase::Probing { .. });
        match step {
            Step::Arrive(who) if self.callers[who as usize].server == number => {
                let caller = &mut self.callers[who as usize];
                caller.epoch = epoch;
                caller.probe = probing;
            }
            Step::Change(server) if server == number => {
                for index in 0..self.open.len() {
                    let caller = &mut self.callers[self.open[index] as usize];
                    if caller.server == number && caller.on.is_none() {
                        caller.epoch = epoch;
                        caller.probe = false;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The expected effect of the step on a breaker: its phase, its epoch, and whether a crash is left that was not
    /// charged yet. `None` if the observed phase contradicts it.
    fn retell(
        &self,
        step: Step,
        number: usize,
        before: Phase,
        after: Phase,
    ) -> Option<(Phase, u64, bool)> {
        let limits = &self.plan.limits;
        let server = &self.servers[number];
        let (mut phase, mut epoch) = (before, server.epoch);
        // A fresh cooldown includes jitter, so the observed value is used, within its bounds.
        let opened = match after {
            Phase::Open { until } => {
                let least = self.now + limits.breaker_cooldown;
                let most = least + limits.breaker_cooldown / 10;
                Phase::Open { until: until.clamp(least, most) }
            }
            _ => Phase::Open { until: self.now + limits.breaker_cooldown },
        };
        let freed = Phase::Open { until: self.now };
        let here = match step {
            Step::Arrive(who) => {
                self.callers[who as usize].server == number && !server.removed && !self.stopping
            }
            // The breaker is consulted only where a connection has to be opened.
            Step::Wake(server) => server == number && after != before,
            Step::Change(server) => server == number,
            Step::Tick | Step::Nosy => true,
            _ => false,
        };
        if let Phase::Probing { deadline } = phase
            && here
            && self.now >= deadline
        {
            (phase, epoch) = (opened, epoch + 1);
        }
        match (step, phase) {
            (Step::Change(_), _) if here => {
                (phase, epoch) = (Phase::Normal { failures: 0 }, epoch + 1);
            }
            (Step::Arrive(who), _) if here => {
                let admitted = self.callers[who as usize].call.is_some();
                match phase {
                    Phase::Normal { .. } => {}
                    Phase::Open { until } if self.now >= until => {
                        let limit = limits.install_timeout + server.plan.policy.timeout;
                        phase = if admitted {
                            Phase::Probing { deadline: self.now + limit }
                        } else {
                            freed
                        };
                        epoch += 1;
                    }
                    Phase::Open { .. } | Phase::Probing { .. } if admitted => return None,
                    Phase::Open { .. } | Phase::Probing { .. } => {}
                }
            }
            (Step::Wake(_), Phase::Open { until })
                if here && self.now >= until && after == freed =>
            {
                (phase, epoch) = (freed, epoch + 1);
            }
            _ => {}
        }
        // One crash and one failed start are one failure each, however many calls they end.
        let mut charge = match step {
            // Connections closed by a config change say nothing about the new configuration; a removed server's
            // breaker does not matter.
            Step::Lost { attached, counts, .. } => counts && (attached || server.removed),
            Step::Tick => true,
            Step::Gone(process) => self.processes[process].server == number && server.owed,
            _ => false,
        };
        let mut owed = server.owed;
        for &(who, end) in &self.ended {
            let caller = &self.callers[who as usize];
            if caller.server != number || caller.epoch != epoch {
                continue;
            }
            let failed = match end {
                End::Answered { error } => {
                    match phase {
                        Phase::Probing { .. } => {
                            (phase, epoch) = (Phase::Normal { failures: 0 }, epoch + 1);
                        }
                        Phase::Normal { .. } if !error => phase = Phase::Normal { failures: 0 },
                        _ => {}
                    }
                    continue;
                }
                End::Failed => std::mem::take(&mut charge),
                End::TimedOut => true,
                End::TimedOutAgain => std::mem::take(&mut owed),
                End::Neutral => false,
            };
            match phase {
                Phase::Probing { .. } => {
                    (phase, epoch) = (if failed { opened } else { freed }, epoch + 1);
                }
                Phase::Normal { failures } if failed => {
                    if failures + 1 >= limits.breaker_threshold {
                        (phase, epoch) = (opened, epoch + 1);
                    } else {
                        phase = Phase::Normal { failures: failures + 1 };
                    }
                }
                _ => {}
            }
        }
        if let Some(counts) = self.listing_start_failed(number) {
            (phase, epoch) = match phase {
                Phase::Normal { failures } if counts => {
                    if failures + 1 < limits.breaker_threshold {
                        (Phase::Normal { failures: failures + 1 }, epoch)
                    } else {
                        (opened, epoch + 1)
                    }
                }
                Phase::Open { until } if self.now >= until => {
                    (if counts { opened } else { freed }, epoch + 2)
                }
                Phase::Probing { deadline } if self.now >= deadline => (opened, epoch + 1),
                other => (other, epoch),
            };
        }
        // A crash is pending from when all its calls wait for a retry until one of them is sent, or given up.
        match step {
            Step::Connected(process) if self.processes[process].server == number => owed = false,
            Step::Change(server) if server == number => owed = false,
            Step::Gone(process) if self.processes[process].server == number => {
                owed &= !self.ended.iter().any(|end| end.1 == End::Failed);
            }
            Step::Lost { process, attached: true, .. }
                if self.processes[process].server == number && self.start_failed.is_empty() =>
            {
                let again = |who: &u32| self.callers[*who as usize].ended.is_none();
                owed = charge && self.lost_calls.iter().any(again);
            }
            _ => {}
        }
        if self.start_failed.iter().any(|failed| failed.0 == number) && !self.is_kept(number) {
            owed = false;
        }
        (phase == after).then_some((phase, epoch, owed))
    }

    /// Whether a server retains its failed connection, to be restarted.
    fn is_kept(&self, number: usize) -> bool {
        let view = self.dispatch.view(self.servers[number].id);
        view.is_some_and(|view| view.state == Some(State::Failed))
    }

    /// Whether this step ended a start for good that only a listing waited for, and whether that counts: it does like
    /// any other.
    fn listing_start_failed(&self, number: usize) -> Option<bool> {
        let (_, counts) = self.start_failed.iter().find(|failed| failed.0 == number)?;
        let waited_for = |end: &&(u32, End)| {
            end.1 == End::Failed && self.callers[end.0 as usize].server == number
        };
        (!self.is_kept(number) && !self.ended.iter().any(|end| waited_for(&end))).then_some(*counts)
    }
}
