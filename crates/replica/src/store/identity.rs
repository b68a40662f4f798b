//! The identity file: which replica of which log a directory belongs to. Written when the node becomes a replica; the
//! creating node also records agreements.

use super::StoreError;
use super::disk::{Disk, read, replace};
use crate::raft::Membership;
use convoke_log::Machine;
use convoke_log::codec::{CodecError, Reader, Writer};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

const FILE: &str = "identity";
const MAGIC: [u8; 8] = *b"cvkid\x00\x01\n";
const TEXT_MAX: u64 = 4 * 1024;
const REPLICAS_MAX: u64 = 256;

/// A replica of a log.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Identity {
    pub(crate) log: u128,
    pub(crate) replica: u64,
    /// Id of the node. The directory belongs to this node, under whose name the replica is recorded.
    pub(crate) node: String,
    /// The state before the first entry, with the limits of the log (LH4).
    pub(crate) genesis: Vec<u8>,
    /// Index up to which recorded configurations belong to the log whose state this one inherited.
    pub(crate) inherited: u64,
    /// The founders, at the node that creates the log.
    pub(crate) founding: Option<Membership>,
    /// The founders that have agreed. They are not asked again: a founder that lost its disk would agree under an id
    /// with which it has voted and acknowledged entries.
    pub(crate) agreed: BTreeSet<u64>,
}

impl Identity {
    pub(crate) fn load(disk: &dyn Disk) -> Result<Option<Self>, StoreError> {
        let path = disk.path(FILE);
        let bytes = match read(disk, FILE) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(StoreError::Disk { action: "read", path, source }),
        };
        Self::decode(&bytes).map(Some).map_err(|error| damaged(path, &error))
    }

    /// Reads the identity of a directory without opening it.
    pub(crate) fn read(directory: &Path) -> Result<Option<Self>, StoreError> {
        let path = directory.join(FILE);
        match std::fs::read(&path) {
            Ok(bytes) => Self::decode(&bytes).map(Some).map_err(|error| damaged(path, &error)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(StoreError::Disk { action: "read", path, source }),
        }
    }

    pub(crate) fn save(&self, disk: &dyn Disk) -> io::Result<()> {
        replace(disk, FILE, &self.encode())
    }

    /// Returns the state before the first entry.
    pub(crate) fn machine(&self) -> Result<Machine, String> {
        Machine::from_snapshot(&self.genesis).map_err(|error| error.to_string())
    }

    fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.raw(&MAGIC);
        w.fixed128(self.log);
        w.varint(self.replica);
        w.sized(self.node.as_bytes());
        w.sized(&self.genesis);
        w.varint(self.inherited);
        w.option(self.founding.as_ref(), crate::codec::put_membership);
        w.count(self.agreed.len());
        for id in &self.agreed {
            w.varint(*id);
        }
        let mut bytes = w.into_bytes();
        let checksum = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        let (content, checksum) = bytes.split_last_chunk::<4>().ok_or(CodecError::Truncated("identity"))?;
        if crc32c::crc32c(content) != u32::from_le_bytes(*checksum) {
            return Err(CodecError::Invalid("checksum"));
        }
        let mut r = Reader::new(content);
        if r.raw("magic", MAGIC.len())? != MAGIC {
            return Err(CodecError::Invalid("file header"));
        }
        let identity = Identity {
            log: r.fixed128("log")?,
            replica: r.varint("replica")?,
            node: r.text("node", TEXT_MAX)?.to_owned(),
            genesis: r.sized("genesis", TEXT_MAX)?.to_vec(),
            inherited: r.counter("inherited")?,
            founding: r.option("founding", crate::codec::membership)?,
            agreed: agreed(&mut r)?,
        };
        r.end()?;
        Ok(identity)
    }
}

/// Absent in the first version of this file.
fn agreed(r: &mut Reader<'_>) -> Result<BTreeSet<u64>, CodecError> {
    if r.is_empty() {
        return Ok(BTreeSet::new());
    }
    (0..r.count("agreed", 1, REPLICAS_MAX)?).map(|_| r.varint("agreed")).collect()
}

fn damaged(path: PathBuf, error: &CodecError) -> StoreError {
    StoreError::Damaged { path, what: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use convoke_log::LogLimits;

    #[test]
    fn fuzz_identities() {
        let machine = Machine::new(LogLimits::default()).unwrap();
        let identity = Identity {
            log: u128::MAX,
            replica: 3,
            node: "n3".to_owned(),
            genesis: machine.snapshot().frames().collect::<Vec<_>>().concat(),
            inherited: 9,
            founding: None,
            agreed: [1, 2].into(),
        };
        let bytes = identity.encode();
        assert_eq!(Identity::decode(&bytes), Ok(identity));
        let content = bytes[..bytes.len() - 4].to_vec();
        convoke_fuzz::bytes(&[bytes], |bytes| drop(Identity::decode(bytes)));
        // With a correct checksum.
        convoke_fuzz::bytes(&[content], |content| {
            let bytes = [content, &crc32c::crc32c(content).to_le_bytes()].concat();
            if let Ok(identity) = Identity::decode(&bytes) {
                let _ = identity.machine();
                assert_eq!(Identity::decode(&identity.encode()), Ok(identity));
            }
        });
    }
}
