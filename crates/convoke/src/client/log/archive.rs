//! Backups to restore: files of `convoke log backup`, and archives that `GET /v1/snapshot` and `consul snapshot save` write.

use convoke_cli::{CommandError, Result};
use flate2::read::GzDecoder;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::path::Path;

const GZIP: [u8; 2] = [0x1f, 0x8b];
const META: &str = "meta.json";
const STATE: &str = "state.bin";
const SUMS: &str = "SHA256SUMS";
/// Descriptions and checksums are short.
const TEXT_BYTES_MAX: u64 = 64 * 1024;

/// Opens a backup. The checksums of an archive are verified before anything is restored.
pub(super) fn open(path: &Path) -> Result<Box<dyn Read + Send>> {
    let cannot_read = |why: String| CommandError::usage(format!("cannot read {}: {why}", path.display()));
    let opened = File::open(path).and_then(|mut file| {
        let mut magic = [0; GZIP.len()];
        let read = file.read(&mut magic)?;
        file.rewind()?;
        Ok((file, read == GZIP.len() && magic == GZIP))
    });
    let (file, is_archive) = opened.map_err(|error| cannot_read(error.to_string()))?;
    if !is_archive {
        return Ok(Box::new(file));
    }
    state_of(file).map_err(cannot_read)
}

/// Returns the state in an archive.
fn state_of(mut file: File) -> std::result::Result<Box<dyn Read + Send>, String> {
    let damaged = |error: io::Error| format!("the archive is incomplete or damaged: {error}");
    let (position, size) = verify(&file).map_err(|why| match why {
        Refused::Damaged(error) => damaged(error),
        Refused::Other(why) => why,
    })?;
    file.rewind().map_err(damaged)?;
    let mut unpacked = GzDecoder::new(BufReader::new(file));
    io::copy(&mut unpacked.by_ref().take(position), &mut io::sink()).map_err(damaged)?;
    Ok(Box::new(unpacked.take(size)))
}

enum Refused {
    Damaged(io::Error),
    Other(String),
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Refused {
        Refused::Damaged(error)
    }
}

/// Verifies the checksums, and returns the position and size of the state in the unpacked archive.
fn verify(file: &File) -> std::result::Result<(u64, u64), Refused> {
    let mut archive = tar::Archive::new(GzDecoder::new(BufReader::new(file)));
    let (mut sums, mut listed, mut state, mut meta) = (BTreeMap::new(), String::new(), None, String::new());
    for entry in archive.entries()? {
        let mut entry = entry?;
        let name = entry.path()?.to_string_lossy().into_owned();
        match name.as_str() {
            STATE => {
                state = Some((entry.raw_file_position(), entry.size()));
                sums.insert(name, sum(&mut entry)?);
            }
            META => {
                entry.by_ref().take(TEXT_BYTES_MAX).read_to_string(&mut meta)?;
                sums.insert(name, hex(&Sha256::digest(&meta)));
            }
            SUMS => drop(entry.take(TEXT_BYTES_MAX).read_to_string(&mut listed)?),
            _ => {}
        }
    }
    // The end of the compressed data has a checksum of its own.
    io::copy(&mut archive.into_inner(), &mut io::sink())?;
    let expected: BTreeMap<String, String> = listed
        .lines()
        .filter_map(|line| line.split_once("  "))
        .map(|(sum, name)| (name.to_owned(), sum.to_owned()))
        .collect();
    let Some(state) = state.filter(|_| sums.len() == 2) else {
        return Err(Refused::Other(format!("the archive does not contain {META} and {STATE}")));
    };
    if sums != expected {
        return Err(Refused::Other(format!("the checksums in {SUMS} are not those of the files in the archive")));
    }
    if !serde_json::from_str::<serde_json::Value>(&meta).is_ok_and(|meta| meta["Convoke"].is_string()) {
        let message =
            "it is a snapshot of Consul itself; `convoke import consul` copies keys and services of a running Consul";
        return Err(Refused::Other(message.to_owned()));
    }
    Ok(state)
}

fn sum(content: &mut impl Read) -> io::Result<String> {
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; 64 * 1024]);
    loop {
        match content.read(&mut buffer)? {
            0 => return Ok(hex(&hash.finalize())),
            count => hash.update(&buffer[..count]),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::path::PathBuf;

    fn written(directory: &tempfile::TempDir, files: &[(&str, &str)]) -> PathBuf {
        let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
        for (name, content) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            archive.append_data(&mut header, name, content.as_bytes()).unwrap();
        }
        let path = directory.path().join("snapshot");
        std::fs::write(&path, archive.into_inner().unwrap().finish().unwrap()).unwrap();
        path
    }

    fn sums(meta: &str, state: &str) -> String {
        let hash = |text: &str| hex(&Sha256::digest(text));
        format!("{}  {META}\n{}  {STATE}\n", hash(meta), hash(state))
    }

    #[test]
    fn the_state_of_an_archive_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let (meta, state) = (r#"{"Convoke":"1"}"#, "the state".repeat(1_000));
        let path = written(&directory, &[(META, meta), (STATE, &state), (SUMS, &sums(meta, &state))]);
        let mut text = String::new();
        open(&path).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, state);
        let whole = std::fs::read(&path).unwrap();
        for length in [whole.len() / 2, whole.len() - 1] {
            std::fs::write(&path, &whole[..length]).unwrap();
            assert!(open(&path).err().unwrap().message.contains("incomplete or damaged"), "{length}");
        }
        std::fs::write(&path, "a backup").unwrap();
        let mut text = String::new();
        open(&path).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "a backup");
    }

    #[test]
    fn other_archives_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let meta = r#"{"Convoke":"1"}"#;
        for (files, message) in [
            (vec![(META, meta), (STATE, "x"), (SUMS, &*sums(meta, "y"))], "the checksums"),
            (vec![(META, meta), (STATE, "x")], "the checksums"),
            (vec![(META, meta)], "does not contain"),
            (vec![(META, "{}"), (STATE, "x"), (SUMS, &*sums("{}", "x"))], "a snapshot of Consul itself"),
        ] {
            let refused = open(&written(&directory, &files)).err().unwrap();
            assert!(refused.message.contains(message), "{}", refused.message);
        }
    }
}
