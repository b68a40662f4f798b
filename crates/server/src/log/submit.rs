//! One link of an ambassador. Requests are submitted in the order of arrival; answers are sent as soon as they
//! are decided.

use super::LogService;
use super::convert::{self, answer, body, log_id, opened, owner, read_fate, wire_epoch};
use super::coordination::{bound_member, lock_name};
use super::members::{REGISTRATION_WAIT, not_registered};
use super::txn::results;
use crate::access::{Caller, LEASES, Use, authorize_lock, authorize_request};
use crate::audit::{Recorded, Recording};
use crate::error::invalid;
use crate::rates::{RateLimiter, Used};
use crate::service::ClientConnection;
use crate::traces;
use convoke_access::{Resource, Verb};
use convoke_log::command::{Body, DurableClient, GrantLease, LeaseId, LeaseTerm, Open, Request};
use convoke_log::leader::{KeepAlive, PlaceState};
use convoke_log::machine::Fate;
use convoke_log::{Command, Epoch, LogSessionId};
use convoke_proto::v1::submit_request::Message as ClientRequest;
use convoke_proto::v1::submit_response::Message;
use convoke_proto::{Error, ErrorCode, v1};
use convoke_replica::{Consistency, LeaseKept, LogRejection, SubmitError};
use futures_core::Stream;
use futures_util::stream::FuturesUnordered;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tonic::Status;
use tracing::Instrument;

/// Largest number of undecided requests of one link. At this number, the link is not read.
const UNDECIDED_MAX: usize = 8_192;
/// Largest number of places in locks that one link waits for; further ones are rejected. They may wait for any time, so
/// they must not stop the link from being read.
const AWAITING_MAX: usize = 10_000;
/// Largest number of leases in one keep-alive.
const KEPT_MAX: usize = 1_000;

type Deciding = Pin<Box<dyn Future<Output = v1::SubmitResponse> + Send>>;

/// Requests as they arrive, over the network or from the node's own ambassador.
pub(crate) type Incoming = Pin<Box<dyn Stream<Item = Result<v1::SubmitRequest, Status>> + Send>>;

/// Who sends the requests of a link.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    /// The connection of the client; `None` for the node itself.
    pub(crate) connection: Option<Arc<ClientConnection>>,
    pub(crate) caller: Caller,
}

impl Sender {
    /// The ambassador of this node.
    pub(crate) fn own_node() -> Sender {
        Sender { connection: None, caller: Caller::unrestricted() }
    }

    /// IP address of the client, if it is known.
    pub(super) fn address(&self) -> Option<IpAddr> {
        self.connection.as_ref()?.address.map(|address| address.ip())
    }

    /// Counts a message for the rate limits. Keep-alives are not counted, because a client that loses its lease for them
    /// would do more.
    fn admit(&self, rates: &RateLimiter, message: Option<&ClientRequest>) -> Result<(), Error> {
        let used = match message {
            Some(ClientRequest::Open(_)) => Used::Session,
            Some(ClientRequest::Request(_) | ClientRequest::AwaitPlace(_)) => Used::Request,
            Some(ClientRequest::KeepAlive(_) | ClientRequest::LeaseKeepAlive(_)) | None => return Ok(()),
        };
        let Some(connection) = self.connection.as_ref().filter(|_| rates.is_on()) else { return Ok(()) };
        let received = connection.take_received();
        rates.admit_address(connection, used, received)?;
        rates.admit(&self.caller, used, received)
    }
}

pub(crate) struct SubmitStream {
    incoming: Incoming,
    service: Arc<LogService>,
    undecided: FuturesUnordered<Deciding>,
    /// Sessions whose grant waits for a registration, with the requests that arrived after it (LE6).
    held: BTreeMap<u64, VecDeque<v1::SubmitRequest>>,
    /// Complete with a held session, once its registration has arrived or the wait is over.
    registering: FuturesUnordered<Pin<Box<dyn Future<Output = u64> + Send>>>,
    /// Clients that wait for a change of their place in a lock. Not answered when the link ends.
    awaiting: FuturesUnordered<Deciding>,
    ready: VecDeque<v1::SubmitResponse>,
    epoch: Epoch,
    sender: Sender,
    /// Completes when the link is no longer usable. In a separate set, which polls it only after a wake-up, because a
    /// link is polled for every message.
    unusable: FuturesUnordered<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// Nothing more is read from the link.
    over: bool,
    /// Whether a last message explains why the server ended the link.
    explain_end: bool,
    /// Why the last message could not be read.
    unreadable: Option<Status>,
    _permit: OwnedSemaphorePermit,
}

impl SubmitStream {
    /// Opens a link to the replica of this node. Rejected if it does not lead.
    /// `named` is the log that the client wants, if it knows one.
    pub(crate) fn open(
        service: &Arc<LogService>,
        incoming: Incoming,
        sender: Sender,
        named: Option<u128>,
    ) -> Result<Self, Error> {
        service.check_conflict(named)?;
        let permit = service.enter()?;
        let epoch = service.handle.epoch().map_err(|why| service.rejected(&why))?;
        let log = service.handle.log().map_err(|why| service.rejected(&why))?;
        let welcome = Message::Welcome(v1::Welcome { epoch: Some(wire_epoch(epoch)), log: Some(log.into()) });
        let ready = [v1::SubmitResponse { tag: 0, message: Some(welcome) }].into();
        let unusable = FuturesUnordered::new();
        let watched = service.clone();
        unusable.push(Box::pin(async move { watched.link_unusable(epoch).await }) as Pin<Box<_>>);
        Ok(SubmitStream {
            incoming,
            service: service.clone(),
            undecided: FuturesUnordered::new(),
            held: BTreeMap::new(),
            registering: FuturesUnordered::new(),
            awaiting: FuturesUnordered::new(),
            ready,
            epoch,
            sender,
            unusable,
            over: false,
            explain_end: false,
            unreadable: None,
            _permit: permit,
        })
    }

    /// Submits a message, unless it must wait for a registration. The requests of a session keep their order.
    fn take(&mut self, request: v1::SubmitRequest, context: &mut Context<'_>) {
        let Some(ClientRequest::Request(submitted)) = &request.message else { return self.submit(request, context) };
        let session = submitted.session;
        if let Some(held) = self.held.get_mut(&session) {
            return held.push_back(request);
        }
        let bound = match &submitted.body {
            Some(v1::log_request::Body::Grant(grant)) => bound_member(grant),
            _ => None,
        };
        let directory = self.service.directory.clone();
        let Some(bound) = bound.filter(|bound| !directory.is_registered(bound)) else {
            return self.submit(request, context);
        };
        self.held.insert(session, [request].into());
        self.registering.push(Box::pin(async move {
            // After the wait, the grant is rejected.
            let _ = tokio::time::timeout(REGISTRATION_WAIT, directory.registered(&bound)).await;
            session
        }));
    }

    /// Submits the requests of a session that waited for a registration.
    fn release(&mut self, session: u64, context: &mut Context<'_>) {
        let mut held = self.held.remove(&session).unwrap_or_default();
        if let Some(grant) = held.pop_front() {
            self.submit(grant, context);
        }
        for request in held {
            self.take(request, context);
        }
    }

    /// Returns the number of messages that were read and not answered.
    fn unanswered(&self) -> usize {
        self.undecided.len() + self.ready.len() + self.held.values().map(VecDeque::len).sum::<usize>()
    }

    /// Submits a message. The first poll does it, so it must happen before the next message is read.
    fn submit(&mut self, request: v1::SubmitRequest, context: &mut Context<'_>) {
        let awaits = matches!(request.message, Some(ClientRequest::AwaitPlace(_)));
        if awaits && self.awaiting.len() >= AWAITING_MAX {
            let message =
                format!("this link waits for {AWAITING_MAX} places in locks, which is its limit; open another");
            let error =
                Error::new(ErrorCode::ResourceExhausted, message).field("await_place").limit(AWAITING_MAX as u64);
            let message = Some(Message::Rejected(error.into()));
            return self.ready.push_back(v1::SubmitResponse { tag: request.tag, message });
        }
        let mut deciding: Deciding = Box::pin(decide(self.service.clone(), request, self.sender.clone()));
        match deciding.as_mut().poll(context) {
            Poll::Ready(response) => self.ready.push_back(response),
            Poll::Pending if awaits => self.awaiting.push(deciding),
            Poll::Pending => self.undecided.push(deciding),
        }
    }
}

impl Stream for SubmitStream {
    type Item = Result<v1::SubmitResponse, Status>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if !this.over && matches!(Pin::new(&mut this.unusable).poll_next(context), Poll::Ready(Some(()))) {
            // An idle client would not notice by itself and would keep the connection open.
            (this.over, this.explain_end) = (true, true);
        }
        while !this.over && this.unanswered() < UNDECIDED_MAX {
            match this.incoming.as_mut().poll_next(context) {
                Poll::Ready(Some(Ok(request))) => this.take(request, context),
                // Aborted or finished: submitted requests continue, and the client may still read their answers.
                Poll::Ready(Some(Err(status))) => (this.over, this.unreadable) = (true, Some(status)),
                Poll::Ready(None) => this.over = true,
                Poll::Pending => break,
            }
        }
        // After reading, because a grant that was just read must be polled.
        while let Poll::Ready(Some(session)) = Pin::new(&mut this.registering).poll_next(context) {
            this.release(session, context);
        }
        if let Some(response) = this.ready.pop_front() {
            return Poll::Ready(Some(Ok(response)));
        }
        match Pin::new(&mut this.undecided).poll_next(context) {
            Poll::Ready(Some(response)) => return Poll::Ready(Some(Ok(response))),
            Poll::Ready(None) if !this.held.is_empty() => {}
            Poll::Ready(None) if std::mem::take(&mut this.explain_end) => {
                return Poll::Ready(Some(Err(this.service.unusable_reason(this.epoch).into())));
            }
            Poll::Ready(None) if this.over => return Poll::Ready(this.unreadable.take().map(Err)),
            Poll::Ready(None) | Poll::Pending => {}
        }
        match Pin::new(&mut this.awaiting).poll_next(context) {
            Poll::Ready(Some(response)) if !this.over => Poll::Ready(Some(Ok(response))),
            _ => Poll::Pending,
        }
    }
}

async fn decide(service: Arc<LogService>, request: v1::SubmitRequest, mut sender: Sender) -> v1::SubmitResponse {
    if let Err(refused) = sender.admit(&service.rates, request.message.as_ref()) {
        return v1::SubmitResponse { tag: request.tag, message: Some(Message::Rejected(refused.into())) };
    }
    let recording = record(&mut sender, request.message.as_ref());
    let message = match request.message {
        Some(ClientRequest::Request(submitted)) => {
            let span = traces::log_request(&request.traceparent);
            let answer = submit(&service, &sender.caller, submitted).instrument(span.clone()).await;
            if let Err(error) = &answer {
                traces::rejected(&span, error.code.as_str());
            }
            answer
        }
        Some(ClientRequest::Open(open)) => open_session(&service, open, &sender).await,
        Some(ClientRequest::KeepAlive(request)) => keep_alive(&service, &sender.caller, &request),
        Some(ClientRequest::LeaseKeepAlive(request)) => match sender.caller.check_any(LEASES) {
            Ok(()) => keep_leases(&service, &sender.caller, request).await,
            Err(denied) => Err(denied),
        },
        Some(ClientRequest::AwaitPlace(request)) => {
            match authorize_lock(&sender.caller, &request.name, request.election) {
                Ok(()) => await_place(&service, &sender.caller, request).await,
                Err(denied) => Err(denied),
            }
        }
        None => Err(invalid("message", "an open, a request or another message is required")),
    };
    recording.finish(failure(&message));
    let message = message.unwrap_or_else(|error| Message::Rejected(error.into()));
    v1::SubmitResponse { tag: request.tag, message: Some(message) }
}

/// Begins the record of the audit log. The caller of the sender notes the decisions about the message.
fn record(sender: &mut Sender, message: Option<&ClientRequest>) -> Recording {
    let (kind, recorded) = match message {
        Some(ClientRequest::Request(request)) => (request_kind(request), Recorded::Calls),
        Some(ClientRequest::Open(open)) if !open.client.is_empty() => ("open", Recorded::Calls),
        Some(ClientRequest::Open(_)) => ("open", Recorded::Denials),
        Some(ClientRequest::KeepAlive(_) | ClientRequest::LeaseKeepAlive(_)) => ("keep-alive", Recorded::Denials),
        Some(ClientRequest::AwaitPlace(_)) => ("await", Recorded::Denials),
        None => ("none", Recorded::Denials),
    };
    let (caller, recording) = sender.caller.message(kind, recorded);
    sender.caller = caller;
    recording
}

fn request_kind(request: &v1::LogRequest) -> &'static str {
    use v1::log_request::Body as Wire;
    match &request.body {
        Some(Wire::Put(_)) => "put",
        Some(Wire::Delete(_)) => "delete",
        Some(Wire::Txn(_)) => "transaction",
        Some(Wire::Grant(_)) => "grant-lease",
        Some(Wire::Revoke(_)) => "revoke-lease",
        Some(Wire::Acquire(_)) => "acquire",
        Some(Wire::Release(_)) => "release",
        Some(Wire::Proclaim(_)) => "proclaim",
        Some(Wire::End(_)) => "end-session",
        None => "none",
    }
}

/// Returns why a request had no effect, as the audit log states it.
fn failure(answer: &Result<Message, Error>) -> Option<ErrorCode> {
    let of = |error: &v1::Error| ErrorCode::from_number(error.code);
    match answer {
        Err(error) => Some(error.code),
        Ok(Message::Rejected(error)) => Some(of(error)),
        Ok(Message::OutcomeUnknown(_)) => Some(ErrorCode::OutcomeUnknown),
        Ok(Message::Answer(answer)) => {
            let reason = answer.fate.as_ref().and_then(|fate| fate.reason.as_ref());
            answer.rejected.as_ref().or(reason).map(of)
        }
        Ok(_) => None,
    }
}

async fn submit(service: &LogService, caller: &Caller, request: v1::LogRequest) -> Result<Message, Error> {
    // Decided before the request is proposed: replicas that apply it do not know the caller.
    authorize_request(caller, &request)?;
    let (log, owner, uses) = (log_id(request.log)?, owner(&request.secret)?, Use::of_request(&request));
    let request = body(request)?;
    let id = request.id();
    service.check(caller, log, id.session, owner)?;
    service.check_uses(caller, &uses, id).await?;
    if let Body::Grant(GrantLease { term: LeaseTerm::Member(bound), .. }) = &request.body
        && !service.directory.is_registered(bound)
    {
        return Err(not_registered(&*service.directory, bound));
    }
    let command = Command::Request(request);
    match service.handle.submit_command(&command).await {
        Ok(answered) => Ok(answer(&answered)),
        // The fate is final at this replica: no request of this session can take effect any more (LS8).
        Err(SubmitError::Rejected(LogRejection::SessionNotOpen)) => {
            let machine = service.handle.read(Consistency::Linearizable).await.map_err(|why| service.rejected(&why))?;
            let fate = machine.peek(id);
            let found = match (&command, &fate) {
                (Command::Request(Request { body: Body::Txn(txn), .. }), Fate::Done(outcome)) => {
                    machine.txn_results(txn, outcome)
                }
                _ => None,
            };
            let found = found.map(|found| results(found.as_deref().map_err(|compacted| *compacted)));
            Ok(read_fate(id, &fate, found))
        }
        Err(SubmitError::Rejected(why)) => Err(service.rejected(&why)),
        Err(SubmitError::Unknown) => Ok(Message::OutcomeUnknown(v1::OutcomeUnknown {})),
    }
}

async fn open_session(service: &LogService, open: v1::OpenSession, sender: &Sender) -> Result<Message, Error> {
    let v1::OpenSession { epoch, ttl_ms, client, replaces, log, secret, node, principal } = open;
    if !client.is_empty() {
        sender.caller.check(Verb::Open, Resource::Client(&client))?;
    }
    service.handle.check_log(log_id(log)?).map_err(|why| service.rejected(&why))?;
    let client =
        (!client.is_empty()).then(|| DurableClient { name: client.into(), replaces: replaces.map(LogSessionId) });
    let open = Open {
        epoch: convert::epoch(epoch)?,
        ttl: Duration::from_millis(ttl_ms),
        owner: owner(&secret)?,
        client,
        opener: service.opener(&node, &principal, sender)?,
    };
    match service.handle.open(open).await {
        Ok(answered) => Ok(opened(&answered)),
        Err(SubmitError::Rejected(why)) => Err(service.rejected(&why)),
        Err(SubmitError::Unknown) => Ok(Message::OutcomeUnknown(v1::OutcomeUnknown {})),
    }
}

fn keep_alive(service: &LogService, caller: &Caller, request: &v1::KeepAlive) -> Result<Message, Error> {
    service.check(caller, log_id(request.log)?, LogSessionId(request.session), owner(&request.secret)?)?;
    let alive = service.handle.keep_alive(LogSessionId(request.session), convert::epoch(request.epoch)?);
    let state = kept(alive.map_err(|why| service.rejected(&why))?);
    Ok(Message::KeptAlive(v1::KeptAlive { state: state.into() }))
}

fn kept(state: KeepAlive) -> v1::kept_alive::State {
    use v1::kept_alive::State;
    match state {
        KeepAlive::Kept => State::Kept,
        KeepAlive::Expiring => State::Expiring,
        KeepAlive::Unknown => State::Unknown,
    }
}

async fn keep_leases(service: &LogService, caller: &Caller, request: v1::LeaseKeepAlive) -> Result<Message, Error> {
    service.handle.check_log(log_id(request.log)?).map_err(|why| service.rejected(&why))?;
    let epoch = convert::epoch(request.epoch)?;
    let count = request.leases.len();
    if count == 0 || count > KEPT_MAX {
        let message = format!("a keep-alive names 1 to {KEPT_MAX} leases, not {count}");
        return Err(invalid("leases", message).limit(KEPT_MAX as u64));
    }
    let leases: Vec<LeaseId> = request.leases.into_iter().map(LeaseId).collect();
    // A lease of another principal is answered like one that does not exist (AU16).
    let (leases, foreign): (Vec<LeaseId>, Vec<LeaseId>) = match service.handle.local() {
        Ok(machine) if caller.is_bound() => {
            let is_own = |lease: &LeaseId| {
                let used = Use::Keep(*lease);
                used.owner(&machine).is_none_or(|owner| used.check(caller, owner).is_ok())
            };
            leases.into_iter().partition(is_own)
        }
        _ => (leases, Vec::new()),
    };
    let answer = service.handle.keep_leases(epoch, &leases).await.map_err(|why| service.rejected(&why))?;
    let unknown = foreign.into_iter().map(|lease| LeaseKept { lease, state: KeepAlive::Unknown, left: Duration::ZERO });
    let leases = answer.into_iter().chain(unknown);
    let leases = leases.map(|found| v1::LeaseKept {
        lease: found.lease.0,
        state: kept(found.state).into(),
        left_ms: u64::try_from(found.left.as_millis()).unwrap_or(u64::MAX),
    });
    Ok(Message::LeasesKept(v1::LeasesKept { leases: leases.collect() }))
}

async fn await_place(service: &LogService, caller: &Caller, request: v1::AwaitPlace) -> Result<Message, Error> {
    let used = Use::Keep(LeaseId(request.lease));
    if let Some(owner) = service.handle.local().ok().and_then(|machine| used.owner(&machine).map(ToOwned::to_owned)) {
        used.check(caller, &owner)?;
    }
    service.handle.check_log(log_id(request.log)?).map_err(|why| service.rejected(&why))?;
    let epoch = convert::epoch(request.epoch)?;
    let place = (lock_name(request.name, request.election), LeaseId(request.lease));
    let known = match request.fence {
        0 => PlaceState::Waiting,
        fence => PlaceState::Held { fence },
    };
    let found = service.handle.await_place(epoch, place, known).await.map_err(|why| service.rejected(&why))?;
    let fence = if let PlaceState::Held { fence } = found { fence } else { 0 };
    Ok(Message::PlaceChanged(v1::PlaceChanged { fence }))
}
