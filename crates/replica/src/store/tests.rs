//! Tests of the storage: the engine's own suite, crashes at every step, damage of every bit, mutated snapshots.

mod conformance;
mod crash;
mod fake_disk;
mod flips;
mod snapshot_fuzz;

use super::Sizes;

fn sizes(segment_bytes: u64) -> Sizes {
    Sizes { read_bytes: 1 << 20, segment_bytes, grown_bytes: u64::MAX }
}
