//! The protocol as stories: a few nodes, in-memory connections, virtual time.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod cluster;
mod explaining;
mod links;
mod maintenance;
mod recalled;
mod sessions;
mod streams;
mod takeovers;
mod timeline;
