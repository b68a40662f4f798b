//! The SDK's decisions do not depend on the core or on crates that open connections.

use convoke_purity::dependency_closure;

#[test]
fn the_session_depends_on_messages_only() {
    let found = dependency_closure("convoke-session");
    assert!(found.iter().any(|name| name == "convoke-proto"), "{found:?}");
    for absent in ["convoke-core", "convoke-client", "hyper", "h2", "mio", "socket2"] {
        assert!(!found.iter().any(|name| name == absent), "{absent} is among {found:?}");
    }
}
