//! The messages peers exchange.

use super::checks::decode_health;
use super::items::{decode_incarnation, decode_node_id, decode_origin, encode_incarnation, encode_origin};
use super::{
    ADDRESS_BYTES_MAX, COUNTER_MAX, CodecError, EvidenceItem, ID_BYTES_MAX, Items, ItemsWriter, MAX_CLAIM, MAX_DRAIN,
    MaintenanceItem, Reader, Writer,
};
use crate::member::{Health, OUTPUT_BYTES_MAX};
use crate::version::{Dot, Incarnation, NodeId, OriginId, VectorClock};
use convoke_base::{REVOCATION_KEY_BYTES_MAX, Revocation};
use std::collections::BTreeMap;
use std::fmt;

/// Maximum number of writes in a search.
const DOTS_MAX: u64 = 16;
/// Revocations in one frame. With keys of the largest size they fit into the smallest frame limit.
pub(crate) const REVOCATIONS_PER_FRAME: usize = 64;
/// A key of one byte and two numbers.
const REVOCATION_BYTES_MIN: usize = 4;
/// Fewest bytes of a dot: node id, incarnation, number.
const DOT_BYTES_MIN: usize = 11;

/// A context as sent (D1, D10): the received writes, and the origins whose further writes are ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Context {
    pub(crate) clock: VectorClock,
    pub(crate) retired: BTreeMap<NodeId, Incarnation>,
    /// Per origin, the write number up to which records were dropped without a write of that origin (D10).
    pub(crate) written_off: VectorClock,
    /// Highest claim of a collected record (D8).
    pub(crate) claim_floor: u64,
    /// Highest claim of a collected tombstone of an agentless member (AG5).
    pub(crate) agentless_floor: u64,
    /// For how much longer the sender reports no member as absent (N3).
    pub(crate) grace_ms: u64,
}

impl Context {
    pub(crate) fn is_retired(&self, origin: &OriginId) -> bool {
        self.retired.get(&origin.node).is_some_and(|highest| *highest >= origin.incarnation)
    }

    /// Lowers the marker of a node below an incarnation that is alive (D14).
    pub(crate) fn revive(&mut self, origin: &OriginId) {
        if self.is_retired(origin) {
            match self.retired.get_mut(&origin.node).zip(origin.incarnation.below()) {
                Some((marker, below)) => *marker = below,
                None => drop(self.retired.remove(&origin.node)),
            }
        }
    }

    pub(crate) fn covers(&self, origin: &OriginId, n: u64) -> bool {
        self.clock.covers(origin, n) || self.is_retired(origin)
    }

    pub(crate) fn encode(&self, writer: &mut Writer) {
        encode_clock(writer, &self.clock);
        writer.count(self.retired.len());
        for (node, incarnation) in &self.retired {
            writer.text(node.as_str());
            encode_incarnation(writer, *incarnation);
        }
        encode_clock(writer, &self.written_off);
        writer.varint(self.claim_floor);
        writer.varint(self.agentless_floor);
        writer.varint(self.grace_ms);
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, CodecError> {
        let clock = decode_clock(reader)?;
        let retired = (0..reader.count("retired", 10, u64::MAX)?)
            .map(|_| Ok((decode_node_id(reader)?, decode_incarnation(reader)?)))
            .collect::<Result<_, CodecError>>()?;
        let written_off = decode_clock(reader)?;
        let claim_floor = reader.bounded("claim floor", MAX_CLAIM)?;
        let agentless_floor = reader.bounded("agentless floor", MAX_CLAIM)?;
        let grace_ms = reader.bounded("grace", COUNTER_MAX)?;
        Ok(Context { clock, retired, written_off, claim_floor, agentless_floor, grace_ms })
    }
}

/// Identification of the sender (P2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) version: u32,
    pub(crate) cluster: String,
    pub(crate) origin: OriginId,
    pub(crate) region: String,
    pub(crate) peer_address: String,
    pub(crate) client_address: String,
    pub(crate) serving: bool,
    /// Highest known incarnation of the receiver's node id, if it differs from the receiver's.
    pub(crate) known_incarnation: Option<Incarnation>,
    /// Other nodes: id, region, peer address (P8).
    pub(crate) nodes: Vec<(NodeId, String, String)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ping {
    pub(crate) seq: u64,
    /// Highest sequence received from the other side.
    pub(crate) echo: u64,
    pub(crate) liveness_counter: u64,
    /// How many writes the sender has made (L3).
    pub(crate) written: u64,
    pub(crate) context_hash: u64,
    /// Digest of the contents; `None` if they are not comparable at the moment (D16).
    pub(crate) contents: Option<u64>,
    pub(crate) serving: bool,
    /// Attached sessions with a stream (N10).
    pub(crate) sessions: u64,
    /// Other regions this node has a link to (P9).
    pub(crate) regions: Vec<String>,
    /// Origins without a link, of which this node requests evidence.
    pub(crate) ask: Vec<OriginId>,
    /// The evidence that the other side requested.
    pub(crate) evidence: Vec<EvidenceItem>,
}

/// Part of a delta or full merge.
#[derive(Clone, Debug)]
pub(crate) struct Chunk<'a> {
    pub(crate) exchange: u64,
    pub(crate) index: u64,
    pub(crate) full: bool,
    pub(crate) items: Items<'a>,
    /// With the last chunk: the context that the receiver may join, and the floor to adopt after a full merge.
    pub(crate) end: Option<(Context, VectorClock)>,
    /// With the first chunk: the sender's context, if the receiver should send a delta back.
    pub(crate) reply: Option<Context>,
    /// With the first and the last chunk: the sender's evidence of every origin.
    pub(crate) evidence: Vec<EvidenceItem>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RejectReason {
    Cluster,
    Version,
    Identity,
    Oneself,
    Full,
    /// There is a working link already.
    Linked,
    /// Too many incarnations of this node id are tracked.
    Incarnations,
}

/// The reason as both sides can state it.
impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RejectReason::Cluster => "the cluster names differ",
            RejectReason::Version => "the protocol versions differ",
            RejectReason::Identity => "another process uses the node id",
            RejectReason::Oneself => "it is the same node",
            RejectReason::Full => "no room for another node",
            RejectReason::Linked => "there is a link already",
            RejectReason::Incarnations => "no room for another incarnation of the node",
        })
    }
}

/// The state of a node's link to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkState {
    Unknown,
    Up,
    Lost,
}

/// The code of [`RejectReason::Identity`] with the address of the other process (N4).
const IDENTITY_AT: u8 = 7;

/// A decoded peer message.
#[derive(Clone, Debug)]
pub(crate) enum Message<'a> {
    Hello(Hello),
    Welcome(Hello),
    /// `node` is the rejecting node. `address` is that of the other process, if the id is in use and the address is known.
    Reject {
        reason: RejectReason,
        node: NodeId,
        known_incarnation: Option<Incarnation>,
        address: String,
    },
    Ping(Ping),
    Push {
        origin: OriginId,
        from: u64,
        to: u64,
        /// The sender waits until a peer has these writes (C12).
        receipt: bool,
        items: Items<'a>,
        /// The sender's evidence of the other origins in the items (L2).
        evidence: Vec<EvidenceItem>,
    },
    /// Requests a delta (D7).
    Want {
        exchange: u64,
        context: Context,
        evidence: Vec<EvidenceItem>,
    },
    Chunk(Chunk<'a>),
    ChunkAck {
        exchange: u64,
        index: u64,
    },
    /// Its sender cannot finish this delta, or its receiver does not accept it.
    ChunkAbort {
        exchange: u64,
    },
    HealthQuery {
        query: u64,
        about: NodeId,
    },
    HealthReport {
        query: u64,
        about: NodeId,
        state: LinkState,
        evidence: Option<EvidenceItem>,
    },
    /// Asks the owner of a member to raise its drain mark (C7).
    Drain {
        id: &'a str,
        drain: u32,
        maintenance: Option<MaintenanceItem<'a>>,
    },
    /// Passes a report about a check to the owner of the member (HC4).
    CheckReport {
        id: &'a str,
        check: &'a str,
        status: Health,
        output: &'a str,
    },
    Goodbye {
        leaving: bool,
    },
    /// Asks whether the peer has these writes, or a link to their origins (C17).
    Search {
        query: u64,
        dots: Vec<Dot>,
    },
    SearchReport {
        query: u64,
        covered: bool,
        linked: bool,
    },
    /// The sender has all writes of the receiver up to this one (C12).
    Received {
        n: u64,
    },
    /// Revoked credentials that the receiver may not know (P11).
    Revoke(Vec<Revocation>),
}

impl Message<'_> {
    pub(crate) fn encode_push(
        origin: &OriginId,
        (from, to): (u64, u64),
        receipt: bool,
        items: &ItemsWriter,
        evidence: &[EvidenceItem],
    ) -> Vec<u8> {
        let mut w = Writer::default();
        w.byte(4);
        encode_origin(&mut w, origin);
        w.varint(from);
        w.varint(to);
        w.flag(receipt);
        items.finish(&mut w);
        encode_evidence(&mut w, evidence);
        w.into_bytes()
    }

    #[allow(clippy::too_many_arguments)]
    pub(crate) fn encode_chunk(
        exchange: u64,
        index: u64,
        full: bool,
        items: &ItemsWriter,
        end: Option<(&Context, &VectorClock)>,
        reply: Option<&Context>,
        evidence: &[EvidenceItem],
    ) -> Vec<u8> {
        let mut w = Writer::default();
        w.byte(6);
        w.varint(exchange);
        w.varint(index);
        w.flag(full);
        items.finish(&mut w);
        w.flag(end.is_some());
        if let Some((context, floor)) = end {
            context.encode(&mut w);
            encode_clock(&mut w, floor);
        }
        w.flag(reply.is_some());
        if let Some(context) = reply {
            context.encode(&mut w);
        }
        encode_evidence(&mut w, evidence);
        w.into_bytes()
    }

    /// Encodes every message except those that carry items.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        match self {
            Message::Hello(hello) => encode_hello(&mut w, 0, hello),
            Message::Welcome(hello) => encode_hello(&mut w, 1, hello),
            Message::Reject { reason, node, known_incarnation, address } => {
                w.byte(2);
                w.byte(if address.is_empty() { *reason as u8 } else { IDENTITY_AT });
                w.text(node.as_str());
                encode_known(&mut w, *known_incarnation);
                if !address.is_empty() {
                    w.text(address);
                }
            }
            Message::Ping(ping) => {
                w.byte(3);
                w.varint(ping.seq);
                w.varint(ping.echo);
                w.varint(ping.liveness_counter);
                w.varint(ping.written);
                w.fixed64(ping.context_hash);
                w.flag(ping.contents.is_some());
                ping.contents.into_iter().for_each(|digest| w.fixed64(digest));
                w.flag(ping.serving);
                w.varint(ping.sessions);
                w.count(ping.regions.len());
                for region in &ping.regions {
                    w.text(region);
                }
                w.count(ping.ask.len());
                for origin in &ping.ask {
                    encode_origin(&mut w, origin);
                }
                encode_evidence(&mut w, &ping.evidence);
            }
            Message::Want { exchange, context, evidence } => {
                w.byte(5);
                w.varint(*exchange);
                context.encode(&mut w);
                encode_evidence(&mut w, evidence);
            }
            Message::ChunkAck { exchange, index } => {
                w.byte(7);
                w.varint(*exchange);
                w.varint(*index);
            }
            Message::ChunkAbort { exchange } => {
                w.byte(8);
                w.varint(*exchange);
            }
            Message::HealthQuery { query, about } => {
                w.byte(9);
                w.varint(*query);
                w.text(about.as_str());
            }
            Message::HealthReport { query, about, state, evidence } => {
                w.byte(10);
                w.varint(*query);
                w.text(about.as_str());
                w.byte(*state as u8);
                encode_evidence(&mut w, evidence.as_slice());
            }
            Message::Drain { id, drain, maintenance } => {
                w.byte(11);
                w.text(id);
                w.varint(u64::from(*drain));
                w.flag(maintenance.is_some());
                if let Some(maintenance) = maintenance {
                    maintenance.encode(&mut w);
                }
            }
            Message::CheckReport { id, check, status, output } => {
                w.byte(17);
                w.text(id);
                w.text(check);
                w.byte(*status as u8);
                w.text(output);
            }
            Message::Revoke(revocations) => {
                w.byte(16);
                w.count(revocations.len());
                for revocation in revocations {
                    w.text(&revocation.key);
                    w.varint(revocation.issued_until);
                    w.varint(revocation.keep_until);
                }
            }
            Message::Search { query, dots } => {
                w.byte(13);
                w.varint(*query);
                w.count(dots.len());
                for dot in dots {
                    encode_origin(&mut w, &dot.origin);
                    w.varint(dot.n);
                }
            }
            Message::SearchReport { query, covered, linked } => {
                w.byte(14);
                w.varint(*query);
                w.flag(*covered);
                w.flag(*linked);
            }
            Message::Received { n } => {
                w.byte(15);
                w.varint(*n);
            }
            Message::Goodbye { leaving } => {
                w.byte(12);
                w.flag(*leaving);
            }
            Message::Push { .. } | Message::Chunk(_) => unreachable!("built by encode_push and encode_chunk"),
        }
        w.into_bytes()
    }
}

impl<'a> Message<'a> {
    pub(crate) fn decode(frame: &'a [u8]) -> Result<Message<'a>, CodecError> {
        let mut r = Reader::new(frame);
        let reader = &mut r;
        let message = match reader.byte("message type")? {
            0 => Message::Hello(decode_hello(reader)?),
            1 => Message::Welcome(decode_hello(reader)?),
            2 => {
                let code = reader.byte("reason")?;
                let reason = match code {
                    0 => RejectReason::Cluster,
                    1 => RejectReason::Version,
                    2 | IDENTITY_AT => RejectReason::Identity,
                    3 => RejectReason::Oneself,
                    4 => RejectReason::Full,
                    5 => RejectReason::Linked,
                    6 => RejectReason::Incarnations,
                    _ => return Err(CodecError::Invalid("reason")),
                };
                let (node, known_incarnation) = (decode_node_id(reader)?, decode_known(reader)?);
                let address = match code {
                    IDENTITY_AT => match reader.text("peer address", ADDRESS_BYTES_MAX)? {
                        "" => return Err(CodecError::Invalid("peer address")),
                        address => address.to_owned(),
                    },
                    _ => String::new(),
                };
                Message::Reject { reason, node, known_incarnation, address }
            }
            3 => Message::Ping(Ping {
                seq: reader.bounded("seq", COUNTER_MAX)?,
                echo: reader.bounded("echo", COUNTER_MAX)?,
                liveness_counter: reader.bounded("liveness counter", COUNTER_MAX)?,
                written: reader.bounded("written", COUNTER_MAX)?,
                context_hash: reader.fixed64("context hash")?,
                contents: match reader.flag("contents")? {
                    true => Some(reader.fixed64("contents")?),
                    false => None,
                },
                serving: reader.flag("serving")?,
                sessions: reader.bounded("sessions", COUNTER_MAX)?,
                regions: (0..reader.count("regions", 1, u64::MAX)?)
                    .map(|_| Ok(reader.text("region", ADDRESS_BYTES_MAX)?.to_owned()))
                    .collect::<Result<_, CodecError>>()?,
                ask: (0..reader.count("ask", 10, u64::MAX)?)
                    .map(|_| decode_origin(reader))
                    .collect::<Result<_, _>>()?,
                evidence: decode_evidence(reader)?,
            }),
            4 => {
                let origin = decode_origin(reader)?;
                let from = reader.bounded("from", COUNTER_MAX)?;
                let to = reader.bounded("to", COUNTER_MAX)?;
                if to < from {
                    return Err(CodecError::Invalid("to"));
                }
                let receipt = reader.flag("receipt")?;
                let items = Items::decode(reader)?;
                Message::Push { origin, from, to, receipt, items, evidence: decode_evidence(reader)? }
            }
            5 => Message::Want {
                exchange: reader.varint("exchange")?,
                context: Context::decode(reader)?,
                evidence: decode_evidence(reader)?,
            },
            6 => Message::Chunk(Chunk {
                exchange: reader.varint("exchange")?,
                index: reader.varint("index")?,
                full: reader.flag("full")?,
                items: Items::decode(reader)?,
                end: match reader.flag("end")? {
                    true => Some((Context::decode(reader)?, decode_clock(reader)?)),
                    false => None,
                },
                reply: match reader.flag("reply")? {
                    true => Some(Context::decode(reader)?),
                    false => None,
                },
                evidence: decode_evidence(reader)?,
            }),
            7 => Message::ChunkAck { exchange: reader.varint("exchange")?, index: reader.varint("index")? },
            8 => Message::ChunkAbort { exchange: reader.varint("exchange")? },
            9 => Message::HealthQuery { query: reader.varint("query")?, about: decode_node_id(reader)? },
            10 => {
                let query = reader.varint("query")?;
                let about = decode_node_id(reader)?;
                let state = match reader.byte("link state")? {
                    0 => LinkState::Unknown,
                    1 => LinkState::Up,
                    2 => LinkState::Lost,
                    _ => return Err(CodecError::Invalid("link state")),
                };
                let mut evidence = decode_evidence(reader)?;
                if evidence.len() > 1 {
                    return Err(CodecError::Invalid("evidence"));
                }
                Message::HealthReport { query, about, state, evidence: evidence.pop() }
            }
            11 => Message::Drain {
                id: reader.text("id", ID_BYTES_MAX)?,
                drain: reader.bounded("drain", u64::from(MAX_DRAIN))? as u32,
                maintenance: match reader.flag("maintenance")? {
                    true => Some(MaintenanceItem::decode(reader)?),
                    false => None,
                },
            },
            17 => Message::CheckReport {
                id: reader.text("id", ID_BYTES_MAX)?,
                check: reader.text("check", ID_BYTES_MAX)?,
                status: decode_health(reader)?,
                output: reader.text("output", OUTPUT_BYTES_MAX as u64)?,
            },
            12 => Message::Goodbye { leaving: reader.flag("leaving")? },
            13 => {
                let query = reader.varint("query")?;
                let count = reader.count("dots", DOT_BYTES_MIN, DOTS_MAX)?;
                let mut dots = Vec::with_capacity(count);
                for _ in 0..count {
                    dots.push(Dot { origin: decode_origin(reader)?, n: reader.bounded("n", COUNTER_MAX)? });
                }
                Message::Search { query, dots }
            }
            14 => Message::SearchReport {
                query: reader.varint("query")?,
                covered: reader.flag("covered")?,
                linked: reader.flag("linked")?,
            },
            16 => {
                let count = reader.count("revocations", REVOCATION_BYTES_MIN, REVOCATIONS_PER_FRAME as u64)?;
                let mut revocations = Vec::with_capacity(count);
                for _ in 0..count {
                    let key = reader.text("revocation", REVOCATION_KEY_BYTES_MAX)?;
                    if key.is_empty() {
                        return Err(CodecError::Invalid("revocation"));
                    }
                    revocations.push(Revocation {
                        key: key.to_owned(),
                        issued_until: reader.varint("issued until")?,
                        keep_until: reader.varint("keep until")?,
                    });
                }
                Message::Revoke(revocations)
            }
            15 => Message::Received { n: reader.bounded("n", COUNTER_MAX)? },
            other => return Err(CodecError::UnknownMessage(other)),
        };
        r.end()?;
        Ok(message)
    }
}

fn encode_hello(w: &mut Writer, tag: u8, hello: &Hello) {
    w.byte(tag);
    w.varint(u64::from(hello.version));
    w.text(&hello.cluster);
    encode_origin(w, &hello.origin);
    w.text(&hello.region);
    w.text(&hello.peer_address);
    w.text(&hello.client_address);
    w.flag(hello.serving);
    encode_known(w, hello.known_incarnation);
    w.count(hello.nodes.len());
    for (node, region, address) in &hello.nodes {
        w.text(node.as_str());
        w.text(region);
        w.text(address);
    }
}

fn decode_hello(reader: &mut Reader<'_>) -> Result<Hello, CodecError> {
    Ok(Hello {
        version: reader.bounded("version", u64::from(u32::MAX))? as u32,
        cluster: reader.text("cluster", ADDRESS_BYTES_MAX)?.to_owned(),
        origin: decode_origin(reader)?,
        region: reader.text("region", ADDRESS_BYTES_MAX)?.to_owned(),
        peer_address: reader.text("peer address", ADDRESS_BYTES_MAX)?.to_owned(),
        client_address: reader.text("client address", ADDRESS_BYTES_MAX)?.to_owned(),
        serving: reader.flag("serving")?,
        known_incarnation: decode_known(reader)?,
        nodes: (0..reader.count("nodes", 4, u64::MAX)?)
            .map(|_| {
                let node = decode_node_id(reader)?;
                let region = reader.text("region", ADDRESS_BYTES_MAX)?.to_owned();
                Ok((node, region, reader.text("peer address", ADDRESS_BYTES_MAX)?.to_owned()))
            })
            .collect::<Result<_, CodecError>>()?,
    })
}

fn encode_known(w: &mut Writer, known_incarnation: Option<Incarnation>) {
    w.flag(known_incarnation.is_some());
    if let Some(incarnation) = known_incarnation {
        encode_incarnation(w, incarnation);
    }
}

fn decode_known(reader: &mut Reader<'_>) -> Result<Option<Incarnation>, CodecError> {
    if reader.flag("known incarnation")? { decode_incarnation(reader).map(Some) } else { Ok(None) }
}

pub(crate) fn encode_clock(w: &mut Writer, clock: &VectorClock) {
    w.count(clock.len());
    for (origin, n) in clock.iter() {
        encode_origin(w, origin);
        w.varint(n);
    }
}

pub(crate) fn decode_clock(reader: &mut Reader<'_>) -> Result<VectorClock, CodecError> {
    (0..reader.count("clock", 11, u64::MAX)?)
        .map(|_| Ok((decode_origin(reader)?, reader.bounded("n", COUNTER_MAX)?)))
        .collect::<Result<_, _>>()
}

fn encode_evidence(w: &mut Writer, evidence: &[EvidenceItem]) {
    w.count(evidence.len());
    for item in evidence {
        encode_origin(w, &item.origin);
        w.varint(item.liveness_counter);
        w.varint(item.written);
        w.varint(item.age_ms);
    }
}

fn decode_evidence(reader: &mut Reader<'_>) -> Result<Vec<EvidenceItem>, CodecError> {
    (0..reader.count("evidence", 13, u64::MAX)?)
        .map(|_| {
            Ok(EvidenceItem {
                origin: decode_origin(reader)?,
                liveness_counter: reader.bounded("liveness counter", COUNTER_MAX)?,
                written: reader.bounded("written", COUNTER_MAX)?,
                age_ms: reader.bounded("age", COUNTER_MAX)?,
            })
        })
        .collect()
}
