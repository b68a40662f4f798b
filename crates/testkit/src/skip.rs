//! Reports of skipped tests.

use std::io::Write;

/// Reports on stderr that this test was skipped and why, also when the output of passing tests is captured.
pub fn skip(test: &str, why: impl std::fmt::Display) {
    // A closed stderr is no reason to fail.
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {why}");
}
