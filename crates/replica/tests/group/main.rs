//! Groups of replicas over real sockets.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod backups;
mod begin;
mod cluster;
mod failover;
mod founding;
mod levels;
mod members;
mod moves;
mod mutants;
mod rollback;
mod single;
mod snapshots;
