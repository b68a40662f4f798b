//! Connections over real sockets: right and wrong certificates on both ports, fallback, reload and slow handshakes.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod cluster;
mod fallback;
mod reload;
mod slow;
mod wrong_certificates;
