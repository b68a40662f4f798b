//! `/v1/session`: a session of Consul is a lease of the log (docs/consul-kv.md).

mod lookup;

pub(super) use lookup::{find, holders_of};

use super::answer::{json, plain, with_index};
use super::blocking::{Source, Waiter, blocking};
use super::body::RawBody;
use super::failure::Failure;
use super::kv::{consistency, from_log};
use super::params::Params;
use crate::access::{Caller, Use, authorize_lease};
use crate::http::{Connection, NamedLog, Segments, in_open_session};
use crate::log::binding;
use crate::surface::Surface;
use ::http::StatusCode;
use axum::extract::State;
use axum::response::Response;
use convoke_access::{Resource, Verb};
use convoke_client::log::{Acquire, Consistency, LeaseTerms, MemberBinding};
use convoke_consul::{
    Behavior, ConsulSessionId, Description, NewSession, SESSION_TTL_MAX, SessionRefusal, SessionRow, Ttl,
    sessions_index,
};
use convoke_core::member::NODE_ID_PREFIX;
use convoke_log::command::LeaseId;
use convoke_proto::{Error, ErrorCode};
use lookup::{Found, SESSIONS, described, lock_of};
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;

/// How often a blocking query of sessions looks again.
const LOOK: Duration = Duration::from_secs(1);

type Shared = State<Arc<Surface>>;
type Answer = Result<Response, Failure>;

#[derive(Serialize)]
struct Created {
    #[serde(rename = "ID")]
    id: String,
}

pub(crate) async fn create(
    State(surface): Shared,
    caller: Caller,
    params: Params,
    _: NamedLog,
    RawBody(body): RawBody,
) -> Answer {
    let wanted = NewSession::parse(&body).map_err(|error| match error {
        SessionRefusal::Body(_) => Failure::bad(error.to_string()),
        SessionRefusal::Refused(_) => Failure::server(error.to_string()),
    })?;
    let own = surface.node.id().to_string();
    let node = if wanted.node.is_empty() { own } else { wanted.node.clone() };
    let terms = terms(&surface, &wanted, &node)?;
    let kv = surface.log()?.session_of(&caller)?;
    let (leases, locks) = (kv.leases(), kv.locks());
    let lease = in_open_session(|| leases.create(terms.clone())).await?;
    let mut random = [0; 8];
    let described = match getrandom::fill(&mut random) {
        Ok(()) => ConsulSessionId::new(lease, u64::from_le_bytes(random)),
        Err(_) => None,
    };
    let placing = async {
        let message = "the node could not make the id of the session; try again";
        let id = described.ok_or_else(|| Error::new(ErrorCode::Internal, message))?;
        let value = Description::new(id, &wanted, &node).encode();
        let acquire = Acquire::new(lock_of(lease)).lease_id(lease).no_wait().value(value);
        in_open_session(|| locks.acquire(acquire.clone())).await?.detach();
        Ok::<_, Error>(id.to_string())
    };
    match placing.await {
        Ok(id) => Ok(plain(&params, &Created { id })),
        Err(error) => {
            // Without its description the lease is no session. If this fails as well, it expires.
            let _ = in_open_session(|| leases.revoke(lease)).await;
            Err(error.into())
        }
    }
}

/// A session with a ttl is a lease of twice that time, because clients renew at half of what they need. One without is bound
/// to the registration of its node (CK5).
fn terms(surface: &Surface, wanted: &NewSession, node: &str) -> Result<LeaseTerms, Failure> {
    let member = format!("{NODE_ID_PREFIX}{node}");
    let unknown = || Failure::server("Missing node registration");
    let terms = match &wanted.ttl {
        Some(Ttl { time, .. }) => {
            surface.node.member(&member).ok_or_else(unknown)?;
            LeaseTerms::ttl(time.saturating_mul(2).min(SESSION_TTL_MAX))
        }
        None => {
            let node = surface.readable()?;
            let bound = binding(node, &Caller::unrestricted(), &member).map_err(|_| unknown())?;
            let bound = MemberBinding {
                member: bound.member.into(),
                client: bound.client.into(),
                registration: bound.registration.into(),
            };
            LeaseTerms::member(bound, node.session_timeout())
        }
    };
    Ok(match wanted.behavior {
        Behavior::Release => terms.release_keys(),
        Behavior::Delete => terms,
    })
}

/// Paths without the id of a session.
pub(crate) async fn no_session() -> Failure {
    Failure::bad("Missing session")
}

/// Finds a session that the caller may use. `None` if there is none.
async fn usable(
    surface: &Surface,
    id: &str,
    used: fn(LeaseId) -> Use,
    caller: &Caller,
) -> Result<Option<Found>, Failure> {
    match find(surface, id, Consistency::Linearizable).await? {
        Ok(found) => {
            surface.log()?.check_uses(caller, &[used(LeaseId(found.lease))]).await?;
            Ok(Some(found))
        }
        Err(text) if text.starts_with("failed ") => Err(Failure::server(text)),
        Err(_) => Ok(None),
    }
}

pub(crate) async fn destroy(
    State(surface): Shared,
    caller: Caller,
    Segments(id): Segments<String>,
    params: Params,
    _: NamedLog,
) -> Answer {
    if let Some(found) = usable(&surface, &id, Use::EndLease, &caller).await? {
        let kv = surface.log()?.session_of(&caller)?;
        let leases = kv.leases();
        match in_open_session(|| leases.revoke(found.lease)).await {
            Err(error) if error.code != ErrorCode::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    Ok(plain(&params, &true))
}

pub(crate) async fn renew(
    State(surface): Shared,
    caller: Caller,
    Segments(id): Segments<String>,
    params: Params,
    _: NamedLog,
) -> Answer {
    let gone = || Failure::new(StatusCode::NOT_FOUND, format!("Session id '{id}' not found"));
    let found = usable(&surface, &id, Use::Keep, &caller).await?.ok_or_else(gone)?;
    // A session without a ttl lives with its node.
    if found.description.has_ttl() {
        match surface.log()?.kv.leases().keep_alive(found.lease).await {
            Err(error) if error.code == ErrorCode::NotFound => return Err(gone()),
            kept => kept?,
        };
    }
    Ok(plain(&params, &[view(found)]))
}

fn view(found: Found) -> SessionRow {
    SessionRow::new(found.description, found.index)
}

/// Whoever created a session sees it, and whoever may observe the log sees all (AU16).
fn may_see(caller: &Caller, found: &Found) -> bool {
    caller.owns(&found.owner) || caller.may(Verb::Observe, Resource::Log)
}

pub(crate) async fn info(
    State(surface): Shared,
    caller: Caller,
    Segments(id): Segments<String>,
    params: Params,
    connection: Connection,
    _: NamedLog,
) -> Answer {
    read(&surface, Waiter { caller, connection }, &params, Wanted::Id(id)).await
}

pub(crate) async fn list(
    State(surface): Shared,
    caller: Caller,
    params: Params,
    connection: Connection,
    _: NamedLog,
) -> Answer {
    read(&surface, Waiter { caller, connection }, &params, Wanted::All).await
}

pub(crate) async fn of_node(
    State(surface): Shared,
    caller: Caller,
    Segments(node): Segments<String>,
    params: Params,
    connection: Connection,
    _: NamedLog,
) -> Answer {
    read(&surface, Waiter { caller, connection }, &params, Wanted::Node(node)).await
}

/// Which sessions are read.
enum Wanted {
    Id(String),
    Node(String),
    All,
}

struct Sessions<'a> {
    surface: &'a Surface,
    caller: &'a Caller,
    at: Consistency,
    wanted: Wanted,
}

async fn read(surface: &Surface, waiter: Waiter, params: &Params, wanted: Wanted) -> Answer {
    authorize_lease(&waiter.caller)?;
    let options = params.read_options()?;
    let mut sessions = Sessions { surface, caller: &waiter.caller, at: consistency(options.consistency), wanted };
    let (index, found) = blocking(surface, &waiter, &options, &mut sessions).await?;
    Ok(with_index(json(options.pretty, &found), surface, &options, index))
}

impl Source for Sessions<'_> {
    type Result = Vec<SessionRow>;

    /// The index depends on the content only: the log has no watch of all sessions.
    async fn read(&mut self) -> Result<(u64, Vec<SessionRow>), Failure> {
        let found = match &self.wanted {
            Wanted::Id(id) => match find(self.surface, id, self.at).await? {
                Err(text) if text.starts_with("failed ") => return Err(Failure::server(text)),
                found => found.ok().filter(|found| may_see(self.caller, found)).map(view).into_iter().collect(),
            },
            Wanted::Node(node) => self.listed(Some(node)).await?,
            Wanted::All => self.listed(None).await?,
        };
        Ok((sessions_index(&found), found))
    }

    async fn changed(&mut self) {
        tokio::time::sleep(LOOK).await;
    }
}

impl Sessions<'_> {
    async fn listed(&self, node: Option<&str>) -> Result<Vec<SessionRow>, Failure> {
        let (mut after, mut views, at) = (SESSIONS.to_owned(), Vec::new(), from_log(self.surface, self.at)?);
        loop {
            let page = self.surface.log()?.kv.locks().list(after.clone(), 0, at).await?;
            let mut in_page = page.locks.iter().take_while(|lock| lock.name.starts_with(SESSIONS.as_bytes()));
            for found in in_page.by_ref().filter_map(described) {
                if may_see(self.caller, &found) && node.is_none_or(|node| found.description.node() == node) {
                    views.push(view(found));
                }
            }
            match page.locks.last().filter(|last| page.more && last.name.starts_with(SESSIONS.as_bytes())) {
                Some(last) => after = String::from_utf8_lossy(&last.name).into_owned(),
                None => break,
            }
        }
        views.sort_by(|one, other| one.id().cmp(other.id()));
        Ok(views)
    }
}
