//! One client connection, HTTP/1.1 or HTTP/2.

use super::accept::Stage;
use super::guarded::Guarded;
use super::preface::{self, Protocol};
use crate::surface::{Service, Surface, Tie};
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::error::Error;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::sync::watch;

/// HTTP/1.1 headers are read up to this size and refused in words from the configured limit on; beyond, hyper closes.
const HTTP1_BUFFER: usize = 128 * 1024;
/// Bytes a client may send ahead on one call, and on a connection.
const STREAM_WINDOW: u32 = 1024 * 1024;
const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;
/// Bytes that wait for the client on one call before nothing more is produced.
const SEND_BUFFER: usize = 64 * 1024;

/// Serves a connection until it ends, or its calls have ended after `Closing`.
pub(super) async fn serve(
    mut stream: TcpStream,
    surface: Arc<Surface>,
    service: Service,
    mut stage: watch::Receiver<Stage>,
) {
    let timeouts = surface.config.timeouts.clone();
    let Ok(Ok(first)) = tokio::time::timeout(timeouts.headers, preface::read(&mut stream)).await else {
        surface.metrics.connections_silent.add(1);
        return;
    };
    let header_bytes = surface.config.limits.header_bytes;
    let streams = surface.config.limits.streams_per_connection;
    let tie = Arc::<Tie>::default();
    let service = service.for_connection(&tie);
    let io = TokioIo::new(Guarded::new(stream, first.bytes(), timeouts.stall));
    // A macro because the two connections have no type in common.
    macro_rules! run {
        ($connection:expr) => {{
            let connection = $connection;
            tokio::pin!(connection);
            let result = tokio::select! {
                result = connection.as_mut() => result,
                () = closing(&mut stage) => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            };
            if let Err(error) = result {
                if is_malformed(&error) {
                    surface.metrics.connections_malformed.add(1);
                }
                tracing::debug!("a client's connection ended: {error}");
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
                .keep_alive_interval(timeouts.keep_alive)
                .keep_alive_timeout(timeouts.keep_alive)
                .serve_connection(io, service)
        ),
    }
    surface.sessions.cut(&tie);
}

/// Whether a connection ended because of what the client sent, as opposed to its going away.
fn is_malformed(error: &hyper::Error) -> bool {
    let http2 = error.source().and_then(|source| source.downcast_ref::<h2::Error>());
    error.is_parse() || http2.is_some_and(|error| error.is_go_away() && error.is_library())
}

async fn closing(stage: &mut watch::Receiver<Stage>) {
    // An error means that the server itself is gone.
    let _ = stage.wait_for(|stage| *stage == Stage::Closing).await;
}
