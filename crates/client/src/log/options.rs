//! Options of a handle.

use std::time::Duration;

/// Options of a handle, which has its own log session.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Options {
    pub(crate) ttl: Duration,
    pub(crate) client: Option<String>,
    pub(crate) pipelined: bool,
    pub(crate) window: usize,
    pub(crate) timeout: Option<Duration>,
    pub(crate) node: Option<String>,
    pub(crate) principal: Option<String>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            ttl: Duration::from_secs(30),
            client: None,
            pipelined: true,
            window: 64,
            timeout: None,
            node: None,
            principal: None,
        }
    }
}

impl Options {
    /// Sets the time without a request or keep-alive after which the session expires; 30 s by default. The SDK sends
    /// keep-alives.
    pub fn ttl(mut self, ttl: Duration) -> Options {
        self.ttl = ttl;
        self
    }

    /// Sets a durable client name. A process that opens a session under this name ends the predecessor's session, and
    /// no request of the predecessor takes effect afterwards. If the predecessor is still running, its requests
    /// fail with `SUPERSEDED`, and it does not reclaim the name.
    pub fn client_name(mut self, name: impl Into<String>) -> Options {
        self.client = Some(name.into());
        self
    }

    /// Marks the session as one of a node, which uses the places reserved for nodes (LS7). For nodes only: the leader
    /// accepts the ids of nodes that it knows.
    #[doc(hidden)]
    pub fn of_node(mut self, node: impl Into<String>) -> Options {
        self.node = Some(node.into());
        self
    }

    /// Marks the session of a node as one for the requests of this principal (AU15). The leader accepts it from nodes only.
    #[doc(hidden)]
    pub fn for_principal(mut self, principal: impl Into<String>) -> Options {
        self.principal = Some(principal.into());
        self
    }

    /// Sets how many requests may be in flight; 64 by default. They take effect in the order they were issued.
    pub fn window(mut self, window: usize) -> Options {
        self.window = window.max(1);
        self
    }

    /// Allows one live request at a time: each request abandons the previous one, even if a caller still waits for it.
    ///
    /// Without this option, only dropping a request's future abandons it.
    pub fn one_at_a_time(mut self) -> Options {
        self.pipelined = false;
        self
    }

    /// Sets how long a request may wait for an answer. A request that was not sent by then fails with `TIMEOUT` and was
    /// not applied. A request that was sent fails with `OUTCOME_UNKNOWN` and its id, and counts as abandoned. By
    /// default requests wait until they are answered.
    pub fn timeout(mut self, timeout: Duration) -> Options {
        self.timeout = Some(timeout);
        self
    }
}
