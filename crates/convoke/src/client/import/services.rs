//! Copies the service instances of a Consul as members without a client.
//!
//! The mapping is that of the Consul API of Convoke (docs/consul.md), so that clients of Consul see the same instances.

use super::consul::{Consul, path_of};
use super::{Copied, members};
use crate::args::ImportConsulArgs;
use convoke_cli::Result;
use convoke_consul::{Instance, Weights};
use convoke_core::member::MemberSpec;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

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
    service_tagged_addresses: Option<BTreeMap<String, TaggedAddress>>,
    #[serde(default)]
    service_port: i64,
    #[serde(default)]
    service_weights: Option<Weights>,
    #[serde(default)]
    service_enable_tag_override: bool,
    #[serde(default)]
    service_kind: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct TaggedAddress {
    #[serde(default)]
    address: String,
    #[serde(default)]
    port: u16,
}

/// A row of `/v1/health/state/critical`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct CriticalCheck {
    node: String,
    name: String,
    /// Empty if the whole node is critical.
    #[serde(rename = "ServiceID", default)]
    service_id: String,
}

/// The instances of a Consul, read and copied.
#[derive(Debug, Default)]
pub(super) struct ConsulInstances {
    pub(super) copied: Copied,
    /// Nodes that have instances.
    pub(super) nodes: BTreeSet<String>,
    /// Nodes that run a server of Consul.
    pub(super) servers: BTreeSet<String>,
}

pub(super) async fn import(arguments: &ImportConsulArgs, consul: &mut Consul) -> Result<ConsulInstances> {
    let critical = consul.get::<Vec<CriticalCheck>>("/v1/health/state/critical").await?.unwrap_or_default();
    let names = consul.get::<BTreeMap<String, serde_json::Value>>("/v1/catalog/services").await?.unwrap_or_default();
    let mut instances = ConsulInstances::default();
    for name in names.keys() {
        let rows = consul.get::<Vec<CatalogRow>>(&format!("/v1/catalog/service/{}", path_of(name))).await?;
        for row in rows.unwrap_or_default() {
            if name == CONSUL {
                instances.servers.insert(row.node);
                continue;
            }
            instances.nodes.insert(row.node.clone());
            copy(arguments, row, &critical, &mut instances.copied).await?;
        }
    }
    Ok(instances)
}

async fn copy(
    arguments: &ImportConsulArgs,
    row: CatalogRow,
    critical: &[CriticalCheck],
    copied: &mut Copied,
) -> Result {
    let shown = format!("{} of {} at {}", row.id, row.service_name, row.node);
    match described(row, critical) {
        Ok(spec) => members::copy(arguments, shown, spec, copied).await?,
        Err(reason) => copied.skip(&shown, reason),
    }
    Ok(())
}

fn described(row: CatalogRow, critical: &[CriticalCheck]) -> Result<MemberSpec, String> {
    if !row.service_kind.is_empty() {
        return Err(format!("it is of the kind {:?} of Consul Connect, which Convoke does not have", row.service_kind));
    }
    let concerns =
        |check: &&CriticalCheck| check.node == row.node && (check.service_id.is_empty() || check.service_id == row.id);
    if let Some(check) = critical.iter().find(concerns) {
        return Err(format!(
            "its check {:?} is critical at Consul, and a copy has no checks, so it would be routable: import it when it passes",
            check.name
        ));
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
    instance.more.tag_override = row.service_enable_tag_override;
    let tagged = row.service_tagged_addresses.unwrap_or_default().into_iter();
    instance.more.tagged_addresses = tagged.map(|(tag, at)| (tag, (at.address, at.port))).collect();
    instance.to_member(&row.address).map_err(|why| why.0)
}
