//! After quiescence every node shows the same members and names (D3, D11).

use super::{Found, Invariant, report, serving};
use crate::world::World;
use convoke_core::Node;
use convoke_core::filter::Filter;
use convoke_core::member::Status;
use std::collections::BTreeMap;

const NAME: &str = "one_resolution";

/// The visible state of a node: id → everything that must be the same everywhere.
pub type Shown = BTreeMap<(bool, String), String>;

#[derive(Debug, Default)]
pub struct OneResolution {
    checks: u64,
}

impl Invariant for OneResolution {
    fn name(&self) -> &'static str {
        NAME
    }
    fn rule(&self) -> &'static str {
        "D3, D11, L3, W6"
    }
    fn checks(&self) -> u64 {
        self.checks
    }

    fn at_quiescence(&mut self, world: &World, found: &mut Found) {
        let mut reference: Option<(usize, Shown)> = None;
        for (host, node) in serving(world) {
            let shown = shown(node);
            self.checks += shown.len() as u64;
            match &reference {
                None => reference = Some((host, shown)),
                Some((first, expected)) => {
                    if let Some(message) = difference(expected, &shown) {
                        report(found, NAME, world, format!("n{first} and n{host} differ: {message}"));
                    }
                }
            }
        }
    }
}

pub fn shown(node: &Node) -> Shown {
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

pub fn difference(one: &Shown, other: &Shown) -> Option<String> {
    let keys = one.keys().chain(other.keys());
    for key in keys {
        let (a, b) = (one.get(key), other.get(key));
        if a != b {
            return Some(format!("{} is {a:?} and {b:?}", key.1));
        }
    }
    None
}
