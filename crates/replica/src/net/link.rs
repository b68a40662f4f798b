//! One connection to another replica. Requests are sent in order; answers arrive in any order.
//!
//! The connection is opened on demand, and closed when an answer is overdue, because a dead connection may show no
//! error. Its requests then fail; this module does not repeat them.

use super::LOG_PREAMBLE;
use super::dial::Dial;
use super::frame::{Frame, Frames, put};
use super::message::{Hello, kind};
use crate::counters::{Counting, add};
use bytes::{Bytes, BytesMut};
use smol_str::SmolStr;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};

/// Configuration of a link.
#[derive(Clone, Debug)]
pub(crate) struct LinkConfig {
    pub(crate) dialer: Arc<dyn Dial>,
    pub(crate) address: String,
    /// Node that had the address when it was recorded.
    pub(crate) node: Option<SmolStr>,
    pub(crate) hello: Hello,
    pub(crate) rpc_timeout: Duration,
    /// A connection with an answer overdue for this time is considered dead.
    pub(crate) answer_timeout: Duration,
    /// Maximum number of queued requests.
    pub(crate) queue: usize,
    pub(crate) frame_bytes: usize,
    pub(crate) counting: Arc<Counting>,
}

impl LinkConfig {
    /// Returns the address for this attempt: the current and the recorded address of the node, in turn.
    fn at(&self, attempt: usize) -> LinkConfig {
        let found = self.node.as_deref().and_then(|node| self.dialer.find(node)).filter(|_| attempt.is_multiple_of(2));
        LinkConfig { address: found.unwrap_or_else(|| self.address.clone()), ..self.clone() }
    }
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LinkError {
    #[error("cannot reach {address}: {error}")]
    Unreachable { address: String, error: String },
    #[error("connection to {0} lost")]
    Broken(String),
    #[error("{0} did not answer in time")]
    Overdue(String),
    #[error("{address} rejected the request: {why}")]
    Rejected { address: String, why: String },
}

/// Sends requests to one other replica. Dropping it closes the connection.
#[derive(Debug)]
pub(crate) struct Link {
    outgoing: mpsc::Sender<Question>,
    address: String,
    rpc_timeout: Duration,
    counting: Arc<Counting>,
}

#[derive(Debug)]
struct Question {
    kind: u8,
    content: Vec<u8>,
    /// `None` if no answer is expected.
    reply: Option<oneshot::Sender<Result<Bytes, LinkError>>>,
}

/// A pending answer.
#[derive(Debug)]
pub(crate) struct Pending(Result<oneshot::Receiver<Result<Bytes, LinkError>>, LinkError>);

impl Link {
    pub(crate) fn open(config: LinkConfig) -> Self {
        let (outgoing, questions) = mpsc::channel(config.queue);
        let (address, rpc_timeout, counting) = (config.address.clone(), config.rpc_timeout, config.counting.clone());
        tokio::spawn(run(config, questions));
        Link { outgoing, address, rpc_timeout, counting }
    }

    /// Queues a request without waiting. A full queue means that the other side is too slow.
    pub(crate) fn send(&self, kind: u8, content: Vec<u8>) -> Pending {
        let (reply, answer) = oneshot::channel();
        let sent = self.outgoing.try_send(Question { kind, content, reply: Some(reply) });
        Pending(sent.map(|()| answer).map_err(|_| LinkError::Overdue(self.address.clone())))
    }

    /// Queues a request and waits for space.
    pub(crate) async fn send_waiting(&self, kind: u8, content: Vec<u8>, timeout: Duration) -> Pending {
        let (reply, answer) = oneshot::channel();
        let sent =
            tokio::time::timeout(timeout, self.outgoing.send(Question { kind, content, reply: Some(reply) })).await;
        match sent {
            Ok(Ok(())) => Pending(Ok(answer)),
            _ => Pending(Err(LinkError::Overdue(self.address.clone()))),
        }
    }

    /// Waits for an answer up to the link's deadline.
    pub(crate) async fn answer(&self, pending: Pending) -> Result<Bytes, LinkError> {
        self.answer_within(pending, self.rpc_timeout).await
    }

    pub(crate) async fn answer_within(&self, pending: Pending, timeout: Duration) -> Result<Bytes, LinkError> {
        let answer = match pending.0 {
            Ok(answer) => match tokio::time::timeout(timeout, answer).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) => Err(LinkError::Broken(self.address.clone())),
                Err(_) => Err(LinkError::Overdue(self.address.clone())),
            },
            Err(error) => Err(error),
        };
        if answer.is_err() {
            add(&self.counting.rpc_errors, 1);
        }
        answer
    }

    pub(crate) async fn ask(&self, kind: u8, content: Vec<u8>) -> Result<Bytes, LinkError> {
        self.answer(self.send(kind, content)).await
    }

    /// Queues a message without an answer and waits for space.
    pub(crate) async fn send_without_answer(
        &self,
        kind: u8,
        content: Vec<u8>,
        timeout: Duration,
    ) -> Result<(), LinkError> {
        let sent = self.outgoing.send(Question { kind, content, reply: None });
        match tokio::time::timeout(timeout, sent).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(LinkError::Broken(self.address.clone())),
            Err(_) => Err(LinkError::Overdue(self.address.clone())),
        }
    }
}

/// Serves requests, one connection after the other, until the link is dropped.
async fn run(recorded: LinkConfig, mut questions: mpsc::Receiver<Question>) {
    let mut attempt = 0;
    while let Some(first) = questions.recv().await {
        let config = recorded.at(attempt);
        let dialled = timeout(config.rpc_timeout, connect(&config)).await;
        let stream = match dialled.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(stream) => stream,
            Err(error) => {
                attempt += 1;
                let address = config.address.clone();
                let error = LinkError::Unreachable { address, error: error.to_string() };
                fail(first, &error);
                while let Ok(question) = questions.try_recv() {
                    fail(question, &error);
                }
                continue;
            }
        };
        let waiting = Waiting::default();
        let error = run_connection(&config, stream, first, &mut questions, &waiting).await;
        if matches!(error, LinkError::Rejected { .. }) {
            attempt += 1;
        }
        tracing::debug!(address = %config.address, %error, "replica connection ended");
        waiting.fail(&error);
        // Queued messages were meant for the previous connection: frames of a snapshot make no sense on another one.
        while let Ok(question) = questions.try_recv() {
            fail(question, &error);
        }
    }
}

fn fail(question: Question, error: &LinkError) {
    if let Some(reply) = question.reply {
        let _ = reply.send(Err(error.clone()));
    }
}

async fn connect(config: &LinkConfig) -> io::Result<Box<dyn super::dial::Duplex>> {
    let mut stream = config.dialer.dial_node(&config.address, config.node.as_deref()).await?;
    let mut greeting = BytesMut::from(&LOG_PREAMBLE[..]);
    put(&mut greeting, kind::HELLO, 0, &config.hello.encode());
    stream.write_all(&greeting).await?;
    stream.flush().await?;
    Ok(stream)
}

/// Sent requests by number.
#[derive(Debug, Default)]
struct Waiting(Mutex<Sent>);

#[derive(Debug, Default)]
struct Sent {
    next: u64,
    waiting: BTreeMap<u64, (Instant, oneshot::Sender<Result<Bytes, LinkError>>)>,
}

impl Waiting {
    fn lock(&self) -> std::sync::MutexGuard<'_, Sent> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, reply: Option<oneshot::Sender<Result<Bytes, LinkError>>>) -> u64 {
        let mut sent = self.lock();
        sent.next += 1;
        let number = sent.next;
        if let Some(reply) = reply {
            sent.waiting.insert(number, (Instant::now(), reply));
        }
        number
    }

    fn answer(&self, number: u64, answer: Result<Bytes, LinkError>) {
        if let Some((_, reply)) = self.lock().waiting.remove(&number) {
            let _ = reply.send(answer);
        }
    }

    /// Returns when the oldest pending request was sent.
    fn oldest(&self) -> Option<Instant> {
        self.lock().waiting.values().map(|(sent, _)| *sent).min()
    }

    fn fail(&self, error: &LinkError) {
        for (_, reply) in std::mem::take(&mut self.lock().waiting).into_values() {
            let _ = reply.send(Err(error.clone()));
        }
    }
}

/// Runs one connection. Returns why it ended.
async fn run_connection(
    config: &LinkConfig,
    stream: Box<dyn super::dial::Duplex>,
    first: Question,
    questions: &mut mpsc::Receiver<Question>,
    waiting: &Waiting,
) -> LinkError {
    let (read, write) = tokio::io::split(stream);
    let broken = || LinkError::Broken(config.address.clone());
    // A fixed order keeps simulations reproducible.
    tokio::select! {
        biased;
        error = read_answers(config, read, waiting) => error.unwrap_or_else(broken),
        () = write_requests(write, first, questions, waiting, config.answer_timeout) => broken(),
        () = overdue(waiting, config.answer_timeout) => LinkError::Overdue(config.address.clone()),
    }
}

/// Writes requests, all waiting ones at once. Fails if the other side reads nothing for too long, because no other
/// deadline covers messages without an answer.
async fn write_requests(
    mut write: WriteHalf<Box<dyn super::dial::Duplex>>,
    first: Question,
    questions: &mut mpsc::Receiver<Question>,
    waiting: &Waiting,
    timeout: Duration,
) {
    let mut buffer = BytesMut::new();
    let mut next = Some(first);
    while let Some(question) = next {
        let mut taken = Some(question);
        while let Some(Question { kind, content, reply }) = taken {
            put(&mut buffer, kind, waiting.add(reply), &content);
            taken = if buffer.len() < WRITE_BYTES { questions.try_recv().ok() } else { None };
        }
        let written = async {
            write.write_all(&buffer).await?;
            write.flush().await
        };
        if !matches!(tokio::time::timeout(timeout, written).await, Ok(Ok(()))) {
            return;
        }
        buffer.clear();
        if buffer.capacity() > BUFFER_BYTES_KEPT {
            buffer = BytesMut::new();
        }
        next = questions.recv().await;
    }
}

/// Maximum bytes per write.
const WRITE_BYTES: usize = 256 * 1024;
const BUFFER_BYTES_KEPT: usize = 1024 * 1024;

/// Delivers answers. Returns the reason if the other side rejected the connection.
async fn read_answers(
    config: &LinkConfig,
    read: ReadHalf<Box<dyn super::dial::Duplex>>,
    waiting: &Waiting,
) -> Option<LinkError> {
    let mut frames = Frames::new(read, config.frame_bytes);
    let rejected = |content: &Bytes| LinkError::Rejected {
        address: config.address.clone(),
        why: String::from_utf8_lossy(content).into_owned(),
    };
    while let Ok(Some(Frame { kind: found, number, content })) = frames.next().await {
        match found {
            // Applies to the whole connection.
            kind::REJECTED if number == 0 => return Some(rejected(&content)),
            kind::REJECTED => waiting.answer(number, Err(rejected(&content))),
            _ => waiting.answer(number, Ok(content)),
        }
    }
    None
}

/// Ends when the oldest request is overdue.
async fn overdue(waiting: &Waiting, timeout: Duration) {
    loop {
        let oldest = waiting.oldest();
        let deadline = oldest.unwrap_or_else(Instant::now) + timeout;
        if oldest.is_some() && deadline <= Instant::now() {
            return;
        }
        sleep_until(deadline).await;
    }
}
