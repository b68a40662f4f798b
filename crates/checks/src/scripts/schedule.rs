//! When scripts run. Pure: it takes time as an argument.

use crate::schedule::varied;
use convoke_core::Time;
use std::time::Duration;

/// Scripts that run at the same time.
const RUNNING_MAX: usize = 16;
/// The first run of a script is at most this far away.
const FIRST_RUN_MAX: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Script {
    interval: Duration,
    due: Time,
    running: bool,
}

/// The scripts of this node, by their position in the configuration.
#[derive(Debug)]
pub(crate) struct ScriptSchedule {
    scripts: Vec<Script>,
    random: fastrand::Rng,
}

impl ScriptSchedule {
    pub(crate) fn new(now: Time, intervals: impl Iterator<Item = Duration>, seed: u64) -> ScriptSchedule {
        let mut random = fastrand::Rng::with_seed(seed);
        let script = |interval: Duration| {
            let due = now + interval.min(FIRST_RUN_MAX).mul_f64(random.f64());
            Script { interval, due, running: false }
        };
        ScriptSchedule { scripts: intervals.map(script).collect(), random }
    }

    /// The time of the next [`ScriptSchedule::poll`]. `None`: a script has to finish first.
    pub(crate) fn next(&self) -> Option<Time> {
        let has_room = self.running() < RUNNING_MAX;
        self.scripts.iter().filter(|script| has_room && !script.running).map(|script| script.due).min()
    }

    fn running(&self) -> usize {
        self.scripts.iter().filter(|script| script.running).count()
    }

    /// Returns the scripts to run now, those that are due longest first. No script runs twice at the same time.
    pub(crate) fn poll(&mut self, now: Time) -> Vec<usize> {
        let room = RUNNING_MAX.saturating_sub(self.running());
        let is_due = |script: &Script| !script.running && script.due <= now;
        let mut due: Vec<usize> = (0..self.scripts.len()).filter(|index| is_due(&self.scripts[*index])).collect();
        due.sort_by_key(|index| self.scripts[*index].due);
        due.truncate(room);
        for index in &due {
            let script = &mut self.scripts[*index];
            script.running = true;
            script.due = now + varied(&mut self.random, script.interval);
        }
        due
    }

    /// A run has ended. A script that took longer than its interval runs again at once.
    pub(crate) fn finished(&mut self, now: Time, index: usize) {
        let Some(script) = self.scripts.get_mut(index) else { return };
        script.running = false;
        script.due = script.due.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn scripts_run_soon_and_then_at_their_intervals() {
        let mut schedule = ScriptSchedule::new(at(0), [10_000, 500].map(Duration::from_millis).into_iter(), 1);
        let mut runs = [Vec::new(), Vec::new()];
        for now in (0..100_000).step_by(10) {
            for index in schedule.poll(at(now)) {
                runs[index].push(now);
                schedule.finished(at(now), index);
            }
        }
        assert!(runs[0][0] <= 1_010 && runs[1][0] <= 510, "{runs:?}");
        assert!((10..=11).contains(&runs[0].len()) && (185..=215).contains(&runs[1].len()), "{runs:?}");
        let gaps = runs[0].windows(2).map(|pair| pair[1] - pair[0]);
        assert!(gaps.into_iter().all(|gap| (9_400..=10_600).contains(&gap)), "{runs:?}");
    }

    #[test]
    fn few_scripts_run_at_a_time_and_none_twice() {
        let mut schedule = ScriptSchedule::new(at(0), std::iter::repeat_n(Duration::from_secs(1), 40), 7);
        let first = schedule.poll(at(2_000));
        assert_eq!(first.len(), RUNNING_MAX);
        assert_eq!((schedule.poll(at(9_000)).len(), schedule.next()), (0, None), "no more at a time");
        schedule.finished(at(9_000), first[0]);
        let next = schedule.poll(at(9_000));
        assert!(next.len() == 1 && !first.contains(&next[0]), "the one that was due longest: {next:?}");
        for index in first.iter().skip(1) {
            schedule.finished(at(9_500), *index);
        }
        assert_eq!(schedule.poll(at(9_500)).len(), RUNNING_MAX - 1);
    }
}
