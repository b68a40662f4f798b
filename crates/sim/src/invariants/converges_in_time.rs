//! After the last fault is healed, all nodes hold and show the same within the stated bound (D3, D7, D11, R-26).

use super::{Found, Invariant, report, serving};
use crate::network::{Micros, SECOND};
use crate::world::World;
use convoke_core::Node;
use convoke_core::filter::Filter;
use convoke_core::member::Status;
use convoke_core::version::{Incarnation, NodeId, OriginId};
use std::collections::BTreeMap;

/// Maximum for every run.
pub const CONVERGENCE_MAX: Micros = 30 * SECOND;
/// 99 % of the runs must be faster.
pub const CONVERGENCE_P99: Micros = 5 * SECOND;

/// What a node shows: (is a name, id) → everything that must be the same everywhere.
type Shown = BTreeMap<(bool, String), String>;

#[derive(Debug, Default)]
pub struct ConvergesInTime {
    checks: u64,
}

impl Invariant for ConvergesInTime {
    fn name(&self) -> &'static str {
        "converges_in_time"
    }
    fn checks(&self) -> u64 {
        self.checks
    }

    fn at_quiescence(&mut self, world: &World, found: &mut Found) {
        self.checks += 1;
        if let Some(last) = world.stats.convergence.last().filter(|last| last.took > CONVERGENCE_MAX) {
            report(found, self.name(), world, format!("converged only after {} ms", last.took / 1000));
        }
    }
}

/// Checks that all running nodes are serving, hold the same and show the same; otherwise returns what is missing.
pub fn converged(world: &World) -> Result<(), String> {
    for (index, host) in world.hosts.iter().enumerate() {
        if host.running() && host.serving().is_none() {
            return Err(format!("n{index} is not serving"));
        }
    }
    let mut retired: BTreeMap<NodeId, Incarnation> = BTreeMap::new();
    for (_, node) in serving(world) {
        for (id, incarnation) in node.retired() {
            let highest = retired.entry(id).or_insert(incarnation);
            *highest = (*highest).max(incarnation);
        }
    }
    let live = |origin: &OriginId| retired.get(&origin.node).is_none_or(|highest| origin.incarnation > *highest);
    let mut reference = None;
    for (host, node) in serving(world) {
        let context: BTreeMap<OriginId, u64> =
            node.context().iter().filter(|(origin, _)| live(origin)).map(|(o, n)| (o.clone(), n)).collect();
        match &reference {
            None => reference = Some((host, context, shown(node))),
            Some((first, expected, members)) => {
                if *expected != context {
                    let odd = expected.iter().find(|(o, n)| context.get(*o) != Some(*n));
                    let odd = odd.or_else(|| context.iter().find(|(o, n)| expected.get(*o) != Some(*n)));
                    let entry = odd.map(|(o, _)| (o, expected.get(o), context.get(o)));
                    return Err(format!("contexts of n{first} and n{host} differ: {entry:?}"));
                }
                if let Some(message) = difference(members, &shown(node)) {
                    return Err(format!("n{first} and n{host} differ: {message}"));
                }
            }
        }
    }
    Ok(())
}

fn shown(node: &Node) -> Shown {
    let mut shown = Shown::new();
    let mut cursor = None;
    loop {
        let (members, next) = node.members(&Filter::all(), cursor, 1000);
        for m in members {
            let text = format!(
                "{} {} owner={} client={} drained={} {:?}",
                m.version(),
                m.status(),
                m.owner().node,
                m.client(),
                m.drained(),
                m.metadata()
            );
            shown.insert((false, m.id().to_owned()), text);
        }
        cursor = next;
        if cursor.is_none() {
            break;
        }
    }
    for slot in node.slots() {
        if slot.name && slot.shown != Status::Left {
            let text =
                node.name(&slot.id).map_or("absent".to_owned(), |n| format!("{} {} {}", n.version, n.node, n.location));
            shown.insert((true, slot.id), text);
        }
    }
    shown
}

fn difference(one: &Shown, other: &Shown) -> Option<String> {
    let keys = one.keys().chain(other.keys());
    for key in keys {
        let (a, b) = (one.get(key), other.get(key));
        if a != b {
            return Some(format!("{} is {a:?} and {b:?}", key.1));
        }
    }
    None
}
