//! Reads the log from disk at start, and rejects damaged files.

use super::disk::{Disk, read};
use super::record::{Opening, Record};
use super::segment::{self, Scanned};
use super::writer::{Segment, segment_name};
use super::{Entries, Held};
use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;

/// Why a log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("cannot {action} {path}: {source}")]
    Disk { action: &'static str, path: PathBuf, source: io::Error },
    #[error("another process uses {path} (stop it, or use another directory)")]
    InUse { path: PathBuf },
    #[error(
        "{path} is damaged: {what}; nothing was changed (remove this replica from the group, move the directory away \
         and add the node again; if it is the only replica, restore a backup)"
    )]
    Damaged { path: PathBuf, what: String },
    #[error(
        "{path} contains a log without its file `identity`; nothing was changed (restore the file, or remove this \
         replica from the group, move the directory away and add the node again)"
    )]
    NoIdentity { path: PathBuf },
}

impl StoreError {
    /// Returns whether the disk has no space left.
    pub fn is_full(&self) -> bool {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        matches!(self, StoreError::Disk { source, .. } if matches!(source.kind(), FileTooLarge | QuotaExceeded | StorageFull))
    }
}

/// The log as found on disk.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) held: Held,
    pub(crate) known: Opening,
    pub(crate) segments: VecDeque<Segment>,
    pub(crate) scanned: Option<Scanned>,
    pub(crate) next_batch: u64,
}

/// Reads all segments in order.
pub(crate) fn open(disk: &dyn Disk) -> Result<Found, StoreError> {
    let failed = |action, path: PathBuf| move |source| StoreError::Disk { action, path, source };
    let names = disk.list().map_err(failed("list", disk.path("")))?;
    let mut sequences: Vec<u64> = names
        .iter()
        .filter_map(|name| u64::from_str_radix(name.strip_suffix(".log")?, 16).ok())
        .filter(|sequence| names.contains(&segment_name(*sequence)))
        .collect();
    sequences.sort_unstable();
    let mut reading = Reading::default();
    let (mut segments, mut scanned, mut next) = (VecDeque::new(), None, None);
    for (place, sequence) in sequences.iter().enumerate() {
        let name = segment_name(*sequence);
        let damaged = |what: String| StoreError::Damaged { path: disk.path(&name), what };
        let is_last = place + 1 == sequences.len();
        if place > 0 && sequences[place - 1] + 1 != *sequence {
            return Err(damaged("the segment before it is missing".to_owned()));
        }
        let bytes = read(disk, &name).map_err(failed("read", disk.path(&name)))?;
        reading.segment_last = None;
        reading.first = place == 0;
        reading.begun = false;
        let found = segment::scan(&bytes, next, is_last, |record| reading.take(record));
        match found.map_err(|damage| damaged(damage.to_string()))? {
            Some(found) if found.preface.sequence != *sequence => {
                return Err(damaged(format!("its content is that of segment {}", found.preface.sequence)));
            }
            Some(found) => {
                next = Some(found.next);
                segments.push_back(Segment { sequence: *sequence, last: reading.segment_last });
                scanned = Some(found);
            }
            // A crash interrupted its creation; nothing refers to it.
            None => disk.remove(&name).map_err(failed("remove", disk.path(&name)))?,
        }
    }
    let Reading { held, .. } = reading;
    if held.entries.is_missing() {
        let what = "the first segments are missing".to_owned();
        return Err(StoreError::Damaged { path: disk.path(""), what });
    }
    let entries = &held.entries;
    let known = Opening { vote: held.vote, purged: entries.purged(), committed: held.committed, last: entries.last() };
    Ok(Found { held, known, segments, scanned, next_batch: next.unwrap_or(1) })
}

/// The log read so far.
#[derive(Debug, Default)]
struct Reading {
    held: Held,
    segment_last: Option<u64>,
    /// Whether this is the first segment, and whether its opening record was read.
    first: bool,
    begun: bool,
}

impl Reading {
    fn take(&mut self, record: Record<'static>) -> Result<(), String> {
        if matches!(record, Record::Opening(_)) == self.begun {
            return Err("the segment does not start with its opening record".to_owned());
        }
        let entries: &mut Entries = &mut self.held.entries;
        match record {
            Record::Opening(opening) => {
                self.begun = true;
                self.held.vote = opening.vote;
                self.held.committed = opening.committed;
                if self.first {
                    if let Some(purged) = opening.purged {
                        entries.purge(purged);
                    }
                    if let Some(last) = opening.last {
                        entries.assume(last);
                    }
                } else if entries.last_index() != opening.last.map(|last| last.index) {
                    return Err("entries before it are missing".to_owned());
                }
            }
            Record::Entry(entry) => {
                self.segment_last = self.segment_last.max(Some(entry.log_id.index));
                entries.append(entry.into_owned()).map_err(|error| error.to_string())?;
            }
            Record::Vote(vote) => self.held.vote = Some(vote),
            Record::Truncate(from) => entries.truncate(from),
            Record::Purge(upto) => entries.purge(upto),
            Record::Committed(upto) => self.held.committed = Some(upto),
        }
        Ok(())
    }
}
