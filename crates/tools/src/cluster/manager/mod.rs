//! The cluster manager: holds the clusters of this machine's user, and answers on one loopback port.
//!
//! Started by `create` it ends with its last cluster. However it ends, nodes end with it; its directory is removed by it or, if it was
//! killed, by the next command.

mod clusters;
mod crowd;
mod faults;
mod health;
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

/// How long answers under way may take when it ends.
const LINGER: Duration = Duration::from_secs(2);
/// How long the one before may take to remove its directory, after it has closed its port.
const TAKE_OVER: Duration = Duration::from_secs(10);

/// Directory of the manager at this port.
pub(crate) fn directory(port: u16) -> String {
    format!("clusters-{port}")
}

/// Serves until a signal comes; in the background until there is nothing left to do.
pub(crate) async fn serve(port: u16, background: bool, variable_of: VariableOf) -> Result {
    let mut signals = Signals::listen()?;
    // Every link between two nodes is two open files here.
    convoke_cli::raise_open_files();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let listener = TcpListener::bind(address).await.map_err(|error| {
        CommandError::failed(format!("cannot listen on {address}: {error}; name another port with --port"))
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
            "cluster manager: http://{address}/clusters; Ctrl-C ends it and all clusters\n"
        ))?;
    }
    tokio::select! {
        _ = signals.next() => {}
        () = idle(&clusters, background) => {}
        ended = &mut serving => return Err(CommandError::failed(format!("cannot serve on {address}: {ended:?}"))),
    }
    // New requests are refused from here on; those under way get their answers.
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

/// Waits until there is no cluster, no request, and nobody who started this and may still ask for something.
async fn idle(clusters: &Clusters, background: bool) {
    if !background {
        return std::future::pending().await;
    }
    starter_is_gone().await;
    clusters.idle().await;
}

/// Whoever started this in the background holds the other end of stdin.
async fn starter_is_gone() {
    let stdin = std::io::stdin().as_fd().try_clone_to_owned();
    if let Ok(mut stdin) = stdin.and_then(pipe::Receiver::from_owned_fd) {
        let mut sink = [0; 64];
        while stdin.read(&mut sink).await.is_ok_and(|count| count > 0) {}
    }
}
