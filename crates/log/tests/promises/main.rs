//! The promises of docs/log-protocol.md: as scenarios, against a model, and under an adversary.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod coordination;
mod delivery;
mod exhaustive;
mod model;
mod mutants;
mod script;
mod stories;
