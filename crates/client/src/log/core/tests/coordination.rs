//! Leases and questions: when messages are sent, and what time and answers decide.

use super::super::{Ask, Asked, Body, Core, Issuing, Keep, LeaseChange, LinkId, Output};
use crate::log::Options;
use crate::{Error, ErrorCode};
use convoke_proto::v1::kept_alive::State;
use convoke_proto::v1::submit_request::Message as Sent;
use convoke_proto::v1::submit_response::Message;
use convoke_proto::v1::{self, SubmitRequest};
use std::time::Duration;

const LOG: v1::LogId = v1::LogId { high: 0, low: 1 };
const EPOCH: v1::Epoch = v1::Epoch { term: 1, replica: 1 };
const TTL: Duration = Duration::from_secs(10);

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

struct Client {
    core: Core,
    link: LinkId,
}

impl Client {
    fn linked() -> Client {
        let mut core = Core::new(fastrand::Rng::with_seed(1), |random| random.u128(..).to_le_bytes());
        let link = core.link_up(Duration::ZERO, EPOCH, LOG, &mut Output::default());
        Client { core, link }
    }

    fn keep(&mut self, now: f64, lease: u64, granted: Option<f64>) -> Output {
        let mut out = Output::default();
        let keep = Keep { lease, log: LOG, ttl: TTL, member: false, granted: granted.map(seconds) };
        self.core.keep(seconds(now), keep, &mut out).unwrap();
        out
    }

    fn tick(&mut self, now: f64) -> Output {
        let mut out = Output::default();
        self.core.tick(seconds(now), &mut out);
        out
    }

    fn ask(&mut self, now: f64, ask: Ask) -> (u64, Output) {
        let mut out = Output::default();
        (self.core.ask(seconds(now), ask, &mut out).unwrap(), out)
    }

    fn receive(&mut self, now: f64, tag: u64, message: Message) -> Output {
        let mut out = Output::default();
        self.core.received(seconds(now), self.link, v1::SubmitResponse { tag, message: Some(message) }, &mut out);
        out
    }

    fn relink(&mut self, now: f64, log: v1::LogId) -> Output {
        let mut out = Output::default();
        self.core.link_down(self.link);
        self.link = self.core.link_up(seconds(now), EPOCH, log, &mut out);
        out
    }
}

/// Returns the tag and the leases of the only message.
fn kept(out: &Output) -> (u64, Vec<u64>) {
    match out.sends.as_slice() {
        [SubmitRequest { tag, message: Some(Sent::LeaseKeepAlive(sent)), .. }] => (*tag, sent.leases.clone()),
        other => panic!("one keep-alive of leases, not {other:?}"),
    }
}

fn answer(leases: &[u64], state: State) -> Message {
    let kept = |lease: &u64| v1::LeaseKept { lease: *lease, state: state.into(), left_ms: 10_000 };
    Message::LeasesKept(v1::LeasesKept { leases: leases.iter().map(kept).collect() })
}

fn lost(out: &Output) -> Vec<(u64, ErrorCode)> {
    let lost = out.leases.iter().filter_map(|(lease, change)| match change {
        LeaseChange::Lost(error) => Some((*lease, error.code)),
        LeaseChange::Valid(_) => None,
    });
    lost.collect()
}

#[test]
fn le2_one_message_keeps_all_leases_alive() {
    let mut client = Client::linked();
    for (now, lease) in [(0.0, 1), (0.5, 2), (1.0, 3)] {
        assert_eq!(client.keep(now, lease, Some(now)).sends, [], "the grant itself confirms the lease");
    }
    assert_eq!(client.tick(3.0).sends, []);
    assert_eq!(kept(&client.tick(3.4)).1, [1, 2, 3], "those that are due soon are sent too");
    assert_eq!(client.tick(6.6).sends, []);
    assert_eq!(kept(&client.tick(6.8)).1, [1, 2, 3]);
}

#[test]
fn le3_a_lease_is_valid_from_the_sending_of_a_confirmed_keep_alive() {
    let mut client = Client::linked();
    assert_eq!(client.keep(1.0, 7, Some(0.5)).leases, [(7, LeaseChange::Valid(seconds(10.4)))], "0.5 + 10 - 1 %");
    let (tag, _) = kept(&client.tick(4.0));
    let out = client.receive(6.0, tag, answer(&[7], State::Kept));
    assert_eq!(out.leases, [(7, LeaseChange::Valid(seconds(13.9)))], "counted from 4 s, when it was sent");
    // The next two are not answered.
    let (late, _) = kept(&client.tick(7.4));
    client.tick(10.8);
    assert_eq!(lost(&client.tick(13.8)), []);
    assert_eq!(lost(&client.tick(13.9)), [(7, ErrorCode::Timeout)]);
    let out = client.receive(14.0, late, answer(&[7], State::Kept));
    assert_eq!(out.leases, [], "the loss is final");
    assert_eq!(client.tick(60.0).sends, [], "a lost lease is not kept alive");
}

#[test]
fn le3_a_grant_that_was_answered_late_needs_a_confirmation() {
    let mut client = Client::linked();
    let out = client.keep(12.0, 7, Some(1.0));
    assert_eq!(out.leases, [], "it may have expired at 11 s");
    let (tag, leases) = kept(&out);
    assert_eq!(leases, [7]);
    assert_eq!(lost(&client.tick(13.0)), []);
    let out = client.receive(13.0, tag, answer(&[7], State::Kept));
    assert_eq!(out.leases, [(7, LeaseChange::Valid(seconds(21.9)))]);
}

/// A lease of a member has no ttl, but its client must not rely on a log that confirms nothing (LE6).
#[test]
fn le6_a_lease_of_a_member_is_lost_if_the_log_confirms_nothing_for_the_heartbeat_timeout() {
    let mut client = Client::linked();
    let mut out = Output::default();
    let keep = Keep { lease: 7, log: LOG, ttl: TTL, member: true, granted: Some(seconds(0.0)) };
    client.core.keep(seconds(0.0), keep, &mut out).unwrap();
    let (tag, _) = kept(&client.tick(4.0));
    client.receive(5.0, tag, answer(&[7], State::Kept));
    // The link is there, and the leader does not answer.
    for now in [7.4, 10.8, 13.8] {
        assert_eq!(lost(&client.tick(now)), [], "{now}");
    }
    let out = client.tick(13.9);
    assert_eq!(lost(&out), [(7, ErrorCode::Timeout)]);
    let [(_, LeaseChange::Lost(error))] = &out.leases[..] else { panic!("{out:?}") };
    assert!(error.message.contains("the log confirmed nothing for 10 s"), "{error}");
}

#[test]
fn the_leader_ends_a_lease_and_a_new_link_renews_the_others() {
    let mut client = Client::linked();
    client.keep(0.0, 1, Some(0.0));
    client.keep(0.0, 2, Some(0.0));
    let (tag, _) = kept(&client.tick(4.0));
    assert_eq!(lost(&client.receive(4.1, tag, answer(&[1], State::Unknown))), [(1, ErrorCode::NotFound)]);
    let (tag, leases) = kept(&client.relink(5.0, LOG));
    assert_eq!(leases, [2], "at once, because the old leader may not have received the last one");
    let rejected = Message::Rejected(Error::new(ErrorCode::NotLeader, "no").into());
    assert!(client.receive(5.1, tag, rejected).relink.is_some());
    let other = v1::LogId { high: 0, low: 2 };
    assert_eq!(lost(&client.relink(6.0, other)), [(2, ErrorCode::NotFound)], "a restored log has no leases");
}

#[test]
fn a_dropped_lease_is_not_kept_alive() {
    let mut client = Client::linked();
    client.keep(0.0, 1, Some(0.0));
    client.core.stop_keeping(1);
    let out = client.tick(60.0);
    assert_eq!((out.sends, out.leases), (vec![], vec![]));
    assert!(!client.core.wants_link());
}

fn place(fence: u64) -> Ask {
    Ask::Place { name: "jobs".into(), election: false, lease: 5, fence }
}

fn changed(fence: u64) -> Message {
    Message::PlaceChanged(v1::PlaceChanged { fence })
}

#[test]
fn lo4_a_question_about_a_place_is_asked_again_over_every_link_until_it_is_answered() {
    let mut client = Client::linked();
    let (id, out) = client.ask(0.0, place(0));
    assert!(matches!(&out.sends[0].message, Some(Sent::AwaitPlace(asked)) if asked.fence == 0 && asked.lease == 5));
    let old = out.sends[0].tag;
    let out = client.relink(1.0, LOG);
    let tag = out.sends[0].tag;
    assert_eq!(client.receive(1.1, old, changed(9)).asked, [], "an answer of the old link");
    assert_eq!(client.receive(1.2, tag, changed(9)).asked, [(id, Ok(Asked::Place { fence: 9 }))]);
    assert_eq!(client.relink(2.0, LOG).sends, []);
}

#[test]
fn a_question_that_is_no_longer_wanted_has_no_answer() {
    let mut client = Client::linked();
    let (id, out) = client.ask(0.0, place(4));
    client.core.stop_asking(id);
    assert_eq!(client.receive(1.0, out.sends[0].tag, changed(0)).asked, []);
    assert!(!client.core.wants_link());
}

#[test]
fn a_busy_leader_is_asked_again_after_a_pause() {
    let mut client = Client::linked();
    let (id, out) = client.ask(0.0, place(4));
    let rejected = Message::Rejected(Error::new(ErrorCode::ResourceExhausted, "no").into());
    let out = client.receive(0.0, out.sends[0].tag, rejected);
    assert_eq!((out.asked.len(), out.sends.len()), (0, 0));
    let out = client.tick(1.0);
    assert_eq!(client.receive(1.1, out.sends[0].tag, changed(0)).asked, [(id, Ok(Asked::Place { fence: 0 }))]);
}

/// A node above its rate limits names the time after which it accepts requests again (AU20).
#[test]
fn a_busy_leader_is_not_asked_before_the_time_that_it_has_named() {
    let mut client = Client::linked();
    let (id, out) = client.ask(0.0, place(4));
    let busy = Error { retry_after_ms: Some(5_000), ..Error::new(ErrorCode::ResourceExhausted, "no") };
    client.receive(0.0, out.sends[0].tag, Message::Rejected(busy.into()));
    assert_eq!(client.tick(4.9).sends.len(), 0);
    let out = client.tick(7.0);
    assert_eq!(client.receive(7.1, out.sends[0].tag, changed(0)).asked, [(id, Ok(Asked::Place { fence: 0 }))]);
}

#[test]
fn a_place_belongs_to_its_log() {
    let mut client = Client::linked();
    let (id, _) = client.ask(0.0, place(4));
    let out = client.relink(1.0, v1::LogId { high: 0, low: 2 });
    assert!(matches!(out.asked.as_slice(), [(asked, Err(error))] if *asked == id && error.code == ErrorCode::NotFound));
}

/// A waiter may wait for hours, and a leader without a majority confirms no lease.
#[test]
fn waiting_for_a_place_is_no_doubt_about_the_leader_but_an_unconfirmed_lease_is() {
    let mut client = Client::linked();
    client.ask(0.0, place(0));
    assert_eq!(client.core.unanswered_since(), None);
    let (id, out) = client.ask(1.0, Ask::Renew { lease: 5 });
    assert_eq!(client.core.unanswered_since(), Some(seconds(1.0)));
    let left = Duration::from_millis(10_000);
    let out = client.receive(1.5, out.sends[0].tag, answer(&[5], State::Kept));
    assert_eq!(out.asked, [(id, Ok(Asked::Renewed { left }))]);
    assert_eq!(client.core.unanswered_since(), None);
    let (id, out) = client.ask(2.0, Ask::Renew { lease: 6 });
    let out = client.receive(2.5, out.sends[0].tag, answer(&[6], State::Unknown));
    assert!(matches!(out.asked.as_slice(), [(asked, Err(error))] if *asked == id && error.code == ErrorCode::NotFound));
}

#[test]
fn reached_limits_are_refused_and_counted() {
    let mut core = Core::new(fastrand::Rng::with_seed(1), |random| random.u128(..).to_le_bytes());
    let mut out = Output::default();
    let refused = |error: Error| assert_eq!(error.code, ErrorCode::ResourceExhausted);
    // In tests the limits are low.
    let limit = 100;
    for lease in 1..=limit {
        let keep = Keep { lease, log: LOG, ttl: TTL, member: false, granted: None };
        core.keep(Duration::ZERO, keep, &mut out).unwrap();
        core.ask(Duration::ZERO, Ask::Renew { lease }, &mut out).unwrap();
    }
    let keep = Keep { lease: limit + 1, log: LOG, ttl: TTL, member: false, granted: None };
    core.keep(Duration::ZERO, keep, &mut out).map_err(refused).unwrap_err();
    core.ask(Duration::ZERO, Ask::Renew { lease: 1 }, &mut out).map_err(refused).unwrap_err();
    let lane = core.lane(Options::default());
    let put = || {
        let value = vec![0; 64 * 1024 * 1024].into();
        Issuing::new(Body::Put(v1::PutKey { value, ..v1::PutKey::default() }))
    };
    for _ in 0..3 {
        core.issue(Duration::ZERO, lane, put(), String::new(), &mut out).unwrap();
    }
    core.issue(Duration::ZERO, lane, put(), String::new(), &mut out).map_err(refused).unwrap_err();
    let found = core.counters;
    assert_eq!((found.requests_refused, found.leases_refused, found.questions_refused), (1, 1, 1));
}
