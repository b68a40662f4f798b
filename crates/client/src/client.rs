//! The client's public interface.

use crate::builder::Builder;
use crate::connect::Connect;
use crate::connection::Link;
use crate::driver::{Command, Reply};
use crate::follow::{self, CallbackGuard};
use crate::log::{Ambassador, Elections, Kv, LeaseTerms, Locks, MemberBinding, Options};
use crate::registration::{Registration, Standing};
use crate::token::AuthorizedChannel;
use crate::view::View;
use crate::watch::Watch;
use crate::{ConnectionState, Error, ErrorCode, Event, Filter, Member, MemberSpec};
use convoke_proto::v1;
use convoke_proto::v1::registry_client::RegistryClient;
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_stream::Stream;
use tokio_stream::wrappers::WatchStream;

/// Timeout of `close` if no operation timeout is set.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection to a Convoke cluster: one HTTP/2 connection to one node at a time, for registrations, watches and
/// queries.
///
/// Cheap to clone; all clones are the same client. It reconnects without a limit and restores registrations and
/// watches.
///
/// [`close`](Client::close) unregisters all members immediately. If the client and all its clones, registrations,
/// watches and views are dropped without `close`, the cluster treats it like a crashed one: its members are `down`
/// after the heartbeat timeout and expire after the reconnect timeout.
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) id: String,
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) states: watch::Receiver<ConnectionState>,
    pub(crate) links: watch::Receiver<Option<Link>>,
    pub(crate) operation_timeout: Option<Duration>,
    /// Set when a caller has dropped its future. The driver then looks for operations without a waiting caller.
    pub(crate) abandoned: Arc<AtomicBool>,
    pub(crate) log: LogAccess,
    pub(crate) process: Process,
}

/// The identity of this process in the registry, and its registrations.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) nonce: u64,
    /// As the node of the last attach set it.
    pub(crate) heartbeat_timeout: watch::Receiver<Duration>,
    /// Members in the order of their registration.
    pub(crate) registered: Mutex<Vec<(String, watch::Receiver<Standing>)>>,
}

impl Process {
    /// Remembers a registration. Those that have ended are forgotten.
    fn registered(&self, id: &str, standing: watch::Receiver<Standing>) {
        let mut registered = self.registered.lock().unwrap_or_else(PoisonError::into_inner);
        registered.retain(|(known, standing)| known != id && standing.borrow().ended.is_none());
        registered.push((id.to_owned(), standing));
    }

    pub(crate) fn unregistered(&self, id: &str) {
        self.registered.lock().unwrap_or_else(PoisonError::into_inner).retain(|(known, _)| known != id);
    }

    /// Returns the first member that is registered.
    fn member(&self) -> Option<String> {
        let registered = self.registered.lock().unwrap_or_else(PoisonError::into_inner);
        registered.iter().find(|(_, standing)| standing.borrow().ended.is_none()).map(|(id, _)| id.clone())
    }
}

/// The ambassador of the log, created when it is first used.
#[derive(Debug)]
pub(crate) struct LogAccess {
    seeds: Vec<String>,
    connector: Arc<dyn Connect>,
    runtime: tokio::runtime::Handle,
    ambassador: OnceLock<Ambassador>,
}

impl Inner {
    /// Returns the terms of a lease that ends with a registration of this process.
    pub(crate) fn lease_terms(&self, member: String) -> LeaseTerms {
        let registration = format!("{:016x}", self.process.nonce);
        let binding = MemberBinding { member, client: self.id.clone(), registration };
        LeaseTerms::member(binding, *self.process.heartbeat_timeout.borrow())
    }
}

impl LogAccess {
    /// Must be called in a tokio runtime, with valid seeds.
    pub(crate) fn new(seeds: Vec<String>, connector: Arc<dyn Connect>) -> LogAccess {
        LogAccess { seeds, connector, runtime: tokio::runtime::Handle::current(), ambassador: OnceLock::new() }
    }

    fn ambassador(&self) -> &Ambassador {
        self.ambassador.get_or_init(|| {
            let _entered = self.runtime.enter();
            Ambassador::start_with(self.seeds.clone(), self.connector.clone())
                .expect("the seeds were checked, and there is a runtime")
        })
    }
}

/// How far the unregistrations of [`Client::close`] have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseOutcome {
    /// At least two nodes have them, or there is one node only, or nothing was registered.
    Replicated,
    /// One node has them, and no other node confirmed it within 5 s. If that node is lost before it reaches the others,
    /// they show the members as `down` until they expire.
    OneNode,
}

impl Client {
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Connects with default settings. Fails with `TIMEOUT` if no node accepts the client within 10 s.
    pub async fn connect<S: Into<String>>(seeds: impl IntoIterator<Item = S>) -> Result<Client, Error> {
        Client::builder().seeds(seeds).connect().await
    }

    /// Returns the client id: random, or as configured.
    pub fn id(&self) -> &str {
        &self.inner.id
    }

    /// Registers a member and keeps it registered.
    ///
    /// Fails with `ALREADY_REGISTERED` if another live client holds the id. While the client is disconnected, this
    /// waits, at most for the operation timeout. Dropping the future withdraws the registration.
    pub async fn register(&self, member: MemberSpec) -> Result<Registration, Error> {
        self.register_with(member, false).await
    }

    /// Registers a member even if another live client holds the id. That client is notified and does not take the
    /// member back.
    pub async fn take_over(&self, member: MemberSpec) -> Result<Registration, Error> {
        self.register_with(member, true).await
    }

    async fn register_with(&self, spec: MemberSpec, takeover: bool) -> Result<Registration, Error> {
        let (id, timeout) = (spec.id.clone(), self.inner.operation_timeout);
        let registered = send_command(self, |reply| Command::Register { spec, takeover, timeout, reply }).await?;
        self.inner.process.registered(&id, registered.standing.clone());
        Ok(Registration::new(self.clone(), id, registered.registration, registered.standing))
    }

    /// Watches the members that match a filter, as a stream of events.
    ///
    /// Takes a [`Filter`] or its text. Must be called in a tokio runtime.
    pub fn watch<F>(&self, filter: F) -> Result<Watch, Error>
    where
        F: TryInto<Filter>,
        F::Error: Display,
    {
        Ok(Watch::start(self.clone(), &parse(filter)?))
    }

    /// Calls a function for every event of a watch, sequentially, until the returned handle is dropped.
    pub fn on_change<F>(&self, filter: F, call: impl FnMut(Event) + Send + 'static) -> Result<CallbackGuard, Error>
    where
        F: TryInto<Filter>,
        F::Error: Display,
    {
        Ok(follow::call_back(self.watch(filter)?, call))
    }

    /// Keeps a local copy of the members that match a filter, for reads without network access.
    pub fn view<F>(&self, filter: F) -> Result<View, Error>
    where
        F: TryInto<Filter>,
        F::Error: Display,
    {
        Ok(View::start(self.clone(), &parse(filter)?))
    }

    /// Returns one member as the connected node shows it, or `NOT_FOUND`.
    pub async fn get(&self, id: impl Into<String>) -> Result<Member, Error> {
        let request = v1::GetRequest { id: id.into() };
        let requesting = async {
            let response = self.registry().await?.get(request).await?.into_inner();
            response.member.map(Member::from).ok_or_else(|| Error::new(ErrorCode::Internal, "the node sent no member"))
        };
        within(self.inner.operation_timeout, requesting).await
    }

    /// Returns all matching members as the connected node shows them.
    pub async fn list<F>(&self, filter: F) -> Result<Vec<Member>, Error>
    where
        F: TryInto<Filter>,
        F::Error: Display,
    {
        let filter = parse(filter)?.to_string();
        let requesting = async {
            let mut registry = self.registry().await?;
            let (mut members, mut cursor) = (Vec::new(), String::new());
            loop {
                let request = v1::ListRequest { filter: filter.clone(), limit: 0, cursor, partial: false };
                let page = registry.list(request).await?.into_inner();
                members.extend(page.members.into_iter().map(Member::from));
                if page.next_cursor.is_empty() {
                    return Ok(members);
                }
                cursor = page.next_cursor;
            }
        };
        within(self.inner.operation_timeout, requesting).await
    }

    /// Returns a handle to the keys of the log. The handle has its own log session; its requests have the operation
    /// timeout of this client.
    ///
    /// ```no_run
    /// # async fn keys(client: convoke_client::Client) -> Result<(), convoke_client::Error> {
    /// let kv = client.kv();
    /// let written = kv.put("config/limit", "10").await?;
    /// kv.compare_and_set("config/limit", "20", written.revision).await?;
    /// let record = kv.get("config/limit").await?.expect("it was just put");
    /// assert_eq!(record.value, "20");
    /// # Ok(())
    /// # }
    /// ```
    pub fn kv(&self) -> Kv {
        let options = Options { timeout: self.inner.operation_timeout, ..Options::default() };
        self.log().kv_with(options)
    }

    /// Returns locks and semaphores, acquired with leases of 10 s that this client keeps alive.
    ///
    /// [`Registration::lease_terms`](crate::Registration::lease_terms) ties them to a member instead.
    pub fn locks(&self) -> Locks {
        self.coordination().locks()
    }

    /// Returns elections. If this client has registered a member, its candidacies end with that registration, so one
    /// heartbeat does for both. Otherwise candidates hold leases of 10 s.
    pub fn elections(&self) -> Elections {
        let inner = Arc::downgrade(&self.inner);
        let terms = move || {
            let inner = inner.upgrade();
            let bound = inner.as_ref().and_then(|inner| Some((inner, inner.process.member()?)));
            bound.map_or_else(Locks::default_terms, |(inner, member)| inner.lease_terms(member))
        };
        Elections::new(Locks::new(self.coordination().leases(), Arc::new(terms)))
    }

    /// Releases are sent whatever the operation timeout is, so these handles have none.
    fn coordination(&self) -> Kv {
        self.log().kv()
    }

    /// Returns the ambassador shared by all handles of this client: fates of requests, status, membership, and handles
    /// with options.
    pub fn log(&self) -> &Ambassador {
        self.inner.log.ambassador()
    }

    /// Returns the current state of the connection.
    pub fn state(&self) -> ConnectionState {
        self.inner.states.borrow().clone()
    }

    /// Returns the states of the connection, starting with the current one. A slow reader sees only the latest.
    pub fn states(&self) -> impl Stream<Item = ConnectionState> + Send + Unpin + use<> {
        WatchStream::new(self.inner.states.clone())
    }

    /// Waits until the client is connected, at most for the operation timeout, without a limit if none is set.
    pub async fn wait_connected(&self) -> Result<(), Error> {
        within(self.inner.operation_timeout, self.connected(&mut None)).await
    }

    /// Waits until the client is connected. `failure` is set to the last reason why it was not.
    pub(crate) async fn connected(&self, failure: &mut Option<Error>) -> Result<(), Error> {
        let mut states = self.inner.states.clone();
        loop {
            match &*states.borrow_and_update() {
                ConnectionState::Connected { .. } => return Ok(()),
                ConnectionState::Disconnected { reason, .. } => *failure = Some(reason.clone()),
                ConnectionState::Connecting { .. } | ConnectionState::Closed => {}
            }
            states.changed().await.map_err(|_| closed())?;
        }
    }

    /// Returns the addresses that the client started with.
    pub(crate) fn seeds(&self) -> &[String] {
        &self.inner.log.seeds
    }

    /// Unregisters all members of this client and ends it, including its clones.
    ///
    /// Waits for the node's answer, at most for the operation timeout (10 s if none is set). If the node cannot confirm
    /// that another node has the unregistrations, the client repeats them at other nodes for up to 5 s. After an error,
    /// the members are `down` after the heartbeat timeout, like those of a crashed client.
    pub async fn close(&self) -> Result<CloseOutcome, Error> {
        let (reply, done) = oneshot::channel();
        let closing = async {
            self.inner.commands.send(Command::Close { reply }).await.map_err(|_| closed())?;
            done.await.map_err(|_| closed())
        };
        let timeout = self.inner.operation_timeout.unwrap_or(CLOSE_TIMEOUT);
        match tokio::time::timeout(timeout, closing).await {
            // The client was already closed, which is the requested outcome.
            Ok(outcome) => Ok(outcome.unwrap_or(CloseOutcome::Replicated)),
            Err(_) => Err(Error::new(ErrorCode::OutcomeUnknown, "no node confirmed the close in time")),
        }
    }

    pub(crate) fn operation_timeout(&self) -> Option<Duration> {
        self.inner.operation_timeout
    }

    async fn registry(&self) -> Result<RegistryClient<AuthorizedChannel>, Error> {
        let mut links = self.inner.links.clone();
        let link = links.wait_for(Option::is_some).await.map_err(|_| closed())?;
        link.as_ref().map(|link| RegistryClient::new(link.channel.clone())).ok_or_else(closed)
    }
}

/// Sends a command to the driver and waits for its answer.
pub(crate) async fn send_command<T>(client: &Client, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, Error> {
    let (reply, answer) = oneshot::channel();
    let mut waiting = Waiting { answer, answered: false, abandoned: &client.inner.abandoned };
    client.inner.commands.send(command(reply)).await.map_err(|_| closed())?;
    let answer = (&mut waiting.answer).await.map_err(|_| closed());
    waiting.answered = true;
    answer?
}

/// Notifies the driver when the caller no longer waits for the answer.
struct Waiting<'a, T> {
    answer: oneshot::Receiver<T>,
    answered: bool,
    abandoned: &'a AtomicBool,
}

impl<T> Drop for Waiting<'_, T> {
    fn drop(&mut self) {
        if !self.answered {
            // In this order: a driver that sees the flag must also see the closed channel.
            self.answer.close();
            self.abandoned.store(true, Ordering::Release);
        }
    }
}

async fn within<T>(timeout: Option<Duration>, future: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    match timeout {
        None => future.await,
        Some(timeout) => match tokio::time::timeout(timeout, future).await {
            Ok(result) => result,
            Err(_) => Err(crate::session::not_sent_in_time()),
        },
    }
}

fn parse<F>(filter: F) -> Result<Filter, Error>
where
    F: TryInto<Filter>,
    F::Error: Display,
{
    filter.try_into().map_err(|error| Error::new(ErrorCode::InvalidFilter, error.to_string()).field("filter"))
}

fn closed() -> Error {
    Error::new(ErrorCode::FailedPrecondition, "this client is closed; build a new one")
}
