//! Agentless members: registered here, and kept without a client (AG1 to AG5).

use super::NodeHandle;
use convoke_core::member::MemberSpec;
use convoke_core::version::Version;
use convoke_core::{ErrorCode, Rejection};
use std::time::Duration;

/// How long a registration waits for the disk. It is valid without it, and other nodes store it too.
const STORE_WAIT: Duration = Duration::from_secs(2);

impl NodeHandle {
    /// Registers a member that no client keeps alive, or replaces its description. Returns its version, and whether this
    /// node has stored it on disk.
    pub async fn register_agentless(&self, spec: MemberSpec, principal: &str) -> Result<(Version, bool), Rejection> {
        let principal = principal.to_owned();
        let (registered, stored) = self
            .run_in_event_loop(move |event_loop, now| {
                let (core, out) = event_loop.core();
                let registered = core.register_agentless(now, &spec, &principal, out);
                (registered, event_loop.stored())
            })
            .await?;
        let version = registered?;
        Ok((version, tokio::time::timeout(STORE_WAIT, stored).await.unwrap_or(false)))
    }

    /// Deregisters an agentless member, whichever node owns it. Returns whether this node has stored that on disk. A node
    /// that cannot tell whether the member exists says so (N7).
    pub async fn deregister_agentless(&self, id: &str) -> Result<bool, Rejection> {
        let absence = self.absence();
        let id = id.to_owned();
        let (deregistered, stored) = self
            .run_in_event_loop(move |event_loop, now| {
                let (core, out) = event_loop.core();
                let deregistered = core.deregister_agentless(now, &id, out);
                (deregistered, event_loop.stored())
            })
            .await?;
        match deregistered {
            Err(rejection) if rejection.code == ErrorCode::NotRegistered => return absence.and(Err(rejection)),
            result => result?,
        }
        Ok(tokio::time::timeout(STORE_WAIT, stored).await.unwrap_or(false))
    }
}
