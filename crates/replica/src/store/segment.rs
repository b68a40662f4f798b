//! Format of a segment: a preface, then batches, each written at once and synced before the next one.
//!
//! Only the last batch of the last segment can be torn. A torn batch has lost whole sectors, which read as zeros
//! because files are never reused. A batch header states how many of its sectors are zeros by content; if there are
//! more, the batch is torn and was never acknowledged. Anything else that is wrong is damage, which is reported and
//! never skipped. Checksums are salted per segment, so user data cannot imitate a batch.

use super::record::Record;
use convoke_log::codec::{CodecError, Reader, Writer};

/// Unit that a disk writes completely or not at all.
const SECTOR: usize = 512;
/// Alignment of batches, so that each header lies within one sector.
const ALIGN: usize = 32;
pub(crate) const PREFACE_BYTES: usize = 32;
const HEAD_BYTES: usize = 32;
const MAGIC: [u8; 8] = *b"cvklog\x01\n";
const BATCH_MAGIC: [u8; 4] = *b"cvkb";

/// Position and description of damage in a log file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} at byte {offset}")]
pub(crate) struct Damage {
    pub(crate) offset: usize,
    pub(crate) what: String,
}

fn damage(offset: usize, what: impl Into<String>) -> Damage {
    Damage { offset, what: what.into() }
}

/// The first bytes of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Preface {
    pub(crate) sequence: u64,
    pub(crate) salt: u32,
}

impl Preface {
    pub(crate) fn encode(self) -> [u8; PREFACE_BYTES] {
        let mut bytes = [0; PREFACE_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.salt.to_le_bytes());
        let checksum = crc32c::crc32c(&bytes[..20]);
        bytes[20..24].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Returns `None` if the file was never synced.
    fn decode(bytes: &[u8]) -> Result<Option<Self>, Damage> {
        let short = bytes.len() < PREFACE_BYTES;
        let bytes = at::<PREFACE_BYTES>(bytes, 0);
        if short || bytes == [0; PREFACE_BYTES] {
            return Ok(None);
        }
        if bytes[..8] != MAGIC || number(&bytes, 20) != crc32c::crc32c(&bytes[..20]) || bytes[24..] != [0; 8] {
            return Err(damage(0, "invalid segment preface"));
        }
        Ok(Some(Preface { sequence: long(&bytes, 8), salt: number(&bytes, 16) }))
    }
}

/// Returns the bytes at an offset, with zeros after the end, as on a disk.
fn at<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    let mut found = [0; N];
    let rest = bytes.get(offset..).unwrap_or_default();
    let len = rest.len().min(N);
    found[..len].copy_from_slice(&rest[..len]);
    found
}

fn number(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(at(bytes, offset))
}

fn long(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(at(bytes, offset))
}

/// Records to be written at once.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    records: Writer,
}

impl Batch {
    pub(crate) fn push(&mut self, record: &Record<'_>) {
        record.encode(&mut self.records);
    }

    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.records.clear();
    }

    /// Appends the batch to `out`, whose end is at `offset` of the file.
    pub(crate) fn write(&self, out: &mut Vec<u8>, offset: u64, sequence: u64, salt: u32) {
        let content = self.records.bytes();
        let start = usize::try_from(offset % SECTOR as u64).expect("less than a sector");
        let length = u32::try_from(content.len()).expect("batches are far below 4 GiB");
        let zeros = zero_sectors(content, start + HEAD_BYTES);
        let head = Head { length, sequence, checksum: crc32c::crc32c_append(salt, content), zeros };
        out.extend_from_slice(&head.encode(salt));
        out.extend_from_slice(content);
        out.resize(out.len() + padding(content.len()), 0);
    }
}

/// Returns the number of bytes between a batch and the next one.
fn padding(content: usize) -> usize {
    content.next_multiple_of(ALIGN) - content
}

/// Returns how many pieces of `content`, cut at sector boundaries, are all zeros. `start` is its offset within a
/// sector.
fn zero_sectors(content: &[u8], start: usize) -> u32 {
    let first = (SECTOR - start % SECTOR).min(content.len());
    let (head, rest) = content.split_at(first);
    let pieces = std::iter::once(head).chain(rest.chunks(SECTOR));
    let zeros = pieces.filter(|piece| !piece.is_empty() && piece.iter().all(|byte| *byte == 0)).count();
    u32::try_from(zeros).unwrap_or(u32::MAX)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    length: u32,
    sequence: u64,
    checksum: u32,
    zeros: u32,
}

impl Head {
    fn encode(self, salt: u32) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..4].copy_from_slice(&BATCH_MAGIC);
        bytes[4..8].copy_from_slice(&self.length.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.checksum.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.zeros.to_le_bytes());
        let checksum = crc32c::crc32c_append(salt, &bytes[..24]);
        bytes[24..28].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; HEAD_BYTES], salt: u32) -> Option<Self> {
        let right = bytes[..4] == BATCH_MAGIC
            && number(bytes, 24) == crc32c::crc32c_append(salt, &bytes[..24])
            && bytes[28..] == [0; 4];
        right.then(|| Head {
            length: number(bytes, 4),
            sequence: long(bytes, 8),
            checksum: number(bytes, 16),
            zeros: number(bytes, 20),
        })
    }
}

/// Result of scanning a segment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Scanned {
    pub(crate) preface: Preface,
    /// Offset of the next batch.
    pub(crate) end: usize,
    /// Whether data after the end was never synced and must be truncated.
    pub(crate) torn: bool,
    /// Number of the next batch.
    pub(crate) next: u64,
}

/// Scans a segment whose first batch must have the number `next` (any if `None`). Only the last segment may be torn.
/// Returns `Ok(None)` if nothing in it was ever synced.
pub(crate) fn scan(
    bytes: &[u8],
    next: Option<u64>,
    last: bool,
    mut take: impl FnMut(Record<'static>) -> Result<(), String>,
) -> Result<Option<Scanned>, Damage> {
    let Some(preface) = Preface::decode(bytes)? else {
        // Preface and first batch are written at once, so a batch without a preface means damage.
        return if last && (bytes.len() < PREFACE_BYTES || bytes.iter().all(|byte| *byte == 0)) {
            Ok(None)
        } else {
            Err(damage(0, "the segment preface is missing"))
        };
    };
    let (mut end, mut next) = (PREFACE_BYTES, next);
    loop {
        let torn = match batch(bytes, end, preface.salt)? {
            Found::Batch { sequence, content } => {
                if next.is_some_and(|next| next != sequence) {
                    return Err(damage(end, format!("batch {sequence} found instead of batch {next:?}")));
                }
                records(content, end + HEAD_BYTES, &mut take)?;
                end += HEAD_BYTES + content.len() + padding(content.len());
                next = Some(sequence + 1);
                continue;
            }
            Found::Torn => true,
            Found::Nothing => bytes.len() > end,
        };
        if torn && !last {
            return Err(damage(end, "the segment is truncated"));
        }
        if let Some(offset) = later(bytes, end, preface.salt, next.unwrap_or(0)) {
            return Err(damage(end, format!("a batch is missing before the batch at byte {offset}")));
        }
        let Some(next) = next.filter(|_| end > PREFACE_BYTES) else {
            // The first batch repeats the earlier state and is written with the preface.
            return if last { Ok(None) } else { Err(damage(end, "the segment is empty")) };
        };
        return Ok(Some(Scanned { preface, end, torn, next }));
    }
}

/// Returns the end of the last complete batch. Fails if a complete batch follows later, or if there is none at all.
pub(crate) fn complete(bytes: &[u8]) -> Result<usize, Damage> {
    let Some(preface) = Preface::decode(bytes)? else { return Err(damage(0, "the segment preface is missing")) };
    let (mut end, mut next) = (PREFACE_BYTES, 0);
    while let Ok(Found::Batch { sequence, content }) = batch(bytes, end, preface.salt) {
        end += HEAD_BYTES + content.len() + padding(content.len());
        next = sequence + 1;
    }
    if next == 0 {
        return Err(damage(end, "the segment has no complete batch"));
    }
    match later(bytes, end, preface.salt, next) {
        Some(offset) => Err(damage(end, format!("a batch is missing before the batch at byte {offset}"))),
        None => Ok(end.min(bytes.len())),
    }
}

enum Found<'a> {
    Batch {
        sequence: u64,
        content: &'a [u8],
    },
    /// A batch that was never synced.
    Torn,
    Nothing,
}

fn batch(bytes: &[u8], offset: usize, salt: u32) -> Result<Found<'_>, Damage> {
    let head = at::<HEAD_BYTES>(bytes, offset);
    if head == [0; HEAD_BYTES] {
        return Ok(Found::Nothing);
    }
    if bytes.len() < offset + HEAD_BYTES {
        return Ok(Found::Torn);
    }
    let Some(head) = Head::decode(&head, salt) else { return Err(damage(offset, "a batch header is damaged")) };
    let start = offset + HEAD_BYTES;
    let length = head.length as usize;
    if let Some(content) = bytes.get(start..start + length)
        && crc32c::crc32c_append(salt, content) == head.checksum
    {
        return Ok(Found::Batch { sequence: head.sequence, content });
    }
    // A file that is too short is torn, as is one with lost sectors.
    let torn = match bytes.get(start..start + length) {
        Some(content) => zero_sectors(content, start) > head.zeros,
        None => true,
    };
    if torn {
        return Ok(Found::Torn);
    }
    Err(damage(start, format!("batch {} is damaged", head.sequence)))
}

fn records(
    content: &[u8],
    offset: usize,
    take: &mut impl FnMut(Record<'static>) -> Result<(), String>,
) -> Result<(), Damage> {
    let mut r = Reader::new(content);
    while !r.is_empty() {
        let record = Record::decode(&mut r).map_err(|error: CodecError| damage(offset, error.to_string()))?;
        take(record).map_err(|what| damage(offset, what))?;
    }
    Ok(())
}

/// Returns the offset of a complete batch after `from` with a number of at least `next`.
fn later(bytes: &[u8], from: usize, salt: u32, next: u64) -> Option<usize> {
    let first = from.next_multiple_of(ALIGN);
    (first..bytes.len()).step_by(ALIGN).find(|offset| {
        let head = Head::decode(&at(bytes, *offset), salt);
        head.is_some_and(|head| head.sequence >= next)
            && *offset > from
            && matches!(batch(bytes, *offset, salt), Ok(Found::Batch { .. }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raft::{Entry, LeaderId, LogId, Payload, Vote};
    use crate::store::record::Opening;
    use std::borrow::Cow;

    /// Checksums hide most of the decoder from mutated bytes, so records are mutated before they are framed as well.
    #[test]
    fn fuzz_segments() {
        let leader_id = LeaderId { term: 2, node_id: 1 };
        let at = |index| LogId { leader_id, index };
        let (vote, salt) = (Vote { leader_id, committed: true }, 7);
        let records = [
            Record::Opening(Opening { vote: Some(vote), purged: Some(at(1)), committed: None, last: Some(at(3)) }),
            Record::Entry(Cow::Owned(Entry { log_id: at(4), payload: Payload::Blank })),
            Record::Vote(vote),
            Record::Truncate(9),
            Record::Purge(at(4)),
            Record::Committed(at(4)),
        ];
        let framed = |batches: &[Batch]| {
            let mut bytes = Preface { sequence: 3, salt }.encode().to_vec();
            for (sequence, batch) in batches.iter().enumerate() {
                let offset = bytes.len() as u64;
                batch.write(&mut bytes, offset, sequence as u64, salt);
            }
            bytes
        };
        let batch = |records: &[Record<'_>]| {
            let mut batch = Batch::default();
            records.iter().for_each(|record| batch.push(record));
            batch
        };
        let whole = framed(&[batch(&records[..2]), batch(&records[2..]), batch(&records)]);
        let mut found = 0;
        assert!(matches!(
            scan(&whole, Some(0), true, |_| {
                found += 1;
                Ok(())
            }),
            Ok(Some(_))
        ));
        assert_eq!(found, 12);
        let scan_all = |bytes: &[u8]| {
            for last in [false, true] {
                let _ = scan(bytes, None, last, |_| Ok(()));
            }
        };
        convoke_fuzz::bytes(&[whole], scan_all);
        let contents: Vec<Vec<u8>> =
            records.iter().map(|record| batch(std::slice::from_ref(record)).records.bytes().to_vec()).collect();
        convoke_fuzz::bytes(&contents, |content| {
            let mut mutated = Batch::default();
            mutated.records.raw(content);
            scan_all(&framed(&[mutated]));
        });
    }
}
