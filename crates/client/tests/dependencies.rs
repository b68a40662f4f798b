//! The SDK is built without the core: applications do not carry a registry around.

use convoke_purity::dependency_closure;

#[test]
fn the_sdk_does_not_depend_on_the_core() {
    let found = dependency_closure("convoke-client");
    assert!(found.iter().any(|name| name == "convoke-proto"), "{found:?}");
    assert!(!found.iter().any(|name| name == "convoke-core"), "{found:?}");
}

#[test]
fn a_dependency_on_the_core_would_be_noticed() {
    assert!(dependency_closure("convoke-sim").iter().any(|name| name == "convoke-core"));
}
