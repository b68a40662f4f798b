//! Files of certificates and keys. Private ones are readable by their owner only (TS11).

use crate::error::TlsError;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Largest file that is read: certificates and keys have a few kilobytes.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Paths of the certificates and the key of a node or client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// Certificate authorities that are trusted. During a rotation it holds two.
    pub ca: PathBuf,
    /// Own certificate, followed by its intermediates.
    pub cert: PathBuf,
    /// Private key of the certificate.
    pub key: PathBuf,
}

/// The contents of the files.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Contents {
    pub(crate) ca: Vec<u8>,
    pub(crate) cert: Vec<u8>,
    pub(crate) key: Vec<u8>,
}

impl Files {
    pub(crate) fn read(&self) -> Result<Contents, TlsError> {
        Ok(Contents {
            ca: read("the certificate authority", &self.ca)?,
            cert: read("the certificate", &self.cert)?,
            key: read("the key", &self.key)?,
        })
    }
}

pub(crate) fn read(what: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    let failed = |source| TlsError::Read { what, path: path.to_owned(), source };
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)).map_err(failed)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(failed(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it has more than {FILE_BYTES_MAX} bytes"),
        )));
    }
    Ok(bytes)
}

/// Creates a directory that only its owner can enter. An existing directory keeps its mode.
pub fn create_private_dir(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Writes a file that only its owner can read. The replacement is atomic, and the bytes are never readable by others.
pub fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write(path, bytes, 0o600)
}

/// Writes a file that everybody can read, atomically.
pub fn write_public(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write(path, bytes, 0o644)
}

fn write(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let temporary = path.with_file_name(name);
    // A leftover of an interrupted write may have another mode.
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, mode);
    #[cfg(not(unix))]
    let _ = mode;
    let mut file = options.open(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&temporary, path)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn ts11_private_files_are_never_readable_by_others() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("a/b");
        create_private_dir(&inner).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&inner), 0o700);
        let key = inner.join("key.pem");
        write_private(&key, b"one").unwrap();
        // A leftover that everybody can read does not pass its mode on.
        fs::write(inner.join("key.pem.new"), b"left").unwrap();
        write_private(&key, b"two").unwrap();
        assert_eq!((mode(&key), fs::read(&key).unwrap()), (0o600, b"two".to_vec()));
        assert!(!inner.join("key.pem.new").exists());
    }

    #[test]
    fn a_huge_file_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("huge");
        File::create(&path).unwrap().set_len(FILE_BYTES_MAX + 1).unwrap();
        assert!(read("the key", &path).unwrap_err().to_string().contains("more than"));
    }
}
