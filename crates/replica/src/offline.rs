//! What is done to the log of a node that is not running: beginning a new log from an old state.
//!
//! Both make the node the only replica of a *new* log. Replicas of the old one do not take part in it: they are
//! refused by its id, and have to be added anew with an empty directory.

use crate::raft::{self, LeaderId, Membership, Payload, SnapshotMeta, StoredMembership, Vote};
use crate::replica::{StartError, random};
use crate::state::Image;
use crate::store::disk::{Directory, Disk};
use crate::store::identity::Identity;
use crate::store::{LogStore, Sizes, StoreError, snapshot_file};
use convoke_log::command::Replica as Place;
use convoke_log::{Command, Entry, Machine, Position, ReplicaId};
use openraft::storage::RaftLogStorage;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The new log.
    pub log: u128,
    pub replica: ReplicaId,
    /// The last entry of the old one that is in the new one.
    pub applied: Position,
    pub keys: u64,
    pub revision: u64,
    pub sessions: u64,
    /// Entries that were in this node's log without being known to be committed. They are kept: some of them may have
    /// been acknowledged, others may never have been.
    pub uncommitted: u64,
    /// Where the old log's files are.
    pub kept_in: Option<PathBuf>,
}

/// Why nothing was done.
#[derive(Debug, thiserror::Error)]
pub enum OfflineError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{path} holds no log: there is nothing to recover; restore a backup instead")]
    NoLog { path: PathBuf },
    #[error("{path} holds a log already: use an empty directory, or move that one away")]
    NotEmpty { path: PathBuf },
    #[error("this is not a whole backup: {0}")]
    Backup(io::Error),
    #[error("the log cannot be read to its end: {0}")]
    Unreadable(String),
    #[error(transparent)]
    Start(#[from] StartError),
}

/// Nobody reads in pieces here, and nothing is written that a segment would be too small for.
const WHOLE: Sizes = Sizes { read_bytes: usize::MAX, segment_bytes: u64::MAX, grown_bytes: u64::MAX };

/// Where the old files go.
const ASIDE: &str = "before-recovery";

/// Gives up all other replicas: this node's state, with everything in its log, becomes the beginning of a new log with
/// this node alone. Requests that only others had are lost, acknowledged or not. For when a majority is gone for good.
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
    let mut report = found(directory, node, address, machine, term).await?;
    report.uncommitted = uncommitted;
    report.kept_in = Some(kept_in);
    Ok(report)
}

/// Begins a new log with the state of a backup, and this node alone.
pub async fn restore(
    directory: &Path,
    node: &str,
    address: &str,
    backup: &mut (dyn Read + Send),
) -> Result<Report, OfflineError> {
    {
        let disk = open(directory)?;
        let names = disk.list().map_err(|source| failed("list", directory)(source))?;
        if !names.is_empty() {
            return Err(OfflineError::NotEmpty { path: directory.to_owned() });
        }
    }
    let machine = snapshot_file::machine(backup).map_err(OfflineError::Backup)?;
    let term = machine.applied().epoch.term;
    found(directory, node, address, machine, term).await
}

/// Id of the node whose log a directory holds, if it holds one. Opens nothing and creates nothing.
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

/// Applies everything in the log, committed or not.
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

/// Moves the old log's files into a directory beside.
fn set_aside(directory: &Path) -> Result<PathBuf, StoreError> {
    let name = (0..).map(|number| directory.join(format!("{ASIDE}-{number}"))).find(|path| !path.exists());
    let aside = name.unwrap_or_else(|| directory.join(ASIDE));
    std::fs::create_dir_all(&aside).map_err(failed("create", &aside))?;
    // The identity goes first: without it the rest is nobody's log, whenever a crash comes.
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

/// Makes a directory the only replica of a new log that begins with a state.
async fn found(
    directory: &Path,
    node: &str,
    address: &str,
    machine: Machine,
    term: u64,
) -> Result<Report, OfflineError> {
    let disk = open(directory)?;
    // Above every id there ever was (M2), in a term above every one there ever was: no epoch is used twice.
    let replica = machine.highest_replica().0 + 1;
    let log = u128::from_le_bytes(random()?);
    let genesis = Machine::new(machine.limits().clone()).map_err(StartError::from)?.snapshot().to_bytes();
    let place = Place { node: node.into(), address: address.into() };
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
    // The last thing: with it the directory is a replica's.
    identity.save(&*disk).map_err(failed("write to", directory))?;
    Ok(report)
}
