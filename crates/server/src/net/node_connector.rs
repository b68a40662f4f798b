//! Connections to the client ports of other nodes: with TLS if this node's client port uses it.

use ::http::Uri;
use convoke_tls::{DialTarget, HandshakeError, NodeTls, Stream};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::net::TcpStream;

/// Opens connections to other nodes. Whoever answers must have the certificate of a node of this cluster (TS3).
#[derive(Clone, Debug)]
pub(crate) struct NodeConnector(pub(crate) Option<NodeTls>);

/// A connection to another node.
#[derive(Debug)]
pub(crate) struct NodeIo(TokioIo<Stream>);

impl NodeConnector {
    async fn open(self, uri: Uri) -> io::Result<NodeIo> {
        let address = uri.authority().map(|authority| authority.as_str().to_owned());
        let address = address.ok_or(io::ErrorKind::InvalidInput)?;
        let stream = match &self.0 {
            Some(tls) => {
                let dialled = tls.dial_client(&address, DialTarget::AnyNode, || connect(&address)).await;
                dialled.map_err(HandshakeError::into_io)?.stream
            }
            None => Stream::Plain(connect(&address).await?),
        };
        Ok(NodeIo(TokioIo::new(stream)))
    }
}

async fn connect(address: &str) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

impl tower::Service<Uri> for NodeConnector {
    type Response = NodeIo;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<NodeIo>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(self.clone().open(uri))
    }
}

impl Connection for NodeIo {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for NodeIo {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_read(context, into)
    }
}

impl Write for NodeIo {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().0).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().0).poll_write_vectored(context, slices)
    }
}
