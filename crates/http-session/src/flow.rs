//! The processing of one request of an HTTP session at a node (C8).
//!
//! If the session is attached here, this node executes the request. Otherwise the node forwards it to the node that owns
//! the members of the session. If there is no such node, or it cannot be reached, this node attaches the session with
//! the members that the registry has of it.
//!
//! A node does not attach a session that another connected node holds. Such a claim would win by rank, but it would
//! restore the members as this node last received them: an update or an unregistration in transit would be undone.

use crate::entry::{Live, SessionEntry, SessionOperation};
use crate::mutant::{Mutation, seam};
use crate::secret::Secret;
use crate::session_gone;
use crate::step::{Attaching, Forwarded, SessionAnswer, SessionError, SessionReply, Step};
use crate::token::SessionToken;
use convoke_base::codec::COUNTER_MAX;
use convoke_core::member::Liveness;
use convoke_core::node::{Attached, Coverage, PeerState, Reattach, RequestOrder, SessionId, SessionOwner};
use convoke_core::version::{Dot, NodeId, Version};
use convoke_core::{ErrorCode, Rejection, Time};
use std::time::Duration;

/// Attempts to execute a request here. A session can be lost again right after it was attached.
const ATTEMPTS: u32 = 3;
/// First pause before the owner is looked up again after it did not answer; each pause doubles.
const OWNER_POLL: Duration = Duration::from_millis(10);
/// First pause between two questions for missing writes; each pause doubles, up to the longest one.
const SEARCH_POLL: Duration = Duration::from_millis(5);
const SEARCH_POLL_MAX: Duration = Duration::from_millis(100);
/// The search for missing writes takes at most this part of the session's timeout, over several requests.
const SEARCH_SHARE: u32 = 4;
/// A request waits for the search for at most this part of the time that a forwarding node waits for its answer.
const PATIENCE_SHARE: u32 = 2;

/// Settings of a node.
#[derive(Clone, Copy, Debug)]
pub struct FlowSettings {
    /// Longest time that a request waits for the node that holds its session.
    pub forward_timeout: Duration,
    /// The timeout of sessions that do not ask for another one.
    pub session_timeout: Duration,
    pub mutation: Mutation,
}

/// How the client orders a request among its others (C10, C11).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientOrder {
    /// `Convoke-Session-Request`
    pub number: Option<u64>,
    /// `Convoke-Session-Token`: the tokens of parallel requests may not cover each other.
    pub tokens: Vec<SessionToken>,
}

impl ClientOrder {
    /// Returns the writes that the client knows.
    fn token(&self, mutation: Mutation) -> SessionToken {
        let mut token = SessionToken::join_all(&self.tokens);
        let greatest = || self.tokens.iter().max_by_key(|known| known.text()).cloned();
        seam!(in mutation, OnlyGreatestToken => token = greatest().unwrap_or_default());
        token
    }
}

/// One request of a session while a node processes it.
#[derive(Debug)]
pub struct RequestFlow {
    secret: Secret,
    operation: SessionOperation,
    order: ClientOrder,
    /// The token that the answer carries.
    token: SessionToken,
    /// This node has the writes that the client knows, or they are lost.
    covered: bool,
    /// Writes that the client knows are lost.
    lost_writes: bool,
    /// If `lost_writes`: the last writes that this node has of the origins whose writes it lacks.
    kept: Vec<Dot>,
    searching: Option<Searching>,
    /// Another node forwarded the request: it is not forwarded any further.
    forwarded: bool,
    settings: FlowSettings,
    stage: Stage,
    attempts: u32,
    /// The session to which the calls were submitted.
    session: Option<SessionId>,
    /// Heartbeat interval and timeout of the session.
    timing: (Duration, Duration),
    /// A rejection of the core that is handled once the entry is locked again.
    rejection: Option<Rejection>,
    /// The reply to a write, and the write. The entry gets it once it is locked again.
    written: Option<(SessionReply, Dot)>,
    taken_over: Vec<String>,
    /// The rejection of a heartbeat of a session that other clients have emptied.
    all_taken_over: Option<Rejection>,
    replicated: bool,
    members: Option<Vec<String>>,
    /// The node that received the request and did not answer. It may have executed the request.
    unanswered: Option<NodeId>,
}

#[derive(Debug)]
enum Stage {
    /// A new session.
    Creating,
    /// The request is executed here if the session is attached here.
    Attached,
    Forwarding(Forwarding),
    /// The request is executed here, and the session is attached here if necessary.
    Attaching,
}

/// A search for writes.
#[derive(Debug)]
struct Searching {
    dots: Vec<Dot>,
    search: Option<u64>,
    /// The writes are lost from here on.
    deadline: Time,
    /// The client gets an answer then.
    patience: Time,
    pause: Duration,
    /// The request has no token. The node that holds the session is searched, instead of writes.
    holder: bool,
}

#[derive(Debug)]
struct Forwarding {
    deadline: Time,
    pause: Duration,
    owner: Option<SessionOwner>,
}

impl RequestFlow {
    /// A request of an existing session.
    pub fn new(
        secret: Secret,
        operation: SessionOperation,
        order: ClientOrder,
        forwarded: bool,
        settings: FlowSettings,
    ) -> Self {
        RequestFlow {
            secret,
            operation,
            token: order.token(settings.mutation),
            order,
            covered: false,
            lost_writes: false,
            kept: Vec::new(),
            searching: None,
            forwarded,
            settings,
            stage: Stage::Attached,
            attempts: 0,
            session: None,
            timing: Default::default(),
            rejection: None,
            written: None,
            taken_over: Vec::new(),
            all_taken_over: None,
            replicated: false,
            members: None,
            unanswered: None,
        }
    }

    /// A request for a new session.
    pub fn create(secret: Secret, settings: FlowSettings) -> Self {
        let request = RequestFlow::new(secret, SessionOperation::Heartbeat, ClientOrder::default(), false, settings);
        RequestFlow { stage: Stage::Creating, ..request }
    }

    pub fn secret(&self) -> &Secret {
        &self.secret
    }

    /// Returns the token for the answer, also if the request failed.
    pub fn token(&self) -> &SessionToken {
        &self.token
    }

    /// Whether no reachable node has all writes that the client knows. The session forgets the lost ones (C17).
    pub fn has_lost_writes(&self) -> bool {
        self.lost_writes
    }

    /// Returns the first step.
    pub fn begin(&self) -> Step {
        Step::Enter { make: matches!(self.stage, Stage::Creating) }
    }

    /// Continues after the session was found to have no entry here.
    pub fn absent(&mut self, now: Time) -> Step {
        self.find_owner(now)
    }

    /// Continues with the locked entry, after its notices were reported.
    pub fn entered(&mut self, now: Time, entry: &mut SessionEntry) -> Step {
        if let Some((reply, write)) = self.written.take() {
            return self.keep(entry, reply, write);
        }
        match self.rejection.take() {
            Some(rejection) => self.judge(now, entry, rejection),
            None => self.attempt(now, entry),
        }
    }

    fn attempt(&mut self, now: Time, entry: &mut SessionEntry) -> Step {
        if matches!(self.stage, Stage::Creating) {
            return self.attach();
        }
        if self.attempts == ATTEMPTS {
            return self.lost(now);
        }
        self.attempts += 1;
        if let Some(handover) = entry.take_handover() {
            return self.give_up(handover.rejection());
        }
        if let Some(rejection) = entry.rejection(self.order.number) {
            return self.reject(rejection);
        }
        if entry.live.is_none() && matches!(self.stage, Stage::Attached) {
            return self.find_owner(now);
        }
        if self.must_search(entry) {
            let began = entry.search_begins(now, self.timeout());
            return self.search(now, began, self.token.dots().to_vec(), false);
        }
        if self.covered {
            entry.search_ended();
        }
        match &mut entry.live {
            Some(live) if !self.lost_writes => {
                self.begin_execution(&mut entry.token);
                self.submit(live)
            }
            _ => self.attach(),
        }
    }

    /// Whether this node may lack writes that the client knows (C17). A heartbeat needs them too: the client may send nothing
    /// else, and must be notified of lost writes.
    fn must_search(&self, entry: &SessionEntry) -> bool {
        seam!(in self.settings.mutation, TokenIgnored => return false);
        !self.covered && !self.token.dots().is_empty() && !entry.covers(&self.token)
    }

    /// Begins a request that this node executes. The token of its answer covers the writes that this node has answered.
    fn begin_execution(&mut self, held: &mut SessionToken) {
        held.join(&self.token);
        let writes = !matches!(self.operation, SessionOperation::Heartbeat);
        seam!(in self.settings.mutation, WriteNotKept => if writes { held.advance(self.order.number) });
        self.token = held.clone();
    }

    /// Adds a write to the token of the session before it is answered. A greater token must not lack it: the client
    /// may have received it in the answer to a parallel request, and keeps the greater one.
    fn keep(&mut self, entry: &mut SessionEntry, reply: SessionReply, write: Dot) -> Step {
        seam!(in self.settings.mutation, WriteNotKept => {
            self.token.add(write);
            return self.finish(reply);
        });
        entry.token.write(write, self.order.number);
        self.token = entry.token.clone();
        if let (SessionOperation::Unregister(id), Some(live)) = (&self.operation, &mut entry.live) {
            live.forget_lost(id);
        }
        self.finish(reply)
    }

    fn submit(&mut self, live: &mut Live) -> Step {
        self.session = Some(live.session);
        self.timing = (live.heartbeat_interval, live.timeout);
        self.taken_over = live.taken_over();
        if live.all_taken_over && matches!(self.operation, SessionOperation::Heartbeat) {
            let message =
                "other clients took over all members of this session; to take one back, register it with takeover=true";
            self.all_taken_over = Some(Rejection::new(ErrorCode::TakenOver, message));
        }
        Step::Submit(live.calls(self.operation.clone(), self.order.number, self.settings.mutation))
    }

    fn timeout(&self) -> Duration {
        self.secret.timeout.unwrap_or(self.settings.session_timeout)
    }

    /// Looks for writes, or for the node that holds the session. The client, or a forwarding node, may not wait until the
    /// search ends, and its next request continues it.
    fn search(&mut self, now: Time, began: Time, dots: Vec<Dot>, holder: bool) -> Step {
        let deadline = began + self.timeout() / SEARCH_SHARE;
        let mut patience = deadline.min(now + self.settings.forward_timeout / PATIENCE_SHARE);
        seam!(in self.settings.mutation, SearchOutlastsClient => patience = deadline.max(now + self.timeout() / SEARCH_SHARE));
        self.searching = Some(Searching { dots, search: None, deadline, patience, pause: SEARCH_POLL, holder });
        self.search_again()
    }

    fn search_again(&self) -> Step {
        let Some(searching) = &self.searching else { return self.ask_owner() };
        Step::Search { dots: searching.dots.clone(), search: searching.search }
    }

    /// Continues with the state of the search, and the last writes that this node has of the origins whose writes it lacks.
    pub fn searched(&mut self, now: Time, coverage: Coverage, kept: Vec<Dot>) -> Step {
        let Some(searching) = &mut self.searching else { return self.attach_here() };
        let (late, waits) = (now >= searching.deadline, now < searching.patience);
        match coverage {
            Coverage::Covered => self.covered = true,
            Coverage::Expected(_) if searching.holder => {
                let message =
                    "this node cannot reach the node that holds this session, but other nodes can; use another node";
                return self.reject(Rejection::new(ErrorCode::NotReady, message));
            }
            Coverage::Searching(search) | Coverage::Expected(search) if waits => {
                searching.search = Some(search);
                let until = searching.patience.min(now + searching.pause);
                searching.pause = SEARCH_POLL_MAX.min(searching.pause * 2);
                return Step::Wait { until };
            }
            _ if searching.holder => {}
            Coverage::Searching(_) | Coverage::Expected(_) if !late => {
                let message = "this node has not received the last writes of this session yet; try again";
                return self.reject(Rejection::new(ErrorCode::NotReady, message));
            }
            Coverage::Missing | Coverage::Searching(_) | Coverage::Expected(_) => {
                self.covered = true;
                self.lost_writes = true;
                self.kept = kept;
            }
        }
        let holder = searching.holder;
        self.searching = None;
        if holder {
            return self.attach_after_forwarding();
        }
        if self.lost_writes {
            return self.attach_here();
        }
        self.attempts = 0;
        Step::Enter { make: matches!(self.stage, Stage::Attaching) }
    }

    fn attach(&mut self) -> Step {
        let fresh = matches!(self.stage, Stage::Creating);
        let Secret { liveness, timeout, .. } = self.secret;
        let (client, nonce) = (self.secret.client(), self.nonce());
        let creator = Some(self.secret.creator.clone());
        let order = match (self.order.number, &self.operation) {
            (Some(_), _) => RequestOrder::Numbered,
            (None, SessionOperation::Heartbeat) => RequestOrder::Nothing,
            (None, _) => RequestOrder::Arrival,
        };
        let reattach = Reattach { client, nonce, liveness, timeout, order, fresh, creator, ..Reattach::default() };
        Step::Attach(Attaching { reattach })
    }

    /// The nonce that proves to the registry which records belong to the session.
    fn nonce(&self) -> u64 {
        seam!(in self.settings.mutation, AnySecretFits => return 0);
        self.secret.nonce
    }

    /// Continues with the core's answer to the attach.
    pub fn attached(&mut self, now: Time, entry: &mut SessionEntry, result: Result<Attached, Rejection>) -> Step {
        let attached = match result {
            Ok(attached) => attached,
            Err(rejection) => {
                entry.live = None;
                return self.give_up(rejection);
            }
        };
        let live = entry.attach(&attached);
        self.timing = (live.heartbeat_interval, live.timeout);
        if matches!(self.stage, Stage::Creating) {
            return self.finish(SessionReply::Done);
        }
        if self.lost_writes {
            // The client replaces its token by this one, which must therefore be greater, also after a heartbeat.
            entry.token.join(&self.token);
            entry.token.advance(self.order.number);
            entry.token.forget_after(&self.kept);
            self.token.forget_after(&self.kept);
        }
        self.begin_execution(&mut entry.token);
        let mut outranks = !attached.claims_kept;
        seam!(in self.settings.mutation, AttachIsWrite => outranks = true);
        if outranks {
            entry.token.write(attached.last_write, None);
            self.token = entry.token.clone();
        }
        if self.lost_writes {
            return self.report_lost_writes(attached.versions);
        }
        self.members = Some(attached.versions.into_iter().map(|(id, _)| id).collect());
        seam!(in self.settings.mutation, AttachIsEnough => return self.finish(SessionReply::Done));
        match &mut entry.live {
            Some(live) => self.submit(live),
            None => self.lost(now),
        }
    }

    /// The client can repair its members with this answer (C17). If another node may have executed the request, only that
    /// is known.
    fn report_lost_writes(&self, members: Vec<(String, Version)>) -> Step {
        let result = match &self.unanswered {
            Some(node) => SessionError::OutcomeUnknown { node: node.clone() },
            None => SessionError::WritesLost { members },
        };
        Step::Finish { result: Err(result), remove: false }
    }

    /// Continues with the answers of the core, one for each call.
    ///
    /// `last_write` is the last write of this node, and `replicated` whether another ready node has it.
    pub fn answered(
        &mut self,
        results: impl IntoIterator<Item = Result<Option<Version>, Rejection>>,
        last_write: Dot,
        replicated: bool,
    ) -> Step {
        let mut reply = SessionReply::Done;
        for result in results {
            match result {
                Ok(Some(version)) => reply = SessionReply::Written(version),
                Ok(None) => {}
                Err(rejection) => return self.rejected(rejection),
            }
        }
        self.replicated = replicated;
        if !matches!(self.operation, SessionOperation::Heartbeat) {
            self.written = Some((reply, last_write));
            return Step::Reenter;
        }
        match self.all_taken_over.take() {
            Some(rejection) => self.reject(rejection),
            None => self.finish(reply),
        }
    }

    /// Continues after the core rejected the calls as a whole: nothing was executed.
    pub fn rejected(&mut self, rejection: Rejection) -> Step {
        self.rejection = Some(rejection);
        Step::Reenter
    }

    fn finish(&mut self, reply: SessionReply) -> Step {
        let (heartbeat_interval, timeout) = self.timing;
        let answer = SessionAnswer {
            reply,
            replicated: self.replicated,
            taken_over: std::mem::take(&mut self.taken_over),
            heartbeat_interval,
            timeout,
            members: self.members.take(),
        };
        Step::Finish { result: Ok(answer), remove: matches!(self.operation, SessionOperation::Close) }
    }

    /// Decides what to do after the core rejected a call.
    fn judge(&mut self, now: Time, entry: &mut SessionEntry, rejection: Rejection) -> Step {
        // Another request may have attached the session again in the meantime.
        let same = entry.live.as_ref().filter(|live| Some(live.session) == self.session);
        match (rejection.code, same) {
            (ErrorCode::SessionGone, Some(_)) => entry.live = None,
            (ErrorCode::SessionGone, None) => {}
            (_, same) => {
                let rejection = match same {
                    Some(live) => live.explain(&self.operation, rejection),
                    None => rejection,
                };
                entry.remember(self.order.number, &rejection);
                return self.reject(rejection);
            }
        }
        self.attempt(now, entry)
    }

    /// The session is not attached here any more.
    fn lost(&mut self, now: Time) -> Step {
        match self.stage {
            Stage::Attached => self.find_owner(now),
            _ => self.reject(Rejection::new(ErrorCode::NotReady, "this session is moving between nodes; try again")),
        }
    }

    /// Looks for the node that owns the session's members.
    fn find_owner(&mut self, now: Time) -> Step {
        if !self.may_forward() {
            return self.attach_here();
        }
        let deadline = now + self.settings.forward_timeout;
        self.stage = Stage::Forwarding(Forwarding { deadline, pause: OWNER_POLL, owner: None });
        self.ask_owner()
    }

    /// Returns whether another node may execute the request. With `fast` liveness only the node with the client's connection
    /// can detect its loss, so such a session is attached at the node that receives the request.
    fn may_forward(&self) -> bool {
        seam!(in self.settings.mutation, OwnerNotAsked => return false);
        !self.forwarded && self.secret.liveness == Liveness::Normal
    }

    fn ask_owner(&self) -> Step {
        Step::AskOwner { client: self.secret.client(), nonce: self.nonce(), creator: self.secret.creator.clone() }
    }

    /// Continues after [`Step::Wait`].
    pub fn waited(&self) -> Step {
        if self.searching.is_some() { self.search_again() } else { self.ask_owner() }
    }

    /// Continues with the other node that owns members of the session, if there is one.
    ///
    /// An owner that does not answer is not necessarily dead: it may be busy, or this node may have no free ports. So its
    /// state is polled until the deadline. The end of a process is detected within milliseconds.
    pub fn owner(&mut self, now: Time, owner: Option<SessionOwner>) -> Step {
        let Stage::Forwarding(forwarding) = &mut self.stage else { return self.attach_here() };
        let owner = match owner {
            Some(owner) if reachable(&owner) => owner,
            Some(owner) if self.order.tokens.is_empty() && self.unanswered.is_none() => {
                return self.search_holder(now, owner);
            }
            _ => return self.attach_after_forwarding(),
        };
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

    /// This node does not know what the client has written, and has no link to the node that does. If another node has one,
    /// the writes still exist, and attaching the session here could undo them (C17).
    fn search_holder(&mut self, now: Time, owner: SessionOwner) -> Step {
        seam!(in self.settings.mutation, HolderNotSearched => return self.attach_after_forwarding());
        self.search(now, now, vec![Dot { origin: owner.origin, n: COUNTER_MAX }], true)
    }

    /// Continues with the result of sending the request to the owner.
    pub fn forwarded(&mut self, now: Time, result: Forwarded) -> Step {
        let Stage::Forwarding(forwarding) = &mut self.stage else { return self.attach_here() };
        match result {
            Forwarded::Answered => return Step::Relay,
            Forwarded::Declined => return self.attach_here(),
            Forwarded::Unreached => {}
            Forwarded::Unanswered => self.unanswered = forwarding.owner.as_ref().map(|owner| owner.node.clone()),
        }
        // The client ports of other regions may be unreachable from here.
        if forwarding.owner.as_ref().is_some_and(|owner| owner.state != PeerState::Up) {
            return self.attach_after_forwarding();
        }
        forwarding.wait(now)
    }

    /// Attaches the session here, because no reachable node holds it.
    fn attach_after_forwarding(&mut self) -> Step {
        seam!(in self.settings.mutation, SilentOwnerMeansGone => return self.reject(session_gone()));
        self.attach_here()
    }

    /// The caller could not carry out the last step: a queue or the table of sessions is full, or the node is stopping.
    pub fn failed(&self, rejection: Rejection) -> Step {
        seam!(in self.settings.mutation, FailedStepIsRejected => return finish_rejected(rejection));
        self.reject(rejection)
    }

    /// Rejects the request. The session is not attached here any more, so its entry is removed.
    fn give_up(&self, rejection: Rejection) -> Step {
        Step::Finish { result: Err(self.error(rejection)), remove: true }
    }

    fn reject(&self, rejection: Rejection) -> Step {
        Step::Finish { result: Err(self.error(rejection)), remove: false }
    }

    /// A rejection means that no node has changed anything. If another node received the request and did not answer, the
    /// outcome is unknown instead.
    fn error(&self, rejection: Rejection) -> SessionError {
        seam!(in self.settings.mutation, UnansweredIsRejected => return SessionError::Rejected(rejection));
        match &self.unanswered {
            Some(node) => SessionError::OutcomeUnknown { node: node.clone() },
            None => SessionError::Rejected(rejection),
        }
    }

    /// Executes the request here, and attaches the session if necessary.
    fn attach_here(&mut self) -> Step {
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

/// The deliberate bug `FailedStepIsRejected`.
fn finish_rejected(rejection: Rejection) -> Step {
    Step::Finish { result: Err(SessionError::Rejected(rejection)), remove: false }
}

/// Whether requests can be forwarded to the node.
fn reachable(owner: &SessionOwner) -> bool {
    matches!(owner.state, PeerState::Up | PeerState::Distant) && !owner.client_address.is_empty()
}
