//! Between the core's types and those of the wire.

mod member;
mod request;
mod sentences;
mod views;

pub(crate) use member::{json_member, wire_member};
pub(crate) use request::{attach_member, filter, metadata_update, version, versions};
pub(crate) use views::{explanation, log_degraded, millis, nodes, services, status};
