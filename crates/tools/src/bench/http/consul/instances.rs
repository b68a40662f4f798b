//! Instances of services as Consul's clients register them.

use super::super::super::cluster::Cluster;
use super::super::super::load::{join, preparing};
use super::super::super::members::service_name;
use super::super::connection::{Connection, request};
use convoke_cli::{CommandError, Result};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::task::JoinSet;

/// A small instance with an id of its own. Ids differ between runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Instance {
    pub(super) service: u32,
    pub(super) client: u32,
    pub(super) number: u32,
}

impl Instance {
    pub(super) fn id(self) -> String {
        format!("bench-{}-{}-{}", std::process::id(), self.client, self.number)
    }

    /// Its definition, with further fields.
    fn definition(self, name: &str, more: &Value) -> Value {
        let mut definition = json!({
            "ID": self.id(), "Address": "10.0.0.1", "Port": 8080, "Tags": ["eu", "v1"], "Meta": {"version": "1.4.2"},
        });
        definition[name] = service_name(self.service).into();
        for (key, value) in more.as_object().into_iter().flatten() {
            definition[key.as_str()] = value.clone();
        }
        definition
    }

    pub(super) fn at_agent(self) -> Vec<u8> {
        self.at_agent_with(&Value::Null)
    }

    pub(super) fn at_agent_with(self, more: &Value) -> Vec<u8> {
        request("PUT", "/v1/agent/service/register", self.definition("Name", more).to_string().as_bytes())
    }

    /// The registration of the instance at a node of the connection, which has no agent.
    pub(super) fn in_catalog(self) -> Vec<u8> {
        let service = self.definition("Service", &Value::Null);
        let registration = json!({ "Node": self.node(), "Address": "10.0.0.1", "Service": service });
        request("PUT", "/v1/catalog/register", registration.to_string().as_bytes())
    }

    fn node(self) -> String {
        format!("bench-node-{}", self.client)
    }

    fn end(self, catalog: bool) -> Vec<u8> {
        if catalog {
            let gone = json!({ "Node": self.node(), "ServiceID": self.id() });
            return request("PUT", "/v1/catalog/deregister", gone.to_string().as_bytes());
        }
        request("PUT", &format!("/v1/agent/service/deregister/{}", self.id()), b"")
    }
}

pub(super) fn lookup_of(service: u32) -> Vec<u8> {
    request("GET", &format!("/v1/health/service/{}?passing", service_name(service)), b"")
}

/// Number of instances in an answer of `/v1/health/service`.
pub(super) fn count(body: &[u8]) -> usize {
    const ROW: &[u8] = b"\"Service\":{";
    body.windows(ROW.len()).filter(|part| *part == ROW).count()
}

/// Registers this many instances of each service at the agents, in turn.
pub(super) async fn registered(cluster: &Cluster, services: u32, members: u32) -> Result {
    prepare("registering", cluster, &vec![members; services as usize], |service, number| {
        Instance { service, client: service, number }.at_agent()
    })
    .await
}

/// Removes the first instances of each client, and the nodes of the catalog.
pub(super) async fn unregistered(cluster: &Cluster, sent: &[u32], catalog: bool) -> Result {
    prepare("unregistering", cluster, sent, |client, number| Instance { service: 0, client, number }.end(catalog))
        .await?;
    if !catalog {
        return Ok(());
    }
    prepare("unregistering nodes", cluster, &vec![1; sent.len()], |client, _| {
        let node = Instance { service: 0, client, number: 0 }.node();
        request("PUT", "/v1/catalog/deregister", json!({ "Node": node }).to_string().as_bytes())
    })
    .await
}

/// Sends requests that are not measured, on one connection per server: as many of each group as are stated.
async fn prepare(what: &'static str, cluster: &Cluster, groups: &[u32], of: impl Fn(u32, u32) -> Vec<u8>) -> Result {
    let bar = Arc::new(preparing(what, groups.iter().copied().map(u64::from).sum()));
    let addresses = cluster.addresses();
    let mut workers = JoinSet::new();
    for (place, address) in addresses.iter().enumerate() {
        let mine = (0..).zip(groups).skip(place).step_by(addresses.len());
        let requests: Vec<Vec<u8>> = mine
            .flat_map(|(group, count)| (0..*count).map(move |number| (group, number)))
            .map(|(g, n)| of(g, n))
            .collect();
        let (bar, address) = (bar.clone(), address.clone());
        workers.spawn(async move {
            let mut connection = Connection::open(&address).await?;
            for request in requests {
                connection
                    .call(&request)
                    .await
                    .map_err(|error| CommandError::failed(format!("{what} failed at {address}: {}", error.message)))?;
                bar.advance(1);
            }
            Ok(())
        });
    }
    join(workers).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_are_counted() {
        let row = r#"{"Node":{"ID":"x"},"Service":{"ID":"a","Service":"bench-0"},"Checks":[{"ServiceID":"a"}]}"#;
        assert_eq!(count(format!("[{row},{row}]").as_bytes()), 2);
        assert_eq!(count(b"[]"), 0);
    }
}
