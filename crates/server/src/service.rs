//! Serves the calls of one connection. gRPC and HTTP share it and differ in the content type.

use crate::access::{Caller, KnownCaller, StreamEnd};
use crate::consul;
use crate::grpc::Services;
use crate::http;
use crate::surface::Surface;
use ::http::{HeaderMap, Request, Response, header};
use axum::Router;
use bytes::Bytes;
use convoke_access::{CertificateIdentity, CertificateRole};
use convoke_proto::ErrorCode;
use convoke_tls::{Identity, IdentityRole, Stream};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

/// Number of the next connection of a client.
static NUMBER: AtomicU64 = AtomicU64::new(1);

/// Principals of one connection whose latest tokens are kept.
const RENEWALS_MAX: usize = 8;

/// Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    surface: Arc<Surface>,
    grpc: Services,
    http: Router,
    /// Serves Consul's HTTP API alone.
    only_consul: bool,
    connection: Arc<ClientConnection>,
}

/// A client's connection. Sessions with `fast` liveness depend on it.
#[derive(Debug, Default)]
pub(crate) struct ClientConnection {
    /// Address of the client.
    pub(crate) address: Option<SocketAddr>,
    /// Unique in this process.
    pub(crate) number: u64,
    /// Whether the connection uses TLS.
    pub(crate) tls: bool,
    /// Identity of the verified certificate of the client: a node or a client of this cluster.
    pub(crate) certificate: Option<CertificateIdentity>,
    /// The caller whose token the last request carried.
    known: Mutex<Option<KnownCaller>>,
    /// The latest caller of each principal that has shown a token here (AU21).
    renewals: Mutex<Vec<Caller>>,
    /// Whether a session with `fast` liveness was ever bound to it.
    has_bound: AtomicBool,
    /// Calls that are not complete: until the last byte of the response.
    open_calls: AtomicUsize,
    /// All calls so far.
    calls: AtomicU64,
    /// Open watches of keys, locks and elections (H11).
    pub(crate) key_watches: AtomicUsize,
    /// Bytes of gRPC messages that no rate limit has counted yet.
    received: AtomicU64,
}

/// A call on a connection. Dropped with its response.
#[derive(Debug)]
struct OpenCall(Arc<ClientConnection>);

impl OpenCall {
    fn on(connection: &Arc<ClientConnection>) -> OpenCall {
        connection.calls.fetch_add(1, Ordering::Relaxed);
        connection.open_calls.fetch_add(1, Ordering::Relaxed);
        OpenCall(connection.clone())
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.0.open_calls.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ClientConnection {
    /// Returns the number of calls so far, or `None` while a call is open.
    pub(crate) fn calls_if_idle(&self) -> Option<u64> {
        (self.open_calls.load(Ordering::Relaxed) == 0).then(|| self.calls.load(Ordering::Relaxed))
    }

    /// Whether a request has arrived.
    pub(crate) fn has_called(&self) -> bool {
        self.calls.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn of(stream: &Stream, identity: Option<Identity>) -> Arc<Self> {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let (address, tls) = (stream.peer_addr().ok(), stream.is_tls());
        let certificate = identity.map(|Identity { cluster, role, name }| {
            let role = match role {
                IdentityRole::Node => CertificateRole::Node,
                IdentityRole::Client => CertificateRole::Client,
            };
            CertificateIdentity { cluster, role, name }
        });
        Arc::new(ClientConnection { address, number, tls, certificate, ..ClientConnection::default() })
    }

    /// Rejects a token on a connection that others can read: it is without TLS and leaves this machine (AU14). The caller
    /// must replace the token, which was sent already.
    pub(crate) fn check_private(&self) -> Result<(), convoke_proto::Error> {
        let is_local = self.address.is_none_or(|address| address.ip().to_canonical().is_loopback());
        if self.tls || is_local {
            return Ok(());
        }
        let message = "a token was sent without TLS; use https, and revoke the token";
        Err(convoke_proto::Error::new(ErrorCode::Unauthenticated, message))
    }

    /// Counts bytes that have arrived.
    pub(crate) fn received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Returns the bytes that have arrived since the last call of this function.
    pub(crate) fn take_received(&self) -> u64 {
        self.received.swap(0, Ordering::Relaxed)
    }

    pub(crate) fn known_caller(&self) -> Option<KnownCaller> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn remember_caller(&self, caller: KnownCaller) {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some(caller);
    }

    /// Notes that a principal has shown a token on this connection: its streams may continue with it (AU21). Above the limit,
    /// streams end with their own tokens.
    pub(crate) fn renew(&self, caller: &Caller) {
        let mut renewals = self.renewals.lock().unwrap_or_else(PoisonError::into_inner);
        match renewals.iter().position(|known| known.may_continue_as(caller)) {
            Some(index) if renewals[index].expires_before(caller) => renewals[index] = caller.unrecorded(),
            Some(_) => {}
            None if renewals.len() < RENEWALS_MAX => renewals.push(caller.unrecorded()),
            None => {}
        }
    }

    /// Returns the latest caller on this connection whose token may replace that of `caller`.
    pub(crate) fn renewal_of(&self, caller: &Caller) -> Option<Caller> {
        let renewals = self.renewals.lock().unwrap_or_else(PoisonError::into_inner);
        renewals.iter().find(|known| known.may_continue_as(caller)).cloned()
    }

    /// Records that the session table has bound a session to this connection.
    pub(crate) fn set_bound(&self) {
        self.has_bound.store(true, Ordering::Relaxed);
    }

    /// Whether a session may depend on this connection.
    pub(crate) fn has_bound(&self) -> bool {
        self.has_bound.load(Ordering::Relaxed)
    }
}

impl Service {
    pub(crate) fn new(surface: &Arc<Surface>) -> Self {
        Service {
            surface: surface.clone(),
            grpc: Services::new(surface),
            http: http::router(surface),
            only_consul: false,
            connection: Arc::default(),
        }
    }

    /// Returns the service of the listener for Consul's HTTP API.
    pub(crate) fn only_consul(&self) -> Self {
        Service { only_consul: true, ..self.clone() }
    }

    /// Returns the service for one connection.
    pub(crate) fn for_connection(&self, connection: &Arc<ClientConnection>) -> Self {
        Service { connection: connection.clone(), ..self.clone() }
    }
}

impl hyper::service::Service<Request<Incoming>> for Service {
    type Response = Response<CountedReply>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<CountedReply>, Infallible>> + Send>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        consul::take_token(&mut request);
        request.extensions_mut().insert(self.connection.clone());
        let call = OpenCall::on(&self.connection);
        let authenticated = self.surface.admit(&self.connection, &request);
        let end = authenticated.as_ref().ok().and_then(|caller| StreamEnd::of(&self.surface, &self.connection, caller));
        request.extensions_mut().insert(Authenticated(authenticated));
        if self.only_consul && !request.uri().path().starts_with(consul::PREFIX) {
            *request.uri_mut() = consul::elsewhere();
        } else if is_grpc(request.headers()) {
            let grpc = self.grpc.clone();
            return Box::pin(async move {
                Ok(grpc.call(request).await.map(|reply| CountedReply::new(reply, call, end, true)))
            });
        }
        let answering = tower::Service::call(&mut self.http.clone(), request);
        Box::pin(
            async move { Ok(answering.await?.map(|body| CountedReply::new(Reply::Routed(body), call, end, false))) },
        )
    }
}

pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}

/// The body of a response. Streams of many small messages avoid unnecessary layers.
#[derive(Debug)]
pub(crate) enum Reply {
    Grpc(tonic::body::Body),
    Routed(axum::body::Body),
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.get_mut() {
            Reply::Grpc(body) => Pin::new(body).poll_frame(context).map_err(Into::into),
            Reply::Routed(body) => Pin::new(body).poll_frame(context).map_err(Into::into),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Reply::Grpc(body) => body.is_end_stream(),
            Reply::Routed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Reply::Grpc(body) => body.size_hint(),
            Reply::Routed(body) => body.size_hint(),
        }
    }
}

/// The body of a response, which keeps its call open.
#[derive(Debug)]
pub(crate) struct CountedReply {
    reply: Reply,
    _call: OpenCall,
    /// Ends a stream whose caller has lost its rights.
    end: Option<StreamEnd>,
    grpc: bool,
    ended: bool,
}

impl CountedReply {
    fn new(reply: Reply, call: OpenCall, end: Option<StreamEnd>, grpc: bool) -> Self {
        // A body of known size is sent at once.
        let end = end.filter(|_| !reply.is_end_stream() && reply.size_hint().exact().is_none());
        CountedReply { reply, _call: call, end, grpc, ended: false }
    }
}

/// Who calls, or why the credentials are not valid. In the extensions of every request.
#[derive(Clone, Debug)]
pub(crate) struct Authenticated(pub(crate) Result<Caller, convoke_proto::Error>);

impl Body for CountedReply {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.get_mut();
        if this.ended {
            return Poll::Ready(None);
        }
        if this.end.as_mut().is_some_and(|end| end.poll(context).is_ready()) {
            this.ended = true;
            return Poll::Ready(this.grpc.then(|| Ok(Frame::trailers(StreamEnd::trailers()))));
        }
        Pin::new(&mut this.reply).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.ended || self.reply.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.reply.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_refused_without_tls_unless_it_stays_on_this_machine() {
        let sent = |address: &str, tls| {
            let address = Some(address.parse().unwrap());
            ClientConnection { address, tls, ..ClientConnection::default() }.check_private().map_err(|error| error.code)
        };
        for local in ["127.0.0.1:5000", "[::1]:5000", "[::ffff:127.0.0.1]:5000"] {
            assert_eq!(sent(local, false), Ok(()), "{local}");
        }
        assert_eq!(sent("10.0.0.7:5000", true), Ok(()));
        assert_eq!(sent("10.0.0.7:5000", false), Err(ErrorCode::Unauthenticated));
    }
}
