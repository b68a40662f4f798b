//! Which nodes can reach each other, and since when without a break. Invariants judge excuses by this.
//!
//! Two nodes reach each other if a chain of serving nodes joins them in which every neighbouring pair can send both
//! ways, and one of the pair has the address of the other. A pause of the observing node does not break a path: a node
//! must not judge others by its own pause (L5).
//!
//! A node process has the addresses of its seeds. It learns those of all nodes it was linked to, or joined with for a
//! while, and keeps them until it ends (P4). From each of them it also learns the addresses of nodes whose records have
//! not expired there (P8). A node has one address per node id: it loses the address of a node if it meets a second
//! process with its id.

use crate::host::Host;
use crate::network::{Micros, SECOND, Site};
use crate::world::{World, micros};
use std::collections::{BTreeMap, VecDeque};

/// A node that is paused for longer than this cannot be reached.
const PAUSE_MAX: Micros = 3 * SECOND;
/// Largest latency without a fault, between two regions.
const LATENCY_MAX: Micros = 30_000;

/// Number of ended periods that are kept. Earlier ones count as if nothing had worked.
const PERIODS: usize = 16;

/// Periods in which something worked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Stretch {
    /// Start of the current period.
    since: Option<Micros>,
    /// The last periods that ended: from, until.
    ended: VecDeque<(Micros, Micros)>,
}

impl Stretch {
    fn set(&mut self, works: bool, now: Micros) {
        match (works, self.since) {
            (true, None) => self.since = Some(now),
            (false, Some(since)) => {
                if self.ended.len() == PERIODS {
                    self.ended.pop_front();
                }
                self.ended.push_back((since, now));
                self.since = None;
            }
            _ => {}
        }
    }

    fn covers(&self, from: Micros, until: Micros) -> bool {
        self.since.is_some_and(|since| since <= from)
            || (from < until && self.ended.iter().any(|(start, end)| *start <= from && *end >= until))
    }

    /// Returns the longest time between `from` and `until` in which it did not work for at least `contact`.
    fn longest_break(&self, from: Micros, until: Micros, contact: Micros) -> Micros {
        let current = self.since.map(|since| (since, Micros::MAX));
        let (mut longest, mut covered) = (0, from);
        for (start, end) in self.ended.iter().copied().chain(current) {
            if end > covered && start < until && end - start >= contact {
                longest = longest.max(start.saturating_sub(covered));
                covered = end;
            }
        }
        longest.max(until.saturating_sub(covered))
    }

    /// Whether it began to work before `before` and worked at some time since `time`.
    fn worked_since(&self, time: Micros, before: Micros) -> bool {
        let last = self.ended.back().is_some_and(|(start, end)| *start < before && *end >= time);
        self.since.is_some_and(|since| since < before) || last
    }

    /// Returns when it last began or ceased to work.
    fn changed_at(&self) -> Micros {
        self.since.or_else(|| self.ended.back().map(|(_, end)| *end)).unwrap_or(0)
    }
}

#[derive(Debug, Default)]
pub struct Reach {
    /// From the owner of a member to the observing node.
    paths: BTreeMap<(usize, usize), Stretch>,
    /// From a client to a node that accepts clients.
    clients: BTreeMap<(usize, usize), Stretch>,
    /// From a client to an observing node, by way of any node that accepts clients.
    offers: BTreeMap<(usize, usize), Stretch>,
    /// The hosts whose addresses the current process of a host has, as a set of bits.
    known: BTreeMap<usize, u128>,
    /// The hosts in `known` of which the process has the address of a second process instead.
    replaced: BTreeMap<usize, u128>,
    /// Pairs of hosts whose link delivers too late, with the number of such faults.
    congested: BTreeMap<(usize, usize), u32>,
    /// When a second process with the id of a node last started or ended.
    second_process_at: Micros,
}

impl Reach {
    /// Whether the observer was reachable from the owner without a break.
    pub fn joined(&self, owner: usize, observer: usize, from: Micros, until: Micros) -> bool {
        self.paths.get(&(owner, observer)).is_some_and(|path| path.covers(from, until))
    }

    /// Returns the longest time in which the observer was not reachable from the owner. A path that exists for less than
    /// `contact` at a time does not end a break.
    pub fn longest_break(
        &self,
        (owner, observer): (usize, usize),
        from: Micros,
        until: Micros,
        contact: Micros,
    ) -> Micros {
        let path = self.paths.get(&(owner, observer));
        path.map_or(until.saturating_sub(from), |path| path.longest_break(from, until, contact))
    }

    /// Returns the time since which a host reaches the same hosts, and the same hosts reach it.
    pub fn settled_since(&self, host: usize) -> Micros {
        let touching = self.paths.iter().filter(|((one, other), _)| *one == host || *other == host);
        touching.map(|(_, path)| path.changed_at()).max().unwrap_or(0).max(self.second_process_at)
    }

    /// A second process with the id of a node starts or ends. It is part of no path, but relays evidence while it runs.
    pub(crate) fn second_process_changed(&mut self, now: Micros) {
        self.second_process_at = now;
    }

    /// Whether a client could at every moment reach some node from which the observer was reachable.
    pub fn offered(&self, client: usize, observer: usize, from: Micros, until: Micros) -> bool {
        self.offers.get(&(client, observer)).is_some_and(|path| path.covers(from, until))
    }

    /// A new process of a host has the addresses of its seeds only.
    pub(crate) fn process_started(&mut self, host: usize, seeds: &[String]) {
        self.known.insert(host, seeds.iter().filter_map(|seed| host_of(seed)).map(bit).fold(0, |all, one| all | one));
    }

    /// The next incarnation in the same process keeps the addresses (N3).
    pub(crate) fn incarnation_started(&mut self, host: usize, seeds: &[String]) {
        let kept = self.known_to(host);
        self.process_started(host, seeds);
        self.known.entry(host).and_modify(|known| *known |= kept);
    }

    /// A host has a link to another one, and so its address. Returns whether it did not have it before.
    pub(crate) fn met(&mut self, host: usize, other: usize) -> bool {
        let known = self.known.entry(host).or_default();
        std::mem::replace(known, *known | bit(other)) & bit(other) == 0
    }

    /// The link between two hosts delivers too late, or in time again.
    pub(crate) fn set_congested(&mut self, hosts: [usize; 2], congested: bool) {
        let count = self.congested.entry((hosts[0].min(hosts[1]), hosts[0].max(hosts[1]))).or_default();
        *count = if congested { *count + 1 } else { count.saturating_sub(1) };
    }

    pub(crate) fn is_congested(&self, one: usize, other: usize) -> bool {
        self.congested.get(&(one.min(other), one.max(other))).is_some_and(|count| *count > 0)
    }

    fn known_to(&self, host: usize) -> u128 {
        self.known.get(&host).copied().unwrap_or(0)
    }

    fn can_find(&self, one: usize, other: usize) -> bool {
        let has_address = |host: usize, other: usize| {
            self.known_to(host) & !self.replaced.get(&host).copied().unwrap_or(0) & bit(other) != 0
        };
        has_address(one, other) || has_address(other, one)
    }

    /// Hosts that have been joined since `before` have each other's addresses, and those of the hosts that reached the
    /// other one before then and since its time in `fresh`: the records of these hosts have not expired there.
    fn learn(&mut self, before: Micros, fresh: &[Micros]) {
        let count = fresh.len();
        let joined = |paths: &BTreeMap<(usize, usize), Stretch>, one, other| {
            paths.get(&(one, other)).is_some_and(|path: &Stretch| path.since.is_some_and(|since| since < before))
        };
        for one in 0..count {
            for (other, fresh) in fresh.iter().enumerate() {
                if one != other && joined(&self.paths, one, other) && joined(&self.paths, other, one) {
                    let recorded = (0..count).filter(|host| {
                        self.paths.get(&(*host, other)).is_some_and(|path| path.worked_since(*fresh, before))
                    });
                    let recorded = recorded.map(bit).fold(0, |all, one| all | one);
                    let learnt = (self.known_to(other) & recorded) | bit(other);
                    *self.known.entry(one).or_default() |= learnt;
                }
            }
        }
    }
}

pub(crate) fn bit(host: usize) -> u128 {
    1 << (host % 128)
}

/// The host of an address.
pub(crate) fn host_of(address: &str) -> Option<usize> {
    address.strip_prefix('h')?.split_once(':')?.0.parse().ok()
}

impl World {
    /// Longest time until nodes that can reach each other again have a link and have exchanged their records: a dial that
    /// just fails, the next one, and a ping.
    pub(crate) fn contact_time(&self) -> Micros {
        2 * micros(self.setup.timers.peer_retry_interval) + micros(self.setup.timers.ping_timeout)
    }

    /// Whether this delay of every message of a node can break its links: the echo of a ping is as old as two delays and
    /// two ping intervals (P6).
    pub(crate) fn breaks_links(&self, delay: Micros) -> bool {
        let timers = &self.setup.timers;
        2 * (delay + LATENCY_MAX) + 2 * micros(timers.ping_interval) >= micros(timers.ping_timeout)
    }

    /// The hosts whose id a host has with the address of a second process, as a set of bits. Seeds are dialled as well.
    fn replaced_at(&self, host: usize) -> u128 {
        let held = &self.hosts[host];
        let (Some(node), true) = (&held.node, self.hosts.iter().any(|other| other.is_second)) else { return 0 };
        let peers = node.peers();
        let at_second =
            peers.iter().filter(|peer| host_of(&peer.peer_address).is_some_and(|at| self.hosts[at].is_second));
        let ids: Vec<_> = at_second.map(|peer| &peer.node).collect();
        let replaced =
            |other: &Host| ids.contains(&&other.id) && !held.config.seeds.contains(&other.config.peer_address);
        let hosts = self.hosts.iter().enumerate().filter(|(_, other)| !other.is_second && replaced(other));
        hosts.map(|(index, _)| bit(index)).fold(0, |all, one| all | one)
    }

    /// Recomputes reachability after a change that affects it.
    pub(crate) fn update_reach(&mut self) {
        let now = self.now;
        let count = self.hosts.len();
        // A process that has started since then has no records from before.
        let fresh = now.saturating_sub(micros(self.setup.timers.reconnect_timeout) / 2);
        let fresh: Vec<Micros> = self.hosts.iter().map(|host| fresh.max(host.started_at)).collect();
        self.reach.learn(now.saturating_sub(self.contact_time()), &fresh);
        self.reach.replaced =
            (0..count).map(|host| (host, self.replaced_at(host))).filter(|(_, set)| *set > 0).collect();
        let serves =
            |host: &Host| host.serving().is_some() && host.long_delays == 0 && host.duplicate.is_none() && !host.alone;
        let working: Vec<bool> = self.hosts.iter().map(serves).collect();
        let reachable: Vec<bool> =
            self.hosts.iter().zip(&working).map(|(host, works)| *works && !pauses(host)).collect();
        let linked = |one: usize, other: usize| {
            working[one]
                && working[other]
                && self.reach.can_find(one, other)
                && !self.reach.is_congested(one, other)
                && !self.network.severed(Site::Host(one), Site::Host(other))
        };
        let links: Vec<bool> = (0..count * count).map(|pair| linked(pair / count, pair % count)).collect();
        let adjacent = |one: usize, other: usize| links[one * count + other];
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
        let mut offers = std::mem::take(&mut self.reach.offers);
        let mut reached = std::mem::take(&mut self.reach.clients);
        for client in 0..self.clients.len() {
            for (host, reachable) in reachable.iter().enumerate() {
                let works = *reachable
                    && self.clients[client].known & bit(host) != 0
                    && !self.hosts[host].stopping
                    && !self.network.severed(Site::Client(client), Site::Host(host));
                reached.entry((client, host)).or_default().set(works, now);
            }
            let open = |host: &usize| reached.get(&(client, *host)).is_some_and(|path| path.since.is_some());
            let open: Vec<usize> = (0..count).filter(open).collect();
            for observer in 0..count {
                let leads = |host: &usize| paths.get(&(*host, observer)).is_some_and(|path| path.since.is_some());
                offers.entry((client, observer)).or_default().set(open.iter().any(leads), now);
            }
        }
        self.reach.paths = paths;
        self.reach.clients = reached;
        self.reach.offers = offers;
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
    fn a_process_knows_its_seeds_and_learns_from_those_it_was_joined_with() {
        let mut reach = Reach::default();
        reach.process_started(0, &[]);
        reach.process_started(1, &["h0:7000".to_owned()]);
        reach.process_started(2, &["h1:7000".to_owned()]);
        assert!(reach.can_find(0, 1) && reach.can_find(2, 1) && !reach.can_find(0, 2));
        for pair in [(0, 1), (1, 0), (1, 2), (2, 1)] {
            reach.paths.entry(pair).or_default().set(true, 10);
        }
        reach.learn(10, &[0; 3]);
        assert!(!reach.can_find(0, 2), "joined for too short a time");
        reach.learn(11, &[0; 3]);
        assert!(reach.can_find(0, 2), "the node between them has both addresses");
        reach.process_started(3, &[]);
        for pair in [(1, 3), (3, 1)] {
            reach.paths.entry(pair).or_default().set(true, 20);
        }
        reach.paths.entry((2, 1)).or_default().set(false, 20);
        reach.learn(30, &[21; 4]);
        assert!(reach.can_find(3, 0) && !reach.can_find(3, 2), "the record of host 2 has expired at host 1");
        reach.learn(30, &[20; 4]);
        assert!(reach.can_find(3, 2));
        reach.incarnation_started(2, &["h1:7000".to_owned()]);
        assert!(reach.can_find(0, 2));
        reach.process_started(2, &["h1:7000".to_owned()]);
        reach.process_started(0, &[]);
        assert!(!reach.can_find(0, 2), "both processes are new");
        assert!(reach.met(0, 2) && !reach.met(0, 2) && reach.can_find(2, 0), "host 0 has had a link to host 2");
        reach.replaced.insert(1, bit(0) | bit(2));
        assert!(!reach.can_find(0, 1), "host 1 has the address of another process with the id of host 0");
        assert!(reach.can_find(2, 1), "host 1 is a seed of host 2");
    }

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
        assert_eq!(stretch.longest_break(12, 40, 0), 5);
        assert_eq!(stretch.longest_break(2, 40, 0), 8);
        assert_eq!(stretch.longest_break(26, 40, 0), 0);
        stretch.set(false, 30);
        assert_eq!((stretch.longest_break(12, 40, 5), stretch.changed_at()), (10, 30));
        assert_eq!(stretch.longest_break(12, 40, 6), 20, "the second period was too short");
    }
}
