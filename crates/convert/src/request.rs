//! Requests of clients. Invalid input is rejected here with the name of the field, or by the core's own
//! checks.

use crate::check::{check, no_probe};
use convoke_core::filter::Filter;
use convoke_core::member::{Liveness, MemberSpec, MetadataUpdate, UpdateMode};
use convoke_core::node::{Attach, AttachMember, Resume};
use convoke_core::version::Version;
use convoke_proto::{Error, ErrorCode, json, v1};
use std::collections::BTreeMap;
use std::time::Duration;

pub fn filter(text: &str) -> Result<Filter, Error> {
    Filter::parse(text).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        Error::new(ErrorCode::InvalidFilter, error.to_string()).field("filter").at(line, column)
    })
}

pub fn invalid(field: &str, message: impl Into<String>) -> Error {
    Error::new(ErrorCode::InvalidArgument, message).field(field)
}

/// Converts the last part of an attach. The members and ids are those of all its parts.
pub fn attach(last: v1::Attach, members: Vec<AttachMember>, unregistered: Vec<String>) -> Attach {
    let liveness = match last.liveness() {
        v1::Liveness::Fast => Liveness::Fast,
        v1::Liveness::Normal | v1::Liveness::Unspecified => Liveness::Normal,
    };
    Attach {
        client: last.client,
        nonce: last.nonce,
        claim: last.claim,
        previous_claim: last.previous_claim,
        liveness,
        timeout: (last.timeout_ms > 0).then(|| Duration::from_millis(last.timeout_ms)),
        members,
        unregistered,
        principal: String::new(),
    }
}

pub fn attach_member(register: v1::Register) -> Result<AttachMember, Error> {
    let Some(member) = register.member else { return Err(invalid("member", "register names no member")) };
    Ok(AttachMember { spec: spec(member)?, takeover: register.takeover })
}

/// Converts a member from JSON or from the SDK.
pub fn member_spec(member: json::MemberSpec) -> Result<MemberSpec, Error> {
    if member.checks.iter().any(|check| check.probes() != 1) {
        return Err(no_probe());
    }
    spec(member.into())
}

fn spec(member: v1::MemberSpec) -> Result<MemberSpec, Error> {
    let weight = u16::try_from(member.weight).map_err(|_| {
        let message = format!("weight {} is above {}", member.weight, u16::MAX);
        Error::new(ErrorCode::InvalidMember, message).field("weight").limit(u16::MAX.into())
    })?;
    Ok(MemberSpec {
        id: member.id,
        service: member.service,
        locality: member.locality,
        revision: member.revision,
        created: member.created,
        address: member.address,
        endpoints: member.endpoints,
        weight,
        metadata: member.metadata,
        checks: member.checks.into_iter().map(check).collect::<Result<_, Error>>()?,
    })
}

/// Returns the update and the version that it expects.
pub fn metadata_update(update: v1::Update) -> Result<(String, MetadataUpdate, Option<Version>), Error> {
    let mut changes: BTreeMap<String, Option<String>> =
        update.set.into_iter().map(|(key, value)| (key, Some(value))).collect();
    for key in update.delete {
        if changes.get(&key).is_some_and(Option::is_some) {
            return Err(invalid("delete", format!("key {key:?} is both set and deleted")));
        }
        changes.insert(key, None);
    }
    let mode = if update.replace { UpdateMode::Replace } else { UpdateMode::Merge };
    let expected = match update.if_version.as_str() {
        "" => None,
        text => Some(version("if_version", text)?),
    };
    Ok((update.id, MetadataUpdate { mode, changes }, expected))
}

pub fn version(field: &str, text: &str) -> Result<Version, Error> {
    text.parse::<Version>().map_err(|error| invalid(field, error.to_string()))
}

pub fn versions(field: &str, texts: BTreeMap<String, String>) -> Result<BTreeMap<String, Version>, Error> {
    texts.into_iter().map(|(id, text)| Ok((id, version(field, &text)?))).collect()
}

/// Converts the position from which a watch resumes.
pub fn resume(resume: Option<v1::Resume>) -> Result<Resume, Error> {
    let Some(v1::Resume { token, recent, known }) = resume else { return Ok(Resume::Fresh) };
    let known = known.map(|known| versions("known", known.versions)).transpose()?;
    Ok(match (token.is_empty(), known) {
        (false, known) => Resume::Token { token, recent: versions("recent", recent)?, known },
        (true, Some(known)) => Resume::Known(known),
        (true, None) => Resume::Fresh,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;

    #[test]
    fn a_weight_above_the_limit_is_rejected_with_its_field() {
        let member = v1::MemberSpec { weight: 65_536, ..v1::MemberSpec::default() };
        let error = attach_member(v1::Register { member: Some(member), takeover: false }).unwrap_err();
        assert_eq!(
            (error.code, error.field.as_deref(), error.limit),
            (ErrorCode::InvalidMember, Some("weight"), Some(65_535))
        );
        let error = attach_member(v1::Register::default()).unwrap_err();
        assert_eq!(error.field.as_deref(), Some("member"));
    }

    #[test]
    fn an_update_that_sets_and_deletes_a_key_is_rejected() {
        let update = v1::Update {
            id: "a".into(),
            set: [("k".to_owned(), "v".to_owned())].into(),
            delete: vec!["d".into()],
            replace: true,
            if_version: "1.2.00000003".into(),
        };
        let (id, changes, expected) = metadata_update(update.clone()).unwrap();
        assert_eq!((id.as_str(), changes.mode), ("a", UpdateMode::Replace));
        assert_eq!(changes.changes, [("d".to_owned(), None), ("k".to_owned(), Some("v".to_owned()))].into());
        assert_eq!(expected.unwrap().to_string(), "1.2.00000003");
        let twice = v1::Update { delete: vec!["k".into()], ..update.clone() };
        assert_eq!(metadata_update(twice).unwrap_err().field.as_deref(), Some("delete"));
        let bad = v1::Update { if_version: "x".into(), ..update };
        assert_eq!(metadata_update(bad).unwrap_err().field.as_deref(), Some("if_version"));
    }
}
