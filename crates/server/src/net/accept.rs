//! Accepts connections up to the limit until the server stops, then waits until they have ended.

use super::connection;
use crate::config::Timeouts;
use crate::service::Service;
use crate::surface::Surface;
use convoke_counters::add;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Pause after an error such as exhausted file descriptors or memory, until others are released.
const PAUSE: Duration = Duration::from_millis(50);

/// Stages of the shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    Serving,
    /// No new connections are accepted.
    Leaving,
    /// Connections close when their current calls end.
    Closing,
}

/// Serves connections; returns when the last one has ended after `Closing`.
pub(crate) async fn accept(
    listener: TcpListener,
    surface: Arc<Surface>,
    service: Service,
    mut stage: watch::Receiver<Stage>,
) {
    let mut connections = JoinSet::new();
    let mut stopping = stage.clone();
    loop {
        let accepted = tokio::select! {
            biased;
            _ = stopping.wait_for(|stage| *stage > Stage::Serving) => break,
            accepted = listener.accept() => accepted,
        };
        while connections.try_join_next().is_some() {}
        match accepted {
            Ok((stream, address)) => {
                let permit = surface.gates.connections.clone().try_acquire_owned().ok();
                let Some(permit) = permit.zip(surface.gates.addresses.enter(address.ip())) else {
                    add(&surface.metrics.clients.connections_rejected, 1);
                    continue;
                };
                add(&surface.metrics.clients.connections_accepted, 1);
                tune(&stream, &surface.config.timeouts);
                let serving = connection::serve(stream, surface.clone(), service.clone(), stage.clone());
                connections.spawn(async move {
                    let _permit = permit;
                    serving.await;
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a client connection");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    drop(listener);
    // An error means that the server has been dropped.
    let _ = stage.wait_for(|stage| *stage == Stage::Closing).await;
    while connections.join_next().await.is_some() {}
}

/// Disables Nagle's algorithm, because answers are small and urgent. Enables keep-alive, which detects a lost client
/// machine even on an idle connection. Errors are ignored: the connection works without these options.
///
/// An idle event stream sends a comment within `keep_alive`. Unacknowledged data ends the connection after most of the rest
/// of `stall`, so a reader that vanished is noticed within `stall` (one minute by default).
fn tune(stream: &TcpStream, timeouts: &Timeouts) {
    let _ = stream.set_nodelay(true);
    #[cfg(target_os = "linux")]
    {
        use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepidle, set_tcp_keepintvl, set_tcp_user_timeout};
        let Timeouts { stall, keep_alive, .. } = *timeouts;
        let unacknowledged = if stall > 3 * keep_alive { stall - 2 * keep_alive } else { stall };
        let _ = set_socket_keepalive(stream, true);
        let _ = set_tcp_keepidle(stream, keep_alive.max(Duration::from_secs(1)));
        let _ = set_tcp_keepintvl(stream, keep_alive.max(Duration::from_secs(1)));
        let _ = set_tcp_user_timeout(stream, u32::try_from(unacknowledged.as_millis()).unwrap_or(u32::MAX));
    }
    #[cfg(not(target_os = "linux"))]
    let _ = timeouts;
}
