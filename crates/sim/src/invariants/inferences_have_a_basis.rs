//! Nothing is inferred of what was collected: it would come from a lagging copy (L4).

use super::{Found, Invariant, report};
use crate::world::World;
use convoke_core::Node;
use convoke_core::node::LoneInference;
use convoke_core::version::VectorClock;
use std::collections::{BTreeMap, BTreeSet};

const NAME: &str = "inferences_have_a_basis";

/// What a host held at some moment of some run.
#[derive(Debug)]
struct Look {
    boot: u64,
    context: VectorClock,
    lone: BTreeSet<LoneInference>,
}

#[derive(Debug, Default)]
pub struct InferencesHaveABasis {
    checks: u64,
    /// The last look at each host.
    looks: BTreeMap<usize, Look>,
}

impl Invariant for InferencesHaveABasis {
    fn name(&self) -> &'static str {
        NAME
    }
    fn rule(&self) -> &'static str {
        "L4, D8"
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
    /// An inference may come before the record it speaks of, and that may have been collected by whoever brings the context
    /// that covers it; so only those count that are new here although their basis had been seen before.
    fn look(&mut self, world: &World, host: usize, boot: u64, node: &Node, found: &mut Found) {
        let (context, lone) = (node.context(), BTreeSet::from_iter(node.lone_inferences()));
        if let Some(before) = self.looks.get(&host).filter(|look| look.boot == boot) {
            self.checks += node.inferences() as u64;
            for inference in &lone {
                let about = &inference.about;
                if before.context.get(&about.origin) >= about.n && !before.lone.contains(inference) {
                    report(found, NAME, world, format!("n{host} keeps {inference:?}, which speaks of nothing"));
                }
            }
        }
        self.looks.insert(host, Look { boot, context, lone });
    }
}
