//! Answers and notices for clients.

use convoke_core::Rejection;
use convoke_core::node::{Attached, Notice};
use convoke_core::version::Version;
use convoke_proto::{Error, v1};
use std::time::Duration;

/// Converts a rejection of the core to an error of the interface.
pub fn error(rejection: Rejection) -> Error {
    Error {
        field: rejection.field.map(str::to_owned),
        limit: rejection.limit,
        known: rejection.known,
        ..Error::new(rejection.code, rejection.message)
    }
}

/// Converts the answer to an attach, without its members: a server sends them in parts.
pub fn attached(claim: u64, node: &str, attached: &Attached) -> v1::Attached {
    v1::Attached {
        claim,
        node: node.to_owned(),
        heartbeat_interval_ms: millis(attached.heartbeat_interval),
        timeout_ms: millis(attached.timeout),
        written: attached.last_write.n,
        ..v1::Attached::default()
    }
}

pub fn versioned(id: String, version: Version) -> v1::Versioned {
    v1::Versioned { id, version: version.to_string() }
}

pub fn rejected_member(id: String, rejection: Rejection) -> v1::RejectedMember {
    v1::RejectedMember { id, error: Some(error(rejection).into()) }
}

pub fn notice(notice: Notice) -> v1::Notice {
    use v1::notice::{Handover, Lost, Notice as WireNotice, Superseded, TakenOver};
    let wire_notice = match notice {
        Notice::Lost { known } => WireNotice::Lost(Lost { known }),
        Notice::Superseded { known } => WireNotice::Superseded(Superseded { known }),
        Notice::TakenOver { id, .. } => WireNotice::TakenOver(TakenOver { id }),
        Notice::Handover { target: Some(target) } => {
            WireNotice::Handover(Handover { node: target.node.to_string(), address: target.client_address })
        }
        Notice::Handover { target: None } => WireNotice::Handover(Handover::default()),
    };
    v1::Notice { notice: Some(wire_notice) }
}

pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
