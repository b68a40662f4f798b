//! A node behind real sockets, as small as possible, and a proxy that fails on demand.

#[path = "../../src/testing/convert.rs"]
#[allow(dead_code)]
mod convert;
mod proxy;
mod server;

pub use proxy::Proxy;
pub use server::Server;

use std::time::Duration;

/// Waits for a condition, with a deadline.
pub async fn eventually(what: &str, condition: impl AsyncFn() -> bool) {
    for _ in 0..1000 {
        if condition().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it did not happen in time: {what}");
}
