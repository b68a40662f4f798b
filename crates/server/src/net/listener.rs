//! Binding the client port.

use crate::config::Config;
use crate::error::StartError;
use std::io;
use std::net::SocketAddr;
use tokio::net::{TcpListener, TcpSocket};

/// Connections that may wait to be accepted. All clients of a lost node reconnect at once.
const BACKLOG: u32 = 4_096;

/// Listens for clients at an address of the configuration.
pub(crate) async fn listen(config: &Config, at: &str) -> Result<TcpListener, StartError> {
    let failed = |source| StartError::Bind { address: at.to_owned(), source };
    let addresses: Vec<SocketAddr> = tokio::net::lookup_host(at).await.map_err(failed)?.collect();
    if !config.insecure_public && addresses.iter().any(|address| !address.ip().is_loopback()) {
        return Err(StartError::Public { address: at.to_owned() });
    }
    let mut last = io::ErrorKind::AddrNotAvailable.into();
    for address in addresses {
        match bind(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    Err(failed(last))
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A restarted node can bind its port although old connections are in TIME_WAIT.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}
