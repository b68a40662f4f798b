//! Conversions between the registry's types and the messages of `convoke.v1`, and the state of an attach stream.
//!
//! The server and the simulator use the same conversions, so that the simulator checks what a client of a real node
//! sends and receives. This crate performs no I/O and must not contain rules of the registry.

mod answer;
mod attach_state;
mod check;
mod event;
mod member;
mod request;

pub use answer::{attached, error, millis, notice, rejected_member, versioned};
pub use attach_state::{AttachSettings, AttachState, Calls, HeartbeatCall, Registrations, answer, operation};
pub use event::{change, event, reset_reason};
pub use member::member;
pub use request::{attach, attach_member, filter, invalid, member_spec, metadata_update, resume, version, versions};
