//! What a starting node says on stdout: where it listens, when it is ready.

use super::Plan;
use crate::config::CLIENT_PORT;
use crate::failure::{Failure, Outcome};
use crate::output::{Palette, Style, print};
use convoke_node::NodeHandle;
use std::net::SocketAddr;
use std::time::Duration;

pub(crate) fn port_taken(whom: &str, address: &str) -> Outcome {
    print(&format!("{address} is taken, perhaps by another node: listening for {whom} on a free port instead\n"))
}

/// `listening: …` and `ready: …` are lines that programs may read.
pub(crate) fn listening(plan: &Plan, node: &NodeHandle, clients: SocketAddr) -> Outcome {
    let (version, id, cluster) = (env!("CARGO_PKG_VERSION"), node.id(), node.cluster());
    let mut text = format!("convoke {version}: node {id} of cluster {cluster}\n");
    text += &places("listening", node, clients);
    if plan.dev {
        text += &where_to_look(clients);
    }
    print(&text)
}

/// Says when the node is ready, and until then what it waits for. Ends only if nobody can be told.
pub(crate) async fn when_ready(plan: &Plan, node: &NodeHandle, clients: SocketAddr, remind: Duration) -> Failure {
    loop {
        match tokio::time::timeout(remind, node.ready()).await {
            Ok(Ok(())) => break,
            // It has ended: that is told elsewhere.
            Ok(Err(_)) => return std::future::pending().await,
            Err(_) => {
                let join = plan.parts.node.join.join(", ");
                tracing::warn!(node = %node.id(), "not ready yet: no node at {join} has answered with the registry");
            }
        }
    }
    match print(&places("ready", node, clients)) {
        Ok(()) => std::future::pending().await,
        Err(failure) => failure,
    }
}

fn places(what: &str, node: &NodeHandle, clients: SocketAddr) -> String {
    format!("{what}: clients {clients}, peers {}\n", node.local_address())
}

fn where_to_look(clients: SocketAddr) -> String {
    let palette = Palette::of_stdout();
    let bold = |text: &str| palette.paint(Style::Bold, text);
    let at = if clients.port() == CLIENT_PORT { String::new() } else { format!(" --addr {clients}") };
    format!(
        "\n  status    http://{clients}/api/v1/status\n  \
           members   http://{clients}/api/v1/members\n\n\
         In another terminal:\n  \
           {}\n  \
           {}\n\n\
         Everything is in memory and for this machine only; Ctrl-C ends it.\n\n",
        bold(&format!("convoke register{at} --id web-1 --service web --address 127.0.0.1:8080 -- sleep 60")),
        bold(&format!("convoke watch{at}")),
    )
}
