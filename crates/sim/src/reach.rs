//! Which nodes can reach each other, and since when without a break. Invariants judge excuses by this.
//!
//! Two nodes reach each other if a chain of serving nodes joins them in which every neighbouring pair can send both
//! ways. A pause of the observing node does not break a path: a node must not judge others by its own pause (L5).

use crate::host::Host;
use crate::network::{Micros, Place, SECOND};
use crate::world::World;
use std::collections::BTreeMap;

/// A node that is paused for longer than this cannot be reached.
const PAUSE_MAX: Micros = 3 * SECOND;

/// Periods in which something worked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stretch {
    /// Start of the current period.
    since: Option<Micros>,
    /// The last period that ended: from, until.
    last: (Micros, Micros),
}

impl Stretch {
    fn set(&mut self, works: bool, now: Micros) {
        match (works, self.since) {
            (true, None) => self.since = Some(now),
            (false, Some(since)) => {
                self.last = (since, now);
                self.since = None;
            }
            _ => {}
        }
    }

    fn covers(&self, from: Micros, until: Micros) -> bool {
        self.since.is_some_and(|since| since <= from) || (self.last.0 <= from && self.last.1 >= until && from < until)
    }
}

#[derive(Debug, Default)]
pub struct Reach {
    /// From the owner of a member to the observing node.
    paths: BTreeMap<(usize, usize), Stretch>,
    /// From a client to a node that accepts clients.
    clients: BTreeMap<(usize, usize), Stretch>,
}

impl Reach {
    /// Whether the observer was reachable from the owner without a break.
    pub fn joined(&self, owner: usize, observer: usize, from: Micros, until: Micros) -> bool {
        self.paths.get(&(owner, observer)).is_some_and(|path| path.covers(from, until))
    }

    /// Whether a client could reach a node without a break.
    pub fn reached(&self, client: usize, host: usize, from: Micros, until: Micros) -> bool {
        self.clients.get(&(client, host)).is_some_and(|path| path.covers(from, until))
    }
}

impl World {
    /// Recomputes reachability after a change that affects it.
    pub(crate) fn update_reach(&mut self) {
        let now = self.now;
        let count = self.hosts.len();
        let serves = |host: &Host| host.serving().is_some() && host.strained == 0 && host.twin.is_none() && !host.alone;
        let working: Vec<bool> = self.hosts.iter().map(serves).collect();
        let reachable: Vec<bool> =
            self.hosts.iter().zip(&working).map(|(host, works)| *works && !pauses(host)).collect();
        let adjacent = |one: usize, other: usize| {
            working[one] && working[other] && !self.network.severed(Place::Host(one), Place::Host(other))
        };
        let mut part: Vec<usize> = (0..count).collect();
        for start in 0..count {
            if !reachable[start] || part[start] != start {
                continue;
            }
            let mut found = vec![start];
            while let Some(host) = found.pop() {
                for next in start + 1..count {
                    if reachable[next] && part[next] == next && adjacent(host, next) {
                        part[next] = start;
                        found.push(next);
                    }
                }
            }
        }
        let mut paths = std::mem::take(&mut self.reach.paths);
        for owner in 0..count {
            for observer in 0..count {
                let joined = if reachable[observer] {
                    part[owner] == part[observer]
                } else {
                    (0..count).any(|near| reachable[near] && part[near] == part[owner] && adjacent(near, observer))
                };
                let works = working[observer] && (owner == observer || (reachable[owner] && joined));
                paths.entry((owner, observer)).or_default().set(works, now);
            }
        }
        self.reach.paths = paths;
        let mut reached = std::mem::take(&mut self.reach.clients);
        for client in 0..self.clients.len() {
            for (host, reachable) in reachable.iter().enumerate() {
                let works = *reachable
                    && !self.hosts[host].stopping
                    && !self.network.severed(Place::Client(client), Place::Host(host));
                reached.entry((client, host)).or_default().set(works, now);
            }
        }
        self.reach.clients = reached;
    }
}

/// Whether a host is in a pause that outlasts its links.
fn pauses(host: &Host) -> bool {
    host.paused_until.is_some_and(|until| until - host.paused_since > PAUSE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_covers_what_lies_in_it() {
        let mut stretch = Stretch::default();
        stretch.set(true, 10);
        stretch.set(true, 15);
        assert!(stretch.covers(10, 30) && !stretch.covers(9, 30));
        stretch.set(false, 20);
        assert!(stretch.covers(12, 20) && !stretch.covers(12, 21));
        stretch.set(true, 25);
        assert!(stretch.covers(12, 19), "what was is not forgotten at once");
        assert!(stretch.covers(25, 40) && !stretch.covers(18, 26));
    }
}
