//! Leases of registry members: the registry of this node says whether a registration exists, and whether it is gone (LE6,
//! LE7). The registry never waits for the log.

use super::Directory;
use crate::access::Caller;
use convoke_core::member::Status;
use convoke_log::command::MemberBinding;
use convoke_log::leader::{MemberSeen, RegistryHealth};
use convoke_node::{NodeHandle, Registration};
use convoke_proto::{Error, ErrorCode};
use convoke_replica::LogHandle;
use std::collections::BTreeMap;
use std::time::Duration;

/// How often a leader compares the leases of members with its registry.
const INTERVAL: Duration = Duration::from_millis(500);
/// Members whose records are read from the registry in one turn of its event loop.
const READ_AT_ONCE: usize = 1_000;
/// Time for which a grant waits for a registration that this node has not received yet.
pub(super) const REGISTRATION_WAIT: Duration = Duration::from_secs(5);

/// Returns the text that identifies the process of a registration.
fn process(nonce: u64) -> String {
    format!("{nonce:016x}")
}

/// Returns the registration of a member that is up, so that a lease can be bound to it.
pub(crate) fn binding(node: &NodeHandle, caller: &Caller, member: &str) -> Result<MemberBinding, Error> {
    let found = caller.visible(node.find_member(member).map_err(crate::error::rejected)?);
    match found {
        Some(found) if found.status() == Status::Up => Ok(MemberBinding {
            member: member.into(),
            client: found.client().into(),
            registration: process(found.process_nonce()).into(),
        }),
        Some(found) => {
            let message =
                format!("member {member:?} is {}; a lease needs a member that is up", found.status().as_str());
            Err(Error::new(ErrorCode::FailedPrecondition, message).field("member"))
        }
        None => Err(Error::new(ErrorCode::NotFound, format!("no member {member:?}")).field("member")),
    }
}

/// Returns whether the registry of a node shows a registration as up.
pub(super) fn is_registered(node: &NodeHandle, bound: &MemberBinding) -> bool {
    node.member(&bound.member).is_some_and(|found| {
        let same = found.client() == bound.client && process(found.process_nonce()) == bound.registration;
        same && found.status() == Status::Up
    })
}

/// Waits until the registry of a node shows a registration as up.
pub(super) async fn registered(node: &NodeHandle, bound: &MemberBinding) {
    let mut changes = node.changes();
    loop {
        changes.mark_unchanged();
        if is_registered(node, bound) || changes.changed().await.is_err() {
            return;
        }
    }
}

/// The error of a grant whose registration this node does not show as up.
pub(super) fn not_registered(directory: &dyn Directory, bound: &MemberBinding) -> Error {
    let message = format!(
        "node {} does not show member {:?} as registered by process {} of client {:?} and up; register it, then ask again",
        directory.own(),
        bound.member.as_str(),
        bound.registration,
        bound.client.as_str(),
    );
    Error::new(ErrorCode::NotRegistered, message).field("member")
}

/// Ends the leases of members that are gone, while this node leads. Never ends.
pub(super) async fn watch(handle: LogHandle, node: NodeHandle) {
    loop {
        tokio::time::sleep(INTERVAL).await;
        // Members that are up under the bound registration need no further look.
        let suspects: Vec<String> = handle
            .bound_members()
            .into_iter()
            .filter(|bound| !is_registered(&node, bound))
            .map(|bound| bound.member.to_string())
            .collect();
        let mut seen = BTreeMap::new();
        let mut health = RegistryHealth::default();
        for members in suspects.chunks(READ_AT_ONCE) {
            let Ok((found, standing)) = node.registrations(members.to_vec()).await else { break };
            health = RegistryHealth {
                connected: standing.connected,
                ready: node.is_ready() && node.absence().is_ok(),
                degraded: standing.degraded,
            };
            seen.extend(found.into_iter().map(|(member, found)| (member, shown(&found))));
        }
        if !seen.is_empty() {
            handle.end_leases_of_members(health, node.session_timeout(), &seen);
        }
    }
}

fn shown(found: &Registration) -> MemberSeen {
    let (client, registration) = (found.client.clone(), process(found.nonce));
    match found.status {
        Status::Up => MemberSeen::Up { client, registration },
        Status::Down => MemberSeen::Down { client, registration },
        Status::Left => MemberSeen::Left { client, registration },
    }
}
