//! Known nodes and the order in which to ask them.

use convoke_proto::v1::Replica;
use std::time::Duration;

/// Maximum number of remembered nodes.
const KNOWN_MAX: usize = 64;
/// Maximum of the first pause between rounds. An election takes about a second, and clients should find the new leader
/// soon after.
const PAUSE_BASE: Duration = Duration::from_millis(20);
/// Maximum pause while a recent request waits.
pub(super) const PAUSE_HURRIED: Duration = Duration::from_millis(500);
/// Maximum pause otherwise. Many more clients have an idle session than a waiting request, and all of them look for the
/// leader at once.
pub(super) const PAUSE_CAP: Duration = Duration::from_secs(5);

/// Returns the maximum pause after a number of rounds without a leader.
pub(super) fn pause(rounds: u32, cap: Duration) -> Duration {
    (PAUSE_BASE * 2_u32.saturating_pow(rounds.min(10))).min(cap)
}

/// Addresses of nodes: configured ones, and those named in rejections.
#[derive(Debug)]
pub(crate) struct Peers {
    seeds: Vec<String>,
    learnt: Vec<String>,
    rounds: u32,
}

impl Peers {
    pub(crate) fn new(seeds: Vec<String>) -> Peers {
        Peers { seeds, learnt: Vec::new(), rounds: 0 }
    }

    /// Records the replicas reported by a node, the last known leader first. Returns true if it names a leader that was
    /// not asked in this round.
    pub(crate) fn learn(&mut self, replicas: &[Replica]) -> bool {
        let addresses = replicas.iter().filter(|member| !member.address.is_empty()).take(KNOWN_MAX);
        let mut learnt: Vec<String> = addresses.map(|member| member.address.clone()).collect();
        if learnt.is_empty() {
            return false;
        }
        let leader = replicas.first().filter(|member| member.leader).map(|member| &member.address);
        let is_new = leader.is_some_and(|leader| !self.learnt.contains(leader) && !self.seeds.contains(leader));
        std::mem::swap(&mut self.learnt, &mut learnt);
        is_new
    }

    /// Returns all nodes to ask, the most likely leader first.
    pub(crate) fn all(&self) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        for address in self.learnt.iter().chain(&self.seeds) {
            if !all.contains(address) {
                all.push(address.clone());
            }
        }
        all
    }

    /// Records a round without a leader, and returns the number of earlier ones since the last leader.
    pub(crate) fn record_failed_round(&mut self) -> u32 {
        self.rounds = self.rounds.saturating_add(1);
        self.rounds - 1
    }

    /// Records that a leader was found.
    pub(crate) fn found(&mut self) {
        self.rounds = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica(address: &str, leader: bool) -> Replica {
        Replica { address: address.into(), leader, ..Replica::default() }
    }

    #[test]
    fn the_leader_is_asked_first_and_seeds_are_never_forgotten() {
        let mut peers = Peers::new(vec!["seed:1".into(), "b:1".into()]);
        assert!(peers.learn(&[replica("a:1", true), replica("b:1", false), replica("", false)]), "a is new");
        assert_eq!(peers.all(), ["a:1", "b:1", "seed:1"]);
        assert!(!peers.learn(&[replica("b:1", true), replica("a:1", false)]), "b is asked in every round");
        assert_eq!(peers.all(), ["b:1", "a:1", "seed:1"]);
        assert!(!peers.learn(&[]), "an empty list changes nothing");
        assert_eq!(peers.all().len(), 3);
    }

    #[test]
    fn pauses_grow_up_to_the_cap() {
        let mut peers = Peers::new(Vec::new());
        let rounds: Vec<u32> = (0..40).map(|_| peers.record_failed_round()).collect();
        let pauses = |cap| rounds.iter().map(|rounds| pause(*rounds, cap)).collect::<Vec<Duration>>();
        let (hurried, idle) = (pauses(PAUSE_HURRIED), pauses(PAUSE_CAP));
        assert_eq!((hurried[0], hurried[1], hurried[39]), (PAUSE_BASE, 2 * PAUSE_BASE, PAUSE_HURRIED));
        assert_eq!((idle[0], idle[1], idle[39]), (PAUSE_BASE, 2 * PAUSE_BASE, PAUSE_CAP));
        peers.found();
        assert_eq!(peers.record_failed_round(), 0);
    }
}
