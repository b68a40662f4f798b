//! The state machine uses no runtime, socket, file, clock, operating-system randomness or randomly ordered map.
//! `convoke-replica` performs its I/O.

use std::path::Path;

#[test]
fn the_machine_is_built_from_the_base_an_allocation_free_string_and_a_hash() {
    convoke_purity::assert_adds("convoke-log", "convoke-base", &["convoke-log", "smol_str", "xxhash-rust"]);
}

#[test]
fn the_code_of_the_machine_uses_no_forbidden_word() {
    convoke_purity::assert_clean([&*Path::new(env!("CARGO_MANIFEST_DIR")).join("src")]);
}
