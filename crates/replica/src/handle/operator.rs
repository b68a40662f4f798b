//! Requests of a node on behalf of operators, each in a log session of its own.

use super::LogHandle;
use crate::entropy::random;
use crate::rejection::LogRejection;
use crate::rejection::SubmitError;
use convoke_log::RequestId;
use convoke_log::command::{Body, Open, Request};
use convoke_log::machine::{ApplyRejection, Fate, RequestAnswer};
use std::time::Duration;

/// Long enough for a few requests. If the leader is lost in between, the session expires.
const SESSION_TTL: Duration = Duration::from_secs(60);

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
        let answer = self.once(Body::Fence(id)).await?;
        match answer.previous {
            Some((fenced, fate)) if fenced == id && fate.is_final() => Ok(fate),
            _ => Err(SubmitError::Unknown),
        }
    }

    /// Submits one request in a log session of its own.
    pub(crate) async fn once(&self, body: Body) -> Result<RequestAnswer, SubmitError> {
        let epoch = self.epoch()?;
        let nonce = u64::from_le_bytes(random().map_err(|_| LogRejection::Stopped)?);
        let open = Open { epoch, ttl: SESSION_TTL, nonce, client: None };
        let session = match self.open(open).await?.opened {
            Ok(opened) => opened.session,
            Err(ApplyRejection::StaleEpoch { current }) => return Err(LogRejection::StaleEpoch { current }.into()),
            Err(ApplyRejection::SessionsFull { limit }) => {
                return Err(LogRejection::Busy { what: "sessions", limit }.into());
            }
            Err(_) => return Err(SubmitError::Unknown),
        };
        let answered = self.submit(Request::new(session, 1, epoch, body)).await;
        // If this fails, the session expires later.
        let _ = self.submit(Request::new(session, 2, epoch, Body::End(session))).await;
        Ok(answered?.answer)
    }
}
