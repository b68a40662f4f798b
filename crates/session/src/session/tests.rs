//! Stories of one session: the node is played by the test.

use crate::seeds::Seeds;
use crate::session::{ClientTime, Effect, Identity, OperationId, RegistrationId, Session};
use crate::{ConnectionState, Error, ErrorCode, MemberSpec, Update};
use convoke_proto::json::Liveness;
use convoke_proto::v1::{self, client_message::Message as ToNode, server_message::Message as FromNode};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

struct Story {
    session: Session,
    now: ClientTime,
    /// Effects not yet looked at.
    out: Vec<Effect>,
    connection: Option<crate::session::ConnectionId>,
}

impl Story {
    fn new() -> Story {
        let identity = Identity { client: "shop".into(), nonce: 7, liveness: Liveness::Normal, timeout: None };
        let seeds = Seeds::new(vec!["a:7700".into(), "b:7700".into()], None);
        let session = Session::new(identity, seeds, fastrand::Rng::with_seed(1), SECOND);
        Story { session, now: SECOND, out: Vec::new(), connection: None }
    }

    /// A story that starts attached, with these members.
    fn attached(ids: &[&str]) -> (Story, Vec<RegistrationId>) {
        let mut story = Story::new();
        let registrations = ids.iter().map(|id| story.register(id).1).collect();
        let attach = story.connect();
        story.accept(&attach);
        story.out.clear();
        (story, registrations)
    }

    fn register(&mut self, id: &str) -> (OperationId, RegistrationId) {
        self.session.register(MemberSpec::new(id, "s"), false, None).unwrap()
    }

    /// Lets time pass until the session connects, and returns its attach.
    fn connect(&mut self) -> v1::Attach {
        for _ in 0..10 {
            let connect = self.out.iter().rev().find_map(|effect| match effect {
                Effect::Connect { connection, .. } => Some(*connection),
                _ => None,
            });
            if let Some(connection) = connect.filter(|connection| Some(*connection) != self.connection) {
                self.connection = Some(connection);
                self.session.connected(self.now, connection, &mut self.out);
                return self.sent_attach();
            }
            self.now = self.session.next_wake().unwrap().max(self.now);
            self.session.wake(self.now, &mut self.out);
        }
        panic!("the session does not connect: {:?}", self.session);
    }

    fn sent(&mut self) -> Vec<ToNode> {
        self.session.flush(&mut self.out);
        let mut sent = Vec::new();
        self.out.retain(|effect| match effect {
            Effect::Send { message, .. } => {
                sent.extend(message.message.clone());
                false
            }
            _ => true,
        });
        sent
    }

    fn sent_attach(&mut self) -> v1::Attach {
        match self.sent().pop() {
            Some(ToNode::Attach(attach)) => attach,
            other => panic!("no attach: {other:?}"),
        }
    }

    fn requests(&mut self) -> Vec<v1::Request> {
        let requests = |message| match message {
            ToNode::Requests(requests) => requests.requests,
            _ => Vec::new(),
        };
        self.sent().into_iter().flat_map(requests).collect()
    }

    fn receive(&mut self, message: FromNode) {
        let connection = self.connection.unwrap();
        self.session.received(self.now, connection, v1::ServerMessage { message: Some(message) }, &mut self.out);
    }

    fn accept(&mut self, attach: &v1::Attach) {
        let versions = attach.members.iter().map(|register| v1::Versioned {
            id: register.member.as_ref().unwrap().id.clone(),
            version: format!("v{}", attach.claim),
        });
        self.receive(FromNode::Attached(v1::Attached {
            claim: attach.claim,
            node: "n1".into(),
            heartbeat_interval_ms: 5000,
            timeout_ms: 20_000,
            versions: versions.collect(),
            ..v1::Attached::default()
        }));
    }

    fn reject(&mut self, attach: &v1::Attach, error: Error) {
        self.receive(FromNode::AttachRejected(v1::AttachRejected { claim: attach.claim, error: Some(error.into()) }));
    }

    fn answer(&mut self, seq: u64, version: &str) {
        self.receive(FromNode::Answers(v1::Answers {
            answers: vec![v1::Answer { seq, version: version.into(), error: None }],
        }));
    }

    fn reject_request(&mut self, seq: u64, error: Error) {
        let answers = vec![v1::Answer { seq, version: String::new(), error: Some(error.into()) }];
        self.receive(FromNode::Answers(v1::Answers { answers }));
    }

    fn notice(&mut self, notice: v1::notice::Notice) {
        self.receive(FromNode::Notice(v1::Notice { notice: Some(notice) }));
    }

    fn lose(&mut self) {
        let connection = self.connection.unwrap();
        self.session.disconnected(self.now, connection, &Error::new(ErrorCode::NotReady, "reset"), &mut self.out);
    }

    /// The answer to an operation, once.
    fn done(&mut self, operation: OperationId) -> Option<Result<String, Error>> {
        let is = |effect: &Effect| matches!(effect, Effect::Done { operation: o, .. } if *o == operation);
        let at = self.out.iter().position(is)?;
        match self.out.remove(at) {
            Effect::Done { result, .. } => Some(result),
            _ => None,
        }
    }

    fn code(&mut self, operation: OperationId) -> Option<ErrorCode> {
        self.done(operation)?.err().map(|error| error.code)
    }

    fn ended(&self, registration: RegistrationId) -> Option<ErrorCode> {
        self.out.iter().find_map(|effect| match effect {
            Effect::Ended { registration: r, error } if *r == registration => Some(error.code),
            _ => None,
        })
    }

    fn disconnected(&self) -> bool {
        let state = self.out.iter().rev().find_map(|effect| match effect {
            Effect::State(state) => Some(state),
            _ => None,
        });
        matches!(state, Some(ConnectionState::Disconnected { .. }))
    }
}

fn ids(attach: &v1::Attach) -> Vec<&str> {
    attach.members.iter().map(|register| register.member.as_ref().unwrap().id.as_str()).collect()
}

fn stale(known: u64) -> Error {
    Error { known: Some(known), ..Error::new(ErrorCode::StaleClaim, "stale") }
}

#[test]
fn registrations_before_the_connection_are_sent_with_the_attach() {
    let mut story = Story::new();
    let (operation, _) = story.register("m1");
    let attach = story.connect();
    assert_eq!((attach.claim, attach.previous_claim, ids(&attach)), (1, 0, vec!["m1"]));
    assert_eq!(story.done(operation), None, "not before the node says so");
    story.accept(&attach);
    assert_eq!(story.done(operation), Some(Ok("v1".into())));
    assert!(story.requests().is_empty());
}

#[test]
fn several_operations_travel_in_one_message_and_are_answered_one_by_one() {
    let (mut story, _) = Story::attached(&[]);
    let (a, _) = story.register("a");
    let (b, _) = story.register("b");
    story.session.flush(&mut story.out);
    assert_eq!(story.out.len(), 1);
    let requests = story.requests();
    assert_eq!(requests.iter().map(|request| request.seq).collect::<Vec<_>>(), [1, 2]);
    story.answer(2, "v2");
    assert_eq!((story.done(a), story.done(b)), (None, Some(Ok("v2".into()))));
    story.answer(2, "v2");
    assert_eq!(story.done(b), None, "an answer counts once");
    story.answer(1, "v1");
    assert_eq!(story.done(a), Some(Ok("v1".into())));
}

#[test]
fn after_a_loss_everything_is_attached_again_with_a_higher_claim() {
    let (mut story, registrations) = Story::attached(&["m1", "m2"]);
    let update = story.session.update("m1", registrations[0], Update::merge().set("k", "v"), None).unwrap();
    assert_eq!(story.requests().len(), 1);
    story.lose();
    assert!(story.disconnected());
    let attach = story.connect();
    assert_eq!((attach.claim, attach.previous_claim, ids(&attach)), (2, 1, vec!["m1", "m2"]));
    assert_eq!(attach.members[0].member.as_ref().unwrap().metadata["k"], "v", "the update goes with it");
    story.accept(&attach);
    assert_eq!(story.done(update), Some(Ok("v2".into())));
    assert!(story.requests().is_empty(), "and is not sent again");
}

#[test]
fn an_answer_of_an_older_connection_or_attach_is_ignored() {
    let (mut story, _) = Story::attached(&["m1"]);
    let old = story.connection;
    story.lose();
    let attach = story.connect();
    let new = std::mem::replace(&mut story.connection, old);
    story.accept(&attach);
    assert!(matches!(story.session.phase, crate::session::Phase::Attaching { .. }));
    story.connection = new;
    story.accept(&v1::Attach { claim: 1, ..attach.clone() });
    assert!(matches!(story.session.phase, crate::session::Phase::Attaching { .. }));
    story.accept(&attach);
    assert!(matches!(story.session.phase, crate::session::Phase::Attached { .. }));
}

#[test]
fn a_stale_claim_is_raised_on_the_same_connection() {
    let mut story = Story::new();
    let (operation, _) = story.register("m1");
    let attach = story.connect();
    story.reject(&attach, stale(41));
    let again = story.sent_attach();
    assert_eq!((again.claim, ids(&again)), (42, vec!["m1"]));
    story.accept(&again);
    assert!(story.done(operation).unwrap().is_ok());
}

#[test]
fn a_node_that_answers_stale_for_ever_is_left() {
    let mut story = Story::new();
    let mut attach = story.connect();
    for _ in 0..50 {
        let known = attach.claim;
        story.reject(&attach, stale(known));
        if story.disconnected() {
            return;
        }
        attach = story.sent_attach();
        assert_eq!(attach.claim, known + 1);
    }
    panic!("it goes on for ever");
}

#[test]
fn a_stale_registration_attaches_the_whole_session_anew() {
    let (mut story, _) = Story::attached(&["m1"]);
    let (operation, _) = story.register("m2");
    let seq = story.requests()[0].seq;
    story.reject_request(seq, stale(9));
    let attach = story.sent_attach();
    assert_eq!((attach.claim, attach.previous_claim, ids(&attach)), (10, 1, vec!["m1", "m2"]));
    story.accept(&attach);
    assert_eq!(story.done(operation), Some(Ok("v10".into())));
}

#[test]
fn an_attach_on_the_same_stream_waits_for_what_is_under_way_and_names_its_outcome() {
    let (mut story, registrations) = Story::attached(&["m1"]);
    let (operation, _) = story.register("m2");
    let update = Update::merge().set("k", "v").if_version("v1");
    let conditional = story.session.update("m1", registrations[0], update, None).unwrap();
    let seqs: Vec<u64> = story.requests().iter().map(|request| request.seq).collect();
    story.reject_request(seqs[0], stale(9));
    let (late, _) = story.register("m3");
    assert!(story.sent().is_empty(), "nothing is sent in between");
    story.answer(seqs[1], "v2");
    assert_eq!(story.done(conditional), Some(Ok("v2".into())));
    let attach = story.sent_attach();
    assert_eq!((attach.claim, ids(&attach)), (10, vec!["m1", "m2", "m3"]));
    assert_eq!(attach.members[0].member.as_ref().unwrap().metadata["k"], "v", "what was acknowledged stays");
    story.accept(&attach);
    assert!(story.done(operation).unwrap().is_ok() && story.done(late).unwrap().is_ok());
}

#[test]
fn not_registered_means_attach_again_without_the_applications_help() {
    let (mut story, registrations) = Story::attached(&["m1"]);
    let update = story.session.update("m1", registrations[0], Update::merge().set("k", "v"), None).unwrap();
    let seq = story.requests()[0].seq;
    story.reject_request(seq, Error::new(ErrorCode::NotRegistered, "gone"));
    assert!(story.disconnected());
    let attach = story.connect();
    assert_eq!(ids(&attach), ["m1"]);
    story.accept(&attach);
    assert!(story.done(update).unwrap().is_ok());
}

#[test]
fn a_session_that_is_gone_is_noticed_by_its_heartbeat() {
    let (mut story, _) = Story::attached(&["m1"]);
    story.now = story.session.next_wake().unwrap();
    story.session.wake(story.now, &mut story.out);
    let sent = match story.sent().pop() {
        Some(ToNode::Heartbeat(heartbeat)) => heartbeat.sent,
        other => panic!("no heartbeat: {other:?}"),
    };
    let error = Some(Error::new(ErrorCode::SessionGone, "gone").into());
    story.receive(FromNode::HeartbeatAck(v1::HeartbeatAck { sent, error, spread_ms: 0 }));
    assert!(story.disconnected());
    assert_eq!(ids(&story.connect()), ["m1"]);
}

#[test]
fn the_reconnect_delay_grows_with_the_number_of_clients() {
    let (mut story, _) = Story::attached(&[]);
    let pauses = (0..100).map(|_| {
        story.receive(FromNode::HeartbeatAck(v1::HeartbeatAck { sent: 1, error: None, spread_ms: 4_000 }));
        story.lose();
        let pause = story.session.next_wake().unwrap() - story.now;
        let attach = story.connect();
        story.accept(&attach);
        pause
    });
    let longest = pauses.max().unwrap();
    assert!(longest > Duration::from_secs(3) && longest <= Duration::from_secs(4), "{longest:?}");
}

#[test]
fn heartbeats_that_are_not_answered_end_the_connection_and_old_echoes_do_not_help() {
    let (mut story, _) = Story::attached(&[]);
    let start = story.now;
    for _ in 0..3 {
        story.now = story.session.next_wake().unwrap();
        story.session.wake(story.now, &mut story.out);
        // An echo of long ago arrives again and again.
        story.receive(FromNode::HeartbeatAck(v1::HeartbeatAck { sent: 1, ..Default::default() }));
    }
    assert!(story.disconnected());
    assert!(story.now - start <= Duration::from_secs(15));
}

#[test]
fn answered_heartbeats_keep_it_alive() {
    let (mut story, _) = Story::attached(&[]);
    for _ in 0..100 {
        story.now = story.session.next_wake().unwrap();
        story.session.wake(story.now, &mut story.out);
        let Some(ToNode::Heartbeat(heartbeat)) = story.sent().pop() else { panic!("no heartbeat") };
        story.now += Duration::from_millis(900);
        story.receive(FromNode::HeartbeatAck(v1::HeartbeatAck { sent: heartbeat.sent, ..Default::default() }));
    }
    assert!(!story.disconnected());
}

#[test]
fn a_member_taken_over_is_reported_and_not_registered_again() {
    let (mut story, registrations) = Story::attached(&["m1", "m2"]);
    let update = story.session.update("m1", registrations[0], Update::merge().set("k", "v"), None).unwrap();
    story.notice(v1::notice::Notice::TakenOver(v1::notice::TakenOver { id: "m1".into() }));
    assert_eq!(story.ended(registrations[0]), Some(ErrorCode::TakenOver));
    assert_eq!(story.code(update), Some(ErrorCode::TakenOver));
    assert_eq!(story.ended(registrations[1]), None);
    let rejected = story.session.update("m1", registrations[0], Update::merge(), None).unwrap_err();
    assert_eq!(rejected.code, ErrorCode::NotRegistered);
    story.lose();
    assert_eq!(ids(&story.connect()), ["m2"]);
}

#[test]
fn a_member_lost_while_disconnected_is_reported_as_taken_over() {
    let (mut story, registrations) = Story::attached(&["m1"]);
    story.lose();
    let attach = story.connect();
    let error = Some(Error::new(ErrorCode::AlreadyRegistered, "taken").into());
    story.receive(FromNode::Attached(v1::Attached {
        claim: attach.claim,
        rejected: vec![v1::RejectedMember { id: "m1".into(), error }],
        ..v1::Attached::default()
    }));
    assert_eq!(story.ended(registrations[0]), Some(ErrorCode::TakenOver));
    story.lose();
    assert!(ids(&story.connect()).is_empty());
}

#[test]
fn registering_what_another_client_holds_is_rejected_to_the_caller_only() {
    let (mut story, _) = Story::attached(&["m1"]);
    let (operation, registration) = story.register("m2");
    let seq = story.requests()[0].seq;
    story.reject_request(seq, Error::new(ErrorCode::AlreadyRegistered, "taken").field("id"));
    assert_eq!(story.code(operation), Some(ErrorCode::AlreadyRegistered));
    assert_eq!(story.ended(registration), None, "it never began");
    story.lose();
    assert_eq!(ids(&story.connect()), ["m1"]);
}

/// Found by the simulator: the session attached again for ever, as fast as the node answered.
#[test]
fn unregistering_an_unsent_member_of_another_client_ends_at_once() {
    let (mut story, _) = Story::attached(&["a"]);
    let (_, registration) = story.register("b");
    let operation = story.session.unregister("b", registration, None, &mut story.out).unwrap();
    let requests = story.requests();
    assert_eq!(requests.len(), 1, "{requests:?}");
    story.reject_request(requests[0].seq, Error::new(ErrorCode::AlreadyRegistered, "of another client"));
    assert_eq!(story.done(operation), Some(Ok(String::new())));
    assert!(story.sent().is_empty(), "there is nothing that an attach could say");
}

#[test]
fn one_bad_member_does_not_keep_the_others_out() {
    let (mut story, _) = Story::attached(&["good"]);
    story.lose();
    let (bad, _) = story.register("bad");
    let (fine, _) = story.register("fine");
    let attach = story.connect();
    assert_eq!(ids(&attach), ["bad", "fine", "good"]);
    story.reject(&attach, Error::new(ErrorCode::InvalidMember, "control character").field("service"));
    let careful = story.sent_attach();
    assert_eq!(ids(&careful), ["good"], "only what was accepted before");
    story.accept(&careful);
    let requests = story.requests();
    assert_eq!(requests.len(), 2, "the rest is asked for one by one");
    story.reject_request(requests[0].seq, Error::new(ErrorCode::InvalidMember, "control character").field("service"));
    story.answer(requests[1].seq, "v");
    assert_eq!(story.code(bad), Some(ErrorCode::InvalidMember));
    assert_eq!(story.done(fine), Some(Ok("v".into())));
    story.lose();
    assert_eq!(ids(&story.connect()), ["fine", "good"]);
}

#[test]
fn a_rejected_update_is_not_wanted_any_more() {
    let (mut story, registrations) = Story::attached(&["m1"]);
    let first = story.session.update("m1", registrations[0], Update::merge().set("a", "1"), None).unwrap();
    let bad = story.session.update("m1", registrations[0], Update::merge().set("b", "x".repeat(9999)), None).unwrap();
    let last = story.session.update("m1", registrations[0], Update::merge().set("c", "3"), None).unwrap();
    let seqs: Vec<u64> = story.requests().iter().map(|request| request.seq).collect();
    story.answer(seqs[0], "v2");
    story.reject_request(seqs[1], Error::new(ErrorCode::TooLarge, "large").field("metadata"));
    story.answer(seqs[2], "v3");
    assert!(story.done(first).unwrap().is_ok());
    assert_eq!(story.code(bad), Some(ErrorCode::TooLarge));
    assert!(story.done(last).unwrap().is_ok());
    story.lose();
    let attach = story.connect();
    let metadata = &attach.members[0].member.as_ref().unwrap().metadata;
    assert_eq!(metadata.keys().collect::<Vec<_>>(), ["a", "c"]);
}

#[test]
fn a_conditional_update_is_not_repeated_after_a_loss() {
    let (mut story, registrations) = Story::attached(&["m1"]);
    let update = Update::merge().set("k", "v").if_version("v1");
    let operation = story.session.update("m1", registrations[0], update, None).unwrap();
    assert_eq!(story.requests().len(), 1);
    story.lose();
    assert_eq!(story.code(operation), Some(ErrorCode::OutcomeUnknown));
    let attach = story.connect();
    assert!(attach.members[0].member.as_ref().unwrap().metadata.is_empty());
}

#[test]
fn an_unanswered_unregistration_is_repeated() {
    let (mut story, registrations) = Story::attached(&["m1"]);
    let operation = story.session.unregister("m1", registrations[0], None, &mut story.out).unwrap();
    assert_eq!(story.requests().len(), 1);
    story.lose();
    let attach = story.connect();
    assert_eq!((ids(&attach), attach.unregistered.as_slice()), (vec![], ["m1".to_owned()].as_slice()));
    story.accept(&attach);
    assert_eq!(story.done(operation), Some(Ok(String::new())));
    story.lose();
    assert!(story.connect().unregistered.is_empty(), "said and done");
}

/// Found by the simulator: the session attached again for ever, a thousand times a second.
#[test]
fn unregistering_a_member_of_another_client_ends() {
    let mut story = Story::new();
    let (registered, registration) = story.register("m1");
    let operation = story.session.unregister("m1", registration, None, &mut story.out).unwrap();
    assert_eq!(story.code(registered), Some(ErrorCode::NotRegistered), "it was never sent");
    let attach = story.connect();
    assert!(attach.unregistered.is_empty() && attach.members.is_empty());
    story.accept(&attach);
    let requests = story.requests();
    if let [request] = requests.as_slice() {
        story.reject_request(request.seq, Error::new(ErrorCode::PermissionDenied, "another client's"));
    }
    assert!(story.sent().is_empty(), "no second attach");
    assert_eq!(story.done(operation), Some(Ok(String::new())));
}

#[test]
fn registering_again_what_is_being_unregistered_keeps_it() {
    let (mut story, registrations) = Story::attached(&["m1"]);
    let gone = story.session.unregister("m1", registrations[0], None, &mut story.out).unwrap();
    let (again, _) = story.register("m1");
    story.lose();
    let attach = story.connect();
    assert_eq!((ids(&attach), attach.unregistered.len()), (vec!["m1"], 0));
    story.accept(&attach);
    assert!(story.done(gone).unwrap().is_ok());
    assert!(story.done(again).unwrap().is_ok());
    assert!(story.requests().is_empty());
}

#[test]
fn an_operation_not_sent_in_time_is_withdrawn() {
    let mut story = Story::new();
    let deadline = story.now + SECOND;
    let (operation, _) = story.session.register(MemberSpec::new("m1", "s"), false, Some(deadline)).unwrap();
    story.now = deadline;
    story.session.wake(story.now, &mut story.out);
    assert_eq!(story.code(operation), Some(ErrorCode::Timeout));
    assert!(ids(&story.connect()).is_empty());
}

#[test]
fn a_registration_sent_but_not_answered_in_time_is_unregistered() {
    let (mut story, _) = Story::attached(&[]);
    let deadline = story.now + SECOND;
    let (operation, _) = story.session.register(MemberSpec::new("m1", "s"), false, Some(deadline)).unwrap();
    assert_eq!(story.requests().len(), 1);
    story.now = deadline;
    story.session.wake(story.now, &mut story.out);
    assert_eq!(story.code(operation), Some(ErrorCode::OutcomeUnknown));
    let requests = story.requests();
    assert!(matches!(&requests[0].operation, Some(v1::request::Operation::Unregister(u)) if u.id == "m1"));
}

#[test]
fn another_process_with_the_same_client_id_wins_after_a_second_look() {
    let (mut story, registrations) = Story::attached(&["m1"]);
    story.notice(v1::notice::Notice::Superseded(v1::notice::Superseded { known: 5 }));
    let waited = story.session.next_wake().unwrap() - story.now;
    assert_eq!(waited, Duration::from_secs(25), "longer than the other one could be silent");
    for _ in 0..2 {
        assert_eq!(story.ended(registrations[0]), None);
        let attach = story.connect();
        assert_eq!(ids(&attach), ["m1"]);
        story.reject(&attach, Error::new(ErrorCode::Superseded, "other"));
    }
    assert_eq!(story.ended(registrations[0]), Some(ErrorCode::Superseded));
    let rejected = story.session.register(MemberSpec::new("m2", "s"), false, None).unwrap_err();
    assert_eq!(rejected.code, ErrorCode::Superseded);
    // Watches still want a connection.
    story.now = story.session.next_wake().unwrap();
    story.session.wake(story.now, &mut story.out);
    assert!(matches!(story.out.last(), Some(Effect::Connect { attach: false, .. })));
}

#[test]
fn old_notices_are_not_about_this_session() {
    let (mut story, _) = Story::attached(&["m1"]);
    story.lose();
    let attach = story.connect();
    story.accept(&attach);
    story.out.clear();
    story.notice(v1::notice::Notice::Lost(v1::notice::Lost { known: 1 }));
    story.notice(v1::notice::Notice::Superseded(v1::notice::Superseded { known: 1 }));
    assert!(story.out.is_empty());
    story.notice(v1::notice::Notice::Lost(v1::notice::Lost { known: 8 }));
    assert!(story.disconnected());
    assert_eq!(story.connect().claim, 9);
}

#[test]
fn a_handover_names_the_next_node() {
    let (mut story, _) = Story::attached(&["m1"]);
    // One of many clients; but a node that stops tells its clients little by little.
    story.receive(FromNode::HeartbeatAck(v1::HeartbeatAck { sent: 1, error: None, spread_ms: 8_000 }));
    let handover = v1::notice::Handover { node: "n9".into(), address: "c:7700".into() };
    story.notice(v1::notice::Notice::Handover(handover));
    let pause = story.session.next_wake().unwrap() - story.now;
    assert!(pause <= Duration::from_millis(500));
    story.connect();
    let address = story.out.iter().rev().find_map(|effect| match effect {
        Effect::Connect { address, .. } => Some(address.as_str()),
        _ => None,
    });
    assert_eq!(address, Some("c:7700"));
}

#[test]
fn closing_unregisters_everything_even_across_a_loss() {
    let (mut story, _) = Story::attached(&["m1"]);
    story.session.close(story.now, &mut story.out);
    assert!(matches!(story.sent().pop(), Some(ToNode::Close(_))));
    story.lose();
    assert!(!story.out.contains(&Effect::Closed));
    let attach = story.connect();
    assert_eq!((ids(&attach).len(), attach.unregistered.len()), (0, 1));
    story.accept(&attach);
    assert!(matches!(story.sent().pop(), Some(ToNode::Close(_))));
    story.receive(FromNode::Closed(v1::Closed { error: None }));
    assert!(story.out.contains(&Effect::Closed));
    assert_eq!(story.session.next_wake(), None);
    assert_eq!(
        story.session.register(MemberSpec::new("m", "s"), false, None).unwrap_err().code,
        ErrorCode::FailedPrecondition
    );
}

#[test]
fn closing_without_members_needs_no_node() {
    let mut story = Story::new();
    let (operation, _) = story.register("m1");
    story.session.close(story.now, &mut story.out);
    assert_eq!(story.code(operation), Some(ErrorCode::NotRegistered));
    assert!(story.out.contains(&Effect::Closed));
}

#[test]
fn a_large_attach_comes_in_parts() {
    let mut story = Story::new();
    for index in 0..300 {
        let spec = MemberSpec::new(format!("m{index:03}"), "s").metadata("k", "x".repeat(15_000));
        story.session.register(spec, false, None).unwrap();
    }
    story.now = story.session.next_wake().unwrap();
    story.session.wake(story.now, &mut story.out);
    story.session.connected(story.now, crate::session::ConnectionId(601), &mut story.out);
    let parts: Vec<v1::Attach> = story
        .sent()
        .into_iter()
        .map(|message| match message {
            ToNode::Attach(attach) => attach,
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(parts.len() > 3);
    assert!(parts.iter().all(|part| prost::Message::encoded_len(part) < convoke_proto::MESSAGE_BYTES_MAX));
    assert_eq!(parts.iter().map(|part| part.members.len()).sum::<usize>(), 300);
    assert!(parts.iter().rev().skip(1).all(|part| part.more) && !parts.last().unwrap().more);
}

/// Nodes reject messages with too many elements before they decode them.
#[test]
fn many_small_members_come_in_parts() {
    let mut story = Story::new();
    for index in 0..6_000 {
        let spec = MemberSpec::new(format!("m{index}"), "s").metadata("k", "v").metadata("l", "v");
        story.session.register(spec, false, None).unwrap();
    }
    story.now = story.session.next_wake().unwrap();
    story.session.wake(story.now, &mut story.out);
    story.session.connected(story.now, crate::session::ConnectionId(12_001), &mut story.out);
    let (mut members, mut parts) = (0, 0);
    for message in story.sent() {
        let ToNode::Attach(part) = message else { panic!("{message:?}") };
        let elements: usize = part.members.iter().map(convoke_proto::of_register).sum();
        assert!(elements <= convoke_proto::PART_ELEMENTS, "{elements}");
        members += part.members.len();
        parts += 1;
    }
    assert_eq!((members, parts), (6_000, 3));
}

/// The parts of an attach of about so many MiB.
fn connect_with(story: &mut Story, mebibytes: usize) -> Vec<v1::Attach> {
    for index in 0..mebibytes * 64 {
        let spec = MemberSpec::new(format!("m{index:05}"), "s").metadata("k", "x".repeat(16_000));
        story.session.register(spec, false, None).unwrap();
    }
    story.now = story.session.next_wake().unwrap();
    story.session.wake(story.now, &mut story.out);
    let connect = story.out.iter().find_map(|effect| match effect {
        Effect::Connect { connection, .. } => Some(*connection),
        _ => None,
    });
    story.connection = connect;
    story.session.connected(story.now, connect.unwrap(), &mut story.out);
    let parts = story.sent().into_iter().map(|message| match message {
        ToNode::Attach(attach) => attach,
        other => panic!("{other:?}"),
    });
    parts.collect()
}

#[test]
fn a_large_attach_may_take_longer() {
    let mut story = Story::new();
    let parts = connect_with(&mut story, 10);
    let until = story.session.next_wake().unwrap();
    assert_eq!(until - story.now, Duration::from_secs(10) + (parts.len() as u32 - 1) * Duration::from_secs(2));
    assert!(until - story.now >= Duration::from_secs(28));
    story.now = until - Duration::from_millis(1);
    story.session.wake(story.now, &mut story.out);
    assert!(!story.disconnected(), "a slow link is no silence");
    let members = parts.iter().flat_map(|part| part.members.clone()).collect();
    story.accept(&v1::Attach { members, ..parts[0].clone() });
    // How long the attach took is not held against the node: it is asked at once, and has its two intervals.
    for _ in 0..2 {
        story.now = story.session.next_wake().unwrap();
        story.session.wake(story.now, &mut story.out);
        assert!(!story.disconnected());
        assert!(matches!(story.sent().pop(), Some(ToNode::Heartbeat(_))));
    }
    story.now = story.session.next_wake().unwrap();
    story.session.wake(story.now, &mut story.out);
    assert!(story.disconnected());
    assert!(story.now <= until + Duration::from_secs(10));
}

#[test]
fn short_intervals_do_not_shorten_the_time_for_answers() {
    let (mut story, _) = Story::attached(&["m1"]);
    story.lose();
    let attach = story.connect();
    story.receive(FromNode::Attached(v1::Attached {
        claim: attach.claim,
        heartbeat_interval_ms: 300,
        timeout_ms: 1_000,
        ..v1::Attached::default()
    }));
    story.lose();
    let attach = story.connect();
    let answer_time = Duration::from_secs(10);
    assert_eq!(story.session.next_wake(), Some(story.now + answer_time));
    story.accept(&attach);
    story.session.close(story.now, &mut story.out);
    assert_eq!(story.session.next_wake(), Some(story.now + answer_time));
}

#[test]
fn a_rejected_client_id_fails_waiting_calls() {
    let mut story = Story::new();
    let (operation, _) = story.register("m1");
    let attach = story.connect();
    story.reject(&attach, Error::new(ErrorCode::InvalidArgument, "client has a control character").field("client"));
    assert_eq!(story.code(operation), Some(ErrorCode::InvalidArgument));
    assert!(story.disconnected(), "and it is tried again: the node may be mended");
}
