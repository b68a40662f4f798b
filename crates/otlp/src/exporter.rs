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

/// Maximum number of spans in one request.
const BATCH_SPANS_MAX: usize = 512;
/// Maximum time that a batch waits to become full.
const BATCH_DELAY_MAX: Duration = Duration::from_secs(1);
/// Time limit for one request to the collector.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time that a stopping process waits for the export of the remaining spans.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval of the warning about dropped spans.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);
/// How long an unused connection is kept.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of a response.
const RESPONSE_BYTES_MAX: usize = 64 * 1024;

type BoxError = Box<dyn Error + Send + Sync>;

/// Sends spans from the queue to the collector.
#[derive(Debug)]
pub struct Exporter {
    endpoint: Endpoint,
    resource: Resource,
    version: String,
    queued: mpsc::Receiver<Record>,
    batch: Vec<Record>,
    client: Client<HttpConnector, Full<Bytes>>,
    drop_warning: DropWarning,
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
        if timeout(FLUSH_TIMEOUT, &mut self.task).await.is_err() {
            self.task.abort();
            tracing::warn!(timeout = ?FLUSH_TIMEOUT, "remaining spans dropped: span export timed out at shutdown");
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
            batch: Vec::with_capacity(BATCH_SPANS_MAX),
            client: Client::builder(TokioExecutor::new())
                .pool_idle_timeout(IDLE_TIMEOUT)
                .pool_timer(TokioTimer::new())
                .build_http(),
            drop_warning: DropWarning::default(),
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
            while self.batch.len() < BATCH_SPANS_MAX
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
        if self.queued.recv_many(&mut self.batch, BATCH_SPANS_MAX).await == 0 {
            // All senders are dropped, so no more spans arrive.
            return std::future::pending().await;
        }
        let filling = async {
            let mut room = BATCH_SPANS_MAX.saturating_sub(self.batch.len());
            while room > 0 {
                match self.queued.recv_many(&mut self.batch, room).await {
                    0 => return,
                    more => room -= more,
                }
            }
        };
        let _ = timeout(BATCH_DELAY_MAX, filling).await;
    }

    /// Posts the batch once, without retries. To buffer spans for an unreachable collector, run a local collector.
    async fn export(&mut self) {
        let records = std::mem::take(&mut self.batch);
        let count = records.len() as u64;
        let body = Bytes::from(wire::request(&self.resource, &self.version, records).encode_to_vec());
        let posted = match timeout(REQUEST_TIMEOUT, self.post(body)).await {
            Ok(posted) => posted,
            Err(_) => Err(format!("no response within {} s", REQUEST_TIMEOUT.as_secs()).into()),
        };
        match posted {
            Ok(None) => {
                counters().add_exported(count);
                self.drop_warning.succeeded(&self.endpoint);
            }
            Ok(Some(partial)) => {
                let rejected = u64::try_from(partial.rejected_spans).unwrap_or(0).min(count);
                counters().add_exported(count - rejected);
                counters().add_dropped_collector(rejected);
                self.drop_warning.failed(
                    &self.endpoint,
                    &format!("spans rejected: {}", partial.error_message),
                    rejected,
                );
            }
            Err(error) => {
                counters().add_dropped_collector(count);
                self.drop_warning.failed(&self.endpoint, &error, count);
            }
        }
    }

    /// Posts a batch and returns the spans that the collector rejected, if any.
    async fn post(&self, body: Bytes) -> Result<Option<PartialSuccess>, BoxError> {
        let request = Request::post(self.endpoint.0.clone())
            .header(header::CONTENT_TYPE, "application/x-protobuf")
            .header(header::USER_AGENT, concat!("convoke/", env!("CARGO_PKG_VERSION")))
            .body(Full::new(body))?;
        let response = self.client.request(request).await?;
        let status = response.status();
        let answer = Limited::new(response.into_body(), RESPONSE_BYTES_MAX).collect().await?.to_bytes();
        check_response(status, &answer)
    }
}

fn check_response(status: StatusCode, answer: &[u8]) -> Result<Option<PartialSuccess>, BoxError> {
    if !status.is_success() {
        return Err(format!("HTTP status {status}").into());
    }
    // Some collectors respond with another body. A success status means that they accepted the request.
    let partial = ExportResponse::decode(answer).ok().and_then(|answer| answer.partial_success);
    Ok(partial.filter(|partial| partial.rejected_spans > 0))
}

/// Warns about dropped spans: at once, then once per interval.
#[derive(Debug, Default)]
struct DropWarning {
    warned: Option<Instant>,
    lost: u64,
}

impl DropWarning {
    fn failed(&mut self, endpoint: &Endpoint, error: &impl fmt::Display, lost: u64) {
        self.lost += lost;
        if self.warned.is_none_or(|warned| warned.elapsed() >= WARNING_INTERVAL) {
            self.warned = Some(Instant::now());
            let lost = self.lost;
            tracing::warn!(%endpoint, dropped_spans = lost, %error, "span export failed");
        }
    }

    fn succeeded(&mut self, endpoint: &Endpoint) {
        if self.warned.take().is_some() {
            tracing::info!(%endpoint, dropped_spans = self.lost, "span export resumed");
            self.lost = 0;
        }
    }
}
