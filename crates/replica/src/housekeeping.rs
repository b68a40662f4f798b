//! Snapshots and purges by size, so that neither memory nor disk grows without bound.

use crate::engine::Engine;
use openraft::async_runtime::watch::WatchReceiver;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Interval between checks while a snapshot is written.
const PAUSE: Duration = Duration::from_millis(100);
/// Interval between retries of a snapshot that did not complete. The engine ignores a request without new entries, and
/// nothing would request it later.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// Duration after which a warning is logged.
const WARN_AFTER: Duration = Duration::from_secs(600);

/// Takes a snapshot when the log has grown enough, then purges the log before it.
pub(crate) async fn keep(engine: Arc<Engine>) {
    let limits = engine.config.limits.clone();
    loop {
        engine.store.grown().await;
        let (before, begin) = (snapshot(&engine), Instant::now());
        let mut warned = false;
        // The log can shrink without a snapshot: the last purge was slow, or a new leader truncated it.
        let is_wanted = || snapshot(&engine) == before && engine.store.has_grown();
        // The snapshot is written in the background; the next one starts after it.
        while is_wanted() {
            if engine.raft.trigger().snapshot().await.is_err() {
                return;
            }
            if begin.elapsed() > WARN_AFTER && !std::mem::replace(&mut warned, true) {
                tracing::warn!(elapsed_s = begin.elapsed().as_secs(), "log snapshot is slow");
            }
            let _ = tokio::time::timeout(RETRY_INTERVAL, async {
                while is_wanted() {
                    tokio::time::sleep(PAUSE).await;
                }
            })
            .await;
        }
        let purgeable = snapshot(&engine).and_then(|limit| engine.store.purgeable(limits.catch_up_bytes, limit));
        if let Some(upto) = purgeable
            && engine.raft.trigger().purge_log(upto).await.is_err()
        {
            return;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Returns the engine's index of the last entry in the snapshot.
fn snapshot(engine: &Engine) -> Option<u64> {
    engine.raft.metrics().borrow_watched().snapshot.map(|last| last.index)
}
