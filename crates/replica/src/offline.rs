//! Operations on the log of a stopped node: creating a new log from an existing state.
//!
//! Both operations make the node the only replica of a *new* log. The new log id excludes replicas of the old log; add
//! them again with an empty directory.

use crate::mutant::{Mutation, seam};
use crate::raft::{self, LeaderId, Membership, Payload, SnapshotMeta, StoredMembership, Vote};
use crate::replica::{StartError, random};
use crate::state::Image;
use crate::store::disk::{Directory, Disk};
use crate::store::identity::Identity;
use crate::store::{LogStore, Sizes, StoreError, snapshot_file};
use convoke_log::command::ReplicaLocation;
use convoke_log::{Command, Entry, Machine, Position, ReplicaId};
use openraft::storage::RaftLogStorage;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Result of an offline operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Id of the new log.
    pub log: u128,
    pub replica: ReplicaId,
    /// The last entry of the old log that is part of the new one.
    pub applied: Position,
    pub keys: u64,
    pub revision: u64,
    pub sessions: u64,
    /// Entries of this node's log that are not known to be committed. They are kept, because some of them may have been
    /// acknowledged.
    pub uncommitted: u64,
    /// Directory of the old log's files.
    pub kept_in: Option<PathBuf>,
}

/// Why an offline operation failed.
#[derive(Debug, thiserror::Error)]
pub enum OfflineError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{path} contains no log to recover (restore a backup instead)")]
    NoLog { path: PathBuf },
    #[error("{path} already contains a log (use an empty directory, or move the log away)")]
    NotEmpty { path: PathBuf },
    #[error("the backup is incomplete or damaged: {0}")]
    Backup(io::Error),
    #[error("cannot read the whole log: {0}")]
    Unreadable(String),
    #[error(transparent)]
    Start(#[from] StartError),
}

/// Offline operations read and write everything at once.
const WHOLE: Sizes = Sizes { read_bytes: usize::MAX, segment_bytes: u64::MAX, grown_bytes: u64::MAX };

/// Directory for the old files.
const ASIDE: &str = "before-recovery";

/// Discards all other replicas: the state of this node, with its whole log, becomes the start of a new log. Entries
/// that only other nodes had are lost, acknowledged or not. Use it only if a majority is permanently lost.
pub async fn recover(directory: &Path, node: &str, address: &str) -> Result<Report, OfflineError> {
    let (machine, uncommitted, term) = {
        let disk: Arc<dyn Disk> = open(directory)?;
        let Some(identity) = Identity::load(&*disk)? else {
            return Err(OfflineError::NoLog { path: directory.to_owned() });
        };
        let image = snapshot_file::load(&*disk)?;
        let store = LogStore::open(disk, WHOLE, Arc::default())?;
        let mut machine = match image {
            Some(image) => Machine::clone(&image.machine),
            None => identity.machine().map_err(OfflineError::Unreadable)?,
        };
        let committed = store.committed().map_or(0, |committed| committed.index + 1);
        let uncommitted = store.entries().last().map_or(0, |last| (last.log_id.index + 1).saturating_sub(committed));
        replay(&mut machine, &store)?;
        let term = store.vote().map_or(0, |vote| vote.leader_id.term).max(machine.applied().epoch.term);
        (machine, uncommitted, term)
    };
    let kept_in = set_aside(directory)?;
    let mut report = found(open(directory)?, (node, address), machine, term, Mutation::none()).await?;
    report.uncommitted = uncommitted;
    report.kept_in = Some(kept_in);
    Ok(report)
}

/// Creates a new log from a backup, with this node as its only replica.
pub async fn restore(
    directory: &Path,
    node: &str,
    address: &str,
    backup: &mut (dyn Read + Send),
) -> Result<Report, OfflineError> {
    restore_on(open(directory)?, node, address, backup, Mutation::none()).await
}

/// Does the same on any disk, for a simulation.
pub async fn restore_on(
    disk: Arc<dyn Disk>,
    node: &str,
    address: &str,
    backup: &mut (dyn Read + Send),
    mutation: Mutation,
) -> Result<Report, OfflineError> {
    let path = root(&*disk);
    let names = disk.list().map_err(failed("list", &path))?;
    if !names.is_empty() {
        return Err(OfflineError::NotEmpty { path });
    }
    let machine = snapshot_file::machine(backup).map_err(OfflineError::Backup)?;
    let term = machine.applied().epoch.term;
    found(disk, (node, address), machine, term, mutation).await
}

/// Returns the id of the node whose log a directory holds. Opens and creates nothing.
pub fn node_of(directory: &Path) -> Result<Option<String>, StoreError> {
    Ok(Identity::read(directory)?.map(|identity| identity.node))
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Disk { action, path, source }
}

fn open(directory: &Path) -> Result<Arc<Directory>, StoreError> {
    Directory::open(directory).map_err(|source| match source.kind() {
        io::ErrorKind::WouldBlock => StoreError::InUse { path: directory.to_owned() },
        _ => failed("open", directory)(source),
    })
}

/// Applies all entries of the log, committed or not.
fn replay(machine: &mut Machine, store: &LogStore) -> Result<(), OfflineError> {
    for entry in store.entries() {
        let position = raft::position(&entry.log_id);
        if position.index <= machine.applied().index {
            continue;
        }
        let unreadable = |error: &dyn std::fmt::Display| OfflineError::Unreadable(error.to_string());
        match entry.payload {
            Payload::Normal(proposal) => {
                let command = Command::decode(&proposal.command).map_err(|error| unreadable(&error))?;
                let Position { index, epoch } = position;
                let applied = machine.apply(&Entry { index, epoch, stamp: proposal.stamp, command });
                applied.map_err(|error| unreadable(&error))?;
            }
            Payload::Blank | Payload::Membership(_) => {
                machine.skip(position).map_err(|error| unreadable(&error))?;
            }
        }
    }
    Ok(())
}

/// Moves the old log's files into a subdirectory.
fn set_aside(directory: &Path) -> Result<PathBuf, StoreError> {
    let name = (0..).map(|number| directory.join(format!("{ASIDE}-{number}"))).find(|path| !path.exists());
    let aside = name.unwrap_or_else(|| directory.join(ASIDE));
    std::fs::create_dir_all(&aside).map_err(failed("create", &aside))?;
    // Move the identity first: without it the other files are not a log, whenever a crash occurs.
    let disk = open(directory)?;
    let mut names = disk.list().map_err(failed("list", directory))?;
    names.sort_by_key(|name| name != "identity");
    for name in names.iter().filter(|name| !name.starts_with(ASIDE)) {
        let (from, to) = (directory.join(name), aside.join(name));
        std::fs::rename(&from, &to).map_err(failed("move away", &from))?;
    }
    disk.sync().map_err(failed("sync", directory))?;
    Ok(aside)
}

/// Returns the path of the directory itself.
fn root(disk: &dyn Disk) -> PathBuf {
    // Without a separator at the end.
    disk.path("").components().collect()
}

/// Ends leases and locks and jumps ahead of all fences (LO8).
fn begun_again(machine: Machine, mutation: Mutation) -> Machine {
    seam!(in mutation, RestoredAsIs => return machine);
    machine.begun_again()
}

/// Creates a new log on a disk, with this node as its only replica and the given state.
async fn found(
    disk: Arc<dyn Disk>,
    (node, address): (&str, &str),
    machine: Machine,
    term: u64,
    mutation: Mutation,
) -> Result<Report, OfflineError> {
    let machine = begun_again(machine, mutation);
    let directory = &*root(&*disk);
    // Use an id above all earlier ones (M2) and a term above all earlier ones, so that no epoch occurs twice.
    let replica = machine.highest_replica().0 + 1;
    let log = u128::from_le_bytes(random()?);
    let genesis = Machine::created(machine.limits().clone(), machine.level()).map_err(StartError::from)?;
    let genesis = genesis.snapshot().to_bytes();
    let place = ReplicaLocation { node: node.into(), address: address.into() };
    let membership = Membership::new(vec![BTreeSet::from([replica])], BTreeMap::from([(replica, place)]))
        .map_err(|error| OfflineError::Unreadable(error.to_string()))?;
    let last = raft::log_id(machine.applied());
    let report = Report {
        log,
        replica: ReplicaId(replica),
        applied: machine.applied(),
        keys: machine.keys().len() as u64,
        revision: machine.keys().revision(),
        sessions: machine.session_count() as u64,
        uncommitted: 0,
        kept_in: None,
    };
    let identity = Identity {
        log,
        replica,
        node: node.to_owned(),
        genesis,
        inherited: machine.applied().index,
        founding: None,
        agreed: BTreeSet::new(),
    };
    let meta = SnapshotMeta { last_log_id: last, last_membership: StoredMembership::new(last, membership) };
    let image = Image { meta, machine: Arc::new(machine) };
    snapshot_file::save(&*disk, &image).map_err(failed("write to", directory))?;
    let mut store = LogStore::open(disk.clone(), WHOLE, Arc::default())?;
    let vote = Vote { leader_id: LeaderId { term, node_id: replica }, committed: false };
    store.save_vote(&vote).await.map_err(failed("write to", directory))?;
    if let Some(last) = last {
        store.purge(last).await.map_err(failed("write to", directory))?;
    }
    drop(store);
    // Written last: it makes the directory a replica.
    identity.save(&*disk).map_err(failed("write to", directory))?;
    Ok(report)
}
