//! Groups of replicas over real sockets.

mod backups;
mod begin;
mod cluster;
mod failover;
mod members;
mod single;
mod snapshots;
