//! The task that owns the session and performs its effects. No other code accesses the session, and this task never
//! waits for a node: connections are separate tasks.

use crate::client::CloseOutcome;
use crate::connect::Connect;
use crate::connection::{Connection, ConnectionEvent, ConnectionEvents, Link};
use crate::registration::Standing;
use crate::session::{ClientTime, ConnectionId, Effect, Effects, NotSent, OperationId, RegistrationId, Session};
use crate::{ConnectionState, Error, ErrorCode, MemberSpec, Update};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

/// Commands processed before their requests are sent in one message.
const BATCH_MAX: usize = 256;
/// Messages of connections that may wait for the driver.
const CONNECTION_EVENTS_MAX: usize = 256;

pub(crate) type Reply<T> = oneshot::Sender<Result<T, Error>>;

/// A command of the application.
#[derive(Debug)]
pub(crate) enum Command {
    Register { spec: MemberSpec, takeover: bool, timeout: Option<Duration>, reply: Reply<Registered> },
    Update { id: String, registration: RegistrationId, update: Update, timeout: Option<Duration>, reply: Reply<String> },
    Unregister { id: String, registration: RegistrationId, timeout: Option<Duration>, reply: Reply<String> },
    Close { reply: oneshot::Sender<CloseOutcome> },
}

#[derive(Debug)]
pub(crate) struct Registered {
    pub(crate) registration: RegistrationId,
    pub(crate) standing: watch::Receiver<Standing>,
}

/// The caller that waits for an operation.
#[derive(Debug)]
enum Waiting {
    ForRegistration { id: String, registered: Registered, reply: Reply<Registered> },
    ForVersion { reply: Reply<String> },
}

impl Waiting {
    /// Returns whether the caller has stopped waiting.
    fn is_over(&self) -> bool {
        match self {
            Waiting::ForRegistration { reply, .. } => reply.is_closed(),
            Waiting::ForVersion { reply } => reply.is_closed(),
        }
    }
}

/// What the driver publishes.
#[derive(Debug)]
pub(crate) struct Signals {
    pub(crate) states: watch::Sender<ConnectionState>,
    pub(crate) links: watch::Sender<Option<Link>>,
    pub(crate) heartbeat_timeout: watch::Sender<Duration>,
}

#[derive(Debug)]
pub(crate) struct Driver {
    session: Session,
    start: Instant,
    commands: mpsc::Receiver<Command>,
    states: watch::Sender<ConnectionState>,
    links: watch::Sender<Option<Link>>,
    heartbeat_timeout: watch::Sender<Duration>,
    connection_events: ConnectionEvents,
    connector: Arc<dyn Connect>,
    events: mpsc::Receiver<(ConnectionId, ConnectionEvent)>,
    connection: Option<Connection>,
    waiting: BTreeMap<OperationId, Waiting>,
    /// Some callers have stopped waiting.
    abandoned: Arc<AtomicBool>,
    standings: BTreeMap<RegistrationId, watch::Sender<Standing>>,
    closers: Vec<oneshot::Sender<CloseOutcome>>,
    closed: bool,
}

impl Driver {
    pub(crate) fn new(
        session: Session,
        start: Instant,
        commands: mpsc::Receiver<Command>,
        signals: Signals,
        abandoned: Arc<AtomicBool>,
        connector: Arc<dyn Connect>,
    ) -> Driver {
        let Signals { states, links, heartbeat_timeout } = signals;
        let (connection_events, events) = mpsc::channel(CONNECTION_EVENTS_MAX);
        Driver {
            session,
            start,
            commands,
            states,
            links,
            heartbeat_timeout,
            connection_events,
            connector,
            events,
            connection: None,
            waiting: BTreeMap::new(),
            abandoned,
            standings: BTreeMap::new(),
            closers: Vec::new(),
            closed: false,
        }
    }

    /// Runs until the client is closed or all its handles are dropped.
    pub(crate) async fn run(mut self) {
        while !self.closed {
            let wake = self.session.next_wake().map(|at| self.start + at);
            let sleep = async {
                match wake {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                command = self.commands.recv() => match command {
                    Some(command) => self.process_commands(command),
                    None => return,
                },
                Some((connection, event)) = self.events.recv() => self.handle(connection, event),
                () = sleep => {}
            }
            self.work(Session::wake);
            let timeout = self.session.heartbeat_timeout();
            self.heartbeat_timeout.send_if_modified(|known| std::mem::replace(known, timeout) != timeout);
        }
    }

    /// Processes all queued commands.
    fn process_commands(&mut self, command: Command) {
        self.command(command);
        for _ in 1..BATCH_MAX {
            let Ok(command) = self.commands.try_recv() else { break };
            self.command(command);
        }
    }

    fn command(&mut self, command: Command) {
        let now = self.start.elapsed();
        let deadline = |timeout: Option<Duration>| timeout.map(|timeout| now.saturating_add(timeout));
        match command {
            Command::Register { spec, takeover, timeout, reply } => {
                let id = spec.id.clone();
                match self.session.register(spec, takeover, deadline(timeout)) {
                    Ok((operation, registration)) => {
                        let (sender, standing) = watch::channel(Standing::default());
                        self.standings.insert(registration, sender);
                        let registered = Registered { registration, standing };
                        self.wait(operation, Waiting::ForRegistration { id, registered, reply });
                    }
                    Err(error) => drop(reply.send(Err(error))),
                }
            }
            Command::Update { id, registration, update, timeout, reply } => {
                let started = self.session.update(&id, registration, update, deadline(timeout));
                self.wait_for(started, reply);
            }
            Command::Unregister { id, registration, timeout, reply } => {
                let mut out = Effects::new();
                let started = self.session.unregister(&id, registration, deadline(timeout), &mut out);
                self.standings.remove(&registration);
                self.wait_for(started, reply);
                self.perform_all(out);
            }
            Command::Close { reply } => {
                self.closers.push(reply);
                self.work(Session::close);
            }
        }
    }

    fn wait_for(&mut self, started: Result<OperationId, Error>, reply: Reply<String>) {
        match started {
            Ok(operation) => self.wait(operation, Waiting::ForVersion { reply }),
            Err(error) => drop(reply.send(Err(error))),
        }
    }

    fn wait(&mut self, operation: OperationId, waiting: Waiting) {
        if waiting.is_over() {
            // The caller may have stopped waiting before this point, and its flag may already have been cleared.
            self.abandoned.store(true, Ordering::Release);
        }
        self.waiting.insert(operation, waiting);
    }

    fn handle(&mut self, id: ConnectionId, event: ConnectionEvent) {
        match event {
            ConnectionEvent::Connected(channel) => {
                if let Some(connection) = self.connection.as_mut().filter(|connection| connection.id == id) {
                    connection.channel = Some(channel);
                }
                self.work(|session, now, out| session.connected(now, id, out));
            }
            ConnectionEvent::Received(message) => {
                self.work(|session, now, out| session.received(now, id, message, out));
            }
            ConnectionEvent::Learnt(nodes) => self.session.learn(nodes),
            ConnectionEvent::Ended(error) => self.work(|session, now, out| session.disconnected(now, id, &error, out)),
        }
    }

    /// Runs a call of the session, then sends the queued requests and performs the effects.
    fn work(&mut self, call: impl FnOnce(&mut Session, ClientTime, &mut Effects)) {
        let mut out = Effects::new();
        self.cancel_abandoned(&mut out);
        call(&mut self.session, self.start.elapsed(), &mut out);
        self.session.flush(&mut out);
        self.perform_all(out);
    }

    /// Cancels operations whose futures were dropped.
    fn cancel_abandoned(&mut self, out: &mut Effects) {
        if !self.abandoned.swap(false, Ordering::Acquire) {
            return;
        }
        let gone = self.waiting.iter().filter(|(_, waiting)| waiting.is_over());
        let ids: Vec<OperationId> = gone.map(|(id, _)| *id).collect();
        for operation in ids {
            let fate = self.session.cancel(operation, out);
            tracing::debug!(?operation, taken_back = fate == NotSent::TakenBack, "operation abandoned by its caller");
            if let Some(Waiting::ForRegistration { registered, .. }) = self.waiting.remove(&operation) {
                self.standings.remove(&registered.registration);
            }
        }
    }

    fn perform_all(&mut self, effects: Effects) {
        for effect in effects {
            self.perform(effect);
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Connect { connection, address, attach } => {
                self.connection = Some(Connection::open(
                    connection,
                    address,
                    attach,
                    self.connection_events.clone(),
                    self.connector.clone(),
                ));
            }
            Effect::Disconnect { connection } => {
                self.connection.take_if(|held| held.id == connection);
            }
            Effect::Send { connection, message } => {
                let held = self.connection.as_ref().filter(|held| held.id == connection);
                if held.is_some_and(|held| !held.send(message)) {
                    let error = Error::new(ErrorCode::NotReady, "the node does not read its messages");
                    let _ = self.connection_events.try_send((connection, ConnectionEvent::Ended(error)));
                }
            }
            Effect::State(state) => self.state(state),
            Effect::Done { operation, result } => self.done(operation, result),
            Effect::Versioned { registration, version } => {
                if let Some(standing) = self.standings.get(&registration) {
                    standing.send_modify(|standing| standing.version = version);
                }
            }
            Effect::Ended { registration, error } => {
                tracing::warn!(%error, "registration ended");
                if let Some(standing) = self.standings.remove(&registration) {
                    standing.send_modify(|standing| standing.ended = Some(error));
                }
            }
            Effect::Closed { replicated } => {
                self.closed = true;
                let outcome = if replicated { CloseOutcome::Replicated } else { CloseOutcome::OneNode };
                for closer in self.closers.drain(..) {
                    let _ = closer.send(outcome);
                }
            }
        }
    }

    fn state(&mut self, state: ConnectionState) {
        match &state {
            ConnectionState::Connected { node, address } => {
                tracing::info!(%node, %address, "connected");
                let link = self.connection.as_ref().and_then(|connection| {
                    Some(Link { connection: connection.id, channel: connection.channel.clone()? })
                });
                self.links.send_replace(link);
            }
            ConnectionState::Disconnected { reason, retry_in } => {
                tracing::info!(%reason, ?retry_in, "disconnected");
                // Watches continue on the old link until there is a new one.
                self.links.send_replace(None);
            }
            ConnectionState::Connecting { .. } | ConnectionState::Closed => {}
        }
        self.states.send_replace(state);
    }

    fn done(&mut self, operation: OperationId, result: Result<String, Error>) {
        match self.waiting.remove(&operation) {
            Some(Waiting::ForRegistration { id, registered, reply }) => {
                let registration = registered.registration;
                if result.is_err() {
                    self.standings.remove(&registration);
                }
                if let Err(Ok(_)) = reply.send(result.map(|_| registered)) {
                    // The caller dropped its future at the last moment and did not receive its registration.
                    let mut out = Effects::new();
                    let _ = self.session.unregister(&id, registration, None, &mut out);
                    self.standings.remove(&registration);
                    self.perform_all(out);
                }
            }
            Some(Waiting::ForVersion { reply }) => drop(reply.send(result)),
            None => {}
        }
    }
}
