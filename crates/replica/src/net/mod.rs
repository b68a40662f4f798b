//! Communication between replicas: connections to the peer port with their own preamble, bounded frames, and a deadline
//! for every request.

pub(crate) mod client;
mod dial;
pub(crate) mod frame;
pub(crate) mod link;
pub(crate) mod message;
pub(crate) mod server;

pub use convoke_base::framing::LOG_PREAMBLE;
pub use dial::{Dial, Duplex, DialWithLookup, TcpDial};
