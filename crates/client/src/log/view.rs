//! A local copy of keys, kept up to date by a watch.

use super::{KeyChange, KeyValue, KeyWatchEvent, Kv, WatchKeys};
use crate::{Error, ErrorCode};
use prost::bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use tokio::sync::watch;

/// A local copy of the keys with a prefix. Reading it needs no network access.
///
/// It changes revision by revision, so all changes of a transaction become visible at once. While no replica is
/// reachable, it keeps its last state; [`revision`](Self::revision) shows how far it has come. Dropping it ends it.
///
/// ```no_run
/// # async fn reload(kv: convoke_client::log::Kv) -> Result<(), convoke_client::Error> {
/// let config = kv.view("config/");
/// config.wait_caught_up().await?;
/// loop {
///     let limit = config.get(b"config/limit").map(|record| record.value);
///     println!("limit: {limit:?}");
///     config.changed().await?;
/// }
/// # }
/// ```
#[derive(Debug)]
#[must_use = "dropping a view ends it"]
pub struct KeyView {
    keys: Arc<RwLock<Keys>>,
    progress: watch::Receiver<Progress>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Keys {
    records: BTreeMap<Bytes, KeyValue>,
    revision: u64,
    /// Changes of a revision that is not complete yet.
    pending: Vec<KeyChange>,
}

/// State of the view.
#[derive(Clone, Debug, Default)]
struct Progress {
    /// Number of changes of the view.
    changes: u64,
    caught_up: bool,
    failed: Option<Error>,
}

impl Keys {
    /// Applies an event. Returns whether the visible keys may have changed.
    fn apply(&mut self, event: KeyWatchEvent) -> bool {
        match event {
            KeyWatchEvent::Reset { revision, records, .. } => {
                self.records = records.into_iter().map(|record| (record.key.clone(), record)).collect();
                self.pending.clear();
                self.revision = revision;
                true
            }
            KeyWatchEvent::Progress { revision } => {
                self.revision = self.revision.max(revision);
                false
            }
            KeyWatchEvent::Change(change) => {
                let (revision, last) = (change.revision, change.last);
                self.pending.push(change);
                if !last {
                    return false;
                }
                for change in std::mem::take(&mut self.pending) {
                    match change.record {
                        Some(record) => drop(self.records.insert(change.key, record)),
                        None => drop(self.records.remove(&change.key)),
                    }
                }
                self.revision = revision;
                true
            }
        }
    }
}

impl Kv {
    /// Keeps a local copy of all keys that begin with `prefix`.
    pub fn view(&self, prefix: impl Into<Bytes>) -> KeyView {
        let mut watch = self.watch(WatchKeys::prefix(prefix).with_records());
        let keys = Arc::<RwLock<Keys>>::default();
        let (sender, progress) = watch::channel(Progress::default());
        let copy = keys.clone();
        let task = tokio::spawn(async move {
            while let Some(event) = watch.next().await {
                match event {
                    Ok(event) => {
                        let changed = copy.write().unwrap_or_else(PoisonError::into_inner).apply(event);
                        if changed {
                            sender.send_modify(|progress| {
                                progress.changes += 1;
                                progress.caught_up = true;
                            });
                        }
                    }
                    Err(error) => {
                        sender.send_modify(|progress| progress.failed = Some(error));
                        return;
                    }
                }
            }
        });
        KeyView { keys, progress, task }
    }
}

impl KeyView {
    pub fn get(&self, key: &[u8]) -> Option<KeyValue> {
        self.keys().records.get(key).cloned()
    }

    /// Returns all records in the order of their keys.
    pub fn all(&self) -> Vec<KeyValue> {
        self.keys().records.values().cloned().collect()
    }

    /// Returns the revision that the view shows; 0 before it has caught up.
    pub fn revision(&self) -> u64 {
        self.keys().revision
    }

    /// Waits until the view shows the state at its start.
    pub async fn wait_caught_up(&self) -> Result<(), Error> {
        self.wait(|progress| progress.caught_up).await
    }

    /// Waits for the next change of the view after this call. Fails if no node can accept the watch.
    pub async fn changed(&self) -> Result<(), Error> {
        let seen = self.progress.borrow().changes;
        self.wait(|progress| progress.changes > seen).await
    }

    async fn wait(&self, done: impl Fn(&Progress) -> bool) -> Result<(), Error> {
        let mut progress = self.progress.clone();
        let found = progress.wait_for(|progress| done(progress) || progress.failed.is_some()).await;
        match found.map(|progress| progress.failed.clone()) {
            Ok(None) => Ok(()),
            Ok(Some(error)) => Err(error),
            Err(_) => Err(Error::new(ErrorCode::FailedPrecondition, "the view has ended with its runtime")),
        }
    }

    fn keys(&self) -> RwLockReadGuard<'_, Keys> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for KeyView {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::ResetReason;

    fn record(key: &'static str, value: &'static str) -> KeyValue {
        KeyValue { key: key.into(), value: value.into(), ..KeyValue::default() }
    }

    fn change(revision: u64, last: bool, key: &'static str, value: Option<&'static str>) -> KeyWatchEvent {
        let record = value.map(|value| record(key, value));
        KeyWatchEvent::Change(KeyChange { revision, last, key: key.into(), record, previous: None })
    }

    #[test]
    fn a_view_changes_revision_by_revision() {
        let mut keys = Keys::default();
        let records = vec![record("a", "1"), record("b", "1")];
        assert!(keys.apply(KeyWatchEvent::Reset { reason: ResetReason::Start, revision: 3, records }));
        assert!(!keys.apply(change(4, false, "a", Some("2"))), "the rest of the transaction follows");
        assert_eq!(keys.records["a".as_bytes()].value, "1");
        assert!(keys.apply(change(4, true, "b", None)));
        assert_eq!((keys.records["a".as_bytes()].value.clone(), keys.records.len(), keys.revision), ("2".into(), 1, 4));
        assert!(!keys.apply(KeyWatchEvent::Progress { revision: 9 }));
        assert_eq!(keys.revision, 9);
        assert!(!keys.apply(change(10, false, "c", Some("1"))));
        let reset =
            KeyWatchEvent::Reset { reason: ResetReason::OtherLog, revision: 2, records: vec![record("z", "1")] };
        assert!(keys.apply(reset));
        assert_eq!((keys.records.len(), keys.revision, keys.pending.len()), (1, 2, 0), "a new log starts again");
    }
}
