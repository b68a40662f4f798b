//! `/v1/event`: user events as keys of the log (docs/consul-kv.md).

use super::answer::{index_header, json, plain};
use super::blocking::{Source, Waiter, blocking};
use super::body::RawBody;
use super::failure::Failure;
use super::kv::{changed_after, consistency, read_prefix};
use super::params::{Mode, Params};
use super::reads::check_datacenter;
use super::registry::Registry;
use crate::access::{Caller, authorize_write};
use crate::http::{Connection, NamedLog, Segments, in_open_session};
use crate::surface::Surface;
use axum::extract::State;
use axum::response::Response;
use convoke_access::{Resource, Verb};
use convoke_client::log::{Compare, Consistency, Op, Relation, Txn};
use convoke_consul::{EVENTS, UserEvent, events_index, next_event};
use convoke_log::keys::{KeyRange, Selection};
use convoke_proto::{Error, ErrorCode};
use std::sync::Arc;
use std::time::Duration;

/// How often an event is numbered again because others were fired in the meantime.
const ATTEMPTS: usize = 32;
/// Time before a wait is tried again that the log refused.
const PAUSE: Duration = Duration::from_secs(1);

type Shared = State<Arc<Surface>>;
type Answer = Result<Response, Failure>;

pub(crate) async fn no_name() -> Failure {
    Failure::bad("Missing name")
}

/// `PUT /v1/event/fire/{name}`
pub(crate) async fn fire(
    State(surface): Shared,
    caller: Caller,
    Segments(name): Segments<String>,
    params: Params,
    _: NamedLog,
    RawBody(payload): RawBody,
) -> Answer {
    check_datacenter(&surface, params.text("dc"))?;
    let prefix = UserEvent::prefix(&name);
    authorize_write(&caller, Verb::Put, Resource::KeyPrefix(prefix.as_bytes()), false)?;
    let filters = ["node", "service", "tag"].map(|filter| params.get(filter).unwrap_or_default());
    let event = UserEvent::new(&name, &payload, filters).map_err(Failure::server)?;
    let fired = store(&surface, &caller, event).await?;
    Ok(plain(&params, &UserEvent { number: 0, ..fired }))
}

/// Writes an event with the next number, and deletes the oldest one if there are too many.
async fn store(surface: &Surface, caller: &Caller, event: UserEvent) -> Result<UserEvent, Failure> {
    let kv = surface.log()?.session_of(caller)?;
    let mut random = [0; 8];
    getrandom::fill(&mut random)
        .map_err(|_| Error::new(ErrorCode::Internal, "the node could not make the id of the event; try again"))?;
    // What this node has may be old. The commit compares it.
    let mut read_at = Consistency::Local;
    for _ in 0..ATTEMPTS {
        let (held, revision) = read_prefix(surface, EVENTS, read_at).await?;
        let (number, replaced) = next_event(held.iter().map(|pair| pair.key.as_str()));
        let numbered = event.clone().numbered(number, u64::from_le_bytes(random));
        let unchanged = Compare::mod_revision(EVENTS, Relation::Less, revision.saturating_add(1)).prefix();
        let txn = Txn::new().compare(unchanged).then(Op::put(numbered.key(), numbered.encode()));
        let txn = replaced.into_iter().fold(txn, |txn, key| txn.then(Op::delete(key)));
        if in_open_session(|| async { kv.commit(txn.clone()).await }).await?.succeeded {
            return Ok(numbered);
        }
        read_at = Consistency::Linearizable;
    }
    Err(Failure::server("other events were fired at the same time, again and again; try again"))
}

/// `GET /v1/event/list`
pub(crate) async fn list(
    State(surface): Shared,
    caller: Caller,
    params: Params,
    connection: Connection,
    _: NamedLog,
) -> Answer {
    let options = params.read_options()?;
    let waiter = Waiter { caller, connection };
    let mut events = Events {
        surface: &surface,
        waiter: &waiter,
        name: params.text("name"),
        mode: options.consistency,
        revision: 0,
    };
    let (index, found) = blocking(&surface, &waiter, &options, &mut events).await?;
    Ok(index_header(json(options.pretty, &found), index))
}

/// The events for this node that the caller may read.
struct Events<'a> {
    surface: &'a Surface,
    waiter: &'a Waiter,
    name: Option<&'a str>,
    mode: Mode,
    /// Revision of the last read.
    revision: u64,
}

impl Source for Events<'_> {
    type Result = Vec<UserEvent>;

    async fn read(&mut self) -> Result<(u64, Vec<UserEvent>), Failure> {
        let Events { surface, waiter: Waiter { caller, .. }, .. } = *self;
        let (held, revision) = Box::pin(read_prefix(surface, EVENTS, consistency(self.mode))).await?;
        self.revision = revision;
        // Filters select agents by their services, whoever asks.
        let everyone = Caller::unrestricted();
        let agent = surface.node.id().as_str();
        let own = Registry { surface, caller: &everyone, mode: Mode::Stale }.at_node(agent)?;
        let own = || own.iter().map(|row| (row.instance.id.as_str(), row.instance.tags.as_slice()));
        let mut events: Vec<UserEvent> = held
            .iter()
            .filter(|pair| caller.may(Verb::Read, Resource::Key(pair.key.as_bytes())))
            .filter_map(|pair| UserEvent::decode(&pair.key, &pair.value))
            .filter(|event| self.name.is_none_or(|name| event.name == name))
            .filter(|event| event.is_for(agent, own()))
            .collect();
        events.sort_by_key(|event| event.number);
        Ok((events_index(&events), events))
    }

    async fn changed(&mut self) {
        let selection = Selection::Range(KeyRange::prefix(EVENTS.to_owned()));
        let is_stale = self.mode == Mode::Stale;
        if Box::pin(changed_after(self.surface, self.waiter, selection, self.revision, is_stale)).await.is_err() {
            tokio::time::sleep(PAUSE).await;
        }
    }
}
