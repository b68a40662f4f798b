//! The state of the connection, as the application sees it.

use crate::Error;
use std::time::Duration;

/// The state of a client's connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionState {
    Connecting {
        address: String,
    },
    /// Attached: members are registered, watches run.
    Connected {
        /// Id of the node.
        node: String,
        address: String,
    },
    /// Tries the next node after a pause. Local views stay readable.
    Disconnected {
        reason: Error,
        retry_in: Duration,
    },
    /// Closed by the application.
    Closed,
}
