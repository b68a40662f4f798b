//! Confirms keep-alives of leases with leadership rounds (LE2): one round for all that wait.

use crate::counters::add;
use crate::engine::Engine;
use crate::rejection::LogRejection;
use convoke_log::leader::Rounds;
use convoke_log::{Epoch, Mutation};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

/// Keep-alives that wait for a confirmation. Each holds a permit for a read, which bounds them.
#[derive(Debug)]
pub(crate) struct KeepAlives {
    rounds: Mutex<Rounds<Received>>,
    arrived: Notify,
}

#[derive(Debug)]
struct Received {
    /// The epoch in which the leases were renewed. A round of another epoch confirms nothing.
    epoch: Epoch,
    confirmed: oneshot::Sender<Result<(), LogRejection>>,
}

impl Default for KeepAlives {
    fn default() -> Self {
        KeepAlives { rounds: Mutex::new(Rounds::new(Mutation::none())), arrived: Notify::new() }
    }
}

impl KeepAlives {
    /// Adds a keep-alive that was received now. The answer arrives after a round that begins later.
    pub(crate) fn received(&self, epoch: Epoch) -> oneshot::Receiver<Result<(), LogRejection>> {
        let (confirmed, answer) = oneshot::channel();
        if self.lock().received(Received { epoch, confirmed }) {
            self.arrived.notify_one();
        }
        answer
    }

    fn lock(&self) -> MutexGuard<'_, Rounds<Received>> {
        self.rounds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a round whenever keep-alives wait, but only one in each heartbeat interval.
pub(crate) async fn confirm(engine: Arc<Engine>) {
    let tick = engine.config.timers.heartbeat_interval;
    loop {
        engine.keep_alives.arrived.notified().await;
        while engine.keep_alives.lock().begin() {
            let began = Instant::now();
            let confirmed = engine.confirm_leadership().await;
            add(&engine.counting.leadership_rounds, 1);
            let waiting = engine.keep_alives.lock().finish();
            for Received { epoch, confirmed: answer } in waiting {
                let result = match &confirmed {
                    Ok(position) if position.epoch == epoch => Ok(()),
                    Ok(position) => Err(LogRejection::StaleEpoch { current: position.epoch }),
                    Err(why) => Err(why.clone()),
                };
                // The client may be gone.
                let _ = answer.send(result);
            }
            tokio::time::sleep_until(began + tick).await;
        }
    }
}
