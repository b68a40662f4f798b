//! After the faults, when an HTTP client has repaired its session, every node shows its members with their last writes, and
//! no unregistered member (C8; statement HS6 of docs/consistency.md). Members with a request of unknown outcome, of a
//! client that does not number its requests, are left out: the request may be executed after later ones.

use super::{Found, Invariant, report, serving};
use crate::http::{HttpClient, is_contested};
use crate::world::World;
use convoke_core::member::{Member, Status};

const NAME: &str = "http_sessions_converge";

#[derive(Debug, Default)]
pub struct HttpSessionsConverge {
    checks: u64,
}

impl Invariant for HttpSessionsConverge {
    fn name(&self) -> &'static str {
        NAME
    }
    fn checks(&self) -> u64 {
        self.checks
    }

    fn at_quiescence(&mut self, world: &World, found: &mut Found) {
        for (index, client) in world.http.clients.iter().enumerate().filter(|(_, client)| client.alive) {
            let Some(secret) = &client.secret else { continue };
            let name = secret.client();
            for (host, node) in serving(world) {
                for (id, wanted) in client.members.iter().filter(|(id, _)| !client.late.contains(*id)) {
                    self.checks += 1;
                    let shown = node.member(id);
                    let fine = shown.as_ref().is_some_and(|member| {
                        let same = member.metadata().to_map() == wanted.metadata && member.client() == name;
                        member.status() == Status::Up && (same || belongs_to_another(world, member))
                    });
                    if !fine {
                        let message =
                            format!("{id} of http client {index}: n{host} shows {shown:?}, wanted {wanted:?}");
                        report(found, NAME, world, message);
                    }
                }
                for id in client.deleted.keys().filter(|id| !client.late.contains(*id)) {
                    self.checks += 1;
                    if let Some(member) = node.member(id).filter(|member| member.client() == name) {
                        let message = format!("http client {index} unregistered {id}, and n{host} shows {member:?}");
                        report(found, NAME, world, message);
                    }
                }
            }
        }
    }
}

/// Whether several clients compete for a member, and it is shown with the last write of one of them. The others are
/// notified when they next use it.
fn belongs_to_another(world: &World, member: &Member) -> bool {
    let holds = |client: &HttpClient| {
        let owner = client.secret.as_ref().is_some_and(|secret| secret.client() == member.client());
        owner && client.members.get(member.id()).is_some_and(|held| held.metadata == member.metadata().to_map())
    };
    is_contested(member.id()) && world.http.clients.iter().any(holds)
}
