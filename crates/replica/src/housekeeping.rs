//! Snapshots and the log behind them, by bytes: neither memory nor disk grows with time.

use crate::engine::Engine;
use openraft::async_runtime::watch::WatchReceiver;
use std::sync::Arc;
use std::time::Duration;

/// Pause between two looks while a snapshot is being written.
const PAUSE: Duration = Duration::from_millis(100);

/// Takes a snapshot when the log has grown enough, then lets go of what is behind it.
pub(crate) async fn keep(engine: Arc<Engine>) {
    let limits = engine.config.limits.clone();
    loop {
        engine.store.grown().await;
        let before = snapshot(&engine);
        if engine.raft.trigger().snapshot().await.is_err() {
            return;
        }
        // Written beside everything else; the next one is not begun before this one is through.
        let patience = tokio::time::timeout(Duration::from_secs(600), async {
            while snapshot(&engine) == before {
                tokio::time::sleep(PAUSE).await;
            }
        });
        if patience.await.is_err() {
            tracing::warn!("a snapshot of the log takes very long");
            continue;
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

/// The engine's index of the last entry in a snapshot.
fn snapshot(engine: &Engine) -> Option<u64> {
    engine.raft.metrics().borrow_watched().snapshot.map(|last| last.index)
}
