//! A counter in the replicated log, incremented by compare-and-set. It counts acknowledged writes that are lost.

use convoke_cli::Result;
use convoke_client::log::{Ambassador, Kv, Options, Status};
use convoke_client::{Error, ErrorCode};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const KEY: &str = "shop/orders";
/// Long enough to elect and find a leader.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(crate) struct LogCounter {
    log: Ambassador,
    kv: Kv,
    /// Value and revision of the last acknowledged write.
    acknowledged: u64,
    revision: u64,
}

/// An acknowledged write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Increment {
    pub(crate) number: u64,
    pub(crate) revision: u64,
    pub(crate) took: Duration,
}

impl LogCounter {
    pub(crate) fn open(nodes: &[(String, SocketAddr)]) -> Result<LogCounter> {
        let log = Ambassador::start(nodes.iter().map(|(_, address)| address.to_string()))?;
        let kv = log.kv_with(Options::default().timeout(PATIENCE).client_name("demo"));
        Ok(LogCounter { log, kv, acknowledged: 0, revision: 0 })
    }

    pub(crate) fn key(&self) -> &'static str {
        KEY
    }

    pub(crate) fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Increments the counter. Fails if the key has changed since.
    pub(crate) async fn increment(&mut self) -> Result<Increment, Error> {
        let (begin, number) = (Instant::now(), self.acknowledged + 1);
        let written = self.kv.compare_and_set(KEY, number.to_string(), self.revision).await?;
        (self.acknowledged, self.revision) = (number, written.revision);
        Ok(Increment { number, revision: written.revision, took: begin.elapsed() })
    }

    /// Number of acknowledged writes that the log no longer contains.
    pub(crate) async fn lost(&self) -> Result<u64, Error> {
        let found = self.kv.get(KEY).await?;
        let value = found.as_ref().and_then(|found| std::str::from_utf8(&found.value).ok()?.parse::<u64>().ok());
        Ok(self.acknowledged.saturating_sub(value.unwrap_or(0)))
    }

    /// The leader, as it reports itself.
    pub(crate) async fn leader(&self) -> Option<String> {
        let status: Status = self.log.status(Some(PATIENCE)).await.ok()?;
        Some(status.leader).filter(|leader| !leader.is_empty())
    }

    /// Reads the counter again after a write with an unknown outcome.
    pub(crate) async fn reread(&mut self, after: &Error) {
        if !matches!(after.code, ErrorCode::OutcomeUnknown | ErrorCode::FailedPrecondition) {
            return;
        }
        if let Ok(Some(found)) = self.kv.get(KEY).await {
            let value = std::str::from_utf8(&found.value).ok().and_then(|text| text.parse().ok());
            (self.acknowledged, self.revision) = (value.unwrap_or(self.acknowledged), found.mod_revision);
        }
    }
}
