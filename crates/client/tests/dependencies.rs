//! The SDK does not depend on the core, so that applications do not contain a registry.

use convoke_purity::dependency_closure;

#[test]
fn the_sdk_does_not_depend_on_the_core() {
    let found = dependency_closure("convoke-client");
    assert!(found.iter().any(|name| name == "convoke-proto"), "{found:?}");
    assert!(!found.iter().any(|name| name == "convoke-core"), "{found:?}");
}

#[test]
fn the_dependency_check_detects_the_core() {
    assert!(dependency_closure("convoke-sim").iter().any(|name| name == "convoke-core"));
}
