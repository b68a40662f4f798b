//! Snapshots on disk: the engine's metadata, then the frames of the machine. Written to a temporary file, synced and
//! renamed.

use super::StoreError;
use super::disk::{Disk, naming};
use crate::codec::{meta, put_meta};
use crate::raft::{self, SnapshotMeta};
use crate::state::Image;
use convoke_log::codec::{Reader, Writer};
use convoke_log::snapshot::{FRAME_HEAD_BYTES, Restore, frame_bytes};
use std::io::{self, Read};
use std::sync::Arc;

const MAGIC: [u8; 8] = *b"cvksnap\x01";
const PREFIX: &str = "snapshot-";
const ASIDE: &str = "snapshot.new";
/// Maximum size of the engine's metadata.
const META_BYTES_MAX: usize = 16 * 1024 * 1024;

fn name(meta: &SnapshotMeta) -> String {
    // The engine counts from 0; an empty state has no entry.
    let index = meta.last_log_id.map_or(0, |last| last.index + 1);
    format!("{PREFIX}{index:016x}")
}

/// Writes a snapshot and removes older ones.
pub(crate) fn save(disk: &dyn Disk, image: &Image) -> io::Result<()> {
    write(disk, image).map_err(|error| naming(&disk.path(&name(&image.meta)), &error))
}

fn write(disk: &dyn Disk, image: &Image) -> io::Result<()> {
    let mut file = disk.create(ASIDE)?;
    let mut w = Writer::default();
    put_meta(&mut w, &image.meta);
    let content = w.into_bytes();
    let mut head = MAGIC.to_vec();
    head.extend_from_slice(&u32::try_from(content.len()).map_err(io::Error::other)?.to_le_bytes());
    head.extend_from_slice(&crc32c::crc32c(&content).to_le_bytes());
    head.extend_from_slice(&content);
    file.append(&head)?;
    let snapshot = image.machine.snapshot();
    for frame in snapshot.frames() {
        file.append(&frame)?;
    }
    file.sync()?;
    drop(file);
    let name = name(&image.meta);
    disk.rename(ASIDE, &name)?;
    disk.sync()?;
    for older in disk.list()?.iter().filter(|found| found.starts_with(PREFIX) && **found < name) {
        disk.remove(older)?;
    }
    Ok(())
}

/// Loads the newest snapshot and checks it completely.
pub(crate) fn load(disk: &dyn Disk) -> Result<Option<Image>, StoreError> {
    let failed = |action, name: &str| {
        let path = disk.path(name);
        move |source| StoreError::Disk { action, path, source }
    };
    let names = disk.list().map_err(failed("list", ""))?;
    if names.iter().any(|name| name == ASIDE) {
        disk.remove(ASIDE).map_err(failed("remove", ASIDE))?;
    }
    let Some(newest) = names.iter().filter(|name| name.starts_with(PREFIX)).max() else { return Ok(None) };
    let mut file = disk.open(newest).map_err(failed("read", newest))?;
    let image = match read(&mut *file) {
        Ok(image) => image,
        Err(error) if error.kind() == io::ErrorKind::InvalidData || error.kind() == io::ErrorKind::UnexpectedEof => {
            return Err(StoreError::Damaged { path: disk.path(newest), what: error.to_string() });
        }
        Err(source) => return Err(failed("read", newest)(source)),
    };
    if name(&image.meta) != *newest {
        let what = "the file name does not match the entry of the snapshot".to_owned();
        return Err(StoreError::Damaged { path: disk.path(newest), what });
    }
    Ok(Some(image))
}

fn read(file: &mut dyn Read) -> io::Result<Image> {
    let damaged = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let mut head = [0; 16];
    file.read_exact(&mut head)?;
    let (magic, rest) = head.split_at(8);
    let length = u32::from_le_bytes([rest[0], rest[1], rest[2], rest[3]]) as usize;
    let checksum = u32::from_le_bytes([rest[4], rest[5], rest[6], rest[7]]);
    if magic != MAGIC || length > META_BYTES_MAX {
        return Err(damaged("not a snapshot file".to_owned()));
    }
    let mut content = vec![0; length];
    file.read_exact(&mut content)?;
    if crc32c::crc32c(&content) != checksum {
        return Err(damaged("the header has a wrong checksum".to_owned()));
    }
    let mut r = Reader::new(&content);
    let meta = meta(&mut r).and_then(|meta| r.end().map(|()| meta)).map_err(|error| damaged(error.to_string()))?;
    let machine = machine(file)?;
    if raft::log_id(machine.applied()) != meta.last_log_id {
        return Err(damaged("header and content refer to different entries".to_owned()));
    }
    Ok(Image { meta, machine: Arc::new(machine) })
}

/// Reads a machine up to the end of a snapshot or a backup.
pub(crate) fn machine(file: &mut dyn Read) -> io::Result<convoke_log::Machine> {
    let damaged = |error: convoke_log::snapshot::SnapshotError| io::Error::new(io::ErrorKind::InvalidData, error);
    let mut restore = Restore::new();
    let mut frame = Vec::new();
    loop {
        let mut head = [0; FRAME_HEAD_BYTES];
        match read_or_end(file, &mut head)? {
            false => break,
            true => {
                let length = frame_bytes(&head).map_err(damaged)?;
                frame.clear();
                frame.extend_from_slice(&head);
                let read = file.take(length as u64).read_to_end(&mut frame)?;
                if read < length {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                restore.frame(&frame).map_err(damaged)?;
            }
        }
    }
    restore.finish().map_err(damaged)
}

/// Fills the buffer. Returns false if the file ends before its first byte.
fn read_or_end(file: &mut dyn Read, buffer: &mut [u8]) -> io::Result<bool> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..]) {
            Ok(0) if filled == 0 => return Ok(false),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}
