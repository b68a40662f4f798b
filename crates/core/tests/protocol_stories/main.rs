//! The protocol as stories: a few nodes, in-memory connections, virtual time.

mod cluster;
mod explaining;
mod links;
mod maintenance;
mod sessions;
mod takeovers;
mod timeline;
