//! Saying that a test could not be run.

use std::io::Write;

/// Says on stderr, even where the output of passing tests is kept back, that this test was not run and why.
pub fn skip(test: &str, why: impl std::fmt::Display) {
    // Nobody to tell is no reason to fail.
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {why}");
}
