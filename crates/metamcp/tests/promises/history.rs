//! What callers were told, compared with the journals of what was really executed.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::thread;

use metamcp_testkit::{CallOutcome, Client, EventKind, Workspace};
use serde_json::json;

use crate::world::{PATIENCE, SeededRng};

/// A tool of the hostile child, by what its hints allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Tool {
    /// Without a hint: it must never run twice.
    Effect,
    /// Idempotent.
    Idempotent,
    /// Read-only.
    Echo,
}

impl Tool {
    pub(crate) const ALL: [Tool; 3] = [Tool::Effect, Tool::Idempotent, Tool::Echo];

    fn name(self) -> &'static str {
        match self {
            Tool::Effect => "effect",
            Tool::Idempotent => "effect_idempotent",
            Tool::Echo => "echo",
        }
    }

    /// A call may be replayed once, and only where that is harmless.
    fn most_executions(self) -> usize {
        if self == Tool::Effect { 1 } else { 2 }
    }
}

/// A planned call. Its key is in its arguments, in the journal and in the correct response.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) server: String,
    pub(crate) tool: Tool,
    pub(crate) key: String,
}

impl Plan {
    /// A call of any tool to any of these servers.
    pub(crate) fn any(rng: &mut SeededRng, servers: &[String], key: String) -> Plan {
        Plan { server: rng.pick(servers).clone(), tool: *rng.pick(&Tool::ALL), key }
    }

    pub(crate) fn send(&self, client: &Client) -> anyhow::Result<u64> {
        let argument = if self.tool == Tool::Echo { "text" } else { "key" };
        client.mcp_call(&self.server, self.tool.name(), &json!({argument: self.key}))
    }

    fn right_answer(&self) -> String {
        match self.tool {
            Tool::Echo => self.key.clone(),
            Tool::Effect | Tool::Idempotent => format!("done {}", self.key),
        }
    }
}

/// A call that was made, and its outcome; `None` if the gateway exited first.
#[derive(Debug)]
pub(crate) struct RecordedCall {
    plan: Plan,
    end: Option<(CallOutcome, Option<String>)>,
}

impl RecordedCall {
    pub(crate) fn outcome(&self) -> Option<&CallOutcome> {
        self.end.as_ref().map(|(outcome, _)| outcome)
    }
}

/// Every call of a test.
#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) calls: Vec<RecordedCall>,
}

impl History {
    /// Makes calls with at most `window` of them in flight, until the plans or the gateway end.
    pub(crate) fn make(
        client: &Client,
        plans: impl Iterator<Item = Plan>,
        window: usize,
    ) -> History {
        let mut history = History::default();
        let mut open: VecDeque<(u64, Plan)> = VecDeque::new();
        for plan in plans {
            let Ok(id) = plan.send(client) else {
                // Nobody knows whether the gateway has read it.
                history.calls.push(RecordedCall { plan, end: None });
                break;
            };
            open.push_back((id, plan));
            if open.len() >= window
                && let Some((id, plan)) = open.pop_front()
            {
                let made = finish(client, id, plan);
                let lost = made.end.is_none();
                history.calls.push(made);
                if lost {
                    break;
                }
            }
        }
        history.calls.extend(open.into_iter().map(|(id, plan)| finish(client, id, plan)));
        history
    }

    /// Calls servers at random from several threads until `until` returns true or the gateway is gone.
    pub(crate) fn make_many(
        client: &Client,
        servers: &[String],
        rng: &mut SeededRng,
        (callers, window): (usize, usize),
        until: &(dyn Fn() -> bool + Sync),
        meanwhile: impl FnOnce(&mut SeededRng),
    ) -> History {
        let mut history = History::default();
        thread::scope(|scope| {
            let threads: Vec<_> = (0..callers)
                .map(|caller| {
                    let mut own = rng.derived();
                    let run = own.next();
                    scope.spawn(move || {
                        let plans = (0_u64..)
                            .take_while(|_| !until())
                            .map(|n| Plan::any(&mut own, servers, format!("{run:x}-{caller}-{n}")));
                        History::make(client, plans, window)
                    })
                })
                .collect();
            meanwhile(rng);
            for thread in threads {
                history.extend(thread.join().expect("a caller does not panic"));
            }
        });
        history
    }

    pub(crate) fn extend(&mut self, other: History) {
        self.calls.extend(other.calls);
    }

    /// Outcomes counted by code; `fine` and `lost` for those without one.
    pub(crate) fn tally(&self) -> BTreeMap<String, usize> {
        let mut tally = BTreeMap::new();
        for made in &self.calls {
            let word = match made.outcome() {
                None => "lost".to_owned(),
                Some(CallOutcome::GatewayError(error)) => error.code.clone(),
                Some(outcome) => outcome.to_string(),
            };
            *tally.entry(word).or_insert(0) += 1;
        }
        tally
    }

    /// Compares with the journals of these servers. Empty means no promise was broken.
    pub(crate) fn faults(&self, workspace: &Workspace, servers: &[String]) -> Vec<String> {
        let mut executed: HashMap<(String, String), usize> = HashMap::new();
        for server in servers {
            for record in workspace.journal(server).of(EventKind::Execute).unwrap() {
                let key = record.key.unwrap_or_default();
                *executed.entry((server.clone(), key)).or_insert(0) += 1;
            }
        }
        let mut faults = Vec::new();
        let mut made = HashSet::new();
        for call in &self.calls {
            let place = (call.plan.server.clone(), call.plan.key.clone());
            let times = executed.get(&place).copied().unwrap_or(0);
            if let Err(fault) = call.judge(times) {
                faults.push(format!("{:?} ran {times} times: {fault}", call.plan));
            }
            if !made.insert(place) {
                faults.push(format!("{:?} was planned twice; the test is wrong", call.plan));
            }
        }
        let unknown = executed.keys().filter(|place| !made.contains(*place));
        faults.extend(
            unknown.map(|(server, key)| format!("{server} ran {key:?}, which nobody called")),
        );
        faults
    }
}

impl RecordedCall {
    fn judge(&self, times: usize) -> Result<(), String> {
        let most = self.plan.tool.most_executions();
        if times > most {
            return Err(format!("more than {most}"));
        }
        let Some((outcome, text)) = &self.end else { return Ok(()) };
        match outcome {
            CallOutcome::Success => {
                let right = self.plan.right_answer();
                if text.as_deref() != Some(right.as_str()) {
                    return Err(format!("answered with {text:?}, which is another call's"));
                }
            }
            CallOutcome::GatewayError(error) => match error.code.as_str() {
                "outcome_unknown" | "timeout" | "shutting_down" | "server_unavailable"
                | "circuit_open" | "overloaded" | "pool_exhausted" => {}
                other => return Err(format!("an unexpected {other}: {}", error.message)),
            },
            CallOutcome::Protocol { code: -32000, .. } => {}
            CallOutcome::Protocol { .. } | CallOutcome::ToolError => {
                return Err(format!("ended with {outcome}"));
            }
        }
        outcome.check_executions(times)
    }
}

fn finish(client: &Client, id: u64, plan: Plan) -> RecordedCall {
    let end = match client.wait(id, PATIENCE) {
        Ok(answer) => Some((CallOutcome::of(&answer.value), answer.text().map(str::to_owned))),
        // Only the end of the gateway excuses a missing response.
        Err(error) => {
            assert!(client.has_ended(), "{plan:?} was never answered: {error:#}");
            None
        }
    };
    RecordedCall { plan, end }
}

/// Fails with the first few faults.
pub(crate) fn assert_faultless(faults: &[String]) {
    let shown: Vec<&String> = faults.iter().take(10).collect();
    assert!(faults.is_empty(), "{} faults, such as {shown:#?}", faults.len());
}
