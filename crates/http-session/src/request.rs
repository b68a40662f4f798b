//! One request of an HTTP session on its way through a node (C8).
//!
//! A request looks for its session here. If there is none, the node that holds the session gets the request. If no node
//! holds it, or none that can be reached, the session is attached here with the members that the registry has of it.
//!
//! To attach a session that a living node holds would be correct by rank, but it would claim the members as this node
//! last received them: an update or an unregistration on its way here would be undone.

use crate::mutant::{Mutant, Mutation};
use crate::place::{Call, Live, Place, SessionRequest};
use crate::secret::Secret;
use crate::session_gone;
use convoke_core::member::Liveness;
use convoke_core::node::{AttachMember, Attached, PeerState, Reattach, SessionId, SessionOwner};
use convoke_core::version::{NodeId, Version};
use convoke_core::{ErrorCode, Rejection, Time};
use std::time::Duration;

/// A session can be lost again right after it was attached, but not for ever.
const ATTEMPTS: u32 = 3;
/// After which an owner that did not answer is looked up again; doubled each time.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// Two nodes that attach one session at once differ in their claims, so that one of them wins all of its members.
const RAISE_MAX: u64 = 64;
/// HTTP status of a node that takes no clients.
const SERVICE_UNAVAILABLE: u16 = 503;

/// What the caller does next. Each step names the function that takes its result.
#[derive(Debug)]
pub enum Step {
    /// Find the place of the session, or make it if allowed, and lock it.
    /// Report its notices, then continue with [`Request::entered`], or with [`Request::absent`].
    Enter { make: bool },
    /// The same with the place that was entered last, even if the table does not have it any more.
    Reenter,
    /// Keep the place locked and attach the session on a new connection. Continue with [`Request::attached`].
    Attach(Attaching),
    /// Submit the calls in this order in one turn of the core, then unlock the place.
    /// Continue with [`Request::answered`].
    Submit([Option<Call>; 2]),
    /// Ask the core which other node feeds the members of the session. Continue with [`Request::owner`].
    AskOwner { client: String, nonce: u64 },
    /// Send the request to this node, marked as forwarded. Continue with [`Request::forwarded`].
    Forward { owner: SessionOwner, deadline: Time },
    /// Wait, then continue with [`Request::waited`].
    Wait { until: Time },
    /// The answer of the other node is the answer.
    Relay,
    /// Unlock the place, remove it if asked to, and answer.
    Finish { result: Result<Answer, SessionError>, remove: bool },
}

/// A session to be attached; needs a random number.
#[derive(Debug)]
pub struct Attaching {
    request: Reattach,
}

impl Attaching {
    /// The call of the core.
    pub fn with(self, random: u64) -> Reattach {
        Reattach { raise: 1 + random % RAISE_MAX, ..self.request }
    }
}

/// What came of forwarding a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forwarded {
    Answered,
    /// The node does not take clients any more.
    Declined,
    /// The node has not received it.
    Unreached,
    /// The node may have executed it.
    Unanswered,
}

impl Forwarded {
    /// The node answered with this HTTP status.
    pub fn with_status(status: u16) -> Self {
        if status == SERVICE_UNAVAILABLE { Forwarded::Declined } else { Forwarded::Answered }
    }
}

/// A request that was carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub reply: Reply,
    pub heartbeat_interval: Duration,
    pub timeout: Duration,
    /// The session was attached again for this request: the members it has now.
    pub members: Option<Vec<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    Written(Version),
    Done,
}

/// A request that was not carried out, as far as is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionError {
    Rejected(Rejection),
    /// The node that holds the session received the request and did not answer.
    OutcomeUnknown {
        node: NodeId,
    },
}

/// Settings of a node.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How long a request waits for the node that holds its session.
    pub forward_timeout: Duration,
    pub mutation: Mutation,
}

#[derive(Debug)]
pub struct Request {
    secret: Secret,
    request: SessionRequest,
    /// Another node sent it here: it is not forwarded any further.
    forwarded: bool,
    settings: Settings,
    stage: Stage,
    attempts: u32,
    /// The session that the calls went to.
    session: Option<SessionId>,
    /// Its settings: heartbeat interval and timeout.
    timing: (Duration, Duration),
    /// A rejection of the core that is judged once the place is locked again.
    rejection: Option<Rejection>,
    /// The session is attached with the member to be registered.
    claims_member: bool,
    members: Option<Vec<String>>,
    /// The node that received the request and did not answer: it may have executed the request.
    unanswered: Option<NodeId>,
}

#[derive(Debug)]
enum Stage {
    /// A new session.
    Creating,
    /// Only if the session is attached here.
    Attached,
    Forwarding(Forwarding),
    /// The session is attached here if it is not.
    Attaching,
}

#[derive(Debug)]
struct Forwarding {
    deadline: Time,
    pause: Duration,
    owner: Option<SessionOwner>,
}

impl Request {
    /// A request of an existing session.
    pub fn new(secret: Secret, request: SessionRequest, forwarded: bool, settings: Settings) -> Self {
        Request {
            secret,
            request,
            forwarded,
            settings,
            stage: Stage::Attached,
            attempts: 0,
            session: None,
            timing: Default::default(),
            rejection: None,
            claims_member: false,
            members: None,
            unanswered: None,
        }
    }

    /// A request for a new session.
    pub fn create(secret: Secret, settings: Settings) -> Self {
        Request { stage: Stage::Creating, ..Request::new(secret, SessionRequest::Heartbeat, false, settings) }
    }

    pub fn secret(&self) -> &Secret {
        &self.secret
    }

    /// The first step.
    pub fn begin(&self) -> Step {
        Step::Enter { make: matches!(self.stage, Stage::Creating) }
    }

    /// The session has no place here.
    pub fn absent(&mut self, now: Time) -> Step {
        self.elsewhere(now)
    }

    /// The place is locked, and its notices were reported.
    pub fn entered(&mut self, now: Time, place: &mut Place) -> Step {
        match self.rejection.take() {
            Some(rejection) => self.judge(now, place, rejection),
            None => self.attempt(now, place),
        }
    }

    fn attempt(&mut self, now: Time, place: &mut Place) -> Step {
        if matches!(self.stage, Stage::Creating) {
            return self.attach(None);
        }
        if self.attempts == ATTEMPTS {
            return self.lost(now);
        }
        self.attempts += 1;
        if let Some(handover) = place.take_handover() {
            return self.give_up(handover.rejection());
        }
        match &mut place.live {
            Some(live) => self.submit(live),
            None if matches!(self.stage, Stage::Attached) => self.elsewhere(now),
            None => self.attach(None),
        }
    }

    fn submit(&mut self, live: &mut Live) -> Step {
        self.session = Some(live.session);
        self.timing = (live.heartbeat_interval, live.timeout);
        Step::Submit(live.calls(self.request.clone(), self.settings.mutation))
    }

    fn attach(&mut self, member: Option<AttachMember>) -> Step {
        self.claims_member = member.is_some();
        let fresh = matches!(self.stage, Stage::Creating);
        let Secret { liveness, timeout, .. } = self.secret;
        let (client, nonce) = (self.secret.client(), self.nonce());
        let request = Reattach { client, nonce, liveness, timeout, raise: 0, member, fresh };
        Step::Attach(Attaching { request })
    }

    /// Proves to the registry which records are the session's.
    fn nonce(&self) -> u64 {
        if self.settings.mutation.is(Mutant::AnySecretFits) { 0 } else { self.secret.nonce }
    }

    /// The core has decided about the attach.
    pub fn attached(&mut self, now: Time, place: &mut Place, result: Result<Attached, Rejection>) -> Step {
        let attached = match result {
            Ok(attached) => attached,
            Err(rejection) => {
                place.live = None;
                return self.give_up(rejection);
            }
        };
        let live = place.attach(&attached);
        self.timing = (live.heartbeat_interval, live.timeout);
        if matches!(self.stage, Stage::Creating) {
            return self.finish(Reply::Done);
        }
        if self.claims_member {
            return self.claimed(now, attached);
        }
        self.members = Some(attached.versions.into_iter().map(|(id, _)| id).collect());
        self.submit(live)
    }

    /// The session was attached with the member to be registered.
    fn claimed(&mut self, now: Time, attached: Attached) -> Step {
        let SessionRequest::Register(member) = &self.request else { return self.lost(now) };
        let id = &member.spec.id;
        if let Some((_, version)) = attached.versions.into_iter().find(|(known, _)| known == id) {
            return self.finish(Reply::Written(version));
        }
        match attached.rejected.into_iter().find(|(known, _)| known == id) {
            Some((_, rejection)) => self.reject(rejection),
            None => self.lost(now),
        }
    }

    /// The answers of the core, one for each call.
    pub fn answered(&mut self, results: impl IntoIterator<Item = Result<Option<Version>, Rejection>>) -> Step {
        let mut reply = Reply::Done;
        for result in results {
            match result {
                Ok(Some(version)) => reply = Reply::Written(version),
                Ok(None) => {}
                Err(rejection) => {
                    self.rejection = Some(rejection);
                    return Step::Reenter;
                }
            }
        }
        self.finish(reply)
    }

    fn finish(&mut self, reply: Reply) -> Step {
        let (heartbeat_interval, timeout) = self.timing;
        let answer = Answer { reply, heartbeat_interval, timeout, members: self.members.take() };
        Step::Finish { result: Ok(answer), remove: matches!(self.request, SessionRequest::Close) }
    }

    fn judge(&mut self, now: Time, place: &mut Place, rejection: Rejection) -> Step {
        // Another request may have attached the session again meanwhile.
        let same = place.live.as_ref().filter(|live| Some(live.session) == self.session);
        match (rejection.code, same) {
            (ErrorCode::SessionGone, Some(_)) => place.live = None,
            (ErrorCode::SessionGone, None) => {}
            (ErrorCode::StaleClaim, same) => {
                // The member was registered with a higher claim before: attach again with it.
                let SessionRequest::Register(member) = &self.request else { return self.lost(now) };
                if same.is_some() {
                    let member = AttachMember::clone(member);
                    return self.attach(Some(member));
                }
            }
            (_, Some(live)) => return self.reject(live.explain(&self.request, rejection)),
            (_, None) => return self.reject(rejection),
        }
        self.attempt(now, place)
    }

    /// The session was lost here.
    fn lost(&mut self, now: Time) -> Step {
        match self.stage {
            Stage::Attached => self.elsewhere(now),
            _ => self.reject(Rejection::new(ErrorCode::NotReady, "this session is moving between nodes; try again")),
        }
    }

    /// The session is not attached here. With `fast` liveness the connection of the client counts, and only the node that
    /// has it can notice its loss: such sessions move with their requests.
    fn elsewhere(&mut self, now: Time) -> Step {
        let forwards = !self.forwarded && self.secret.liveness == Liveness::Normal;
        if !forwards || self.settings.mutation.is(Mutant::OwnerNotAsked) {
            return self.here();
        }
        let deadline = now + self.settings.forward_timeout;
        self.stage = Stage::Forwarding(Forwarding { deadline, pause: LOOK_AGAIN, owner: None });
        self.ask_owner()
    }

    fn ask_owner(&self) -> Step {
        Step::AskOwner { client: self.secret.client(), nonce: self.nonce() }
    }

    /// The time has come to ask for the owner again.
    pub fn waited(&self) -> Step {
        self.ask_owner()
    }

    /// The other node that feeds the members of the session, if any has members and one does.
    ///
    /// A peer that does not answer is not necessarily dead: ports may have run out, or it is busy. So its state is checked
    /// again; the end of a dead one is noticed within milliseconds.
    pub fn owner(&mut self, now: Time, owner: Option<SessionOwner>) -> Step {
        let Stage::Forwarding(forwarding) = &mut self.stage else { return self.here() };
        let Some(owner) = owner.filter(reachable) else { return self.here_after_forwarding() };
        if now >= forwarding.deadline {
            let message = format!("node {} holds this session and does not answer; try again", owner.node);
            return self.reject(Rejection::new(ErrorCode::NotReady, message));
        }
        // A request that may have been executed is not sent twice.
        if self.unanswered.is_some() {
            return forwarding.wait(now);
        }
        forwarding.owner = Some(owner.clone());
        Step::Forward { owner, deadline: forwarding.deadline }
    }

    /// What came of sending the request to the owner.
    pub fn forwarded(&mut self, now: Time, outcome: Forwarded) -> Step {
        let Stage::Forwarding(forwarding) = &mut self.stage else { return self.here() };
        match outcome {
            Forwarded::Answered => return Step::Relay,
            Forwarded::Declined => return self.here(),
            Forwarded::Unreached => {}
            Forwarded::Unanswered => self.unanswered = forwarding.owner.as_ref().map(|owner| owner.node.clone()),
        }
        // There may be no way to the client ports of other regions.
        if forwarding.owner.as_ref().is_some_and(|owner| owner.state != PeerState::Up) {
            return self.here_after_forwarding();
        }
        forwarding.wait(now)
    }

    /// No node holds the session any more that could answer.
    fn here_after_forwarding(&mut self) -> Step {
        if self.settings.mutation.is(Mutant::SilentOwnerMeansGone) {
            return self.reject(session_gone());
        }
        self.here()
    }

    /// The session is not attached here any more.
    fn give_up(&self, rejection: Rejection) -> Step {
        Step::Finish { result: Err(self.error(rejection)), remove: true }
    }

    fn reject(&self, rejection: Rejection) -> Step {
        Step::Finish { result: Err(self.error(rejection)), remove: false }
    }

    /// A rejection tells the client that nothing was changed. That is not known of a request that another node received.
    fn error(&self, rejection: Rejection) -> SessionError {
        match &self.unanswered {
            Some(node) if !self.settings.mutation.is(Mutant::UnansweredIsRejected) => {
                SessionError::OutcomeUnknown { node: node.clone() }
            }
            _ => SessionError::Rejected(rejection),
        }
    }

    /// Attaches the session here.
    fn here(&mut self) -> Step {
        self.stage = Stage::Attaching;
        self.attempts = 0;
        self.members = None;
        Step::Enter { make: true }
    }
}

impl Forwarding {
    fn wait(&mut self, now: Time) -> Step {
        let until = self.deadline.min(now + self.pause);
        self.pause *= 2;
        Step::Wait { until }
    }
}

/// Whether the node is known to be there.
fn reachable(owner: &SessionOwner) -> bool {
    matches!(owner.state, PeerState::Up | PeerState::Distant) && !owner.client_address.is_empty()
}
