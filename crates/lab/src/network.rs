//! Faults of the traffic between hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The direction from one host to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Direction {
    pub from: IpAddr,
    pub to: IpAddr,
}

impl Direction {
    pub fn new(from: IpAddr, to: IpAddr) -> Direction {
        Direction { from, to }
    }

    #[must_use]
    pub fn back(self) -> Direction {
        Direction { from: self.to, to: self.from }
    }

    /// The same value for both directions between two hosts.
    fn pair(self) -> Direction {
        if self.from <= self.to { self } else { self.back() }
    }
}

/// The current faults. All other directions are open and not delayed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkFaults {
    cut: BTreeSet<Direction>,
    delayed: BTreeMap<Direction, Duration>,
    /// Number of resets of the connections between two hosts.
    resets: BTreeMap<Direction, u64>,
}

impl LinkFaults {
    /// Bytes wait until the cut heals; no connection is closed.
    pub fn is_cut(&self, direction: Direction) -> bool {
        self.cut.contains(&direction)
    }

    pub fn delay(&self, direction: Direction) -> Duration {
        self.delayed.get(&direction).copied().unwrap_or_default()
    }

    pub fn cuts(&self) -> impl Iterator<Item = Direction> {
        self.cut.iter().copied()
    }

    pub fn delays(&self) -> impl Iterator<Item = (Direction, Duration)> {
        self.delayed.iter().map(|(direction, delay)| (*direction, *delay))
    }

    /// Whether both directions are open, which a new connection needs.
    pub(crate) fn lets_connect(&self, direction: Direction) -> bool {
        !self.is_cut(direction) && !self.is_cut(direction.back())
    }

    pub(crate) fn resets(&self, direction: Direction) -> u64 {
        self.resets.get(&direction.pair()).copied().unwrap_or_default()
    }
}

/// The network between the hosts of a cluster, shared by its relays. Clones are the same network.
#[derive(Clone, Debug, Default)]
pub struct RelayNetwork {
    faults: Arc<watch::Sender<LinkFaults>>,
}

impl RelayNetwork {
    /// The current faults.
    pub fn faults(&self) -> LinkFaults {
        self.faults.borrow().clone()
    }

    /// Cuts a direction.
    pub fn cut(&self, direction: Direction) {
        self.faults.send_modify(|faults| {
            faults.cut.insert(direction);
        });
    }

    /// Delays a direction; zero removes the delay.
    pub fn delay(&self, direction: Direction, delay: Duration) {
        self.faults.send_modify(|faults| {
            if delay.is_zero() {
                faults.delayed.remove(&direction)
            } else {
                faults.delayed.insert(direction, delay)
            };
        });
    }

    /// Resets all connections between two hosts; new ones work. While the direction is cut, the reset waits.
    pub fn reset(&self, direction: Direction) {
        self.faults.send_modify(|faults| *faults.resets.entry(direction.pair()).or_default() += 1);
    }

    /// Removes cut and delay of a direction; waiting bytes arrive.
    pub fn heal(&self, direction: Direction) {
        self.faults.send_modify(|faults| {
            faults.cut.remove(&direction);
            faults.delayed.remove(&direction);
        });
    }

    pub fn heal_all(&self) {
        self.faults.send_modify(|faults| {
            faults.cut.clear();
            faults.delayed.clear();
        });
    }

    /// Forgets a removed host.
    pub fn forget(&self, host: IpAddr) {
        let about = |direction: &Direction| direction.from == host || direction.to == host;
        self.faults.send_modify(|faults| {
            faults.cut.retain(|direction| !about(direction));
            faults.delayed.retain(|direction, _| !about(direction));
            faults.resets.retain(|direction, _| !about(direction));
        });
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<LinkFaults> {
        self.faults.subscribe()
    }
}
