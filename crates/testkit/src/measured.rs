//! Figures that a test measures on this machine.

/// Prints a duration or size that the test does not assert, because it depends on the machine. The bounds are asserted
/// in virtual time, by the simulators.
pub fn measured(figure: &str) {
    println!("measured, not asserted: {figure}");
}
