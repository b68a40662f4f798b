//! Clients that the manager runs.

use crate::cluster::api::{CLIENTS_MAX, ClientsRequest};
use convoke_client::{Client, MemberSpec};
use convoke_proto::{Error, ErrorCode};
use std::collections::BTreeMap;
use std::time::Duration;

/// A node may be dead or paused.
const PATIENCE: Duration = Duration::from_secs(10);

/// Clients with one member each, by service. Dropping them is like killing their processes.
#[derive(Debug, Default)]
pub(crate) struct LocalClients {
    clients: BTreeMap<String, Vec<Client>>,
    /// Ids are not reused.
    next: usize,
}

impl LocalClients {
    pub(crate) fn counts(&self) -> BTreeMap<String, usize> {
        self.clients.iter().map(|(service, clients)| (service.clone(), clients.len())).collect()
    }

    /// Adds or stops clients. Stops at the first error; earlier clients stay.
    pub(crate) async fn change(&mut self, request: &ClientsRequest, addresses: &[String]) -> Result<(), Error> {
        let others: usize =
            self.counts().iter().filter(|(of, _)| **of != request.service).map(|(_, count)| count).sum();
        if others.saturating_add(request.count) > CLIENTS_MAX {
            let message =
                format!("{} clients: a cluster has at most {CLIENTS_MAX}", others.saturating_add(request.count));
            return Err(Error::new(ErrorCode::InvalidArgument, message).field("count").limit(CLIENTS_MAX as u64));
        }
        let outcome = self.resize(request, addresses).await;
        self.clients.retain(|_, clients| !clients.is_empty());
        outcome
    }

    async fn resize(&mut self, request: &ClientsRequest, addresses: &[String]) -> Result<(), Error> {
        let clients = self.clients.entry(request.service.clone()).or_default();
        while clients.len() < request.count {
            self.next += 1;
            let Some(address) = addresses.get(self.next % addresses.len().max(1)) else { break };
            let client = Client::builder().seeds([address]).operation_timeout(PATIENCE).build()?;
            client.register(MemberSpec::new(format!("{}-{}", request.service, self.next), &request.service)).await?;
            clients.push(client);
        }
        for client in clients.drain(request.count.min(clients.len())..) {
            if !request.crash {
                client.close().await?;
            }
        }
        Ok(())
    }
}
