//! The cluster manager: owns the clusters of one user, and serves an API on a loopback port.
//!
//! A manager started by `create` ends with its last cluster. Its nodes always end with it. It removes its directory; if it was
//! killed, the next command does.

mod clusters;
mod faults;
mod health;
mod local_clients;
mod routes;

use crate::VariableOf;
use clusters::Clusters;
use convoke_cli::{CommandError, Result, Signals};
use convoke_lab::{StateDir, StateDirError};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::net::unix::pipe;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

/// Time for requests in progress when the manager ends.
const LINGER: Duration = Duration::from_secs(2);
/// Time for the previous manager to remove its directory after it has closed its port.
const TAKE_OVER: Duration = Duration::from_secs(10);

/// Name of the directory of the manager at this port.
pub(crate) fn directory(port: u16) -> String {
    format!("clusters-{port}")
}

/// Serves until a signal arrives; in the background, until the last cluster ends.
pub(crate) async fn serve(port: u16, background: bool, variable_of: VariableOf) -> Result {
    let mut signals = Signals::listen()?;
    // Every connection between two nodes is two open files here.
    convoke_cli::raise_open_files();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let listener = TcpListener::bind(address).await.map_err(|error| {
        CommandError::failed(format!("cannot listen on {address}: {error} (choose another port with --port)"))
    })?;
    let dir = claim(port).await?;
    let binary =
        std::env::current_exe().map_err(|error| CommandError::failed(format!("cannot start nodes: {error}")))?;
    let clusters = Arc::new(Clusters::new(dir, binary, variable_of));
    let (stop, mut stopped) = watch::channel(false);
    let stopping = async move {
        let _ = stopped.wait_for(|stop| *stop).await;
    };
    let serving = axum::serve(listener, routes::router(clusters.clone())).with_graceful_shutdown(stopping);
    let mut serving = tokio::spawn(async move { serving.await });
    if !background {
        convoke_cli::output::print(&format!(
            "cluster manager: http://{address}/clusters; press Ctrl-C to stop it and all clusters\n"
        ))?;
    }
    tokio::select! {
        _ = signals.next() => {}
        () = idle(&clusters, background) => {}
        ended = &mut serving => return Err(CommandError::failed(format!("cannot serve on {address}: {ended:?}"))),
    }
    // The server accepts no new requests; those in progress are answered.
    stop.send_replace(true);
    clusters.end_all().await;
    if timeout(LINGER, &mut serving).await.is_err() {
        serving.abort();
    }
    Ok(())
}

async fn claim(port: u16) -> Result<StateDir> {
    let deadline = Instant::now() + TAKE_OVER;
    loop {
        match StateDir::claim(&StateDir::root(), &directory(port)) {
            Err(StateDirError::InUse { .. }) if Instant::now() < deadline => sleep(Duration::from_millis(20)).await,
            claimed => return claimed.map_err(|error| CommandError::failed(error.to_string())),
        }
    }
}

/// Waits until there are no clusters and no requests, and the command that started the manager has ended.
async fn idle(clusters: &Clusters, background: bool) {
    if !background {
        return std::future::pending().await;
    }
    starter_ended().await;
    clusters.idle().await;
}

/// The command that started the manager holds the other end of stdin.
async fn starter_ended() {
    let stdin = std::io::stdin().as_fd().try_clone_to_owned();
    if let Ok(mut stdin) = stdin.and_then(pipe::Receiver::from_owned_fd) {
        let mut sink = [0; 64];
        while stdin.read(&mut sink).await.is_ok_and(|count| count > 0) {}
    }
}
