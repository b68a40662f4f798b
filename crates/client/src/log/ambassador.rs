//! The I/O shell around the core: one lock, one link, one task.

use super::clock::Clock;
use super::coordination::Listeners;
use super::core::{CallId, Core, Decided, Issuing, LaneId, LimitCounters, LinkId, Output, Secret};
use super::linking;
use super::peers::{PAUSE_CAP, PAUSE_HURRIED, Peers};
use super::{Kv, Options};
use crate::connect::{Connect, LogChannel, TcpConnect};
use crate::connection::{connect_by, endpoint};
use crate::session::ClientTime;
use crate::{Error, ErrorCode};
use convoke_proto::{LOG_HEADER, v1};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::Instant;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::{Request, Status};

/// Maximum number of connections kept for local reads.
const CHANNELS_MAX: usize = 64;

/// Time after the last request, or after the loss of the leader, in which the search uses short pauses.
const HURRY: Duration = Duration::from_secs(10);

/// Submits the log requests of a process: finds the leader, keeps one link to it, and resends requests that were not
/// answered.
///
/// Cheap to clone; all clones share one ambassador. [`Client`](crate::Client) has one.
#[derive(Clone, Debug)]
pub struct Ambassador {
    pub(super) shared: Arc<Shared>,
    _task: Arc<Task>,
}

#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    clock: Clock,
    pub(super) connect: Arc<dyn Connect>,
    /// The link to the current leader.
    pub(super) linked: watch::Sender<Option<Linked>>,
    /// A request waits, and there may be no link yet.
    pub(super) link_requested: Notify,
    /// The next timer may be another one.
    pub(super) timers: Notify,
    peers: Mutex<Peers>,
    /// Number of reads that wait for a link.
    readers: AtomicUsize,
    /// The log that this process uses: the one it named, or the one of its last link.
    log: Mutex<Option<v1::LogId>>,
    /// Why nodes reject this client itself, while they do: it names no log, and there are two.
    rejection: Mutex<Option<Error>>,
    /// Number of reads that wait for an answer of the leader.
    asking: AtomicUsize,
    /// When the leader answered a read last, or the first read began to wait, in milliseconds since the start.
    read_at: AtomicU64,
    /// Time of the last request without a link, in milliseconds since the start.
    asked_at: AtomicU64,
    /// Connections to nodes that are read from locally.
    channels: Mutex<HashMap<String, LogChannel>>,
    /// Counts answers. A task that waits for other calls of its lane then checks again.
    pub(super) answers: watch::Sender<u64>,
    /// Set when the last handle is dropped.
    pub(super) leaving: watch::Sender<bool>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) core: Core,
    pub(super) listeners: Listeners,
    waiting: HashMap<CallId, oneshot::Sender<Result<Decided, Error>>>,
    /// Messages to the leader. The core bounds their number.
    outgoing: Option<mpsc::UnboundedSender<v1::SubmitRequest>>,
}

/// Adds the header that names a log.
#[derive(Clone, Debug)]
pub(super) struct NameLog(Option<MetadataValue<Ascii>>);

impl Interceptor for NameLog {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(log) = &self.0 {
            request.metadata_mut().insert(LOG_HEADER, log.clone());
        }
        Ok(request)
    }
}

/// A link to a leader.
#[derive(Clone, Debug)]
pub(super) struct Linked {
    pub(super) link: LinkId,
    pub(super) epoch: v1::Epoch,
    pub(super) channel: LogChannel,
}

/// Counts a waiting task while it exists.
#[derive(Debug)]
pub(super) struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn begin(count: &'a AtomicUsize) -> Waiting<'a> {
        count.fetch_add(1, Ordering::AcqRel);
        Waiting(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Ends the ambassador soon after the last handle is dropped, so that the ends of sessions can still be sent.
#[derive(Debug)]
struct Task(Arc<Shared>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.leaving.send_replace(true);
    }
}

impl Ambassador {
    /// Starts an ambassador with seed nodes (`host:port`). It connects on demand. Must be called within a tokio
    /// runtime.
    pub fn start<S: Into<String>>(seeds: impl IntoIterator<Item = S>) -> Result<Ambassador, Error> {
        Self::start_with(seeds, Arc::new(TcpConnect))
    }

    /// Starts an ambassador with a custom connector.
    pub fn start_with<S: Into<String>>(
        seeds: impl IntoIterator<Item = S>,
        connect: Arc<dyn Connect>,
    ) -> Result<Ambassador, Error> {
        let seeds: Vec<String> = seeds.into_iter().map(Into::into).collect();
        for seed in &seeds {
            endpoint(seed)?;
        }
        if tokio::runtime::Handle::try_current().is_err() {
            return Err(Error::new(ErrorCode::FailedPrecondition, "start an ambassador within a tokio runtime"));
        }
        let core = Core::new(fastrand::Rng::new(), secret);
        let shared = Arc::new(Shared {
            state: Mutex::new(State { core, listeners: Listeners::default(), waiting: HashMap::new(), outgoing: None }),
            clock: Clock::start(),
            connect,
            linked: watch::Sender::new(None),
            link_requested: Notify::new(),
            timers: Notify::new(),
            peers: Mutex::new(Peers::new(seeds)),
            readers: AtomicUsize::new(0),
            log: Mutex::default(),
            rejection: Mutex::default(),
            asking: AtomicUsize::new(0),
            read_at: AtomicU64::new(0),
            asked_at: AtomicU64::new(0),
            channels: Mutex::default(),
            answers: watch::Sender::new(0),
            leaving: watch::Sender::new(false),
        });
        tokio::spawn(linking::run(shared.clone()));
        let task = Task(shared.clone());
        Ok(Ambassador { shared, _task: Arc::new(task) })
    }

    /// Names the log that this ambassador uses. Without it, the ambassador names the log of its last leader.
    ///
    /// While a cluster has two logs by mistake, nodes reject requests that name none, so that no client uses the wrong
    /// one.
    pub fn use_log(&self, log: v1::LogId) {
        *self.shared.log.lock().unwrap_or_else(PoisonError::into_inner) = Some(log);
    }

    /// Leaves the current leader if its epoch is before this one: another node leads now. For nodes, whose replicas learn
    /// of a new leader early.
    #[doc(hidden)]
    pub fn leave_before(&self, epoch: v1::Epoch) {
        let linked = self.shared.linked.borrow().as_ref().map(|linked| (linked.link, linked.epoch));
        if let Some((link, old)) = linked
            && (old.term, old.replica) < (epoch.term, epoch.replica)
        {
            self.shared.link_down(link);
        }
    }

    /// Returns how often the limits of this ambassador were reached.
    pub fn limit_counters(&self) -> LimitCounters {
        self.shared.lock().core.counters
    }

    /// Returns a handle with default options and its own log session.
    pub fn kv(&self) -> Kv {
        self.kv_with(Options::default())
    }

    /// Returns a handle with the given options and its own log session.
    pub fn kv_with(&self, options: Options) -> Kv {
        Kv::new(self.clone(), options)
    }
}

/// Makes the secret of a log session.
fn secret(fallback: &mut fastrand::Rng) -> Secret {
    let mut secret = Secret::default();
    if getrandom::fill(&mut secret).is_err() {
        fallback.fill(&mut secret);
    }
    secret
}

impl Shared {
    pub(super) fn now(&self) -> ClientTime {
        self.clock.now()
    }

    pub(super) fn lane(&self, options: Options) -> LaneId {
        self.lock().core.lane(options)
    }

    /// Issues a call synchronously: its order is fixed when this returns.
    pub(super) fn issue(
        &self,
        lane: LaneId,
        issuing: Issuing,
    ) -> Result<(CallId, oneshot::Receiver<Result<Decided, Error>>), Error> {
        let (reply, answer) = oneshot::channel();
        let traceparent = convoke_trace::current().map(|here| here.to_string()).unwrap_or_default();
        let mut state = self.lock();
        let issued = self.decide(&mut state, |core, now, out| core.issue(now, lane, issuing, traceparent, out));
        if let Ok(call) = &issued {
            state.waiting.insert(*call, reply);
        }
        self.search_if_cut_off(state);
        issued.map(|call| (call, answer))
    }

    /// Ends the session of a lane whose handle was dropped. With `timeout`, returns a receiver for the result; `None`
    /// if there is nothing to end.
    pub(super) fn close(
        &self,
        lane: LaneId,
        timeout: Option<Duration>,
    ) -> Option<oneshot::Receiver<Result<Decided, Error>>> {
        let mut state = self.lock();
        let ending = self.decide(&mut state, |core, now, out| core.close(now, lane, timeout, out));
        let (reply, answer) = oneshot::channel();
        state.waiting.insert(ending.filter(|_| timeout.is_some())?, reply);
        self.search_if_cut_off(state);
        Some(answer)
    }

    /// Starts a search for the leader if there is no link.
    pub(super) fn search_if_cut_off(&self, state: MutexGuard<'_, State>) {
        let cut_off = state.outgoing.is_none();
        drop(state);
        if cut_off {
            self.request_link();
        }
    }

    /// Waits until every session that is ending has ended.
    pub(super) async fn ended(&self) {
        let mut answers = self.answers.subscribe();
        while self.with(|core, _, _| core.is_ending()) {
            // The sender lives in `self`.
            let _ = answers.changed().await;
        }
    }

    /// Abandons a call. Returns its id if a copy was sent. An earlier answer is already in the channel.
    pub(super) fn abandon(&self, call: CallId) -> Option<v1::RequestId> {
        let mut state = self.lock();
        state.waiting.remove(&call);
        self.decide(&mut state, |core, now, out| core.abandon(now, call, out))
    }

    /// Calls the core and performs its output.
    pub(super) fn with<T>(&self, decide: impl FnOnce(&mut Core, ClientTime, &mut Output) -> T) -> T {
        self.decide(&mut self.lock(), decide)
    }

    pub(super) fn decide<T>(
        &self,
        state: &mut State,
        decide: impl FnOnce(&mut Core, ClientTime, &mut Output) -> T,
    ) -> T {
        let mut out = Output::default();
        let before = state.core.next_wake();
        let value = decide(&mut state.core, self.now(), &mut out);
        self.carry_out(state, out);
        if state.core.next_wake().is_some_and(|next| before.is_none_or(|before| next < before)) {
            self.timers.notify_one();
        }
        value
    }

    /// Runs under the lock, so that messages leave in the order of the core's decisions. It never waits.
    fn carry_out(&self, state: &mut State, mut out: Output) {
        state.listeners.notify(&mut out);
        if let Some(outgoing) = &state.outgoing {
            for message in out.sends {
                // If the link has just failed, the core will resend the message.
                let _ = outgoing.send(message);
            }
        }
        let answered = !out.done.is_empty();
        for (call, result) in out.done {
            if let Some(reply) = state.waiting.remove(&call) {
                // The receiver was dropped: the call was abandoned at this moment.
                let _ = reply.send(result);
            }
        }
        // A later subscriber reads the core first, under the same lock.
        if answered && self.answers.receiver_count() > 0 {
            self.answers.send_modify(|count| *count += 1);
        }
        if let Some(replicas) = out.relink {
            state.outgoing = None;
            self.peers().learn(&replicas);
            self.linked.send_replace(None);
        }
    }

    /// Records a new leader; all messages go there from now on.
    pub(super) fn link_up(
        &self,
        (epoch, log): (v1::Epoch, v1::LogId),
        channel: LogChannel,
        outgoing: mpsc::UnboundedSender<v1::SubmitRequest>,
    ) -> LinkId {
        let mut state = self.lock();
        state.outgoing = Some(outgoing);
        let link = self.decide(&mut state, |core, now, out| core.link_up(now, epoch, log, out));
        self.linked.send_replace(Some(Linked { link, epoch, channel }));
        *self.log.lock().unwrap_or_else(PoisonError::into_inner) = Some(log);
        self.set_rejection(None);
        link
    }

    /// Ends a link. No effect on later links.
    pub(super) fn link_down(&self, link: LinkId) {
        let mut state = self.lock();
        state.core.link_down(link);
        let present = self.linked.borrow().as_ref().map(|linked| linked.link);
        if present == Some(link) {
            state.outgoing = None;
            self.linked.send_replace(None);
        }
    }

    /// Returns whether a link is needed.
    pub(super) fn wants_link(&self) -> bool {
        self.readers.load(Ordering::Acquire) > 0 || self.lock().core.wants_link()
    }

    /// Requests a link while the returned value exists.
    pub(super) fn want_link(&self) -> Waiting<'_> {
        let waiting = Waiting::begin(&self.readers);
        self.request_link();
        waiting
    }

    /// Starts a search for the leader soon.
    fn request_link(&self) {
        self.asked_at.store(self.millis(), Ordering::Release);
        self.link_requested.notify_one();
    }

    /// Returns the longest pause for a search that began at `begun`.
    pub(super) fn pause_cap(&self, begun: Instant) -> Duration {
        let (waiting, idle) = {
            let state = self.lock();
            (state.core.waiting() > 0 || self.readers.load(Ordering::Acquire) > 0, state.core.keep_alive_interval())
        };
        let asked = Duration::from_millis(self.asked_at.load(Ordering::Acquire));
        if waiting && begun.elapsed().min(self.now().saturating_sub(asked)) < HURRY {
            return PAUSE_HURRIED;
        }
        // A session must not expire because its new leader was found too late.
        idle.map_or(PAUSE_CAP, |interval| interval.clamp(PAUSE_HURRIED, PAUSE_CAP))
    }

    /// Returns the answer to a request over a link, or `None` if the link is lost first. A leader that stays silent is
    /// suspected while such a request waits.
    pub(super) async fn answer_over<T>(&self, link: LinkId, asking: impl Future<Output = T>) -> Option<T> {
        if self.asking.load(Ordering::Acquire) == 0 {
            self.read_at.store(self.millis(), Ordering::Release);
        }
        let _asking = Waiting::begin(&self.asking);
        let mut linked = self.linked.subscribe();
        let lost = linked.wait_for(|linked| linked.as_ref().is_none_or(|present| present.link != link));
        tokio::select! {
            biased;
            answer = asking => {
                self.read_at.store(self.millis(), Ordering::Release);
                Some(answer)
            }
            _ = lost => None,
        }
    }

    /// Returns how long requests or reads have waited for the leader without any answer.
    pub(super) fn unanswered_for(&self) -> Duration {
        let now = self.now();
        let asking = self.asking.load(Ordering::Acquire) > 0;
        let read_at = asking.then(|| Duration::from_millis(self.read_at.load(Ordering::Acquire)));
        let since = self.lock().core.unanswered_since().into_iter().chain(read_at).min();
        since.map_or(Duration::ZERO, |since| now.saturating_sub(since))
    }

    fn millis(&self) -> u64 {
        u64::try_from(self.now().as_millis()).unwrap_or(u64::MAX)
    }

    /// Returns whether a node runs in this process.
    pub(super) fn is_local(&self, address: &str) -> bool {
        self.connect.local(address).is_some()
    }

    /// Returns a connection to a node, whether it leads or not.
    pub(super) async fn channel(&self, address: &str) -> Result<LogChannel, Error> {
        let known = self.channels.lock().unwrap_or_else(PoisonError::into_inner).get(address).cloned();
        if let Some(channel) = known {
            return Ok(channel);
        }
        let channel = connect_by(&*self.connect, address).await?;
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        if channels.len() >= CHANNELS_MAX {
            channels.clear();
        }
        channels.insert(address.to_owned(), channel.clone());
        Ok(channel)
    }

    pub(super) fn set_rejection(&self, rejection: Option<Error>) {
        *self.rejection.lock().unwrap_or_else(PoisonError::into_inner) = rejection;
    }

    /// Replaces an error that says only that no leader was found, if the reason is known.
    pub(super) fn explain(&self, error: Error) -> Error {
        let rejection = self.rejection.lock().unwrap_or_else(PoisonError::into_inner);
        rejection.clone().filter(|_| error.code == ErrorCode::Timeout).unwrap_or(error)
    }

    /// Returns the log that this process uses, once it is known.
    pub(super) fn log(&self) -> Option<v1::LogId> {
        *self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the interceptor that names the log of this process in every request.
    pub(super) fn name_log(&self) -> NameLog {
        NameLog(self.log().and_then(|log| log.to_string().parse().ok()))
    }

    pub(super) fn peers(&self) -> MutexGuard<'_, Peers> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
