//! What an operator asks of a fleet over its bus: how it is, that a node drains, that a server moves.
//! Owns: the questions, how nodes answer them, how long answers are waited for.      Never: decides what a node does; renders.
//! In: an operator's question, at any machine that has the cluster's key.  Out: what each node says of itself.
//! Tests: below, `metamcp/tests/fleet/upgrade.rs`.
//!
//! A gateway of a fleet has no local socket, and its own address may be behind a balancer. So an operator is a stranger
//! on the bus with the cluster's key, and the bus's permissions say who may ask what: orders go to
//! `PREFIX.to.NODE.operator.SENDER`, questions to all to `PREFIX.all.operator.SENDER`, and what somebody on a node's own
//! machine has it do to `PREFIX.to.NODE.own.NODE`.

mod report;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use report::{FleetReport, InstanceReport, NodeReadiness, NodeReport, PeerReport};

use super::bus::{Bus, BusError, Heard, NodeName, Refused, Subscription};
use crate::{clock, task};

const TOPIC: &str = "operator";
/// What a node is asked on its own machine, with its own name: the bus's permissions may forbid it to order others about.
const OWN: &str = "own";
const ANSWERS: &str = "operator_answers";
/// What operators and nodes understand of each other; fields may be added without another one.
const VERSION: u32 = 1;
/// How long all nodes have to say how they are. One that is stopped or cut off says nothing for longer.
const ANSWERING: Duration = Duration::from_secs(2);
/// After the last answer so long, every node that others know of has answered or will not.
const QUIET: Duration = Duration::from_millis(300);
/// How long one node has to take an order.
const ORDER: Duration = Duration::from_secs(5);
/// Answers that are read; a fleet has at most 1024 nodes.
const MOST_ANSWERS: usize = 1024;

/// What an operator wants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Order {
    /// Say how you are.
    Status,
    /// Take nothing new, hand over what you own.
    Drain,
    /// Give up what you own of a server, so that it starts elsewhere, if possible there.
    #[serde(rename_all = "camelCase")]
    Move { server: String, to: Option<NodeName> },
}

#[derive(Serialize, Deserialize)]
struct Asked {
    version: u32,
    /// Which question this is, so that the answer to an earlier one is not taken for it.
    id: u64,
    order: Order,
}

#[derive(Serialize, Deserialize)]
struct Answered {
    id: u64,
    told: Told,
}

/// What a node answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Told {
    Status(Box<NodeReport>),
    /// It drains; how many instances leave.
    Drains {
        instances: usize,
    },
    /// How many instances of the server leave.
    Moves {
        instances: usize,
    },
    /// It does not do that, and why.
    Refused(String),
}

/// How a node is, once it has looked.
pub type Reporting<'a> = Pin<Box<dyn Future<Output = NodeReport> + Send + 'a>>;

/// A node as an operator sees it; what runs the state machine is one.
pub trait Operated: Send + Sync {
    fn status(&self) -> Reporting<'_>;
    /// Takes nothing new from now on. Returns how many instances leave.
    fn drain(&self) -> usize;
    /// Returns how many instances of the server leave.
    ///
    /// # Errors
    /// Why none does.
    fn move_server(&self, server: &str, to: Option<&NodeName>) -> Result<usize, String>;
}

/// Why a fleet does not do what it was told.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    #[error(transparent)]
    Bus(#[from] BusError),
    #[error("no node {name:?} answers{known}")]
    NoNode { name: String, known: String },
    #[error("node {name:?} says: {why}")]
    Refused { name: String, why: String },
    #[error("node {name:?} gave an answer that this version does not understand")]
    NotUnderstood { name: String },
}

/// Answers operators for as long as the bus is there.
///
/// # Errors
/// The bus cannot be listened to.
pub async fn serve(bus: &Bus, node: Arc<dyn Operated>) -> Result<(), BusError> {
    for questions in [bus.inbox(TOPIC).await?, bus.listen(TOPIC).await?, bus.inbox(OWN).await?] {
        let (bus, node) = (bus.clone(), Arc::clone(&node));
        task::spawn("operator", answer_all(bus, questions, node));
    }
    Ok(())
}

async fn answer_all(bus: Bus, mut questions: Subscription, node: Arc<dyn Operated>) {
    while let Some(heard) = questions.next().await {
        let Ok(asked) = serde_json::from_slice::<Asked>(&heard.payload) else {
            questions.refuse(&heard.from, Refused::Content);
            continue;
        };
        let is_own = heard.is_about(OWN);
        if is_own && heard.from != *bus.node() {
            questions.refuse(&heard.from, Refused::Name);
            continue;
        }
        let told = if asked.order != Order::Status && !heard.wants_answer() {
            Told::Refused("an order is given to one node".to_owned())
        } else if asked.version == VERSION {
            carry_out(&*node, &heard.from, asked.order).await
        } else {
            Told::Refused(format!("it speaks version {VERSION} of this, not {}", asked.version))
        };
        if let Err(error) = reply(&bus, &heard, &Answered { id: asked.id, told }).await {
            tracing::warn!("an operator was not answered: {error}");
        }
    }
}

async fn carry_out(node: &dyn Operated, from: &NodeName, order: Order) -> Told {
    match order {
        Order::Status => Told::Status(Box::new(node.status().await)),
        Order::Drain => {
            tracing::info!(by = from.as_str(), "this node drains, an operator says so");
            Told::Drains { instances: node.drain() }
        }
        Order::Move { server, to } => match node.move_server(&server, to.as_ref()) {
            Ok(instances) => {
                tracing::info!(by = from.as_str(), server, instances, "moved by an operator");
                Told::Moves { instances }
            }
            Err(why) => Told::Refused(why),
        },
    }
}

async fn reply(bus: &Bus, heard: &Heard, answer: &Answered) -> Result<(), BusError> {
    let bytes = serde_json::to_vec(answer).map_err(|error| BusError::Other(error.to_string()))?;
    if heard.wants_answer() {
        heard.answer(bus, &bytes).await
    } else {
        bus.send(&heard.from, ANSWERS, &bytes).await
    }
}

/// How the fleet is: what each node says of itself, and which of those that they know said nothing.
///
/// # Errors
/// The bus does not let us ask.
pub async fn status(bus: &Bus) -> Result<FleetReport, OperatorError> {
    let mut answers = bus.inbox(ANSWERS).await?;
    bus.flush().await?;
    let asked = Asked { version: VERSION, id: random(), order: Order::Status };
    bus.broadcast(TOPIC, &bytes_of(&asked)?).await?;
    let mut fleet = FleetReport::default();
    let end = clock::instant() + ANSWERING;
    let mut wait_until = end;
    while fleet.nodes.len() < MOST_ANSWERS {
        let left = wait_until.saturating_duration_since(clock::instant());
        let Ok(Some(heard)) = tokio::time::timeout(left, answers.next()).await else { break };
        let Ok(answer) = serde_json::from_slice::<Answered>(&heard.payload) else { continue };
        if let Answered { id, told: Told::Status(status) } = answer
            && id == asked.id
        {
            fleet.heard(heard.from.as_str(), *status);
            // All that were heard of lately have answered: nobody else is to be waited for.
            if fleet.silent().is_empty() {
                wait_until = end.min(clock::instant() + QUIET);
            } else {
                wait_until = end;
            }
        }
    }
    answers.stop().await;
    Ok(fleet)
}

/// Gives one node an order.
///
/// # Errors
/// It is not there, or does not do it.
pub async fn order(bus: &Bus, node: &NodeName, order: Order) -> Result<usize, OperatorError> {
    let name = || node.as_str().to_owned();
    let asked = Asked { version: VERSION, id: random(), order };
    let topic = if node == bus.node() { OWN } else { TOPIC };
    let answer = match bus.request(node, topic, &bytes_of(&asked)?, ORDER).await {
        Ok(answer) => answer,
        Err(BusError::NobodyThere) => {
            let fleet = status(bus).await?;
            let names: Vec<&str> = fleet.nodes.keys().map(String::as_str).collect();
            let known = if names.is_empty() {
                "; the fleet has no nodes".to_owned()
            } else {
                format!("; the fleet has {}", names.join(", "))
            };
            return Err(OperatorError::NoNode { name: name(), known });
        }
        Err(error) => return Err(error.into()),
    };
    match serde_json::from_slice::<Answered>(&answer) {
        Ok(Answered { id, told }) if id == asked.id => match told {
            Told::Drains { instances } | Told::Moves { instances } => Ok(instances),
            Told::Refused(why) => Err(OperatorError::Refused { name: name(), why }),
            Told::Status(_) => Err(OperatorError::NotUnderstood { name: name() }),
        },
        _ => Err(OperatorError::NotUnderstood { name: name() }),
    }
}

fn bytes_of(asked: &Asked) -> Result<Vec<u8>, BusError> {
    serde_json::to_vec(asked).map_err(|error| BusError::Other(error.to_string()))
}

fn random() -> u64 {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).expect("the system has randomness");
    u64::from_le_bytes(bytes)
}
