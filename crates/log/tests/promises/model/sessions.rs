//! Sessions of the model: the whole history and its consequences.

use super::reference::{Model, ModelFate, ModelOutcome};
use convoke_log::command::{Expire, Open, Opener};
use convoke_log::machine::{ApplyRejection, EndReason, Field};
use convoke_log::{Entry, LogLimits, LogSessionId};

#[derive(Debug)]
pub(super) struct Session {
    client: Option<String>,
    owner: u128,
    opener: Opener,
    ttl: u64,
    activity: u64,
    active_at: u64,
    pub(super) history: History,
}

impl Session {
    pub(super) fn active(&mut self, index: u64, log_time: u64) {
        (self.activity, self.active_at) = (index, log_time);
    }
}

/// All outcomes with the `abandon_below` of their requests, and all fences.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) outcomes: Vec<(u64, u64, ModelOutcome)>,
    pub(super) fenced: Vec<u64>,
}

impl History {
    fn wanted(&self) -> u64 {
        self.outcomes.iter().map(|(_, wanted, _)| *wanted).max().unwrap_or(0)
    }

    /// F1: no number at or below one that has an outcome or was fenced.
    pub(super) fn may_come(&self, number: u64) -> bool {
        self.outcomes.iter().all(|(done, _, _)| *done < number) && self.fenced.iter().all(|fenced| *fenced < number)
    }

    /// F3: the number of outcomes, from the oldest, that are no longer kept.
    fn dropped(&self, limits: &LogLimits) -> usize {
        let unwanted: Vec<u64> =
            self.outcomes.iter().filter(|(done, _, _)| *done < self.wanted()).map(|(_, _, o)| o.bytes()).collect();
        let keeps = |from: usize| {
            let kept = &unwanted[from..];
            kept.len() as u64 <= limits.outcomes
                && (kept.len() <= 1 || kept.iter().sum::<u64>() <= limits.outcome_bytes)
        };
        (0..=unwanted.len()).find(|from| keeps(*from)).unwrap()
    }

    fn fate(&self, number: u64, limits: &LogLimits) -> ModelFate {
        let dropped = self.dropped(limits);
        if let Some(at) = self.outcomes.iter().position(|(done, _, _)| *done == number)
            && at >= dropped
        {
            return ModelFate::Done(self.outcomes[at].2.clone());
        }
        match dropped.checked_sub(1).map(|last| self.outcomes[last].0) {
            Some(horizon) if number <= horizon => ModelFate::TooOld,
            _ if self.may_come(number) => ModelFate::Open,
            _ => ModelFate::Never,
        }
    }

    /// F5.
    pub(super) fn room(&self, abandon_below: u64, limits: &LogLimits) -> Result<(), ApplyRejection> {
        let from = self.wanted().max(abandon_below);
        let kept: Vec<u64> =
            self.outcomes.iter().filter(|(done, _, _)| *done >= from).map(|(_, _, o)| o.bytes()).collect();
        if kept.len() as u64 >= limits.window {
            Err(ApplyRejection::WindowFull { limit: limits.window })
        } else if kept.iter().sum::<u64>() >= limits.outcome_bytes {
            Err(ApplyRejection::WindowFull { limit: limits.outcome_bytes })
        } else {
            Ok(())
        }
    }
}

impl Model {
    pub(super) fn open(&mut self, entry: &Entry, open: &Open) -> Result<(u64, Option<u64>), ApplyRejection> {
        let ttl = u64::try_from(open.ttl.as_micros()).unwrap();
        if !(10..=60).contains(&ttl) {
            return Err(ApplyRejection::OutOfRange { field: Field::Ttl, found: ttl, min: 10, max: 60 });
        }
        if let Some(client) = &open.client
            && (client.name.is_empty() || client.name.len() > 3)
        {
            let found = client.name.len() as u64;
            return Err(ApplyRejection::OutOfRange { field: Field::ClientName, found, min: 1, max: 3 });
        }
        if open.opener.name.len() > 3 {
            let found = open.opener.name.len() as u64;
            return Err(ApplyRejection::OutOfRange { field: Field::Opener, found, min: 0, max: 3 });
        }
        if open.epoch != entry.epoch {
            return Err(ApplyRejection::StaleEpoch { current: entry.epoch });
        }
        let mut replaced = None;
        if let Some(client) = &open.client {
            let holder =
                self.open_sessions().into_iter().find(|id| self.sessions[id].client.as_deref() == Some(&client.name));
            match holder {
                Some(holder) if self.sessions[&holder].owner == open.owner => return Ok((holder, None)),
                Some(holder) if client.replaces == Some(LogSessionId(holder)) => replaced = Some(holder),
                Some(holder) => return Err(ApplyRejection::NameHeld { holder: LogSessionId(holder) }),
                None => {}
            }
        }
        let open_now = self.open_sessions();
        if replaced.is_none() {
            // Four places: one for nodes and operators, at most two per client, one per node.
            let openers: Vec<&Opener> = open_now.iter().map(|id| &self.sessions[id].opener).collect();
            let ordinary = openers.iter().filter(|opener| !opener.reserved).count();
            let own = openers.iter().filter(|opener| opener.name == open.opener.name).count();
            if openers.len() == 4 {
                return Err(ApplyRejection::SessionsFull { limit: 4 });
            }
            if !open.opener.reserved && ordinary == 3 {
                return Err(ApplyRejection::SessionsFull { limit: 3 });
            }
            let limit = if open.opener.reserved { 1 } else { 2 };
            if own >= limit {
                return Err(ApplyRejection::QuotaReached { limit: limit as u64 });
            }
        }
        if let Some(replaced) = replaced {
            self.end(replaced, EndReason::Replaced);
        }
        let session = Session {
            client: open.client.as_ref().map(|client| client.name.to_string()),
            owner: open.owner,
            opener: open.opener.clone(),
            ttl,
            activity: entry.index,
            active_at: self.log_time,
            history: History::default(),
        };
        self.sessions.insert(entry.index, session);
        Ok((entry.index, replaced))
    }

    pub(super) fn expire(&mut self, entry: &Entry, expire: &Expire) -> bool {
        let id = expire.session.0;
        let silent =
            |session: &Session| session.activity == expire.activity && self.log_time - session.active_at >= session.ttl;
        let ends = self.is_open(id) && expire.epoch == entry.epoch && silent(&self.sessions[&id]);
        if ends {
            self.end(id, EndReason::Expired);
        }
        ends
    }

    pub(super) fn end(&mut self, id: u64, reason: EndReason) {
        self.ended.push((id, reason));
    }

    pub(super) fn end_of(&self, id: u64) -> Option<EndReason> {
        self.ended.iter().find(|(ended, _)| *ended == id).map(|(_, reason)| *reason)
    }

    pub(super) fn is_open(&self, id: u64) -> bool {
        self.sessions.contains_key(&id) && self.end_of(id).is_none()
    }

    pub(super) fn open_sessions(&self) -> Vec<u64> {
        self.sessions.keys().copied().filter(|id| self.is_open(*id)).collect()
    }

    /// Returns whether the session is open or among the last ended ones.
    pub(super) fn remembered(&self, id: u64) -> bool {
        let kept = self.ended.iter().rev().take(usize::try_from(self.limits.ended_sessions).unwrap());
        self.is_open(id) || kept.into_iter().any(|(ended, _)| *ended == id)
    }

    pub(super) fn fate(&self, id: u64, number: u64) -> ModelFate {
        if id > self.applied {
            return ModelFate::Open;
        }
        if !self.remembered(id) {
            return ModelFate::TooOld;
        }
        match self.sessions[&id].history.fate(number, &self.limits) {
            ModelFate::Open if !self.is_open(id) => ModelFate::Never,
            fate => fate,
        }
    }
}
