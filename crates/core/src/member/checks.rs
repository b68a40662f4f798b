//! The checks of a member and their last results, as its record holds them (HC1).

use super::check::{Check, OUTPUT_BYTES_MAX};
use convoke_filter::Health;
use std::sync::Arc;

/// The last result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CheckResult {
    pub status: Health,
    /// At most [`OUTPUT_BYTES_MAX`] bytes.
    pub output: String,
    /// Wall-clock ms since when the status holds; for display only.
    pub since: u64,
}

impl CheckResult {
    /// A result whose output is cut to what fits.
    pub fn new(status: Health, output: &str, since: u64) -> CheckResult {
        CheckResult { status, output: beginning(output, OUTPUT_BYTES_MAX).to_owned(), since }
    }
}

/// The longest beginning of a text with at most this many bytes.
pub fn beginning(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Checks and results, one result for each check.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Checks {
    /// Shared by all records of a registration.
    definitions: Arc<[Check]>,
    results: Box<[CheckResult]>,
}

impl Checks {
    /// `None` if there are no checks, or if the numbers of checks and results differ.
    pub fn new(definitions: Arc<[Check]>, results: Vec<CheckResult>) -> Option<Arc<Checks>> {
        let valid = !definitions.is_empty() && definitions.len() == results.len();
        valid.then(|| Arc::new(Checks { definitions, results: results.into() }))
    }

    /// The checks of a registration. A check that the member had before keeps its result (HC2).
    pub(crate) fn registered(checks: &[Check], held: Option<&Arc<Checks>>, wall_ms: u64) -> Option<Arc<Checks>> {
        if let Some(held) = held.filter(|held| *held.definitions == *checks) {
            return Some(held.clone());
        }
        let result = |check: &Check| {
            let kept = held.and_then(|held| held.iter().find(|(known, _)| *known == check));
            let begin = || CheckResult { status: check.initial, output: String::new(), since: wall_ms };
            kept.map_or_else(begin, |(_, result)| result.clone())
        };
        let results = checks.iter().map(result).collect();
        Checks::new(checks.into(), results)
    }

    /// The same checks with other results.
    pub(crate) fn with_results(&self, results: Vec<CheckResult>) -> Option<Arc<Checks>> {
        Checks::new(self.definitions.clone(), results)
    }

    pub fn definitions(&self) -> &Arc<[Check]> {
        &self.definitions
    }

    pub fn results(&self) -> &[CheckResult] {
        &self.results
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Check, &CheckResult)> {
        self.definitions.iter().zip(&self.results)
    }

    /// The worst result.
    pub fn health(&self) -> Health {
        self.results.iter().map(|result| result.status).max().unwrap_or_default()
    }
}

/// The health of a member with these checks.
pub(crate) fn health_of(checks: Option<&Arc<Checks>>) -> Health {
    checks.map_or(Health::Passing, |checks| checks.health())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::Probe;

    fn ttl(id: &str, ttl_ms: u64) -> Check {
        Check::new(id, Probe::Ttl { ttl_ms })
    }

    #[test]
    fn health_is_the_worst_result() {
        let checks = Checks::registered(&[ttl("a", 1_000), ttl("b", 1_000)], None, 5).unwrap();
        assert_eq!((checks.health(), checks.results()[0].since), (Health::Critical, 5));
        let with = |a, b| checks.with_results(vec![CheckResult::new(a, "", 6), CheckResult::new(b, "", 6)]).unwrap();
        assert_eq!(with(Health::Passing, Health::Warning).health(), Health::Warning);
        assert_eq!(with(Health::Passing, Health::Passing).health(), Health::Passing);
        assert!(checks.with_results(Vec::new()).is_none());
        assert!(Checks::registered(&[], Some(&checks), 9).is_none());
    }

    #[test]
    fn checks_that_did_not_change_keep_their_results() {
        let first = Checks::registered(&[ttl("a", 1_000), ttl("b", 1_000)], None, 5).unwrap();
        let passing = vec![CheckResult::new(Health::Passing, "ok", 6), CheckResult::new(Health::Passing, "ok", 6)];
        let first = first.with_results(passing).unwrap();
        let again = Checks::registered(&[ttl("b", 2_000), ttl("a", 1_000)], Some(&first), 9).unwrap();
        let statuses: Vec<_> = again.iter().map(|(check, result)| (check.id.as_str(), result.status)).collect();
        assert_eq!(statuses, [("b", Health::Critical), ("a", Health::Passing)]);
    }

    #[test]
    fn an_output_is_cut_at_a_character() {
        let long = "é".repeat(OUTPUT_BYTES_MAX);
        assert_eq!(CheckResult::new(Health::Passing, &format!("x{long}"), 0).output.len(), OUTPUT_BYTES_MAX - 1);
    }
}
