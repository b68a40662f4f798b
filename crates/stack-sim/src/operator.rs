//! An operator that changes the group and transfers leadership during the run.

use crate::faults::Fault;
use crate::net::ClientConnect;
use crate::node::{client_address, name, peer_address};
use crate::record::{Recorder, now};
use crate::world::Shared;
use convoke_client::log::{Ambassador, ReplicaChange, Status};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Timeout of one attempt.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(500);
/// A membership change that is not complete after this time is a violation: no fault lasts that long.
const GIVE_UP: Duration = Duration::from_secs(150);

/// A requested change. Nodes are given by their indexes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Order {
    Transfer { to: usize },
    Replace { old: usize, new: usize },
    Grow { new: usize },
    Shrink { old: usize },
}

impl Order {
    fn fault(self) -> Fault {
        match self {
            Order::Transfer { .. } => Fault::Transfer,
            Order::Replace { .. } => Fault::Replace,
            Order::Grow { .. } => Fault::Grow,
            Order::Shrink { .. } => Fault::Shrink,
        }
    }

    /// Returns the node that leaves the group.
    fn leaving(self) -> Option<usize> {
        match self {
            Order::Replace { old, .. } | Order::Shrink { old } => Some(old),
            Order::Transfer { .. } | Order::Grow { .. } => None,
        }
    }

    /// Returns the next step, if one is left: every step can be repeated.
    fn next(self, status: &Status) -> Option<ReplicaChange> {
        let votes = |place: usize| status.voters.contains(&name(place));
        let learns = |place: usize| status.learners.contains(&name(place));
        let add = |place: usize| ReplicaChange::Add { node: name(place), address: Some(peer_address(&name(place))) };
        match self {
            Order::Transfer { to } => Some(ReplicaChange::Transfer(name(to))),
            Order::Replace { old, new } if votes(old) || learns(old) => {
                if votes(new) || learns(new) {
                    return Some(ReplicaChange::Remove(name(old)));
                }
                Some(ReplicaChange::Replace {
                    old: name(old),
                    node: name(new),
                    address: Some(peer_address(&name(new))),
                })
            }
            Order::Grow { new } if votes(new) => None,
            Order::Grow { new } if learns(new) => Some(ReplicaChange::Promote(name(new))),
            Order::Grow { new } => Some(add(new)),
            Order::Shrink { old } if votes(old) || learns(old) => Some(ReplicaChange::Remove(name(old))),
            Order::Replace { .. } | Order::Shrink { .. } => None,
        }
    }
}

/// Executes orders one after the other.
pub(crate) async fn work(shared: Arc<Shared>, mut orders: mpsc::UnboundedReceiver<Order>) -> turmoil::Result {
    let seeds = (0..shared.plan.nodes()).map(|place| client_address(&name(place)));
    let ambassador = Ambassador::start_with(seeds, Arc::new(ClientConnect))?;
    while let Some(order) = orders.recv().await {
        let done = tokio::time::timeout(GIVE_UP, carry_out(&ambassador, order, &shared.recorder)).await;
        if done.is_err() && !matches!(order, Order::Transfer { .. }) {
            shared.recorder.violated(format!("membership arrives: {order:?} was not complete within {GIVE_UP:?}"));
        }
        let mut record = shared.recorder.lock();
        record.orders_left -= 1;
        record.removed.extend(order.leaving());
    }
    Ok(())
}

async fn carry_out(ambassador: &Ambassador, order: Order, recorder: &Recorder) {
    loop {
        let Ok(status) = ambassador.status(Some(PATIENCE)).await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        // Only the engine's configuration counts: a node that still votes must not lose its disk.
        match order.next(&status) {
            None if status.settled => {
                recorder.fault(now(), order.fault(), &format!("{order:?} is done"));
                return;
            }
            None => {}
            Some(change) => {
                let changed = ambassador.change(&change, PATIENCE, Some(PATIENCE)).await;
                let came_of_it = match &changed {
                    Ok(changed) if changed.settled => "done".to_owned(),
                    Ok(changed) => format!("recorded; {}", changed.obstacle),
                    Err(error) => error.to_string(),
                };
                recorder.note(now(), &format!("{change:?}: {came_of_it}"));
                if let (Order::Transfer { .. }, Ok(_)) = (order, &changed) {
                    recorder.fault(now(), Fault::Transfer, "leadership is transferred");
                    return;
                }
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}
