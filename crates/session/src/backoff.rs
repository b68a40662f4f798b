//! Pauses before attempts to connect.

use crate::session::ClientTime;
use std::time::Duration;

const BASE: Duration = Duration::from_millis(500);
const CAP: Duration = Duration::from_secs(20);
/// Addresses that are tried in a row with short pauses only. More would multiply the connections to a large cluster that
/// rejects its clients.
const ROUND_MAX: u32 = 8;
/// For this long after a loss, no pause exceeds half the heartbeat timeout, so that a client that can reconnect does so
/// before its members are `down`.
const FAST_RETRY_PERIOD: Duration = Duration::from_secs(60);

/// Exponential backoff with full jitter. It grows with each round, in which every known address is tried once: one node
/// that works is found within the largest pause, however many others do not work.
#[derive(Debug, Default)]
pub struct Backoff {
    rounds: u32,
    /// Failed attempts in the current round.
    attempts: u32,
    /// When the last working connection was lost.
    lost_at: ClientTime,
    /// Time over which the node requested its clients to spread their reconnects.
    spread: Duration,
    /// Time that the node has named with its last rejection.
    named: Duration,
}

impl Backoff {
    /// Returns the pause after one more failed attempt. `untried`: some known address was not tried in this round.
    pub fn pause(
        &mut self,
        now: ClientTime,
        untried: bool,
        heartbeat_timeout: Duration,
        random: &mut fastrand::Rng,
    ) -> Duration {
        let first = (self.rounds, self.attempts) == (0, 0);
        self.attempts += 1;
        let mut limit = BASE;
        if first {
            // All clients of the lost node start at this moment.
            (self.lost_at, limit) = (now, limit.max(self.spread));
        }
        if !untried || self.attempts >= ROUND_MAX {
            limit = limit.max(BASE * 2u32.saturating_pow(self.rounds.min(10))).min(CAP);
            (self.rounds, self.attempts) = (self.rounds + 1, 0);
        }
        if now.saturating_sub(self.lost_at) < FAST_RETRY_PERIOD {
            limit = limit.min(heartbeat_timeout / 2);
        }
        let named = std::mem::take(&mut self.named);
        // Another node may have room.
        limit.mul_f64(random.f64()) + if untried { Duration::ZERO } else { named }
    }

    /// The node has named a time before which it accepts no further attempt (AU20). It counts for the next pause.
    pub fn not_before(&mut self, pause: Duration) {
        self.named = pause;
    }

    /// Sets the time over which the clients of the node should spread their reconnects if they all lose it.
    pub fn spread(&mut self, over: Duration) {
        self.spread = over;
    }

    /// Resets the backoff after a successful connection.
    pub fn reset(&mut self) {
        (self.rounds, self.attempts) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(20);

    /// Returns every pause for many seeds: (attempt, time, pause).
    fn pauses(seed: u64, attempts: usize) -> Vec<(ClientTime, Duration)> {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut backoff, mut now) = (Backoff::default(), Duration::from_secs(100));
        let mut all = Vec::new();
        for _ in 0..attempts {
            let pause = backoff.pause(now, false, TIMEOUT, &mut random);
            all.push((now, pause));
            now += pause + Duration::from_millis(50);
        }
        all
    }

    #[test]
    fn pauses_double_up_to_the_cap_and_use_the_whole_range() {
        let mut longest = [Duration::ZERO; 40];
        let mut shortest = [CAP; 40];
        for seed in 0..2000 {
            for (attempt, (_, pause)) in pauses(seed, 40).into_iter().enumerate() {
                longest[attempt] = longest[attempt].max(pause);
                shortest[attempt] = shortest[attempt].min(pause);
            }
        }
        for (attempt, limit) in [(0, 500), (1, 1000), (2, 2000), (3, 4000), (4, 8000)] {
            let limit = Duration::from_millis(limit);
            assert!(longest[attempt] <= limit && longest[attempt] > limit.mul_f64(0.9), "{attempt}: {longest:?}");
            assert!(shortest[attempt] < limit.mul_f64(0.1), "full jitter reaches down to nothing");
        }
        assert!(longest[39] <= CAP && longest[39] > CAP.mul_f64(0.9));
    }

    #[test]
    fn clients_spread_their_reconnects_as_the_node_requested() {
        const CLIENTS: u32 = 10_000;
        let (over, tenth) = (Duration::from_secs(5), Duration::from_millis(500));
        let mut random = fastrand::Rng::with_seed(1);
        let mut back = [0; 10];
        for _ in 0..CLIENTS {
            let mut backoff = Backoff::default();
            backoff.spread(over);
            let pause = backoff.pause(Duration::ZERO, false, TIMEOUT, &mut random);
            back[(pause.as_millis() / tenth.as_millis()) as usize] += 1;
        }
        assert!(back.iter().all(|count| (800..1_200).contains(count)), "{back:?}");
        // The pause never exceeds the heartbeat timeout, whatever the node requests.
        for _ in 0..1_000 {
            let mut backoff = Backoff::default();
            backoff.spread(Duration::from_secs(1_000));
            assert!(backoff.pause(Duration::ZERO, false, TIMEOUT, &mut random) <= TIMEOUT / 2);
            assert!(
                backoff.pause(TIMEOUT, false, TIMEOUT, &mut random) <= 2 * BASE,
                "the next pause has the usual limit"
            );
        }
    }

    #[test]
    fn pauses_in_the_first_minute_are_at_most_half_the_heartbeat_timeout() {
        for seed in 0..2000 {
            for (at, pause) in pauses(seed, 20) {
                if at < Duration::from_secs(160) {
                    assert!(pause <= TIMEOUT / 2);
                }
            }
        }
    }

    /// The other nodes accept 1,500 attaches per second and reject the rest.
    #[test]
    fn ten_thousand_clients_reconnect_within_the_heartbeat_timeout_and_not_all_at_once() {
        const CLIENTS: usize = 10_000;
        const CAPACITY_PER_TICK: usize = 75;
        let tick = Duration::from_millis(50);
        let mut random = fastrand::Rng::with_seed(1);
        let mut clients: Vec<(Backoff, ClientTime)> = Vec::new();
        for _ in 0..CLIENTS {
            let mut backoff = Backoff::default();
            let pause = backoff.pause(Duration::ZERO, false, TIMEOUT, &mut random);
            clients.push((backoff, pause));
        }
        let (mut now, mut busiest) = (Duration::ZERO, 0);
        while !clients.is_empty() {
            now += tick;
            assert!(now < TIMEOUT, "{} have not reconnected", clients.len());
            let (mut attempts, mut room) = (0, CAPACITY_PER_TICK);
            clients.retain_mut(|(backoff, at)| {
                if *at > now {
                    return true;
                }
                attempts += 1;
                let rejected = room == 0;
                room = room.saturating_sub(1);
                *at = now + if rejected { backoff.pause(now, false, TIMEOUT, &mut random) } else { Duration::ZERO };
                rejected
            });
            busiest = busiest.max(attempts);
        }
        assert!(busiest < CLIENTS / 5, "{busiest} at once");
    }

    #[test]
    fn pauses_grow_with_rounds_and_not_within_one() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut backoff = Backoff::default();
        let now = Duration::from_secs(500);
        backoff.pause(Duration::ZERO, true, TIMEOUT, &mut random);
        for _ in 0..10 {
            for untried in [true, true, true, false] {
                let pause = backoff.pause(now, untried, TIMEOUT, &mut random);
                assert!(!untried || pause <= BASE, "{pause:?} before an address that was not tried");
            }
        }
        let longest = (0..100).map(|_| backoff.pause(now, false, TIMEOUT, &mut random)).max().unwrap();
        assert!(longest > CAP.mul_f64(0.9));
        // A large cluster is not searched without a pause.
        let all: Vec<Duration> = (0..400).map(|_| backoff.pause(now, true, TIMEOUT, &mut random)).collect();
        let long = all.iter().filter(|pause| **pause > BASE).count();
        assert!((40..=50).contains(&long), "{long} long pauses in 400 attempts");
    }

    #[test]
    fn the_next_pause_is_as_long_as_the_node_has_named() {
        let mut random = fastrand::Rng::with_seed(1);
        let (named, now) = (Duration::from_secs(7), Duration::from_secs(500));
        let mut backoff = Backoff::default();
        backoff.not_before(named);
        let pause = backoff.pause(now, false, TIMEOUT, &mut random);
        assert!((named..=named + BASE).contains(&pause), "{pause:?}");
        assert!(backoff.pause(now, false, TIMEOUT, &mut random) <= 2 * BASE, "only the next one");
        backoff.not_before(named);
        assert!(backoff.pause(now, true, TIMEOUT, &mut random) <= 2 * BASE, "another node may have room");
    }

    #[test]
    fn a_working_connection_resets_the_backoff() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut backoff = Backoff::default();
        for _ in 0..10 {
            backoff.pause(Duration::ZERO, false, TIMEOUT, &mut random);
        }
        backoff.reset();
        assert!(backoff.pause(Duration::from_secs(500), false, TIMEOUT, &mut random) <= BASE);
    }
}
