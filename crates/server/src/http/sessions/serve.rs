//! Where a request of a session is carried out: here if it is attached here, at the node that holds it, or here after
//! attaching it again (C8).

use super::forward::{Forwarded, Raw, forward, reachable};
use super::live::{Denied, Granted, Live, Wish};
use super::secret::Secret;
use super::table::Entry;
use crate::error::refused;
use crate::service::Tie;
use crate::surface::Surface;
use ::http::Response;
use axum::body::Body;
use convoke_counters::add;
use convoke_node::core::member::Liveness;
use convoke_node::core::node::{AttachMember, Attached, Feeder, PeerState};
use convoke_proto::{Code, Error};
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
    pub(super) granted: Granted,
    pub(super) heartbeat_interval: Duration,
    pub(super) timeout: Duration,
    /// The session was attached again for this: the members it has now.
    pub(super) members: Option<Vec<String>>,
}

/// Attaches a new session.
pub(super) async fn create(surface: &Surface, secret: &Secret, tie: Option<&Arc<Tie>>) -> Result<Done, Error> {
    let entry = surface.sessions.place(secret.key)?;
    hang(&entry, secret, tie);
    let mut place = entry.live.lock().await;
    let live = Live::create(surface, secret).await.inspect_err(|_| surface.sessions.remove(&secret.key, &entry))?;
    entry.set_timeout(live.timeout);
    let done = done(&live, Granted::Done, None);
    *place = Some(live);
    Ok(done)
}

pub(super) async fn serve(surface: &Surface, secret: &Secret, wish: Wish, raw: &Raw) -> Result<Served, Error> {
    if let Some(entry) = surface.sessions.find(&secret.key) {
        hang(&entry, secret, raw.tie.as_ref());
        match here(surface, secret, &entry, wish.clone(), Attaching::No).await {
            Err(Denied::Lost | Denied::Stale) => {}
            Err(Denied::Because(error)) => return Err(error),
            Ok(done) => return Ok(Served::Here(done)),
        }
    }
    // With `fast` liveness the connection counts, and only the node that has it can notice its loss.
    if !raw.forwarded
        && secret.liveness == Liveness::Normal
        && let Some(response) = elsewhere(surface, secret, raw).await?
    {
        return Ok(Served::Elsewhere(response));
    }
    let entry = surface.sessions.place(secret.key)?;
    hang(&entry, secret, raw.tie.as_ref());
    match here(surface, secret, &entry, wish, Attaching::Yes).await {
        Ok(done) => Ok(Served::Here(done)),
        Err(Denied::Because(error)) => Err(error),
        Err(Denied::Lost | Denied::Stale) => {
            Err(Error::new(Code::NotReady, "this session is moving between nodes; try again"))
        }
    }
}

/// The answer of the node that holds the session; `None` if there is none, or none that lives and takes clients.
///
/// That a peer does not answer does not mean that it is dead: ports may have run out, or it is busy. So it is looked whether it is
/// still up; the end of a dead one is noticed within milliseconds.
async fn elsewhere(surface: &Surface, secret: &Secret, raw: &Raw) -> Result<Option<Response<Body>>, Error> {
    let deadline = Instant::now() + surface.config.timeouts.forward;
    let mut pause = LOOK_AGAIN;
    let mut unanswered = false;
    loop {
        let feeder = surface.node.fed_by(&secret.client, secret.nonce).await.map_err(refused)?;
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
        return Error::new(Code::OutcomeUnknown, message);
    }
    Error::new(Code::NotReady, format!("node {node} holds this session and does not answer; try again"))
}

/// With `fast` liveness the loss of the connection counts.
fn hang(entry: &Entry, secret: &Secret, tie: Option<&Arc<Tie>>) {
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

/// Carries the wish out in the session's place here, attaching it first if need be and allowed.
async fn here(
    surface: &Surface,
    secret: &Secret,
    entry: &Arc<Entry>,
    wish: Wish,
    attaching: Attaching,
) -> Result<Done, Denied> {
    let closing = matches!(wish, Wish::Close);
    let mut place = entry.live.lock().await;
    let mut members = None;
    for _ in 0..ATTEMPTS {
        if let Some(live) = place.as_mut()
            && let Err(denied) = live.catch_up()
        {
            *place = None;
            if let Denied::Because(error) = denied {
                surface.sessions.remove(&secret.key, entry);
                return Err(Denied::Because(error));
            }
        }
        let live = match place.as_mut() {
            Some(live) => live,
            None if attaching == Attaching::No => return Err(Denied::Lost),
            None => {
                let (live, attached) = again(surface, secret, entry, None).await?;
                members = Some(attached.versions.into_iter().map(|(id, _)| id).collect());
                place.insert(live)
            }
        };
        match live.carry_out(wish.clone()).await {
            Ok(granted) => {
                let done = done(live, granted, members);
                if closing {
                    surface.sessions.remove(&secret.key, entry);
                }
                return Ok(done);
            }
            Err(Denied::Because(error)) => return Err(Denied::Because(error)),
            Err(Denied::Lost) => *place = None,
            Err(Denied::Stale) => {
                let Wish::Register(member) = &wish else { return Err(Denied::Stale) };
                let (live, attached) = again(surface, secret, entry, Some((**member).clone())).await?;
                let granted = registered(attached, &member.spec.id)?;
                let done = done(&live, granted, members);
                *place = Some(live);
                return Ok(done);
            }
        }
    }
    Err(Denied::Lost)
}

/// Attaches the session again.
async fn again(
    surface: &Surface,
    secret: &Secret,
    entry: &Arc<Entry>,
    member: Option<AttachMember>,
) -> Result<(Live, Attached), Denied> {
    let (live, attached) = Live::again(surface, secret, member).await.map_err(|error| {
        surface.sessions.remove(&secret.key, entry);
        Denied::Because(error)
    })?;
    add(&surface.metrics.clients.sessions_reattached, 1);
    entry.set_timeout(live.timeout);
    Ok((live, attached))
}

/// What became of the member that was named in an attach.
fn registered(attached: Attached, id: &str) -> Result<Granted, Denied> {
    if let Some((_, version)) = attached.versions.into_iter().find(|(known, _)| known == id) {
        return Ok(Granted::Written(version));
    }
    let refusal = attached.refused.into_iter().find(|(known, _)| known == id);
    Err(refusal.map_or(Denied::Lost, |(_, refusal)| Denied::Because(refused(refusal))))
}

fn done(live: &Live, granted: Granted, members: Option<Vec<String>>) -> Done {
    Done { granted, heartbeat_interval: live.heartbeat_interval, timeout: live.timeout, members }
}
