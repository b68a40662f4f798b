//! Tests whose tool is missing on this machine.

use std::fmt::Display;
use std::io::Write;

/// `fail`: a test that cannot run fails. `report`, or not set: it passes and is reported. `.ci/run` sets `fail`.
const VARIABLE: &str = "CONVOKE_TEST_SKIPS";

/// Reports on stderr that this test was skipped and why, also when the output of passing tests is captured.
///
/// # Panics
/// If `CONVOKE_TEST_SKIPS` is `fail`: the test must run.
#[track_caller]
pub fn skip(test: &str, why: impl Display) {
    match std::env::var(VARIABLE).as_deref() {
        Ok("fail") => panic!("{test} cannot run: {why} (set {VARIABLE}=report to skip it)"),
        Ok("report") | Err(_) => {}
        Ok(other) => panic!("{VARIABLE} is {other:?}: set it to fail or report"),
    }
    // A closed stderr is no reason to fail.
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {why}");
}
