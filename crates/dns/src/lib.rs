//! The registry of a node as a DNS zone. docs/dns.md states the rules (Q1–Q12).
//!
//! [`Zone`] computes the response to a query, bytes in and bytes out, and uses no sockets. [`Dns`] serves a zone over
//! UDP and TCP. This crate only reads the registry; it must not change it, resolve foreign names or contact other
//! nodes.

mod clients;
mod consul;
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
pub use zone::{Shown, Transport, Zone};
