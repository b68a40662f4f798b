//! Consul's form of a snapshot: a compressed archive of `meta.json`, `state.bin` and the checksums of both.

use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::io::{self, Read, Write};
use tar::{Builder, Header};

/// The format of the description that Consul's programs know.
const VERSION: u64 = 1;
/// Files that contain all keys are readable by their owner only.
const MODE: u32 = 0o600;

/// What `meta.json` contains. Consul's programs ignore the last field, with which `convoke log restore` finds its own.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Description {
    version: u64,
    #[serde(rename = "ID")]
    id: String,
    index: u64,
    term: u64,
    peers: Option<String>,
    configuration: Configuration,
    configuration_index: u64,
    size: u64,
    /// The version of the program.
    convoke: &'static str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Configuration {
    servers: Vec<ArchivedServer>,
}

/// A replica of the log.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ArchivedServer {
    /// 0 for a voter, 1 for a learner.
    pub(super) suffrage: u8,
    #[serde(rename = "ID")]
    pub(super) id: String,
    pub(super) address: String,
}

/// Position of the state in the log, and the replicas.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) index: u64,
    pub(super) term: u64,
    pub(super) servers: Vec<ArchivedServer>,
}

/// Size and checksum of the state.
#[derive(Debug)]
pub(super) struct Measured {
    size: u64,
    sum: String,
}

/// Counts and hashes what is written.
#[derive(Debug, Default)]
pub(super) struct Meter {
    size: u64,
    hash: Sha256,
}

impl Meter {
    pub(super) fn take(&mut self, part: &[u8]) {
        self.size += part.len() as u64;
        self.hash.update(part);
    }

    pub(super) fn finish(self) -> Measured {
        Measured { size: self.size, sum: hex(&self.hash.finalize()) }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Writes the archive. `now_ms` is the time of its files (UNIX ms). `state` must be what was measured.
pub(super) fn write(
    out: impl Write,
    place: Place,
    measured: &Measured,
    now_ms: u64,
    state: impl Read,
) -> io::Result<()> {
    let Place { index, term, servers } = place;
    let description = Description {
        version: VERSION,
        id: format!("{term}-{index}-{now_ms}"),
        index,
        term,
        peers: None,
        configuration: Configuration { servers },
        configuration_index: 0,
        size: measured.size,
        convoke: env!("CARGO_PKG_VERSION"),
    };
    let meta = serde_json::to_vec(&description)?;
    let sums = format!("{}  meta.json\n{}  state.bin\n", hex(&Sha256::digest(&meta)), measured.sum);
    let mut archive = Builder::new(GzEncoder::new(out, Compression::fast()));
    let mut add = |name: &str, size: u64, content: &mut dyn Read| {
        let mut header = Header::new_gnu();
        header.set_mode(MODE);
        header.set_mtime(now_ms / 1_000);
        header.set_size(size);
        archive.append_data(&mut header, name, content)
    };
    add("meta.json", meta.len() as u64, &mut meta.as_slice())?;
    let mut state = Exactly { left: measured.size, state };
    add("state.bin", measured.size, &mut state)?;
    if state.left > 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    add("SHA256SUMS", sums.len() as u64, &mut sums.as_bytes())?;
    archive.into_inner()?.finish()?.flush()
}

/// A state of known size. The archive would be damaged if there were more or less of it.
struct Exactly<R> {
    left: u64,
    state: R,
}

impl<R: Read> Read for Exactly<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.state.read(buffer)?;
        self.left = self.left.checked_sub(count as u64).ok_or(io::ErrorKind::InvalidData)?;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;
    use flate2::read::GzDecoder;

    fn archive(content: &[u8], state: &[u8]) -> io::Result<Vec<u8>> {
        let mut meter = Meter::default();
        content.chunks(3).for_each(|part| meter.take(part));
        let server = ArchivedServer { suffrage: 0, id: "x".into(), address: "n1:7701".into() };
        let place = Place { index: 7, term: 2, servers: vec![server] };
        let mut out = Vec::new();
        write(&mut out, place, &meter.finish(), 1_795_119_130_592, state).map(|()| out)
    }

    #[test]
    fn the_archive_has_three_files_and_their_checksums() {
        let written = archive(b"the state", b"the state").unwrap();
        let mut read = tar::Archive::new(GzDecoder::new(written.as_slice()));
        let mut files = Vec::new();
        for entry in read.entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            assert_eq!(entry.header().mode().unwrap(), 0o600);
            files.push((entry.path().unwrap().display().to_string(), text));
        }
        let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["meta.json", "state.bin", "SHA256SUMS"]);
        let meta = concat!(
            r#"{"Version":1,"ID":"2-7-1795119130592","Index":7,"Term":2,"Peers":null,"Configuration":{"Servers":["#,
            r#"{"Suffrage":0,"ID":"x","Address":"n1:7701"}]},"ConfigurationIndex":0,"Size":9,"Convoke":"#
        );
        assert!(files[0].1.starts_with(meta), "{}", files[0].1);
        assert_eq!(files[1].1, "the state");
        let sum = |text: &str| hex(&Sha256::digest(text));
        assert_eq!(files[2].1, format!("{}  meta.json\n{}  state.bin\n", sum(&files[0].1), sum("the state")));
    }

    #[test]
    fn a_state_of_another_size_is_refused() {
        assert_eq!(archive(b"the state", b"the").unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(archive(b"the", b"the state").unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
