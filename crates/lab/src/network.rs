//! Faults of the traffic between hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The direction from one host to another.
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

    /// The same value for both directions between two hosts.
    fn pair(self) -> Way {
        if self.from <= self.to { self } else { self.back() }
    }
}

/// The current faults. All other directions are open and not delayed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ways {
    cut: BTreeSet<Way>,
    delayed: BTreeMap<Way, Duration>,
    /// Number of resets of the connections between two hosts.
    resets: BTreeMap<Way, u64>,
}

impl Ways {
    /// Bytes wait until the cut heals; no connection is closed.
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

    /// Whether both directions are open, which a new connection needs.
    pub(crate) fn lets_connect(&self, way: Way) -> bool {
        !self.is_cut(way) && !self.is_cut(way.back())
    }

    pub(crate) fn resets(&self, way: Way) -> u64 {
        self.resets.get(&way.pair()).copied().unwrap_or_default()
    }
}

/// The network between the hosts of a cluster, shared by its relays. Clones are the same network.
#[derive(Clone, Debug, Default)]
pub struct RelayNetwork {
    ways: Arc<watch::Sender<Ways>>,
}

impl RelayNetwork {
    /// The current faults.
    pub fn ways(&self) -> Ways {
        self.ways.borrow().clone()
    }

    /// Cuts a direction.
    pub fn cut(&self, way: Way) {
        self.ways.send_modify(|ways| {
            ways.cut.insert(way);
        });
    }

    /// Delays a direction; zero removes the delay.
    pub fn delay(&self, way: Way, delay: Duration) {
        self.ways.send_modify(|ways| {
            if delay.is_zero() {
                ways.delayed.remove(&way)
            } else {
                ways.delayed.insert(way, delay)
            };
        });
    }

    /// Resets all connections between two hosts; new ones work. While the direction is cut, the reset waits.
    pub fn reset(&self, way: Way) {
        self.ways.send_modify(|ways| *ways.resets.entry(way.pair()).or_default() += 1);
    }

    /// Removes cut and delay of a direction; waiting bytes arrive.
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

    /// Forgets a removed host.
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
