//! The machine reaches no runtime, socket, file, clock, operating-system randomness or randomly ordered map. What does input and output for
//! it is a crate of its own (`convoke-replica`).

use std::path::Path;

#[test]
fn the_machine_is_built_from_an_allowed_list_of_crates() {
    let allowed = [
        "bytes",
        "convoke-core",
        "convoke-filter",
        "convoke-log",
        "crc32c",
        "fastrand",
        "foldhash",
        "hashbrown",
        "proc-macro2",
        "quote",
        "smol_str",
        "syn",
        "thiserror",
        "thiserror-impl",
        "unicode-ident",
        "xxhash-rust",
    ];
    convoke_purity::assert_built_from("convoke-log", &allowed);
}

#[test]
fn the_code_of_the_machine_uses_no_forbidden_word() {
    convoke_purity::assert_clean([&*Path::new(env!("CARGO_MANIFEST_DIR")).join("src")]);
}
