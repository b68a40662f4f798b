//! Accepting connections, as many as allowed, until told to stop; then waiting for them to end.

use super::connection;
use crate::service::Service;
use crate::surface::Surface;
use convoke_counters::add;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Out of file descriptors or memory: others may give some back.
const PAUSE: Duration = Duration::from_millis(50);

/// How far the end has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    Serving,
    /// No new connections.
    Leaving,
    /// Connections end when their present calls do.
    Closing,
}

/// Serves connections; returns when the last one has ended after `Closing`.
pub(crate) async fn accept(listener: TcpListener, surface: Arc<Surface>, mut stage: watch::Receiver<Stage>) {
    let service = Service::new(&surface);
    let mut connections = JoinSet::new();
    let mut told = stage.clone();
    loop {
        let accepted = tokio::select! {
            biased;
            _ = told.wait_for(|stage| *stage > Stage::Serving) => break,
            accepted = listener.accept() => accepted,
        };
        while connections.try_join_next().is_some() {}
        match accepted {
            Ok((stream, _)) => {
                let Ok(permit) = surface.gates.connections.clone().try_acquire_owned() else {
                    add(&surface.metrics.clients.connections_rejected, 1);
                    continue;
                };
                add(&surface.metrics.clients.connections_accepted, 1);
                tune(&stream, surface.config.timeouts.stall);
                let serving = connection::serve(stream, surface.clone(), service.clone(), stage.clone());
                connections.spawn(async move {
                    let _permit = permit;
                    serving.await;
                });
            }
            Err(error) => {
                tracing::warn!("cannot accept a client: {error}");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    drop(listener);
    // An error means that the server itself is gone.
    let _ = stage.wait_for(|stage| *stage == Stage::Closing).await;
    while connections.join_next().await.is_some() {}
}

/// Answers are small and waited for. A client whose machine is gone is noticed even while there is nothing to tell it.
/// Where the system does not know how, it serves all the same.
fn tune(stream: &TcpStream, stall: Duration) {
    let _ = stream.set_nodelay(true);
    #[cfg(target_os = "linux")]
    {
        use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepidle, set_tcp_user_timeout};
        let _ = set_socket_keepalive(stream, true);
        let _ = set_tcp_keepidle(stream, stall.max(Duration::from_secs(1)));
        let _ = set_tcp_user_timeout(stream, u32::try_from(stall.as_millis()).unwrap_or(u32::MAX));
    }
    #[cfg(not(target_os = "linux"))]
    let _ = stall;
}
