//! Many SDK clients in this process.

use convoke_client::{Client, ConnectionState, MemberSpec, Registration};
use convoke_testkit::TEST_TIMEOUT;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_stream::StreamExt;

/// Clients that attach concurrently; more would only wait for each other.
const AT_ONCE: usize = 200;

#[derive(Debug)]
pub struct Fleet {
    pub clients: Vec<(Client, Registration)>,
}

impl Fleet {
    /// Starts clients `{name}-0`, `{name}-1`, … of service `web`, each with one member of the same id, at this address.
    pub async fn start(name: &str, count: usize, address: &str) -> Fleet {
        raise_open_files();
        let mut fleet = Fleet { clients: Vec::new() };
        let mut joining = JoinSet::new();
        let mut numbers = 0..count;
        while fleet.clients.len() < count {
            while joining.len() < AT_ONCE
                && let Some(number) = numbers.next()
            {
                joining.spawn(client(format!("{name}-{number}"), address.to_owned()));
            }
            fleet.clients.push(joining.join_next().await.unwrap().unwrap());
        }
        fleet
    }

    /// Returns how many clients are connected to this node.
    pub fn at(&self, node: &str) -> usize {
        let there =
            |client: &Client| matches!(client.state(), ConnectionState::Connected { node: at, .. } if at == node);
        self.clients.iter().filter(|(client, _)| there(client)).count()
    }

    /// Waits until all clients are connected to other nodes than this one. Each client signals it, because polling
    /// thousands of clients would slow them down.
    pub async fn all_elsewhere(&self, node: &str) {
        let moved = async {
            for (client, _) in &self.clients {
                let mut states = client.states();
                while !matches!(states.next().await, Some(ConnectionState::Connected { node: at, .. }) if at != node) {}
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, moved)
            .await
            .unwrap_or_else(|_| panic!("{} are still at {node}", self.at(node)));
    }

    /// Checks that no client has lost its member.
    pub fn assert_none_lost(&self) {
        for (_, registration) in &self.clients {
            assert_eq!(registration.ended(), None, "{}", registration.id());
        }
    }
}

async fn client(name: String, address: String) -> (Client, Registration) {
    let client = Client::builder().seeds([address]).operation_timeout(Duration::from_secs(60)).build().unwrap();
    let registration = client.register(MemberSpec::new(&name, "web")).await.unwrap();
    (client, registration)
}

/// Raises the limit of open files, because every client needs one.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
}
