//! The task that posts spans to the collector.

use crate::record::Record;
use crate::wire::{self, ExportResponse, PartialSuccess, Resource};
use crate::{Config, Endpoint};
use bytes::Bytes;
use convoke_trace::counters;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use prost::Message;
use std::error::Error;
use std::fmt;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

/// Spans in one request.
const BATCH: usize = 512;
/// How long a batch may wait to become full.
const GATHER: Duration = Duration::from_secs(1);
/// How long the collector may take for one.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a process that ends waits for what is left.
const FLUSH: Duration = Duration::from_secs(2);
/// How often is said that the collector takes nothing.
const REMIND: Duration = Duration::from_secs(60);
/// How long an unused connection is kept.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// Answers are small.
const ANSWER_BYTES: usize = 64 * 1024;

type Failure = Box<dyn Error + Send + Sync>;

/// Takes spans from the queue and posts them.
#[derive(Debug)]
pub struct Exporter {
    endpoint: Endpoint,
    resource: Resource,
    version: String,
    queued: mpsc::Receiver<Record>,
    batch: Vec<Record>,
    client: Client<HttpConnector, Full<Bytes>>,
    trouble: Trouble,
}

/// Exports until it is told to stop.
#[derive(Debug)]
pub struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Running {
    /// Exports what is left, within two seconds.
    pub async fn finish(mut self) {
        // It ends by itself only if it has panicked.
        let _ = self.stop.send(());
        if timeout(FLUSH, &mut self.task).await.is_err() {
            self.task.abort();
            tracing::warn!("the collector is slow: the last traces are lost");
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
            client: Client::builder(TokioExecutor::new())
                .pool_idle_timeout(IDLE_TIMEOUT)
                .pool_timer(TokioTimer::new())
                .build_http(),
            trouble: Trouble::default(),
        }
    }

    /// Starts in the current tokio runtime.
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

    /// Returns when there is a batch. What was gathered stays if nobody waits any more.
    async fn gather(&mut self) {
        if self.queued.recv_many(&mut self.batch, BATCH).await == 0 {
            // Nobody makes spans any more.
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

    /// Posts the batch, once: whoever keeps spans for a collector that is away runs one nearby that does.
    async fn export(&mut self) {
        let records = std::mem::take(&mut self.batch);
        let count = records.len() as u64;
        let body = Bytes::from(wire::request(&self.resource, &self.version, records).encode_to_vec());
        let posted = match timeout(PATIENCE, self.post(body)).await {
            Ok(posted) => posted,
            Err(_) => Err(format!("no answer within {} s", PATIENCE.as_secs()).into()),
        };
        match posted {
            Ok(None) => {
                counters().add_exported(count);
                self.trouble.over(&self.endpoint);
            }
            Ok(Some(partial)) => {
                let refused = u64::try_from(partial.rejected_spans).unwrap_or(0).min(count);
                counters().add_exported(count - refused);
                counters().add_dropped_collector(refused);
                self.trouble.goes_on(&self.endpoint, &format!("it refuses some: {}", partial.error_message), refused);
            }
            Err(error) => {
                counters().add_dropped_collector(count);
                self.trouble.goes_on(&self.endpoint, &error, count);
            }
        }
    }

    /// Posts a batch and returns the spans that the collector rejected, if any.
    async fn post(&self, body: Bytes) -> Result<Option<PartialSuccess>, Failure> {
        let request = Request::post(self.endpoint.0.clone())
            .header(header::CONTENT_TYPE, "application/x-protobuf")
            .header(header::USER_AGENT, concat!("convoke/", env!("CARGO_PKG_VERSION")))
            .body(Full::new(body))?;
        let response = self.client.request(request).await?;
        let status = response.status();
        let answer = Limited::new(response.into_body(), ANSWER_BYTES).collect().await?.to_bytes();
        taken(status, &answer)
    }
}

fn taken(status: StatusCode, answer: &[u8]) -> Result<Option<PartialSuccess>, Failure> {
    if !status.is_success() {
        return Err(format!("it answers {status}").into());
    }
    // Collectors that answer with something else than the message took the request all the same.
    let partial = ExportResponse::decode(answer).ok().and_then(|answer| answer.partial_success);
    Ok(partial.filter(|partial| partial.rejected_spans > 0))
}

/// Says that the collector takes nothing: at once, then now and then.
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
            tracing::warn!("traces are lost, {lost} spans so far: cannot deliver them to {endpoint}: {error}");
        }
    }

    fn over(&mut self, endpoint: &Endpoint) {
        if self.said.take().is_some() {
            tracing::info!("traces are delivered to {endpoint} again, {} spans were lost", self.lost);
            self.lost = 0;
        }
    }
}
