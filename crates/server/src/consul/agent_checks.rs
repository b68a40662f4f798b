//! `/v1/agent/check`: checks of service instances and of this node, and what applications report about them.

use super::answer::done;
use super::body::RawBody;
use super::changes::{Changes, definitions, merged};
use super::check_definition::{check_definition, named};
use super::failure::Failure;
use super::params::Params;
use super::registry::Row;
use crate::access::Caller;
use crate::http::Segments;
use crate::surface::Surface;
use axum::extract::State;
use axum::response::Response;
use convoke_consul::{Fields, member_id};
use convoke_core::filter::Health;
use convoke_core::member::{CheckResult, Probe};
use convoke_core::node::CheckReport;
use std::sync::Arc;

type Shared = State<Arc<Surface>>;
type Answer = Result<Response, Failure>;

/// `PUT /v1/agent/check/register`: adds a check to a service instance, or to this node.
pub(crate) async fn register(State(surface): Shared, caller: Caller, RawBody(body): RawBody) -> Answer {
    let fields = Fields::parse(&body).map_err(Failure::bad)?;
    let definition = check_definition(fields)?;
    if definition.name.is_empty() {
        return Err(Failure::bad("Missing check name"));
    }
    let changes = Changes { surface: &surface, caller: &caller };
    let of_node = definition.service_id.is_empty();
    let target = if of_node { changes.recorded(changes.agent()) } else { changes.instance(&definition.service_id)? };
    if target.is_none() && !of_node {
        return Err(Failure::server(format!("ServiceID {:?} does not exist", definition.service_id)));
    }
    // Consul's default is the name.
    let id = if definition.id.is_empty() { definition.name.clone() } else { definition.id.clone() };
    let (service, service_id) = target.as_ref().map_or(("", ""), |row| (&row.instance.service, &row.instance.id));
    let mut added = named(vec![definition], service, service_id);
    // A check id is unique at an agent. A check that is registered again keeps its result, for something else as well.
    let mut held = all_with(&changes, &id)?;
    held.retain(|row| row.instance.node == changes.agent());
    let result = held.first().and_then(|row| result_of(row, &id));
    for check in &mut added {
        check.id.clone_from(&id);
        if of_node {
            // In Consul as well, it ends services only.
            check.deregister_critical_after_ms = 0;
        }
        let is_known = |row: &Row| definitions(&row.member).iter().any(|known| known == check);
        check.initial =
            result.as_ref().filter(|_| !held.iter().any(is_known)).map_or(check.initial, |held| held.status);
    }
    let is_reported = added.iter().all(|check| check.probe.ttl_ms().is_some());
    let kept = target.as_ref().map(|row| definitions(&row.member)).unwrap_or_default();
    let checks = merged(kept, added);
    match &target {
        Some(row) => changes.set_checks(row, checks).await?,
        None => changes.set_node_checks(changes.agent(), checks).await?,
    }
    for row in held.iter().filter(|row| target.as_ref().is_none_or(|target| target.member.id() != row.member.id())) {
        remove(&changes, row, &id).await?;
    }
    if let Some(result) = result.filter(|result| is_reported && !result.output.is_empty()) {
        let member = target.map_or_else(|| member_id(changes.agent(), ""), |row| row.member.id().to_owned());
        changes.report(member, &id, (result.status, &result.output)).await?;
    }
    Ok(done())
}

/// Returns the last result of a check.
fn result_of(row: &Row, id: &str) -> Option<CheckResult> {
    let mut checks = row.member.checks()?.iter();
    checks.find(|(check, _)| check.id == id).map(|(_, result)| result.clone())
}

/// Removes a check from what it belongs to.
pub(super) async fn remove(changes: &Changes<'_>, row: &Row, id: &str) -> Result<(), Failure> {
    let mut checks = definitions(&row.member);
    checks.retain(|check| check.id != id);
    changes.set_checks(row, checks).await
}

/// `PUT /v1/agent/check/deregister/{id}`
pub(crate) async fn deregister(State(surface): Shared, caller: Caller, Segments(id): Segments<String>) -> Answer {
    let changes = Changes { surface: &surface, caller: &caller };
    // As in Consul, it is no error if there is none.
    if let Some(row) = with_check(&changes, &id)? {
        remove(&changes, &row, &id).await?;
    }
    Ok(done())
}

/// `PUT /v1/agent/check/pass/{id}`
pub(crate) async fn pass(
    State(surface): Shared,
    caller: Caller,
    Segments(id): Segments<String>,
    params: Params,
) -> Answer {
    report(&surface, &caller, &id, Health::Passing, params.get("note").unwrap_or_default()).await
}

/// `PUT /v1/agent/check/warn/{id}`
pub(crate) async fn warn(
    State(surface): Shared,
    caller: Caller,
    Segments(id): Segments<String>,
    params: Params,
) -> Answer {
    report(&surface, &caller, &id, Health::Warning, params.get("note").unwrap_or_default()).await
}

/// `PUT /v1/agent/check/fail/{id}`
pub(crate) async fn fail(
    State(surface): Shared,
    caller: Caller,
    Segments(id): Segments<String>,
    params: Params,
) -> Answer {
    report(&surface, &caller, &id, Health::Critical, params.get("note").unwrap_or_default()).await
}

/// `PUT /v1/agent/check/update/{id}`
pub(crate) async fn update(
    State(surface): Shared,
    caller: Caller,
    Segments(id): Segments<String>,
    RawBody(body): RawBody,
) -> Answer {
    let mut fields = Fields::parse(&body).map_err(Failure::bad)?;
    let (status, output) = (fields.text("Status"), fields.text("Output"));
    let (status, output) = (status.map_err(Failure::bad)?, output.map_err(Failure::bad)?);
    fields.end().map_err(Failure::bad)?;
    let status = Health::parse(&status).ok_or_else(|| Failure::bad(format!("Invalid check status: '{status}'")))?;
    report(&surface, &caller, &id, status, &output).await
}

async fn report(surface: &Arc<Surface>, caller: &Caller, id: &str, status: Health, output: &str) -> Answer {
    let changes = Changes { surface, caller };
    let is_ttl = |row: &Row| {
        definitions(&row.member).iter().any(|check| check.id == id && matches!(check.probe, Probe::Ttl { .. }))
    };
    let Some(row) = with_check(&changes, id)?.filter(is_ttl) else {
        return Err(Failure::server(format!("CheckID {id:?} does not have associated TTL")));
    };
    let report = CheckReport { id: row.member.id().into(), check: id.into(), status, output: output.to_owned() };
    surface.report_check(caller, None, report).await?;
    Ok(done())
}

/// Returns what has a check: an instance or node of this agent first, else the only one, else an error that lists them.
fn with_check(changes: &Changes<'_>, id: &str) -> Result<Option<Row>, Failure> {
    let has_check = |row: &Row| definitions(&row.member).iter().any(|check| check.id == id);
    // Applications report often, mostly to a check whose id is made of that of their instance at this agent.
    if let Some(row) = of_default_id(id).find_map(|service_id| changes.own_instance(service_id).filter(has_check)) {
        return Ok(Some(row));
    }
    let mut found = all_with(changes, id)?;
    if let Some(own) = found.iter().position(|row| row.instance.node == changes.agent()) {
        return Ok(Some(found.swap_remove(own)));
    }
    if found.len() > 1 {
        let at: Vec<&str> = found.iter().map(|row| row.instance.node.as_str()).collect();
        let message = format!("CheckID {id:?} exists at several nodes ({}) and not at this one", at.join(", "));
        return Err(Failure::server(message));
    }
    Ok(found.pop())
}

/// Ids of instances of which the id of a check may be made: `service:ID` and `service:ID:NUMBER`.
fn of_default_id(id: &str) -> impl Iterator<Item = &str> {
    let whole = id.strip_prefix("service:");
    let numbered = whole.and_then(|id| id.rsplit_once(':')).map(|(id, _)| id);
    whole.into_iter().chain(numbered)
}

/// Returns the instances and nodes with a check.
pub(super) fn all_with(changes: &Changes<'_>, id: &str) -> Result<Vec<Row>, Failure> {
    let mut found = changes.all()?;
    found.extend(changes.node_records()?);
    found.retain(|row| definitions(&row.member).iter().any(|check| check.id == id));
    Ok(found)
}
