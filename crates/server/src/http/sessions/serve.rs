//! Where a request of a session is carried out: here if it is attached here, at the node that holds it, or here after
//! attaching it again (C8).

use super::forward::{Forwarded, Raw, forward, reachable};
use super::live::{Live, SessionError, SessionReply, SessionRequest};
use super::secret::Secret;
use super::table::Entry;
use crate::error::rejected;
use crate::service::ClientConnection;
use crate::surface::Surface;
use ::http::Response;
use axum::body::Body;
use convoke_core::ErrorCode as Rejected;
use convoke_core::member::Liveness;
use convoke_core::node::{AttachMember, Attached, Feeder, PeerState};
use convoke_counters::add;
use convoke_proto::{Error, ErrorCode};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A session can be lost again as soon as it is attached, but not for ever.
const ATTEMPTS: usize = 3;
/// After which a node that did not answer is looked at again; doubled each time.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// What became of a request.
#[derive(Debug)]
pub(super) enum Served {
    Here(Done),
    Elsewhere(Response<Body>),
}

#[derive(Debug)]
pub(super) struct Done {
    pub(super) granted: SessionReply,
    pub(super) heartbeat_interval: Duration,
    pub(super) timeout: Duration,
    /// The session was attached again for this: the members it has now.
    pub(super) members: Option<Vec<String>>,
}

/// Attaches a new session.
pub(super) async fn create(
    surface: &Surface,
    secret: &Secret,
    tie: Option<&Arc<ClientConnection>>,
) -> Result<Done, Error> {
    let entry = surface.sessions.place(secret.key)?;
    bind_to_connection(&entry, secret, tie);
    let mut place = entry.live.lock().await;
    let live = Live::create(surface, secret).await.inspect_err(|_| surface.sessions.remove(&secret.key, &entry))?;
    entry.set_timeout(live.timeout);
    let done = Settings::of(&live).done(SessionReply::Done, None);
    *place = Some(live);
    Ok(done)
}

pub(super) async fn serve(
    surface: &Surface,
    secret: &Secret,
    wish: SessionRequest,
    raw: &Raw,
) -> Result<Served, Error> {
    if let Some(entry) = surface.sessions.find(&secret.key) {
        bind_to_connection(&entry, secret, raw.tie.as_ref());
        match run_here(surface, secret, &entry, &wish, Attaching::No).await {
            Err(SessionError::Lost) => {}
            Err(SessionError::Because(error)) => return Err(error),
            Ok(done) => return Ok(Served::Here(done)),
        }
    }
    // With `fast` liveness the connection counts, and only the node that has it can notice its loss.
    if !raw.forwarded
        && secret.liveness == Liveness::Normal
        && let Some(response) = forward_to_owner(surface, secret, raw).await?
    {
        return Ok(Served::Elsewhere(response));
    }
    let entry = surface.sessions.place(secret.key)?;
    bind_to_connection(&entry, secret, raw.tie.as_ref());
    match run_here(surface, secret, &entry, &wish, Attaching::Yes).await {
        Ok(done) => Ok(Served::Here(done)),
        Err(SessionError::Because(error)) => Err(error),
        Err(SessionError::Lost) => {
            Err(Error::new(ErrorCode::NotReady, "this session is moving between nodes; try again"))
        }
    }
}

/// Forwards a request to the node that owns the session. `None` if no node does, or none that is up and takes clients.
///
/// A peer that does not answer is not necessarily dead: ports may have run out, or it is busy. So its state is checked again; the end
/// of a dead one is noticed within milliseconds.
async fn forward_to_owner(surface: &Surface, secret: &Secret, raw: &Raw) -> Result<Option<Response<Body>>, Error> {
    let deadline = Instant::now() + surface.config.timeouts.forward;
    let mut pause = LOOK_AGAIN;
    let mut unanswered = false;
    loop {
        let feeder = surface.node.fed_by(&secret.client(), secret.nonce).await.map_err(rejected)?;
        let Some(feeder) = feeder.filter(reachable) else { return Ok(None) };
        if Instant::now() >= deadline {
            return Err(silent(&feeder, unanswered));
        }
        // What may have been executed is not sent twice.
        if !unanswered {
            match forward(surface, &feeder, raw, deadline).await {
                Forwarded::Answered(response) => return Ok(Some(response)),
                Forwarded::Declined => return Ok(None),
                // There may be no way to the client ports of other regions.
                _ if feeder.state != PeerState::Up => return Ok(None),
                Forwarded::Unreached => {}
                Forwarded::Unanswered => unanswered = true,
            }
        }
        tokio::time::sleep_until(deadline.min(Instant::now() + pause)).await;
        pause *= 2;
    }
}

fn silent(feeder: &Feeder, unanswered: bool) -> Error {
    let node = &feeder.node;
    if unanswered {
        let message = format!("node {node} holds this session and did not answer; the request may have been executed");
        return Error::new(ErrorCode::OutcomeUnknown, message);
    }
    Error::new(ErrorCode::NotReady, format!("node {node} holds this session and does not answer; try again"))
}

/// With `fast` liveness the loss of the connection counts.
fn bind_to_connection(entry: &Entry, secret: &Secret, tie: Option<&Arc<ClientConnection>>) {
    if secret.liveness == Liveness::Fast
        && let Some(tie) = tie
    {
        entry.tie_to(secret.key, tie);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Attaching {
    Yes,
    No,
}

/// Runs a request in the session's place here, attaching the session first if need be and allowed.
///
/// The place is locked until the request is submitted, not until it is answered: many requests of a session can be under way at once,
/// and the event loop takes them in one turn.
async fn run_here(
    surface: &Surface,
    secret: &Secret,
    entry: &Arc<Entry>,
    wish: &SessionRequest,
    attaching: Attaching,
) -> Result<Done, SessionError> {
    let mut members = None;
    for _ in 0..ATTEMPTS {
        let mut place = entry.live.lock().await;
        if let Some(live) = place.as_mut()
            && let Err(denied) = live.catch_up()
        {
            *place = None;
            if let SessionError::Because(error) = denied {
                surface.sessions.remove(&secret.key, entry);
                return Err(SessionError::Because(error));
            }
        }
        let live = match place.as_mut() {
            Some(live) => live,
            None if attaching == Attaching::No => return Err(SessionError::Lost),
            None => {
                let (live, attached) = reattach(surface, secret, entry, None).await?;
                members = Some(attached.versions.into_iter().map(|(id, _)| id).collect());
                place.insert(live)
            }
        };
        let submitted = live.submit(wish.clone())?;
        let (session, settings) = (submitted.session, Settings::of(live));
        drop(place);
        let rejection = match submitted.answer().await {
            Ok(granted) => {
                if matches!(wish, SessionRequest::Close) {
                    surface.sessions.remove(&secret.key, entry);
                }
                return Ok(settings.done(granted, members));
            }
            Err(rejection) => rejection,
        };
        let mut place = entry.live.lock().await;
        // Another request may have attached the session again meanwhile.
        let same = place.as_ref().filter(|live| live.is(session));
        match (rejection.code, same) {
            (Rejected::SessionGone, Some(_)) => *place = None,
            (Rejected::SessionGone, None) => {}
            (Rejected::StaleClaim, same) => {
                // The member was registered with a higher claim before: attach again with it.
                let SessionRequest::Register(member) = wish else { return Err(SessionError::Lost) };
                if same.is_some() {
                    let (live, attached) = reattach(surface, secret, entry, Some(AttachMember::clone(member))).await?;
                    let done = Settings::of(&live).done(registered(attached, &member.spec.id)?, members);
                    *place = Some(live);
                    return Ok(done);
                }
            }
            (_, Some(live)) => return Err(SessionError::Because(live.explain(wish, rejection))),
            (_, None) => return Err(SessionError::Because(rejected(rejection))),
        }
    }
    Err(SessionError::Lost)
}

/// Attaches the session again.
async fn reattach(
    surface: &Surface,
    secret: &Secret,
    entry: &Arc<Entry>,
    member: Option<AttachMember>,
) -> Result<(Live, Attached), SessionError> {
    let (live, attached) = Live::reattach(surface, secret, member).await.map_err(|error| {
        surface.sessions.remove(&secret.key, entry);
        SessionError::Because(error)
    })?;
    add(&surface.metrics.clients.sessions_reattached, 1);
    entry.set_timeout(live.timeout);
    Ok((live, attached))
}

/// What became of the member that was named in an attach.
fn registered(attached: Attached, id: &str) -> Result<SessionReply, SessionError> {
    if let Some((_, version)) = attached.versions.into_iter().find(|(known, _)| known == id) {
        return Ok(SessionReply::Written(version));
    }
    let rejection = attached.rejected.into_iter().find(|(known, _)| known == id);
    Err(rejection.map_or(SessionError::Lost, |(_, rejection)| SessionError::Because(rejected(rejection))))
}

/// What a client is to know of its session.
struct Settings {
    heartbeat_interval: Duration,
    timeout: Duration,
}

impl Settings {
    fn of(live: &Live) -> Self {
        Settings { heartbeat_interval: live.heartbeat_interval, timeout: live.timeout }
    }

    fn done(self, granted: SessionReply, members: Option<Vec<String>>) -> Done {
        let Settings { heartbeat_interval, timeout } = self;
        Done { granted, heartbeat_interval, timeout, members }
    }
}
