//! Communication between replicas: connections to the peer port with their own preamble, bounded frames, and a deadline
//! for every request.

pub(crate) mod client;
mod dial;
pub(crate) mod frame;
pub(crate) mod link;
pub(crate) mod message;
mod senders;
pub(crate) mod server;

use convoke_base::framing::Preamble;

/// Identifies connections between replicas of the log on a peer port.
pub const LOG_PREAMBLE: Preamble = *b"CONVOKEL";
pub use dial::{Dial, DialWithLookup, Duplex, NodeLog, NodeLookup, TcpDial, TlsDial};
pub(crate) use senders::Senders;
