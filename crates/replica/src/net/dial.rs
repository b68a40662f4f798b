//! Creation of connections: TCP, or a simulation's replacement.

use futures_util::future::BoxFuture;
use std::fmt::{self, Debug};
use std::io;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// A connection to another replica.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Duplex for T {}

/// Opens connections.
pub trait Dial: Debug + Send + Sync + 'static {
    /// Connects to `host:port`. The caller sets a time limit.
    fn dial<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Duplex>>>;

    /// Returns the current address of a node, if it is known. After a move, the replica is not at its recorded address
    /// (M5). The answer need not be correct: the handshake identifies the replica.
    fn find(&self, _node: &str) -> Option<String> {
        None
    }
}

/// TCP connections. Names are resolved at every attempt.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpDial;

impl Dial for TcpDial {
    fn dial<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Duplex>>> {
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn Duplex>)
        })
    }
}

/// TCP connections with a function that finds nodes.
#[derive(Clone, Copy)]
pub struct DialWithLookup<F>(pub F);

impl<F> Debug for DialWithLookup<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DialWithLookup")
    }
}

impl<F: Fn(&str) -> Option<String> + Send + Sync + 'static> Dial for DialWithLookup<F> {
    fn dial<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Duplex>>> {
        TcpDial.dial(address)
    }

    fn find(&self, node: &str) -> Option<String> {
        (self.0)(node)
    }
}
