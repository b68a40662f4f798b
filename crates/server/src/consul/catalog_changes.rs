//! `/v1/catalog/register` and `/v1/catalog/deregister`: nodes and services that have no agent.

use super::agent_checks::{all_with, remove};
use super::answer::json;
use super::body::RawBody;
use super::changes::{Changes, definitions, merged};
use super::check_results::{RegisteredResult, check_results, checks_for};
use super::definition::{Definition, NameField, definition};
use super::failure::Failure;
use super::params::Params;
use super::reads::check_datacenter;
use super::registry::Row;
use crate::access::Caller;
use crate::surface::Surface;
use axum::extract::State;
use axum::response::Response;
use convoke_consul::{Fields, NodeRecord, is_own_node};
use std::collections::BTreeSet;
use std::sync::Arc;

type Shared = State<Arc<Surface>>;
type Answer = Result<Response, Failure>;

/// `PUT /v1/catalog/register`
pub(crate) async fn register(State(surface): Shared, caller: Caller, params: Params, RawBody(body): RawBody) -> Answer {
    let changes = Changes { surface: &surface, caller: &caller };
    let mut fields = Fields::parse(&body).map_err(Failure::bad)?;
    let text = |fields: &mut Fields, name| fields.text(name).map_err(Failure::bad);
    let dc = text(&mut fields, "Datacenter")?;
    check_datacenter(&surface, Some(&dc))?;
    let name = text(&mut fields, "Node")?;
    if name.is_empty() {
        return Err(Failure::server("Must provide node"));
    }
    let record = NodeRecord {
        id: text(&mut fields, "ID")?,
        address: text(&mut fields, "Address")?,
        tagged_addresses: fields.map("TaggedAddresses").map_err(Failure::bad)?,
        meta: fields.map("NodeMeta").map_err(Failure::bad)?,
        name,
    };
    let only_service = fields.boolean("SkipNodeUpdate").map_err(Failure::bad)?;
    let service = fields.object("Service").map_err(Failure::bad)?;
    let results = check_results(&mut fields, &record.name)?;
    fields.refuse("Namespace", "namespaces").map_err(Failure::bad)?;
    for field in ["CreateIndex", "ModifyIndex", "WriteRequest", "RaftIndex"] {
        fields.ignore(field);
    }
    fields.end().map_err(Failure::bad)?;
    if record.address.is_empty() && !only_service {
        return Err(Failure::server("Must provide address if SkipNodeUpdate is not set"));
    }
    // Everything is read before anything is changed.
    let service = service.map(|fields| definition(fields, &record.name, NameField::Service)).transpose()?;
    let registration = Registration { record, service, results };
    registration.check(&changes)?;
    registration.execute(&changes, only_service).await?;
    Ok(json(params.pretty(), &true))
}

/// What `catalog/register` asks for.
struct Registration {
    record: NodeRecord,
    service: Option<Definition>,
    results: Vec<RegisteredResult>,
}

impl Registration {
    /// Checks that the services exist whose results are registered.
    fn check(&self, changes: &Changes<'_>) -> Result<(), Failure> {
        let node = &self.record.name;
        let mut wanted = self.services();
        if let Some(service) = &self.service {
            wanted.remove(service.instance.id.as_str());
        }
        if wanted.is_empty() {
            return Ok(());
        }
        let rows = at_node(changes, node)?;
        if wanted.iter().all(|id| rows.iter().any(|row| row.instance.id == *id)) {
            return Ok(());
        }
        Err(Failure::server(format!("failed inserting check: Missing service registration on node {node:?}")))
    }

    /// The ids of the services whose results are registered.
    fn services(&self) -> BTreeSet<&str> {
        let ids = self.results.iter().map(|result| result.service_id.as_str());
        ids.filter(|id| !id.is_empty()).collect()
    }

    /// Registers the node, the service, and the results of their checks. What was registered before keeps its checks.
    async fn execute(self, changes: &Changes<'_>, only_service: bool) -> Result<(), Failure> {
        let mut ids = self.services();
        let Registration { record, service, results } = &self;
        let node = record.name.clone();
        // A node of Convoke describes itself.
        let own = changes.own_address(&node);
        let known = changes.recorded(&node);
        let held = known.as_ref().map(|row| definitions(&row.member)).unwrap_or_default();
        let checks = merged(held.clone(), checks_for(results, ""));
        // Most registrations of a service repeat what is known of the node.
        let is_known = || known.and_then(|row| NodeRecord::of_member(&row.member)).as_ref() == Some(record);
        if own.is_none() && !only_service {
            if service.is_none() || checks != held || !is_known() {
                changes.register_node(record, checks).await?;
            }
        } else if results.iter().any(|result| result.service_id.is_empty()) {
            changes.set_node_checks(&node, checks).await?;
        }
        if let Some(Definition { instance, checks }) = service {
            let added = merged(checks.clone(), checks_for(results, &instance.id));
            let checks = merged(changes.checks_of(instance), added);
            let address = own.as_ref().unwrap_or(&record.address);
            changes.register_instance(instance, address, checks).await?;
            ids.remove(instance.id.as_str());
        }
        let others = if ids.is_empty() { Vec::new() } else { at_node(changes, &node)? };
        for row in others.iter().filter(|row| ids.contains(row.instance.id.as_str())) {
            let added = checks_for(results, &row.instance.id);
            changes.set_checks(row, merged(definitions(&row.member), added)).await?;
        }
        for result in results {
            result.report(changes, &node).await?;
        }
        Ok(())
    }
}

/// Returns the instances at a node that the caller may read or change, without nodes of Convoke.
fn at_node(changes: &Changes<'_>, node: &str) -> Result<Vec<Row>, Failure> {
    let mut rows = changes.all()?;
    rows.retain(|row| row.instance.node == node && !is_own_node(&row.member));
    Ok(rows)
}

/// `PUT /v1/catalog/deregister`
pub(crate) async fn deregister(
    State(surface): Shared,
    caller: Caller,
    params: Params,
    RawBody(body): RawBody,
) -> Answer {
    let changes = Changes { surface: &surface, caller: &caller };
    let mut fields = Fields::parse(&body).map_err(Failure::bad)?;
    let mut text = |name| fields.text(name).map_err(Failure::bad);
    let (dc, node, service, check) = (text("Datacenter")?, text("Node")?, text("ServiceID")?, text("CheckID")?);
    // Older clients send it.
    text("Address")?;
    fields.refuse("Namespace", "namespaces").map_err(Failure::bad)?;
    fields.ignore("WriteRequest");
    fields.end().map_err(Failure::bad)?;
    check_datacenter(&surface, Some(&dc))?;
    if node.is_empty() {
        return Err(Failure::server("Must provide node"));
    }
    if service.is_empty() && !check.is_empty() {
        for row in all_with(&changes, &check)?.iter().filter(|row| row.instance.node == node) {
            remove(&changes, row, &check).await?;
        }
        return Ok(json(params.pretty(), &true));
    }
    if service.is_empty() && changes.own_address(&node).is_some() {
        let message = format!("node {node:?} is a node of Convoke: stop it, or use `convoke nodes forget`");
        return Err(Failure::server(message));
    }
    let mut rows = at_node(&changes, &node)?;
    rows.retain(|row| service.is_empty() || row.instance.id == service);
    // Members whose node is only shown here belong to their clients.
    for row in rows.iter().filter(|row| row.is_consul() || !service.is_empty()) {
        changes.deregister(row).await?;
    }
    if service.is_empty()
        && let Some(record) = changes.recorded(&node)
    {
        changes.deregister(&record).await?;
    }
    Ok(json(params.pretty(), &true))
}
