//! The task that posts spans to the collector.

use crate::record::Record;
use crate::wire::{self, ExportResponse, PartialSuccess, Resource};
use crate::{Config, Endpoint};
use bytes::Bytes;
use convoke_trace::counters;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use prost::Message;
use std::error::Error;
use std::fmt;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

/// Maximum number of spans in one request.
const BATCH: usize = 512;
/// Maximum time that a batch waits to become full.
const GATHER: Duration = Duration::from_secs(1);
/// Time limit for one request to the collector.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum time that a stopping process waits for the export of the remaining spans.
const FLUSH: Duration = Duration::from_secs(2);
/// Interval of the warning about dropped spans.
const REMIND: Duration = Duration::from_secs(60);
/// Answers are small.
const ANSWER_BYTES: usize = 64 * 1024;

type Failure = Box<dyn Error + Send + Sync>;

/// Sends spans from the queue to the collector.
#[derive(Debug)]
pub struct Exporter {
    endpoint: Endpoint,
    resource: Resource,
    version: String,
    queued: mpsc::Receiver<Record>,
    batch: Vec<Record>,
    connection: Option<SendRequest<Full<Bytes>>>,
    trouble: Trouble,
}

/// A running exporter.
#[derive(Debug)]
pub struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Running {
    /// Stops the exporter after it has sent the remaining spans. Gives up after two seconds.
    pub async fn finish(mut self) {
        // Sending fails only if the task has panicked.
        let _ = self.stop.send(());
        if timeout(FLUSH, &mut self.task).await.is_err() {
            self.task.abort();
            tracing::warn!(timeout = ?FLUSH, "remaining spans dropped: span export timed out at shutdown");
        }
    }
}

impl Exporter {
    pub(crate) fn new(config: Config, queued: mpsc::Receiver<Record>) -> Exporter {
        let Config { endpoint, instance, version, .. } = config;
        Exporter {
            resource: wire::resource(&instance, &version),
            endpoint,
            version,
            queued,
            batch: Vec::with_capacity(BATCH),
            connection: None,
            trouble: Trouble::default(),
        }
    }

    /// Starts the exporter in the current tokio runtime.
    pub fn spawn(self) -> Running {
        let (stop, stopping) = oneshot::channel();
        Running { stop, task: tokio::spawn(self.run(stopping)) }
    }

    async fn run(mut self, mut stopping: oneshot::Receiver<()>) {
        loop {
            tokio::select! {
                () = self.gather() => self.export().await,
                _ = &mut stopping => break,
            }
        }
        loop {
            while self.batch.len() < BATCH
                && let Ok(record) = self.queued.try_recv()
            {
                self.batch.push(record);
            }
            if self.batch.is_empty() {
                return;
            }
            self.export().await;
        }
    }

    /// Waits until there is a batch. Cancel-safe: spans that were already received stay in the batch.
    async fn gather(&mut self) {
        if self.queued.recv_many(&mut self.batch, BATCH).await == 0 {
            // All senders are dropped, so no more spans arrive.
            return std::future::pending().await;
        }
        let filling = async {
            let mut room = BATCH.saturating_sub(self.batch.len());
            while room > 0 {
                match self.queued.recv_many(&mut self.batch, room).await {
                    0 => return,
                    more => room -= more,
                }
            }
        };
        let _ = timeout(GATHER, filling).await;
    }

    /// Posts the batch once, without retries. To buffer spans for an unreachable collector, run a local collector.
    async fn export(&mut self) {
        let records = std::mem::take(&mut self.batch);
        let count = records.len() as u64;
        let body = Bytes::from(wire::request(&self.resource, &self.version, records).encode_to_vec());
        let posted = match timeout(PATIENCE, self.post(body)).await {
            Ok(posted) => posted,
            Err(_) => Err(format!("no response within {} s", PATIENCE.as_secs()).into()),
        };
        match posted {
            Ok(None) => {
                counters().add_exported(count);
                self.trouble.over(&self.endpoint);
            }
            Ok(Some(partial)) => {
                let rejected = u64::try_from(partial.rejected_spans).unwrap_or(0).min(count);
                counters().add_exported(count - rejected);
                counters().add_dropped_collector(rejected);
                self.trouble.goes_on(&self.endpoint, &format!("spans rejected: {}", partial.error_message), rejected);
            }
            Err(error) => {
                self.connection = None;
                counters().add_dropped_collector(count);
                self.trouble.goes_on(&self.endpoint, &error, count);
            }
        }
    }

    /// What the collector refused, if anything.
    async fn post(&mut self, body: Bytes) -> Result<Option<PartialSuccess>, Failure> {
        if let Some(mut kept) = self.connection.take().filter(|kept| !kept.is_closed()) {
            // It may have been closed meanwhile, which says nothing about the collector.
            if let Ok(answer) = self.post_on(&mut kept, body.clone()).await {
                self.connection = Some(kept);
                return answer;
            }
        }
        let stream = TcpStream::connect(self.endpoint.authority.as_str()).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // Ends when the sender is dropped.
        tokio::spawn(connection);
        let answer = self.post_on(&mut sender, body).await?;
        self.connection = Some(sender);
        answer
    }

    /// The outer error is the connection's, the inner one the collector's.
    async fn post_on(
        &self,
        sender: &mut SendRequest<Full<Bytes>>,
        body: Bytes,
    ) -> Result<Result<Option<PartialSuccess>, Failure>, Failure> {
        sender.ready().await?;
        let request = Request::post(self.endpoint.path.as_str())
            .header(header::HOST, self.endpoint.authority.as_str())
            .header(header::CONTENT_TYPE, "application/x-protobuf")
            .header(header::USER_AGENT, concat!("convoke/", env!("CARGO_PKG_VERSION")))
            .body(Full::new(body))?;
        let response = sender.send_request(request).await?;
        let status = response.status();
        let answer = Limited::new(response.into_body(), ANSWER_BYTES).collect().await?.to_bytes();
        Ok(taken(status, &answer))
    }
}

fn taken(status: StatusCode, answer: &[u8]) -> Result<Option<PartialSuccess>, Failure> {
    if !status.is_success() {
        return Err(format!("HTTP status {status}").into());
    }
    // Some collectors respond with another body. A success status means that they accepted the request.
    let partial = ExportResponse::decode(answer).ok().and_then(|answer| answer.partial_success);
    Ok(partial.filter(|partial| partial.rejected_spans > 0))
}

/// Warns about dropped spans: at once, then once per interval.
#[derive(Debug, Default)]
struct Trouble {
    said: Option<Instant>,
    lost: u64,
}

impl Trouble {
    fn goes_on(&mut self, endpoint: &Endpoint, error: &impl fmt::Display, lost: u64) {
        self.lost += lost;
        if self.said.is_none_or(|said| said.elapsed() >= REMIND) {
            self.said = Some(Instant::now());
            let lost = self.lost;
            tracing::warn!(%endpoint, dropped_spans = lost, %error, "span export failed");
        }
    }

    fn over(&mut self, endpoint: &Endpoint) {
        if self.said.take().is_some() {
            tracing::info!(%endpoint, dropped_spans = self.lost, "span export resumed");
            self.lost = 0;
        }
    }
}
