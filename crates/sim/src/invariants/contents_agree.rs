//! Nodes with equal contexts hold the same records, and no node reports otherwise (D16).

use super::{Found, Invariant, report};
use crate::world::World;
use std::collections::BTreeMap;

const NAME: &str = "contents_agree";

#[derive(Debug, Default)]
pub struct ContentsAgree {
    checks: u64,
    /// Comparisons that the process of each host has made: its number, and how many.
    compared: BTreeMap<usize, (u64, u64)>,
}

impl Invariant for ContentsAgree {
    fn name(&self) -> &'static str {
        NAME
    }
    fn checks(&self) -> u64 {
        self.checks
    }

    fn after_input(&mut self, world: &World, host: usize, found: &mut Found) {
        let held = &world.hosts[host];
        let Some(node) = &held.node else { return };
        let (boot, compared) = self.compared.entry(host).or_default();
        if std::mem::replace(boot, held.boot) != held.boot {
            *compared = 0;
        }
        let counters = node.counters();
        self.checks += counters.contents_compared.saturating_sub(*compared);
        *compared = counters.contents_compared;
        if counters.divergences > 0 && !world.forged {
            let peers = node.diverged_peers();
            report(found, NAME, world, format!("n{host} reports that its records differ from those of {peers:?}"));
        }
    }
}
