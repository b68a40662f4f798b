//! No node infers anything about a collected record: such an inference would come from a lagging copy (L4).

use super::{Found, Invariant, report};
use crate::world::World;
use convoke_core::Node;
use convoke_core::node::LoneInference;
use convoke_core::version::VectorClock;
use std::collections::{BTreeMap, BTreeSet};

const NAME: &str = "inferences_have_a_basis";

/// The records of a host at one moment.
#[derive(Debug)]
struct Look {
    boot: u64,
    context: VectorClock,
    lone: BTreeSet<LoneInference>,
}

#[derive(Debug, Default)]
pub struct InferencesHaveABasis {
    checks: u64,
    /// The last such observation of each host.
    looks: BTreeMap<usize, Look>,
}

impl Invariant for InferencesHaveABasis {
    fn name(&self) -> &'static str {
        NAME
    }
    fn checks(&self) -> u64 {
        self.checks
    }

    fn periodically(&mut self, world: &World, found: &mut Found) {
        for (host, held) in world.hosts.iter().enumerate() {
            if let Some(node) = &held.node {
                self.look(world, host, held.boot, node, found);
            }
        }
    }

    fn at_quiescence(&mut self, world: &World, found: &mut Found) {
        self.periodically(world, found);
    }
}

impl InferencesHaveABasis {
    /// An inference may arrive before its record, and the sender of the covering context may have collected that
    /// record. So only inferences count that are new on a host where their record had been seen before.
    fn look(&mut self, world: &World, host: usize, boot: u64, node: &Node, found: &mut Found) {
        let (context, lone) = (node.context(), BTreeSet::from_iter(node.lone_inferences()));
        if let Some(before) = self.looks.get(&host).filter(|look| look.boot == boot) {
            self.checks += node.inferences() as u64;
            for inference in &lone {
                let about = &inference.about;
                if before.context.get(&about.origin) >= about.n && !before.lone.contains(inference) {
                    report(found, NAME, world, format!("n{host} keeps {inference:?}, whose record was collected"));
                }
            }
        }
        self.looks.insert(host, Look { boot, context, lone });
    }
}
