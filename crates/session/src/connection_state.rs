//! Whether the client is connected, as the application sees it.

use crate::Error;
use std::time::Duration;

/// Where a client is on its way to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionState {
    Connecting {
        address: String,
    },
    /// Attached: registrations are in place, watches run.
    Connected {
        /// Id of the node.
        node: String,
        address: String,
    },
    /// On its own again: tries the next node after a pause. Local views stay readable.
    Disconnected {
        reason: Error,
        retry_in: Duration,
    },
    /// Closed by the application.
    Closed,
}
