//! Owners of what HTTP clients use. The node that a client calls decides (AU12), because it knows the grants of the caller.

use super::LogPlane;
use super::sessions::no_request;
use crate::access::{Caller, Use};
use convoke_access::{Resource, Verb};
use convoke_client::log::{Consistency, Kv};
use convoke_log::command::{LockSpace, Opener, Place};
use convoke_proto::{Error, ErrorCode, v1};
use std::sync::{Arc, PoisonError};

impl LogPlane {
    /// Returns the log session for the writes of a caller: that of its principal, or the one without a principal.
    pub(crate) fn session_of(&self, caller: &Caller) -> Result<Arc<Kv>, Error> {
        let Some(principal) = caller.opener() else { return Ok(Arc::new(self.kv.clone())) };
        let make = || self.ambassador.kv_with(self.options.clone().for_principal(&principal));
        let mut principals = self.principals.lock().unwrap_or_else(PoisonError::into_inner);
        principals.get(self.started.elapsed(), &principal, make).ok_or_else(|| {
            let limit = super::PRINCIPALS_MAX as u64;
            let message = format!("{limit} principals write to the log through this node now; use another node");
            Error::new(ErrorCode::ResourceExhausted, message).field("principal").limit(limit)
        })
    }

    /// Returns the number of principals with a log session of this node.
    pub(crate) fn principals(&self) -> usize {
        self.principals.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Rejects the use of a lease, or of the place of one, of another principal (AU16).
    pub(crate) async fn check_uses(&self, caller: &Caller, uses: &[Use]) -> Result<(), Error> {
        for used in uses.iter().filter(|used| !used.is_open_to(caller)) {
            let here = self.handle.local().ok().and_then(|machine| used.owner(&machine).map(str::to_owned));
            let owner = match here {
                Some(owner) => Some(owner),
                // This replica may be behind, or there is none.
                None => self.owner_at_leader(used).await?,
            };
            used.check(caller, &owner.ok_or_else(|| used.missing())?)?;
        }
        Ok(())
    }

    async fn owner_at_leader(&self, used: &Use) -> Result<Option<String>, Error> {
        let current = Consistency::Linearizable;
        match used {
            Use::Keep(lease) | Use::Lease(lease) | Use::EndLease(lease) | Use::Release(_, Place::Lease(lease)) => {
                let (found, _) = self.kv.leases().get_at(lease.0, current).await?;
                Ok(found.map(|lease| lease.owner))
            }
            Use::Release(name, Place::Fence(fence)) | Use::Proclaim(name, fence) => {
                let page = match name.space {
                    LockSpace::Lock => self.kv.locks().show_page(name.name.clone(), current).await?,
                    LockSpace::Election => self.kv.elections().show_page(name.name.clone(), current).await?,
                };
                let holders = page.locks.into_iter().flat_map(|lock| lock.holders);
                Ok(holders.into_iter().find(|holder| holder.fence == *fence).map(|holder| holder.owner))
            }
        }
    }

    /// Rejects a read or a decision about a request of another principal: it does not exist for the caller (AU15).
    pub(crate) async fn check_request(&self, caller: &Caller, verb: Verb, id: v1::RequestId) -> Result<(), Error> {
        let decided = self.service.check_request(caller, verb, id);
        let known = self
            .handle
            .local()
            .ok()
            .is_some_and(|machine| machine.opener(convoke_log::LogSessionId(id.session)).is_some());
        if decided.is_ok() || known || caller.may(verb, Resource::Log) {
            return decided;
        }
        // This replica may be behind, or there is none. The leader lists open sessions only.
        let page = self.ambassador.sessions(id.session.saturating_sub(1), 1, Some(self.service.timeout)).await?;
        let found = page.sessions.into_iter().find(|open| open.session == id.session);
        let opener = found.map(|open| Opener { name: open.opened_by.into(), reserved: open.reserved });
        let own = opener.as_ref().and_then(Opener::principal).is_some_and(|principal| caller.owns(principal));
        if own { Ok(()) } else { Err(no_request(id)) }
    }
}
