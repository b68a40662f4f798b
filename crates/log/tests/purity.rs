//! The state machine uses no runtime, socket, file, clock, operating-system randomness or randomly ordered map.
//! `convoke-replica` performs its I/O.

use std::path::Path;

#[test]
fn the_machine_is_built_from_the_core_and_two_checksums() {
    convoke_purity::assert_adds("convoke-log", "convoke-core", &["convoke-log", "crc32c", "xxhash-rust"]);
}

#[test]
fn the_code_of_the_machine_uses_no_forbidden_word() {
    convoke_purity::assert_clean([&*Path::new(env!("CARGO_MANIFEST_DIR")).join("src")]);
}
