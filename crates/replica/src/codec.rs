//! Encoding of the engine's values on the wire and on disk: bounded, one encoding per value. The container carries the
//! version.

use crate::raft::{Entry, LeaderId, LogId, Membership, Payload, Proposal, SnapshotMeta, StoredMembership, Vote};
use bytes::Bytes;
use convoke_log::LogTime;
use convoke_log::codec::{CodecError, Reader, Writer};
use convoke_log::command::ReplicaLocation;
use smol_str::SmolStr;
use std::collections::{BTreeMap, BTreeSet};

const BLANK: u8 = 0;
const NORMAL: u8 = 1;
const MEMBERSHIP: u8 = 2;

/// Limits of replicas in a group and of groups in a joint membership.
const REPLICAS_MAX: u64 = 1024;
const CONFIGS_MAX: u64 = 16;
const TEXT_MAX: u64 = 4 * 1024;
/// Hard limit of a command; the configured one is lower.
const COMMAND_MAX: u64 = 64 * 1024 * 1024;

pub(crate) fn put_leader(w: &mut Writer, leader: &LeaderId) {
    w.varint(leader.term);
    w.varint(leader.node_id);
}

pub(crate) fn leader(r: &mut Reader<'_>) -> Result<LeaderId, CodecError> {
    Ok(LeaderId { term: r.counter("term")?, node_id: r.varint("leader")? })
}

pub(crate) fn put_log_id(w: &mut Writer, log_id: &LogId) {
    put_leader(w, &log_id.leader_id);
    w.varint(log_id.index);
}

pub(crate) fn log_id(r: &mut Reader<'_>) -> Result<LogId, CodecError> {
    Ok(LogId { leader_id: leader(r)?, index: r.counter("index")? })
}

pub(crate) fn put_some_log_id(w: &mut Writer, found: Option<&LogId>) {
    w.option(found, put_log_id);
}

pub(crate) fn some_log_id(r: &mut Reader<'_>) -> Result<Option<LogId>, CodecError> {
    r.option("log id", log_id)
}

pub(crate) fn put_vote(w: &mut Writer, vote: &Vote) {
    put_leader(w, &vote.leader_id);
    w.flag(vote.committed);
}

pub(crate) fn vote(r: &mut Reader<'_>) -> Result<Vote, CodecError> {
    Ok(Vote { leader_id: leader(r)?, committed: r.flag("committed")? })
}

pub(crate) fn put_entry(w: &mut Writer, entry: &Entry) {
    put_log_id(w, &entry.log_id);
    match &entry.payload {
        Payload::Blank => w.byte(BLANK),
        Payload::Normal(proposal) => {
            w.byte(NORMAL);
            w.varint(proposal.stamp.as_micros());
            w.sized(&proposal.command);
        }
        Payload::Membership(membership) => {
            w.byte(MEMBERSHIP);
            put_membership(w, membership);
        }
    }
}

/// Decodes an entry. The command is copied, because entries outlive their message.
pub(crate) fn entry(r: &mut Reader<'_>) -> Result<Entry, CodecError> {
    let log_id = log_id(r)?;
    let payload = match r.byte("payload")? {
        BLANK => Payload::Blank,
        NORMAL => {
            let stamp = LogTime::from_micros(r.varint("stamp")?);
            let command = Bytes::copy_from_slice(r.sized("command", COMMAND_MAX)?);
            Payload::Normal(Proposal::encoded(stamp, command))
        }
        MEMBERSHIP => Payload::Membership(membership(r)?),
        _ => return Err(CodecError::Invalid("payload")),
    };
    Ok(Entry { log_id, payload })
}

pub(crate) fn put_membership(w: &mut Writer, membership: &Membership) {
    w.count(membership.get_joint_config().len());
    for voters in membership.get_joint_config() {
        w.count(voters.len());
        for id in voters {
            w.varint(*id);
        }
    }
    let nodes: Vec<_> = membership.nodes().collect();
    w.count(nodes.len());
    for (id, replica) in nodes {
        w.varint(*id);
        w.sized(replica.node.as_bytes());
        w.sized(replica.address.as_bytes());
    }
}

pub(crate) fn membership(r: &mut Reader<'_>) -> Result<Membership, CodecError> {
    let mut configs = Vec::new();
    for _ in 0..r.count("configs", 1, CONFIGS_MAX)? {
        let mut voters = BTreeSet::new();
        for _ in 0..r.count("voters", 1, REPLICAS_MAX)? {
            voters.insert(r.varint("voter")?);
        }
        configs.push(voters);
    }
    let mut nodes = BTreeMap::new();
    for _ in 0..r.count("replicas", 3, REPLICAS_MAX)? {
        let id = r.varint("replica")?;
        let node = SmolStr::new(r.text("node", TEXT_MAX)?);
        let address = SmolStr::new(r.text("address", TEXT_MAX)?);
        nodes.insert(id, ReplicaLocation { node, address });
    }
    if configs.is_empty() && nodes.is_empty() {
        return Ok(Membership::default());
    }
    Membership::new(configs, nodes).map_err(|_| CodecError::Invalid("membership"))
}

pub(crate) fn put_meta(w: &mut Writer, meta: &SnapshotMeta) {
    put_some_log_id(w, meta.last_log_id.as_ref());
    put_some_log_id(w, meta.last_membership.log_id().as_ref());
    put_membership(w, meta.last_membership.membership());
}

pub(crate) fn meta(r: &mut Reader<'_>) -> Result<SnapshotMeta, CodecError> {
    let last_log_id = some_log_id(r)?;
    let membership_log_id = some_log_id(r)?;
    let last_membership = StoredMembership::new(membership_log_id, membership(r)?);
    Ok(SnapshotMeta { last_log_id, last_membership })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries() -> Vec<Entry> {
        let at = |term, index| LogId { leader_id: LeaderId { term, node_id: 3 }, index };
        let nodes = BTreeMap::from([
            (1, ReplicaLocation { node: "a".into(), address: "h:1".into() }),
            (u64::MAX, ReplicaLocation { node: "b".into(), address: "h:2".into() }),
        ]);
        let membership = Membership::new(vec![BTreeSet::from([1]), BTreeSet::from([1, u64::MAX])], nodes).unwrap();
        let command = Bytes::from_static(b"a command");
        vec![
            Entry { log_id: at(0, 0), payload: Payload::Membership(membership) },
            Entry { log_id: at(1, 1), payload: Payload::Blank },
            Entry {
                log_id: at(7, 1 << 40),
                payload: Payload::Normal(Proposal::encoded(LogTime::from_micros(9), command)),
            },
        ]
    }

    #[test]
    fn entries_come_back_as_they_were_and_no_piece_is_taken_for_a_whole() {
        for entry in entries() {
            let mut w = Writer::default();
            put_entry(&mut w, &entry);
            let mut r = Reader::new(w.bytes());
            let found = super::entry(&mut r).unwrap();
            r.end().unwrap();
            assert_eq!(found, entry);
            for len in 0..w.len() {
                assert!(super::entry(&mut Reader::new(&w.bytes()[..len])).is_err(), "{entry:?} cut at {len}");
            }
        }
    }
}
