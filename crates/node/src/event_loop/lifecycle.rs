//! Incarnations of the node: the first one, further ones in the same process, and the end.

use super::{EventLoop, Numbered};
use crate::archive::ArchiveWriter;
use crate::clock::{Clock, wall_ms};
use crate::connection::CloseReason;
use crate::counters::add;
use crate::disk::DataDir;
use crate::error::StartError;
use crate::event_loop::streams::Streams;
use crate::event_loop::{Inputs, Signal};
use crate::events::NodeEvent;
use crate::links::{LinkTasks, LogThrottle};
use crate::random;
use crate::shared::{Phase, Shared};
use crate::view::Publisher;
use convoke_core::RevocationSet;
use convoke_core::node::{InheritedState, Replicated, RestartReason, Start, StopReason, Unreplicated};
use convoke_core::{Node, Output};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Time limit for a stopping node to send its last frames.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// The initial state of the event loop.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) core_config: convoke_core::Config,
    pub(crate) shared: Arc<Shared>,
    pub(crate) inputs: Inputs,
    pub(crate) signals: mpsc::UnboundedReceiver<Signal>,
    pub(crate) publisher: Publisher,
    pub(crate) data_dir: Option<Arc<DataDir>>,
    pub(crate) nonce: u64,
}

/// Returns whether a disk has no space left.
fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), FileTooLarge | QuotaExceeded | StorageFull)
}

impl EventLoop {
    pub(crate) fn launch(launch: Launch) -> Result<Self, StartError> {
        let Launch { core_config, shared, inputs, signals, publisher, data_dir, nonce } = launch;
        let clock = Clock::start();
        let persisted = data_dir.as_ref().map_or(0, |data_dir| data_dir.incarnation());
        let archive = ArchiveWriter::open(data_dir.as_ref(), &shared).map_err(|source| {
            let path = data_dir.as_ref().map(|data_dir| data_dir.path().join("agentless")).unwrap_or_default();
            StartError::Disk { action: "open", path, source }
        })?;
        let start = Start { persisted, nonce, archive: archive.archive.clone(), ..Start::default() };
        let core = new_core(&core_config, start, clock)?;
        if let Some(data_dir) = &data_dir {
            let source = |source| StartError::Disk {
                action: "write the incarnation to",
                path: data_dir.path().to_owned(),
                source,
            };
            match data_dir.persist(core.origin().incarnation.number) {
                // The registry is in memory. Peers know the number, and the nonce distinguishes this process (N1).
                Err(error) if is_full(&error) => {
                    let error = format!("{}: {error}", data_dir.path().display());
                    shared.timeline.record(NodeEvent::PersistFailed { error });
                }
                persisted => persisted.map_err(source)?,
            }
        }
        let owner = EventLoop {
            core,
            core_config,
            out: Output::default(),
            clock,
            generation: 1,
            collisions: 0,
            shared,
            inputs,
            signals,
            publisher,
            links: Numbered::default(),
            link_tasks: LinkTasks::default(),
            dials: JoinSet::new(),
            clients: Numbered::default(),
            streams: Streams::default(),
            replies: Vec::new(),
            unreplicated: Unreplicated::default(),
            names: BTreeMap::new(),
            data_dir,
            archive,
            log_throttle: LogThrottle::default(),
            ended: None,
        };
        let incarnation = owner.core.origin().incarnation.number;
        owner.shared.timeline.record(NodeEvent::Started { incarnation });
        Ok(owner)
    }

    pub(crate) fn begin(&mut self) {
        let now = self.clock.now();
        self.core.begin(now, &mut self.out);
        self.settle();
        self.publish();
        self.reply();
    }

    /// Replaces the core by a new, empty one with a higher incarnation. Clients and peers must connect again.
    pub(super) fn restart(&mut self, reason: RestartReason, incarnation: u64, inherited: InheritedState) {
        let nonce = match random::number() {
            Ok(nonce) => nonce,
            Err(error) => {
                tracing::error!(node = %self.shared.id, "cannot restart: {error}");
                self.ended = Some(StopReason::Graceful);
                return;
            }
        };
        add(&self.shared.counting.restarts, 1);
        self.shared.timeline.record(NodeEvent::Restarted { reason, incarnation });
        self.shared.phase.send_if_modified(|phase| {
            let serving = matches!(phase, Phase::Ready | Phase::Alone);
            if serving {
                *phase = Phase::Starting;
            }
            serving
        });
        self.release_answers(self.clock.now(), Replicated::Alone);
        self.generation += 1;
        self.collisions += u32::from(reason != RestartReason::PausedTooLong);
        self.close_all_clients(CloseReason::NodePaused);
        self.dials.abort_all();
        for (_, link) in self.links.drain() {
            link.queue.cut();
        }
        self.out = Output::default();
        self.publisher.clear();
        self.shared.checks.reset();
        let persisted = incarnation.saturating_sub(1);
        let archive = self.archive.archive.clone();
        let start = Start { persisted, nonce, collisions: self.collisions, inherited, archive, ..Start::default() };
        match new_core(&self.core_config, start, self.clock) {
            Ok(core) => {
                self.core = core;
                self.core.restore_revocations(RevocationSet::clone(&self.shared.revocations.borrow()));
            }
            // The configuration was valid for the previous core.
            Err(error) => unreachable!("a node that ran cannot start: {error}"),
        }
        self.begin();
        if *self.shared.phase.borrow() == Phase::Stopping {
            let now = self.clock.now();
            self.core.stop(now, &mut self.out);
        }
    }

    /// Names belong to the application and survive a restart of the core (N2).
    pub(super) fn register_names_again(&mut self) {
        if self.generation == 1 {
            return;
        }
        let now = self.clock.now();
        for (name, location) in self.names.clone() {
            if let Err(rejection) = self.core.register_name(now, &name, &location, &mut self.out) {
                tracing::warn!(node = %self.shared.id, "cannot register name {name:?} again: {rejection}");
            }
        }
        self.core.names_complete(now, &mut self.out);
    }

    /// Sends the last answers and frames.
    pub(super) async fn finish(mut self) {
        self.release_answers(self.clock.now(), Replicated::Alone);
        self.reply();
        for (_, link) in self.links.drain() {
            link.queue.close();
        }
        self.dials.abort_all();
        let tasks = &mut self.link_tasks;
        let sent = async {
            while tasks.writers.join_next().await.is_some() {}
            while tasks.readers.join_next().await.is_some() {}
        };
        let _ = tokio::time::timeout(FLUSH_TIMEOUT, sent).await;
    }
}

fn new_core(config: &convoke_core::Config, start: Start, clock: Clock) -> Result<Node, convoke_core::ConfigError> {
    let start = Start { wall_ms: wall_ms(), publish: true, ..start };
    Node::new(config.clone(), start, clock.now())
}
