//! Log sessions: who may use them, whose quota they count for, and what an operator sees and ends.

use super::{LogService, Sender};
use crate::access::{Caller, Use};
use crate::error::invalid;
use convoke_access::{Resource, Verb};
use convoke_log::command::Opener;
use convoke_log::machine::{Fate, SessionState};
use convoke_log::{LogSessionId, RequestId};
use convoke_proto::{Error, ErrorCode, v1};
use convoke_replica::{Consistency, LogRejection};
use futures_util::{StreamExt, stream};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Sessions in one page.
const PAGE: usize = 1_000;
/// Sessions that one request ends.
const ENDED_MAX: usize = 10_000;
/// Sessions that are ended at once, at most: each needs a session of the operator (LS7). The log writes their commands to
/// disk together.
const ENDED_AT_ONCE: usize = 64;
/// Time after which a request that ends many sessions is answered, below the default timeout of the commands.
const ENDING_TIME: Duration = Duration::from_secs(2);

impl LogService {
    /// Rejects a message that names another log (LS10), or a session of another client (LS9) or principal (AU15).
    pub(crate) fn check(&self, caller: &Caller, log: u128, session: LogSessionId, owner: u128) -> Result<(), Error> {
        let checked = self.handle.check_log(log).and_then(|()| self.handle.check_owner(session, owner));
        let checked = checked.and_then(|()| match self.handle.local() {
            Ok(machine) if caller.is_bound() && !is_own(caller, machine.opener(session)) => Err(LogRejection::NotOwner),
            _ => Ok(()),
        });
        checked.map_err(|why| self.rejected(&why))
    }

    /// Rejects a request that uses a lease, or the place of one, of another principal (AU16). It is decided here, before the
    /// request is proposed. A copy of a request that was decided before returns its outcome, even if the lease has ended.
    pub(crate) async fn check_uses(&self, caller: &Caller, uses: &[Use], id: RequestId) -> Result<(), Error> {
        let mut unknown = Vec::new();
        for used in uses.iter().filter(|used| !used.is_open_to(caller)) {
            let machine = self.handle.local().map_err(|why| self.rejected(&why))?;
            // A lease of another principal takes the same way as one that does not exist, so that time reveals nothing.
            if used.owner(&machine).is_none_or(|owner| used.check(caller, owner).is_err()) {
                unknown.push(used);
            }
        }
        if unknown.is_empty() {
            return Ok(());
        }
        // A leader that was deposed without noticing may lack the lease.
        let machine = self.read(Consistency::Linearizable).await?;
        if machine.peek(id) != Fate::Open {
            return Ok(());
        }
        unknown.into_iter().try_for_each(|used| match used.owner(&machine) {
            Some(owner) => used.check(caller, owner),
            None => Err(used.missing()),
        })
    }

    /// Rejects a read or a decision about a request of another principal: it does not exist for the caller (AU15).
    pub(crate) fn check_request(&self, caller: &Caller, verb: Verb, id: v1::RequestId) -> Result<(), Error> {
        if caller.may(verb, Resource::Log) {
            return Ok(());
        }
        let machine = self.handle.local().map_err(|why| self.rejected(&why))?;
        let opener = machine.opener(LogSessionId(id.session)).and_then(Opener::principal);
        if opener.is_some_and(|opener| caller.owns(opener)) { Ok(()) } else { Err(no_request(id)) }
    }

    /// Rejects a read or a resolve that names another log (LS10).
    pub(crate) fn check_named(&self, log: Option<v1::LogId>) -> Result<(), Error> {
        log.map_or(Ok(()), |log| self.handle.check_log(log.into()).map_err(|why| self.rejected(&why)))
    }

    /// Rejects a request that does not name the log of this node while the cluster has two logs (FD6).
    pub(crate) fn check_conflict(&self, named: Option<u128>) -> Result<(), Error> {
        self.handle.check_conflict(named).map_err(|why| self.rejected(&why))
    }

    /// Returns whose quota an open counts for (LS7), and who owns the session (AU15): a known node, the principal, or the
    /// address of the client. With access control, only a caller that may act for others is believed to be a node, and to
    /// name the principal for whom it acts.
    pub(crate) fn opener(&self, node: &str, principal: &str, sender: &Sender) -> Result<Opener, Error> {
        if !principal.is_empty() {
            sender.caller.check(Verb::Forward, Resource::Cluster)?;
            let named = Opener { name: principal.into(), reserved: false };
            let usable = named.principal().is_some();
            return if usable { Ok(named) } else { Err(invalid("principal", "expected the name of a principal")) };
        }
        let known = || self.directory.knows(node) || self.handle.group().on(node).is_some();
        if !node.is_empty() && sender.caller.may(Verb::Forward, Resource::Cluster) && known() {
            return Ok(Opener { name: node.into(), reserved: true });
        }
        let anonymous = sender.caller.is_restricted() && sender.caller.name().is_none();
        if let Some(principal) = sender.caller.opener().filter(|_| !anonymous) {
            return Ok(Opener { name: principal.into(), reserved: false });
        }
        let address = match sender.address() {
            Some(IpAddr::V4(address)) => address.to_string(),
            // One host usually has a whole prefix.
            Some(IpAddr::V6(address)) => match address.to_ipv4_mapped() {
                Some(address) => address.to_string(),
                None => {
                    let [a, b, c, d, ..] = address.segments();
                    format!("{}/64", Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
                }
            },
            None => "unknown".to_owned(),
        };
        let name = if anonymous { sender.caller.anonymous_at(&address) } else { address };
        Ok(Opener { name: name.into(), reserved: false })
    }

    /// Returns a page of open sessions.
    pub(crate) async fn sessions(&self, request: v1::SessionsRequest) -> Result<v1::SessionsResponse, Error> {
        let machine = self.read(Consistency::Linearizable).await?;
        let limit = match usize::try_from(request.limit) {
            Ok(limit @ 1..=PAGE) => limit,
            _ => PAGE,
        };
        let mut following = machine.sessions_after(LogSessionId(request.after));
        let log_time = machine.log_time();
        let shown = |session: SessionState<'_>| v1::LogSession {
            session: session.id.0,
            client: session.client.unwrap_or_default().to_owned(),
            opened_by: session.opener.name.to_string(),
            reserved: session.opener.reserved,
            ttl_ms: millis(session.ttl),
            idle_ms: millis(log_time.since(session.active_at)),
            decided: session.floor - 1,
        };
        let sessions = following.by_ref().take(limit).map(shown).collect();
        let limits = machine.limits();
        Ok(v1::SessionsResponse {
            sessions,
            more: following.next().is_some(),
            open: machine.session_count() as u64,
            client_limit: limits.client_sessions(),
            limit: limits.sessions,
            limit_per_client: limits.sessions_per_client,
        })
    }

    /// Ends sessions, if this node leads.
    pub(crate) async fn end_sessions(&self, request: v1::EndSessionsRequest) -> Result<v1::EndSessionsResponse, Error> {
        let v1::EndSessionsRequest { session, opened_by } = request;
        let (wanted, at_once): (Vec<LogSessionId>, usize) = match (session, opened_by.as_str()) {
            (0, "") => return Err(invalid("session", "a session or opened_by is required")),
            (0, opener) => {
                let machine = self.read(Consistency::Linearizable).await?;
                let found = machine.sessions().filter(|open| open.opener.name == opener);
                let quota = usize::try_from(machine.limits().sessions_of(true)).unwrap_or(usize::MAX);
                (found.map(|open| open.id).take(ENDED_MAX).collect(), quota.min(ENDED_AT_ONCE))
            }
            (session, "") => (vec![LogSessionId(session)], 1),
            _ => return Err(invalid("opened_by", "session and opened_by exclude each other")),
        };
        let end =
            |session| async move { self.handle.end_session(session).await.map_err(|error| self.not_submitted(&error)) };
        end_all(wanted, at_once, self.timeout.min(ENDING_TIME), end).await
    }
}

/// Whether a session belongs to the caller. One that no principal opened belongs to whoever knows its secret.
fn is_own(caller: &Caller, opener: Option<&Opener>) -> bool {
    opener.and_then(Opener::principal).is_none_or(|principal| caller.owns(principal))
}

pub(super) fn no_request(id: v1::RequestId) -> Error {
    let message = format!("request {}/{} does not exist, or is not one of this principal", id.session, id.number);
    Error::new(ErrorCode::NotFound, message).field("request")
}

/// Ends sessions, `at_once` of them together. After `time` it answers with the number of those that were ended until then, and the
/// client asks again for the others.
async fn end_all<F: Future<Output = Result<bool, Error>>>(
    sessions: Vec<LogSessionId>,
    at_once: usize,
    time: Duration,
    end: impl Fn(LogSessionId) -> F,
) -> Result<v1::EndSessionsResponse, Error> {
    let mut ending = stream::iter(sessions).map(end).buffer_unordered(at_once);
    let deadline = Instant::now() + time;
    let (mut answers, mut ended) = (0_usize, 0);
    let error = loop {
        match timeout_at(deadline, ending.next()).await {
            Ok(Some(Ok(was_open))) => (answers, ended) = (answers + 1, ended + u64::from(was_open)),
            Ok(Some(Err(error))) => break error,
            Ok(None) => return Ok(v1::EndSessionsResponse { ended, more: false }),
            Err(_) => break Error::new(ErrorCode::Timeout, "no session was ended in time; run the same request again"),
        }
    };
    if answers > 0 { Ok(v1::EndSessionsResponse { ended, more: true }) } else { Err(error) }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::sleep;

    #[tokio::test(start_paused = true)]
    async fn sessions_are_ended_together_and_counted_when_the_time_is_over() {
        let sessions = || (1..=1_000).map(LogSessionId).collect::<Vec<_>>();
        // As long as a write to a slow disk takes. Every tenth session has ended before.
        let end = |session: LogSessionId| async move {
            sleep(Duration::from_millis(20)).await;
            Ok(!session.0.is_multiple_of(10))
        };
        let all = end_all(sessions(), ENDED_AT_ONCE, ENDING_TIME, end).await.unwrap();
        assert_eq!((all.ended, all.more), (900, false));
        let some = end_all(sessions(), ENDED_AT_ONCE, Duration::from_millis(50), end).await.unwrap();
        assert!(some.more && some.ended > 0 && some.ended < 900, "{some:?}");
        let none = end_all(sessions(), ENDED_AT_ONCE, Duration::from_millis(10), end).await.unwrap_err();
        assert_eq!(none.code, ErrorCode::Timeout);
        let no_quorum = |_| async { Err(Error::new(ErrorCode::NoQuorum, "no majority")) };
        assert_eq!(
            end_all(sessions(), ENDED_AT_ONCE, ENDING_TIME, no_quorum).await.unwrap_err().code,
            ErrorCode::NoQuorum
        );
        let nothing = end_all(Vec::new(), ENDED_AT_ONCE, ENDING_TIME, end).await.unwrap();
        assert_eq!((nothing.ended, nothing.more), (0, false));
    }
}
