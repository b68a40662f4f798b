//! Questions to the leader that change nothing: the next change of a place in a lock, and single keep-alives. They need
//! no log session. A question is sent again over every new link until it is answered.

use super::{Core, Output, Tagged, Timer};
use crate::session::ClientTime;
use crate::{Error, ErrorCode};
use convoke_proto::v1::submit_request::Message;
use convoke_proto::v1::submit_response::Message as Answer;
use convoke_proto::v1::{self, kept_alive};
use prost::bytes::Bytes;
use std::collections::BTreeMap;
use std::time::Duration;

/// Maximum number of questions that wait for an answer.
const ASKS_MAX: usize = if cfg!(test) { 100 } else { 65_536 };
/// Pause before questions that a busy leader rejected are sent again.
const RETRY: Duration = Duration::from_millis(200);

pub(crate) type AskId = u64;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Ask {
    /// When does the place of this lease differ from the stated one?
    Place { name: Bytes, election: bool, lease: u64, fence: u64 },
    /// Does this lease still exist? It is kept alive.
    Renew { lease: u64 },
}

/// The answer to an [`Ask`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Asked {
    /// The fence with which the lease holds the lock now; 0 if it has no place.
    Place {
        fence: u64,
    },
    Renewed {
        left: Duration,
    },
}

#[derive(Debug, Default)]
pub(super) struct Asks {
    all: BTreeMap<AskId, Waiting>,
    made: u64,
    retry: Option<ClientTime>,
}

#[derive(Debug)]
struct Waiting {
    ask: Ask,
    /// The log of its first copy. Another log has neither the lease nor the lock.
    log: Option<v1::LogId>,
    sent: bool,
}

impl Asks {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The link is lost: nothing that was sent over it is answered.
    pub(super) fn cut_off(&mut self) {
        for waiting in self.all.values_mut() {
            waiting.sent = false;
        }
    }
}

impl Core {
    pub(crate) fn ask(&mut self, now: ClientTime, ask: Ask, out: &mut Output) -> Result<AskId, Error> {
        if self.asks.all.len() >= ASKS_MAX {
            self.counters.questions_refused += 1;
            let message = format!("{ASKS_MAX} locks and leases of this process wait for the leader; release some");
            return Err(Error::new(ErrorCode::ResourceExhausted, message).limit(ASKS_MAX as u64));
        }
        self.asks.made += 1;
        self.asks.all.insert(self.asks.made, Waiting { ask, log: None, sent: false });
        self.send_asks(now, out);
        Ok(self.asks.made)
    }

    /// The answer is no longer wanted.
    pub(crate) fn stop_asking(&mut self, id: AskId) {
        self.asks.all.remove(&id);
    }

    /// Sends questions that were not sent over this link.
    pub(super) fn send_asks(&mut self, now: ClientTime, out: &mut Output) {
        self.now = now;
        let Some(link) = self.link else { return };
        if self.asks.retry.is_some() {
            return;
        }
        let mut sends = Vec::new();
        let mut gone = Vec::new();
        for (id, waiting) in self.asks.all.iter_mut().filter(|(_, waiting)| !waiting.sent) {
            if waiting.log.is_some_and(|log| log != link.log) {
                gone.push(*id);
                continue;
            }
            (waiting.sent, waiting.log) = (true, Some(link.log));
            let (epoch, log) = (Some(link.epoch), Some(link.log));
            let message = match waiting.ask.clone() {
                Ask::Place { name, election, lease, fence } => {
                    Message::AwaitPlace(v1::AwaitPlace { epoch, log, name, election, lease, fence })
                }
                Ask::Renew { lease } => Message::LeaseKeepAlive(v1::LeaseKeepAlive { epoch, log, leases: vec![lease] }),
            };
            sends.push((*id, message));
        }
        for (id, message) in sends {
            let renews = matches!(message, Message::LeaseKeepAlive(_));
            let tagged = if renews { Tagged::Renewal(id) } else { Tagged::Place(id) };
            self.send(tagged, message, String::new(), out);
        }
        for id in gone {
            let message = format!("the log was replaced by log {}, which has no locks of the old one", link.log);
            self.answer_ask(id, Err(Error::new(ErrorCode::NotFound, message)), out);
        }
    }

    pub(super) fn ask_answered(&mut self, now: ClientTime, id: AskId, answer: Option<Answer>, out: &mut Output) {
        let Some(waiting) = self.asks.all.get_mut(&id) else {
            // Cancelled. A node that does not lead is left nevertheless.
            if let Some(Answer::Rejected(error)) = answer {
                self.rejected_stateless(error.into(), out);
            }
            return;
        };
        match (&waiting.ask, answer) {
            (Ask::Place { fence: known, .. }, Some(Answer::PlaceChanged(v1::PlaceChanged { fence })))
                if *known == 0 || fence != *known =>
            {
                self.answer_ask(id, Ok(Asked::Place { fence }), out);
            }
            (Ask::Renew { lease }, Some(Answer::LeasesKept(kept))) => {
                let lease = *lease;
                let kept = kept.leases.first().copied().unwrap_or_default();
                let answer = match kept.state() {
                    kept_alive::State::Kept => Ok(Asked::Renewed { left: Duration::from_millis(kept.left_ms) }),
                    _ => {
                        let message = format!("no lease {lease}: it has expired or was revoked");
                        Err(Error::new(ErrorCode::NotFound, message).field("lease"))
                    }
                };
                self.answer_ask(id, answer, out);
            }
            (_, Some(Answer::Rejected(error))) => {
                let error = Error::from(error);
                match error.code {
                    ErrorCode::ResourceExhausted => self.ask_again(now, id, error.retry_after()),
                    code if super::is_not_leading(code) => self.rejected_stateless(error, out),
                    _ => self.answer_ask(id, Err(error), out),
                }
            }
            // The same place as before: an answer without news.
            (_, Some(Answer::PlaceChanged(_))) => self.ask_again(now, id, Duration::ZERO),
            _ => self.leave(Vec::new(), out),
        }
    }

    fn ask_again(&mut self, now: ClientTime, id: AskId, named: Duration) {
        if let Some(waiting) = self.asks.all.get_mut(&id) {
            waiting.sent = false;
        }
        if self.asks.retry.is_none() {
            let at = now + named + RETRY.mul_f64(0.5 + self.random.f64());
            self.asks.retry = Some(at);
            self.timers.insert((at, Timer::Asks));
        }
    }

    pub(super) fn retry_asks(&mut self, now: ClientTime, out: &mut Output) {
        self.asks.retry = None;
        self.send_asks(now, out);
    }

    fn answer_ask(&mut self, id: AskId, answer: Result<Asked, Error>, out: &mut Output) {
        if self.asks.all.remove(&id).is_some() {
            out.asked.push((id, answer));
        }
    }
}
