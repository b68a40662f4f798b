//! Connections over the simulated network: between replicas, and between SDK and gRPC service.

use convoke_client::log::{Connect, Connecting};
use convoke_replica::{Dial, Duplex};
use futures_util::future::BoxFuture;
use hyper_util::rt::TokioIo;
use std::io;
use tonic::transport::Endpoint;
use tower::service_fn;
use turmoil::net::TcpStream;

/// Ports as in a real cluster.
pub(crate) const CLIENT_PORT: u16 = 7700;
pub(crate) const PEER_PORT: u16 = 7701;

async fn connect(address: &str) -> io::Result<TcpStream> {
    let (host, port) = address.rsplit_once(':').ok_or(io::ErrorKind::InvalidInput)?;
    let port: u16 = port.parse().map_err(|_| io::ErrorKind::InvalidInput)?;
    TcpStream::connect((host, port)).await
}

/// Dials replicas.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplicaDial;

impl Dial for ReplicaDial {
    fn dial<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Duplex>>> {
        Box::pin(async move { Ok(Box::new(connect(address).await?) as Box<dyn Duplex>) })
    }
}

/// Connects the SDK to nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientConnect;

impl Connect for ClientConnect {
    fn connect<'a>(&'a self, endpoint: &'a Endpoint) -> Connecting<'a> {
        let dial = service_fn(|uri: http::Uri| async move {
            let address = uri.authority().map(|authority| authority.as_str().to_owned());
            let stream = connect(&address.ok_or(io::ErrorKind::InvalidInput)?).await?;
            Ok::<_, io::Error>(TokioIo::new(stream))
        });
        Box::pin(endpoint.connect_with_connector(dial))
    }
}
