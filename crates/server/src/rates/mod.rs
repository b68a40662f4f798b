//! Rate limits of callers, per principal and per address (AU20). Off unless configured.

mod buckets;

use crate::access::Caller;
use crate::service::{ClientConnection, is_grpc};
use crate::surface::Surface;
use ::http::{Method, Request};
use buckets::Buckets;
use convoke_access::{CertificateRole, Resource, Verb};
use convoke_counters::add;
use convoke_proto::{Error, ErrorCode};
use http_body::Body;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Principals and addresses with buckets of their own.
const KEYS_MAX: usize = 10_000;

/// Rates per second. 0 means no limit. A caller may use the amount of ten seconds at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// HTTP requests, gRPC calls, and messages in attach streams and log links.
    pub requests: u64,
    /// Attach streams that are opened.
    pub attaches: u64,
    /// Sessions that are created: HTTP sessions and log sessions.
    pub sessions: u64,
    /// Watches that are opened, of members, events, keys and elections.
    pub watchers: u64,
    /// Bytes received.
    pub bytes: u64,
}

/// Rate limits of the client port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateLimits {
    /// Of one principal, at this node.
    pub principal: Rates,
    /// Of one IPv4 address or one IPv6 network of 64 bits, before authentication.
    pub address: Rates,
}

/// What a call uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Used {
    Request,
    Attach,
    Session,
    Watcher,
}

impl Used {
    /// Returns what a call opens. Every call is a request as well.
    pub(crate) fn by(method: &Method, path: &str) -> Used {
        match path {
            "/convoke.v1.Registry/Attach" => Used::Attach,
            "/convoke.v1.Registry/Watch" | "/convoke.v1.Log/Watch" => Used::Watcher,
            "/api/v1/watch" | "/api/v1/events" | "/api/v1/kv-watch" => Used::Watcher,
            "/api/v1/sessions" if method == Method::POST => Used::Session,
            path if path.starts_with("/api/v1/elections/") && path.ends_with("/watch") => Used::Watcher,
            _ => Used::Request,
        }
    }
}

/// The buckets of all callers of one kind.
#[derive(Debug)]
struct Table<K> {
    requests: Option<Buckets<K>>,
    attaches: Option<Buckets<K>>,
    sessions: Option<Buckets<K>>,
    watchers: Option<Buckets<K>>,
    bytes: Option<Buckets<K>>,
}

/// A refusal: what was used, its rate, and the time to wait.
struct Refusal {
    what: &'static str,
    per_second: u64,
    wait: Duration,
}

impl<K: Eq + Hash + Clone> Table<K> {
    /// Returns `None` if nothing is limited, so that callers need no lock.
    fn new(rates: Rates) -> Option<Table<K>> {
        let buckets = |rate: u64| (rate > 0).then(|| Buckets::new(rate, KEYS_MAX));
        let Rates { requests, attaches, sessions, watchers, bytes } = rates;
        (rates != Rates::default()).then(|| Table {
            requests: buckets(requests),
            attaches: buckets(attaches),
            sessions: buckets(sessions),
            watchers: buckets(watchers),
            bytes: buckets(bytes),
        })
    }

    fn take(&mut self, now: Duration, key: &K, used: Used, received: u64) -> Result<(), Refusal> {
        let special = match used {
            Used::Request => None,
            Used::Attach => Some(("attaches", &mut self.attaches)),
            Used::Session => Some(("sessions", &mut self.sessions)),
            Used::Watcher => Some(("watchers", &mut self.watchers)),
        };
        let always = [("requests", &mut self.requests, 1), ("bytes", &mut self.bytes, received)];
        let special = special.map(|(what, buckets)| (what, buckets, 1));
        for (what, buckets, amount) in always.into_iter().chain(special) {
            if let Some(buckets) = buckets {
                let per_second = buckets.per_second();
                buckets.take(now, key, amount).map_err(|wait| Refusal { what, per_second, wait })?;
            }
        }
        Ok(())
    }
}

/// The rate limits of the client port.
#[derive(Debug)]
pub(crate) struct RateLimiter {
    started: Instant,
    principals: Option<Mutex<Table<String>>>,
    addresses: Option<Mutex<Table<IpAddr>>>,
    /// Calls and messages that were refused.
    refused: AtomicU64,
}

impl RateLimiter {
    pub(crate) fn new(limits: RateLimits) -> RateLimiter {
        RateLimiter {
            started: Instant::now(),
            principals: Table::new(limits.principal).map(Mutex::new),
            addresses: Table::new(limits.address).map(Mutex::new),
            refused: AtomicU64::new(0),
        }
    }

    /// Whether anything is limited.
    pub(crate) fn is_on(&self) -> bool {
        self.principals.is_some() || self.addresses.is_some()
    }

    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Counts a call for its address, before its credentials are verified: that costs more than this. Nodes with a
    /// certificate are not limited, because they forward the requests of others.
    pub(crate) fn admit_address(&self, connection: &ClientConnection, used: Used, received: u64) -> Result<(), Error> {
        let (Some(addresses), Some(address)) = (&self.addresses, connection.address) else { return Ok(()) };
        let is_node = connection.certificate.as_ref().is_some_and(|shown| shown.role == CertificateRole::Node);
        if is_node {
            return Ok(());
        }
        let network = network(address.ip());
        let taken = lock(addresses).take(self.started.elapsed(), &network, used, received);
        taken.map_err(|refusal| self.refuse(&format!("address {network}"), &refusal))
    }

    /// Counts a call or a message for its principal.
    pub(crate) fn admit(&self, caller: &Caller, used: Used, received: u64) -> Result<(), Error> {
        let Some(principals) = &self.principals else { return Ok(()) };
        // Without access control nobody has a principal, and nodes act for others.
        if !caller.is_restricted() || caller.may(Verb::Forward, Resource::Cluster) {
            return Ok(());
        }
        let name = caller.principal().name();
        let taken = lock(principals).take(self.started.elapsed(), &name.to_owned(), used, received);
        taken.map_err(|refusal| self.refuse(&format!("principal {name}"), &refusal))
    }

    fn refuse(&self, who: &str, refusal: &Refusal) -> Error {
        add(&self.refused, 1);
        let Refusal { what, per_second, wait } = refusal;
        let wait = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).saturating_add(1);
        let message = format!("{who} exceeds {per_second} {what} per second at this node; try again in {wait} ms");
        let error = Error::new(ErrorCode::ResourceExhausted, message).field(*what).limit(*per_second);
        Error { retry_after_ms: Some(wait), ..error }
    }
}

impl Surface {
    /// Returns the caller of a request. A rate limit of its address is checked before its credentials, because these cost
    /// more; that of its principal is checked after them. A request that is refused is refused by every route but the
    /// public ones.
    pub(crate) fn admit<B: Body>(&self, connection: &ClientConnection, request: &Request<B>) -> Result<Caller, Error> {
        if !self.rates.is_on() {
            return self.gate.authenticate(connection, request.headers());
        }
        let used = Used::by(request.method(), request.uri().path());
        let received = connection.take_received().saturating_add(self.bytes_of(request));
        self.rates.admit_address(connection, used, received)?;
        let caller = self.gate.authenticate(connection, request.headers())?;
        self.rates.admit(&caller, used, received)?;
        Ok(caller)
    }

    /// Returns the bytes of the headers and of the body. A body that does not declare its size counts as the largest one.
    /// The messages of gRPC are counted when they have arrived.
    fn bytes_of<B: Body>(&self, request: &Request<B>) -> u64 {
        let headers = request.headers().iter();
        let heads: usize = headers.map(|(name, value)| name.as_str().len() + value.len()).sum();
        let body = match request.body().size_hint().exact() {
            Some(bytes) => bytes,
            None if is_grpc(request.headers()) => 0,
            None => self.config.limits.body_bytes as u64,
        };
        body.saturating_add(heads as u64)
    }
}

/// One host usually has a whole IPv6 network.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
