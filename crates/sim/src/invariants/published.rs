//! The changes that a node publishes to its readers, replayed, give its members and names.

use super::{Found, Invariant, report};
use crate::world::World;
use convoke_core::Node;
use convoke_core::filter::Filter;
use convoke_core::member::{Member, Status};
use std::collections::BTreeMap;

const NAME: &str = "published_is_shown";

/// The replayed changes of one node process: (is a name, id) → member.
#[derive(Clone, Debug, Default)]
pub struct Published {
    shown: BTreeMap<(bool, String), Member>,
    /// Keys changed since the last check.
    changed: Vec<(bool, String)>,
}

impl Published {
    pub fn apply(&mut self, change: Member) {
        let key = (change.is_name(), change.id().to_owned());
        self.changed.push(key.clone());
        if change.status() == Status::Left {
            self.shown.remove(&key);
        } else {
            self.shown.insert(key, change);
        }
    }

    /// The changes so far have been compared one by one.
    pub fn looked_at(&mut self) {
        self.changed.clear();
    }

    /// Returns the first difference from the node's state.
    fn difference(&self, node: &Node) -> Option<String> {
        let (members, _) = node.members(&Filter::all(), None, usize::MAX);
        let actual: BTreeMap<(bool, String), Member> =
            members.into_iter().chain(node.names()).map(|m| ((m.is_name(), m.id().to_owned()), m)).collect();
        let keys = actual.keys().chain(self.shown.keys());
        let differs = keys.into_iter().find(|key| actual.get(key) != self.shown.get(key))?;
        Some(format!("{differs:?} is {:?}, published is {:?}", actual.get(differs), self.shown.get(differs)))
    }
}

#[derive(Debug, Default)]
pub struct PublishedIsShown {
    checks: u64,
}

impl Invariant for PublishedIsShown {
    fn name(&self) -> &'static str {
        NAME
    }
    fn checks(&self) -> u64 {
        self.checks
    }

    fn after_input(&mut self, world: &World, host: usize, found: &mut Found) {
        let held = &world.hosts[host];
        let Some(node) = &held.node else { return };
        for key in &held.published.changed {
            self.checks += 1;
            let (is_name, id) = key;
            let published = held.published.shown.get(key);
            let same = if *is_name {
                node.name(id).map(|name| name.version) == published.map(Member::version)
            } else {
                node.member(id).as_ref() == published
            };
            if !same {
                report(found, NAME, world, format!("n{host} does not show {id} as published: {published:?}"));
            }
        }
    }

    fn periodically(&mut self, world: &World, found: &mut Found) {
        for (index, host) in world.hosts.iter().enumerate() {
            let Some(node) = &host.node else { continue };
            self.checks += 1;
            if let Some(difference) = host.published.difference(node) {
                report(found, NAME, world, format!("n{index}: {difference}"));
            }
        }
    }

    fn at_quiescence(&mut self, world: &World, found: &mut Found) {
        self.periodically(world, found);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;
    use convoke_core::node::Start;
    use convoke_core::version::NodeId;
    use convoke_core::{Config, Output, Time};

    #[test]
    fn a_change_that_was_not_published_is_found() {
        let config = Config::new(NodeId::new("a").unwrap());
        let start = Start { nonce: 1, publish: true, ..Start::default() };
        let mut node = Node::new(config, start, Time::ZERO).unwrap();
        let mut out = Output::default();
        node.begin(Time::ZERO, &mut out);
        node.register_name(Time::ZERO, "shard", "here", &mut out).unwrap();
        let changes = std::mem::take(&mut out.changes);
        assert_eq!(changes.len(), 2, "the node itself and the name");
        for left_out in 0..=changes.len() {
            let mut published = Published::default();
            for (index, change) in changes.iter().enumerate() {
                if index != left_out {
                    published.apply(change.clone());
                }
            }
            assert_eq!(published.difference(&node).is_none(), left_out == changes.len(), "{left_out} left out");
        }
    }
}
