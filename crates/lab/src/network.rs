//! Which ways between hosts are cut or slow.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// From one host to another, not back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Way {
    pub from: IpAddr,
    pub to: IpAddr,
}

impl Way {
    pub fn new(from: IpAddr, to: IpAddr) -> Way {
        Way { from, to }
    }

    #[must_use]
    pub fn back(self) -> Way {
        Way { from: self.to, to: self.from }
    }

    /// This way and back, whichever comes first: one value for two hosts.
    fn pair(self) -> Way {
        if self.from <= self.to { self } else { self.back() }
    }
}

/// What is not as it should be. Ways that are not named are open and quick.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ways {
    cut: BTreeSet<Way>,
    delayed: BTreeMap<Way, Duration>,
    /// How often the connections between two hosts were reset.
    resets: BTreeMap<Way, u64>,
}

impl Ways {
    /// Bytes wait until it is healed; nobody is told.
    pub fn is_cut(&self, way: Way) -> bool {
        self.cut.contains(&way)
    }

    pub fn delay(&self, way: Way) -> Duration {
        self.delayed.get(&way).copied().unwrap_or_default()
    }

    pub fn cuts(&self) -> impl Iterator<Item = Way> {
        self.cut.iter().copied()
    }

    pub fn delays(&self) -> impl Iterator<Item = (Way, Duration)> {
        self.delayed.iter().map(|(way, delay)| (*way, *delay))
    }

    /// A connection comes about only if both hosts hear each other.
    pub(crate) fn lets_connect(&self, way: Way) -> bool {
        !self.is_cut(way) && !self.is_cut(way.back())
    }

    pub(crate) fn resets(&self, way: Way) -> u64 {
        self.resets.get(&way.pair()).copied().unwrap_or_default()
    }
}

/// The ways between the hosts of a cluster, as all its relays know them. Clones are the same network.
#[derive(Clone, Debug, Default)]
pub struct Network {
    ways: Arc<watch::Sender<Ways>>,
}

impl Network {
    /// As they are now.
    pub fn ways(&self) -> Ways {
        self.ways.borrow().clone()
    }

    /// From now on nothing gets through on this way.
    pub fn cut(&self, way: Way) {
        self.ways.send_modify(|ways| {
            ways.cut.insert(way);
        });
    }

    /// From now on everything on this way takes so much longer; zero is no delay.
    pub fn delay(&self, way: Way, delay: Duration) {
        self.ways.send_modify(|ways| {
            if delay.is_zero() {
                ways.delayed.remove(&way)
            } else {
                ways.delayed.insert(way, delay)
            };
        });
    }

    /// Closes all connections between two hosts hard; new ones are let through. While the way is cut neither side is told.
    pub fn reset(&self, way: Way) {
        self.ways.send_modify(|ways| *ways.resets.entry(way.pair()).or_default() += 1);
    }

    /// Open and quick again; what waited arrives.
    pub fn heal(&self, way: Way) {
        self.ways.send_modify(|ways| {
            ways.cut.remove(&way);
            ways.delayed.remove(&way);
        });
    }

    pub fn heal_all(&self) {
        self.ways.send_modify(|ways| {
            ways.cut.clear();
            ways.delayed.clear();
        });
    }

    /// Forgets a host that is gone.
    pub fn forget(&self, host: IpAddr) {
        let about = |way: &Way| way.from == host || way.to == host;
        self.ways.send_modify(|ways| {
            ways.cut.retain(|way| !about(way));
            ways.delayed.retain(|way, _| !about(way));
            ways.resets.retain(|way, _| !about(way));
        });
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Ways> {
        self.ways.subscribe()
    }
}
