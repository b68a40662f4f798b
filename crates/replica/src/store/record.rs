//! Records in the batches of a segment.

use crate::codec::{entry, log_id, put_entry, put_log_id, put_some_log_id, put_vote, some_log_id, vote};
use crate::raft::{Entry, LogId, Vote};
use convoke_log::codec::{CodecError, Reader, Writer};
use std::borrow::Cow;

const OPENING: u8 = 0;
const ENTRY: u8 = 1;
const VOTE: u8 = 2;
const TRUNCATE: u8 = 3;
const PURGE: u8 = 4;
const COMMITTED: u8 = 5;

/// One step of the log. Tags are added, never changed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Record<'a> {
    /// First record of every segment: the state that must be known when earlier segments are deleted.
    Opening(Opening),
    Entry(Cow<'a, Entry>),
    Vote(Vote),
    /// Removes this index and all later ones.
    Truncate(u64),
    /// All entries up to this one are in a snapshot.
    Purge(LogId),
    /// A hint that is never synced on its own: how far to apply after a restart before a leader makes contact.
    Committed(LogId),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Opening {
    pub(crate) vote: Option<Vote>,
    pub(crate) purged: Option<LogId>,
    pub(crate) committed: Option<LogId>,
    /// The last entry before the segment.
    pub(crate) last: Option<LogId>,
}

impl Record<'_> {
    pub(crate) fn encode(&self, w: &mut Writer) {
        match self {
            Record::Opening(opening) => {
                w.byte(OPENING);
                w.option(opening.vote.as_ref(), put_vote);
                put_some_log_id(w, opening.purged.as_ref());
                put_some_log_id(w, opening.committed.as_ref());
                put_some_log_id(w, opening.last.as_ref());
            }
            Record::Entry(entry) => {
                w.byte(ENTRY);
                put_entry(w, entry);
            }
            Record::Vote(vote) => {
                w.byte(VOTE);
                put_vote(w, vote);
            }
            Record::Truncate(from) => {
                w.byte(TRUNCATE);
                w.varint(*from);
            }
            Record::Purge(upto) => {
                w.byte(PURGE);
                put_log_id(w, upto);
            }
            Record::Committed(upto) => {
                w.byte(COMMITTED);
                put_log_id(w, upto);
            }
        }
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Record<'static>, CodecError> {
        Ok(match r.byte("record")? {
            OPENING => Record::Opening(Opening {
                vote: r.option("vote", vote)?,
                purged: some_log_id(r)?,
                committed: some_log_id(r)?,
                last: some_log_id(r)?,
            }),
            ENTRY => Record::Entry(Cow::Owned(entry(r)?)),
            VOTE => Record::Vote(vote(r)?),
            TRUNCATE => Record::Truncate(r.counter("from")?),
            PURGE => Record::Purge(log_id(r)?),
            COMMITTED => Record::Committed(log_id(r)?),
            _ => return Err(CodecError::Invalid("record")),
        })
    }
}
