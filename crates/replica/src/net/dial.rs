//! Creation of connections: TCP, or a simulation's replacement.

use convoke_tls::{DialTarget, HandshakeError, NodeTls};
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

    /// Connects to a node at `host:port`. With TLS, the certificate must name it; `None` accepts every node.
    fn dial_node<'a>(&'a self, address: &'a str, node: Option<&'a str>) -> BoxFuture<'a, io::Result<Box<dyn Duplex>>> {
        let _ = node;
        self.dial(address)
    }

    /// Returns the current address of a node, if it is known. After a move, the replica is not at its recorded address
    /// (M5). The answer need not be correct: the handshake identifies the replica.
    fn find(&self, _node: &str) -> Option<String> {
        None
    }

    /// Returns the nodes that are known to hold a replica of a log (FD5).
    fn logs(&self) -> Vec<NodeLog> {
        Vec::new()
    }

    /// Returns all addresses behind `host:port`. A name may lead to several nodes.
    fn resolve<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Vec<String>>> {
        Box::pin(async move { Ok(vec![address.to_owned()]) })
    }
}

/// A node that holds a replica of a log.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeLog {
    /// Id of the log.
    pub log: u128,
    /// Id of the node.
    pub node: String,
    /// Peer address of the node; empty if it is not known.
    pub address: String,
}

/// A registry of nodes.
pub trait NodeLookup: Send + Sync + 'static {
    /// Returns the current peer address of a node, if it is known.
    fn find(&self, node: &str) -> Option<String>;

    /// Returns the nodes that are known to hold a replica of a log.
    fn logs(&self) -> Vec<NodeLog> {
        Vec::new()
    }
}

impl<F: Fn(&str) -> Option<String> + Send + Sync + 'static> NodeLookup for F {
    fn find(&self, node: &str) -> Option<String> {
        self(node)
    }
}

/// TCP connections. Names are resolved at every attempt.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpDial;

impl Dial for TcpDial {
    fn dial<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Duplex>>> {
        Box::pin(async move { Ok(Box::new(open(address).await?) as Box<dyn Duplex>) })
    }

    fn resolve<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Vec<String>>> {
        Box::pin(async move {
            let found = tokio::net::lookup_host(address).await?;
            Ok(found.map(|address| address.to_string()).collect())
        })
    }
}

/// TCP connections with a registry of nodes.
#[derive(Clone, Copy)]
pub struct DialWithLookup<L>(pub L);

impl<L> Debug for DialWithLookup<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DialWithLookup")
    }
}

impl<L: NodeLookup> Dial for DialWithLookup<L> {
    fn dial<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Duplex>>> {
        TcpDial.dial(address)
    }

    fn find(&self, node: &str) -> Option<String> {
        self.0.find(node)
    }

    fn logs(&self) -> Vec<NodeLog> {
        self.0.logs()
    }

    fn resolve<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Vec<String>>> {
        TcpDial.resolve(address)
    }
}

/// TLS connections with a registry of nodes.
#[derive(Clone)]
pub struct TlsDial<L> {
    pub lookup: L,
    pub tls: NodeTls,
}

impl<L> Debug for TlsDial<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsDial")
    }
}

impl<L: NodeLookup> Dial for TlsDial<L> {
    fn dial<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Duplex>>> {
        self.dial_node(address, None)
    }

    fn dial_node<'a>(&'a self, address: &'a str, node: Option<&'a str>) -> BoxFuture<'a, io::Result<Box<dyn Duplex>>> {
        Box::pin(async move {
            let target = node.map_or(DialTarget::AnyNode, DialTarget::Node);
            let dialled = self.tls.dial_peer(address, target, || open(address)).await;
            Ok(Box::new(dialled.map_err(HandshakeError::into_io)?.stream) as Box<dyn Duplex>)
        })
    }

    fn find(&self, node: &str) -> Option<String> {
        self.lookup.find(node)
    }

    fn logs(&self) -> Vec<NodeLog> {
        self.lookup.logs()
    }

    fn resolve<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Vec<String>>> {
        TcpDial.resolve(address)
    }
}

async fn open(address: &str) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}
