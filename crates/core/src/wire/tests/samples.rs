//! Messages with arbitrary content within the bounds of the format.

use crate::liveness::Inferred;
use crate::member::{
    Check, CheckResult, Checks, ClientProcess, Deployment, Health, HttpProbe, LASTS_MAX, Metadata, Origin, Probe,
    ProbeTls, Record, RecordKind, Space, Status, health_of,
};
use crate::time::{Clock, Duration};
use crate::version::{Dot, Incarnation, NodeId, OriginId, VectorClock};
use crate::wire::*;
use convoke_base::Revocation;
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use smol_str::SmolStr;
use std::sync::Arc;

/// A message in owned form, to be compared with the decoded one.
#[derive(Clone, Debug)]
pub(super) enum Sample {
    Plain(Plain),
    Push {
        origin: OriginId,
        from: u64,
        to: u64,
        contents: Vec<Content>,
        evidence: Vec<EvidenceItem>,
    },
    Chunk {
        exchange: u64,
        index: u64,
        full: bool,
        contents: Vec<Content>,
        end: Option<(Context, VectorClock)>,
        reply: Option<Context>,
        evidence: Vec<EvidenceItem>,
    },
}

/// Messages without items.
#[derive(Clone, Debug)]
pub(super) enum Plain {
    Hello(Hello),
    Welcome(Hello),
    Reject(RejectReason, Option<Incarnation>, String),
    Ping(Ping),
    Want(u64, Context, Vec<EvidenceItem>),
    ChunkAck(u64, u64),
    ChunkAbort(u64),
    HealthQuery(u64, NodeId),
    HealthReport(u64, NodeId, LinkState, Option<EvidenceItem>),
    Drain(String, u32),
    CheckReport(String, Health),
    /// Reason, time, end and age in ms.
    Maintenance(String, u32, (String, u64, u64, u64)),
    Goodbye(bool),
    Search(u64, Vec<Dot>),
    SearchReport(u64, bool, bool),
    Received(u64),
    Revoke(Vec<(String, u64, u64)>),
}

#[derive(Clone, Debug)]
pub(super) enum Content {
    Stated(Box<Record>),
    Inferred(String, Box<Inferred>),
}

impl Plain {
    pub(super) fn message(&self) -> Message<'_> {
        match self.clone() {
            Plain::Hello(hello) => Message::Hello(hello),
            Plain::Welcome(hello) => Message::Welcome(hello),
            Plain::Reject(reason, known_incarnation, address) => {
                Message::Reject { reason, node: node("r"), known_incarnation, address }
            }
            Plain::Ping(ping) => Message::Ping(ping),
            Plain::Want(exchange, context, evidence) => Message::Want { exchange, context, evidence },
            Plain::ChunkAck(exchange, index) => Message::ChunkAck { exchange, index },
            Plain::ChunkAbort(exchange) => Message::ChunkAbort { exchange },
            Plain::HealthQuery(query, about) => Message::HealthQuery { query, about },
            Plain::HealthReport(query, about, state, evidence) => {
                Message::HealthReport { query, about, state, evidence }
            }
            Plain::Drain(_, drain) => {
                let Plain::Drain(id, _) = self else { unreachable!("matched above") };
                Message::Drain { id, drain, maintenance: None }
            }
            Plain::Maintenance(_, drain, _) => {
                let Plain::Maintenance(id, _, parts) = self else { unreachable!("matched above") };
                Message::Drain { id, drain, maintenance: Some(maintenance(parts)) }
            }
            Plain::CheckReport(_, status) => {
                let Plain::CheckReport(id, _) = self else { unreachable!("matched above") };
                Message::CheckReport { id, check: "c", status, output: "fine" }
            }
            Plain::Goodbye(leaving) => Message::Goodbye { leaving },
            Plain::Search(query, dots) => Message::Search { query, dots },
            Plain::SearchReport(query, covered, linked) => Message::SearchReport { query, covered, linked },
            Plain::Received(n) => Message::Received { n },
            Plain::Revoke(entries) => Message::Revoke(revocations(&entries)),
        }
    }
}

impl Sample {
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Sample::Plain(plain) => plain.message().encode(),
            Sample::Push { origin, from, to, contents, evidence } => {
                Message::encode_push(origin, (*from, *to), *to % 2 == 0, &written(contents), evidence)
            }
            Sample::Chunk { exchange, index, full, contents, end, reply, evidence } => {
                let end = end.as_ref().map(|(context, floor)| (context, floor));
                Message::encode_chunk(*exchange, *index, *full, &written(contents), end, reply.as_ref(), evidence)
            }
        }
    }
}

pub(super) fn written(contents: &[Content]) -> ItemsWriter {
    let mut items = ItemsWriter::default();
    for content in contents {
        match content {
            Content::Stated(record) => items.record(record, age_of(record)),
            Content::Inferred(id, inferred) => items.inferred(space_of(id), id, inferred, age_of_inferred(inferred)),
        }
    }
    items
}

/// Only tombstones have an age; here it follows from another number of the record.
pub(super) fn age_of(record: &Record) -> Duration {
    let ms = if record.kind == RecordKind::Left { record.since.min(COUNTER_MAX) } else { 0 };
    Duration::from_millis(ms)
}

/// Inferred samples are about names where the id has an even length.
pub(super) fn revocations(entries: &[(String, u64, u64)]) -> Vec<Revocation> {
    let revocation = |(key, issued_until, keep_until): &(String, u64, u64)| Revocation {
        key: key.clone(),
        issued_until: *issued_until,
        keep_until: *keep_until,
    };
    entries.iter().map(revocation).collect()
}

pub(super) fn space_of(id: &str) -> Space {
    if id.len().is_multiple_of(2) { Space::Name } else { Space::Member }
}

pub(super) fn age_of_inferred(inferred: &Inferred) -> Duration {
    Duration::from_millis(inferred.about_n)
}

pub(super) fn node(name: &str) -> NodeId {
    NodeId::new(name).unwrap()
}

pub(super) fn origin(name: &str) -> OriginId {
    OriginId { node: node(name), incarnation: Incarnation { number: 1, nonce: 0x0102_0304_0506_0708 } }
}

/// Index and tag are local to a node and are not sent.
fn known(id: OriginId) -> Arc<Origin> {
    Arc::new(Origin { id, index: 0, tag: 0 })
}

pub(super) fn deployment(service: &str, locality: &str, revision: &str) -> Arc<Deployment> {
    Arc::new(Deployment { service: service.into(), locality: locality.into(), revision: revision.into() })
}

pub(super) fn maintenance((reason, lasts_ms, until, age): &(String, u64, u64, u64)) -> MaintenanceItem<'_> {
    MaintenanceItem { reason, lasts_ms: *lasts_ms, until: *until, age: Duration::from_millis(*age) }
}

/// A plain live member of client `client` (nonce 7), written first by origin `a`.
pub(super) fn record(id: &str) -> Record {
    Record {
        id: SmolStr::new(id),
        origin: known(origin("a")),
        slot: 0,
        drain: 0,
        space: Space::Member,
        kind: RecordKind::Live,
        status: Status::Up,
        health: Health::Passing,
        weight: 0,
        n: 1,
        claim: 1,
        seq: 1,
        predecessor: (0, 0),
        client: Arc::new(ClientProcess { id: SmolStr::new("client"), nonce: 7, principal: SmolStr::default() }),
        deployment: deployment("s", "", ""),
        created: 0,
        since: 0,
        address: SmolStr::default(),
        endpoints: Metadata::default(),
        metadata: Metadata::default(),
        checks: None,
        maintenance: None,
    }
}

pub(super) fn inferred() -> Inferred {
    Inferred {
        origin: known(origin("b")),
        n: 2,
        claim: 1,
        about: known(origin("a")),
        about_n: 1,
        liveness_counter: 9,
        marked: false,
    }
}

/// The body of [`record`] without its tables, in the order of the format.
pub(super) fn record_body(record: &Record) -> Vec<u8> {
    let mut w = Writer::default();
    w.byte(0b1000);
    w.varint(0);
    w.varint(record.n);
    w.text(&record.id);
    w.varint(record.claim);
    w.varint(record.seq);
    w.fixed32(record.predecessor.0);
    w.varint(record.predecessor.1);
    w.varint(u64::from(record.drain));
    w.varint(u64::from(record.weight));
    w.varint(0);
    w.text(&record.deployment.service);
    w.text(&record.deployment.locality);
    w.text(&record.deployment.revision);
    w.varint(record.created);
    w.varint(record.since);
    w.text(&record.address);
    w.count(0);
    w.count(0);
    w.into_bytes()
}

/// Numbers up to a bound, the edges of the varint lengths and of the bound among them.
fn up_to(bound: u64) -> impl Strategy<Value = u64> {
    prop_oneof![
        0..=1u64.min(bound),
        Just(bound),
        (0..64u32).prop_map(move |shift| (1u64 << shift).min(bound)),
        0..=bound,
    ]
}

fn counter() -> impl Strategy<Value = u64> {
    up_to(COUNTER_MAX)
}

fn node_id() -> impl Strategy<Value = NodeId> {
    "[a-zA-Z0-9._-]{1,64}".prop_map(|text| NodeId::new(&text).unwrap())
}

fn incarnation() -> impl Strategy<Value = Incarnation> {
    (counter(), any::<u64>()).prop_map(|(number, nonce)| Incarnation { number, nonce })
}

fn origin_id() -> impl Strategy<Value = OriginId> {
    (node_id(), incarnation()).prop_map(|(node, incarnation)| OriginId { node, incarnation })
}

fn clock() -> impl Strategy<Value = VectorClock> {
    vec((origin_id(), 1..=COUNTER_MAX), 0..4).prop_map(|entries| entries.into_iter().collect())
}

pub(super) fn context() -> impl Strategy<Value = Context> {
    (clock(), btree_map(node_id(), incarnation(), 0..3), clock(), up_to(MAX_CLAIM), up_to(MAX_CLAIM), counter())
        .prop_map(|(clock, retired, written_off, claim_floor, agentless_floor, grace_ms)| Context {
            clock,
            retired,
            written_off,
            claim_floor,
            agentless_floor,
            grace_ms,
        })
}

fn evidence() -> impl Strategy<Value = EvidenceItem> {
    (origin_id(), counter(), counter(), counter()).prop_map(|(origin, liveness_counter, written, age_ms)| {
        EvidenceItem { origin, liveness_counter, written, age_ms }
    })
}

fn hello() -> impl Strategy<Value = Hello> {
    let texts = (".{0,20}", ".{0,10}", ".{0,30}", ".{0,30}");
    let nodes = vec((node_id(), ".{0,8}", ".{0,20}"), 0..4);
    (any::<u32>(), texts, origin_id(), any::<bool>(), option::of(incarnation()), nodes).prop_map(
        |(version, (cluster, region, peer_address, client_address), origin, serving, known_incarnation, nodes)| Hello {
            version,
            cluster,
            origin,
            region,
            peer_address,
            client_address,
            serving,
            known_incarnation,
            nodes,
        },
    )
}

fn ping() -> impl Strategy<Value = Ping> {
    let lists = (vec(".{0,8}", 0..3), vec(origin_id(), 0..4), vec(evidence(), 0..4));
    let hashes = (any::<u64>(), option::of(any::<u64>()));
    (counter(), counter(), counter(), counter(), hashes, (any::<bool>(), counter()), lists).prop_map(
        |(seq, echo, liveness_counter, written, (context_hash, contents), (serving, sessions), lists)| Ping {
            seq,
            echo,
            liveness_counter,
            written,
            context_hash,
            contents,
            serving,
            sessions,
            regions: lists.0,
            ask: lists.1,
            evidence: lists.2,
        },
    )
}

fn pairs() -> impl Strategy<Value = Metadata> {
    btree_map(".{0,6}", ".{0,200}", 0..4).prop_map(|map| Metadata::from_map(&map))
}

fn health() -> impl Strategy<Value = Health> {
    (0..Health::ALL.len()).prop_map(|at| Health::ALL[at])
}

/// Checks of each kind, and the health that ended a member.
fn checks() -> impl Strategy<Value = (Option<Arc<Checks>>, Health)> {
    let tls = || ProbeTls { server_name: "n".into(), skip_verify: true };
    let http = HttpProbe {
        url: "https://h/".into(),
        method: "HEAD".into(),
        headers: [("a".to_owned(), "b".to_owned())].into(),
        body: "x".into(),
        expected_status: vec![(200, 204), (404, 404)],
        body_contains: "ok".into(),
        tls: tls(),
    };
    let grpc = |tls| Probe::Grpc { address: "h:1".into(), service: "s".into(), tls };
    let probe = prop_oneof![
        Just(Probe::Http(Box::new(http))),
        Just(Probe::Tcp { address: "h:2".into() }),
        Just(grpc(None)),
        Just(grpc(Some(tls()))),
        (1..u64::MAX).prop_map(|ttl_ms| Probe::Ttl { ttl_ms }),
    ];
    let result = (health(), ".{0,50}", any::<u64>());
    let check = (".{1,9}", probe, counter(), result).prop_map(|(id, probe, time, (status, output, since))| {
        let times = Check { interval_ms: time, timeout_ms: time / 2, initial_delay_ms: 3, ..Check::new(id, probe) };
        let check = Check { deregister_critical_after_ms: time, failures_before_critical: 3, initial: status, ..times };
        (check, CheckResult::new(status, &output, since))
    });
    (vec(check, 0..4), health()).prop_map(|(checks, ended_by)| {
        let (definitions, results): (Vec<Check>, Vec<CheckResult>) = checks.into_iter().unzip();
        (Checks::new(definitions.into(), results), ended_by)
    })
}

fn maintenance_parts() -> impl Strategy<Value = (String, u64, u64, u64)> {
    (".{0,20}", 0..=LASTS_MAX.as_millis() as u64, any::<u64>(), 0..1_000_000_u64)
}

fn stated() -> impl Strategy<Value = Record> {
    let marks = (any::<bool>(), any::<bool>(), any::<bool>(), any::<u16>(), 0..=u32::MAX / 2);
    let numbers = (1..=COUNTER_MAX, up_to(MAX_CLAIM), counter(), any::<u32>(), counter(), any::<u64>(), any::<u64>());
    let client = (".{0,20}", any::<u64>());
    let texts = (".{1,30}", ".{0,10}", ".{0,10}", ".{0,10}", ".{0,20}");
    let drained = option::of(maintenance_parts());
    (marks, origin_id(), numbers, client, texts, (pairs(), pairs()), checks(), drained).prop_map(
        |(marks, origin, numbers, (client, nonce), texts, (endpoints, metadata), (checks, ended_by), drained)| {
            // The clock of the tests is at zero: a record cannot have an age.
            let drained = drained.map(|(reason, lasts, until, _)| (reason, lasts, until, 0));
            let held = drained.as_ref().map(|parts| maintenance(parts).to_maintenance(Clock::default()));
            let (name, left, down, weight, drain) = marks;
            let (n, claim, seq, tag, before, created, since) = numbers;
            let (id, service, locality, revision, address) = texts;
            Record {
                id: SmolStr::new(id),
                origin: known(origin),
                slot: 0,
                drain,
                space: if name { Space::Name } else { Space::Member },
                kind: if left { RecordKind::Left } else { RecordKind::Live },
                status: if down { Status::Down } else { Status::Up },
                weight,
                n,
                claim,
                seq,
                predecessor: (tag, before),
                client: Arc::new(ClientProcess { id: SmolStr::new(client), nonce, principal: SmolStr::default() }),
                deployment: deployment(&service, &locality, &revision),
                created,
                since,
                address: SmolStr::new(address),
                endpoints,
                metadata,
                health: if left { ended_by } else { health_of(checks.as_ref()) },
                checks: checks.filter(|_| !left),
                maintenance: held.map(Arc::new),
            }
        },
    )
}

fn inferred_of(origins: (OriginId, OriginId), numbers: (u64, u64, u64, u64)) -> Inferred {
    let (n, claim, about_n, liveness_counter) = numbers;
    Inferred { origin: known(origins.0), n, claim, about: known(origins.1), about_n, liveness_counter, marked: false }
}

fn content() -> impl Strategy<Value = Content> {
    let numbers = (1..=COUNTER_MAX, up_to(MAX_CLAIM), counter(), counter());
    let inferred = ((origin_id(), origin_id()), numbers).prop_map(|(origins, numbers)| inferred_of(origins, numbers));
    prop_oneof![
        3 => stated().prop_map(|record| Content::Stated(Box::new(record))),
        1 => (".{1,30}", inferred).prop_map(|(id, inferred)| Content::Inferred(id, Box::new(inferred))),
    ]
}

/// Items of several origins and clients, some of them mentioned more than once, as in real frames.
pub(super) fn contents() -> impl Strategy<Value = Vec<Content>> {
    (vec(content(), 0..5), vec(any::<prop::sample::Index>(), 0..3)).prop_map(|(mut contents, again)| {
        let repeated: Vec<Content> =
            again.iter().filter(|_| !contents.is_empty()).map(|at| at.get(&contents).clone()).collect();
        contents.extend(repeated);
        contents
    })
}

pub(super) fn plain() -> impl Strategy<Value = Plain> {
    let reasons = [
        RejectReason::Cluster,
        RejectReason::Version,
        RejectReason::Identity,
        RejectReason::Oneself,
        RejectReason::Full,
    ];
    let states = [LinkState::Unknown, LinkState::Up, LinkState::Lost];
    prop_oneof![
        hello().prop_map(Plain::Hello),
        hello().prop_map(Plain::Welcome),
        (prop::sample::select(reasons.to_vec()), option::of(incarnation()))
            .prop_map(|(reason, known_incarnation)| Plain::Reject(reason, known_incarnation, String::new())),
        (option::of(incarnation()), "[a-z.]{1,20}:[0-9]{1,5}").prop_map(|(known_incarnation, address)| {
            Plain::Reject(RejectReason::Identity, known_incarnation, address)
        }),
        ping().prop_map(Plain::Ping),
        (any::<u64>(), context(), vec(evidence(), 0..4)).prop_map(|(e, c, v)| Plain::Want(e, c, v)),
        (any::<u64>(), any::<u64>()).prop_map(|(exchange, index)| Plain::ChunkAck(exchange, index)),
        any::<u64>().prop_map(Plain::ChunkAbort),
        (any::<u64>(), node_id()).prop_map(|(query, about)| Plain::HealthQuery(query, about)),
        (any::<u64>(), node_id(), prop::sample::select(states.to_vec()), option::of(evidence()))
            .prop_map(|(query, about, state, evidence)| Plain::HealthReport(query, about, state, evidence)),
        (".{0,40}", health()).prop_map(|(id, status)| Plain::CheckReport(id, status)),
        (".{0,40}", 0..=u32::MAX / 2).prop_map(|(id, drain)| Plain::Drain(id, drain)),
        (".{0,40}", 0..=u32::MAX / 2, maintenance_parts())
            .prop_map(|(id, drain, parts)| Plain::Maintenance(id, drain, parts)),
        any::<bool>().prop_map(Plain::Goodbye),
        (any::<u64>(), vec((origin_id(), counter()), 0..4)).prop_map(|(query, dots)| {
            Plain::Search(query, dots.into_iter().map(|(origin, n)| Dot { origin, n }).collect())
        }),
        (any::<u64>(), any::<bool>(), any::<bool>())
            .prop_map(|(query, covered, linked)| Plain::SearchReport(query, covered, linked)),
        counter().prop_map(Plain::Received),
        vec((".{1,40}", any::<u64>(), any::<u64>()), 0..4).prop_map(Plain::Revoke),
    ]
}

pub(super) fn push() -> impl Strategy<Value = Sample> {
    (origin_id(), counter(), counter(), contents(), vec(evidence(), 0..4)).prop_map(
        |(origin, a, b, contents, evidence)| Sample::Push { origin, from: a.min(b), to: a.max(b), contents, evidence },
    )
}

pub(super) fn chunk() -> impl Strategy<Value = Sample> {
    let ends = (option::of((context(), clock())), option::of(context()), vec(evidence(), 0..4));
    (any::<u64>(), any::<u64>(), any::<bool>(), contents(), ends).prop_map(
        |(exchange, index, full, contents, (end, reply, evidence))| Sample::Chunk {
            exchange,
            index,
            full,
            contents,
            end,
            reply,
            evidence,
        },
    )
}

pub(super) fn sample() -> impl Strategy<Value = Sample> {
    prop_oneof![3 => plain().prop_map(Sample::Plain), 1 => push(), 1 => chunk()]
}
