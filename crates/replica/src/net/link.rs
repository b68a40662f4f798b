//! One connection to another replica: questions go out as they come, answers come back in any order.
//!
//! It is opened when there is something to say, and closed when an answer is long overdue: a connection that is dead
//! without knowing it must not be waited for. Questions that were on it fail; nobody here repeats them.

use super::dial::Dial;
use super::frame::{Frame, Frames, PREAMBLE, put};
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

/// What a link needs to know.
#[derive(Clone, Debug)]
pub(crate) struct LinkConfig {
    pub(crate) dialer: Arc<dyn Dial>,
    pub(crate) address: String,
    /// Whose address it was when that was recorded.
    pub(crate) node: Option<SmolStr>,
    pub(crate) hello: Hello,
    pub(crate) rpc_timeout: Duration,
    /// A connection on which an answer is overdue for so long is dead.
    pub(crate) patience: Duration,
    /// Questions that may wait.
    pub(crate) queue: usize,
    pub(crate) frame_bytes: usize,
    pub(crate) counting: Arc<Counting>,
}

impl LinkConfig {
    /// Where to try this time: where the node is said to be and where it was recorded, in turn.
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
    #[error("the connection to {0} broke")]
    Broken(String),
    #[error("{0} did not answer in time")]
    Overdue(String),
    #[error("{address} refused: {why}")]
    Refused { address: String, why: String },
}

/// Asks one other replica. Dropping it ends the connection.
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
    /// `None`: no answer is expected.
    reply: Option<oneshot::Sender<Result<Bytes, LinkError>>>,
}

/// An answer that is to come.
#[derive(Debug)]
pub(crate) struct Pending(Result<oneshot::Receiver<Result<Bytes, LinkError>>, LinkError>);

impl Link {
    pub(crate) fn open(config: LinkConfig) -> Self {
        let (outgoing, questions) = mpsc::channel(config.queue);
        let (address, rpc_timeout, counting) = (config.address.clone(), config.rpc_timeout, config.counting.clone());
        tokio::spawn(run(config, questions));
        Link { outgoing, address, rpc_timeout, counting }
    }

    /// Puts a question in line, without waiting. If the line is full, the other side is not keeping up.
    pub(crate) fn send(&self, kind: u8, content: Vec<u8>) -> Pending {
        let (reply, answer) = oneshot::channel();
        let sent = self.outgoing.try_send(Question { kind, content, reply: Some(reply) });
        Pending(sent.map(|()| answer).map_err(|_| LinkError::Overdue(self.address.clone())))
    }

    /// Puts a question in line, waiting for room.
    pub(crate) async fn send_waiting(&self, kind: u8, content: Vec<u8>, patience: Duration) -> Pending {
        let (reply, answer) = oneshot::channel();
        let sent = timeout(patience, self.outgoing.send(Question { kind, content, reply: Some(reply) })).await;
        match sent {
            Ok(Ok(())) => Pending(Ok(answer)),
            _ => Pending(Err(LinkError::Overdue(self.address.clone()))),
        }
    }

    /// Waits for an answer, but not for longer than the link allows.
    pub(crate) async fn answer(&self, pending: Pending) -> Result<Bytes, LinkError> {
        self.answer_within(pending, self.rpc_timeout).await
    }

    pub(crate) async fn answer_within(&self, pending: Pending, patience: Duration) -> Result<Bytes, LinkError> {
        let answer = match pending.0 {
            Ok(answer) => match timeout(patience, answer).await {
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

    /// Puts something in line that is not answered, waiting for room.
    pub(crate) async fn tell(&self, kind: u8, content: Vec<u8>, patience: Duration) -> Result<(), LinkError> {
        let sent = self.outgoing.send(Question { kind, content, reply: None });
        match timeout(patience, sent).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(LinkError::Broken(self.address.clone())),
            Err(_) => Err(LinkError::Overdue(self.address.clone())),
        }
    }
}

/// Serves questions, connection after connection, until nobody can ask any more.
async fn run(recorded: LinkConfig, mut questions: mpsc::Receiver<Question>) {
    let mut attempt = 0;
    while let Some(first) = questions.recv().await {
        let config = recorded.at(attempt);
        let dialed = timeout(config.rpc_timeout, connect(&config)).await;
        let stream = match dialed.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
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
        let error = converse(&config, stream, first, &mut questions, &waiting).await;
        if matches!(error, LinkError::Refused { .. }) {
            attempt += 1;
        }
        tracing::debug!(address = %config.address, "a connection to a replica has ended: {error}");
        waiting.fail(&error);
        // What is in line was meant for the connection before: a snapshot's frames make no sense on another.
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
    let mut stream = config.dialer.dial(&config.address).await?;
    let mut greeting = BytesMut::from(&PREAMBLE[..]);
    put(&mut greeting, kind::HELLO, 0, &config.hello.encode());
    stream.write_all(&greeting).await?;
    Ok(stream)
}

/// Questions that were sent, by number.
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

    /// When the question was sent that waits longest.
    fn oldest(&self) -> Option<Instant> {
        self.lock().waiting.values().map(|(sent, _)| *sent).min()
    }

    fn fail(&self, error: &LinkError) {
        for (_, reply) in std::mem::take(&mut self.lock().waiting).into_values() {
            let _ = reply.send(Err(error.clone()));
        }
    }
}

/// Until the connection ends, and why it did.
async fn converse(
    config: &LinkConfig,
    stream: Box<dyn super::dial::Duplex>,
    first: Question,
    questions: &mut mpsc::Receiver<Question>,
    waiting: &Waiting,
) -> LinkError {
    let (read, write) = tokio::io::split(stream);
    let broken = || LinkError::Broken(config.address.clone());
    // In a fixed order, so that a simulation repeats itself.
    tokio::select! {
        biased;
        error = hear(config, read, waiting) => error.unwrap_or_else(broken),
        () = speak(write, first, questions, waiting, config.patience) => broken(),
        () = overdue(waiting, config.patience) => LinkError::Overdue(config.address.clone()),
    }
}

/// Writes questions, all that have gathered at once, until that fails or nobody can ask any more. If the other side takes nothing for
/// too long, that is a failure: what is not answered is not missed by anybody else.
async fn speak(
    mut write: WriteHalf<Box<dyn super::dial::Duplex>>,
    first: Question,
    questions: &mut mpsc::Receiver<Question>,
    waiting: &Waiting,
    patience: Duration,
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
        if !matches!(timeout(patience, written).await, Ok(Ok(()))) {
            return;
        }
        buffer.clear();
        if buffer.capacity() > BUFFER_BYTES_KEPT {
            buffer = BytesMut::new();
        }
        next = questions.recv().await;
    }
}

/// What is written at once.
const WRITE_BYTES: usize = 256 * 1024;
const BUFFER_BYTES_KEPT: usize = 1024 * 1024;

/// Hands answers to those who wait for them. Returns a reason if the other side gave one.
async fn hear(
    config: &LinkConfig,
    read: ReadHalf<Box<dyn super::dial::Duplex>>,
    waiting: &Waiting,
) -> Option<LinkError> {
    let mut frames = Frames::new(read, config.frame_bytes);
    let refused = |content: &Bytes| LinkError::Refused {
        address: config.address.clone(),
        why: String::from_utf8_lossy(content).into_owned(),
    };
    while let Ok(Some(Frame { kind: found, number, content })) = frames.next().await {
        match found {
            // Of the whole connection.
            kind::REFUSED if number == 0 => return Some(refused(&content)),
            kind::REFUSED => waiting.answer(number, Err(refused(&content))),
            _ => waiting.answer(number, Ok(content)),
        }
    }
    None
}

/// Ends when the oldest question has waited for too long.
async fn overdue(waiting: &Waiting, patience: Duration) {
    loop {
        let oldest = waiting.oldest();
        let deadline = oldest.unwrap_or_else(Instant::now) + patience;
        if oldest.is_some() && deadline <= Instant::now() {
            return;
        }
        sleep_until(deadline).await;
    }
}
