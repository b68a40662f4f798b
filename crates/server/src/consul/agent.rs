//! `/v1/agent`: this node as the agent of its clients.

use super::answer::done;
use super::body::RawBody;
use super::changes::{Changes, merged};
use super::checks::{self, CRITICAL, PASSING};
use super::definition::{Definition, NameField, definition};
use super::failure::Failure;
use super::params::Params;
use super::reads::{Read, filtered};
use super::registry::{Registry, Row, datacenter};
use crate::access::Caller;
use crate::draining;
use crate::http::Segments;
use crate::surface::Surface;
use ::http::{HeaderName, HeaderValue, StatusCode};
use axum::extract::State;
use axum::response::Response;
use convoke_consul::show::{AgentService, CheckRow, node_id};
use convoke_consul::{CONSUL, Fields, host_of, index_of, is_own_node, parse_bool, port_of};
use convoke_core::member::{Drain, Status};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

type Shared = State<Arc<Surface>>;
type Answer = Result<Response, Failure>;

/// The version of the API that is compared with (docs/consul.md).
pub(crate) const CONSUL_VERSION: &str = "1.8.7";
const CONTENT_HASH: HeaderName = HeaderName::from_static("x-consul-contenthash");
const SERVICE_FIELDS: [&str; 9] =
    ["ID", "Service", "Tags", "Meta", "Port", "Address", "TaggedAddresses", "Weights", "EnableTagOverride"];
const CHECK_FIELDS: [&str; 9] =
    ["Node", "CheckID", "Name", "Status", "Notes", "Output", "ServiceID", "ServiceName", "ServiceTags"];

/// `GET /v1/agent/self`
pub(crate) async fn this(read: Read) -> Answer {
    let surface = &read.surface;
    let (node, name) = (&surface.node, surface.node.id().as_str());
    let services = own(&read)?.len();
    let members = members_of(&read)?;
    let member = members.into_iter().find(|member| member["Name"] == name);
    Ok(read.plain(&json!({
        "Config": {
            "Datacenter": datacenter(surface),
            "NodeName": name,
            "NodeID": node_id(node.cluster(), name),
            "Revision": "",
            "Server": true,
            "Version": CONSUL_VERSION,
        },
        "DebugConfig": {},
        "Coord": null,
        "Member": member,
        "Stats": stats(surface, services),
        "Meta": { "consul-network-segment": "" },
    })))
}

/// What `consul info` prints.
fn stats(surface: &Surface, services: usize) -> Value {
    let log = surface.log_status().ok();
    let leader = log.as_ref().is_some_and(|log| log.leader == surface.node.id().as_str());
    json!({
        "agent": {
            "services": services.to_string(),
        },
        "build": { "version": CONSUL_VERSION, "convoke": env!("CARGO_PKG_VERSION") },
        "consul": {
            "leader": leader.to_string(),
            "known_leader": log.is_some_and(|log| !log.leader.is_empty()).to_string(),
            "server": "true",
        },
        "runtime": { "arch": std::env::consts::ARCH, "os": std::env::consts::OS },
    })
}

/// `GET /v1/agent/members`: the nodes of the cluster.
pub(crate) async fn members(read: Read) -> Answer {
    Ok(read.plain(&members_of(&read)?))
}

fn members_of(read: &Read) -> Result<Vec<Value>, Failure> {
    let surface = &read.surface;
    let voters = surface.log_status().map(|status| status.voters).unwrap_or_default();
    let shown = |row: &Row| {
        let name = row.instance.node.as_str();
        let peer = row.member.metadata().get("peer_address").unwrap_or_default();
        // 1 is alive, 4 is failed.
        let status = if row.member.status() == Status::Up { 1 } else { 4 };
        json!({
            "Name": name,
            "Addr": host_of(row.member.address()),
            "Port": port_of(peer),
            "Tags": {
                "build": format!("{CONSUL_VERSION}:"),
                "dc": datacenter(surface),
                "id": node_id(surface.node.cluster(), name),
                "port": port_of(row.member.address()).to_string(),
                "role": if voters.is_empty() || voters.iter().any(|voter| voter == name) { "consul" } else { "node" },
                "segment": "",
                "vsn": "2",
            },
            "Status": status,
            "ProtocolMin": 1,
            "ProtocolMax": 5,
            "ProtocolCur": 2,
            "DelegateMin": 2,
            "DelegateMax": 5,
            "DelegateCur": 4,
        })
    };
    let nodes = read.registry().service(CONSUL)?;
    Ok(nodes.iter().filter(|row| is_own_node(&row.member)).map(shown).collect())
}

/// The instances of this agent, by service id.
fn own(read: &Read) -> Result<Vec<Row>, Failure> {
    let registry = Registry { mode: super::params::Mode::Stale, ..read.registry() };
    let mut rows = registry.at_node(read.surface.node.id().as_str())?;
    rows.retain(|row| !is_own_node(&row.member));
    Ok(rows)
}

/// `GET /v1/agent/services`
pub(crate) async fn services(read: Read) -> Answer {
    let filter = read.filter(&SERVICE_FIELDS)?;
    let shown = own(&read)?.iter().map(|row| AgentService::of(&row.instance)).collect();
    let shown = filtered(shown, filter.as_ref()).into_iter();
    Ok(read.plain(&shown.map(|service| (service.id.clone(), service)).collect::<BTreeMap<_, _>>()))
}

/// `GET /v1/agent/service/{id}`
pub(crate) async fn service(Segments(id): Segments<String>, read: Read) -> Answer {
    let own = own(&read)?;
    let Some(row) = own.iter().find(|row| row.instance.id == id) else {
        return Err(Failure::new(StatusCode::NOT_FOUND, format!("unknown service ID: {id}")));
    };
    let mut shown = AgentService::of(&row.instance);
    let hash = index_of(0, &format!("{shown:?}"));
    shown.content_hash = format!("{hash:016x}");
    let header = HeaderValue::from_str(&shown.content_hash);
    let mut response = read.plain(&shown);
    response.headers_mut().insert(CONTENT_HASH, header.unwrap_or(HeaderValue::from_static("")));
    Ok(response)
}

/// `GET /v1/agent/checks`
pub(crate) async fn checks(read: Read) -> Answer {
    let filter = read.filter(&CHECK_FIELDS)?;
    let mut found: Vec<CheckRow> = own(&read)?.iter().flat_map(checks::of_service).collect();
    found.extend(node_checks(&read.registry())?);
    let local = |check: CheckRow| CheckRow { create_index: 0, modify_index: 0, ..check };
    let found = filtered(found.into_iter().map(local).collect(), filter.as_ref());
    Ok(read.plain(&found.into_iter().map(|check| (check.check_id.clone(), check)).collect::<BTreeMap<_, _>>()))
}

/// `PUT /v1/agent/service/register`
pub(crate) async fn register(State(surface): Shared, caller: Caller, params: Params, RawBody(body): RawBody) -> Answer {
    let changes = Changes { surface: &surface, caller: &caller };
    let fields = Fields::parse(&body).map_err(Failure::bad)?;
    let Definition { instance, checks } = definition(fields, changes.agent(), NameField::Name)?;
    let address = changes.own_address(changes.agent()).unwrap_or_default();
    let kept = if params.has("replace-existing-checks") { Vec::new() } else { changes.checks_of(&instance) };
    changes.register_instance(&instance, &address, merged(kept, checks)).await?;
    Ok(done())
}

/// `PUT /v1/agent/service/deregister/{id}`
pub(crate) async fn deregister(State(surface): Shared, caller: Caller, Segments(id): Segments<String>) -> Answer {
    let changes = Changes { surface: &surface, caller: &caller };
    // As in Consul, it is no error if there is none.
    if let Some(row) = changes.instance(&id)? {
        changes.deregister(&row).await?;
    }
    Ok(done())
}

pub(crate) async fn no_deregister() -> Failure {
    Failure::server("ServiceID missing")
}

/// Returns whether maintenance is switched on or off.
fn enable(params: &Params) -> Result<bool, Failure> {
    let Some(text) = params.text("enable") else { return Err(Failure::bad("Missing value for enable")) };
    parse_bool(text).ok_or_else(|| Failure::bad(format!("Invalid value for enable: {text:?}")))
}

/// Returns the drain that a request asks for; `None` ends it.
fn wanted(enable: bool, params: &Params) -> Option<Drain> {
    enable.then(|| draining::wanted(None, params.get("reason").unwrap_or_default().to_owned()))
}

/// `PUT /v1/agent/service/maintenance/{id}`
pub(crate) async fn maintain_service(
    State(surface): Shared,
    caller: Caller,
    Segments(id): Segments<String>,
    params: Params,
) -> Answer {
    let enable = enable(&params)?;
    let changes = Changes { surface: &surface, caller: &caller };
    let Some(row) = changes.instance(&id)? else {
        return Err(Failure::new(StatusCode::NOT_FOUND, format!("No service registered with ID {id:?}")));
    };
    changes.maintain(&row, wanted(enable, &params)).await?;
    Ok(done())
}

pub(crate) async fn no_maintenance() -> Failure {
    Failure::bad("Missing service ID")
}

/// `PUT /v1/agent/maintenance`: drains this node.
pub(crate) async fn maintain_node(State(surface): Shared, caller: Caller, params: Params) -> Answer {
    let enable = enable(&params)?;
    let changes = Changes { surface: &surface, caller: &caller };
    changes.maintain_node(wanted(enable, &params)).await?;
    Ok(done())
}

/// `GET /v1/agent/health/service/name/{name}`: the instances at this agent, and the worst state as the status.
pub(crate) async fn health_by_name(Segments(name): Segments<String>, read: Read) -> Answer {
    let rows: Vec<_> = own(&read)?.into_iter().filter(|row| row.instance.service == name).collect();
    if rows.is_empty() {
        return Ok(health(&read, StatusCode::NOT_FOUND, &format!("ServiceName {name} Not Found"), &json!([])));
    }
    let (node, counted) = (node_checks(&read.registry())?, counted_checks(&read)?);
    let states: Vec<&str> = rows.iter().map(|row| state(row, &counted)).collect();
    let shown: Vec<Value> = rows.iter().zip(&states).map(|(row, state)| with_checks(row, state, &node)).collect();
    let worst = worst(&states);
    Ok(health(&read, code(worst), worst, &json!(shown)))
}

/// `GET /v1/agent/health/service/id/{id}`
pub(crate) async fn health_by_id(Segments(id): Segments<String>, read: Read) -> Answer {
    let own = own(&read)?;
    let Some(row) = own.iter().find(|row| row.instance.id == id) else {
        let shown = json!({"AggregatedStatus": CRITICAL, "Service": null, "Checks": null});
        return Ok(health(&read, StatusCode::NOT_FOUND, &format!("ServiceId {id} not found"), &shown));
    };
    let node = node_checks(&read.registry())?;
    let state = state(row, &counted_checks(&read)?);
    Ok(health(&read, code(state), state, &with_checks(row, state, &node)))
}

/// The checks of this node that Consul's agent has: those that were registered, its maintenance, and not whether others reach
/// it.
fn node_checks(registry: &Registry<'_>) -> Result<Vec<CheckRow>, Failure> {
    let nodes = registry.known_nodes()?;
    let checks = nodes.get(registry.surface.node.id().as_str()).map(checks::of_node).unwrap_or_default();
    Ok(checks.into_iter().filter(|check| check.check_id != checks::SERF_HEALTH).collect())
}

/// The same, to decide about the state of an instance. It does not depend on what the caller may read.
fn counted_checks(read: &Read) -> Result<Vec<CheckRow>, Failure> {
    let caller = &Caller::unrestricted();
    node_checks(&Registry { caller, ..read.registry() })
}

fn state(row: &Row, node: &[CheckRow]) -> &'static str {
    let own = checks::of_service(row);
    let in_maintenance = |check: &CheckRow| check.kind == "maintenance";
    if own.iter().chain(node).any(in_maintenance) {
        return "maintenance";
    }
    convoke_consul::show::worst(own.iter().chain(node).map(|check| check.status))
}

fn worst<'a>(states: &[&'a str]) -> &'a str {
    let order = ["maintenance", CRITICAL, "warning"];
    order.iter().find_map(|worst| states.iter().find(|state| *state == worst)).copied().unwrap_or(PASSING)
}

fn with_checks(row: &Row, state: &str, node: &[CheckRow]) -> Value {
    let checks: Vec<CheckRow> = checks::of_service(row).into_iter().chain(node.to_vec()).collect();
    json!({"AggregatedStatus": state, "Service": AgentService::of(&row.instance), "Checks": checks})
}

fn code(state: &str) -> StatusCode {
    match state {
        "passing" => StatusCode::OK,
        "warning" => StatusCode::TOO_MANY_REQUESTS,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// The state as a status, as text if the client asks for it.
fn health(read: &Read, status: StatusCode, reason: &str, shown: &Value) -> Response {
    let mut response = if read.params.get("format") == Some("text") {
        let mut response = Response::new(axum::body::Body::from(reason.to_owned()));
        response.headers_mut().insert(::http::header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        response
    } else {
        read.plain(shown)
    };
    *response.status_mut() = status;
    if let Ok(reason) = HeaderValue::from_str(reason) {
        response.headers_mut().insert(HeaderName::from_static("x-consul-reason"), reason);
    }
    response
}
