//! The services: each member a client of its own, as if it were a process somewhere.

use super::script::{COURIER, SENSOR, SERVICES};
use super::witness::SharedWanted;
use convoke_cli::{CommandError, Result};
use convoke_client::{Client, ConnectionState, Error, Liveness, MemberSpec, Registration, Update};
use std::net::SocketAddr;
use std::time::Duration;

/// A node may be dead or paused when it is asked.
const PATIENCE: Duration = Duration::from_secs(5);
/// Members of all services together; beyond, the next who wants to come does not.
const MEMBERS_MAX: usize = 60;
/// A service does not end with its last member leaving.
const MEMBERS_MIN: usize = 1;

#[derive(Debug)]
pub(crate) struct Actor {
    pub(crate) id: String,
    pub(crate) service: usize,
    client: Client,
    registration: Registration,
}

#[derive(Debug)]
pub(crate) struct Troupe {
    nodes: Vec<(String, SocketAddr)>,
    actors: Vec<Actor>,
    /// By service, the number of the next member.
    next: [usize; SERVICES.len()],
    wanted: SharedWanted,
    updates: usize,
}

impl Troupe {
    pub(crate) fn new(nodes: Vec<(String, SocketAddr)>, wanted: SharedWanted) -> Troupe {
        Troupe { nodes, actors: Vec::new(), next: [1; SERVICES.len()], wanted, updates: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.actors.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.actors.len() >= MEMBERS_MAX
    }

    /// Registers one more member at a node; its id, and the node that has it.
    pub(crate) async fn join(&mut self, service: usize, node: usize) -> Result<(String, String), Error> {
        let id = format!("{}-{}", SERVICES[service], self.next[service]);
        self.next[service] += 1;
        let actor = enter(id.clone(), service, self.nodes[node].1, &id).await?;
        let at = actor.at();
        self.wanted.change(|wanted| wanted.insert(id.clone()));
        self.actors.push(actor);
        Ok((id, at))
    }

    /// One of those that may leave says goodbye; its id and service, if there was one.
    pub(crate) async fn leave(&mut self, draw: usize) -> Option<Result<(String, usize), (String, Error)>> {
        let may: Vec<usize> = (0..self.actors.len()).filter(|index| self.may_leave(*index)).collect();
        let index = *may.get(draw.checked_rem(may.len())?)?;
        let actor = self.actors.remove(index);
        self.wanted.change(|wanted| wanted.remove(&actor.id));
        let closed = actor.client.close().await;
        Some(closed.map(|()| (actor.id.clone(), actor.service)).map_err(|error| (actor.id.clone(), error)))
    }

    fn may_leave(&self, index: usize) -> bool {
        let service = self.actors[index].service;
        let of_service = self.actors.iter().filter(|actor| actor.service == service).count();
        service != COURIER && service != SENSOR && of_service > MEMBERS_MIN
    }

    /// One of them tells how busy it is; its id and what it told.
    pub(crate) async fn update(&mut self, draw: usize) -> Option<Result<(String, String), Error>> {
        let actor = self.actors.get(draw.checked_rem(self.actors.len())?)?;
        self.updates += 1;
        let load = format!("0.{}", draw % 10);
        let update = Update::merge().set("load", load.clone()).set("updates", self.updates.to_string());
        Some(actor.registration.update(update).await.map(|_| (actor.id.clone(), load)))
    }

    /// The courier goes on at another node, without leaving: its id, from where, and to where it goes.
    pub(crate) async fn roam(&mut self) -> Option<Result<(String, String, String), Error>> {
        let index = self.actors.iter().position(|actor| actor.service == COURIER)?;
        let from = self.actors[index].at();
        let next = self.nodes.iter().position(|(id, _)| *id == from).map_or(0, |node| node + 1) % self.nodes.len();
        let (id, address) = (self.actors[index].id.clone(), self.nodes[next].1);
        // The same client from now on at another place: the old connection ends without a goodbye.
        let entered = enter(id.clone(), COURIER, address, &id).await;
        Some(entered.map(|actor| {
            let to = actor.at();
            self.actors[index] = actor;
            (id, from, to)
        }))
    }

    /// A sensor's process ends without goodbye; its id.
    pub(crate) fn die(&mut self, draw: usize) -> Option<String> {
        let sensors: Vec<usize> =
            (0..self.actors.len()).filter(|index| self.actors[*index].service == SENSOR).collect();
        let actor = self.actors.remove(*sensors.get(draw.checked_rem(sensors.len())?)?);
        self.wanted.change(|wanted| wanted.remove(&actor.id));
        Some(actor.id)
    }

    /// It is started again, at a node; when others see it is for others to say.
    pub(crate) async fn revive(&mut self, id: &str, node: usize) -> Result<String, Error> {
        let actor = enter(id.to_owned(), SENSOR, self.nodes[node].1, id).await?;
        let at = actor.at();
        self.actors.push(actor);
        Ok(at)
    }

    /// From now on whoever shows it as down is wrong.
    pub(crate) fn want(&self, id: &str) {
        self.wanted.change(|wanted| wanted.insert(id.to_owned()));
    }
}

impl Actor {
    /// The node it is connected to.
    fn at(&self) -> String {
        match self.client.state() {
            ConnectionState::Connected { node, .. } => node,
            _ => "no node".to_owned(),
        }
    }
}

async fn enter(id: String, service: usize, address: SocketAddr, client_id: &str) -> Result<Actor, Error> {
    let liveness = if service == SENSOR { Liveness::Fast } else { Liveness::Normal };
    let builder = Client::builder().seeds([address.to_string()]).client_id(client_id).liveness(liveness);
    let client = builder.operation_timeout(PATIENCE).build()?;
    let spec = MemberSpec::new(id.clone(), SERVICES[service])
        .address(format!("127.0.0.1:{}", 20_000 + service))
        .metadata("version", format!("v{}", 1 + service % 3));
    let registration = client.register(spec).await?;
    Ok(Actor { id, service, client, registration })
}

/// Registers everybody who is there at the beginning.
pub(crate) async fn assemble(troupe: &mut Troupe, cast: Vec<(usize, usize)>) -> Result {
    for (service, node) in cast {
        let joined = troupe.join(service, node).await;
        joined.map_err(|error| CommandError::failed(format!("cannot register a member: {}", error.message)))?;
    }
    Ok(())
}
