//! Replicas in one process, each with its own port and directory.

use convoke_log::command::{Body, Open, Request};
use convoke_log::machine::{Outcome, RequestAnswer};
use convoke_log::{Epoch, LogSessionId};
use convoke_replica::{
    Config, Consistency, Dial, LOG_PREAMBLE, LogHandle, Replica, Role, StartError, StoreError, TcpDial,
};
use convoke_testkit::{eventually, free_address};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

/// A node with only a log.
pub(crate) struct Host {
    pub(crate) replica: Replica,
    pub(crate) config: Config,
    accepting: AbortHandle,
}

impl Host {
    pub(crate) async fn start(config: Config) -> Host {
        Host::start_with(config, Arc::new(TcpDial)).await
    }

    pub(crate) async fn start_with(config: Config, dialer: Arc<dyn Dial>) -> Host {
        let listener = listen(&config.address).await;
        let replica = started(&config, &dialer).await;
        let handle = replica.handle();
        let accepting = tokio::spawn(async move {
            while let Ok((mut stream, from)) = listener.accept().await {
                let handle = handle.clone();
                tokio::spawn(async move {
                    let mut preamble = [0; 8];
                    if stream.read_exact(&mut preamble).await.is_ok() && preamble == LOG_PREAMBLE {
                        let _ = stream.set_nodelay(true);
                        handle.accept(stream, from);
                    }
                });
            }
        });
        Host { replica, config, accepting: accepting.abort_handle() }
    }

    pub(crate) fn handle(&self) -> LogHandle {
        self.replica.handle()
    }

    pub(crate) fn node(&self) -> &str {
        &self.config.node
    }

    /// Stops it; the directory stays.
    pub(crate) async fn stop(self) -> Config {
        self.accepting.abort();
        self.replica.handle().stop().await;
        self.config
    }
}

/// A node that was stopped in the middle of an operation releases its directory a moment later.
async fn started(config: &Config, dialer: &Arc<dyn Dial>) -> Replica {
    let mut replica = Replica::start_with(config.clone(), dialer.clone()).await;
    eventually("its directory is free", async || {
        if matches!(replica, Err(StartError::Store(StoreError::InUse { .. }))) {
            replica = Replica::start_with(config.clone(), dialer.clone()).await;
        }
        !matches!(replica, Err(StartError::Store(StoreError::InUse { .. })))
    })
    .await;
    replica.unwrap()
}

async fn listen(address: &str) -> TcpListener {
    let mut listener = TcpListener::bind(address).await;
    eventually("a port that was just closed is free", async || {
        if listener.is_err() {
            listener = TcpListener::bind(address).await;
        }
        listener.is_ok()
    })
    .await;
    listener.unwrap()
}

/// A directory that lives as long as the test.
pub(crate) struct Disks(TempDir);

impl Disks {
    pub(crate) fn new() -> Self {
        Disks(tempfile::tempdir().unwrap())
    }

    pub(crate) fn of(&self, node: &str) -> PathBuf {
        self.0.path().join(node)
    }
}

pub(crate) fn config(disks: &Disks, node: &str) -> Config {
    let mut config = Config::new(node, free_address());
    config.data_dir = Some(disks.of(node));
    config
}

/// Starts nodes with the same join list.
pub(crate) async fn together(disks: &Disks, nodes: &[&str]) -> Vec<Host> {
    together_with(disks, nodes, |_| {}).await
}

pub(crate) async fn together_with(disks: &Disks, nodes: &[&str], adjust: impl Fn(&mut Config)) -> Vec<Host> {
    together_by(disks, nodes, &(Arc::new(TcpDial) as Arc<dyn Dial>), adjust).await
}

pub(crate) async fn together_by(
    disks: &Disks,
    nodes: &[&str],
    dialer: &Arc<dyn Dial>,
    adjust: impl Fn(&mut Config),
) -> Vec<Host> {
    let mut configs: Vec<Config> = nodes.iter().map(|node| config(disks, node)).collect();
    let join: Vec<String> = configs.iter().map(|config| config.address.clone()).collect();
    let mut hosts = Vec::new();
    for config in &mut configs {
        config.join = join.clone();
        adjust(config);
        hosts.push(Host::start_with(config.clone(), dialer.clone()).await);
    }
    leader(&hosts).await;
    hosts
}

/// Returns the index of the host that leads.
pub(crate) async fn leader(hosts: &[Host]) -> usize {
    let mut found = None;
    eventually("a leader is elected and settled", async || {
        found = hosts.iter().position(|host| {
            let status = host.handle().status();
            status.role == Role::Leader && status.available && status.configuration > 0
        });
        found.is_some()
    })
    .await;
    found.unwrap()
}

/// A client with its own session that asks the current leader.
pub(crate) struct Client {
    session: LogSessionId,
    number: u64,
}

impl Client {
    pub(crate) async fn open(hosts: &[Host]) -> Client {
        let mut session = None;
        eventually("a session is opened", async || {
            let handle = hosts[leader(hosts).await].handle();
            let Ok(epoch) = handle.epoch() else { return false };
            let open = Open::new(epoch, Duration::from_secs(60), 1);
            session = handle.open(open).await.ok().and_then(|answered| answered.opened.ok());
            session.is_some()
        })
        .await;
        Client { session: session.unwrap().session, number: 0 }
    }

    pub(crate) fn session(&self) -> LogSessionId {
        self.session
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn next(&mut self, epoch: Epoch, body: Body) -> Request {
        self.number += 1;
        Request::new(self.session, self.number, epoch, body)
    }

    /// Submits under the same number until there is an outcome.
    pub(crate) async fn submit(&mut self, hosts: &[Host], body: Body) -> RequestAnswer {
        self.number += 1;
        let number = self.number;
        let mut found = None;
        eventually("a request is decided", async || {
            let handle = hosts[leader(hosts).await].handle();
            let Ok(epoch) = handle.epoch() else { return false };
            let request = Request::new(self.session, number, epoch, body.clone());
            let answered = tokio::time::timeout(Duration::from_secs(5), handle.submit(request)).await;
            found = answered.ok().and_then(Result::ok).map(|answered| answered.answer);
            found.as_ref().is_some_and(|answer| answer.verdict.is_ok())
        })
        .await;
        found.unwrap()
    }

    pub(crate) async fn put(&mut self, hosts: &[Host], key: &str, value: &str) -> u64 {
        let answer = self.submit(hosts, Body::put(key.as_bytes().to_vec(), value.as_bytes().to_vec())).await;
        match answer.verdict.as_deref() {
            Ok(Outcome::Applied { revision, .. }) => *revision,
            other => panic!("{other:?}"),
        }
    }
}

/// Returns the value of a key at the leader.
pub(crate) async fn get(hosts: &[Host], key: &str) -> Option<String> {
    let mut found = None;
    eventually("a read is served", async || {
        let handle = hosts[leader(hosts).await].handle();
        match handle.read(Consistency::Linearizable).await {
            Ok(machine) => {
                let record = machine.keys().get(key.as_bytes()).cloned();
                found = Some(record.map(|record| String::from_utf8(record.value().to_vec()).unwrap()));
                true
            }
            Err(_) => false,
        }
    })
    .await;
    found.unwrap()
}

/// Waits until all hosts have applied the same entries, and compares their states.
pub(crate) async fn agree(hosts: &[Host]) {
    eventually("all replicas have the same state", async || {
        let machines: Vec<_> = hosts.iter().filter_map(|host| host.handle().local().ok()).collect();
        let equal = |a: &std::sync::Arc<convoke_log::Machine>, b: &std::sync::Arc<_>| {
            let b: &std::sync::Arc<convoke_log::Machine> = b;
            a.applied() == b.applied() && {
                assert_eq!(a.state_hash(), b.state_hash(), "two states at index {}", a.applied().index);
                true
            }
        };
        machines.len() == hosts.len() && machines.windows(2).all(|pair| equal(&pair[0], &pair[1]))
    })
    .await;
}
