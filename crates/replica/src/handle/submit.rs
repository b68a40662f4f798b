//! Submitting requests, and opening and renewing log sessions.

use super::LogHandle;
use crate::counters::add;
use crate::engine::Engine;
use crate::mutant::seam;
use crate::rejection::{LogRejection, SubmitError};
use crate::state::deposed;
use convoke_base::same_secret;
use convoke_log::command::{Open, Request};
use convoke_log::leader::KeepAlive;
use convoke_log::machine::{Applied, ApplyRejection, Opened, Reply, RequestAnswer};
use convoke_log::{Command, Epoch, LogSessionId, LogTime, Machine};
use openraft::error::ClientWriteError;

/// The answer to a request that was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    pub answer: RequestAnswer,
    /// Log time at apply, the base for deadlines.
    pub log_time: LogTime,
}

/// The answer to an open that was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenAnswered {
    /// The session, or why none was opened.
    pub opened: Result<Opened, ApplyRejection>,
    pub log_time: LogTime,
}

impl LogHandle {
    /// Submits a request and waits for its answer. Dropping the future does not cancel the request. A rejection means
    /// that this copy was not appended; [`SubmitError::Unknown`] means that the outcome is unknown here.
    ///
    /// There is no time limit: without a quorum the answer may take arbitrarily long.
    pub async fn submit(&self, request: Request) -> Result<Answered, SubmitError> {
        self.submit_command(&Command::Request(request)).await
    }

    /// The same for a request that the caller still needs afterwards.
    ///
    /// # Panics
    ///
    /// If the command is not a request.
    pub async fn submit_command(&self, command: &Command) -> Result<Answered, SubmitError> {
        let applied = self.engine()?.decide(command).await?;
        match applied.reply {
            Reply::Request(answer) => Ok(Answered { answer, log_time: applied.log_time }),
            other => unreachable!("a request is answered as one, not with {other:?}"),
        }
    }

    /// Opens a log session (LS1, LS2).
    pub async fn open(&self, open: Open) -> Result<OpenAnswered, SubmitError> {
        let applied = self.engine()?.decide(&Command::Open(open)).await?;
        match applied.reply {
            Reply::Opened(opened) => Ok(OpenAnswered { opened, log_time: applied.log_time }),
            other => unreachable!("an open is answered as one, not with {other:?}"),
        }
    }

    /// Renews a log session (LS6). `epoch` is the one the client assumes.
    pub fn keep_alive(&self, session: LogSessionId, epoch: Epoch) -> Result<KeepAlive, LogRejection> {
        let engine = self.engine()?;
        let answer = {
            let mut term = engine.state.term();
            match term.epoch() {
                Some(current) if current != epoch => return Err(LogRejection::StaleEpoch { current }),
                _ => term.keep_alive(engine.state.now(), session),
            }
        };
        let answer = answer.map_err(|_| engine.not_leading())?;
        if answer == KeepAlive::Kept {
            add(&engine.counting.keep_alives, 1);
        }
        Ok(answer)
    }

    /// Returns the id of the log that this node holds a replica of.
    pub fn log(&self) -> Result<u128, LogRejection> {
        Ok(self.engine()?.log)
    }

    /// Rejects a message that names another log (LS10).
    pub fn check_log(&self, named: u128) -> Result<(), LogRejection> {
        let own = self.log()?;
        seam!(in self.plane.config.mutation, LogUnchecked => return Ok(()));
        if named == own { Ok(()) } else { Err(LogRejection::OtherLog { named, own }) }
    }

    /// Rejects a message whose sender did not open the session (LS9). A session that is not open here has no owner: its
    /// requests are rejected, whoever sent them.
    pub fn check_owner(&self, session: LogSessionId, owner: u128) -> Result<(), LogRejection> {
        let engine = self.engine()?;
        seam!(in self.plane.config.mutation, OwnerUnchecked => return Ok(()));
        let is_other = |held: u128| !same_secret(&held.to_le_bytes(), &owner.to_le_bytes());
        let is_foreign = |machine: &Machine| machine.session(session).is_some_and(|open| is_other(open.owner));
        let foreign = engine.state.look(is_foreign);
        if foreign { Err(LogRejection::NotOwner) } else { Ok(()) }
    }

    /// Returns the epoch in which this replica leads, once it has applied the first entry of its term. Clients name it
    /// in their requests.
    pub fn epoch(&self) -> Result<Epoch, LogRejection> {
        let engine = self.engine()?;
        let epoch = engine.state.term().epoch();
        epoch.ok_or_else(|| engine.not_leading())
    }

    /// Waits until this replica no longer leads in an epoch.
    pub async fn deposed(&self, epoch: Epoch) {
        // Do not hold the engine while waiting: a stop waits until it is released.
        let led = self.engine().map(|engine| engine.state.term().led());
        if let Ok(mut led) = led {
            deposed(&mut led, epoch).await;
        }
    }
}

impl Engine {
    /// Submits a command and waits until it is applied.
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
            // The engine has stopped, or was deposed with the entry in its log.
            Ok(Err(_)) | Err(_) => Err(unknown()),
        }
    }
}
