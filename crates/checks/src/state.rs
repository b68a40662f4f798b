//! The state of one check: its last runs, and the result that they amount to.

use crate::schedule::RunResult;
use convoke_core::Time;
use convoke_core::member::{Check, CheckResult, Health};

#[derive(Clone, Debug)]
pub(crate) struct CheckState {
    /// Failures and successes in a row.
    failures: u32,
    successes: u32,
    pub(crate) status: Health,
    pub(crate) output: String,
    /// This node's own runs have shown it critical since then.
    pub(crate) critical_since: Option<Time>,
    pub(crate) running: bool,
}

impl CheckState {
    pub(crate) fn new(result: &CheckResult) -> CheckState {
        CheckState {
            failures: 0,
            successes: 0,
            status: result.status,
            output: result.output.clone(),
            critical_since: None,
            running: false,
        }
    }

    /// Takes the outcome of a run or a report.
    pub(crate) fn take(&mut self, now: Time, check: &Check, outcome: RunResult) {
        let failed = outcome.status == Health::Critical;
        if failed {
            self.failures = self.failures.saturating_add(1);
            self.successes = 0;
        } else {
            self.successes = self.successes.saturating_add(1);
            self.failures = 0;
        }
        let was_critical = self.status == Health::Critical;
        let enough = match (failed, was_critical) {
            (true, true) | (false, false) => true,
            (true, false) => self.failures >= check.failures_before_critical,
            (false, true) => self.successes >= check.successes_before_passing,
        };
        if enough {
            self.set(now, outcome);
        }
    }

    /// The application did not report in time: critical at once, because the time already counts several reports.
    pub(crate) fn expire(&mut self, now: Time, ttl_ms: u64) {
        self.successes = 0;
        self.set(now, RunResult { status: Health::Critical, output: format!("no report for {ttl_ms} ms") });
    }

    fn set(&mut self, now: Time, outcome: RunResult) {
        self.status = outcome.status;
        self.output = outcome.output;
        self.critical_since = match self.status {
            Health::Critical => self.critical_since.or(Some(now)),
            Health::Passing | Health::Warning => None,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use convoke_core::member::Probe;

    fn outcome(status: Health) -> RunResult {
        RunResult { status, output: status.to_string() }
    }

    #[test]
    fn thresholds_count_results_in_a_row() {
        let check = Check {
            failures_before_critical: 3,
            successes_before_passing: 2,
            ..Check::new("c", Probe::Tcp { address: "h:1".into() })
        };
        let mut state = CheckState::new(&CheckResult::default());
        let mut statuses = Vec::new();
        let run = [
            Health::Critical,
            Health::Critical,
            Health::Passing,
            Health::Critical,
            Health::Critical,
            Health::Critical,
            Health::Passing,
            Health::Critical,
            Health::Passing,
            Health::Passing,
            Health::Warning,
        ];
        for (second, status) in (1..).zip(run) {
            state.take(Time::from_secs(second), &check, outcome(status));
            statuses.push(state.status);
            if second == 8 {
                assert_eq!(state.critical_since, Some(Time::from_secs(6)), "one success does not interrupt it");
            }
        }
        let (passing, critical) = (Health::Passing, Health::Critical);
        let expected = [passing, passing, passing, passing, passing, critical, critical, critical, critical, passing];
        assert_eq!(statuses[..10], expected);
        assert_eq!((statuses[10], state.critical_since), (Health::Warning, None));
    }
}
