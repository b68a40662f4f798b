//! Addresses to connect to: the configured seeds, the nodes learnt from the registry, and their order.

use std::collections::{BTreeMap, VecDeque};

/// Largest number of learnt nodes.
const LEARNT_MAX: usize = 1024;

/// A node as the registry shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownNode {
    pub address: String,
    pub region: String,
    /// Up and not drained.
    pub routable: bool,
}

/// Returns addresses in rounds. Each round has every known address once, better ones first, otherwise in random order.
#[derive(Debug)]
pub struct Seeds {
    seeds: Vec<String>,
    region: Option<String>,
    /// By address.
    learnt: BTreeMap<String, KnownNode>,
    round: VecDeque<String>,
    /// The address that failed last. It is not the first one in the next round.
    avoid: Option<String>,
    prefer: Option<String>,
}

impl Seeds {
    pub fn new(mut seeds: Vec<String>, region: Option<String>) -> Seeds {
        seeds.sort();
        seeds.dedup();
        Seeds { seeds, region, learnt: BTreeMap::new(), round: VecDeque::new(), avoid: None, prefer: None }
    }

    /// Replaces the learnt nodes. Seeds are kept forever, because learnt addresses may be unreachable from here.
    pub fn learn(&mut self, nodes: impl IntoIterator<Item = KnownNode>) {
        let nodes = nodes.into_iter().filter(|node| !node.address.is_empty()).take(LEARNT_MAX);
        self.learnt = nodes.map(|node| (node.address.clone(), node)).collect();
        self.round.clear();
    }

    /// Records that this address was lost or did not work.
    pub fn failed(&mut self, address: &str) {
        self.avoid = Some(address.to_owned());
    }

    /// Puts the addresses that a stopping node named first.
    pub fn prefer(&mut self, address: String) {
        self.prefer = Some(address);
    }

    /// Returns all addresses, some of them twice.
    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        self.seeds.iter().chain(self.learnt.keys()).map(String::as_str)
    }

    /// Whether an address was not tried in the current round.
    pub fn has_untried(&self) -> bool {
        self.prefer.is_some() || !self.round.is_empty()
    }

    /// Returns the address to try next.
    pub fn next(&mut self, random: &mut fastrand::Rng) -> String {
        if let Some(address) = self.prefer.take() {
            return address;
        }
        if self.round.is_empty() {
            self.fill(random);
        }
        if self.round.len() > 1 && self.round.front() == self.avoid.as_ref() {
            self.round.rotate_left(1);
        }
        self.round.pop_front().unwrap_or_default()
    }

    fn fill(&mut self, random: &mut fastrand::Rng) {
        let unknown = self.seeds.iter().filter(|seed| !self.learnt.contains_key(*seed)).cloned();
        let mut all: Vec<String> = unknown.chain(self.learnt.keys().cloned()).collect();
        random.shuffle(&mut all);
        all.sort_by_key(|address| self.distance(address));
        self.round = all.into();
    }

    /// Returns the preference; lower is better.
    fn distance(&self, address: &str) -> u8 {
        match (self.learnt.get(address), &self.region) {
            (Some(node), _) if !node.routable => 3,
            (Some(node), Some(region)) if node.region == *region => 0,
            // The region is unknown and may be the own one.
            (None, Some(_)) => 1,
            (Some(_), Some(_)) => 2,
            (_, None) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn node(address: &str, region: &str, routable: bool) -> KnownNode {
        KnownNode { address: address.into(), region: region.into(), routable }
    }

    fn take(seeds: &mut Seeds, count: usize, seed: u64) -> Vec<String> {
        let mut random = fastrand::Rng::with_seed(seed);
        (0..count).map(|_| seeds.next(&mut random)).collect()
    }

    #[test]
    fn each_round_has_every_seed_once_in_random_order() {
        let names: Vec<String> = (0..3).map(|i| format!("s{i}:7700")).collect();
        let mut first = BTreeSet::new();
        for seed in 0..50 {
            let mut seeds = Seeds::new(names.clone(), None);
            let mut round = take(&mut seeds, 3, seed);
            first.insert(round[0].clone());
            round.sort();
            assert_eq!(round, names);
        }
        assert_eq!(first.len(), 3, "clients spread over all seeds");
    }

    #[test]
    fn addresses_are_ordered_by_region_and_state() {
        for seed in 0..50 {
            let mut seeds = Seeds::new(vec!["seed:1".into(), "eu1:1".into()], Some("eu".into()));
            seeds.learn([
                node("eu1:1", "eu", true),
                node("eu2:1", "eu", true),
                node("us1:1", "us", true),
                node("eu3:1", "eu", false),
                node("", "eu", true),
            ]);
            let round = take(&mut seeds, 5, seed);
            assert_eq!(round[2..], ["seed:1", "us1:1", "eu3:1"]);
            assert_eq!(BTreeSet::from(["eu1:1", "eu2:1"]), round[..2].iter().map(String::as_str).collect());
        }
    }

    #[test]
    fn the_address_that_failed_last_is_not_tried_first() {
        for seed in 0..50 {
            let mut seeds = Seeds::new(vec!["a:1".into(), "b:1".into()], None);
            seeds.failed("a:1");
            assert_eq!(take(&mut seeds, 1, seed), ["b:1"]);
        }
        let mut only = Seeds::new(vec!["a:1".into()], None);
        only.failed("a:1");
        assert_eq!(take(&mut only, 2, 1), ["a:1", "a:1"]);
    }

    #[test]
    fn a_hint_is_followed_once() {
        let mut seeds = Seeds::new(vec!["a:1".into()], None);
        seeds.prefer("c:1".into());
        assert_eq!(take(&mut seeds, 2, 1), ["c:1", "a:1"]);
    }
}
