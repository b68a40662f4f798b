//! Messages between replicas.

use crate::acknowledgements::{AcknowledgementTable, Seen, put_seen, put_table, seen, table};
use crate::codec::{leader, meta, put_entry, put_leader, put_meta, put_some_log_id, put_vote, some_log_id, vote};
use crate::raft::{LeaderId, LogId, SnapshotMeta, Types, Vote};
use crate::state_hashes::StateHash;
use crate::status::{Group, GroupReplica};
use convoke_log::codec::{CodecError, Reader, Writer, epoch, put_epoch};
use convoke_log::{Epoch, Level, ReplicaId};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, TransferLeaderRequest, TransferLeaderResponse, VoteRequest,
    VoteResponse,
};
use smol_str::SmolStr;
use std::collections::BTreeSet;

pub(crate) type Append = AppendEntriesRequest<Types>;
pub(crate) type Appended = AppendEntriesResponse<Types>;
pub(crate) type Ballot = VoteRequest<Types>;
pub(crate) type Voted = VoteResponse<Types>;
pub(crate) type Transfer = TransferLeaderRequest<Types>;
pub(crate) type Transferred = TransferLeaderResponse<Types>;

/// Version of this protocol, sent in the first frame.
pub(crate) const VERSION: u8 = 3;

/// Kinds of frames. An answer has the kind of its request with the highest bit set.
pub(crate) mod kind {
    pub(crate) const HELLO: u8 = 0;
    pub(crate) const APPEND: u8 = 1;
    pub(crate) const VOTE: u8 = 2;
    pub(crate) const PRE_VOTE: u8 = 3;
    pub(crate) const TRANSFER: u8 = 4;
    /// Begins a snapshot. Its frames follow without answers; its end is answered.
    pub(crate) const SNAPSHOT: u8 = 5;
    pub(crate) const SNAPSHOT_FRAME: u8 = 6;
    pub(crate) const SNAPSHOT_END: u8 = 7;
    /// Asks a node about itself.
    pub(crate) const PROBE: u8 = 8;
    /// Asks a node to become a replica of a log.
    pub(crate) const ADOPT: u8 = 9;
    /// Asks a voter whether it has evidence that the leader has ended.
    pub(crate) const LOST: u8 = 10;
    pub(crate) const ANSWER: u8 = 0x80;
    /// Rejects a request or a connection; the content is the reason.
    pub(crate) const REJECTED: u8 = 0xff;
}

const NODE_MAX: u64 = 4 * 1024;
const GROUP_MAX: u64 = 1024;

/// The first frame of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) cluster: String,
    pub(crate) node: String,
    /// Address of the node for clients; empty if there is none.
    pub(crate) client: String,
    /// The replica that the connection is meant for. Without one, only probes and adoptions are answered.
    pub(crate) to: Option<Target>,
}

/// One replica of one log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) log: u128,
    pub(crate) replica: u64,
}

impl Hello {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.byte(VERSION);
        w.sized(self.cluster.as_bytes());
        w.sized(self.node.as_bytes());
        w.sized(self.client.as_bytes());
        w.option(self.to, |w, to| {
            w.fixed128(to.log);
            w.varint(to.replica);
        });
        w.into_bytes()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        let mut r = Reader::new(bytes);
        let found = r.byte("version")?;
        if found != VERSION {
            return Err(CodecError::Version { what: "the log protocol", found, known: VERSION });
        }
        let hello = Hello {
            cluster: r.text("cluster", NODE_MAX)?.to_owned(),
            node: r.text("node", NODE_MAX)?.to_owned(),
            client: r.text("client", NODE_MAX)?.to_owned(),
            to: r.option("target", |r| Ok(Target { log: r.fixed128("log")?, replica: r.varint("replica")? }))?,
        };
        r.end()?;
        Ok(hello)
    }
}

/// Data that a leader adds to its entries.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AppendExtras {
    /// The data that each replica has acknowledged (M6).
    pub(crate) seen: Vec<(u64, Seen)>,
    /// Whether the leader commits nothing although entries wait.
    pub(crate) stalled: bool,
    /// Replicas that the leader does not reach.
    pub(crate) unreachable: BTreeSet<u64>,
    /// The index at which replicas compute the hash of their state (LH6).
    pub(crate) check: u64,
    /// The leader's last such index and hash.
    pub(crate) checked: Option<StateHash>,
}

impl AppendExtras {
    pub(crate) fn of(acknowledgements: &AcknowledgementTable) -> Self {
        AppendExtras {
            seen: acknowledgements.all(),
            stalled: acknowledgements.is_stalled(),
            unreachable: acknowledgements.unreachable(),
            check: acknowledgements.hashes.wanted(),
            checked: acknowledgements.hashes.last(),
        }
    }
}

pub(crate) fn encode_append(append: &Append, extras: &AppendExtras) -> Vec<u8> {
    let mut w = Writer::default();
    put_table(&mut w, &extras.seen);
    w.flag(extras.stalled);
    w.count(extras.unreachable.len());
    for replica in &extras.unreachable {
        w.varint(*replica);
    }
    w.varint(extras.check);
    w.option(extras.checked, |w, checked| {
        w.varint(checked.index);
        w.fixed128(checked.hash);
    });
    put_vote(&mut w, &append.vote);
    put_some_log_id(&mut w, append.prev_log_id.as_ref());
    put_some_log_id(&mut w, append.leader_commit.as_ref());
    w.count(append.entries.len());
    for entry in &append.entries {
        put_entry(&mut w, entry);
    }
    w.into_bytes()
}

pub(crate) fn decode_append(bytes: &[u8]) -> Result<(Append, AppendExtras), CodecError> {
    let mut r = Reader::new(bytes);
    let (seen, stalled) = (table(&mut r)?, r.flag("stalled")?);
    let count = r.count("unreachable", 1, GROUP_MAX)?;
    let unreachable = (0..count).map(|_| r.varint("replica")).collect::<Result<_, _>>()?;
    let check = r.counter("check")?;
    let checked = r.option("checked", |r| Ok(StateHash { index: r.counter("index")?, hash: r.fixed128("hash")? }))?;
    let extras = AppendExtras { seen, stalled, unreachable, check, checked };
    let (vote, prev_log_id, leader_commit) = (vote(&mut r)?, some_log_id(&mut r)?, some_log_id(&mut r)?);
    let count = r.count("entries", 4, u64::MAX)?;
    let mut entries = Vec::with_capacity(count);
    for _ in 0..count {
        entries.push(crate::codec::entry(&mut r)?);
    }
    r.end()?;
    Ok((Append { vote, prev_log_id, entries, leader_commit }, extras))
}

pub(crate) fn encode_appended(appended: &Appended) -> Vec<u8> {
    let mut w = Writer::default();
    match appended {
        Appended::Success => w.byte(0),
        Appended::PartialSuccess(upto) => {
            w.byte(1);
            put_some_log_id(&mut w, upto.as_ref());
        }
        Appended::Conflict => w.byte(2),
        Appended::HigherVote(vote) => {
            w.byte(3);
            put_vote(&mut w, vote);
        }
    }
    w.into_bytes()
}

pub(crate) fn decode_appended(bytes: &[u8]) -> Result<Appended, CodecError> {
    let mut r = Reader::new(bytes);
    let appended = match r.byte("answer")? {
        0 => Appended::Success,
        1 => Appended::PartialSuccess(some_log_id(&mut r)?),
        2 => Appended::Conflict,
        3 => Appended::HigherVote(vote(&mut r)?),
        _ => return Err(CodecError::Invalid("answer")),
    };
    r.end()?;
    Ok(appended)
}

/// `about_you` is what the receiver has acknowledged, as far as the candidate knows (M6).
pub(crate) fn encode_ballot(ballot: &Ballot, about_you: Option<Seen>) -> Vec<u8> {
    let mut w = Writer::default();
    w.option(about_you.as_ref(), put_seen);
    put_vote(&mut w, &ballot.vote);
    put_some_log_id(&mut w, ballot.last_log_id.as_ref());
    w.flag(ballot.leadership_transfer);
    w.into_bytes()
}

pub(crate) fn decode_ballot(bytes: &[u8]) -> Result<(Ballot, Option<Seen>), CodecError> {
    let mut r = Reader::new(bytes);
    let about_me = r.option("evidence", seen)?;
    let mut ballot = Ballot::new(vote(&mut r)?, some_log_id(&mut r)?);
    ballot.leadership_transfer = r.flag("transfer")?;
    r.end()?;
    Ok((ballot, about_me))
}

/// Asks a voter to confirm that the process of the leader has ended (M7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    pub(crate) leader: LeaderId,
    /// The last entry of the voter that asks.
    pub(crate) last: Option<LogId>,
}

impl Lost {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        put_leader(&mut w, &self.leader);
        put_some_log_id(&mut w, self.last.as_ref());
        w.into_bytes()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        let mut r = Reader::new(bytes);
        let lost = Lost { leader: leader(&mut r)?, last: some_log_id(&mut r)? };
        r.end()?;
        Ok(lost)
    }
}

pub(crate) fn encode_voted(voted: &Voted) -> Vec<u8> {
    let mut w = Writer::default();
    put_vote(&mut w, &voted.vote);
    w.flag(voted.vote_granted);
    put_some_log_id(&mut w, voted.last_log_id.as_ref());
    w.into_bytes()
}

pub(crate) fn decode_voted(bytes: &[u8]) -> Result<Voted, CodecError> {
    let mut r = Reader::new(bytes);
    let (vote, vote_granted) = (vote(&mut r)?, r.flag("granted")?);
    let voted = Voted { vote, vote_granted, last_log_id: some_log_id(&mut r)? };
    r.end()?;
    Ok(voted)
}

pub(crate) fn encode_transfer(transfer: &Transfer) -> Vec<u8> {
    let mut w = Writer::default();
    put_vote(&mut w, transfer.from_leader());
    w.varint(*transfer.to_node_id());
    put_some_log_id(&mut w, transfer.last_log_id());
    w.into_bytes()
}

pub(crate) fn decode_transfer(bytes: &[u8]) -> Result<Transfer, CodecError> {
    let mut r = Reader::new(bytes);
    let transfer = Transfer::new(vote(&mut r)?, r.varint("to")?, some_log_id(&mut r)?);
    r.end()?;
    Ok(transfer)
}

pub(crate) fn encode_transferred(transferred: &Transferred) -> Vec<u8> {
    use openraft::raft::TransferLeaderError as E;
    let mut w = Writer::default();
    match transferred {
        Ok(()) => w.byte(0),
        Err(E::VoteChanged { expected, actual }) => {
            w.byte(1);
            put_vote(&mut w, expected);
            put_vote(&mut w, actual);
        }
        Err(E::LogNotFlushed { expected, actual }) => {
            w.byte(2);
            put_some_log_id(&mut w, expected.as_ref());
            put_some_log_id(&mut w, actual.as_ref());
        }
    }
    w.into_bytes()
}

pub(crate) fn decode_transferred(bytes: &[u8]) -> Result<Transferred, CodecError> {
    use openraft::raft::TransferLeaderError as E;
    let mut r = Reader::new(bytes);
    let transferred = match r.byte("answer")? {
        0 => Ok(()),
        1 => Err(E::VoteChanged { expected: vote(&mut r)?, actual: vote(&mut r)? }),
        2 => Err(E::LogNotFlushed { expected: some_log_id(&mut r)?, actual: some_log_id(&mut r)? }),
        _ => return Err(CodecError::Invalid("answer")),
    };
    r.end()?;
    Ok(transferred)
}

pub(crate) fn encode_snapshot(vote: &Vote, meta: &SnapshotMeta) -> Vec<u8> {
    let mut w = Writer::default();
    put_vote(&mut w, vote);
    put_meta(&mut w, meta);
    w.into_bytes()
}

pub(crate) fn decode_snapshot(bytes: &[u8]) -> Result<(Vote, SnapshotMeta), CodecError> {
    let mut r = Reader::new(bytes);
    let found = (vote(&mut r)?, meta(&mut r)?);
    r.end()?;
    Ok(found)
}

pub(crate) fn encode_vote(vote: &Vote) -> Vec<u8> {
    let mut w = Writer::default();
    put_vote(&mut w, vote);
    w.into_bytes()
}

pub(crate) fn decode_vote(bytes: &[u8]) -> Result<Vote, CodecError> {
    let mut r = Reader::new(bytes);
    let found = vote(&mut r)?;
    r.end()?;
    Ok(found)
}

/// A node's answer to a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Probed {
    pub(crate) node: SmolStr,
    pub(crate) address: SmolStr,
    /// Random number of the process, so that a node recognises itself.
    pub(crate) nonce: u64,
    /// The node's join list, sorted and without duplicates.
    pub(crate) join: Vec<SmolStr>,
    /// The number of nodes with which the node creates a log: 1 for alone, 0 if the join list decides.
    pub(crate) expected: u64,
    /// Ids of the nodes that the node found behind its join list, sorted.
    pub(crate) sees: Vec<SmolStr>,
    /// The log of which the node is a replica, if any.
    pub(crate) log: Option<u128>,
    pub(crate) group: Group,
    /// Whether the node is a replica that knows a leader with a majority.
    pub(crate) available: bool,
    /// The highest feature level that the node supports (V3). An earlier version names none.
    pub(crate) level: Level,
}

/// Content of a probe whose sender reads levels. Earlier versions send an empty probe and reject an answer with a level.
pub(crate) const PROBE_WITH_LEVEL: &[u8] = &[1];

impl Probed {
    /// Encodes the answer to a probe with this content.
    pub(crate) fn encode_for(&self, probe: &[u8]) -> Vec<u8> {
        let mut bytes = self.encode();
        if !probe.is_empty() {
            let mut w = Writer::default();
            w.varint(self.level.0);
            bytes.extend_from_slice(w.bytes());
        }
        bytes
    }

    fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.sized(self.node.as_bytes());
        w.sized(self.address.as_bytes());
        w.fixed64(self.nonce);
        w.count(self.join.len());
        for address in &self.join {
            w.sized(address.as_bytes());
        }
        w.varint(self.expected);
        w.count(self.sees.len());
        for node in &self.sees {
            w.sized(node.as_bytes());
        }
        w.option(self.log, Writer::fixed128);
        w.option(self.group.epoch, put_epoch);
        w.option(self.group.leader, |w, leader| w.varint(leader.0));
        w.count(self.group.replicas.len());
        for member in &self.group.replicas {
            w.varint(member.replica.0);
            w.sized(member.node.as_bytes());
            w.sized(member.address.as_bytes());
            w.flag(member.voter);
        }
        w.flag(self.available);
        w.into_bytes()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        let mut reader = Reader::new(bytes);
        let r = &mut reader;
        let (node, address) = (text(r, "node")?, text(r, "address")?);
        let nonce = r.fixed64("nonce")?;
        let mut join = Vec::new();
        for _ in 0..r.count("join", 1, GROUP_MAX)? {
            join.push(text(r, "join")?);
        }
        let expected = r.varint("expected")?;
        let mut sees = Vec::new();
        for _ in 0..r.count("sees", 1, GROUP_MAX)? {
            sees.push(text(r, "sees")?);
        }
        let log = r.option("log", |r| r.fixed128("log"))?;
        let epoch: Option<Epoch> = r.option("epoch", epoch)?;
        let leader = r.option("leader", |r| r.varint("leader").map(ReplicaId))?;
        let mut replicas = Vec::new();
        for _ in 0..r.count("replicas", 4, GROUP_MAX)? {
            replicas.push(GroupReplica {
                replica: ReplicaId(r.varint("replica")?),
                node: text(r, "node")?,
                address: text(r, "address")?,
                voter: r.flag("voter")?,
                unreachable: false,
            });
        }
        let available = r.flag("available")?;
        let level = if r.is_empty() { Level::FIRST } else { Level(r.counter("level")?) };
        r.end()?;
        let group = Group { epoch, leader, replicas };
        Ok(Probed { node, address, nonce, join, expected, sees, log, group, available, level })
    }
}

fn text(r: &mut Reader<'_>, what: &'static str) -> Result<SmolStr, CodecError> {
    r.text(what, NODE_MAX).map(SmolStr::new)
}

/// Makes a node a replica of a log, if it is not one yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Adopt {
    pub(crate) target: Target,
    pub(crate) node: SmolStr,
    /// Limits of the log, encoded as a machine without entries.
    pub(crate) state: Vec<u8>,
}

impl Adopt {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.fixed128(self.target.log);
        w.varint(self.target.replica);
        w.sized(self.node.as_bytes());
        w.sized(&self.state);
        w.into_bytes()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        let mut r = Reader::new(bytes);
        let target = Target { log: r.fixed128("log")?, replica: r.varint("replica")? };
        let adopt = Adopt { target, node: text(&mut r, "node")?, state: r.sized("state", NODE_MAX)?.to_vec() };
        r.end()?;
        Ok(adopt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raft::{Entry, Payload};

    fn at(term: u64, index: u64) -> LogId {
        LogId { leader_id: LeaderId { term, node_id: 2 }, index }
    }

    fn a_vote(term: u64) -> Vote {
        Vote { leader_id: LeaderId { term, node_id: 2 }, committed: true }
    }

    #[test]
    fn messages_come_back_as_they_were() {
        let append = Append {
            vote: a_vote(3),
            prev_log_id: Some(at(1, 4)),
            entries: vec![Entry { log_id: at(3, 5), payload: Payload::Blank }],
            leader_commit: None,
        };
        let seen = Seen { leader: LeaderId { term: 2, node_id: 1 }, matched: 9, committed: 8 };
        let extras = AppendExtras {
            seen: vec![(1, seen), (7, seen)],
            stalled: true,
            unreachable: [3, 9].into(),
            check: 7,
            checked: Some(StateHash { index: 6, hash: u128::MAX - 1 }),
        };
        let (found, extras_found) = decode_append(&encode_append(&append, &extras)).unwrap();
        assert_eq!(extras_found, extras);
        assert_eq!((found.vote, found.prev_log_id, found.entries), (append.vote, append.prev_log_id, append.entries));
        for appended in [
            Appended::Success,
            Appended::PartialSuccess(Some(at(1, 2))),
            Appended::Conflict,
            Appended::HigherVote(a_vote(9)),
        ] {
            assert_eq!(decode_appended(&encode_appended(&appended)).unwrap(), appended);
        }
        let mut ballot = Ballot::new(a_vote(4), Some(at(2, 2)));
        ballot.leadership_transfer = true;
        for about_you in [None, Some(seen)] {
            assert_eq!(decode_ballot(&encode_ballot(&ballot, about_you)).unwrap(), (ballot.clone(), about_you));
        }
        let voted = Voted { vote: a_vote(1), vote_granted: true, last_log_id: None };
        assert_eq!(decode_voted(&encode_voted(&voted)).unwrap(), voted);
        let transfer = Transfer::new(a_vote(1), 7, Some(at(1, 1)));
        assert_eq!(decode_transfer(&encode_transfer(&transfer)).unwrap(), transfer);
        let hello = Hello {
            cluster: "c".into(),
            node: "n".into(),
            client: "h:2".into(),
            to: Some(Target { log: u128::MAX, replica: 3 }),
        };
        assert_eq!(Hello::decode(&hello.encode()).unwrap(), hello);
        let adopt = Adopt { target: Target { log: 1, replica: 2 }, node: "n".into(), state: vec![1, 2] };
        assert_eq!(Adopt::decode(&adopt.encode()).unwrap(), adopt);
    }

    #[test]
    fn probe_answers_round_trip() {
        let member = GroupReplica {
            replica: ReplicaId(1),
            node: "a".into(),
            address: "h:1".into(),
            voter: true,
            unreachable: false,
        };
        let probed = Probed {
            node: "a".into(),
            address: "h:1".into(),
            nonce: 7,
            join: vec!["h:1".into(), "h:2".into()],
            expected: 3,
            sees: vec!["a".into(), "b".into()],
            log: Some(5),
            group: Group { epoch: Some(Epoch::new(3, 1)), leader: Some(ReplicaId(1)), replicas: vec![member] },
            available: true,
            level: Level(7),
        };
        let bytes = probed.encode_for(PROBE_WITH_LEVEL);
        assert_eq!(Probed::decode(&bytes).unwrap(), probed);
        // Earlier versions send an empty probe, and neither send nor read a level.
        let without = probed.encode_for(&[]);
        assert_eq!(without, bytes[..bytes.len() - 1]);
        assert_eq!(Probed::decode(&without).unwrap(), Probed { level: Level::FIRST, ..probed });
        for len in 0..without.len() {
            assert!(Probed::decode(&bytes[..len]).is_err(), "cut at {len}");
        }
    }

    #[test]
    fn fuzz_messages() {
        let seen = Seen { leader: LeaderId { term: 2, node_id: 1 }, matched: 9, committed: 8 };
        let extras = AppendExtras {
            seen: vec![(1, seen), (7, seen)],
            stalled: true,
            unreachable: [3, 9].into(),
            check: 5,
            ..AppendExtras::default()
        };
        let entries = vec![Entry { log_id: at(3, 5), payload: Payload::Blank }];
        let append = Append { vote: a_vote(3), prev_log_id: Some(at(1, 4)), entries, leader_commit: Some(at(1, 1)) };
        let to = Some(Target { log: u128::MAX, replica: 3 });
        let adopt = Adopt { target: Target { log: 1, replica: 2 }, node: "n".into(), state: vec![1, 2] };
        let corpus = [
            encode_append(&append, &extras),
            encode_appended(&Appended::PartialSuccess(Some(at(1, 2)))),
            encode_appended(&Appended::HigherVote(a_vote(9))),
            encode_ballot(&Ballot::new(a_vote(4), Some(at(2, 2))), Some(seen)),
            encode_voted(&Voted { vote: a_vote(1), vote_granted: true, last_log_id: Some(at(1, 7)) }),
            encode_transfer(&Transfer::new(a_vote(1), 7, Some(at(1, 1)))),
            Hello { cluster: "c".into(), node: "n".into(), client: "h:2".into(), to }.encode(),
            adopt.encode(),
        ];
        // A frame may arrive where another kind is expected.
        convoke_fuzz::bytes(&corpus, |bytes| {
            let _ = (Hello::decode(bytes), Adopt::decode(bytes), Probed::decode(bytes));
            let _ = (decode_append(bytes), decode_appended(bytes), decode_ballot(bytes), decode_voted(bytes));
            let _ = (decode_transfer(bytes), decode_transferred(bytes), decode_snapshot(bytes), decode_vote(bytes));
        });
    }
}
