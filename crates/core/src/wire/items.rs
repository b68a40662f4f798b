//! Records on the wire: a table of origins and clients, then the items that refer to it.

use super::checks::{decode_checks, decode_health, encode_checks};
use super::{COUNTER_MAX, CodecError, MAX_CLAIM, MAX_DRAIN, PAIRS_MAX, Reader, SEQ_MAX, TEXT_BYTES_MAX, Writer};
use crate::liveness::Inferred;
use crate::member::{
    Checks, ClientProcess, Health, LASTS_MAX, Maintenance, Metadata, Origin, Pairs, REASON_BYTES_MAX, Record,
    RecordKind, Space, Status,
};
use crate::time::{Clock, Duration, ReceivedAt};
use crate::version::{Incarnation, NodeId, OriginId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One item as read from a frame; strings borrow from it.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "one item is unpacked at a time, and none is kept")]
pub(crate) enum Item<'a> {
    Record(RecordItem<'a>),
    Inferred(InferredItem<'a>),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RecordItem<'a> {
    pub(crate) origin: &'a OriginId,
    pub(crate) n: u64,
    pub(crate) claim: u64,
    pub(crate) seq: u64,
    pub(crate) predecessor: (u32, u64),
    pub(crate) space: Space,
    pub(crate) kind: RecordKind,
    pub(crate) status: Status,
    pub(crate) health: Health,
    pub(crate) drain: u32,
    pub(crate) weight: u16,
    pub(crate) client: &'a str,
    pub(crate) nonce: u64,
    pub(crate) principal: &'a str,
    pub(crate) id: &'a str,
    pub(crate) service: &'a str,
    pub(crate) locality: &'a str,
    pub(crate) revision: &'a str,
    pub(crate) created: u64,
    pub(crate) since: u64,
    pub(crate) address: &'a str,
    pub(crate) endpoints: PairsItem<'a>,
    pub(crate) metadata: PairsItem<'a>,
    pub(crate) checks: Option<Arc<Checks>>,
    pub(crate) maintenance: Option<MaintenanceItem<'a>>,
    /// Age of the tombstone at the sender, if it is one.
    pub(crate) age: Duration,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct InferredItem<'a> {
    pub(crate) origin: &'a OriginId,
    pub(crate) n: u64,
    pub(crate) space: Space,
    pub(crate) id: &'a str,
    pub(crate) claim: u64,
    pub(crate) about: &'a OriginId,
    pub(crate) about_n: u64,
    pub(crate) liveness_counter: u64,
    /// Age of the tombstone at the sender, if it is one.
    pub(crate) age: Duration,
}

/// Reason and end of a drain (C21).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct MaintenanceItem<'a> {
    pub(crate) reason: &'a str,
    /// 0 if the drain does not end by itself.
    pub(crate) lasts_ms: u64,
    pub(crate) until: u64,
    /// Time since the beginning of the drain, as the sender knows it.
    pub(crate) age: Duration,
}

impl<'a> MaintenanceItem<'a> {
    pub(crate) fn of(maintenance: &'a Maintenance, clock: Clock) -> Self {
        let lasts_ms = maintenance.lasts.map_or(0, |lasts| lasts.as_millis() as u64);
        let (reason, until) = (maintenance.reason.as_str(), maintenance.until);
        MaintenanceItem { reason, lasts_ms, until, age: maintenance.age(clock) }
    }

    pub(crate) fn to_maintenance(self, clock: Clock) -> Maintenance {
        let lasts = (self.lasts_ms > 0).then(|| Duration::from_millis(self.lasts_ms));
        let begun = ReceivedAt::ago(clock, self.age);
        Maintenance { reason: self.reason.into(), lasts, until: self.until, begun }
    }

    pub(crate) fn encode(self, writer: &mut Writer) {
        writer.text(self.reason);
        writer.varint(self.lasts_ms);
        writer.varint(self.until);
        writer.varint(self.age.as_millis() as u64);
    }

    pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<Self, CodecError> {
        Ok(MaintenanceItem {
            reason: reader.text("reason", REASON_BYTES_MAX as u64)?,
            lasts_ms: reader.bounded("drain time", LASTS_MAX.as_millis() as u64)?,
            until: reader.varint("until")?,
            age: decode_age(reader)?,
        })
    }
}

/// String pairs still in wire form, checked to be sorted and unique.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PairsItem<'a> {
    count: u64,
    bytes: &'a [u8],
}

impl PairsItem<'_> {
    pub(crate) fn to_metadata(&self) -> Metadata {
        let mut reader = Reader::new(self.bytes);
        let mut text = move || reader.text("pair", TEXT_BYTES_MAX).expect("checked when the frame was decoded");
        Metadata::from_sorted((0..self.count).map(|_| {
            let key = text();
            (key, text())
        }))
    }
}

/// The sender's latest evidence of an origin (L2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EvidenceItem {
    pub(crate) origin: OriginId,
    pub(crate) liveness_counter: u64,
    /// How many writes the origin had made by then.
    pub(crate) written: u64,
    pub(crate) age_ms: u64,
}

/// The items of a frame, checked but not yet unpacked.
#[derive(Clone, Debug)]
pub(crate) struct Items<'a> {
    origins: Vec<OriginId>,
    clients: Vec<ClientItem<'a>>,
    count: usize,
    body: Reader<'a>,
}

impl<'a> Items<'a> {
    pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<Self, CodecError> {
        let origins = (0..reader.count("origins", 10, u64::MAX)?)
            .map(|_| decode_origin(reader))
            .collect::<Result<Vec<_>, _>>()?;
        let clients = (0..reader.count("clients", 9, u64::MAX)?)
            .map(|_| decode_client(reader))
            .collect::<Result<Vec<_>, CodecError>>()?;
        let count = reader.count("items", 8, u64::MAX)?;
        let body = *reader;
        for _ in 0..count {
            decode_item(reader, &origins, &clients)?;
        }
        Ok(Items { origins, clients, count, body })
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// The origins that the items refer to.
    pub(crate) fn origins(&self) -> &[OriginId] {
        &self.origins
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Item<'_>> {
        let mut body = self.body;
        (0..self.count).map(move |_| {
            decode_item(&mut body, &self.origins, &self.clients).expect("checked when the frame was decoded")
        })
    }
}

/// A client process in the table of a frame.
#[derive(Clone, Copy, Debug)]
struct ClientItem<'a> {
    client: &'a str,
    principal: &'a str,
    nonce: u64,
}

/// Separates a client id from its principal. Neither contains it, and nodes without access control write none.
const PRINCIPAL: char = '\n';

fn decode_client<'f>(reader: &mut Reader<'f>) -> Result<ClientItem<'f>, CodecError> {
    let text = reader.text("client", TEXT_BYTES_MAX)?;
    let (client, principal) = text.split_once(PRINCIPAL).unwrap_or((text, ""));
    Ok(ClientItem { client, principal, nonce: reader.fixed64("nonce")? })
}

fn encode_client(writer: &mut Writer, client: &ClientProcess) {
    if client.principal.is_empty() {
        writer.text(&client.id);
    } else {
        writer.text(&format!("{}{PRINCIPAL}{}", client.id, client.principal));
    }
    writer.fixed64(client.nonce);
}

fn space(tag: u8) -> Space {
    if tag & RECORD_NAME == 0 { Space::Member } else { Space::Name }
}

fn decode_item<'f: 'i, 'i>(
    reader: &mut Reader<'f>,
    origins: &'i [OriginId],
    clients: &[ClientItem<'f>],
) -> Result<Item<'i>, CodecError> {
    let tag = reader.byte("item")?;
    let origin = origin_at(reader, origins)?;
    let n = reader.bounded("n", COUNTER_MAX)?;
    if n == 0 {
        return Err(CodecError::Invalid("n"));
    }
    let id = reader.text("id", TEXT_BYTES_MAX)?;
    if id.is_empty() {
        return Err(CodecError::Invalid("id"));
    }
    let claim = reader.bounded("claim", MAX_CLAIM)?;
    if tag & !RECORD_NAME == INFERRED {
        let about = origin_at(reader, origins)?;
        let about_n = reader.bounded("n", COUNTER_MAX)?;
        let liveness_counter = reader.bounded("liveness counter", COUNTER_MAX)?;
        let age = decode_age(reader)?;
        return Ok(Item::Inferred(InferredItem {
            origin,
            n,
            space: space(tag),
            id,
            claim,
            about,
            about_n,
            liveness_counter,
            age,
        }));
    }
    if tag & !(RECORD_NAME | RECORD_LEFT | RECORD_DOWN | RECORD_CHECKED | RECORD_MAINTENANCE) != RECORD {
        return Err(CodecError::Invalid("item"));
    }
    let seq = reader.bounded("seq", SEQ_MAX)?;
    let predecessor = (reader.fixed32("predecessor")?, reader.bounded("predecessor", COUNTER_MAX)?);
    let drain = reader.bounded("drain", u64::from(MAX_DRAIN))? as u32;
    let weight = reader.bounded("weight", u64::from(u16::MAX))? as u16;
    let at = reader.bounded("client", u64::MAX)? as usize;
    let &ClientItem { client, principal, nonce } = clients.get(at).ok_or(CodecError::Invalid("client"))?;
    let (kind, is_checked) = (kind(tag), tag & RECORD_CHECKED != 0);
    let mut record = RecordItem {
        origin,
        n,
        claim,
        seq,
        predecessor,
        space: space(tag),
        kind,
        status: if tag & RECORD_DOWN == 0 { Status::Up } else { Status::Down },
        health: Health::Passing,
        drain,
        weight,
        client,
        nonce,
        principal,
        id,
        service: reader.text("service", TEXT_BYTES_MAX)?,
        locality: reader.text("locality", TEXT_BYTES_MAX)?,
        revision: reader.text("revision", TEXT_BYTES_MAX)?,
        created: reader.varint("created")?,
        since: reader.varint("since")?,
        address: reader.text("address", TEXT_BYTES_MAX)?,
        endpoints: decode_pairs(reader)?,
        metadata: decode_pairs(reader)?,
        checks: None,
        maintenance: None,
        age: Duration::ZERO,
    };
    // A live record has its checks here, a tombstone the health that ended the member.
    match kind {
        RecordKind::Live if is_checked => {
            let checks = decode_checks(reader)?;
            record.health = checks.health();
            record.checks = Some(checks);
        }
        RecordKind::Left if is_checked => record.health = decode_health(reader)?,
        RecordKind::Live | RecordKind::Left => {}
    }
    if tag & RECORD_MAINTENANCE != 0 {
        record.maintenance = Some(MaintenanceItem::decode(reader)?);
    }
    if kind == RecordKind::Left {
        record.age = decode_age(reader)?;
    }
    Ok(Item::Record(record))
}

fn kind(tag: u8) -> RecordKind {
    if tag & RECORD_LEFT == 0 { RecordKind::Live } else { RecordKind::Left }
}

fn origin_at<'a>(reader: &mut Reader<'_>, origins: &'a [OriginId]) -> Result<&'a OriginId, CodecError> {
    let at = reader.varint("origin")? as usize;
    origins.get(at).ok_or(CodecError::Invalid("origin"))
}

fn decode_age(reader: &mut Reader<'_>) -> Result<Duration, CodecError> {
    Ok(Duration::from_millis(reader.bounded("age", COUNTER_MAX)?))
}

fn decode_pairs<'a>(reader: &mut Reader<'a>) -> Result<PairsItem<'a>, CodecError> {
    let count = reader.bounded("pairs", PAIRS_MAX)?;
    let mut walk = *reader;
    let mut previous: Option<&str> = None;
    for _ in 0..count {
        let key = walk.text("pair", TEXT_BYTES_MAX)?;
        if previous.is_some_and(|previous| previous >= key) {
            return Err(CodecError::Invalid("pair"));
        }
        previous = Some(key);
        walk.text("pair", TEXT_BYTES_MAX)?;
    }
    let bytes = reader.raw("pairs", reader.len() - walk.len())?;
    Ok(PairsItem { count, bytes })
}

pub(crate) fn decode_origin(reader: &mut Reader<'_>) -> Result<OriginId, CodecError> {
    let node = decode_node_id(reader)?;
    let incarnation = decode_incarnation(reader)?;
    Ok(OriginId { node, incarnation })
}

pub(crate) fn decode_node_id(reader: &mut Reader<'_>) -> Result<NodeId, CodecError> {
    NodeId::new(reader.text("node id", NodeId::MAX_BYTES as u64)?).map_err(|_| CodecError::Invalid("node id"))
}

pub(crate) fn decode_incarnation(reader: &mut Reader<'_>) -> Result<Incarnation, CodecError> {
    Ok(Incarnation { number: reader.bounded("incarnation", COUNTER_MAX)?, nonce: reader.fixed64("nonce")? })
}

pub(crate) fn encode_origin(writer: &mut Writer, origin: &OriginId) {
    writer.text(origin.node.as_str());
    encode_incarnation(writer, origin.incarnation);
}

pub(crate) fn encode_incarnation(writer: &mut Writer, incarnation: Incarnation) {
    writer.varint(incarnation.number);
    writer.fixed64(incarnation.nonce);
}

const RECORD: u8 = 0b1000;
const RECORD_NAME: u8 = 0b0001;
const RECORD_LEFT: u8 = 0b0010;
const RECORD_DOWN: u8 = 0b0100;
const INFERRED: u8 = 0b1_0000;
/// The record has checks, or its health is not passing.
const RECORD_CHECKED: u8 = 0b10_0000;
const RECORD_MAINTENANCE: u8 = 0b100_0000;

/// Collects items for one frame.
#[derive(Debug, Default)]
pub(crate) struct ItemsWriter {
    /// For the ages that records contain.
    clock: Clock,
    origins: Vec<OriginId>,
    origin_at: BTreeMap<OriginId, u64>,
    clients: Vec<Arc<ClientProcess>>,
    /// By address: clients are interned, and those in `clients` cannot move.
    client_at: BTreeMap<usize, u64>,
    count: usize,
    body: Writer,
}

impl ItemsWriter {
    pub(crate) fn at(clock: Clock) -> Self {
        ItemsWriter { clock, ..ItemsWriter::default() }
    }

    /// Bytes so far, without the tables.
    pub(crate) fn len(&self) -> usize {
        self.body.len()
    }

    /// The origins that the items refer to.
    pub(crate) fn origins(&self) -> &[OriginId] {
        &self.origins
    }

    /// Adds a record; `age` is only sent for tombstones.
    pub(crate) fn record(&mut self, record: &Record, age: Duration) {
        let mut tag = RECORD;
        if record.space == Space::Name {
            tag |= RECORD_NAME;
        }
        if record.kind == RecordKind::Left {
            tag |= RECORD_LEFT;
        }
        if record.status == Status::Down {
            tag |= RECORD_DOWN;
        }
        let is_checked = record.checks.is_some() || record.kind == RecordKind::Left && record.health != Health::Passing;
        if is_checked {
            tag |= RECORD_CHECKED;
        }
        if record.maintenance.is_some() {
            tag |= RECORD_MAINTENANCE;
        }
        self.head(tag, &record.origin, record.n, &record.id, record.claim);
        let client = self.client(&record.client);
        let body = &mut self.body;
        body.varint(record.seq);
        body.fixed32(record.predecessor.0);
        body.varint(record.predecessor.1);
        body.varint(u64::from(record.drain));
        body.varint(u64::from(record.weight));
        body.varint(client);
        body.text(&record.deployment.service);
        body.text(&record.deployment.locality);
        body.text(&record.deployment.revision);
        body.varint(record.created);
        body.varint(record.since);
        body.text(&record.address);
        encode_pairs(body, record.endpoints.iter());
        encode_pairs(body, record.metadata.iter());
        match (&record.checks, record.kind) {
            (Some(checks), RecordKind::Live) => encode_checks(body, checks),
            (_, RecordKind::Left) if is_checked => body.byte(record.health as u8),
            _ => {}
        }
        if let Some(maintenance) = &record.maintenance {
            MaintenanceItem::of(maintenance, self.clock).encode(body);
        }
        if record.kind == RecordKind::Left {
            body.varint(age.as_millis() as u64);
        }
    }

    pub(crate) fn inferred(&mut self, space: Space, id: &str, inferred: &Inferred, age: Duration) {
        let tag = if space == Space::Name { INFERRED | RECORD_NAME } else { INFERRED };
        self.head(tag, &inferred.origin, inferred.n, id, inferred.claim);
        let about = self.origin(&inferred.about.id);
        self.body.varint(about);
        self.body.varint(inferred.about_n);
        self.body.varint(inferred.liveness_counter);
        self.body.varint(age.as_millis() as u64);
    }

    fn head(&mut self, tag: u8, origin: &Origin, n: u64, id: &str, claim: u64) {
        let at = self.origin(&origin.id);
        self.count += 1;
        self.body.byte(tag);
        self.body.varint(at);
        self.body.varint(n);
        self.body.text(id);
        self.body.varint(claim);
    }

    fn origin(&mut self, origin: &OriginId) -> u64 {
        // Most frames contain one origin only.
        if self.origins.last() == Some(origin) {
            return self.origins.len() as u64 - 1;
        }
        if let Some(at) = self.origin_at.get(origin) {
            return *at;
        }
        let at = self.origins.len() as u64;
        self.origins.push(origin.clone());
        self.origin_at.insert(origin.clone(), at);
        at
    }

    fn client(&mut self, client: &Arc<ClientProcess>) -> u64 {
        if self.clients.last().is_some_and(|last| Arc::ptr_eq(last, client)) {
            return self.clients.len() as u64 - 1;
        }
        let next = self.clients.len() as u64;
        let at = *self.client_at.entry(Arc::as_ptr(client) as usize).or_insert(next);
        if at == next {
            self.clients.push(client.clone());
        }
        at
    }

    pub(crate) fn finish(&self, writer: &mut Writer) {
        writer.count(self.origins.len());
        for origin in &self.origins {
            encode_origin(writer, origin);
        }
        writer.count(self.clients.len());
        for client in &self.clients {
            encode_client(writer, client);
        }
        writer.count(self.count);
        writer.raw(self.body.bytes());
    }
}

fn encode_pairs(writer: &mut Writer, pairs: Pairs<'_>) {
    writer.count(pairs.clone().count());
    for (key, value) in pairs {
        writer.text(key);
        writer.text(value);
    }
}
