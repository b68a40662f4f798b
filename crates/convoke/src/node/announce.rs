//! Lines that a starting node prints on stdout: its addresses, and that it is ready.

use super::Plan;
use convoke_cli::CLIENT_PORT;
use convoke_cli::output::{Palette, Style, print};
use convoke_node::NodeHandle;
use convoke_server::Server;
use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

/// The addresses of the listeners of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses {
    clients: SocketAddr,
    peers: SocketAddr,
    dns: Option<SocketAddr>,
    consul: Option<SocketAddr>,
}

impl Addresses {
    pub(crate) fn of(node: &NodeHandle, server: &Server) -> Self {
        Addresses {
            clients: server.address(),
            peers: node.local_address(),
            dns: server.dns_address(),
            consul: server.consul_address(),
        }
    }
}

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "clients {}, peers {}", self.clients, self.peers)?;
        self.dns.map_or(Ok(()), |dns| write!(f, ", dns {dns}"))?;
        self.consul.map_or(Ok(()), |consul| write!(f, ", consul {consul}"))
    }
}

/// Prints on stdout. The node keeps running if stdout is closed.
fn print_line(text: &str) {
    if let Err(error) = print(text) {
        let reason = if error.message.is_empty() { "stdout is closed" } else { &error.message };
        tracing::warn!(reason, text = text.trim_end(), "line not printed on stdout");
    }
}

pub(crate) fn port_taken(whom: &str, address: &str) {
    print_line(&format!("{address} is in use, perhaps by another node: listening for {whom} on a free port\n"));
}

/// Prints the addresses. Programs may read the lines `listening: …` and `ready: …`.
pub(crate) fn listening(plan: &Plan, node: &NodeHandle, addresses: &Addresses) {
    let (version, id, cluster) = (env!("CARGO_PKG_VERSION"), node.id(), node.cluster());
    print_line(&format!("convoke {version}: node {id} of cluster {cluster}\nlistening: {addresses}\n"));
    if plan.dev {
        print_line(&hints(addresses));
    }
}

/// Prints when the node is ready, and logs until then what it waits for.
pub(crate) async fn when_ready(
    plan: &Plan,
    node: &NodeHandle,
    addresses: &Addresses,
    warning_interval: Duration,
) -> Infallible {
    loop {
        match tokio::time::timeout(warning_interval, node.ready()).await {
            Ok(Ok(())) => break,
            // The node has ended; the caller reports it.
            Ok(Err(_)) => return std::future::pending().await,
            Err(_) => {
                let join = plan.parts.node.join.join(", ");
                let reason = node.absence().err().map(|rejection| rejection.message).unwrap_or_default();
                tracing::warn!(node = %node.id(), join, reason, "node not ready");
            }
        }
    }
    // For systemd units of Type=notify; has no effect without a service manager.
    if let Err(error) = sd_notify::notify(false, &[sd_notify::NotifyState::Ready]) {
        tracing::warn!(%error, "cannot notify the service manager");
    }
    print_line(&format!("ready: {addresses}\n"));
    std::future::pending().await
}

fn hints(addresses: &Addresses) -> String {
    let clients = addresses.clients;
    let palette = Palette::of_stdout();
    let bold = |text: &str| palette.paint(Style::Bold, text);
    let dns = addresses.dns.map(|dns| format!("  DNS       dig @{} -p {} web.service.convoke\n", dns.ip(), dns.port()));
    let dns = dns.unwrap_or_default();
    let at = if clients.port() == CLIENT_PORT { String::new() } else { format!(" --addr {clients}") };
    format!(
        "\n  dashboard http://{clients}/ui/\n  \
           status    http://{clients}/api/v1/status\n  \
           members   http://{clients}/api/v1/members\n{dns}\n\
         In another terminal:\n  \
           {}\n  \
           {}\n\n\
         All data is in memory, and only this machine can connect. Press Ctrl-C to stop.\n\n",
        bold(&format!("convoke register{at} --id web-1 --service web --address 127.0.0.1:8080 -- sleep 60")),
        bold(&format!("convoke watch{at}")),
    )
}
