//! Requests of a node on behalf of operators, each in a log session of its own.

use super::LogHandle;
use crate::entropy::random;
use crate::rejection::LogRejection;
use crate::rejection::SubmitError;
use convoke_log::command::{Body, Open, Opener, Request};
use convoke_log::machine::{ApplyRejection, Fate, RequestAnswer};
use convoke_log::{LogSessionId, RequestId};
use smol_str::SmolStr;
use std::time::Duration;

/// Long enough for two entries. If the leader is lost in between, the session expires.
const SESSION_TTL: Duration = Duration::from_secs(10);

impl LogHandle {
    /// Makes the fate of a request of any session final (F6). Only the leader can.
    pub async fn resolve(&self, id: RequestId) -> Result<Fate, SubmitError> {
        let machine = self.read(super::Consistency::Linearizable).await?;
        let applied = machine.applied().index;
        if id.session.0 == 0 || id.session.0 > applied {
            // No client can have used such a session yet (F8).
            return Err(LogRejection::NoSession { session: id.session, applied }.into());
        }
        // Already final, so no entry is needed.
        let before = machine.peek(id);
        if before.is_final() {
            return Ok(before);
        }
        let _turn = self.plane.operating.acquire().await.map_err(|_| LogRejection::Stopped)?;
        let answer = self.once(Body::Fence(id), "fence").await?;
        match answer.previous {
            Some((fenced, fate)) if fenced == id && fate.is_final() => Ok(fate),
            _ => Err(SubmitError::Unknown),
        }
    }

    /// Ends an open log session. Returns false if it is not open. Only the leader can.
    pub async fn end_session(&self, session: LogSessionId) -> Result<bool, SubmitError> {
        let _turn = self.plane.operating.acquire().await.map_err(|_| LogRejection::Stopped)?;
        let answer = self.once(Body::End(session), "operator").await?;
        match answer.verdict.as_deref() {
            Ok(outcome) => Ok(outcome.is_applied()),
            Err(_) => Err(SubmitError::Unknown),
        }
    }

    /// Submits one request in a log session of its own, which ends with it. The session uses a reserved place, so that
    /// it finds room when clients have taken all others (LS7).
    pub(crate) async fn once(&self, body: Body, opener: &'static str) -> Result<RequestAnswer, SubmitError> {
        let epoch = self.epoch()?;
        let owner = u128::from_le_bytes(random().map_err(|_| LogRejection::Stopped)?);
        let opener = Opener { name: SmolStr::new_static(opener), reserved: true };
        let session = match self.open(Open { opener, ..Open::new(epoch, SESSION_TTL, owner) }).await?.opened {
            Ok(opened) => opened.session,
            Err(ApplyRejection::StaleEpoch { current }) => return Err(LogRejection::StaleEpoch { current }.into()),
            Err(why @ (ApplyRejection::SessionsFull { .. } | ApplyRejection::QuotaReached { .. })) => {
                return Err(LogRejection::NoRoom(why).into());
            }
            Err(_) => return Err(SubmitError::Unknown),
        };
        let request = Request { last: true, ..Request::new(session, 1, epoch, body) };
        Ok(self.submit(request).await?.answer)
    }
}
