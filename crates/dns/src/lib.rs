//! The registry of a node as a DNS zone. The rules (Q1–Q9) are in docs/dns.md.
//!
//! [`Zone`] turns the bytes of a query into the bytes of an answer and knows no sockets; [`Dns`] puts it on UDP and TCP.

mod counters;
mod error;
mod members;
mod message;
mod names;
mod server;
mod zone;

pub use counters::Counters;
pub use error::StartError;
pub use server::{Bound, Config, Dns};
pub use zone::{Transport, Zone};
