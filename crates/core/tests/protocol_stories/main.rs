//! Protocol tests with a few nodes, in-memory connections and virtual time.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod agentless;
mod cluster;
mod explaining;
mod links;
mod maintenance;
mod mass_failures;
mod reattach;
mod regions;
mod sessions;
mod streams;
mod takeovers;
mod timeline;
mod versions;
