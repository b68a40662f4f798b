//! Writes the audit log in a thread of its own.

use super::config::{AuditConfig, AuditError, AuditTarget};
use super::file::RotatingFile;
use super::record::{Record, Strangers, missing_line};
use convoke_counters::{add, read};
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::oneshot;

/// Records that wait to be written. Further ones are lost and counted: a request never waits for the audit log.
const QUEUE: usize = 16_384;
/// Records in one write.
const BATCH: usize = 256;
/// Interval at which suppressed and lost records are reported.
const REPORT: Duration = Duration::from_secs(1);
/// Time to write everything when the node stops.
const FLUSH: Duration = Duration::from_secs(5);

convoke_counters::atomic_counters! {
    /// Monotonic counters of the audit log.
    pub struct AuditCounters read from AuditCounting {
        /// Records written to the audit log.
        records_written,
        /// Audit records that are missing because the queue was full or the file was not writable.
        records_lost,
        /// Audit records about denials of callers without a principal that were left out because there were too many.
        records_suppressed,
    }
}

/// Takes records. Cheap to clone; without an audit log it does nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Audit(Option<Arc<Enabled>>);

#[derive(Debug)]
struct Enabled {
    queue: SyncSender<Message>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    counting: AuditCounting,
    strangers: Mutex<Strangers>,
    /// The last write failed.
    failing: AtomicBool,
}

#[derive(Debug)]
enum Message {
    Record(Box<Record>),
    /// Answered when all earlier records are written.
    Flush(oneshot::Sender<()>),
}

#[derive(Debug)]
enum Sink {
    File(RotatingFile),
    Stdout(io::Stdout),
}

impl Sink {
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        match self {
            Sink::File(file) => file.write(lines),
            Sink::Stdout(out) => out.write_all(lines).and_then(|()| out.flush()),
        }
    }
}

/// An open audit log whose node is not known yet.
#[derive(Debug, Default)]
pub(crate) struct Prepared(Option<Sink>);

impl Prepared {
    /// Opens the file. It must be usable at the start.
    pub(crate) fn open(config: Option<&AuditConfig>) -> Result<Prepared, AuditError> {
        let Some(config) = config else { return Ok(Prepared(None)) };
        Ok(Prepared(Some(match &config.target {
            AuditTarget::Stdout => Sink::Stdout(io::stdout()),
            AuditTarget::File(path) => {
                let file = RotatingFile::open(path, config.max_bytes, config.files);
                Sink::File(file.map_err(|source| AuditError { path: path.clone(), source })?)
            }
        })))
    }

    /// Starts the thread. It ends with the last [`Audit`].
    pub(crate) fn start(self, node: &str) -> Audit {
        self.0.map_or_else(Audit::default, |sink| start(sink, node.to_owned(), QUEUE))
    }
}

fn start(sink: Sink, node: String, queue: usize) -> Audit {
    let (sender, receiver) = sync_channel(queue);
    let shared = Arc::new(Shared::default());
    let mut writer = Writer { sink, node, shared: shared.clone(), reported: 0 };
    let thread = std::thread::Builder::new().name("audit".to_owned());
    if let Err(error) = thread.spawn(move || writer.run(&receiver)) {
        // The receiver is gone, so every record counts as lost.
        tracing::error!(%error, "the thread of the audit log did not start");
        shared.failing.store(true, Ordering::Relaxed);
    }
    Audit(Some(Arc::new(Enabled { queue: sender, shared })))
}

impl Audit {
    pub(super) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    pub(super) fn record(&self, record: Record) {
        let Some(Enabled { queue, shared }) = self.0.as_deref() else { return };
        if record.is_of_stranger() && !shared.strangers().admit(record.at) {
            return add(&shared.counting.records_suppressed, 1);
        }
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) =
            queue.try_send(Message::Record(Box::new(record)))
        {
            add(&shared.counting.records_lost, 1);
        }
    }

    /// Waits until all earlier records are written.
    pub(crate) async fn flush(&self) {
        let Some(enabled) = self.0.clone() else { return };
        let (done, written) = oneshot::channel();
        // The queue may be full, and its end must not block the runtime.
        let sending = tokio::task::spawn_blocking(move || enabled.queue.send(Message::Flush(done)));
        let _ = tokio::time::timeout(FLUSH, async { (sending.await, written.await) }).await;
    }

    pub(crate) fn counters(&self) -> AuditCounters {
        self.0.as_ref().map(|enabled| enabled.shared.counting.read()).unwrap_or_default()
    }

    /// Why the audit log needs attention.
    pub(crate) fn degraded(&self) -> Option<String> {
        let failing = self.0.as_ref()?.shared.failing.load(Ordering::Relaxed);
        failing.then(|| "audit: the audit log cannot be written; records are lost".to_owned())
    }
}

impl Shared {
    fn strangers(&self) -> std::sync::MutexGuard<'_, Strangers> {
        self.strangers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Writer {
    sink: Sink,
    node: String,
    shared: Arc<Shared>,
    /// Lost records of which a line was written.
    reported: u64,
}

impl Writer {
    /// Runs until all senders are gone.
    fn run(&mut self, queue: &Receiver<Message>) {
        loop {
            let (mut lines, mut count, mut flushed) = (String::new(), 0, Vec::new());
            let first = match queue.recv_timeout(REPORT) {
                Ok(message) => Some(message),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            for message in first.into_iter().chain(queue.try_iter().take(BATCH)) {
                match message {
                    Message::Record(record) => {
                        lines += &record.line(&self.node);
                        count += 1;
                    }
                    Message::Flush(done) => flushed.push(done),
                }
            }
            self.write(lines, count);
            for done in flushed {
                let _ = done.send(());
            }
        }
    }

    fn write(&mut self, mut lines: String, count: u64) {
        let now = unix_ms();
        let lost = read(&self.shared.counting.records_lost);
        if lost > self.reported {
            lines += &missing_line(now, &self.node, "lost", lost - self.reported);
        }
        let suppressed = self.shared.strangers().take_suppressed(now);
        if suppressed > 0 {
            lines += &missing_line(now, &self.node, "suppressed", suppressed);
        }
        if lines.is_empty() {
            return;
        }
        match self.sink.write(lines.as_bytes()) {
            Ok(()) => {
                self.reported = lost;
                add(&self.shared.counting.records_written, count);
                if self.shared.failing.swap(false, Ordering::Relaxed) {
                    tracing::info!("audit log written again");
                }
            }
            Err(error) => {
                add(&self.shared.counting.records_lost, count);
                if !self.shared.failing.swap(true, Ordering::Relaxed) {
                    tracing::error!(%error, "audit log not written; records are lost");
                }
            }
        }
    }
}

pub(super) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;

    fn record() -> Record {
        Record { at: 1_000, principal: Some("token/a".to_owned()), result: "OK", ..Record::default() }
    }

    #[test]
    fn a_full_queue_loses_records_and_reports_their_number() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.log");
        let (queue, receiver) = sync_channel(3);
        let shared = Arc::new(Shared::default());
        let audit = Audit(Some(Arc::new(Enabled { queue, shared: shared.clone() })));
        // The writer has not started, so the queue is full after three.
        for _ in 0..10 {
            audit.record(record());
        }
        assert_eq!(audit.counters().records_lost, 7);
        let sink = Sink::File(RotatingFile::open(&path, 1_000_000, 2).unwrap());
        let mut writer = Writer { sink, node: "n1".to_owned(), shared, reported: 0 };
        let counters = audit.clone();
        drop(audit);
        let running = std::thread::spawn(move || writer.run(&receiver));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(counters.flush());
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.matches("token/a").count(), 3, "{text}");
        assert!(text.ends_with("\"event\":\"lost\",\"count\":7}\n"), "{text}");
        assert_eq!(counters.counters().records_written, 3);
        drop(counters);
        running.join().unwrap();
    }

    #[test]
    fn a_file_that_cannot_be_written_is_a_reason_to_be_degraded() {
        let directory = tempfile::tempdir().unwrap();
        let inner = directory.path().join("data");
        let path = inner.join("a.log");
        let config = AuditConfig::new(AuditTarget::File(path.clone()));
        let audit = Prepared::open(Some(&config)).unwrap().start("n1");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        // A file where the directory was: the file cannot be opened again.
        std::fs::remove_dir_all(&inner).unwrap();
        std::fs::write(&inner, "").unwrap();
        audit.record(record());
        runtime.block_on(audit.flush());
        assert!(audit.degraded().unwrap().starts_with("audit:"));
        std::fs::remove_file(&inner).unwrap();
        audit.record(record());
        runtime.block_on(audit.flush());
        assert_eq!(audit.degraded(), None);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("\"event\":\"lost\",\"count\":1}"), "{text}");
        let below_a_file = AuditConfig::new(AuditTarget::File(path.join("b.log")));
        assert!(Prepared::open(Some(&below_a_file)).unwrap_err().to_string().contains("audit.file"));
    }
}
