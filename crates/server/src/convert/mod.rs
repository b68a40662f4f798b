//! Conversions between the core's types and the wire types. Those that the simulator needs too are in
//! `convoke-convert`.

mod health;
mod member;
mod sentences;
mod views;

pub(crate) use convoke_convert::{change, event, filter, member as wire_member, member_spec, millis, resume, version};
pub(crate) use health::health;
pub(crate) use member::JsonMember;
pub(crate) use views::{explanation, log_degraded, nodes, services, status, tls};
