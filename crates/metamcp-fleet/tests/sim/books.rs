//! What clients and servers of a run remember, and what must be true of it.

use std::collections::BTreeMap;

use metamcp_fleet::identity::{InstanceId, NodeRef, Stamp};
use metamcp_fleet::message::Part;
use metamcp_fleet::node::Verdict;

use crate::plan;

/// Things a batch of runs must have come by; a simulation that never gets there proves nothing about them.
macro_rules! sights {
    ($($name:ident),* $(,)?) => {
        #[derive(Default, Debug, Clone, Copy)]
        pub(crate) struct Sights { $(pub(crate) $name: u64),* }
        impl Sights {
            pub(crate) fn join(&mut self, other: Sights) { $(self.$name += other.$name;)* }
            pub(crate) fn missed(&self) -> Vec<&'static str> {
                let mut missed = Vec::new();
                $(if self.$name == 0 { missed.push(stringify!($name)); })*
                // Since a node decides to act only under a lease that it may act under for a while, a lease ends
                // between the decision and the act in very few runs.
                missed.retain(|name| *name != "not_acted");
                missed
            }
        }
    };
}
sights!(
    answered,
    unknown,
    not_run,
    cancelled,
    local,
    foreign,
    claims,
    conflicts,
    fenced,
    closed,
    refused,
    forgotten,
    undelivered,
    resent,
    stale_acts,
    not_acted,
    amnesia,
    marked,
    superseded,
    reruns,
    discards,
    inputs,
    declined,
    deaths_checked,
    crashes,
    pauses,
    upgrades,
    hand_overs,
    ignored,
    calm,
);

/// Bodies tell which call they belong to, and which part they are.
pub(crate) fn body(call: u64, index: u64) -> u64 {
    call * 1000 + index
}

pub(crate) struct Call {
    pub(crate) plan: plan::Call,
    pub(crate) verdict: Option<Verdict>,
    pub(crate) is_cancelled: bool,
    /// Its client died with its node.
    pub(crate) is_dropped: bool,
    pub(crate) executions: u32,
    /// The next part of the result that the client expects.
    next: u64,
    has_chunks: bool,
}

#[derive(Default)]
pub(crate) struct Books {
    pub(crate) calls: BTreeMap<u64, Call>,
    /// Who acted under each epoch.
    acted: BTreeMap<(InstanceId, Stamp), NodeRef>,
    pub(crate) sights: Sights,
}

impl Books {
    pub(crate) fn begin(&mut self, id: u64, plan: plan::Call) {
        let (is_cancelled, is_dropped) = (false, false);
        let call = Call {
            plan,
            verdict: None,
            is_cancelled,
            is_dropped,
            executions: 0,
            next: 0,
            has_chunks: false,
        };
        self.calls.insert(id, call);
    }

    pub(crate) fn acts(
        &mut self,
        node: &NodeRef,
        instance: InstanceId,
        epoch: Stamp,
    ) -> Result<(), String> {
        let first = self.acted.entry((instance, epoch)).or_insert_with(|| node.clone());
        if first == node {
            Ok(())
        } else {
            Err(format!("{node:?} acts under the epoch {epoch:?} of {first:?}"))
        }
    }

    /// The server runs a call.
    pub(crate) fn executed(&mut self, id: u64) -> Result<(), String> {
        let call = self.calls.get_mut(&id).ok_or("a call nobody made")?;
        call.executions += 1;
        self.sights.reruns += u64::from(call.executions > 1);
        if call.executions > 1 && !call.plan.is_harmless {
            return Err(format!("call {id} was run {} times", call.executions));
        }
        Ok(())
    }

    pub(crate) fn part(&mut self, id: u64, part: &Part<u64>) -> Result<(), String> {
        let call = self.calls.get_mut(&id).ok_or("a part of a call nobody made")?;
        if call.verdict.is_some() || call.is_cancelled {
            return Err(format!("a part of call {id} after its end"));
        }
        let (Part::Chunk(got) | Part::Last(got) | Part::Request(got) | Part::Notification(got)) =
            part;
        let restarted = call.plan.is_harmless && !call.has_chunks && *got == body(id, 0);
        call.has_chunks |= matches!(part, Part::Chunk(_) | Part::Request(_));
        if *got != body(id, call.next) && !restarted {
            return Err(format!("call {id}: part {got}, expected {}", body(id, call.next)));
        }
        call.next = got % 1000 + 1;
        if part.is_last() && call.next != call.plan.parts + 1 {
            return Err(format!("call {id} ends after part {}", call.next));
        }
        Ok(())
    }

    pub(crate) fn discard(&mut self, id: u64) {
        self.sights.discards += 1;
        if let Some(call) = self.calls.get_mut(&id) {
            call.next = 0;
            call.has_chunks = false;
        }
    }

    pub(crate) fn verdict(&mut self, id: u64, verdict: Verdict) -> Result<(), String> {
        let call = self.calls.get_mut(&id).ok_or("a verdict on a call nobody made")?;
        if call.verdict.is_some() || call.is_cancelled || call.is_dropped {
            return Err(format!("a second verdict on call {id}: {verdict:?}"));
        }
        match verdict {
            Verdict::Answered if call.next != call.plan.parts + 1 => {
                return Err(format!("call {id} is answered without its last part"));
            }
            Verdict::Answered => self.sights.answered += 1,
            Verdict::OutcomeUnknown(_) => self.sights.unknown += 1,
            Verdict::NotRun(_) => self.sights.not_run += 1,
        }
        call.verdict = Some(verdict);
        Ok(())
    }

    /// When everything is over.
    pub(crate) fn close(&self, is_calm: bool) -> Result<(), String> {
        for (id, call) in &self.calls {
            let runs = call.executions;
            let is_true = match call.verdict {
                Some(Verdict::Answered) => runs == 1 || (runs > 0 && call.plan.is_harmless),
                Some(Verdict::NotRun(_)) => runs == 0,
                Some(Verdict::OutcomeUnknown(_)) => true,
                None => call.is_cancelled || call.is_dropped,
            };
            if !is_true {
                return Err(format!(
                    "call {id} ran {runs} times, the verdict is {:?}",
                    call.verdict
                ));
            }
            if is_calm && !call.is_cancelled && call.verdict != Some(Verdict::Answered) {
                return Err(format!("nothing failed, and call {id} ended as {:?}", call.verdict));
            }
        }
        Ok(())
    }
}
