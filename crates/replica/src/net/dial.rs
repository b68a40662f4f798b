//! How connections come about: over TCP, or whatever a simulation puts in its place.

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
    /// Connects to `host:port`. Whoever calls sets a time limit.
    fn dial<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Duplex>>>;

    /// Where a node is now, if anybody knows. After it has moved its replica is not where it was recorded (M5). It need not be true: whoever
    /// is there says which replica it is.
    fn find(&self, _node: &str) -> Option<String> {
        None
    }
}

/// The real thing. Names are resolved with every attempt.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tcp;

impl Dial for Tcp {
    fn dial<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Duplex>>> {
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn Duplex>)
        })
    }
}

/// Over TCP as well, with somebody who knows where nodes are.
#[derive(Clone, Copy)]
pub struct Guided<F>(pub F);

impl<F> Debug for Guided<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guided")
    }
}

impl<F: Fn(&str) -> Option<String> + Send + Sync + 'static> Dial for Guided<F> {
    fn dial<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Duplex>>> {
        Tcp.dial(address)
    }

    fn find(&self, node: &str) -> Option<String> {
        (self.0)(node)
    }
}
