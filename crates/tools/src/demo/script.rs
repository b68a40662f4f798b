//! What happens in the demo, and in which order: decided by the seed alone.

use std::time::Duration;

/// A dozen. The last two have parts of their own.
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
/// Of these, members come and go.
const CHURNING: usize = 10;
/// Its one member moves from node to node.
pub(crate) const COURIER: usize = 10;
/// Its members are told to be down as soon as their connection is lost.
pub(crate) const SENSOR: usize = 11;

const FIRST_MEMBERS: std::ops::RangeInclusive<usize> = 2..=3;
/// Between two acts, in milliseconds.
const PAUSE_MS: std::ops::RangeInclusive<u64> = 1_000..=2_600;
/// Acts between two episodes.
const ACTS: usize = 5;

/// Somebody comes, goes, moves or changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Join {
        service: usize,
        node: usize,
    },
    /// The number picks one of those that are there.
    Leave {
        draw: usize,
    },
    Update {
        draw: usize,
    },
    Roam,
    /// A key is changed.
    Enter,
}

/// Something goes wrong for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Episode {
    Partition {
        between: [usize; 2],
    },
    /// What one sends does not reach the other.
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
    /// A client's process ends without goodbye, and comes back.
    ClientDeath {
        draw: usize,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scene {
    Act(Act),
    Episode(Episode),
}

/// Endless.
#[derive(Debug)]
pub(crate) struct Script {
    random: fastrand::Rng,
    nodes: usize,
    acts: usize,
    episodes: Vec<Kind>,
    round: usize,
    /// Its clients have gone elsewhere and stay there.
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
        Script { random: fastrand::Rng::with_seed(seed), nodes, acts: 0, episodes: Vec::new(), round: 0, crashed: 0 }
    }

    /// Who is there at the beginning: services and nodes.
    pub(crate) fn cast(&mut self) -> Vec<(usize, usize)> {
        let mut cast = Vec::new();
        for service in 0..SERVICES.len() {
            let members = if service == COURIER { 1 } else { self.random.usize(FIRST_MEMBERS) };
            cast.extend((0..members).map(|_| service));
        }
        // Evenly over the nodes, whoever it is.
        cast.into_iter().enumerate().map(|(index, service)| (service, index % self.nodes)).collect()
    }

    fn act(&mut self) -> Act {
        match self.random.u8(0..12) {
            0..4 => Act::Join { service: self.random.usize(..CHURNING), node: self.random.usize(..self.nodes) },
            4..7 => Act::Leave { draw: self.random.usize(..) },
            7..9 => Act::Update { draw: self.random.usize(..) },
            9 => Act::Roam,
            _ => Act::Enter,
        }
    }

    fn episode(&mut self) -> Episode {
        if self.episodes.is_empty() {
            self.episodes = vec![Kind::OneWay, Kind::Pause, Kind::ClientDeath, Kind::Crash, Kind::Partition];
            // Who looks for a minute sees what matters most.
            if self.round > 0 {
                self.random.shuffle(&mut self.episodes);
            }
            self.round += 1;
        }
        let first = self.random.usize(..self.nodes);
        let second = (first + self.random.usize(1..self.nodes)) % self.nodes;
        match self.episodes.pop() {
            Some(Kind::Crash) => {
                self.crashed = first;
                Episode::Crash { node: first }
            }
            Some(Kind::ClientDeath) => Episode::ClientDeath { draw: self.random.usize(..) },
            // One that has members.
            Some(Kind::Pause) => Episode::Pause { node: if first == self.crashed { second } else { first } },
            Some(Kind::OneWay) => Episode::OneWay { from: first, to: second },
            Some(Kind::Partition) | None => Episode::Partition { between: [first, second] },
        }
    }
}

/// Scenes, each with the time to wait before it.
impl Iterator for Script {
    type Item = (Duration, Scene);

    fn next(&mut self) -> Option<(Duration, Scene)> {
        let pause = Duration::from_millis(self.random.u64(PAUSE_MS));
        self.acts += 1;
        let scene = match self.acts % (ACTS + 1) {
            0 => Scene::Episode(self.episode()),
            _ => Scene::Act(self.act()),
        };
        Some((pause, scene))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_decides_everything() {
        let play = |seed| {
            let mut script = Script::new(seed, 3);
            (script.cast(), script.take(500).collect::<Vec<_>>())
        };
        assert_eq!(play(7), play(7));
        assert_ne!(play(7), play(8));
    }

    #[test]
    fn every_service_has_members_and_every_episode_comes() {
        for seed in 0..50 {
            let mut script = Script::new(seed, 3);
            let cast = script.cast();
            for service in 0..SERVICES.len() {
                assert!(cast.iter().any(|(of, _)| *of == service));
            }
            let episodes: Vec<Episode> = script
                .take(100)
                .filter_map(|(_, scene)| match scene {
                    Scene::Episode(episode) => Some(episode),
                    Scene::Act(_) => None,
                })
                .collect();
            assert!(matches!(episodes[0], Episode::Partition { between: [a, b] } if a != b && a < 3 && b < 3));
            assert!(matches!(episodes[1], Episode::Crash { .. }));
            let kinds: std::collections::BTreeSet<String> =
                episodes.iter().map(|e| format!("{e:?}").split(' ').next().unwrap().to_owned()).collect();
            assert_eq!(kinds.len(), 5, "{kinds:?}");
            for episode in episodes {
                if let Episode::OneWay { from, to } = episode {
                    assert_ne!(from, to);
                }
            }
        }
    }
}
