//! Submitting requests, opening and keeping sessions.

use super::LogHandle;
use crate::counters::add;
use crate::engine::Engine;
use crate::refusal::{Refusal, SubmitError};
use convoke_log::command::{Open, Request};
use convoke_log::leader::KeepAlive;
use convoke_log::machine::{Answer, Applied, Opened, Refused, Reply};
use convoke_log::{Command, Epoch, LogTime, SessionId};
use openraft::error::ClientWriteError;

/// The answer to a request that got through the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    pub answer: Answer,
    /// Log time when it was applied; deadlines are made from it.
    pub log_time: LogTime,
}

/// The answer to an open that got through the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenAnswered {
    /// The session, or why there is none.
    pub opened: Result<Opened, Refused>,
    pub log_time: LogTime,
}

impl LogHandle {
    /// Puts a request through the log and waits for its answer. Dropping the future changes nothing: the request is on
    /// its way. A refusal means that this copy was not appended; [`SubmitError::Unknown`] that nobody here knows.
    ///
    /// There is no time limit: without a quorum the answer may be long in coming.
    pub async fn submit(&self, request: Request) -> Result<Answered, SubmitError> {
        let applied = self.engine()?.decide(&Command::Request(request)).await?;
        match applied.reply {
            Reply::Request(answer) => Ok(Answered { answer, log_time: applied.log_time }),
            other => unreachable!("a request is answered as one, not with {other:?}"),
        }
    }

    /// Opens a session (S1, S2).
    pub async fn open(&self, open: Open) -> Result<OpenAnswered, SubmitError> {
        let applied = self.engine()?.decide(&Command::Open(open)).await?;
        match applied.reply {
            Reply::Opened(opened) => Ok(OpenAnswered { opened, log_time: applied.log_time }),
            other => unreachable!("an open is answered as one, not with {other:?}"),
        }
    }

    /// A sign of life of a session's client (S6). `epoch` is the one the client believes in.
    pub fn keep_alive(&self, session: SessionId, epoch: Epoch) -> Result<KeepAlive, Refusal> {
        let engine = self.engine()?;
        let heard = {
            let mut term = engine.state.term();
            match term.epoch() {
                Some(current) if current != epoch => return Err(Refusal::StaleEpoch { current }),
                _ => term.keep_alive(engine.state.now(), session),
            }
        };
        let heard = heard.map_err(|_| engine.not_leading())?;
        if heard == KeepAlive::Kept {
            add(&engine.counting.keep_alives, 1);
        }
        Ok(heard)
    }

    /// The epoch that this replica leads, if it does and has applied the beginning of it: what clients stamp requests
    /// with that they address to it.
    pub fn epoch(&self) -> Result<Epoch, Refusal> {
        let engine = self.engine()?;
        let epoch = engine.state.term().epoch();
        epoch.ok_or_else(|| engine.not_leading())
    }

    /// Waits until this replica does not lead an epoch any more.
    pub async fn deposed(&self, epoch: Epoch) {
        // The engine is not kept meanwhile: a stop waits until nobody has it.
        let led = self.engine().map(|engine| engine.state.term().led());
        if let Ok(mut led) = led {
            // An error means that the replica is gone.
            let _ = led.wait_for(|led| *led != Some(epoch)).await;
        }
    }
}

impl Engine {
    /// Puts a command through the log.
    pub(crate) async fn decide(&self, command: &Command) -> Result<Applied, SubmitError> {
        let answer = self.propose(command)?;
        let unknown = || {
            add(&self.counting.outcomes_unknown, 1);
            SubmitError::Unknown
        };
        match answer.await {
            Ok(Ok(written)) => Ok(written.data.0.expect("commands have effects; only the engine's entries have none")),
            Ok(Err(ClientWriteError::ForwardToLeader(_))) => {
                add(&self.counting.commands_rejected, 1);
                Err(self.not_leading().into())
            }
            // The engine has stopped or was deposed with the entry in its log.
            Ok(Err(_)) | Err(_) => Err(unknown()),
        }
    }
}
