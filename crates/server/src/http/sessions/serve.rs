//! Carries out the steps of a session's request (C8). What they are is decided by `convoke-http-session`.

use super::forward::{Raw, ask_node};
use super::slots::{Held, Slot};
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
    Answer, Call, Forwarded, Found, Mutation, Request, Secret, SessionError, SessionRequest, Settings, Step,
};
use convoke_node::{ClientConnection as NodeConnection, ClientOperation, OperationResult};
use convoke_proto::{Error, ErrorCode};
use std::sync::Arc;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;
use tracing::{Instrument, Span};

/// What became of a request.
#[derive(Debug)]
pub(super) enum Served {
    Here(Answer),
    Elsewhere(Response<Body>),
}

/// Attaches a new session.
pub(super) async fn create(
    surface: &Surface,
    secret: Secret,
    client: Option<&Arc<ClientConnection>>,
) -> Result<Answer, Error> {
    match run(surface, Request::create(secret, settings(surface)), None, client).await? {
        Served::Here(answer) => Ok(answer),
        Served::Elsewhere(_) => Err(Error::new(ErrorCode::Internal, "a new session was forwarded")),
    }
}

/// Serves a request of a session, here or at the node that holds the session.
pub(super) async fn serve(
    surface: &Surface,
    secret: Secret,
    request: SessionRequest,
    raw: &Raw,
) -> Result<Served, Error> {
    let request = Request::new(secret, request, raw.forwarded, settings(surface));
    run(surface, request, Some(raw), raw.connection.as_ref()).await
}

fn settings(surface: &Surface) -> Settings {
    Settings { forward_timeout: surface.config.timeouts.forward, mutation: Mutation::none() }
}

/// The place is locked until the request is submitted, not until it is answered: many requests of a session can be under
/// way at once, and the event loop takes them in one turn.
async fn run(
    surface: &Surface,
    mut request: Request,
    raw: Option<&Raw>,
    client: Option<&Arc<ClientConnection>>,
) -> Result<Served, Error> {
    let sessions = &surface.sessions;
    let key = request.secret().key;
    let fast = request.secret().liveness == Liveness::Fast;
    let bound = client.filter(|_| fast).map(Arc::as_ref);
    let mut found: Option<Found<Slot>> = None;
    let mut locked: Option<OwnedMutexGuard<Held>> = None;
    let mut relayed = None;
    let mut step = request.begin();
    loop {
        step = match step {
            Step::Enter { make } => {
                locked = None;
                found = if make { Some(sessions.find_or_make(key, bound)?) } else { sessions.find(&key, bound) };
                match &found {
                    Some(_) => Step::Reenter,
                    None => request.absent(sessions.now()),
                }
            }
            Step::Reenter => {
                let Some(found) = &found else { return Err(out_of_order()) };
                let held = match &mut locked {
                    Some(held) => held,
                    None => locked.insert(found.place.clone().lock_owned().await),
                };
                held.catch_up();
                let step = request.entered(sessions.now(), &mut held.place);
                held.keep(None);
                step
            }
            Step::Attach(attaching) => {
                let (Some(found), Some(held)) = (&found, &mut locked) else { return Err(out_of_order()) };
                let random = getrandom::u64().map_err(super::no_randomness)?;
                let (connection, result) = attach(surface, attaching.with(random)).await;
                if let Ok(attached) = &result {
                    sessions.attached(&key, found.number, attached.timeout);
                }
                let step = request.attached(sessions.now(), &mut held.place, result);
                held.keep(connection);
                step
            }
            Step::Submit(calls) => {
                let Some(connection) = locked.as_ref().and_then(|held| held.connection()) else {
                    return Err(out_of_order());
                };
                let operations = calls.into_iter().flatten().map(operation).collect();
                let answers = connection.start(operations).map_err(rejected)?;
                locked = None;
                match answers.await {
                    Ok(answers) => request.answered(answers.into_iter().map(result)),
                    Err(rejection) => request.answered([Err(rejection)]),
                }
            }
            Step::AskOwner { client, nonce } => {
                locked = None;
                let owner = surface.node.owner_of_session(&client, nonce).await.map_err(rejected)?;
                request.owner(sessions.now(), owner)
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
                return relayed.map(Served::Elsewhere).ok_or_else(out_of_order);
            }
            Step::Finish { result, remove } => {
                drop(locked);
                if let Some(found) = found.filter(|_| remove) {
                    sessions.remove(&key, found.number);
                }
                return result.map(Served::Here).map_err(error);
            }
        };
    }
}

/// Attaches a session on a connection of its own.
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

/// Sends the request to the node that holds the session, and keeps its answer.
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

fn operation(call: Call) -> ClientOperation {
    match call {
        Call::Heartbeat { session } => ClientOperation::Heartbeat { session },
        Call::Register { session, seq, member } => ClientOperation::Register { session, seq, member },
        Call::Update { session, seq, id, update, expected } => {
            ClientOperation::Update { session, seq, id, update, expected }
        }
        Call::Unregister { session, seq, id } => ClientOperation::Unregister { session, seq, id },
        Call::Close { session } => ClientOperation::Close { session },
    }
}

fn result(answer: OperationResult) -> Result<Option<Version>, Rejection> {
    match answer {
        OperationResult::Written(result) => result.map(Some),
        OperationResult::Done(result) => result.map(|()| None),
        OperationResult::Attached(result) => result.map(|_| None),
    }
}

fn error(error: SessionError) -> Error {
    match error {
        SessionError::Rejected(rejection) => rejected(rejection),
        SessionError::OutcomeUnknown { node } => {
            let message =
                format!("node {node} holds this session and did not answer; the request may have been executed");
            Error::new(ErrorCode::OutcomeUnknown, message)
        }
    }
}

/// Unreachable: a request names its steps in an order that can be carried out.
fn out_of_order() -> Error {
    Error::new(ErrorCode::Internal, "a step of this request has no place")
}
