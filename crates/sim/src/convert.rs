//! Conversions between the wire types and the core's types, as in the server.

use convoke_core::Rejection;
use convoke_core::member::{Liveness, Member, MemberSpec, MetadataUpdate, Status, UpdateMode};
use convoke_core::node::{Attach, AttachMember, Attached, Notice, ResetReason, Resume, StreamEvent};
use convoke_core::version::Version;
use convoke_proto::{Error, ErrorCode, json, v1};
use std::collections::BTreeMap;
use std::time::Duration;
use v1::watch_event::{CaughtUp, Event, Mark, Reset, Snapshot, reset::Reason};

pub fn error(rejection: Rejection) -> v1::Error {
    v1::Error {
        code: rejection.code.number(),
        message: rejection.message,
        field: rejection.field.map(str::to_owned),
        limit: rejection.limit,
        known: rejection.known,
        ..v1::Error::default()
    }
}

fn invalid(message: &str) -> Error {
    Error::new(ErrorCode::InvalidArgument, message)
}

pub fn register(register: v1::Register) -> AttachMember {
    let member = register.member.unwrap_or_default();
    let spec = MemberSpec {
        id: member.id,
        service: member.service,
        locality: member.locality,
        revision: member.revision,
        created: member.created,
        address: member.address,
        endpoints: member.endpoints,
        weight: u16::try_from(member.weight).unwrap_or(u16::MAX),
        metadata: member.metadata,
    };
    AttachMember { spec, takeover: register.takeover }
}

/// Converts a member to the SDK's type.
pub fn spec(spec: MemberSpec) -> json::MemberSpec {
    json::MemberSpec {
        id: spec.id,
        service: spec.service,
        locality: spec.locality,
        created: spec.created,
        revision: spec.revision,
        address: spec.address,
        endpoints: spec.endpoints,
        weight: spec.weight,
        metadata: spec.metadata,
    }
}

pub fn attach(attach: v1::Attach) -> Attach {
    let fast = attach.liveness() == v1::Liveness::Fast;
    Attach {
        client: attach.client,
        nonce: attach.nonce,
        claim: attach.claim,
        previous_claim: attach.previous_claim,
        liveness: if fast { Liveness::Fast } else { Liveness::Normal },
        timeout: (attach.timeout_ms > 0).then(|| Duration::from_millis(attach.timeout_ms)),
        members: attach.members.into_iter().map(register).collect(),
        unregistered: attach.unregistered,
    }
}

pub fn attached(claim: u64, node: &str, attached: Attached) -> v1::Attached {
    let versioned = |(id, version): (String, Version)| v1::Versioned { id, version: version.to_string() };
    let rejected = |(id, rejection)| v1::RejectedMember { id, error: Some(error(rejection)) };
    v1::Attached {
        claim,
        node: node.to_owned(),
        heartbeat_interval_ms: attached.heartbeat_interval.as_millis() as u64,
        timeout_ms: attached.timeout.as_millis() as u64,
        versions: attached.versions.into_iter().map(versioned).collect(),
        rejected: attached.rejected.into_iter().map(rejected).collect(),
        more: false,
    }
}

pub fn update(update: v1::Update) -> Result<(String, MetadataUpdate, Option<Version>), Error> {
    let mode = if update.replace { UpdateMode::Replace } else { UpdateMode::Merge };
    let deleted = update.delete.into_iter().map(|key| (key, None));
    let changes = update.set.into_iter().map(|(key, value)| (key, Some(value))).chain(deleted).collect();
    let expected = match update.if_version.as_str() {
        "" => None,
        text => Some(text.parse().map_err(|_| invalid("if_version is not a version").field("if_version"))?),
    };
    Ok((update.id, MetadataUpdate { mode, changes }, expected))
}

pub fn notice(notice: Notice) -> v1::Notice {
    use v1::notice::{Handover, Lost, Notice as Wire, Superseded, TakenOver};
    let notice = match notice {
        Notice::Lost { known } => Wire::Lost(Lost { known }),
        Notice::Superseded { known } => Wire::Superseded(Superseded { known }),
        Notice::TakenOver { id } => Wire::TakenOver(TakenOver { id }),
        Notice::Handover { target } => {
            let (node, address) =
                target.map(|target| (target.node.to_string(), target.client_address)).unwrap_or_default();
            Wire::Handover(Handover { node, address })
        }
    };
    v1::Notice { notice: Some(notice) }
}

pub fn member(member: &Member) -> v1::Member {
    let status = match member.status() {
        Status::Up => v1::Status::Up,
        Status::Down => v1::Status::Down,
        Status::Left => v1::Status::Left,
    };
    v1::Member {
        id: member.id().to_owned(),
        service: member.service().to_owned(),
        locality: member.locality().to_owned(),
        revision: member.revision().to_owned(),
        created: member.created(),
        address: member.address().to_owned(),
        endpoints: member.endpoints().to_map(),
        weight: member.weight().into(),
        metadata: member.metadata().to_map(),
        status: status.into(),
        drained: member.drained(),
        owner: Some(v1::Owner { node: member.owner().node.to_owned(), since: member.owner().since }),
        version: member.version().to_string(),
        client: member.client().to_owned(),
    }
}

pub fn resume(resume: Option<v1::Resume>) -> Result<Resume, Error> {
    let versions = |map: BTreeMap<String, String>| -> Result<BTreeMap<String, Version>, Error> {
        let parsed = map.into_iter().map(|(id, version)| Ok((id, version.parse().map_err(|_| ())?)));
        parsed.collect::<Result<_, ()>>().map_err(|()| invalid("resume has a text that is no version"))
    };
    let Some(resume) = resume else { return Ok(Resume::Fresh) };
    let known = resume.known.map(|known| versions(known.versions)).transpose()?;
    Ok(match (resume.token, known) {
        (token, known) if !token.is_empty() => Resume::Token { token, recent: versions(resume.recent)?, known },
        (_, Some(known)) => Resume::Known(known),
        (_, None) => Resume::Fresh,
    })
}

pub fn event(event: StreamEvent) -> v1::WatchEvent {
    let event = match event {
        StreamEvent::Snapshot(m) => Event::Snapshot(Snapshot { members: vec![member(&m)] }),
        StreamEvent::CaughtUp => Event::CaughtUp(CaughtUp {}),
        StreamEvent::Registered(m) => Event::Registered(member(&m)),
        StreamEvent::Updated(m) => Event::Updated(member(&m)),
        StreamEvent::StatusChanged(m) => Event::StatusChanged(member(&m)),
        StreamEvent::OwnerChanged(m) => Event::OwnerChanged(member(&m)),
        StreamEvent::Unregistered { id, version } => {
            Event::Unregistered(v1::Versioned { id, version: version.to_string() })
        }
        StreamEvent::Reset(reason) => {
            let reason = match reason {
                ResetReason::Overflow => Reason::Overflow,
                ResetReason::TooOld => Reason::TooOld,
                ResetReason::Ahead => Reason::Ahead,
                ResetReason::Unreadable => Reason::Unreadable,
            };
            Event::Reset(Reset { reason: reason.into() })
        }
        StreamEvent::Mark(token) => Event::Mark(Mark { token }),
    };
    v1::WatchEvent { event: Some(event) }
}
