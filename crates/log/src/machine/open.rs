//! Opening sessions: names, bounds, room (LS1, LS2, LS7).

use super::Machine;
use super::answer::{ApplyRejection, Opened};
use super::outcome::Field;
use super::session::{EndReason, Session};
use crate::command::{DurableClient, Open, Opener};
use crate::id::{LogSessionId, Position};
use crate::limits::micros;
use crate::mutant::seam;
use std::collections::VecDeque;
use std::sync::Arc;

/// Current holder of a client name.
enum Name {
    Free,
    /// Held by a session that the open replaces.
    Replaced(LogSessionId),
    /// Held by a session that a copy of the same open created.
    Own(LogSessionId),
}

impl Machine {
    pub(super) fn open(
        &mut self,
        at: Position,
        open: &Open,
        ended: &mut Vec<(LogSessionId, EndReason)>,
    ) -> Result<Opened, ApplyRejection> {
        self.check_open(open)?;
        self.check_epoch(at, open.epoch)?;
        let replaced = match self.admit_open(open)? {
            Name::Own(session) => return Ok(Opened { session, replaced: None }),
            Name::Replaced(session) => Some(session),
            Name::Free => None,
        };
        if let Some(session) = replaced {
            self.end(session, EndReason::Replaced, ended);
        }
        let id = LogSessionId(at.index);
        self.sessions.insert(Arc::new(Session {
            id,
            client: open.client.as_ref().map(|client| client.name.clone()),
            owner: open.owner,
            opener: open.opener.clone(),
            ttl: open.ttl,
            floor: 1,
            wanted: 0,
            horizon: 0,
            outcomes: VecDeque::new(),
            activity: at.index,
            active_at: self.log_time,
        }));
        Ok(Opened { session: id, replaced })
    }

    fn check_open(&self, open: &Open) -> Result<(), ApplyRejection> {
        seam!(self, TtlUnchecked => return Ok(()));
        let (min, max, found) = (micros(self.limits.ttl_min), micros(self.limits.ttl_max), micros(open.ttl));
        if found < min || found > max {
            return Err(ApplyRejection::OutOfRange { field: Field::Ttl, found, min, max });
        }
        if let Some(client) = &open.client {
            let (found, max) = (client.name.len() as u64, self.limits.client_name_bytes);
            if found == 0 || found > max {
                return Err(ApplyRejection::OutOfRange { field: Field::ClientName, found, min: 1, max });
            }
        }
        let (found, max) = (open.opener.name.len() as u64, self.limits.client_name_bytes);
        if found > max {
            return Err(ApplyRejection::OutOfRange { field: Field::Opener, found, min: 0, max });
        }
        Ok(())
    }

    /// Returns whether an open would find room now. The leader appends none that would not (LS7).
    pub(crate) fn has_room(&self, open: &Open) -> Result<(), ApplyRejection> {
        match self.admit_open(open) {
            // The compare is decided at apply.
            Err(ApplyRejection::NameHeld { .. }) => Ok(()),
            admitted => admitted.map(drop),
        }
    }

    fn admit_open(&self, open: &Open) -> Result<Name, ApplyRejection> {
        let name = open.client.as_ref().map_or(Ok(Name::Free), |client| self.name(client, open.owner))?;
        if let Name::Free = name {
            self.check_room(&open.opener)?;
        }
        Ok(name)
    }

    /// Compares the client's knowledge of its name with the state (LS2).
    fn name(&self, client: &DurableClient, owner: u128) -> Result<Name, ApplyRejection> {
        let Some(holder) = self.sessions.holder(&client.name) else { return Ok(Name::Free) };
        if holder.owner == owner {
            return Ok(Name::Own(holder.id));
        }
        seam!(self, OpenUncompared => return Ok(Name::Replaced(holder.id)));
        if client.replaces == Some(holder.id) {
            Ok(Name::Replaced(holder.id))
        } else {
            Err(ApplyRejection::NameHeld { holder: holder.id })
        }
    }

    /// Checks that one more session of an opener fits (LS7). Only expiry and ends make room.
    fn check_room(&self, opener: &Opener) -> Result<(), ApplyRejection> {
        seam!(self, SessionsUncapped => return Ok(()));
        let limit = self.limits.sessions;
        if self.sessions.open.len() as u64 >= limit {
            return Err(ApplyRejection::SessionsFull { limit });
        }
        self.check_reserve(opener)?;
        self.check_quota(opener)
    }

    fn check_reserve(&self, opener: &Opener) -> Result<(), ApplyRejection> {
        seam!(self, ReserveIgnored => return Ok(()));
        let limit = self.limits.client_sessions();
        if opener.reserved || self.sessions.ordinary() < limit {
            Ok(())
        } else {
            Err(ApplyRejection::SessionsFull { limit })
        }
    }

    fn check_quota(&self, opener: &Opener) -> Result<(), ApplyRejection> {
        seam!(self, QuotaIgnored => return Ok(()));
        let limit = self.limits.sessions_of(opener.reserved);
        if self.sessions.held_by(opener) < limit { Ok(()) } else { Err(ApplyRejection::QuotaReached { limit }) }
    }
}
