//! Settings of a client.

use crate::client::{Client, Inner, LogAccess, Process};
use crate::connect::connector;
use crate::connection::endpoint;
use crate::driver::{Driver, Signals};
use crate::seeds::Seeds;
use crate::session::{ClientIdentity, Session};
use crate::token::TokenSource;
use crate::{ConnectionState, Error, ErrorCode, Liveness};
use convoke_tls::ClientTls;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// Default client address of a node.
const DEFAULT_SEED: &str = "127.0.0.1:7700";
/// Timeout of [`Builder::connect`] if no operation timeout is set.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Commands that may wait for the driver. Further callers wait.
const COMMANDS_MAX: usize = 1024;

/// Builds a [`Client`].
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Builder {
    seeds: Vec<String>,
    region: Option<String>,
    client: Option<String>,
    liveness: Liveness,
    heartbeat_timeout: Option<Duration>,
    operation_timeout: Option<Duration>,
    token: Option<TokenSource>,
    tls: Option<ClientTls>,
}

impl Builder {
    /// Sets the addresses to start from, `host:port`. Other nodes are learnt from the registry. The default is
    /// `127.0.0.1:7700`.
    pub fn seeds<S: Into<String>>(mut self, seeds: impl IntoIterator<Item = S>) -> Builder {
        self.seeds = seeds.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the preferred region of nodes.
    pub fn region(mut self, region: impl Into<String>) -> Builder {
        self.region = Some(region.into());
        self
    }

    /// Sets a stable client id. A new process with the id of an older one replaces it immediately. Two processes must
    /// not use one id at the same time: the older one receives `SUPERSEDED`. By default the id is random.
    pub fn client_id(mut self, id: impl Into<String>) -> Builder {
        self.client = Some(id.into());
        self
    }

    /// Sets the liveness mode. With [`Liveness::Fast`] a lost connection makes the members `down` within a second.
    pub fn liveness(mut self, liveness: Liveness) -> Builder {
        self.liveness = liveness;
        self
    }

    /// Sets the silence after which this client's members are `down`. The default is the node's setting (20 s).
    pub fn heartbeat_timeout(mut self, timeout: Duration) -> Builder {
        self.heartbeat_timeout = Some(timeout);
        self
    }

    /// Sets the timeout of operations. An operation that could not be sent in time fails with `TIMEOUT` and was not
    /// executed. One that was sent fails with `OUTCOME_UNKNOWN`. By default operations wait for their answer without a
    /// limit.
    pub fn operation_timeout(mut self, timeout: Duration) -> Builder {
        self.operation_timeout = Some(timeout);
        self
    }

    /// Sets the token that the client shows with every call.
    pub fn token(mut self, token: TokenSource) -> Builder {
        self.token = Some(token);
        self
    }

    /// Uses TLS for all connections. They never fall back to connections without it.
    pub fn tls(mut self, tls: ClientTls) -> Builder {
        self.tls = Some(tls);
        self
    }

    /// Starts the client, which connects in the background. Must be called in a tokio runtime.
    pub fn build(self) -> Result<Client, Error> {
        let seeds = if self.seeds.is_empty() { vec![DEFAULT_SEED.to_owned()] } else { self.seeds };
        for seed in &seeds {
            endpoint(seed)?;
        }
        if tokio::runtime::Handle::try_current().is_err() {
            return Err(Error::new(ErrorCode::FailedPrecondition, "a client must be built in a tokio runtime"));
        }
        let connector = connector(self.tls, self.token);
        let mut random = fastrand::Rng::new();
        let identity = ClientIdentity {
            client: self.client.unwrap_or_else(|| format!("{:016x}", random.u64(..))),
            nonce: random.u64(1..),
            liveness: self.liveness,
            timeout: self.heartbeat_timeout,
        };
        let id = identity.client.clone();
        let nonce = identity.nonce;
        let start = Instant::now();
        let log = LogAccess::new(seeds.clone(), connector.clone());
        let session = Session::new(identity, Seeds::new(seeds, self.region), random, start.elapsed());
        let (commands, receiver) = mpsc::channel(COMMANDS_MAX);
        let (states, state) = watch::channel(ConnectionState::Connecting { address: String::new() });
        let (links, link) = watch::channel(None);
        let abandoned = Arc::<AtomicBool>::default();
        let (heartbeats, heartbeat_timeout) = watch::channel(session.heartbeat_timeout());
        let process = Process { nonce, heartbeat_timeout, registered: Mutex::default() };
        let signals = Signals { states, links, heartbeat_timeout: heartbeats };
        tokio::spawn(Driver::new(session, start, receiver, signals, abandoned.clone(), connector).run());
        let operation_timeout = self.operation_timeout;
        let inner = Inner { id, commands, states: state, links: link, operation_timeout, abandoned, log, process };
        Ok(Client { inner: Arc::new(inner) })
    }

    /// Starts the client and waits until it is connected, at most for the operation timeout, or for 10 s if none is
    /// set. The error `TIMEOUT` names the addresses and the last failure. To wait without a limit, use
    /// [`build`](Builder::build) and [`Client::wait_connected`].
    pub async fn connect(self) -> Result<Client, Error> {
        let timeout = self.operation_timeout.unwrap_or(CONNECT_TIMEOUT);
        let client = self.build()?;
        let mut failure = None;
        match tokio::time::timeout(timeout, client.connected(&mut failure)).await {
            Ok(connected) => connected.map(|()| client),
            Err(_) => Err(not_connected(client.seeds(), timeout, failure.as_ref())),
        }
    }
}

fn not_connected(seeds: &[String], timeout: Duration, failure: Option<&Error>) -> Error {
    let cause = failure.map_or_else(|| "no answer".to_owned(), |error| error.message.clone());
    let (seeds, seconds) = (seeds.join(", "), timeout.as_secs_f64());
    Error::new(ErrorCode::Timeout, format!("no node at {seeds} accepted this client within {seconds} s: {cause}"))
}
