//! The steps of a request at a node.

#![allow(clippy::unwrap_used, clippy::panic, reason = "in a test a panic is the message")]

mod parallel;

use convoke_core::member::{Liveness, MetadataUpdate};
use convoke_core::node::{
    ClientOperation, ConnId, Coverage, Notice, OperationResult, PeerState, Reattach, SessionOwner, Start,
};
use convoke_core::version::{Dot, Incarnation, NodeId, OriginId, Version};
use convoke_core::{Config, ErrorCode, Node, Output, Rejection, Time};
use convoke_http_session::{
    ClientOrder, FlowSettings, Forwarded, Mutation, RequestFlow, Secret, SessionEntry, SessionError, SessionOperation,
    SessionReply, SessionToken, Step,
};
use std::sync::Arc;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(2);
const NOW: Time = Time::from_secs(61);

fn secret(random: u8, liveness: Liveness) -> Secret {
    Secret::new(Some("shop"), liveness, 0, &creator(), [random; 16])
}

/// The node of [`Shell`].
fn creator() -> OriginId {
    OriginId { node: NodeId::new("n1").unwrap(), incarnation: Incarnation { number: 1, nonce: 1 } }
}

fn request(operation: SessionOperation) -> RequestFlow {
    new(secret(1, Liveness::Normal), operation, false)
}

fn new(secret: Secret, operation: SessionOperation, forwarded: bool) -> RequestFlow {
    RequestFlow::new(secret, operation, ClientOrder::default(), forwarded, settings())
}

fn settings() -> FlowSettings {
    FlowSettings { forward_timeout: TIMEOUT, session_timeout: 10 * TIMEOUT, mutation: Mutation::none() }
}

fn ordered(operation: SessionOperation, number: Option<u64>, token: Option<SessionToken>) -> RequestFlow {
    let order = ClientOrder { number, tokens: token.into_iter().collect() };
    RequestFlow::new(secret(1, Liveness::Normal), operation, order, false, settings())
}

/// A write of another node.
fn foreign() -> Dot {
    let incarnation = Incarnation { number: 1, nonce: 2 };
    Dot { origin: OriginId { node: NodeId::new("n2").unwrap(), incarnation }, n: 7 }
}

fn owner(state: PeerState) -> Option<SessionOwner> {
    Some(SessionOwner {
        node: NodeId::new("n2").unwrap(),
        client_address: "h2:1".to_owned(),
        state,
        origin: foreign().origin,
    })
}

fn register(id: &str) -> SessionOperation {
    let spec = convoke_core::member::MemberSpec::new(id, "s");
    SessionOperation::Register(Arc::new(convoke_core::node::AttachMember { spec, takeover: false }))
}

fn rejection(step: Step) -> ErrorCode {
    match step {
        Step::Finish { result: Err(SessionError::Rejected(rejection)), .. } => rejection.code,
        other => panic!("{other:?}"),
    }
}

/// A node without peers, and the entry of one session.
struct Shell {
    node: Node,
    entry: SessionEntry,
    out: Output,
    conn: u64,
    /// Of the last answer.
    token: SessionToken,
}

impl Shell {
    fn new() -> Self {
        let mut config = Config::new(NodeId::new("n1").unwrap());
        config.client_address = "h1:1".to_owned();
        let mut node = Node::new(config, Start { nonce: 1, ..Start::default() }, Time::ZERO).unwrap();
        let mut out = Output::default();
        node.begin(Time::ZERO, &mut out);
        node.wake(Time::from_secs(60), &mut out);
        assert!(node.is_serving());
        let mut shell = Shell { node, entry: SessionEntry::default(), out, conn: 0, token: SessionToken::default() };
        let create = RequestFlow::create(secret(1, Liveness::Normal), settings());
        assert!(matches!(shell.drive(create), Step::Finish { result: Ok(_), .. }));
        shell
    }

    fn run(&mut self, operation: SessionOperation) -> Step {
        self.drive(request(operation))
    }

    fn drive(&mut self, mut request: RequestFlow) -> Step {
        let step = request.begin();
        self.go_on(&mut request, step)
    }

    /// Carries out the steps until the end.
    fn go_on(&mut self, request: &mut RequestFlow, mut step: Step) -> Step {
        loop {
            step = match self.until_submitted(request, step) {
                Step::Submit(calls) => {
                    let results = self.execute(calls);
                    request.answered(results, self.node.last_dot(), false)
                }
                other => {
                    self.token = request.token().clone();
                    return other;
                }
            }
        }
    }

    fn execute(&mut self, calls: [Option<ClientOperation>; 2]) -> Vec<Result<Option<Version>, Rejection>> {
        calls.into_iter().flatten().map(|call| self.call(NOW, &call)).collect()
    }

    /// Carries out the steps until the calls are submitted.
    fn until_submitted(&mut self, request: &mut RequestFlow, mut step: Step) -> Step {
        loop {
            step = match step {
                Step::Enter { .. } | Step::Reenter => request.entered(NOW, &mut self.entry),
                Step::Attach(attaching) => {
                    let reattach: Reattach = attaching.with(3);
                    self.conn += 1;
                    let result = self.node.reattach(NOW, ConnId(self.conn), &reattach, &mut self.out);
                    request.attached(NOW, &mut self.entry, result)
                }
                Step::AskOwner { client, nonce, creator } => {
                    request.owner(NOW, self.node.owner_of_session(&client, nonce, Some(&creator)))
                }
                Step::Search { dots, search } => {
                    let (coverage, kept) = self.node.search(NOW, &dots, search, &mut self.out).unwrap();
                    request.searched(NOW, coverage, kept)
                }
                other => return other,
            }
        }
    }

    fn call(&mut self, now: Time, call: &ClientOperation) -> Result<Option<Version>, Rejection> {
        match self.node.execute(now, ConnId(self.conn), call, &mut self.out) {
            OperationResult::Written(result) => result.map(Some),
            OperationResult::Unregistered(result) => result.map(|_| None),
            OperationResult::Heartbeat(result) => result.map(|()| None),
            OperationResult::Attached(result) => result.map(|_| None),
        }
    }
}

#[test]
fn a_session_that_is_attached_here_is_served_here() {
    let mut shell = Shell::new();
    assert!(matches!(shell.run(register("m")), Step::Finish { result: Ok(answer), remove: false }
        if matches!(answer.reply, SessionReply::Written(_)) && answer.members.is_none()));
    assert!(matches!(shell.run(SessionOperation::Heartbeat), Step::Finish { result: Ok(_), remove: false }));
    assert!(matches!(shell.run(SessionOperation::Close), Step::Finish { result: Ok(_), remove: true }));
}

#[test]
fn a_lost_session_is_attached_again_with_its_members() {
    let mut shell = Shell::new();
    shell.run(register("m"));
    shell.entry.closed();
    let Step::Finish { result: Ok(answer), .. } = shell.run(SessionOperation::Heartbeat) else { panic!("not served") };
    assert_eq!(answer.members, Some(vec!["m".to_owned()]));
}

#[test]
fn a_session_without_members_is_gone_with_its_node() {
    let mut shell = Shell::new();
    shell.run(SessionOperation::Close);
    shell.entry.closed();
    assert_eq!(rejection(shell.run(SessionOperation::Heartbeat)), ErrorCode::SessionGone);
}

#[test]
fn another_secret_is_another_session() {
    let mut shell = Shell::new();
    shell.run(register("m"));
    shell.entry = SessionEntry::default();
    let update = MetadataUpdate::set("v", "1".to_owned());
    let operation = SessionOperation::Update { id: "m".to_owned(), update: Arc::new(update), expected: None };
    let forged = new(secret(2, Liveness::Normal), operation, false);
    assert_eq!(rejection(shell.drive(forged)), ErrorCode::Superseded);
    assert!(shell.node.member("m").unwrap().metadata().get("v").is_none());
}

#[test]
fn a_stopping_node_names_another() {
    let mut shell = Shell::new();
    shell.entry.notice(Notice::Handover { target: None });
    assert_eq!(rejection(shell.run(SessionOperation::Heartbeat)), ErrorCode::NotReady);
}

#[test]
fn a_member_that_was_taken_is_reported_as_taken() {
    let mut shell = Shell::new();
    shell.run(register("m"));
    shell.entry.notice(Notice::TakenOver { id: "m".to_owned(), last: true });
    let mut request = request(SessionOperation::Unregister("m".to_owned()));
    let Step::Submit(_) = request.entered(Time::ZERO, &mut shell.entry) else { panic!("not submitted") };
    let denied = Rejection::new(ErrorCode::PermissionDenied, "held by another client");
    assert!(matches!(request.answered([Ok(None), Err(denied)], foreign(), false), Step::Reenter));
    assert_eq!(rejection(request.entered(Time::ZERO, &mut shell.entry)), ErrorCode::TakenOver);
}

#[test]
fn the_node_that_holds_the_session_gets_the_request() {
    let mut request = request(SessionOperation::Heartbeat);
    assert!(matches!(request.begin(), Step::Enter { make: false }));
    assert!(matches!(request.absent(Time::ZERO), Step::AskOwner { .. }));
    let Step::Forward { owner, deadline } = request.owner(Time::ZERO, owner(PeerState::Up)) else {
        panic!("not forwarded")
    };
    assert_eq!((owner.node.as_str(), deadline), ("n2", Time::ZERO + TIMEOUT));
    assert!(matches!(request.forwarded(Time::ZERO, Forwarded::with_status(200)), Step::Relay));
}

#[test]
fn a_request_is_forwarded_once_only_and_not_with_fast_liveness() {
    for (liveness, forwarded) in [(Liveness::Normal, true), (Liveness::Fast, false)] {
        let mut request = new(secret(1, liveness), SessionOperation::Heartbeat, forwarded);
        assert!(matches!(request.absent(Time::ZERO), Step::Enter { make: true }));
    }
}

#[test]
fn a_node_that_takes_no_clients_or_is_lost_is_replaced() {
    let mut declined = request(SessionOperation::Heartbeat);
    declined.absent(Time::ZERO);
    declined.owner(Time::ZERO, owner(PeerState::Up));
    assert!(matches!(declined.forwarded(Time::ZERO, Forwarded::with_status(503)), Step::Enter { make: true }));
    let mut lost = request(SessionOperation::Heartbeat);
    lost.absent(Time::ZERO);
    let step = lost.owner(Time::ZERO, owner(PeerState::Lost));
    assert!(matches!(step, Step::Search { .. }), "other nodes may have a link to it: {step:?}");
    assert!(matches!(lost.searched(Time::ZERO, Coverage::Missing, Vec::new()), Step::Enter { make: true }));
    let mut linked = request(SessionOperation::Heartbeat);
    linked.absent(Time::ZERO);
    linked.owner(Time::ZERO, owner(PeerState::Lost));
    assert_eq!(rejection(linked.searched(Time::ZERO, Coverage::Expected(1), Vec::new())), ErrorCode::NotReady);
}

#[test]
fn an_owner_that_does_not_answer_is_asked_again_until_the_deadline() {
    for (outcome, unknown) in [(Forwarded::Unreached, false), (Forwarded::Unanswered, true)] {
        let mut request = request(SessionOperation::Heartbeat);
        request.absent(Time::ZERO);
        let mut now = Time::ZERO;
        let mut sent = 0;
        let result = loop {
            match request.owner(now, owner(PeerState::Up)) {
                Step::Forward { .. } => {
                    sent += 1;
                    let Step::Wait { until } = request.forwarded(now, outcome) else { panic!("does not wait") };
                    now = until;
                }
                Step::Wait { until } => now = until,
                Step::Finish { result, .. } => break result,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(now, Time::ZERO + TIMEOUT);
        assert_eq!(matches!(result, Err(SessionError::OutcomeUnknown { .. })), unknown);
        assert_eq!(sent == 1, unknown, "a request that may have been executed is not sent twice");
    }
}

#[test]
fn a_request_that_may_have_been_executed_is_not_rejected() {
    let mut shell = Shell::new();
    let mut request = request(register("m"));
    request.absent(Time::ZERO);
    request.owner(Time::ZERO, owner(PeerState::Up));
    request.forwarded(Time::ZERO, Forwarded::Unanswered);
    let step = request.owner(Time::from_secs(1), owner(PeerState::Lost));
    assert!(matches!(step, Step::Enter { make: true }), "its owner is lost: {step:?}");
    let Step::Submit(_) = request.entered(Time::from_secs(1), &mut shell.entry) else { panic!("not submitted") };
    request.answered([Err(Rejection::new(ErrorCode::NotRegistered, "not registered"))], foreign(), false);
    let step = request.entered(Time::from_secs(1), &mut shell.entry);
    assert!(matches!(step, Step::Finish { result: Err(SessionError::OutcomeUnknown { .. }), .. }), "{step:?}");
}

/// A queue or the table of sessions can be full at any step. After an unanswered forward, the outcome is unknown.
#[test]
fn a_failed_step_rejects_unless_the_owner_may_have_executed_the_request() {
    let full = || Rejection::new(ErrorCode::ResourceExhausted, "this node has reached its limit");
    let mut request = request(register("m"));
    assert_eq!(rejection(request.failed(full())), ErrorCode::ResourceExhausted);
    request.absent(Time::ZERO);
    assert_eq!(rejection(request.failed(full())), ErrorCode::ResourceExhausted);
    request.owner(Time::ZERO, owner(PeerState::Up));
    request.forwarded(Time::ZERO, Forwarded::Unanswered);
    request.owner(Time::from_secs(1), owner(PeerState::Lost));
    let step = request.failed(full());
    assert!(
        matches!(step, Step::Finish { result: Err(SessionError::OutcomeUnknown { .. }), remove: false }),
        "{step:?}"
    );
}

fn patch(value: &str) -> SessionOperation {
    let update = Arc::new(MetadataUpdate::set("v", value.to_owned()));
    SessionOperation::Update { id: "m".to_owned(), update, expected: None }
}

#[test]
fn a_lower_number_changes_nothing_and_an_equal_one_returns_the_first_result() {
    let mut shell = Shell::new();
    shell.drive(ordered(register("m"), Some(1), None));
    let first = shell.drive(ordered(patch("5"), Some(5), None));
    let Step::Finish { result: Ok(first), .. } = first else { panic!("{first:?}") };
    let again = shell.drive(ordered(patch("again"), Some(5), None));
    assert!(matches!(again, Step::Finish { result: Ok(answer), .. } if answer.reply == first.reply));
    assert_eq!(rejection(shell.drive(ordered(patch("4"), Some(4), None))), ErrorCode::StaleRequest);
    shell.drive(ordered(SessionOperation::Unregister("m".to_owned()), Some(6), None));
    assert_eq!(rejection(shell.drive(ordered(register("m"), Some(3), None))), ErrorCode::StaleRequest);
    assert!(shell.node.member("m").is_none());
}

#[test]
fn a_rejected_number_stays_rejected() {
    let mut shell = Shell::new();
    assert_eq!(rejection(shell.drive(ordered(patch("1"), Some(1), None))), ErrorCode::NotRegistered);
    shell.drive(ordered(register("m"), Some(2), None));
    assert_eq!(rejection(shell.drive(ordered(patch("1"), Some(1), None))), ErrorCode::NotRegistered);
}

#[test]
fn writes_that_no_node_has_are_reported_with_the_members() {
    let mut shell = Shell::new();
    shell.drive(ordered(register("m"), Some(1), None));
    let mut token = shell.token.clone();
    token.advance(Some(2));
    token.add(foreign());
    for operation in [patch("3"), SessionOperation::Heartbeat] {
        let step = shell.drive(ordered(operation, Some(3), Some(token.clone())));
        let Step::Finish { result: Err(SessionError::WritesLost { members }), .. } = step else { panic!("{step:?}") };
        assert_eq!(members.len(), 1);
        assert!(shell.token.text() > token.text(), "the client keeps the greater token");
    }
    assert!(shell.node.member("m").unwrap().metadata().get("v").is_none(), "the request was executed");
    let token = shell.token.clone();
    let step = shell.drive(ordered(patch("4"), Some(4), Some(token)));
    assert!(matches!(step, Step::Finish { result: Ok(_), .. }), "{step:?}");
}

/// Searches for a write that is expected for ever. Returns the time of the answer, and whether the write is lost.
fn search_from(start: Time, entry: &mut SessionEntry) -> (Time, bool) {
    let mut token = SessionToken::default();
    token.add(foreign());
    let mut request = ordered(patch("1"), Some(1), Some(token));
    request.absent(start);
    request.owner(start, None);
    let mut step = request.entered(start, entry);
    let mut now = start;
    loop {
        step = match step {
            Step::Search { .. } => request.searched(now, Coverage::Expected(1), Vec::new()),
            Step::Wait { until } => {
                now = until;
                request.waited()
            }
            Step::Enter { make: true } => {
                request.entered(now, entry);
                return (now, true);
            }
            other => {
                assert_eq!(rejection(other), ErrorCode::NotReady);
                return (now, false);
            }
        };
    }
}

#[test]
fn a_search_ends_after_a_quarter_of_the_timeout_and_each_request_is_answered_before() {
    let (mut entry, mut now, mut answers) = (SessionEntry::default(), Time::ZERO, 0);
    let end = Time::ZERO + 10 * TIMEOUT / 4;
    while now < end {
        let (answered, lost) = search_from(now, &mut entry);
        assert!(answered.since(now) <= TIMEOUT / 2, "a forwarding node still waits for the answer");
        assert_eq!(lost, answered == end);
        (now, answers) = (answered, answers + 1);
    }
    assert!(now == end && answers == 5, "{now:?} {answers}");
    let (answered, lost) = search_from(now, &mut entry);
    assert!(!lost && answered == now + TIMEOUT / 2, "the next search begins again");
}

#[test]
fn a_search_that_its_client_left_does_not_count() {
    let mut entry = SessionEntry::default();
    search_from(Time::ZERO, &mut entry);
    let later = Time::ZERO + 10 * TIMEOUT;
    assert_eq!(search_from(later, &mut entry), (later + TIMEOUT / 2, false));
}

#[test]
fn a_heartbeat_of_a_session_that_others_emptied_is_rejected() {
    let mut shell = Shell::new();
    shell.run(register("m"));
    shell.entry.notice(Notice::TakenOver { id: "m".to_owned(), last: true });
    assert_eq!(rejection(shell.run(SessionOperation::Heartbeat)), ErrorCode::TakenOver);
}
