//! Requests of level 2 as messages: arbitrary bytes give a typed error or a command that every replica can decode, and
//! the conversion loses nothing.

use super::convert::{body, key_range};
use super::coordination::{read_leases, read_locks};
use super::feed::wanted;
use super::txn::{query, read_keys, read_txn};
use convoke_log::command::{
    Acquire, Body, Command, Compare, EndBehavior, GrantLease, LeaseId, LeaseTerm, LockName, LockSpace, Op, Open, Place,
    Raise, Relation, Request, Test, Txn,
};
use convoke_log::keys::{Content, KeyRange, Query, Selection, SortBy};
use convoke_log::{CoordinationLimits, Entry, Epoch, Level, LogLimits, LogSessionId, LogTime, Machine};
use convoke_proto::v1::log_request::Body as Wire;
use convoke_proto::v1::{compare, grant_lease, key_query, key_watch, release_lock, txn_delete, txn_operation};
use convoke_proto::{Error, ErrorCode, v1};
use fastrand::Rng;
use prost::Message;
use std::time::Duration;

/// A message with random content that a client of this version could send.
struct Random(Rng);

impl Random {
    fn number(&mut self) -> u64 {
        if self.0.bool() { self.0.u64(1..200) } else { self.0.u64(1..1 << 40) }
    }

    fn bytes(&mut self) -> bytes::Bytes {
        let length = self.0.usize(..12);
        (0..length).map(|_| self.0.u8(..)).collect()
    }

    fn text(&mut self) -> String {
        (0..self.0.usize(1..9)).map(|_| self.0.alphanumeric()).collect()
    }

    fn range(&mut self) -> v1::KeyRange {
        v1::KeyRange { from: self.bytes(), until: self.0.bool().then(|| self.bytes()) }
    }

    fn compare(&mut self) -> v1::Compare {
        let (election, relation) = (self.0.bool(), self.0.i32(1..=4));
        if self.0.u8(..4) == 0 {
            let lock = v1::LockGuard { name: self.bytes(), fence: self.number(), election };
            return v1::Compare { subject: Some(compare::Subject::Lock(lock)), ..v1::Compare::default() };
        }
        let subject =
            if election { compare::Subject::Key(self.bytes()) } else { compare::Subject::Range(self.range()) };
        let (operand, relation) = match self.0.u8(..6) {
            0 => (compare::Operand::Value(self.bytes()), relation),
            1 => (compare::Operand::Version(self.number()), relation),
            2 => (compare::Operand::CreateRevision(self.number()), relation),
            3 => (compare::Operand::ModRevision(self.number()), relation),
            4 => (compare::Operand::Lease(self.number()), relation),
            _ => (compare::Operand::Exists(self.0.bool()), compare::Relation::Equal.into()),
        };
        v1::Compare { subject: Some(subject), relation, operand: Some(operand) }
    }

    fn query(&mut self) -> v1::KeyQuery {
        let which =
            if self.0.bool() { key_query::Which::Key(self.bytes()) } else { key_query::Which::Range(self.range()) };
        let (content, sort, descending) = (self.0.i32(1..=3), self.0.i32(1..=5), self.0.bool());
        v1::KeyQuery { which: Some(which), limit: self.0.u64(..9), content, sort, descending }
    }

    fn operation(&mut self) -> v1::TxnOperation {
        let previous = self.0.bool();
        let operation = match self.0.u8(..3) {
            0 => {
                let (lease, flags, lock_index) = (self.0.u64(..3), self.0.u64(..), self.0.u64(..));
                let (key, value) = (self.bytes(), self.bytes());
                txn_operation::Operation::Put(v1::TxnPut { key, value, lease, flags, lock_index, previous })
            }
            1 => {
                let which = if self.0.bool() {
                    txn_delete::Which::Key(self.bytes())
                } else {
                    txn_delete::Which::Range(self.range())
                };
                txn_operation::Operation::Delete(v1::TxnDelete { which: Some(which), previous })
            }
            _ => txn_operation::Operation::Read(self.query()),
        };
        v1::TxnOperation { operation: Some(operation) }
    }

    fn txn(&mut self) -> v1::Txn {
        let [compares, then, otherwise] = [0; 3].map(|_| self.0.usize(..4));
        v1::Txn {
            compares: (0..compares).map(|_| self.compare()).collect(),
            then: (0..then).map(|_| self.operation()).collect(),
            otherwise: (0..otherwise).map(|_| self.operation()).collect(),
        }
    }

    fn body(&mut self) -> Wire {
        let election = self.0.bool();
        match self.0.u8(..8) {
            0..3 => Wire::Txn(self.txn()),
            3 => {
                let term = if self.0.bool() {
                    grant_lease::Term::TtlMs(self.0.u64(1..100_000_000))
                } else {
                    let (member, client, registration) = (self.text(), self.text(), self.text());
                    grant_lease::Term::Member(v1::MemberBinding { member, client, registration })
                };
                Wire::Grant(v1::GrantLease { term: Some(term), end: self.0.i32(1..=2) })
            }
            4 => Wire::Revoke(v1::RevokeLease { lease: self.number() }),
            5 => {
                let wait = self.0.bool();
                Wire::Acquire(v1::AcquireLock {
                    name: self.bytes(),
                    election,
                    lease: self.number(),
                    permits: self.number(),
                    value: self.bytes(),
                    wait,
                    delay_ms: self.0.u64(..100_000),
                    // Only a request that waits has a second lease.
                    waits_with: if wait { self.number() } else { 0 },
                })
            }
            6 => {
                let (name, number) = (self.bytes(), self.number());
                let place =
                    if self.0.bool() { release_lock::Place::Fence(number) } else { release_lock::Place::Lease(number) };
                Wire::Release(v1::ReleaseLock { name, election, place: Some(place) })
            }
            _ => {
                let (name, fence, value) = (self.bytes(), self.number(), self.bytes());
                Wire::Proclaim(v1::Proclaim { name, election, fence, value })
            }
        }
    }

    fn request(&mut self) -> v1::LogRequest {
        v1::LogRequest {
            session: 7,
            number: 5,
            previous: 4,
            epoch: Some(v1::Epoch { term: 3, replica: 1 }),
            body: Some(self.body()),
            ..v1::LogRequest::default()
        }
    }

    fn watch(&mut self, id: u64) -> v1::KeyWatch {
        let which = match self.0.u8(..4) {
            0 => key_watch::Which::Key(self.bytes()),
            1 => key_watch::Which::Range(self.range()),
            2 => {
                let ranges = (0..self.0.usize(..4)).map(|_| self.range()).collect();
                let name = self.bytes();
                let locks = vec![v1::LockGuard { name, ..v1::LockGuard::default() }; self.0.usize(..3)];
                key_watch::Which::Union(v1::KeyWatchUnion { ranges, locks })
            }
            _ => key_watch::Which::Lock(v1::LockGuard { name: self.bytes(), ..v1::LockGuard::default() }),
        };
        let from = self.0.bool().then(|| v1::EventPosition { revision: self.number(), index: self.0.u64(..9) });
        v1::KeyWatch { id, which: Some(which), from, no_puts: self.0.bool(), ..v1::KeyWatch::default() }
    }
}

fn wire_range(range: &KeyRange) -> v1::KeyRange {
    v1::KeyRange { from: range.from.clone(), until: range.until.clone() }
}

fn wire_compare(found: &Compare) -> v1::Compare {
    let (selection, test) = match found {
        Compare::Lock { name, fence } => {
            let (name, election) = wire_name(name);
            let lock = v1::LockGuard { name, fence: *fence, election };
            return v1::Compare { subject: Some(compare::Subject::Lock(lock)), ..v1::Compare::default() };
        }
        Compare::Keys { selection, test } => (selection, test),
    };
    let subject = match selection {
        Selection::Key(key) => compare::Subject::Key(key.clone()),
        Selection::Range(range) => compare::Subject::Range(wire_range(range)),
    };
    let (relation, operand) = match test {
        Test::Value(relation, value) => (*relation, compare::Operand::Value(value.clone())),
        Test::Version(relation, number) => (*relation, compare::Operand::Version(*number)),
        Test::CreateRevision(relation, number) => (*relation, compare::Operand::CreateRevision(*number)),
        Test::ModifyRevision(relation, number) => (*relation, compare::Operand::ModRevision(*number)),
        Test::Lease(relation, lease) => (*relation, compare::Operand::Lease(*lease)),
        Test::Exists(exists) => (Relation::Equal, compare::Operand::Exists(*exists)),
    };
    let relation = match relation {
        Relation::Equal => compare::Relation::Equal,
        Relation::NotEqual => compare::Relation::NotEqual,
        Relation::Less => compare::Relation::Less,
        Relation::Greater => compare::Relation::Greater,
    };
    v1::Compare { subject: Some(subject), relation: relation.into(), operand: Some(operand) }
}

fn wire_query(query: &Query) -> v1::KeyQuery {
    let which = match &query.selection {
        Selection::Key(key) => key_query::Which::Key(key.clone()),
        Selection::Range(range) => key_query::Which::Range(wire_range(range)),
    };
    let content = match query.content {
        Content::Records => key_query::Content::Records,
        Content::Keys => key_query::Content::Keys,
        Content::Count => key_query::Content::Count,
    };
    let sort = match query.order.by {
        SortBy::Key => key_query::Sort::Key,
        SortBy::Version => key_query::Sort::Version,
        SortBy::CreateRevision => key_query::Sort::CreateRevision,
        SortBy::ModifyRevision => key_query::Sort::ModRevision,
        SortBy::Value => key_query::Sort::Value,
    };
    v1::KeyQuery {
        which: Some(which),
        limit: query.limit.unwrap_or(0),
        content: content.into(),
        sort: sort.into(),
        descending: query.order.descending,
    }
}

fn wire_op(op: &Op) -> v1::TxnOperation {
    let operation = match op {
        Op::Put(put) => txn_operation::Operation::Put(v1::TxnPut {
            key: put.key.clone(),
            value: put.value.clone(),
            lease: put.lease.map_or(0, |lease| lease.0),
            flags: put.flags,
            lock_index: put.lock_index,
            previous: put.previous,
        }),
        Op::Delete { selection, previous } => {
            let which = match selection {
                Selection::Key(key) => txn_delete::Which::Key(key.clone()),
                Selection::Range(range) => txn_delete::Which::Range(wire_range(range)),
            };
            txn_operation::Operation::Delete(v1::TxnDelete { which: Some(which), previous: *previous })
        }
        Op::Read(query) => txn_operation::Operation::Read(wire_query(query)),
    };
    v1::TxnOperation { operation: Some(operation) }
}

fn wire_txn(txn: &Txn) -> v1::Txn {
    v1::Txn {
        compares: txn.compares.iter().map(wire_compare).collect(),
        then: txn.then.iter().map(wire_op).collect(),
        otherwise: txn.otherwise.iter().map(wire_op).collect(),
    }
}

fn wire_name(name: &LockName) -> (bytes::Bytes, bool) {
    (name.name.clone(), name.space == LockSpace::Election)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap()
}

/// The message of a converted body: the inverse of the conversion.
fn wire_body(body: &Body) -> Wire {
    match body {
        Body::Txn(txn) => Wire::Txn(wire_txn(txn)),
        Body::Grant(grant) => {
            let term = match &grant.term {
                LeaseTerm::Ttl(ttl) => grant_lease::Term::TtlMs(millis(*ttl)),
                LeaseTerm::Member(bound) => grant_lease::Term::Member(v1::MemberBinding {
                    member: bound.member.to_string(),
                    client: bound.client.to_string(),
                    registration: bound.registration.to_string(),
                }),
            };
            let end = match grant.end {
                EndBehavior::Delete => grant_lease::EndBehavior::Delete,
                EndBehavior::Release => grant_lease::EndBehavior::Release,
            };
            Wire::Grant(v1::GrantLease { term: Some(term), end: end.into() })
        }
        Body::Revoke(lease) => Wire::Revoke(v1::RevokeLease { lease: lease.0 }),
        Body::Acquire(acquire) => {
            let (name, election) = wire_name(&acquire.name);
            Wire::Acquire(v1::AcquireLock {
                name,
                election,
                lease: acquire.lease.0,
                permits: acquire.permits,
                value: acquire.value.clone(),
                wait: acquire.wait,
                delay_ms: millis(acquire.delay),
                waits_with: acquire.waits_with.map_or(0, |lease| lease.0),
            })
        }
        Body::Release(release) => {
            let (name, election) = wire_name(&release.name);
            let place = match release.place {
                Place::Lease(lease) => release_lock::Place::Lease(lease.0),
                Place::Fence(fence) => release_lock::Place::Fence(fence),
            };
            Wire::Release(v1::ReleaseLock { name, election, place: Some(place) })
        }
        Body::Proclaim(proclaim) => {
            let (name, election) = wire_name(&proclaim.name);
            let (fence, value) = (proclaim.fence, proclaim.value.clone());
            Wire::Proclaim(v1::Proclaim { name, election, fence, value })
        }
        other => panic!("not of level 2: {other:?}"),
    }
}

#[test]
fn conversions_of_requests_lose_nothing() {
    let mut random = Random(convoke_fuzz::random());
    for case in 0..convoke_fuzz::cases(2_000) {
        let request = random.request();
        convoke_fuzz::reported(case, &format!("{request:?}"), || {
            let converted = match body(request.clone()) {
                // Random keys may be equal.
                Err(error) if error.message.starts_with("a branch changes each key at most once") => return,
                converted => converted.unwrap(),
            };
            assert_eq!((converted.session.0, converted.number, converted.previous), (7, 5, 4));
            assert_eq!(Some(wire_body(&converted.body)), request.body);
        });
    }
}

fn is_typed(error: &Error) -> bool {
    error.code == ErrorCode::InvalidArgument && error.field.is_some()
}

/// A command that the leader appends must be decoded by all replicas (A1).
#[test]
fn fuzz_requests() {
    let mut random = Random(convoke_fuzz::random());
    let corpus: Vec<Vec<u8>> = (0..60).map(|_| random.request().encode_to_vec()).collect();
    convoke_fuzz::bytes(&corpus, |bytes| {
        let Ok(request) = v1::LogRequest::decode(bytes) else { return };
        match body(request) {
            Err(error) => assert!(is_typed(&error), "{error:?}"),
            Ok(converted) => {
                let command = Command::Request(converted);
                if let Ok((encoded, decoded)) = command.encode_checked() {
                    assert_eq!(Command::decode(&encoded), Ok(decoded));
                }
            }
        }
    });
}

/// A log of level 2 with a key, a lease and a lock.
fn machine() -> Machine {
    let mut machine = Machine::new(LogLimits::default()).unwrap();
    let (epoch, limits) = (Epoch::new(1, 1), CoordinationLimits::default());
    let configuration = machine.configuration().number;
    let request = |number, body| Command::Request(Request::new(LogSessionId(2), number, epoch, body));
    let grant = GrantLease { term: LeaseTerm::Ttl(Duration::from_secs(10)), end: EndBehavior::Delete };
    let commands = [
        Command::Raise(Raise { epoch, level: Level::COORDINATION, configuration, limits }),
        Command::Open(Open::new(epoch, Duration::from_secs(10), 1)),
        request(1, Body::put("k", "v")),
        request(2, Body::Grant(grant)),
        request(3, Body::Acquire(Acquire::new(LockName::lock("l"), LeaseId(4)))),
    ];
    for (index, command) in (1..).zip(commands) {
        machine.apply(&Entry { index, epoch, stamp: LogTime::from_micros(index), command }).unwrap();
    }
    assert!(machine.lock(&LockName::lock("l")).is_some());
    machine
}

#[test]
fn fuzz_reads_and_watches() {
    let machine = machine();
    let mut random = Random(convoke_fuzz::random());
    let mut corpus: Vec<Vec<u8>> = Vec::new();
    for id in 0..20 {
        corpus.push(random.query().encode_to_vec());
        corpus.push(random.txn().encode_to_vec());
        corpus.push(v1::KeyWatchRequest { watches: vec![random.watch(id)], ..Default::default() }.encode_to_vec());
        corpus.push(v1::LockQuery { name: Some(random.bytes()), limit: 3, ..Default::default() }.encode_to_vec());
        corpus.push(v1::LeaseQuery { lease: random.number(), ..Default::default() }.encode_to_vec());
    }
    // A message may arrive where another kind is expected.
    convoke_fuzz::bytes(&corpus, |bytes| {
        if let Ok(wanted) = v1::KeyQuery::decode(bytes) {
            if let Ok(converted) = query("query", wanted.clone()) {
                assert_eq!(query("query", wire_query(&converted)).ok(), Some(converted));
            }
            let _ = read_keys(&machine, wanted, 3);
        }
        if let Ok(txn) = v1::Txn::decode(bytes) {
            let _ = read_txn(&machine, txn);
        }
        if let Ok(request) = v1::KeyWatchRequest::decode(bytes)
            && let Err(error) = wanted(request.watches)
        {
            assert!(is_typed(&error), "{error:?}");
        }
        if let Ok(query) = v1::LockQuery::decode(bytes) {
            let _ = read_locks(&machine, query);
        }
        if let Ok(query) = v1::LeaseQuery::decode(bytes) {
            let _ = read_leases(&machine, &query, |_| None);
        }
        if let Ok(range) = v1::KeyRange::decode(bytes) {
            assert_eq!(wire_range(&key_range(range.clone())), range);
        }
    });
}

#[test]
fn an_end_behavior_of_a_later_version_is_rejected() {
    let grant = v1::GrantLease { term: Some(grant_lease::Term::TtlMs(5)), end: 9 };
    let request = v1::LogRequest { body: Some(Wire::Grant(grant)), ..v1::LogRequest::default() };
    let error = body(request).unwrap_err();
    assert_eq!((error.code, error.field.as_deref()), (ErrorCode::InvalidArgument, Some("end")));
}
