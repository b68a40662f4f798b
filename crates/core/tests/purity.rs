//! The core reaches no runtime, socket, clock, operating-system randomness or randomly ordered map.

use std::path::Path;

#[test]
fn the_core_is_built_from_an_allowed_list_of_crates() {
    let allowed = [
        "bytes",
        "convoke-core",
        "convoke-counters",
        "convoke-filter",
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
    ];
    convoke_purity::assert_built_from("convoke-core", &allowed);
}

#[test]
fn the_code_of_the_core_uses_no_forbidden_word() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    convoke_purity::assert_clean([&*own.join("src"), &*own.join("../filter/src")]);
}
