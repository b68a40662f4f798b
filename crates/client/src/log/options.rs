//! Settings of a handle.

use std::time::Duration;

/// How a handle uses the log. Every handle is a session of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Options {
    pub(crate) ttl: Duration,
    pub(crate) client: Option<String>,
    pub(crate) pipelined: bool,
    pub(crate) window: usize,
    pub(crate) timeout: Option<Duration>,
}

impl Default for Options {
    fn default() -> Options {
        Options { ttl: Duration::from_secs(30), client: None, pipelined: true, window: 64, timeout: None }
    }
}

impl Options {
    /// Silence after which the session ends; 30 s by default. The SDK sends signs of life by itself.
    pub fn ttl(mut self, ttl: Duration) -> Options {
        self.ttl = ttl;
        self
    }

    /// A durable name. A process that opens a session under the name of an earlier one ends that one's session: nothing the predecessor
    /// has sent can take effect from then on. The predecessor, if it lives, is told `SUPERSEDED` and does not fight back.
    pub fn client_name(mut self, name: impl Into<String>) -> Options {
        self.client = Some(name.into());
        self
    }

    /// How many requests may be on their way at once; 64 by default. They take effect in the order they were issued.
    pub fn window(mut self, window: usize) -> Options {
        self.window = window.max(1);
        self
    }

    /// One live request at a time: the next one abandons the one before it, even if that is still being waited for.
    ///
    /// Without this only dropping a request's future abandons it.
    pub fn one_at_a_time(mut self) -> Options {
        self.pipelined = false;
        self
    }

    /// How long a request may go without an answer. One that was not sent by then fails with `TIMEOUT` and has certainly not been applied;
    /// one that was sent fails with `OUTCOME_UNKNOWN`, names its id, and counts as abandoned. By default requests wait until they are
    /// answered.
    pub fn timeout(mut self, timeout: Duration) -> Options {
        self.timeout = Some(timeout);
        self
    }
}
