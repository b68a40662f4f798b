//! Clients: they write, read, abandon and resolve at random, and record their operations and the answers.

use crate::faults::Fault;
use crate::net::ClientConnect;
use crate::node::{client_address, name};
use crate::plan::Mutant;
use crate::record::{AcknowledgedWrite, Key, now};
use crate::world::Shared;
use convoke_client::log::{
    Ambassador, Consistency, FateKind, KeyValue, Kv, Options, PendingWrite, RequestId, Write, Written,
};
use convoke_client::{Error, ErrorCode};
use convoke_harness::history::{Answer, Call, CallId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const KEYS: Key = 6;
/// Timeout of a request.
const PATIENCE: Duration = Duration::from_secs(2);
const RESOLVE_PATIENCE: Duration = Duration::from_secs(4);
/// Ttl of sessions: short, so that some expire.
const TTL: Duration = Duration::from_secs(8);
/// Bytes in addition to the value itself, so that logs grow.
const FILLER: usize = 120;

/// A request without an answer.
#[derive(Clone, Copy, Debug)]
struct Unknown {
    operation: CallId,
    request: RequestId,
    call: Call,
    called: u64,
    /// When a later request of the same handle was answered, and its index: from then on this one cannot take effect
    ///
    closed: Option<(u64, Option<u64>)>,
    /// Its handle is gone, and no request fences it.
    orphaned: bool,
}

pub(crate) struct Worker {
    shared: Arc<Shared>,
    id: u64,
    random: fastrand::Rng,
    ambassador: Ambassador,
    kv: Kv,
    /// Last observed state of the keys: value and modify revision.
    seen: BTreeMap<Key, (Option<u64>, u64)>,
    unknown: Vec<Unknown>,
    /// Final fates of requests.
    fates: Vec<(RequestId, FateKind)>,
}

pub(crate) fn ambassador(shared: &Shared) -> Result<Ambassador, Error> {
    let seeds = (0..shared.plan.nodes()).map(|place| client_address(&name(place)));
    Ambassador::start_with(seeds, Arc::new(ClientConnect))
}

pub(crate) fn options(id: u64) -> Options {
    let options = Options::default().ttl(TTL).timeout(PATIENCE);
    if is_named(id) { options.client_name(format!("worker-{id}")) } else { options }
}

/// Some clients have a name: their successors fence them.
fn is_named(id: u64) -> bool {
    id.is_multiple_of(2)
}

fn key_name(key: Key) -> Vec<u8> {
    format!("key/{key}").into_bytes()
}

fn encode(value: u64) -> Vec<u8> {
    let mut bytes = value.to_le_bytes().to_vec();
    bytes.resize(8 + FILLER, b'.');
    bytes
}

fn decode(record: Option<&KeyValue>) -> Option<u64> {
    let bytes = record?.value.first_chunk::<8>()?;
    Some(u64::from_le_bytes(*bytes))
}

/// Writes continuously over links without faults: shows when writes are possible.
pub(crate) async fn probe_writer(shared: Arc<Shared>) -> turmoil::Result {
    let kv = ambassador(&shared)?.kv_with(Options::default().ttl(TTL));
    let recorder = &shared.recorder;
    loop {
        let called = now();
        match kv.put("probe_writer", encode(0)).await {
            Ok(written) => {
                recorder.wrote(applied(&written, called, now()));
                let mut record = recorder.lock();
                record.answered = now();
                if let (Some(healed), None) = (record.healed, record.recovered) {
                    record.recovered = Some(now().saturating_sub(healed));
                }
                // A write from before the loss may still have been answered by the lost leader.
                if record.leader_lost.is_some_and(|lost| called >= lost) && record.leader_replaced.is_none() {
                    record.leader_replaced = Some(now());
                }
            }
            // A session that was silent for too long has ended; this copy did nothing.
            Err(error) if error.code == ErrorCode::SessionGone => {}
            Err(error) => recorder.violated(format!("a write without a time limit failed: {error}")),
        }
        if recorder.lock().closing {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn applied(written: &Written, called: u64, answered: u64) -> AcknowledgedWrite {
    AcknowledgedWrite { index: written.index, revision: written.revision, changed: written.keys > 0, called, answered }
}

impl Worker {
    pub(crate) fn new(shared: Arc<Shared>, id: u64) -> Result<Worker, Error> {
        let ambassador = ambassador(&shared)?;
        let random = fastrand::Rng::with_seed(shared.plan.seed.wrapping_mul(1_000_003).wrapping_add(id));
        let kv = ambassador.kv_with(options(id));
        Ok(Worker { shared, id, random, ambassador, kv, seen: BTreeMap::new(), unknown: Vec::new(), fates: Vec::new() })
    }

    pub(crate) async fn work(mut self) {
        while !self.shared.recorder.lock().closing {
            tokio::time::sleep(Duration::from_millis(self.random.u64(20..500))).await;
            self.turn().await;
            if self.random.u8(0..3) == 0 {
                self.resolve_some().await;
            }
        }
        self.finish().await;
        self.shared.recorder.lock().workers_left -= 1;
    }

    async fn turn(&mut self) {
        let key = self.random.u8(0..KEYS);
        match self.random.u8(0..100) {
            0..30 => self.write(key, Wanted::Put).await,
            30..38 => self.write(key, Wanted::Delete).await,
            38..52 => self.write(key, Wanted::CompareAndSet).await,
            52..62 => self.abandon(key).await,
            62..68 => self.burst(key).await,
            68..84 => self.read(key, Consistency::Linearizable).await,
            84..98 => self.read(key, Consistency::Barrier).await,
            _ => self.restart(),
        }
    }

    /// Resolves all unknown outcomes; a repeated request must get the same answer.
    async fn finish(&mut self) {
        for _ in 0..5 {
            let open = std::mem::take(&mut self.unknown);
            for unknown in open {
                self.resolve(unknown).await;
            }
        }
        for unknown in std::mem::take(&mut self.unknown) {
            self.shared.recorder.violated(format!("resolve answers: {} could not be resolved", unknown.request));
        }
        let fates = std::mem::take(&mut self.fates);
        for (request, before) in fates.into_iter().rev().take(10) {
            let Ok(fate) = self.ambassador.resolve(request, Some(RESOLVE_PATIENCE)).await else { continue };
            if fate.kind() != before && fate.kind() != FateKind::TooOld {
                let what = format!("resolve is final: {request} was {before:?}, now {:?}", fate.kind());
                self.shared.recorder.violated(what);
            }
        }
    }

    fn request(&mut self, key: Key, wanted: Wanted) -> (Call, Write) {
        let value = self.shared.recorder.value();
        match wanted {
            Wanted::Put => (Call::put(value), Write::put(key_name(key), encode(value))),
            Wanted::Delete => (Call::delete(), Write::delete(key_name(key))),
            Wanted::CompareAndSet => {
                let (expected, revision) = self.seen.get(&key).copied().unwrap_or((None, 0));
                let put = Write::put(key_name(key), encode(value)).if_revision(revision);
                (Call::compare_and_set(expected, Some(value)), put)
            }
        }
    }

    async fn write(&mut self, key: Key, wanted: Wanted) {
        let (call, write) = self.request(key, wanted);
        let operation = self.shared.recorder.call(self.id, key, call);
        let called = now();
        let mut result = self.kv.write(write.clone()).await;
        if self.shared.plan.has(Mutant::RetriesAreNew) {
            while matches!(&result, Err(error) if error.code == ErrorCode::OutcomeUnknown) {
                result = self.kv.write(write.clone()).await;
            }
        }
        self.answered(key, operation, call, called, result);
    }

    /// Several requests at once: they take effect in the order in which they were issued.
    async fn burst(&mut self, first: Key) {
        let mut issued = Vec::new();
        for place in 0..3 {
            let key = (first + place) % KEYS;
            let (call, write) = self.request(key, Wanted::Put);
            let operation = self.shared.recorder.call(self.id, key, call);
            issued.push((key, operation, call, now(), self.kv.write(write)));
        }
        let mut last = 0;
        for (key, operation, call, called, pending) in issued {
            let result = pending.await;
            if let Ok(written) = &result {
                if written.index <= last {
                    self.shared.recorder.violated(format!(
                        "order of issue: {} took effect at index {}, not after {last}",
                        written.request, written.index
                    ));
                }
                last = written.index;
            }
            self.answered(key, operation, call, called, result);
        }
    }

    /// Abandons a request after a moment, whatever its progress.
    async fn abandon(&mut self, key: Key) {
        let (call, write) = self.request(key, Wanted::Put);
        let operation = self.shared.recorder.call(self.id, key, call);
        let called = now();
        let mut pending: PendingWrite = self.kv.write(write);
        let patience = Duration::from_millis(self.random.u64(0..120));
        if let Ok(result) = tokio::time::timeout(patience, &mut pending).await {
            return self.answered(key, operation, call, called, result);
        }
        match pending.abandon() {
            Some(request) => {
                self.shared.recorder.fault(now(), Fault::Abandoned, &format!("client {} abandons {request}", self.id));
                self.unknown.push(Unknown { operation, request, call, called, closed: None, orphaned: false });
            }
            // No copy was sent.
            None => self.shared.recorder.never(operation),
        }
    }

    fn answered(&mut self, key: Key, operation: CallId, call: Call, called: u64, result: Result<Written, Error>) {
        let recorder = self.shared.recorder.clone();
        let at = now();
        match result {
            Ok(written) => {
                recorder.count("writes");
                recorder.answered_with(operation, Answer::written());
                recorder.wrote(applied(&written, called, at));
                recorder.note(at, &format!("client {} {call:?}: index {}", self.id, written.index));
                self.close(at, Some(written.index));
                let Call::Write { new, .. } = call else { return };
                self.seen.insert(key, (new, if new.is_some() { written.revision } else { 0 }));
            }
            Err(error) => match (error.code, error.log.as_ref().and_then(|log| log.request)) {
                (ErrorCode::FailedPrecondition, _) if is_compare(call) => {
                    recorder.count("failed compares");
                    recorder.answered_with(operation, Answer::mismatch());
                    recorder.note(at, &format!("client {} {call:?}: compare failed", self.id));
                    self.close(at, None);
                    self.seen.remove(&key);
                }
                (ErrorCode::OutcomeUnknown, Some(_)) if self.shared.plan.has(Mutant::UnknownMeansFailed) => {
                    recorder.never(operation);
                }
                (ErrorCode::OutcomeUnknown, Some(request)) => {
                    recorder.fault(
                        at,
                        Fault::OutcomeUnknown,
                        &format!("client {} has no outcome of {request}", self.id),
                    );
                    self.unknown.push(Unknown { operation, request, call, called, closed: None, orphaned: false });
                }
                // It may have taken effect, but no longer can.
                (ErrorCode::Compacted, request) => recorder.outcome_unknown(request),
                // Not sent, or its session or number was gone before: it did nothing.
                (
                    ErrorCode::Timeout | ErrorCode::Superseded | ErrorCode::SessionGone | ErrorCode::ResourceExhausted,
                    _,
                ) => {
                    recorder.count("rejected");
                    recorder.never(operation);
                    recorder.note(at, &format!("client {} {call:?}: {}", self.id, error.code));
                }
                _ => recorder.violated(format!("unexpected error: client {} {call:?}: {error}", self.id)),
            },
        }
    }

    async fn read(&mut self, key: Key, consistency: Consistency) {
        let recorder = self.shared.recorder.clone();
        let local = self.shared.plan.has(Mutant::ReadsAreLocal);
        let operation = recorder.call(self.id, key, Call::Get);
        let asked = self.kv.get_with(key_name(key), if local { Consistency::Local } else { consistency }).await;
        let Ok(record) = asked else {
            recorder.count("reads not served");
            return recorder.never(operation);
        };
        recorder.count(if consistency == Consistency::Barrier { "barrier reads" } else { "linearizable reads" });
        let value = decode(record.as_ref());
        recorder.answered_with(operation, Answer::Got(value));
        recorder.note(now(), &format!("client {} reads {key}: {value:?}", self.id));
        self.seen.insert(key, (value, record.map_or(0, |record| record.mod_revision)));
        if consistency == Consistency::Barrier {
            self.close(now(), None);
        }
    }

    /// No request of unknown outcome can take effect any more.
    fn close(&mut self, at: u64, index: Option<u64>) {
        for unknown in self.unknown.iter_mut().filter(|unknown| !unknown.orphaned) {
            unknown.closed.get_or_insert((at, index));
        }
    }

    async fn resolve_some(&mut self) {
        if let Some(unknown) = self.unknown.pop() {
            self.resolve(unknown).await;
        }
    }

    async fn resolve(&mut self, unknown: Unknown) {
        let recorder = self.shared.recorder.clone();
        let Unknown { operation, request, call, called, closed, .. } = unknown;
        let Ok(fate) = self.ambassador.resolve(request, Some(RESOLVE_PATIENCE)).await else {
            return self.unknown.push(unknown);
        };
        recorder.count("resolved");
        recorder.note(now(), &format!("client {} resolves {request}: {:?}", self.id, fate.kind()));
        let over = closed.map_or_else(now, |(at, _)| at);
        self.fates.push((request, fate.kind()));
        match fate.kind() {
            FateKind::Applied => {
                if let Some((_, Some(later))) = closed
                    && fate.index >= later
                {
                    let what = format!("{request} was abandoned, and took effect at {} after {later}", fate.index);
                    recorder.violated(format!("abandoned requests stay before later ones: {what}"));
                }
                let (index, revision, changed) = (fate.index, fate.revision, fate.keys > 0);
                recorder.wrote(AcknowledgedWrite { index, revision, changed, called, answered: over });
                recorder.resolved(operation, over, Some(Answer::written()));
            }
            FateKind::NotApplied => recorder.resolved(operation, over, is_compare(call).then(Answer::mismatch)),
            FateKind::Never => recorder.resolved(operation, over, None),
            FateKind::TooOld => recorder.outcome_unknown(Some(request)),
            FateKind::Open | FateKind::Unspecified => {
                recorder.violated(format!("resolve is final: {request} is {:?}", fate.kind()));
            }
        }
    }

    /// The process is replaced by another one.
    fn restart(&mut self) {
        let Ok(ambassador) = ambassador(&self.shared) else { return };
        self.kv = ambassador.kv_with(options(self.id));
        self.ambassador = ambassador;
        self.shared.recorder.fault(now(), Fault::ClientRestarts, &format!("client {} is replaced", self.id));
        for unknown in self.unknown.iter_mut().filter(|_| !is_named(self.id)) {
            unknown.orphaned = true;
        }
    }
}

/// An operation that a worker performs on a key.
#[derive(Clone, Copy, Debug)]
enum Wanted {
    Put,
    Delete,
    CompareAndSet,
}

fn is_compare(call: Call) -> bool {
    matches!(call, Call::Write { if_value: Some(_), .. })
}
