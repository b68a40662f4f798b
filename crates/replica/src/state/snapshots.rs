//! The newest snapshot.

use super::Image;
use crate::counters::{Counting, add};
use crate::store::disk::Disk;
use crate::store::snapshot_file;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// The newest snapshot, in memory (sharing unchanged parts with the state) and on disk if there is one.
#[derive(Debug)]
pub(crate) struct Snapshots {
    current: Mutex<Option<Image>>,
    disk: Option<Arc<dyn Disk>>,
    /// Only one snapshot is written at a time.
    writing: tokio::sync::Mutex<()>,
    counting: Arc<Counting>,
}

impl Snapshots {
    pub(crate) fn new(current: Option<Image>, disk: Option<Arc<dyn Disk>>, counting: Arc<Counting>) -> Self {
        Snapshots { current: Mutex::new(current), disk, writing: tokio::sync::Mutex::default(), counting }
    }

    pub(crate) fn counting(&self) -> &Counting {
        &self.counting
    }

    pub(crate) fn current(&self) -> Option<Image> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the current snapshot unless it is newer. Durable when this returns.
    pub(crate) async fn save(&self, image: &Image) -> io::Result<()> {
        let _writing = self.writing.lock().await;
        let newer = |found: &Image| found.meta.last_log_id > image.meta.last_log_id;
        if self.current().as_ref().is_some_and(newer) {
            return Ok(());
        }
        if let Some(disk) = self.disk.clone() {
            match disk.simulated_latency() {
                None => {
                    let image = image.clone();
                    let written = tokio::task::spawn_blocking(move || snapshot_file::save(&*disk, &image)).await;
                    written.unwrap_or_else(|error| Err(io::Error::other(error)))?;
                }
                Some(latency) => {
                    tokio::time::sleep(latency).await;
                    snapshot_file::save(&*disk, image)?;
                }
            }
        }
        add(&self.counting.snapshots, 1);
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(image.clone());
        Ok(())
    }
}
