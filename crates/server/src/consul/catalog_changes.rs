//! `/v1/catalog/register` and `/v1/catalog/deregister`: nodes and services that have no agent.

use super::answer::json;
use super::body::RawBody;
use super::changes::Changes;
use super::definition::{NameField, definition, no_check_fields};
use super::failure::Failure;
use super::params::Params;
use super::reads::check_datacenter;
use crate::access::Caller;
use crate::surface::Surface;
use axum::extract::State;
use axum::response::Response;
use convoke_consul::{Fields, NodeRecord, is_own_node};
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
    no_check_fields(&mut fields)?;
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
    // A node of Convoke describes itself.
    let own = changes.own_address(&record.name);
    // Most registrations of a service repeat what is known of the node.
    let known = || changes.recorded(&record.name).and_then(|row| NodeRecord::of_member(&row.member));
    let is_known = service.is_some() && known().as_ref() == Some(&record);
    if own.is_none() && !only_service && !is_known {
        let spec = record.to_member().map_err(|invalid| Failure::bad(invalid.0))?;
        changes.register(spec).await?;
    }
    if let Some(service) = service {
        let address = own.unwrap_or(record.address);
        changes.register_instance(&service.instance, &address, service.checks).await?;
    }
    Ok(json(params.pretty(), &true))
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
        return Err(Failure::server("Convoke does not offer checks of nodes; see docs/consul.md"));
    }
    if service.is_empty() && changes.own_address(&node).is_some() {
        let message = format!("node {node:?} is a node of Convoke: stop it, or use `convoke nodes forget`");
        return Err(Failure::server(message));
    }
    let rows = changes.registry().at_node(&node)?;
    // Members whose node is only shown here belong to their clients.
    let wanted =
        rows.iter().filter(|row| !is_own_node(&row.member) && (service.is_empty() || row.instance.id == service));
    for row in wanted.filter(|row| row.is_consul() || !service.is_empty()) {
        changes.deregister(row).await?;
    }
    if service.is_empty()
        && let Some(record) = changes.recorded(&node)
    {
        changes.deregister(&record).await?;
    }
    Ok(json(params.pretty(), &true))
}
