//! The clients of the demo, one per member.

use super::script::{COURIER, SENSOR, SERVICES};
use super::watcher::SharedExpected;
use convoke_cli::{CommandError, Result};
use convoke_client::{Client, ConnectionState, Error, Liveness, MemberSpec, Registration, Update};
use std::net::SocketAddr;
use std::time::Duration;

/// A node may be dead or paused.
const PATIENCE: Duration = Duration::from_secs(5);
/// Largest number of members.
const MEMBERS_MAX: usize = 60;
/// The last member of a service does not leave.
const MEMBERS_MIN: usize = 1;

#[derive(Debug)]
pub(crate) struct DemoClient {
    pub(crate) id: String,
    pub(crate) service: usize,
    client: Client,
    registration: Registration,
}

#[derive(Debug)]
pub(crate) struct DemoClients {
    nodes: Vec<(String, SocketAddr)>,
    running: Vec<DemoClient>,
    /// By service, the number of the next member.
    next: [usize; SERVICES.len()],
    expected: SharedExpected,
    updates: usize,
    /// A node that is down or paused.
    unavailable: Option<usize>,
}

impl DemoClients {
    pub(crate) fn new(nodes: Vec<(String, SocketAddr)>, expected: SharedExpected) -> DemoClients {
        DemoClients { nodes, running: Vec::new(), next: [1; SERVICES.len()], expected, updates: 0, unavailable: None }
    }

    pub(crate) fn len(&self) -> usize {
        self.running.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.running.len() >= MEMBERS_MAX
    }

    /// Starts no client at this node from now on. A paused node would execute its registration later, after the client
    /// has given up: a process that does not exist would then hold the member (C9).
    pub(crate) fn set_unavailable(&mut self, node: Option<usize>) {
        self.unavailable = node;
    }

    /// Returns the address of a node, or of the next one if it is not available.
    fn address(&self, node: usize) -> SocketAddr {
        self.nodes[available(node, self.unavailable, self.nodes.len())].1
    }

    /// Registers one more member. Returns its id and its owner.
    pub(crate) async fn join(&mut self, service: usize, node: usize) -> Result<(String, String), Error> {
        let id = format!("{}-{}", SERVICES[service], self.next[service]);
        self.next[service] += 1;
        let client = register(id.clone(), service, self.address(node), &id).await?;
        let at = client.at();
        self.expected.change(|expected| expected.insert(id.clone()));
        self.running.push(client);
        Ok((id, at))
    }

    /// Unregisters one member. Returns its id and service.
    pub(crate) async fn leave(&mut self, draw: usize) -> Option<Result<(String, usize), (String, Error)>> {
        let may: Vec<usize> = (0..self.running.len()).filter(|index| self.may_leave(*index)).collect();
        let index = *may.get(draw.checked_rem(may.len())?)?;
        let client = self.running.remove(index);
        self.expected.change(|expected| expected.remove(&client.id));
        let closed = client.client.close().await;
        Some(closed.map(|_| (client.id.clone(), client.service)).map_err(|error| (client.id.clone(), error)))
    }

    fn may_leave(&self, index: usize) -> bool {
        let service = self.running[index].service;
        let of_service = self.running.iter().filter(|client| client.service == service).count();
        service != COURIER && service != SENSOR && of_service > MEMBERS_MIN
    }

    /// Updates the load of one member. Returns its id and load.
    pub(crate) async fn update(&mut self, draw: usize) -> Option<Result<(String, String), Error>> {
        let client = self.running.get(draw.checked_rem(self.running.len())?)?;
        self.updates += 1;
        let load = format!("0.{}", draw % 10);
        let update = Update::merge().set("load", load.clone()).set("updates", self.updates.to_string());
        Some(client.registration.update(update).await.map(|_| (client.id.clone(), load)))
    }

    /// Moves the courier to another node without unregistering. Returns its id, old and new owner.
    pub(crate) async fn move_courier(&mut self) -> Option<Result<(String, String, String), Error>> {
        let index = self.running.iter().position(|client| client.service == COURIER)?;
        let from = self.running[index].at();
        let next = self.nodes.iter().position(|(id, _)| *id == from).map_or(0, |node| node + 1) % self.nodes.len();
        let (id, address) = (self.running[index].id.clone(), self.address(next));
        // The same client id at another node; the old connection ends without unregistering.
        let moved = register(id.clone(), COURIER, address, &id).await;
        Some(moved.map(|client| {
            let to = client.at();
            self.running[index] = client;
            (id, from, to)
        }))
    }

    /// Drops a sensor without unregistering it. Returns its id.
    pub(crate) fn die(&mut self, draw: usize) -> Option<String> {
        let sensors: Vec<usize> =
            (0..self.running.len()).filter(|index| self.running[*index].service == SENSOR).collect();
        let client = self.running.remove(*sensors.get(draw.checked_rem(sensors.len())?)?);
        self.expected.change(|expected| expected.remove(&client.id));
        Some(client.id)
    }

    /// Registers a dead sensor again. Returns its owner.
    pub(crate) async fn revive(&mut self, id: &str, node: usize) -> Result<String, Error> {
        let client = register(id.to_owned(), SENSOR, self.address(node), id).await?;
        let at = client.at();
        self.running.push(client);
        Ok(at)
    }

    /// Expects the member to be up from now on.
    pub(crate) fn want(&self, id: &str) {
        self.expected.change(|expected| expected.insert(id.to_owned()));
    }
}

impl DemoClient {
    /// The node it is connected to.
    fn at(&self) -> String {
        match self.client.state() {
            ConnectionState::Connected { node, .. } => node,
            _ => "no node".to_owned(),
        }
    }
}

async fn register(id: String, service: usize, address: SocketAddr, client_id: &str) -> Result<DemoClient, Error> {
    let liveness = if service == SENSOR { Liveness::Fast } else { Liveness::Normal };
    let builder = Client::builder().seeds([address.to_string()]).client_id(client_id).liveness(liveness);
    let client = builder.operation_timeout(PATIENCE).build()?;
    let spec = MemberSpec::new(id.clone(), SERVICES[service])
        .address(format!("127.0.0.1:{}", 20_000 + service))
        .metadata("version", format!("v{}", 1 + service % 3));
    let registration = client.register(spec).await?;
    Ok(DemoClient { id, service, client, registration })
}

/// Registers the members of the start.
pub(crate) async fn register_all(clients: &mut DemoClients, initial_members: Vec<(usize, usize)>) -> Result {
    for (service, node) in initial_members {
        let joined = clients.join(service, node).await;
        joined.map_err(|error| CommandError::failed(format!("cannot register a member: {}", error.message)))?;
    }
    Ok(())
}

/// Returns a node, or the next one if it is not available.
fn available(node: usize, unavailable: Option<usize>, count: usize) -> usize {
    let node = node % count;
    if unavailable == Some(node) { (node + 1) % count } else { node }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client that gave up at a paused node was the cause of flaps at the end of a demo.
    #[test]
    fn no_client_starts_at_an_unavailable_node() {
        for unavailable in 0..3 {
            for node in 0..6 {
                let chosen = available(node, Some(unavailable), 3);
                assert!(chosen < 3 && chosen != unavailable, "{node} {unavailable} {chosen}");
                assert_eq!(available(node, None, 3), node % 3);
            }
        }
    }
}
