//! An attach that arrives in parts: the parts are collected and executed as one attach.

use super::{AttachSettings, Registrations};
use crate::{attach, attach_member};
use convoke_core::node::{Attach, AttachMember};
use convoke_proto::{Error, ErrorCode, v1};
use prost::Message;

#[derive(Clone, Debug)]
pub(super) struct Parts {
    members: Vec<AttachMember>,
    unregistered: Vec<String>,
    bytes: usize,
    /// The error with which the attach is rejected once it is complete.
    rejection: Option<Error>,
    members_max: usize,
    bytes_max: usize,
}

impl Parts {
    pub(super) fn new(settings: &AttachSettings) -> Self {
        Parts {
            members: Vec::new(),
            unregistered: Vec::new(),
            bytes: 0,
            rejection: None,
            members_max: settings.members_max,
            bytes_max: settings.bytes_max,
        }
    }

    /// Returns whether an attach has begun and is not complete.
    pub(super) fn begun(&self) -> bool {
        self.bytes > 0
    }

    /// Adds a part. Returns the whole attach with the last one.
    pub(super) fn take(
        &mut self,
        mut part: v1::Attach,
        may: &impl Registrations,
    ) -> Option<Result<Box<Attach>, Error>> {
        self.bytes += part.encoded_len().max(1);
        let members = std::mem::take(&mut part.members);
        let unregistered = std::mem::take(&mut part.unregistered);
        let count = self.members.len() + self.unregistered.len() + members.len() + unregistered.len();
        if self.rejection.is_none() {
            self.rejection = self.collect(members, unregistered, count, may).err();
        }
        if self.rejection.is_some() {
            // The attach is rejected, so its members are not needed.
            self.members = Vec::new();
            self.unregistered = Vec::new();
        }
        (!part.more).then(|| self.finish(part))
    }

    fn collect(
        &mut self,
        members: Vec<v1::Register>,
        gone: Vec<String>,
        count: usize,
        may: &impl Registrations,
    ) -> Result<(), Error> {
        if count > self.members_max {
            let message = format!("{count} members in one session exceed the limit of {}", self.members_max);
            let error = Error::new(ErrorCode::ResourceExhausted, message);
            return Err(error.field("members").limit(self.members_max as u64));
        }
        if self.bytes > self.bytes_max {
            let message = format!("the attach exceeds {} bytes; split it over several clients", self.bytes_max);
            return Err(Error::new(ErrorCode::TooLarge, message).field("members").limit(self.bytes_max as u64));
        }
        self.members.reserve(members.len());
        for member in members {
            let member = attach_member(member)?;
            may.register(&member)?;
            self.members.push(member);
        }
        gone.iter().try_for_each(|id| may.unregister(id))?;
        self.unregistered.extend(gone);
        Ok(())
    }

    fn finish(&mut self, last: v1::Attach) -> Result<Box<Attach>, Error> {
        self.bytes = 0;
        let members = std::mem::take(&mut self.members);
        let unregistered = std::mem::take(&mut self.unregistered);
        if let Some(rejection) = self.rejection.take() {
            return Err(rejection);
        }
        Ok(Box::new(attach(last, members, unregistered)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;
    use std::time::Duration;

    fn part(ids: &[&str], more: bool) -> v1::Attach {
        let register = |id: &&str| v1::Register {
            member: Some(v1::MemberSpec { id: (*id).into(), service: "s".into(), ..v1::MemberSpec::default() }),
            takeover: false,
        };
        let members = ids.iter().map(register).collect();
        v1::Attach { client: "c".into(), claim: 3, timeout_ms: 7, members, more, ..v1::Attach::default() }
    }

    fn settings() -> AttachSettings {
        AttachSettings::new(3, 1_000)
    }

    #[test]
    fn parts_become_one_attach() {
        let mut parts = Parts::new(&settings());
        assert!(parts.take(part(&["a", "b"], true), &()).is_none());
        assert!(parts.begun());
        let attach = parts.take(part(&["c"], false), &()).unwrap().unwrap();
        let ids: Vec<_> = attach.members.iter().map(|member| member.spec.id.as_str()).collect();
        assert_eq!(ids, ["a", "b", "c"]);
        assert_eq!((attach.claim, attach.timeout), (3, Some(Duration::from_millis(7))));
        assert!(!parts.begun());
        assert!(parts.take(part(&[], false), &()).unwrap().unwrap().members.is_empty());
    }

    #[test]
    fn an_attach_above_the_limit_is_rejected_once_it_is_complete() {
        let mut parts = Parts::new(&settings());
        assert!(parts.take(part(&["a", "b", "c", "d"], true), &()).is_none());
        assert!(parts.take(part(&["e"], true), &()).is_none());
        assert!(parts.members.is_empty());
        let error = parts.take(part(&[], false), &()).unwrap().unwrap_err();
        assert_eq!((error.code, error.limit), (ErrorCode::ResourceExhausted, Some(3)));
        let long = "x".repeat(2_000);
        assert!(parts.take(part(&[long.as_str()], true), &()).is_none());
        assert_eq!(parts.take(part(&[], false), &()).unwrap().unwrap_err().code, ErrorCode::TooLarge);
        assert!(parts.take(part(&["a"], false), &()).unwrap().is_ok());
    }
}
