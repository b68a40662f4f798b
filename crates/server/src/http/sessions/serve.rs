//! Carries out the steps of a session's request (C8). `convoke-http-session` decides which steps these are.

use super::entries::{HeldEntry, SharedEntry};
use super::forward::{Raw, ask_node};
use crate::access::Caller;
use crate::error::rejected;
use crate::service::ClientConnection;
use crate::surface::Surface;
use crate::traces;
use ::http::Response;
use axum::body::Body;
use convoke_core::Rejection;
use convoke_core::member::Liveness;
use convoke_core::node::{Attached, Reattach, SessionOwner};
use convoke_core::version::Version;
use convoke_counters::add;
use convoke_http_session::{
    EntryRef, FlowSettings, Forwarded, Mutation, RequestFlow, Secret, SessionAnswer, SessionError, SessionOperation,
    SessionToken, Step, session_gone,
};
use convoke_node::{ClientConnection as NodeConnection, Executed, OperationResult};
use convoke_proto::{Error, ErrorCode};
use std::sync::Arc;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;
use tracing::{Instrument, Span};

/// A served request.
#[derive(Debug)]
pub(super) enum Served {
    /// The answer of this node, and the session token.
    Local(Result<SessionAnswer, SessionError>, SessionToken),
    /// The answer of the node that holds the session.
    Relayed(Response<Body>),
}

/// Attaches a new session.
pub(super) async fn create(
    surface: &Surface,
    secret: Secret,
    client: Option<&Arc<ClientConnection>>,
    caller: &Caller,
) -> Result<(SessionAnswer, SessionToken), Error> {
    match run(surface, RequestFlow::create(secret, settings(surface)), None, client, caller).await? {
        Served::Local(result, token) => result.map(|answer| (answer, token)).map_err(error),
        Served::Relayed(_) => Err(Error::new(ErrorCode::Internal, "a new session was forwarded")),
    }
}

/// Serves a request of a session, here or at the node that holds the session.
pub(super) async fn serve(
    surface: &Surface,
    secret: Secret,
    operation: SessionOperation,
    raw: &Raw,
) -> Result<Served, Error> {
    let request = RequestFlow::new(secret, operation, raw.order.client_order()?, raw.forwarded, settings(surface));
    run(surface, request, Some(raw), raw.connection.as_ref(), &raw.caller).await
}

fn settings(surface: &Surface) -> FlowSettings {
    let session_timeout = surface.node.session_timeout();
    FlowSettings { forward_timeout: surface.config.timeouts.forward, session_timeout, mutation: Mutation::none() }
}

/// Carries out the steps of a request. The entry is locked until the operation is submitted, not until it is answered. So
/// several requests of a session can be in flight at once, and the event loop executes them in one turn.
async fn run(
    surface: &Surface,
    mut request: RequestFlow,
    raw: Option<&Raw>,
    client: Option<&Arc<ClientConnection>>,
    caller: &Caller,
) -> Result<Served, Error> {
    let sessions = &surface.sessions;
    let key = request.secret().key;
    let fast = request.secret().liveness == Liveness::Fast;
    let bound = client.filter(|_| fast).map(Arc::as_ref);
    let mut found: Option<EntryRef<SharedEntry>> = None;
    let mut locked: Option<OwnedMutexGuard<HeldEntry>> = None;
    let mut relayed = None;
    let mut step = request.begin();
    loop {
        step = match step {
            Step::Enter { make } => {
                locked = None;
                found = None;
                let result =
                    if make { sessions.find_or_make(key, bound).map(Some) } else { Ok(sessions.find(&key, bound)) };
                match result {
                    Ok(Some(entry)) => {
                        found = Some(entry);
                        Step::Reenter
                    }
                    Ok(None) => request.absent(sessions.now()),
                    Err(rejection) => request.failed(rejection),
                }
            }
            Step::Reenter => {
                let Some(found) = &found else { return Err(out_of_order()) };
                let held = match &mut locked {
                    Some(held) => held,
                    None => locked.insert(found.entry.clone().lock_owned().await),
                };
                // The secret is not enough: the session belongs to the principal that attached it (AU17).
                if !held.is_open_to(caller) {
                    return Err(rejected(session_gone()));
                }
                held.catch_up();
                let step = request.entered(sessions.now(), &mut held.entry);
                held.keep(None);
                step
            }
            Step::Attach(attaching) => {
                let (Some(found), Some(held)) = (&found, &mut locked) else { return Err(out_of_order()) };
                match getrandom::u64() {
                    Err(error) => request.failed(super::no_randomness(error)),
                    Ok(random) => {
                        let attaching = Reattach { principal: caller.registrant(), ..attaching.with(random) };
                        held.principal.clone_from(&attaching.principal);
                        let (connection, result) = attach(surface, attaching).await;
                        if let Ok(attached) = &result {
                            sessions.attached(&key, found.number, attached.timeout);
                        }
                        let step = request.attached(sessions.now(), &mut held.entry, result);
                        held.keep(connection);
                        step
                    }
                }
            }
            Step::Submit(calls) => {
                let Some(connection) = locked.as_ref().and_then(|held| held.connection()) else {
                    return Err(out_of_order());
                };
                let started = connection.start_replicated(calls.into_iter().flatten().collect());
                locked = None;
                match started {
                    Err(rejection) => request.failed(rejection),
                    Ok(executed) => match executed.await {
                        Ok(Executed { results, last_write, replicated }) => {
                            request.answered(results.into_iter().map(result), last_write, replicated)
                        }
                        Err(rejection) => request.rejected(rejection),
                    },
                }
            }
            Step::AskOwner { client, nonce, creator } => {
                locked = None;
                match surface.node.owner_of_session(&client, nonce, creator).await {
                    Ok(owner) => request.owner(sessions.now(), owner),
                    Err(rejection) => request.failed(rejection),
                }
            }
            Step::Search { dots, search } => {
                locked = None;
                match surface.node.search(dots, search).await {
                    Ok((coverage, kept)) => request.searched(sessions.now(), coverage, kept),
                    Err(rejection) => request.failed(rejection),
                }
            }
            Step::Forward { owner, deadline } => {
                let Some(raw) = raw else { return Err(out_of_order()) };
                let outcome = forward(surface, &owner, raw, sessions.instant(deadline), &mut relayed).await;
                request.forwarded(sessions.now(), outcome)
            }
            Step::Wait { until } => {
                tokio::time::sleep_until(sessions.instant(until)).await;
                request.waited()
            }
            Step::Relay => {
                add(&surface.metrics.clients.session_requests_forwarded, 1);
                return relayed.map(Served::Relayed).ok_or_else(out_of_order);
            }
            Step::Finish { result, remove } => {
                drop(locked);
                if let Some(found) = found.filter(|_| remove) {
                    sessions.remove(&key, found.number);
                }
                return Ok(Served::Local(result, request.token().clone()));
            }
        };
    }
}

/// Attaches a session on a new connection.
async fn attach(surface: &Surface, request: Reattach) -> (Option<NodeConnection>, Result<Attached, Rejection>) {
    let connection = match surface.node.connect() {
        Ok(connection) => connection,
        Err(rejection) => return (None, Err(rejection)),
    };
    let again = !request.fresh;
    let span = traces::attach(&Span::current(), &request.client);
    let result = connection.reattach(request).instrument(span.clone()).await;
    match &result {
        Ok(attached) => {
            traces::attached(&span, attached.versions.len());
            add(&surface.metrics.clients.sessions_reattached, again.into());
        }
        Err(rejection) => traces::rejected(&span, rejection.code.as_str()),
    }
    (Some(connection), result)
}

/// Sends the request to the node that holds the session, and stores its answer.
async fn forward(
    surface: &Surface,
    owner: &SessionOwner,
    raw: &Raw,
    deadline: Instant,
    answer: &mut Option<Response<Body>>,
) -> Forwarded {
    match ask_node(surface, &owner.client_address, raw, deadline).await {
        Ok(response) => Forwarded::with_status(answer.insert(response).status().as_u16()),
        Err(error) => {
            tracing::debug!(node = %owner.node, %error, sent = error.sent, "session request not answered");
            if error.sent { Forwarded::Unanswered } else { Forwarded::Unreached }
        }
    }
}

fn result(answer: OperationResult) -> Result<Option<Version>, Rejection> {
    match answer {
        OperationResult::Written(result) => result.map(Some),
        OperationResult::Unregistered(result) => result.map(|_| None),
        OperationResult::Heartbeat(result) => result.map(|()| None),
        OperationResult::Attached(result) => result.map(|_| None),
    }
}

/// Converts the failure of a request.
pub(super) fn error(error: SessionError) -> Error {
    match error {
        SessionError::Rejected(rejection) => rejected(rejection),
        SessionError::OutcomeUnknown { node } => {
            let message =
                format!("node {node} holds this session and did not answer; the request may have been executed");
            Error::new(ErrorCode::OutcomeUnknown, message)
        }
        SessionError::WritesLost { .. } => {
            let message = "no reachable node has all writes of this session; compare its members with yours, and repeat the request";
            Error::new(ErrorCode::WritesLost, message)
        }
    }
}

/// Unreachable: a flow returns its steps in an order that can be carried out.
fn out_of_order() -> Error {
    Error::new(ErrorCode::Internal, "session steps out of order")
}
