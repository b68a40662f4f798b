//! Who may lead, and in which order to ask.

use convoke_proto::v1::Replica;
use std::time::Duration;

/// More are not remembered.
const KNOWN_MAX: usize = 64;
/// Pauses between rounds of asking everybody: the first, and the longest. A new leader is elected within a second or so, and should be
/// found soon after.
const PAUSE_BASE: Duration = Duration::from_millis(20);
const PAUSE_CAP: Duration = Duration::from_millis(500);

/// Addresses of nodes: those that were configured, and those that refusals named.
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

    /// What a node told of the group, the last known leader first. True if it names a leader that was not asked in this round.
    pub(crate) fn learn(&mut self, members: &[Replica]) -> bool {
        let addresses = members.iter().filter(|member| !member.address.is_empty()).take(KNOWN_MAX);
        let mut learnt: Vec<String> = addresses.map(|member| member.address.clone()).collect();
        if learnt.is_empty() {
            return false;
        }
        let leader = members.first().filter(|member| member.leader).map(|member| &member.address);
        let news = leader.is_some_and(|leader| !self.learnt.contains(leader) && !self.seeds.contains(leader));
        std::mem::swap(&mut self.learnt, &mut learnt);
        news
    }

    /// Everybody to ask, the likeliest first, each once.
    pub(crate) fn all(&self) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        for address in self.learnt.iter().chain(&self.seeds) {
            if !all.contains(address) {
                all.push(address.clone());
            }
        }
        all
    }

    /// Nobody led: how long to wait before asking again.
    pub(crate) fn pause(&mut self, random: &mut fastrand::Rng) -> Duration {
        let longest = (PAUSE_BASE * 2_u32.saturating_pow(self.rounds.min(10))).min(PAUSE_CAP);
        self.rounds += 1;
        longest.mul_f64(0.5 + random.f64() / 2.0)
    }

    /// A leader was found.
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
        assert!(!peers.learn(&[]), "who knows nothing teaches nothing");
        assert_eq!(peers.all().len(), 3);
    }

    #[test]
    fn pauses_grow_to_half_a_second() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut peers = Peers::new(Vec::new());
        let pauses: Vec<Duration> = (0..12).map(|_| peers.pause(&mut random)).collect();
        assert!(pauses[0] <= PAUSE_BASE && pauses[11] <= PAUSE_CAP && pauses[11] >= PAUSE_CAP / 2, "{pauses:?}");
        peers.found();
        assert!(peers.pause(&mut random) <= PAUSE_BASE);
    }
}
