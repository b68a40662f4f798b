//! Copies the service instances of a Consul as members without a client.
//!
//! The mapping is that of the Consul API of Convoke (docs/consul.md), so that clients of Consul see the same instances.

use super::Copied;
use super::consul::{Consul, path_of};
use crate::args::ImportConsulArgs;
use convoke_cli::{CommandError, ConnectArgs, Result, call, exit};
use convoke_consul::{Instance, Weights};
use convoke_core::member::MemberSpec;
use convoke_proto::{json, v1};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The service of Consul's own servers.
const CONSUL: &str = "consul";

/// A row of `/v1/catalog/service/NAME`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct CatalogRow {
    node: String,
    #[serde(default)]
    address: String,
    #[serde(rename = "ServiceID")]
    id: String,
    service_name: String,
    #[serde(default)]
    service_tags: Option<Vec<String>>,
    #[serde(default)]
    service_meta: Option<BTreeMap<String, String>>,
    #[serde(default)]
    service_address: String,
    #[serde(default)]
    service_port: i64,
    #[serde(default)]
    service_weights: Option<Weights>,
    #[serde(default)]
    service_kind: String,
}

pub(super) async fn import(arguments: &ImportConsulArgs, consul: &mut Consul) -> Result<Copied> {
    let names = consul.get::<BTreeMap<String, serde_json::Value>>("/v1/catalog/services").await?.unwrap_or_default();
    let mut copied = Copied::default();
    for name in names.keys().filter(|name| *name != CONSUL) {
        let rows = consul.get::<Vec<CatalogRow>>(&format!("/v1/catalog/service/{}", path_of(name))).await?;
        for row in rows.unwrap_or_default() {
            copy(arguments, row, &mut copied).await?;
        }
    }
    Ok(copied)
}

async fn copy(arguments: &ImportConsulArgs, row: CatalogRow, copied: &mut Copied) -> Result {
    let shown = format!("{} of {} at {}", row.id, row.service_name, row.node);
    let spec = match described(row) {
        Ok(spec) => spec,
        Err(reason) => {
            copied.skip(&shown, reason);
            return Ok(());
        }
    };
    let connect = &arguments.inspect.connect;
    match held(connect, &spec.id).await? {
        Some(held) if is_same(&held, &spec) => copied.unchanged += 1,
        Some(_) if !arguments.overwrite => copied.conflicts.push(shown),
        _ if arguments.dry_run => copied.copied += 1,
        _ => {
            let request = v1::RegisterMemberRequest { member: Some(spec.into()) };
            match call(connect, async |node| node.admin().register_member(request.clone()).await).await {
                Ok(_) => copied.copied += 1,
                // This instance is too large, or a client has its id. Others may be fine.
                Err(CommandError { exit: exit::USAGE | exit::REJECTED, message }) => copied.skip(&shown, message),
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

fn described(row: CatalogRow) -> Result<json::MemberSpec, String> {
    if !row.service_kind.is_empty() {
        return Err(format!("it is of the kind {:?} of Consul Connect, which Convoke does not have", row.service_kind));
    }
    let port =
        u16::try_from(row.service_port).map_err(|_| format!("its port {} is not a TCP port", row.service_port))?;
    let mut instance = Instance {
        node: row.node,
        id: row.id,
        service: row.service_name,
        tags: row.service_tags.unwrap_or_default(),
        meta: row.service_meta.unwrap_or_default(),
        address: row.service_address,
        port,
        ..Instance::default()
    };
    instance.more.weights = row.service_weights.filter(|weights| *weights != Weights::default());
    // The catalog of Consul does not contain the definitions of checks.
    let MemberSpec { id, service, locality, created, revision, address, endpoints, weight, metadata, checks: _ } =
        instance.to_member(&row.address).map_err(|why| why.0)?;
    let checks = Vec::new();
    Ok(json::MemberSpec { id, service, locality, created, revision, address, endpoints, weight, metadata, checks })
}

async fn held(connect: &ConnectArgs, id: &str) -> Result<Option<json::Member>> {
    let request = v1::GetRequest { id: id.to_owned() };
    match call(connect, async |node| node.registry().get(request.clone()).await).await {
        Ok(answer) => Ok(answer.member.map(json::Member::from)),
        Err(CommandError { exit: exit::NOT_FOUND, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_same(held: &json::Member, spec: &json::MemberSpec) -> bool {
    held.service == spec.service
        && held.address == spec.address
        && held.weight == spec.weight.max(1)
        && held.metadata == spec.metadata
}
