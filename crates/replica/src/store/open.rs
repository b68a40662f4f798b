//! Reading what is on the disk, once, and refusing what is not as it was written.

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
    #[error("another process uses {path}")]
    InUse { path: PathBuf },
    #[error(
        "{path} is damaged: {what}. Nothing was changed. Remove this replica from the group, move the directory away, \
         and add the node anew; if it is the only one left, restore a backup"
    )]
    Damaged { path: PathBuf, what: String },
}

/// What was found.
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
                return Err(damaged(format!("it is segment {}, by what stands in it", found.preface.sequence)));
            }
            Some(found) => {
                next = Some(found.next);
                segments.push_back(Segment { sequence: *sequence, last: reading.segment_last });
                scanned = Some(found);
            }
            // It was being created when a crash came; nobody knows of it.
            None => disk.remove(&name).map_err(failed("remove", disk.path(&name)))?,
        }
    }
    let Reading { held, .. } = reading;
    if held.entries.is_missing() {
        let what = "its first segments are missing".to_owned();
        return Err(StoreError::Damaged { path: disk.path(""), what });
    }
    let entries = &held.entries;
    let known = Opening { vote: held.vote, purged: entries.purged(), committed: held.committed, last: entries.last() };
    Ok(Found { held, known, segments, scanned, next_batch: next.unwrap_or(1) })
}

/// The log as far as it was read.
#[derive(Debug, Default)]
struct Reading {
    held: Held,
    segment_last: Option<u64>,
    /// Whether it is the first segment there is, and whether its opening was seen.
    first: bool,
    begun: bool,
}

impl Reading {
    fn take(&mut self, record: Record<'static>) -> Result<(), String> {
        if matches!(record, Record::Opening(_)) == self.begun {
            return Err("a segment that does not begin with its opening".to_owned());
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
