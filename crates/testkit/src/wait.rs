//! Waiting for a condition.

use std::time::{Duration, Instant};

/// Time after which a test fails; generous, because machines are busy.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// Longest pause between two checks. A check may start processes, so pauses grow.
const POLL_MAX: Duration = Duration::from_millis(100);

/// Waits until the condition holds.
///
/// # Panics
/// If it does not hold within [`TEST_TIMEOUT`].
pub async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + TEST_TIMEOUT;
    while !condition().await {
        assert!(tokio::time::Instant::now() < deadline, "did not happen: {what}");
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Like [`eventually`] without a runtime, for tests with real processes.
///
/// # Panics
/// If it does not hold within [`TEST_TIMEOUT`].
#[track_caller]
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + TEST_TIMEOUT;
    let mut pause = LOOK_AGAIN;
    while !condition() {
        assert!(Instant::now() < deadline, "did not happen: {what}");
        #[allow(clippy::disallowed_methods, reason = "the pause between two looks at the condition")]
        std::thread::sleep(pause);
        pause = (pause * 2).min(POLL_MAX);
    }
}
