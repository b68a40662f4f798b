//! Mutated snapshot files: reported as damaged, or the same state.

use super::crash::image;
use super::fake_disk::FakeDisk;
use crate::store::{StoreError, snapshot_file};

/// Magic, length and checksum of the metadata that follows.
const HEAD_BYTES: usize = 16;

#[test]
fn fuzz_snapshot_files() {
    let (disk, saved) = (FakeDisk::default(), image(7));
    snapshot_file::save(&disk, &saved).unwrap();
    let [(name, whole)] = &disk.files()[..] else { panic!("one file") };
    let check = |bytes: &[u8]| {
        let damaged = disk.copy();
        damaged.overwrite(name, bytes.to_vec());
        match snapshot_file::load(&damaged) {
            Ok(loaded) => {
                let machine = loaded.unwrap().machine;
                assert_eq!(machine.state_hash(), saved.machine.state_hash(), "another state was accepted");
            }
            Err(error) => assert!(matches!(error, StoreError::Damaged { .. }), "{error}"),
        }
    };
    convoke_fuzz::bytes(std::slice::from_ref(whole), check);
    // With a correct checksum of mutated metadata.
    let length = u32::from_le_bytes(whole[8..12].try_into().unwrap()) as usize;
    let (metadata, frames) = whole[HEAD_BYTES..].split_at(length);
    convoke_fuzz::bytes(&[metadata.to_vec()], |metadata| {
        let length = u32::try_from(metadata.len()).unwrap().to_le_bytes();
        let checksum = crc32c::crc32c(metadata).to_le_bytes();
        check(&[&whole[..8], &length, &checksum, metadata, frames].concat());
    });
}
