//! Conversions between the core's types and the wire types.

mod member;
mod request;
mod sentences;
mod views;

pub(crate) use member::{JsonMember, wire_member};
pub(crate) use request::{attach_member, filter, metadata_update, version, versions};
pub(crate) use views::{explanation, log_degraded, millis, nodes, services, status};
