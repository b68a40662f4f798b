//! Holds a lock or a leadership while a command runs, and ends the command when it is lost.

use super::super::child;
use super::super::log::{CLOSE_TIMEOUT, SESSION_TTL, ambassador, or_explain};
use crate::args::LeaseOf;
use convoke_cli::output::{print, print_json};
use convoke_cli::{CommandError, ConnectArgs, Result, Signal, Signals, attach};
use convoke_client::log::{Elections, Kv, Leadership, LeaseTerms, LockGuard, Locks, Options};
use convoke_client::{Client, Error, ErrorCode, MemberSpec, Registration};
use serde_json::json;
use std::ffi::OsString;
use std::time::Duration;

/// Time limit for the release. After it, the lease expires.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// How a place is held, and how CMD is ended.
pub(super) struct Term {
    ttl: Duration,
    /// The member to register, with its service.
    member: Option<(String, String)>,
    grace: Duration,
}

impl Term {
    pub(super) fn new(lease: &LeaseOf, grace: Duration) -> Term {
        let member = lease.member.as_ref().map(|member| (member.clone(), lease.service.clone()));
        Term { ttl: lease.ttl, member, grace }
    }
}

/// A held lock or leadership.
pub(super) enum Held {
    Lock(LockGuard),
    Leadership(Leadership),
}

impl Held {
    fn fence(&self) -> u64 {
        match self {
            Held::Lock(guard) => guard.fence(),
            Held::Leadership(leadership) => leadership.fence(),
        }
    }

    fn lease(&self) -> u64 {
        match self {
            Held::Lock(guard) => guard.lease(),
            Held::Leadership(leadership) => leadership.lease(),
        }
    }

    async fn lost(&self) -> Error {
        match self {
            Held::Lock(guard) => guard.lost().await,
            Held::Leadership(leadership) => leadership.lost().await,
        }
    }

    async fn release(self) -> Result<(), Error> {
        match self {
            Held::Lock(guard) => guard.release().await,
            Held::Leadership(leadership) => leadership.resign().await,
        }
    }
}

/// The connection of a holder: of the log only, or with a registered member.
struct Connection {
    kv: Kv,
    locks: Locks,
    elections: Elections,
    /// Unregistered at the end.
    member: Option<(Client, Registration)>,
}

impl Connection {
    /// Revokes the leases, ends the log session and unregisters the member, so that nothing is left when this process
    /// exits. What cannot be ended in time expires.
    async fn close(self) {
        let closing = async {
            let Connection { kv, locks, elections, member } = self;
            let _ = locks.close().await;
            let _ = elections.close().await;
            let _ = kv.close(CLOSE_TIMEOUT).await;
            if let Some((client, _)) = member {
                let _ = client.close().await;
            }
        };
        let _ = tokio::time::timeout(RELEASE_TIMEOUT, closing).await;
    }
}

async fn connect_holder(connect: &ConnectArgs, term: &Term) -> Result<Connection> {
    // The timeout limits the requests, not the wait in the queue.
    let options = Options::default().timeout(connect.timeout).ttl(SESSION_TTL);
    let Some((member, service)) = &term.member else {
        let kv = ambassador(connect)?.kv_with(options);
        let terms = LeaseTerms::ttl(term.ttl);
        let (locks, elections) = (kv.locks().with_terms(terms.clone()), kv.elections().with_terms(terms));
        return Ok(Connection { kv, locks, elections, member: None });
    };
    let client = attach(connect, Client::builder()).await?;
    let registration = client.register(MemberSpec::new(member, service)).await?;
    let terms = registration.lease_terms();
    let kv = client.log().kv_with(options);
    let (locks, elections) = (kv.locks().with_terms(terms.clone()), kv.elections().with_terms(terms));
    Ok(Connection { kv, locks, elections, member: Some((client, registration)) })
}

/// Connects and acquires with `acquire`. Returns the signal if one arrives first; nothing is left then.
async fn begin(
    connect: &ConnectArgs,
    term: &Term,
    signals: &mut Signals,
    acquire: impl AsyncFnOnce(Locks, Elections) -> Result<Held, Error>,
) -> Result<Result<(Connection, Held), Signal>> {
    let connection = tokio::select! {
        connection = connect_holder(connect, term) => connection?,
        signal = signals.next() => return Ok(Err(signal)),
    };
    let acquired = tokio::select! {
        acquired = acquire(connection.locks.clone(), connection.elections.clone()) => Ok(acquired),
        signal = signals.next() => Err(signal),
    };
    match acquired {
        Ok(Ok(held)) => Ok(Ok((connection, held))),
        Ok(Err(error)) => {
            connection.close().await;
            or_explain(connect, Err(error)).await
        }
        Err(signal) => {
            connection.close().await;
            Ok(Err(signal))
        }
    }
}

/// Runs the command while the place is held, and releases it. Returns the exit code of the command.
pub(super) async fn hold(
    connect: &ConnectArgs,
    term: &Term,
    what: &str,
    command: &[OsString],
    acquire: impl AsyncFnOnce(Locks, Elections) -> Result<Held, Error>,
) -> Result<u8> {
    let mut signals = Signals::listen()?;
    let (connection, held) = match begin(connect, term, &mut signals, acquire).await? {
        Ok(begun) => begun,
        Err(signal) => return Err(CommandError::failed(format!("{signal}: stopped while waiting for {what}"))),
    };
    let code = run(&held, what, command, term.grace, &mut signals).await;
    release(held, connection, what).await;
    code
}

/// Holds until a signal arrives, without a command.
pub(super) async fn hold_until_signal(
    connect: &ConnectArgs,
    term: &Term,
    what: &str,
    json: bool,
    acquire: impl AsyncFnOnce(Locks, Elections) -> Result<Held, Error>,
) -> Result<u8> {
    let mut signals = Signals::listen()?;
    let Ok((connection, held)) = begin(connect, term, &mut signals, acquire).await? else { return Ok(0) };
    let (fence, lease) = (held.fence(), held.lease());
    let announced = if json {
        print_json(&json!({ "held": true, "fence": fence, "lease": lease.to_string() }))
    } else {
        print(&format!("{what} is held with fence {fence}; Ctrl-C releases it\n"))
    };
    let ended = match announced {
        Ok(()) => tokio::select! {
            error = held.lost() => Err(error.into()),
            _ = signals.next() => Ok(0),
        },
        Err(error) => Err(error),
    };
    release(held, connection, what).await;
    ended
}

async fn run(held: &Held, what: &str, command: &[OsString], grace: Duration, signals: &mut Signals) -> Result<u8> {
    let environment = [("CONVOKE_FENCE", held.fence().to_string()), ("CONVOKE_LEASE", held.lease().to_string())];
    let mut child = child::spawn_with(command, &environment)?;
    let error = tokio::select! {
        code = child::wait(&mut child, signals) => return code,
        error = held.lost() => error,
    };
    eprintln!("convoke: {what} is lost, ending the command: {}", error.message);
    child::end(&mut child, grace, signals).await?;
    Err(CommandError::failed(format!("{what} was lost while the command ran")))
}

/// Releases, and unregisters the member. If that fails, the lease ends the place.
async fn release(held: Held, connection: Connection, what: &str) {
    let released = match tokio::time::timeout(RELEASE_TIMEOUT, held.release()).await {
        Ok(released) => released,
        Err(_) => Err(Error::new(ErrorCode::Timeout, "no answer in time")),
    };
    if let Err(error) = released {
        eprintln!("convoke: cannot release {what}: {}; its lease ends it", error.message);
    }
    connection.close().await;
}
