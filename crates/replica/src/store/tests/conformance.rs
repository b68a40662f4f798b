//! The engine's storage suite, over both kinds of storage.

use super::sizes;
use crate::counters::Counting;
use crate::raft::Types;
use crate::state::{Snapshots, State, StateMachine};
use crate::store::LogStore;
use crate::store::disk::{Directory, Disk};
use convoke_log::{LogLimits, Machine, ReplicaId};
use openraft::StorageError;
use openraft::testing::log::{StoreBuilder, Suite};
use std::sync::Arc;
use tempfile::TempDir;

struct OnDisk;
struct InMemory;

fn machine(store: &LogStore, disk: Option<Arc<dyn Disk>>) -> StateMachine {
    let state = State::new(ReplicaId(0), 0, Machine::new(LogLimits::default()).unwrap());
    let snapshots = Snapshots::new(None, disk, Arc::new(Counting::default()));
    StateMachine::new(Arc::new(state), Arc::new(snapshots), store.clone()).with_gaps()
}

impl StoreBuilder<Types, LogStore, StateMachine, TempDir> for OnDisk {
    async fn build(&self) -> Result<(TempDir, LogStore, StateMachine), StorageError<Types>> {
        let dir = tempfile::tempdir().unwrap();
        let disk: Arc<dyn Disk> = Directory::open(dir.path()).unwrap();
        let store = LogStore::open(disk.clone(), sizes(4096), Arc::default()).unwrap();
        let machine = machine(&store, Some(disk));
        Ok((dir, store, machine))
    }
}

impl StoreBuilder<Types, LogStore, StateMachine, ()> for InMemory {
    async fn build(&self) -> Result<((), LogStore, StateMachine), StorageError<Types>> {
        let store = LogStore::in_memory(sizes(4096));
        let machine = machine(&store, None);
        Ok(((), store, machine))
    }
}

#[tokio::test]
async fn the_log_on_disk_passes_the_suite_of_the_engine() {
    Suite::test_all(OnDisk).await.unwrap();
}

#[tokio::test]
async fn the_log_in_memory_passes_the_suite_of_the_engine() {
    Suite::test_all(InMemory).await.unwrap();
}
