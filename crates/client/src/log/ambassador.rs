//! The shell around the core: one lock, one link, one task.

use super::core::{CallId, Core, Decided, Issuing, LaneId, LinkId, Output};
use super::linking;
use super::peers::{PAUSE_CAP, PAUSE_HURRIED, Peers};
use super::{Kv, Options};
use crate::connect::{Connect, LogChannel, Tcp};
use crate::connection::{connect_by, endpoint};
use crate::session::Time;
use crate::{Error, ErrorCode};
use convoke_proto::v1;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::Instant;

/// Connections kept for local reads.
const CHANNELS_MAX: usize = 64;

/// So long after the last request, or after the leader was lost, a leader is looked for in a hurry.
const HURRY: Duration = Duration::from_secs(10);

/// A process's way to the log: it finds the leader, keeps one link to it, and sends again what was not answered.
///
/// Cheap to clone; all clones are one. [`Client`](crate::Client) has one by itself.
#[derive(Clone, Debug)]
pub struct Ambassador {
    pub(super) shared: Arc<Shared>,
    _task: Arc<Task>,
}

#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    start: Instant,
    pub(super) connect: Arc<dyn Connect>,
    /// The link, once a leader has said that it is one.
    pub(super) linked: watch::Sender<Option<Linked>>,
    /// There is something to say, and perhaps no link yet.
    pub(super) link_requested: Notify,
    /// The next timer may be another one.
    pub(super) timers: Notify,
    peers: Mutex<Peers>,
    /// Who waits for a link without a call: reads.
    readers: AtomicUsize,
    /// Reads that the leader owes an answer to.
    asking: AtomicUsize,
    /// When somebody last asked for something without a link, in milliseconds since the start.
    asked_at: AtomicU64,
    /// Connections to nodes that are read from locally.
    channels: Mutex<HashMap<String, LogChannel>>,
    /// Counts answers: whoever waits for the others of a lane looks again.
    pub(super) answers: watch::Sender<u64>,
    /// The last handle is gone.
    pub(super) leaving: watch::Sender<bool>,
}

#[derive(Debug)]
struct State {
    core: Core,
    waiting: HashMap<CallId, oneshot::Sender<Result<Decided, Error>>>,
    /// Where messages go. As many can be in it as the core lets wait.
    outgoing: Option<mpsc::UnboundedSender<v1::SubmitRequest>>,
}

/// A link to a leader.
#[derive(Clone, Debug)]
pub(super) struct Linked {
    pub(super) link: LinkId,
    pub(super) channel: LogChannel,
}

/// Somebody waits: for a link, or for an answer that is no call's.
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

/// Ends soon after the last handle: what was said last, the ends of sessions, should arrive.
#[derive(Debug)]
struct Task(Arc<Shared>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.leaving.send_replace(true);
    }
}

impl Ambassador {
    /// Starts an ambassador that asks these nodes first, `host:port`. It connects when there is something to say. Must be called within a
    /// tokio runtime.
    pub fn start<S: Into<String>>(seeds: impl IntoIterator<Item = S>) -> Result<Ambassador, Error> {
        Self::start_with(seeds, Arc::new(Tcp))
    }

    /// The same with another way to connect.
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
        let core = Core::new(fastrand::Rng::new());
        let shared = Arc::new(Shared {
            state: Mutex::new(State { core, waiting: HashMap::new(), outgoing: None }),
            start: Instant::now(),
            connect,
            linked: watch::Sender::new(None),
            link_requested: Notify::new(),
            timers: Notify::new(),
            peers: Mutex::new(Peers::new(seeds)),
            readers: AtomicUsize::new(0),
            asking: AtomicUsize::new(0),
            asked_at: AtomicU64::new(0),
            channels: Mutex::default(),
            answers: watch::Sender::new(0),
            leaving: watch::Sender::new(false),
        });
        tokio::spawn(linking::run(shared.clone()));
        let task = Task(shared.clone());
        Ok(Ambassador { shared, _task: Arc::new(task) })
    }

    /// A handle to the keys with all defaults: a session of its own.
    pub fn kv(&self) -> Kv {
        self.kv_with(Options::default())
    }

    /// A handle to the keys.
    pub fn kv_with(&self, options: Options) -> Kv {
        Kv::new(self.clone(), options)
    }
}

impl Shared {
    pub(super) fn now(&self) -> Time {
        self.start.elapsed()
    }

    pub(super) fn lane(&self, options: Options) -> LaneId {
        self.lock().core.lane(options)
    }

    /// Takes a call in, synchronously: when this returns, its place is fixed.
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
        let cut_off = state.outgoing.is_none();
        drop(state);
        if cut_off {
            self.request_link();
        }
        issued.map(|call| (call, answer))
    }

    /// Ends the session of a lane whose handle is gone. If somebody waits for that, the answer; `None` if there is nothing to end.
    pub(super) fn close(
        &self,
        lane: LaneId,
        patience: Option<Duration>,
    ) -> Option<oneshot::Receiver<Result<Decided, Error>>> {
        let mut state = self.lock();
        let ending = self.decide(&mut state, |core, now, out| core.close(now, lane, patience, out));
        let (reply, answer) = oneshot::channel();
        state.waiting.insert(ending.filter(|_| patience.is_some())?, reply);
        let cut_off = state.outgoing.is_none();
        drop(state);
        if cut_off {
            self.request_link();
        }
        Some(answer)
    }

    /// Waits until every session that is being ended has ended.
    pub(super) async fn ended(&self) {
        let mut answers = self.answers.subscribe();
        while self.with(|core, _, _| core.is_ending()) {
            // The sender is in what is borrowed here.
            let _ = answers.changed().await;
        }
    }

    /// Gives a call up. Its id, if a copy of it has left. An answer that came before is in the channel by now.
    pub(super) fn abandon(&self, call: CallId) -> Option<v1::RequestId> {
        let mut state = self.lock();
        state.waiting.remove(&call);
        self.decide(&mut state, |core, now, out| core.abandon(now, call, out))
    }

    /// Has the core decide something, and carries it out.
    pub(super) fn with<T>(&self, decide: impl FnOnce(&mut Core, Time, &mut Output) -> T) -> T {
        self.decide(&mut self.lock(), decide)
    }

    fn decide<T>(&self, state: &mut State, decide: impl FnOnce(&mut Core, Time, &mut Output) -> T) -> T {
        let mut out = Output::default();
        let before = state.core.next_wake();
        let value = decide(&mut state.core, self.now(), &mut out);
        self.carry_out(state, out);
        if state.core.next_wake().is_some_and(|next| before.is_none_or(|before| next < before)) {
            self.timers.notify_one();
        }
        value
    }

    /// Under the lock, so that messages leave in the order the core decided on. Nothing here waits.
    fn carry_out(&self, state: &mut State, out: Output) {
        if let Some(outgoing) = &state.outgoing {
            for message in out.sends {
                // A link that has just broken: the core hears of it, and sends again.
                let _ = outgoing.send(message);
            }
        }
        let answered = !out.done.is_empty();
        for (call, result) in out.done {
            if let Some(reply) = state.waiting.remove(&call) {
                // Nobody waits any more: it was abandoned at this very moment.
                let _ = reply.send(result);
            }
        }
        if answered {
            self.answers.send_modify(|count| *count += 1);
        }
        if let Some(members) = out.relink {
            state.outgoing = None;
            self.peers().learn(&members);
            self.linked.send_replace(None);
        }
    }

    /// A leader was found: from now on messages go there.
    pub(super) fn link_up(
        &self,
        epoch: v1::Epoch,
        channel: LogChannel,
        outgoing: mpsc::UnboundedSender<v1::SubmitRequest>,
    ) -> LinkId {
        let mut state = self.lock();
        state.outgoing = Some(outgoing);
        let link = self.decide(&mut state, |core, now, out| core.link_up(now, epoch, out));
        self.linked.send_replace(Some(Linked { link, channel }));
        link
    }

    /// The link is of no use any more. Says nothing about later ones.
    pub(super) fn link_down(&self, link: LinkId) {
        let mut state = self.lock();
        state.core.link_down(link);
        let present = self.linked.borrow().as_ref().map(|linked| linked.link);
        if present == Some(link) {
            state.outgoing = None;
            self.linked.send_replace(None);
        }
    }

    /// Whether there is any use in a link.
    pub(super) fn wants_link(&self) -> bool {
        self.readers.load(Ordering::Acquire) > 0 || self.lock().core.wants_link()
    }

    /// Has a link looked for, as long as the returned value is kept.
    pub(super) fn want_link(&self) -> Waiting<'_> {
        let waiting = Waiting::begin(&self.readers);
        self.request_link();
        waiting
    }

    /// Has a leader looked for soon.
    fn request_link(&self) {
        self.asked_at.store(u64::try_from(self.now().as_millis()).unwrap_or(u64::MAX), Ordering::Release);
        self.link_requested.notify_one();
    }

    /// The longest pause in a search that began then.
    pub(super) fn pause_cap(&self, begun: Instant) -> Duration {
        let (waiting, idle) = {
            let state = self.lock();
            (state.core.waiting() > 0 || self.readers.load(Ordering::Acquire) > 0, state.core.keep_alive_interval())
        };
        let asked = self.start + Duration::from_millis(self.asked_at.load(Ordering::Acquire));
        if waiting && begun.max(asked).elapsed() < HURRY {
            return PAUSE_HURRIED;
        }
        // A session must not expire only because its new leader was found too late.
        idle.map_or(PAUSE_CAP, |interval| interval.clamp(PAUSE_HURRIED, PAUSE_CAP))
    }

    /// The answer to a question over a link, which is not waited for any longer than the link lasts: `None` if that was lost meanwhile. A
    /// leader that says nothing for long is doubted for it.
    pub(super) async fn answer_over<T>(&self, link: LinkId, asking: impl Future<Output = T>) -> Option<T> {
        let _asking = Waiting::begin(&self.asking);
        let mut linked = self.linked.subscribe();
        let lost = linked.wait_for(|linked| linked.as_ref().is_none_or(|present| present.link != link));
        tokio::select! {
            biased;
            answer = asking => Some(answer),
            _ = lost => None,
        }
    }

    /// Whether a leader owes an answer to a read.
    pub(super) fn is_asking(&self) -> bool {
        self.asking.load(Ordering::Acquire) > 0
    }

    /// A connection to a node, be it leader or not.
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

    pub(super) fn peers(&self) -> MutexGuard<'_, Peers> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
