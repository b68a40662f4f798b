//! Connections to other nodes that are kept for the next request: behind a balancer that goes round, most requests of sessions are
//! passed on, and a connection for each would use up the ports.

use ::http::{Request, Response};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use std::collections::HashMap;
use std::error::Error;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::Instant;

/// Unused connections to one node. More may be in use.
const IDLE_MAX: usize = 8;
const IDLE_TIME: Duration = Duration::from_secs(10);

type Failure = Box<dyn Error + Send + Sync>;

/// By address.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    idle: Mutex<HashMap<String, Vec<Idle>>>,
}

#[derive(Debug)]
struct Idle {
    line: Line,
    since: Instant,
}

impl Idle {
    fn is_usable(&self) -> bool {
        !self.line.sender.is_closed() && self.since.elapsed() < IDLE_TIME
    }
}

/// A connection to a node.
#[derive(Debug)]
pub(super) struct Line {
    sender: SendRequest<Full<Bytes>>,
    _connection: AbortOnDrop<hyper::Result<()>>,
}

impl Pool {
    /// Sends a request, on a connection that is there or on a new one. `sent` tells whether the node may have got it. Give the
    /// connection back when the answer is read.
    pub(super) async fn ask(
        &self,
        address: &str,
        mut request: Request<Full<Bytes>>,
        sent: &mut bool,
    ) -> Result<(Response<Incoming>, Line), Failure> {
        while let Some(mut line) = self.take(address) {
            if line.sender.ready().await.is_err() {
                continue;
            }
            *sent = true;
            match line.sender.try_send_request(request).await {
                Ok(response) => return Ok((response, line)),
                // It was closed before the request went out.
                Err(mut error) => match error.take_message() {
                    Some(unsent) => (request, *sent) = (unsent, false),
                    None => return Err(error.into_error().into()),
                },
            }
        }
        let mut line = Line::open(address).await?;
        *sent = true;
        let response = line.sender.send_request(request).await?;
        Ok((response, line))
    }

    fn take(&self, address: &str) -> Option<Line> {
        let mut idle = self.lock();
        let lines = idle.get_mut(address)?;
        lines.retain(Idle::is_usable);
        lines.pop().map(|idle| idle.line)
    }

    /// The answer has been read to its end.
    pub(super) fn give_back(&self, address: &str, line: Line) {
        if line.sender.is_closed() {
            return;
        }
        let mut idle = self.lock();
        let lines = idle.entry(address.to_owned()).or_default();
        if lines.len() < IDLE_MAX {
            lines.push(Idle { line, since: Instant::now() });
        }
    }

    /// Closes what nobody has used lately.
    pub(crate) fn sweep(&self) {
        self.lock().retain(|_, lines| {
            lines.retain(Idle::is_usable);
            !lines.is_empty()
        });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Vec<Idle>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    async fn open(address: &str) -> Result<Line, Failure> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        Ok(Line { sender, _connection: AbortOnDrop(tokio::spawn(connection)) })
    }
}

#[derive(Debug)]
struct AbortOnDrop<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
