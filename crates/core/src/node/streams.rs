//! Watches: watching, resuming, taking (W1–W6).

use super::{Node, Output, Phase, ResetReason, Resume, StreamEvent, WatchSelection, WatcherId};
use crate::error::{ErrorCode, Rejection};
use crate::time::Time;
use crate::watch::{Begin, Resumption, TakeContext, Token, Walk};
use std::collections::BTreeMap;

impl Node {
    /// Starts a watch of members or names; the stream starts with everything after the resume position.
    pub fn watch(
        &mut self,
        now: Time,
        selection: WatchSelection,
        resume: Resume,
        out: &mut Output,
    ) -> Result<WatcherId, Rejection> {
        self.observe_client(now, out)?;
        let result = self.check_watch(&resume).map(|absence_from| self.begin_stream(&selection, resume, absence_from));
        let result = result.map(|begin| self.watchers.insert(selection, begin, out));
        self.count_rejection(result)
    }

    fn check_watch(&self, resume: &Resume) -> Result<Time, Rejection> {
        let Phase::Serving { absence_from, .. } = self.phase else { return Err(super::attach::not_ready()) };
        let limits = &self.config.limits;
        if self.watchers.len() >= limits.watchers {
            let message = format!("this node has {} watchers already; try another node", limits.watchers);
            return Err(Rejection::new(ErrorCode::ResourceExhausted, message).limit(limits.watchers));
        }
        let known = match resume {
            Resume::Fresh => 0,
            Resume::Token { recent, known, .. } => recent.len() + known.as_ref().map_or(0, BTreeMap::len),
            Resume::Known(known) => known.len(),
        };
        if known > limits.resume_known {
            let message = format!("{known} known versions, at most {} are allowed", limits.resume_known);
            return Err(Rejection::new(ErrorCode::TooLarge, message).field("known").limit(limits.resume_known));
        }
        Ok(absence_from)
    }

    fn begin_stream(&self, selection: &WatchSelection, resume: Resume, absence_from: Time) -> Begin {
        let resumption = match resume {
            Resume::Fresh => return Begin::Walk { walk: Walk::snapshot(selection), reset: None },
            Resume::Known(known) => Resumption { token: None, recent: BTreeMap::new(), known: Some(known) },
            Resume::Token { token, recent, known } => match Token::decode(&token) {
                Ok(token) => Resumption { token: Some(token), recent, known },
                Err(_) => {
                    let (walk, reset) = Walk::instead(selection, known, ResetReason::Unreadable);
                    return Begin::Walk { walk, reset };
                }
            },
        };
        if resumption.reached(selection, &self.map) {
            let (walk, reset) = resumption.walk(selection, &self.map, self.mutation);
            Begin::Walk { walk, reset }
        } else {
            let until = (self.clock.now + self.config.timers.resume_wait).max(absence_from);
            Begin::Wait { resumption, until }
        }
    }

    /// This watcher gets a mark whenever it has received everything, not only at intervals.
    pub fn mark_eagerly(&mut self, watcher: WatcherId) {
        self.watchers.mark_eagerly(watcher);
    }

    pub fn unwatch(&mut self, watcher: WatcherId) {
        self.watchers.remove(watcher);
    }

    /// Takes up to `max` events (at least two). Snapshots are walked here, at the watcher's pace. Returns whether there
    /// is more right now; if not, `Effect::Readable` will say when there is.
    pub fn take(&mut self, now: Time, watcher: WatcherId, max: usize, events: &mut Vec<StreamEvent>) -> bool {
        let absence_from = match self.phase {
            Phase::Serving { absence_from, .. } => absence_from,
            _ => Time::ZERO,
        };
        let context = TakeContext {
            map: &self.map,
            now: now.max(self.clock.now),
            mark_interval: self.config.timers.mark_interval,
            absence_from,
            alone: self.is_alone(),
            mutation: self.mutation,
        };
        let before = events.len();
        let more = self.watchers.take(watcher, &context, max, events);
        let resets = events[before..].iter().filter(|event| matches!(event, StreamEvent::Reset(_))).count();
        self.counters.watcher_resets += resets as u64;
        more
    }
}
