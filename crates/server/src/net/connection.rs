//! One client connection, HTTP/1.1 or HTTP/2.

use super::accept::Stage;
use super::guarded::Guarded;
use super::preface::{self, Protocol};
use crate::service::{ClientConnection, Service};
use crate::surface::Surface;
use convoke_counters::add;
use convoke_tls::{Accepted, HandshakeError, Stream};
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep};

/// Buffer for HTTP/1.1 headers. Headers above the configured limit get an error response; hyper closes a connection
/// that exceeds the buffer.
const HTTP1_BUFFER: usize = 128 * 1024;
/// Bytes that a client may send ahead on one call and on a connection.
const STREAM_WINDOW: u32 = 1024 * 1024;
const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;
/// Bytes buffered for the client on one call before no more are produced.
const SEND_BUFFER: usize = 64 * 1024;

/// Serves a connection until it ends or, after `Closing`, until its calls have ended.
pub(super) async fn serve(socket: TcpStream, surface: Arc<Surface>, service: Service, stage: watch::Receiver<Stage>) {
    let timeouts = surface.config.timeouts.clone();
    // Until its first request, a connection may be that of a stranger who says nothing (TS6).
    let silent = surface.gates.silent.begin();
    let opening = async {
        let Accepted { mut stream, identity } = secure(socket, &surface).await?;
        match tokio::time::timeout(timeouts.headers, preface::read(&mut stream)).await {
            Ok(Ok(first)) => Some((stream, identity, first)),
            _ => {
                add(&surface.metrics.clients.connections_timed_out, 1);
                None
            }
        }
    };
    let opened = tokio::select! {
        biased;
        opened = opening => opened,
        () = silent.displaced() => {
            add(&surface.metrics.clients.connections_rejected, 1);
            None
        }
    };
    let Some((stream, identity, first)) = opened else { return };
    let mut silent = Some(Box::pin(async move { silent.displaced().await }));
    let header_bytes = surface.config.limits.header_bytes;
    let streams = surface.config.limits.streams_per_connection;
    let client = ClientConnection::of(&stream, identity);
    let service = service.for_connection(&client);
    // hyper closes idle HTTP/1.1 connections itself.
    let mut idle = (first.protocol == Protocol::Http2).then(|| Idle::new(client.clone(), timeouts.idle));
    let io = TokioIo::new(Guarded::new(stream, first.bytes(), timeouts.stall));
    // A macro, because the two connection types have no common trait.
    macro_rules! run {
        ($connection:expr) => {{
            let connection = $connection;
            tokio::pin!(connection);
            let mut closing = Closing::new(stage);
            let result = std::future::poll_fn(|context| {
                if client.has_called() {
                    silent = None;
                } else if silent.as_mut().is_some_and(|displaced| displaced.as_mut().poll(context).is_ready()) {
                    silent = None;
                    add(&surface.metrics.clients.connections_rejected, 1);
                    return Poll::Ready(Ok(()));
                }
                if closing.begins(context) || idle.as_mut().is_some_and(|idle| idle.is_over(context)) {
                    connection.as_mut().graceful_shutdown();
                }
                connection.as_mut().poll(context)
            })
            .await;
            if let Err(error) = result {
                if is_malformed(&error) {
                    add(&surface.metrics.clients.connections_malformed, 1);
                }
                tracing::debug!(%error, "client connection ended");
            }
        }};
    }
    match first.protocol {
        Protocol::Http1 => run!(
            http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(timeouts.headers)
                .max_buf_size(HTTP1_BUFFER)
                .serve_connection(io, service)
        ),
        Protocol::Http2 => run!(
            http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .max_concurrent_streams(streams)
                .max_header_list_size(u32::try_from(header_bytes).unwrap_or(u32::MAX))
                .initial_stream_window_size(STREAM_WINDOW)
                .initial_connection_window_size(CONNECTION_WINDOW)
                .max_send_buf_size(SEND_BUFFER)
                // Also on an idle connection: its client may have vanished without a word.
                .keep_alive_interval(timeouts.keep_alive * 2)
                .keep_alive_timeout(timeouts.keep_alive * 2)
                .serve_connection(io, service)
        ),
    }
    surface.sessions.disconnected(&client);
}

/// Completes the TLS handshake, if this port uses TLS. Returns `None` if the connection was refused.
async fn secure(socket: TcpStream, surface: &Surface) -> Option<Accepted> {
    let Some(tls) = &surface.config.tls else {
        return Some(Accepted { stream: Stream::Plain(socket), identity: None });
    };
    let address = socket.peer_addr().ok();
    match tls.accept_client(socket, surface.config.timeouts.headers).await {
        Ok(accepted) => Some(accepted),
        Err(error) => {
            if matches!(error, HandshakeError::TimedOut) {
                add(&surface.metrics.clients.connections_timed_out, 1);
            }
            tracing::debug!(?address, %error, "client connection refused");
            None
        }
    }
}

/// Returns whether a connection ended because of invalid bytes from the client, as opposed to a disconnect.
fn is_malformed(error: &hyper::Error) -> bool {
    let http2 = error.source().and_then(|source| source.downcast_ref::<h2::Error>());
    error.is_parse() || http2.is_some_and(|error| error.is_go_away() && error.is_library())
}

/// Reports once that a connection should end. A connection is polled for every message, and comparing a number is
/// cheaper than polling the channel each time.
struct Closing {
    stage: watch::Receiver<Stage>,
    change: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    reported: bool,
}

impl Closing {
    fn new(stage: watch::Receiver<Stage>) -> Self {
        Closing { stage, change: None, reported: false }
    }

    /// Returns true once, when the connection should end. The task is woken for it.
    fn begins(&mut self, context: &mut Context<'_>) -> bool {
        // An error means that the server has been dropped.
        let changed = self.stage.has_changed().unwrap_or(true);
        if self.reported || (self.change.is_some() && !changed) {
            return false;
        }
        let mut stage = self.stage.clone();
        let change = self.change.get_or_insert_with(|| {
            Box::pin(async move {
                let _ = stage.wait_for(|stage| *stage == Stage::Closing).await;
            })
        });
        self.reported = change.as_mut().poll(context).is_ready();
        self.reported
    }
}

/// Reports once that a connection had no call for a while.
struct Idle {
    client: Arc<ClientConnection>,
    timeout: Duration,
    timer: Pin<Box<Sleep>>,
    /// Number of calls when the timer was set; `None` if one was open.
    calls: Option<u64>,
    reported: bool,
}

impl Idle {
    fn new(client: Arc<ClientConnection>, timeout: Duration) -> Self {
        let calls = client.calls_if_idle();
        Idle { client, timeout, timer: Box::pin(tokio::time::sleep(timeout)), calls, reported: false }
    }

    /// Returns true once, when the connection should end. The task is woken for it.
    fn is_over(&mut self, context: &mut Context<'_>) -> bool {
        while !self.reported && self.timer.as_mut().poll(context).is_ready() {
            let calls = self.client.calls_if_idle();
            self.reported = calls.is_some() && calls == self.calls;
            self.calls = calls;
            self.timer.as_mut().reset(Instant::now() + self.timeout);
            if self.reported {
                return true;
            }
        }
        false
    }
}
