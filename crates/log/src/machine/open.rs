//! Opening sessions: names, bounds, eviction (LS1, LS2, LS7).

use super::Machine;
use super::answer::{ApplyRejection, Opened};
use super::outcome::Field;
use super::session::{EndReason, Session};
use crate::command::{DurableClient, Open};
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
        let replaced = match open.client.as_ref().map_or(Ok(Name::Free), |client| self.name(client, open.nonce))? {
            Name::Own(session) => return Ok(Opened { session, replaced: None }),
            Name::Replaced(session) => Some(session),
            Name::Free => None,
        };
        let evicted = self.room(replaced)?;
        for (session, reason) in [(replaced, EndReason::Replaced), (evicted, EndReason::Evicted)] {
            if let Some(session) = session {
                self.end(session, reason, ended);
            }
        }
        let id = LogSessionId(at.index);
        self.sessions.insert(Arc::new(Session {
            id,
            client: open.client.as_ref().map(|client| client.name.clone()),
            nonce: open.nonce,
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
        Ok(())
    }

    /// Compares the client's knowledge of its name with the state (LS2).
    fn name(&self, client: &DurableClient, nonce: u64) -> Result<Name, ApplyRejection> {
        let Some(holder) = self.sessions.holder(&client.name) else { return Ok(Name::Free) };
        if holder.nonce == nonce {
            return Ok(Name::Own(holder.id));
        }
        seam!(self, OpenUncompared => return Ok(Name::Replaced(holder.id)));
        if client.replaces == Some(holder.id) {
            Ok(Name::Replaced(holder.id))
        } else {
            Err(ApplyRejection::NameHeld { holder: holder.id })
        }
    }

    /// Returns the session to evict so that one more fits (LS7).
    fn room(&self, replaced: Option<LogSessionId>) -> Result<Option<LogSessionId>, ApplyRejection> {
        seam!(self, SessionsUncapped => return Ok(None));
        let limit = self.limits.sessions;
        if replaced.is_some() || (self.sessions.open.len() as u64) < limit {
            return Ok(None);
        }
        self.sessions.idle_longest(self.log_time, self.mutation).map(Some).ok_or(ApplyRejection::SessionsFull { limit })
    }
}
