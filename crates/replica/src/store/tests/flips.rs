//! Every flipped bit is reported, never skipped and never mistaken for a torn tail.

use super::crash::{at, entry};
use super::fake_disk::FakeDisk;
use super::sizes;
use crate::raft::{LeaderId, Types, Vote};
use crate::store::LogStore;
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::type_config::TypeConfigExt;
use std::sync::Arc;

fn open(disk: &FakeDisk) -> Result<LogStore, String> {
    LogStore::open(Arc::new(disk.clone()), sizes(2048), Arc::default()).map_err(|error| error.to_string())
}

async fn a_log() -> FakeDisk {
    let disk = FakeDisk::default();
    let mut store = open(&disk).unwrap();
    store.save_vote(&Vote { leader_id: LeaderId { term: 1, node_id: 1 }, committed: true }).await.unwrap();
    // The last entries have sectors full of zeros.
    for (index, bytes) in [(0, 30), (1, 900), (2, 1300), (3, 1600), (4, 10), (5, 700), (6, 1700)] {
        let (done, flushed) = Types::oneshot();
        store.append([entry(1, index, bytes)], IOFlushed::<Types>::signal(done)).await.unwrap();
        flushed.await.unwrap().unwrap();
    }
    drop(store);
    disk
}

#[tokio::test]
async fn every_flipped_bit_is_detected_or_harmless() {
    let disk = a_log().await;
    let whole = open(&disk.copy()).unwrap().entries();
    assert_eq!(whole.last().map(|entry| entry.log_id), Some(at(1, 6)));
    let (mut rejected, mut harmless) = (0, 0);
    for (name, bytes) in disk.files() {
        for bit in 0..8 * bytes.len() {
            // Every bit of headers and edges, and a sample of the rest.
            if bit / 8 % 64 >= 40 && bit % 13 != 0 {
                continue;
            }
            let damaged = disk.copy();
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            damaged.overwrite(&name, flipped);
            match open(&damaged) {
                Err(error) => {
                    assert!(error.contains(&name) && error.contains("is damaged"), "{error}");
                    rejected += 1;
                }
                Ok(store) => {
                    assert_eq!(store.entries(), whole, "bit {bit} of {name} changed the entries");
                    harmless += 1;
                }
            }
        }
    }
    assert!(rejected > 20 * harmless, "{rejected} detected, {harmless} in the padding between batches");
}

#[tokio::test]
async fn a_missing_segment_is_detected() {
    use crate::store::disk::Disk;
    let disk = a_log().await;
    let names: Vec<String> = disk.list().unwrap();
    assert!(names.len() > 2, "{names:?}");
    for name in &names[1..names.len() - 1] {
        let damaged = disk.copy();
        damaged.remove(name).unwrap();
        assert!(open(&damaged).unwrap_err().contains("missing"), "{name}");
    }
}
