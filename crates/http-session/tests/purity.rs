//! The decisions about HTTP sessions are built without what connects to anything.

use std::path::Path;

#[test]
fn http_sessions_add_an_allowed_list_of_crates_to_the_core() {
    let added = [
        "base64",
        "block-buffer",
        "cfg-if",
        "convoke-http-session",
        "cpufeatures",
        "crypto-common",
        "digest",
        "hybrid-array",
        "sha2",
        "typenum",
    ];
    convoke_purity::assert_adds("convoke-http-session", "convoke-core", &added);
}

#[test]
fn the_code_uses_no_forbidden_word() {
    convoke_purity::assert_clean([&*Path::new(env!("CARGO_MANIFEST_DIR")).join("src")]);
}
