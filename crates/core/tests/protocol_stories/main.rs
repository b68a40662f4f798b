//! Protocol tests with a few nodes, in-memory connections and virtual time.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod cluster;
mod explaining;
mod links;
mod maintenance;
mod reattach;
mod sessions;
mod streams;
mod takeovers;
mod timeline;
