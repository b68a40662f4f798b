//! Messages of a leader with arbitrary content, in the place of any answer, never panic.

use super::super::{Ask, Body, Core, Issuing, Keep, Output};
use crate::log::Options;
use crate::{Error, ErrorCode};
use convoke_proto::v1::submit_response::Message;
use convoke_proto::v1::{self, fate, kept_alive};
use prost::Message as _;
use std::time::Duration;

const LOG: v1::LogId = v1::LogId { high: 0, low: 1 };

/// One valid answer of every kind.
fn corpus() -> Vec<Vec<u8>> {
    let applied = v1::Fate { index: 7, revision: 5, lease: 4, fence: 3, ..v1::Fate::of(fate::Kind::Applied) };
    let read = v1::txn_result::Result::Read(v1::QueryResult::default());
    let results = v1::TxnResults { results: vec![v1::TxnResult { result: Some(read) }], compacted: Some(3) };
    let answer =
        v1::LogAnswer { fate: Some(applied), log_time_us: 9, results: Some(results), ..v1::LogAnswer::default() };
    let state = kept_alive::State::Kept.into();
    let kept = v1::LeasesKept { leases: vec![v1::LeaseKept { lease: 3, state, left_ms: 900 }] };
    let rejected =
        Error::new(ErrorCode::StaleEpoch, "no").replicas(Vec::new(), Some(v1::Epoch { term: 2, replica: 1 }));
    let messages = [
        Message::Welcome(v1::Welcome::default()),
        Message::Opened(v1::SessionOpened { session: 2, log_time_us: 5, ..v1::SessionOpened::default() }),
        Message::Answer(answer),
        Message::KeptAlive(v1::KeptAlive { state }),
        Message::Rejected(rejected.into()),
        Message::OutcomeUnknown(v1::OutcomeUnknown::default()),
        Message::LeasesKept(kept),
        Message::PlaceChanged(v1::PlaceChanged { fence: 9 }),
    ];
    messages.map(|message| v1::SubmitResponse { tag: 1, message: Some(message) }.encode_to_vec()).into()
}

#[test]
fn arbitrary_answers_do_not_panic() {
    let corpus = corpus();
    let mut random = convoke_fuzz::random();
    for case in 0..convoke_fuzz::cases(300) {
        let seed = random.u64(..);
        convoke_fuzz::reported(case, &format!("seed {seed}"), || run(&corpus, seed));
    }
}

fn run(corpus: &[Vec<u8>], seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut core = Core::new(fastrand::Rng::with_seed(seed), |random| random.u128(..).to_le_bytes());
    let (mut now, mut sent) = (Duration::ZERO, Output::default());
    let mut link = core.link_up(now, v1::Epoch { term: 1, replica: 1 }, LOG, &mut sent);
    let lane = core.lane(Options::default().timeout(Duration::from_secs(30)));
    let mut tags: Vec<u64> = Vec::new();
    for _ in 0..40 {
        let mut out = Output::default();
        // Limits may refuse these.
        match random.u8(..5) {
            0 => {
                let txn = v1::Txn { then: vec![v1::TxnOperation::default()], ..v1::Txn::default() };
                let _ = core.issue(now, lane, Issuing::new(Body::Txn(txn)), String::new(), &mut out);
            }
            1 => {
                let acquire = Body::Acquire(v1::AcquireLock { lease: 3, ..v1::AcquireLock::default() });
                let _ = core.issue(now, lane, Issuing::new(acquire), String::new(), &mut out);
            }
            2 => {
                let (lease, member) = (random.u64(..4), random.bool());
                let keep = Keep { lease, log: LOG, ttl: Duration::from_secs(10), member, granted: Some(now) };
                let _ = core.keep(now, keep, &mut out);
            }
            3 => {
                let ask = if random.bool() {
                    Ask::Renew { lease: 3 }
                } else {
                    Ask::Place { name: "l".into(), election: false, lease: 3, fence: 0 }
                };
                let _ = core.ask(now, ask, &mut out);
            }
            _ => {
                now += Duration::from_millis(random.u64(..4_000));
                core.tick(now, &mut out);
            }
        }
        let bytes = convoke_fuzz::mutated(corpus, &mut random);
        if let Ok(mut response) = v1::SubmitResponse::decode(&bytes[..]) {
            tags.extend(out.sends.iter().map(|request| request.tag));
            if random.u8(..8) > 0
                && let Some(tag) = random.choice(&tags)
            {
                response.tag = *tag;
            }
            core.received(now, link, response, &mut out);
        }
        if out.relink.is_some() {
            link = core.link_up(now, v1::Epoch { term: 2, replica: 1 }, LOG, &mut Output::default());
        }
    }
}
