//! Members to register, and the SDK clients that do.

use super::cluster::Cluster;
use super::load::{join, preparing};
use super::tls;
use convoke_cli::Result;
use convoke_client::{Client, MemberSpec, Registration};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Timeout of everything that is not measured.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// Registrations in progress per client while members are prepared.
const PREPARING: usize = 128;

/// A small member, as in docs/performance.md. Ids differ between runs.
pub(super) fn member(service: u32, client: u32, number: u32) -> MemberSpec {
    let run = std::process::id();
    MemberSpec::new(format!("bench-{run}-{client}-{number}"), service_name(service))
        .locality("eu.fra.a")
        .revision("1.4.2")
        .address("10.0.0.1:8080")
        .metadata("version", "v1")
        .metadata("load", "0.5")
}

pub(super) fn service_name(service: u32) -> String {
    format!("bench-{service}")
}

/// Connected clients, spread over the nodes.
pub(super) async fn clients(cluster: &Cluster, count: u32) -> Result<Vec<Client>> {
    let mut clients = Vec::new();
    for number in 0..count as usize {
        clients.push(client(cluster.address(number)).await?);
    }
    Ok(clients)
}

/// A connected client of this node.
pub(super) async fn client(address: String) -> Result<Client> {
    let builder = Client::builder().seeds([address]).operation_timeout(PATIENCE);
    let builder = tls::current().map_or(builder.clone(), |tls| builder.tls(tls));
    let builder = tls::token().map_or(builder.clone(), |token| builder.token(token));
    Ok(builder.connect().await?)
}

/// Unregisters everything.
pub(super) async fn close(clients: Vec<Client>) -> Result {
    let mut closing = JoinSet::new();
    for client in clients {
        closing.spawn(async move { client.close().await.map(|_| ()).map_err(Into::into) });
    }
    join(closing).await
}

/// Registers this many members with each client, spread over `services`.
pub(super) async fn registered(clients: &[Client], each: u32, services: u32) -> Result<Vec<Vec<Registration>>> {
    let bar = Arc::new(preparing("registering", u64::from(each) * clients.len() as u64));
    let mut all = Vec::new();
    let mut working: JoinSet<Result<(usize, Vec<Registration>)>> = JoinSet::new();
    for (place, client) in clients.iter().enumerate() {
        let number = u32::try_from(place).unwrap_or(u32::MAX);
        let (client, bar) = (client.clone(), bar.clone());
        working.spawn(async move {
            let mut registrations = Vec::new();
            let mut under_way = JoinSet::new();
            for index in 0..each {
                let service = (number * each + index) % services;
                let client = client.clone();
                under_way.spawn(async move { client.register(member(service, number, index)).await });
                if under_way.len() >= PREPARING || index + 1 == each {
                    bar.advance(under_way.len() as u64);
                    for registration in std::mem::take(&mut under_way).join_all().await {
                        registrations.push(registration?);
                    }
                }
            }
            Ok((place, registrations))
        });
    }
    for done in working.join_all().await {
        all.push(done?);
    }
    all.sort_by_key(|(place, _)| *place);
    Ok(all.into_iter().map(|(_, registrations)| registrations).collect())
}
