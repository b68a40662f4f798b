//! Keys of the log plane: one counter that is raised by compare-and-set, and what must be there because it was acknowledged.

use convoke_cli::Result;
use convoke_client::log::{Ambassador, Kv, Options, Status};
use convoke_client::{Code, Error};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const KEY: &str = "shop/orders";
/// A leader may have to be found first.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(crate) struct Ledger {
    log: Ambassador,
    kv: Kv,
    /// Of the last write that was acknowledged: its number, and the revision it made.
    acknowledged: u64,
    revision: u64,
}

/// A write that was acknowledged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entered {
    pub(crate) number: u64,
    pub(crate) revision: u64,
    pub(crate) took: Duration,
}

impl Ledger {
    pub(crate) fn open(nodes: &[(String, SocketAddr)]) -> Result<Ledger> {
        let log = Ambassador::start(nodes.iter().map(|(_, address)| address.to_string()))?;
        let kv = log.kv_with(Options::default().timeout(PATIENCE).client_name("demo"));
        Ok(Ledger { log, kv, acknowledged: 0, revision: 0 })
    }

    pub(crate) fn key(&self) -> &'static str {
        KEY
    }

    pub(crate) fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Raises the counter, if nobody else did since.
    pub(crate) async fn enter(&mut self) -> Result<Entered, Error> {
        let (begin, number) = (Instant::now(), self.acknowledged + 1);
        let written = self.kv.compare_and_set(KEY, number.to_string(), self.revision).await?;
        (self.acknowledged, self.revision) = (number, written.revision);
        Ok(Entered { number, revision: written.revision, took: begin.elapsed() })
    }

    /// How many acknowledged writes are not in what the log says now: any is one too many.
    pub(crate) async fn lost(&self) -> Result<u64, Error> {
        let found = self.kv.get(KEY).await?;
        let value = found.as_ref().and_then(|found| std::str::from_utf8(&found.value).ok()?.parse::<u64>().ok());
        Ok(self.acknowledged.saturating_sub(value.unwrap_or(0)))
    }

    /// Who leads, as the leader says.
    pub(crate) async fn leader(&self) -> Option<String> {
        let status: Status = self.log.status(Some(PATIENCE)).await.ok()?;
        Some(status.leader).filter(|leader| !leader.is_empty())
    }

    /// After a write of which nobody knows what became, the counter is read again.
    pub(crate) async fn look_again(&mut self, after: &Error) {
        if !matches!(after.code, Code::OutcomeUnknown | Code::FailedPrecondition) {
            return;
        }
        if let Ok(Some(found)) = self.kv.get(KEY).await {
            let value = std::str::from_utf8(&found.value).ok().and_then(|text| text.parse().ok());
            (self.acknowledged, self.revision) = (value.unwrap_or(self.acknowledged), found.mod_revision);
        }
    }
}
