//! Peers and the links to them: tables and states (P1–P6). The actions are in `node`.

mod link;
mod table;
mod topology;

pub(crate) use link::{Incoming, Link, LinkPhase, Outgoing, Pending};
pub use table::dial_order;
pub(crate) use table::{Dial, HealthQuery, Peer, Peers, Seed};
