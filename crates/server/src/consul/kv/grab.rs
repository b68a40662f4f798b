//! The lock of the log behind a key that a session acquires (CK4). The key names its holder, and its lock enforces the delay
//! after the death of a holder, which only the log can count.

use crate::http::in_open_session;
use convoke_client::log::{Acquire, Consistency, Kv};
use convoke_consul::Blocked;
use convoke_proto::{Error, ErrorCode};
use std::collections::BTreeMap;
use std::time::Duration;

/// Prefix of the names of these locks.
const KEYS: &str = "consul/key/";
/// Time that a session has for the write after it took the lock of a key. After it, the lock is free for others if the key
/// does not name the session.
const GRACE: Duration = Duration::from_secs(5);

/// Locks that a transaction took, by key: their name and their fence.
#[derive(Debug, Default)]
pub(super) struct Grabbed(BTreeMap<String, (String, u64)>);

pub(super) enum NotGrabbed {
    Blocked(String, Blocked),
    /// The session has ended, or what was read is not current: read again.
    Again,
    Failed(Error),
}

impl Grabbed {
    pub(super) fn of(&self, key: &str) -> Option<(String, u64)> {
        self.0.get(key).cloned()
    }

    /// Gives the locks up after a transaction that was not executed.
    pub(super) async fn release(self, kv: &Kv) {
        for (name, fence) in self.0.into_values() {
            release(kv, &name, fence).await;
        }
    }
}

fn lock_of(key: &str) -> String {
    format!("{KEYS}{key}")
}

/// Takes the locks of keys. `delays` are the lock delays of the leases.
pub(super) async fn grab(
    kv: &Kv,
    wanted: &[(String, u64)],
    delays: &BTreeMap<u64, Duration>,
    read_at: Consistency,
    grabbed: &mut Grabbed,
) -> Result<(), NotGrabbed> {
    for (key, lease) in wanted {
        let name = lock_of(key);
        let delay = delays.get(lease).copied().unwrap_or_default();
        let acquire = Acquire::new(name.clone()).lease_id(*lease).no_wait().delay(delay);
        let locks = kv.locks();
        match in_open_session(|| locks.acquire(acquire.clone())).await {
            Ok(guard) => {
                grabbed.0.insert(key.clone(), (name, guard.detach()));
            }
            Err(error) if error.code == ErrorCode::NotFound => return Err(NotGrabbed::Again),
            // The key may name a holder that this node has not seen yet.
            Err(error) if error.code == ErrorCode::LockHeld && read_at == Consistency::Local => {
                return Err(NotGrabbed::Again);
            }
            Err(error) if error.code == ErrorCode::LockHeld => return Err(blocked(kv, key, &name).await),
            Err(error) => return Err(NotGrabbed::Failed(error)),
        }
    }
    Ok(())
}

/// A current read has shown that the key names no holder, and its lock is not free nevertheless.
async fn blocked(kv: &Kv, key: &str, name: &str) -> NotGrabbed {
    let page = match kv.locks().show_page(name.to_owned(), Consistency::Linearizable).await {
        Ok(page) => page,
        Err(error) => return NotGrabbed::Failed(error),
    };
    let Some(lock) = page.locks.first() else { return NotGrabbed::Again };
    let Some(holder) = lock.holders.first() else {
        let is_delayed = lock.delayed_until_us > page.log_time_us;
        return if is_delayed { NotGrabbed::Blocked(key.to_owned(), Blocked::Delay) } else { NotGrabbed::Again };
    };
    if page.log_time_us.saturating_sub(holder.since_us) < u64::try_from(GRACE.as_micros()).unwrap_or(u64::MAX) {
        return NotGrabbed::Blocked(key.to_owned(), Blocked::Taken);
    }
    // The key was deleted or written by another client, or the request that took the lock was lost.
    release(kv, name, holder.fence).await;
    NotGrabbed::Again
}

/// Releases the locks of keys that are no longer held. A lock that is left over is released by the next acquire.
pub(super) async fn free(kv: &Kv, freed: &BTreeMap<String, u64>) {
    for (key, lease) in freed {
        let name = lock_of(key);
        let Ok(Some(lock)) = kv.locks().show(name.clone(), Consistency::Linearizable).await else { continue };
        if let Some(holder) = lock.holders.iter().find(|holder| holder.lease == *lease) {
            release(kv, &name, holder.fence).await;
        }
    }
}

async fn release(kv: &Kv, name: &str, fence: u64) {
    let locks = kv.locks();
    if let Err(error) = in_open_session(|| locks.release(name.to_owned(), fence)).await {
        tracing::debug!(lock = name, fence, %error, "the lock of a key was not released");
    }
}
