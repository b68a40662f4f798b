//! The sequence of actions and faults, determined by the seed.

use std::time::Duration;

/// Services. The last two have special roles.
pub(crate) const SERVICES: [&str; 12] = [
    "web",
    "checkout",
    "search",
    "orders",
    "payments",
    "inventory",
    "mail",
    "images",
    "accounts",
    "reports",
    "courier",
    "sensor",
];
/// Number of services whose members join and leave.
const CHURNING: usize = 10;
/// The service whose one member moves from node to node.
pub(crate) const COURIER: usize = 10;
/// The service with fast liveness: members are down as soon as their connection is lost.
pub(crate) const SENSOR: usize = 11;

const FIRST_MEMBERS: std::ops::RangeInclusive<usize> = 2..=3;
/// Pause between two actions, in milliseconds.
const PAUSE_MS: std::ops::RangeInclusive<u64> = 1_000..=2_600;
/// Number of actions between two faults.
const ACTIONS: usize = 5;

/// A change of members or keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Join {
        service: usize,
        node: usize,
    },
    /// The number selects one of the members.
    Leave {
        draw: usize,
    },
    Update {
        draw: usize,
    },
    MoveCourier,
    /// Increments a key.
    Increment,
}

/// A fault that lasts for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Partition {
        between: [usize; 2],
    },
    /// Traffic in one direction is lost.
    OneWay {
        from: usize,
        to: usize,
    },
    Crash {
        node: usize,
    },
    Pause {
        node: usize,
    },
    /// A client dies without unregistering, and returns.
    ClientDeath {
        draw: usize,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Action(Action),
    Fault(Fault),
}

/// An endless sequence of steps.
#[derive(Debug)]
pub(crate) struct Script {
    random: fastrand::Rng,
    nodes: usize,
    actions: usize,
    faults: Vec<Kind>,
    round: usize,
    /// The node that was killed last; its clients stay at other nodes.
    crashed: usize,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Partition,
    Crash,
    ClientDeath,
    Pause,
    OneWay,
}

impl Script {
    pub(crate) fn new(seed: u64, nodes: usize) -> Script {
        Script { random: fastrand::Rng::with_seed(seed), nodes, actions: 0, faults: Vec::new(), round: 0, crashed: 0 }
    }

    /// Service and node of the members at the start.
    pub(crate) fn initial_members(&mut self) -> Vec<(usize, usize)> {
        let mut initial_members = Vec::new();
        for service in 0..SERVICES.len() {
            let members = if service == COURIER { 1 } else { self.random.usize(FIRST_MEMBERS) };
            initial_members.extend((0..members).map(|_| service));
        }
        // Spread evenly over the nodes.
        initial_members.into_iter().enumerate().map(|(index, service)| (service, index % self.nodes)).collect()
    }

    fn action(&mut self) -> Action {
        match self.random.u8(0..12) {
            0..4 => Action::Join { service: self.random.usize(..CHURNING), node: self.random.usize(..self.nodes) },
            4..7 => Action::Leave { draw: self.random.usize(..) },
            7..9 => Action::Update { draw: self.random.usize(..) },
            9 => Action::MoveCourier,
            _ => Action::Increment,
        }
    }

    fn fault(&mut self) -> Fault {
        if self.faults.is_empty() {
            self.faults = vec![Kind::OneWay, Kind::Pause, Kind::ClientDeath, Kind::Crash, Kind::Partition];
            // The first round is in order: the most important faults come first.
            if self.round > 0 {
                self.random.shuffle(&mut self.faults);
            }
            self.round += 1;
        }
        let first = self.random.usize(..self.nodes);
        let second = (first + self.random.usize(1..self.nodes)) % self.nodes;
        match self.faults.pop() {
            Some(Kind::Crash) => {
                self.crashed = first;
                Fault::Crash { node: first }
            }
            Some(Kind::ClientDeath) => Fault::ClientDeath { draw: self.random.usize(..) },
            // A node that has members.
            Some(Kind::Pause) => Fault::Pause { node: if first == self.crashed { second } else { first } },
            Some(Kind::OneWay) => Fault::OneWay { from: first, to: second },
            Some(Kind::Partition) | None => Fault::Partition { between: [first, second] },
        }
    }
}

/// Steps with the pause before each.
impl Iterator for Script {
    type Item = (Duration, Step);

    fn next(&mut self) -> Option<(Duration, Step)> {
        let pause = Duration::from_millis(self.random.u64(PAUSE_MS));
        self.actions += 1;
        let step = match self.actions % (ACTIONS + 1) {
            0 => Step::Fault(self.fault()),
            _ => Step::Action(self.action()),
        };
        Some((pause, step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_decides_everything() {
        let play = |seed| {
            let mut script = Script::new(seed, 3);
            (script.initial_members(), script.take(500).collect::<Vec<_>>())
        };
        assert_eq!(play(7), play(7));
        assert_ne!(play(7), play(8));
    }

    #[test]
    fn every_service_has_members_and_every_episode_comes() {
        for seed in 0..50 {
            let mut script = Script::new(seed, 3);
            let initial_members = script.initial_members();
            for service in 0..SERVICES.len() {
                assert!(initial_members.iter().any(|(of, _)| *of == service));
            }
            let faults: Vec<Fault> = script
                .take(100)
                .filter_map(|(_, step)| match step {
                    Step::Fault(fault) => Some(fault),
                    Step::Action(_) => None,
                })
                .collect();
            assert!(matches!(faults[0], Fault::Partition { between: [a, b] } if a != b && a < 3 && b < 3));
            assert!(matches!(faults[1], Fault::Crash { .. }));
            let kinds: std::collections::BTreeSet<String> =
                faults.iter().map(|e| format!("{e:?}").split(' ').next().unwrap().to_owned()).collect();
            assert_eq!(kinds.len(), 5, "{kinds:?}");
            for fault in faults {
                if let Fault::OneWay { from, to } = fault {
                    assert_ne!(from, to);
                }
            }
        }
    }
}
