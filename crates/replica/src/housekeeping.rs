//! Snapshots and the log behind them, by bytes: neither memory nor disk grows with time.

use crate::engine::Engine;
use openraft::async_runtime::watch::WatchReceiver;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Pause between two looks while a snapshot is being written.
const PAUSE: Duration = Duration::from_millis(100);
/// How often a snapshot that does not come is asked for again. Without anything new to put into it there is none; when there is, nobody
/// would ask.
const AGAIN: Duration = Duration::from_secs(10);
/// After so long it is spoken of.
const VERY_LONG: Duration = Duration::from_secs(600);

/// Takes a snapshot when the log has grown enough, then lets go of what is behind it.
pub(crate) async fn keep(engine: Arc<Engine>) {
    let limits = engine.config.limits.clone();
    loop {
        engine.store.grown().await;
        let (before, begin) = (snapshot(&engine), Instant::now());
        let mut spoken = false;
        // It may be small again without one: the last purge was slow, or a new leader had another end of it.
        let is_wanted = || snapshot(&engine) == before && engine.store.has_grown();
        // Written beside everything else; the next one is not begun before this one is through.
        while is_wanted() {
            if engine.raft.trigger().snapshot().await.is_err() {
                return;
            }
            if begin.elapsed() > VERY_LONG && !std::mem::replace(&mut spoken, true) {
                tracing::warn!("a snapshot of the log takes very long");
            }
            let _ = tokio::time::timeout(AGAIN, async {
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

/// The engine's index of the last entry in a snapshot.
fn snapshot(engine: &Engine) -> Option<u64> {
    engine.raft.metrics().borrow_watched().snapshot.map(|last| last.index)
}
