//! The clusters of the manager, from the reservation of their name until they are removed.

use crate::cluster::api::{CLUSTERS_MAX, ClusterInfo, CreateRequest, DirectionFault, NodeInfo, Progress, check_name};
use crate::cluster::manager::faults::node_error;
use crate::cluster::manager::local_clients::LocalClients;
use crate::cluster::settings;
use crate::{VariableOf, log_group};
use convoke_lab::{ClusterPlan, LocalCluster, NODES_MAX, StateDir};
use convoke_proto::{Error, ErrorCode};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{mpsc, watch};

#[derive(Debug)]
pub(crate) struct Clusters {
    entries: Mutex<BTreeMap<String, Arc<Entry>>>,
    next: AtomicU64,
    binary: PathBuf,
    dir: StateDir,
    variable_of: VariableOf,
    /// Requests in progress.
    requests: watch::Sender<usize>,
    /// Incremented by every change of the entries.
    changes: watch::Sender<u64>,
}

/// A reserved name.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) id: u64,
    pub(crate) name: String,
    /// `None` before it is complete, and once it is being removed.
    pub(crate) cluster: tokio::sync::Mutex<Option<LocalCluster>>,
    /// Taken after the cluster, if both are.
    pub(crate) local_clients: tokio::sync::Mutex<LocalClients>,
    phase: watch::Sender<Phase>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Creating,
    Complete,
    Ending,
    Gone,
}

impl Clusters {
    pub(crate) fn new(dir: StateDir, binary: PathBuf, variable_of: VariableOf) -> Clusters {
        let (requests, changes) = (watch::Sender::new(0), watch::Sender::new(0));
        Clusters { entries: Mutex::default(), next: AtomicU64::new(1), binary, dir, variable_of, requests, changes }
    }

    /// Counts a request in progress while it exists.
    pub(crate) fn request(self: &Arc<Self>) -> Request {
        self.requests.send_modify(|requests| *requests += 1);
        Request(self.clone())
    }

    /// Waits until there are no clusters and no requests.
    pub(crate) async fn idle(&self) {
        let (mut requests, mut changes) = (self.requests.subscribe(), self.changes.subscribe());
        while *requests.borrow_and_update() > 0 || !self.lock().is_empty() {
            tokio::select! {
                _ = requests.changed() => {}
                _ = changes.changed() => {}
            }
        }
    }

    /// Returns the number of clusters, and how many of them are being created.
    pub(crate) fn count(&self) -> (usize, usize) {
        let entries = self.lock();
        let creating = entries.values().filter(|entry| *entry.phase.borrow() == Phase::Creating).count();
        (entries.len(), creating)
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    pub(crate) fn find(&self, name: &str) -> Result<Arc<Entry>, Error> {
        let found = self.lock().get(name).cloned();
        found.ok_or_else(|| {
            let names = self.names();
            let there = if names.is_empty() {
                "there are no clusters".to_owned()
            } else {
                format!("use one of {}", names.join(", "))
            };
            Error::new(ErrorCode::NotFound, format!("no cluster {name:?}: {there}")).field("name")
        })
    }

    /// Checks a request and reserves its name.
    pub(crate) fn reserve(&self, request: &CreateRequest) -> Result<Arc<Entry>, Error> {
        let invalid = |field: &str, message: String| Error::new(ErrorCode::InvalidArgument, message).field(field);
        check_name(&request.name).map_err(|message| invalid("name", message))?;
        settings::variables(&request.settings, self.variable_of).map_err(|message| invalid("settings", message))?;
        if request.nodes == 0 || request.nodes > NODES_MAX {
            let message = format!("{} nodes: use 1 to {NODES_MAX}", request.nodes);
            return Err(invalid("nodes", message).limit(NODES_MAX as u64));
        }
        let mut entries = self.lock();
        if entries.contains_key(&request.name) {
            let message = format!("cluster {:?} exists: use another name, or delete it", request.name);
            return Err(Error::new(ErrorCode::AlreadyRegistered, message).field("name"));
        }
        if entries.len() >= CLUSTERS_MAX {
            let message = format!("the limit of {CLUSTERS_MAX} clusters is reached: delete one");
            return Err(Error::new(ErrorCode::ResourceExhausted, message).limit(CLUSTERS_MAX as u64));
        }
        let (id, name) = (self.next.fetch_add(1, Ordering::Relaxed), request.name.clone());
        let phase = watch::Sender::new(Phase::Creating);
        let (cluster, local_clients) = (tokio::sync::Mutex::new(None), tokio::sync::Mutex::default());
        let entry = Arc::new(Entry { id, name: name.clone(), cluster, local_clients, phase });
        entries.insert(name, entry.clone());
        Ok(entry)
    }

    /// Starts the nodes and reports the progress. If the receiver is dropped, the cluster is removed.
    pub(crate) async fn create(
        self: Arc<Self>,
        entry: Arc<Entry>,
        request: CreateRequest,
        progress_sender: mpsc::Sender<Progress>,
    ) {
        // The channel has room for all messages.
        let _ = progress_sender.send(Progress::Begun { id: entry.id }).await;
        let dir = self.dir.path().join(&entry.name);
        let plan = ClusterPlan {
            cluster: entry.name.clone(),
            binary: self.binary.clone(),
            dir,
            prefix: "n",
            environment: settings::variables(&request.settings, self.variable_of).expect("checked by reserve"),
            at_localhost: false,
        };
        let mut cluster = match LocalCluster::new(plan) {
            Ok(cluster) => cluster,
            Err(error) => {
                self.release(&entry);
                let _ =
                    progress_sender.send(Progress::Failed(Error::new(ErrorCode::Internal, error.to_string()))).await;
                return;
            }
        };
        let mut phase = entry.phase.subscribe();
        let started = tokio::select! {
            biased;
            _ = phase.wait_for(|phase| *phase != Phase::Creating) => None,
            () = progress_sender.closed() => None,
            started = start(&mut cluster, &request, &progress_sender) => Some(started),
        };
        if let Some(Ok(())) = started {
            let info = describe(&cluster, &LocalClients::default());
            *entry.cluster.lock().await = Some(cluster);
            let completed = entry.advance(Phase::Creating, Phase::Complete);
            if !completed || progress_sender.send(Progress::Done(info)).await.is_err() {
                self.delete(&entry).await;
            }
            return;
        }
        entry.advance(Phase::Creating, Phase::Ending);
        cluster.end().await;
        self.release(&entry);
        if let Some(Err(error)) = started {
            let _ = progress_sender.send(Progress::Failed(error)).await;
        }
    }

    /// Ends a cluster, complete or not; returns when it is completely removed.
    pub(crate) async fn delete(&self, entry: &Arc<Entry>) {
        let was = entry.phase.send_replace(Phase::Ending);
        if was == Phase::Gone {
            entry.phase.send_replace(Phase::Gone);
            return;
        }
        if let Some(cluster) = entry.cluster.lock().await.take() {
            *entry.local_clients.lock().await = LocalClients::default();
            cluster.end().await;
            self.release(entry);
            return;
        }
        // Another task is ending it already: its creation or another deletion.
        let mut phase = entry.phase.subscribe();
        let _ = phase.wait_for(|phase| *phase == Phase::Gone).await;
    }

    pub(crate) async fn end_all(&self) {
        let entries: Vec<Arc<Entry>> = self.lock().values().cloned().collect();
        for entry in entries {
            self.delete(&entry).await;
        }
    }

    /// Removes the directory of a cluster whose processes have ended, then releases its name.
    fn release(&self, entry: &Entry) {
        let _ = std::fs::remove_dir_all(self.dir.path().join(&entry.name));
        self.lock().remove(&entry.name);
        entry.phase.send_replace(Phase::Gone);
        self.changes.send_modify(|changes| *changes += 1);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Entry>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn advance(&self, from: Phase, to: Phase) -> bool {
        self.phase.send_if_modified(|phase| {
            let is = *phase == from;
            if is {
                *phase = to;
            }
            is
        })
    }
}

/// Counts as a request until it is dropped.
#[derive(Debug)]
pub(crate) struct Request(Arc<Clusters>);

impl Drop for Request {
    fn drop(&mut self) {
        self.0.requests.send_modify(|requests| *requests -= 1);
    }
}

async fn start(
    cluster: &mut LocalCluster,
    request: &CreateRequest,
    progress_sender: &mpsc::Sender<Progress>,
) -> Result<(), Error> {
    for number in 1..=request.nodes {
        let region = match request.regions.as_slice() {
            [] => "",
            regions => &regions[(number - 1) % regions.len()],
        };
        let node = cluster.add(region).await.map_err(|error| node_error(&error))?;
        let _ = progress_sender.send(Progress::Ready { node, number, of: request.nodes }).await;
    }
    let ids: Vec<String> = cluster.nodes().iter().map(|node| node.id().to_owned()).collect();
    let others = ids.get(1..log_group::voters(ids.len())).unwrap_or_default();
    match cluster.nodes().first() {
        Some(first) => log_group::form(&first.clients().to_string(), others).await,
        None => Ok(()),
    }
}

pub(crate) fn describe(cluster: &LocalCluster, local_clients: &LocalClients) -> ClusterInfo {
    let nodes = cluster.nodes().iter().map(|node| NodeInfo {
        id: node.id().to_owned(),
        state: node.state().as_str().to_owned(),
        region: node.region().to_owned(),
        address: node.clients().to_string(),
        peer_address: node.peers().to_string(),
        pid: node.pid(),
        log: node.log().display().to_string(),
    });
    let link_faults = cluster.network().faults();
    let affected: BTreeSet<_> =
        link_faults.cuts().chain(link_faults.delays().map(|(direction, _)| direction)).collect();
    let faults = affected.into_iter().filter_map(|direction| {
        Some(DirectionFault {
            from: cluster.id_of(direction.from)?.to_owned(),
            to: cluster.id_of(direction.to)?.to_owned(),
            cut: link_faults.is_cut(direction),
            delay_ms: u64::try_from(link_faults.delay(direction).as_millis()).unwrap_or(u64::MAX),
        })
    });
    let (name, nodes, faults) = (cluster.name().to_owned(), nodes.collect(), faults.collect());
    ClusterInfo { name, nodes, clients: local_clients.counts(), faults }
}
