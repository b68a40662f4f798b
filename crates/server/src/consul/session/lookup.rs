//! The description of a session is the value of a lock that its lease holds, so it ends with the lease (CK5).

use super::super::kv::state_here;
use crate::log::read_locks;
use crate::surface::Surface;
use convoke_client::log::Consistency;
use convoke_consul::{ConsulSessionId, Description, InvalidSessionId};
use convoke_proto::{Error, v1};
use std::collections::{BTreeMap, BTreeSet};

/// Prefix of the names of the locks that describe sessions. The lease follows.
pub(super) const SESSIONS: &str = "consul/session/";

/// A session that exists.
#[derive(Debug)]
pub(in crate::consul) struct Found {
    pub(in crate::consul) lease: u64,
    pub(in crate::consul) description: Description,
    /// The revision at which it was created.
    pub(super) index: u64,
    /// The principal that created it.
    pub(super) owner: String,
}

pub(super) fn lock_of(lease: u64) -> String {
    format!("{SESSIONS}{lease}")
}

/// Returns the session that a lock describes.
pub(super) fn described(lock: &v1::Lock) -> Option<Found> {
    let holder = lock.holders.first()?;
    // Another client could take a lock with such a name, but not for a lease that it does not have.
    if lock.name != lock_of(holder.lease).as_bytes() {
        return None;
    }
    let description = Description::decode(&holder.value)?;
    Some(Found { lease: holder.lease, description, index: holder.fence, owner: holder.owner.clone() })
}

/// Finds a session by its id. The inner error is Consul's text for a session that does not exist.
pub(in crate::consul) async fn find(
    surface: &Surface,
    id: &str,
    consistency: Consistency,
) -> Result<Result<Found, String>, Error> {
    let lease = match ConsulSessionId::parse(id) {
        Ok(parsed) => parsed.lease,
        Err(InvalidSessionId::Length) => {
            return Ok(Err("failed session lookup: index error: UUID must be 36 characters".to_owned()));
        }
        Err(InvalidSessionId::Unknown) => return Ok(Err(format!("invalid session {id:?}"))),
    };
    let found = of_lease(surface, lease, consistency).await?;
    let found = found.filter(|found| found.description.id().eq_ignore_ascii_case(id));
    Ok(found.ok_or_else(|| format!("invalid session {id:?}")))
}

/// Reads the session of a lease. A session that the own replica does not have is looked up at the leader.
async fn of_lease(surface: &Surface, lease: u64, consistency: Consistency) -> Result<Option<Found>, Error> {
    if let Some(machine) = state_here(surface, consistency).await {
        let wanted = v1::LockQuery { name: Some(lock_of(lease).into()), ..v1::LockQuery::default() };
        let found = read_locks(&machine, wanted)?.found.first().and_then(described);
        if found.is_some() || consistency == Consistency::Linearizable {
            return Ok(found);
        }
    }
    let at_leader = match consistency {
        Consistency::Local => Consistency::Linearizable,
        other => other,
    };
    let lock = surface.log()?.kv.locks().show(lock_of(lease), at_leader).await?;
    Ok(lock.as_ref().and_then(described))
}

/// Returns the ids of the sessions of leases. The lease of a key may be no session: it then has an id that no session has.
pub(in crate::consul) async fn holders_of(
    surface: &Surface,
    leases: BTreeSet<u64>,
) -> Result<BTreeMap<u64, String>, Error> {
    let mut holders = BTreeMap::new();
    for lease in leases.into_iter().filter(|lease| *lease != 0) {
        let found = of_lease(surface, lease, Consistency::Local).await?;
        let id = match found {
            Some(found) => found.description.id().to_owned(),
            None => ConsulSessionId::new(lease, 0).map(|id| id.to_string()).unwrap_or_default(),
        };
        holders.insert(lease, id);
    }
    Ok(holders)
}
