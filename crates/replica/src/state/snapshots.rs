//! The newest snapshot.

use super::Image;
use std::io;
use std::sync::{Mutex, PoisonError};

/// Keeps one snapshot: the newest.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    current: Mutex<Option<Image>>,
}

impl Snapshots {
    pub(crate) fn current(&self) -> Option<Image> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps a snapshot instead of the one before, unless that is newer.
    pub(crate) async fn save(&self, image: &Image) -> io::Result<()> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.as_ref().is_none_or(|current| current.meta.last_log_id <= image.meta.last_log_id) {
            *current = Some(image.clone());
        }
        Ok(())
    }
}
