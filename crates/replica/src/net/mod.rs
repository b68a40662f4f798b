//! Replicas talk: a connection of the peer port, its own preamble, bounded frames, a deadline on every question.

pub(crate) mod client;
mod dial;
pub(crate) mod frame;
pub(crate) mod link;
pub(crate) mod message;
pub(crate) mod server;

pub use convoke_base::framing::LOG_PREAMBLE;
pub use dial::{Dial, Duplex, Guided, Tcp};
