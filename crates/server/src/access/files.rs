//! The files of access control: public keys, policy and key sets of other issuers.

use super::config::AuthConfig;
use convoke_access::{Authority, GrantError, GrantList, KeyError, KeySet, Policy, PolicyError};
use std::io;
use std::path::{Path, PathBuf};

/// Largest size of one file.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// The files of access control cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    #[error("cannot read {}: {source} (auth.keys is a directory with the public keys, auth.policy a file)", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{}: {source}", path.display())]
    Key { path: PathBuf, source: KeyError },
    #[error("{} contains no public key: copy signing.pub there, its name must end with .pub", path.display())]
    NoKeys { path: PathBuf },
    #[error("{}: {source}", path.display())]
    Policy { path: PathBuf, source: PolicyError },
    #[error("auth.anonymous: {0}")]
    Anonymous(#[from] GrantError),
}

/// Reads everything that authentication needs. A file that is wrong is an error, so that no key or rule is left out
/// without notice.
pub(super) fn load(config: &AuthConfig) -> Result<Authority, AuthError> {
    let mut authority = Authority::new(&config.cluster, keys(&config.keys)?);
    if let Some(path) = &config.policy {
        let directory = path.parent().unwrap_or(Path::new("."));
        let parsed = Policy::parse(&read(path)?, |file| read(&directory.join(file)).map_err(|error| error.to_string()));
        authority.policy = parsed.map_err(|source| AuthError::Policy { path: path.clone(), source })?;
    }
    authority.anonymous = GrantList::parse(&config.anonymous)?;
    authority.max_token_ttl = config.max_token_ttl.as_secs();
    Ok(authority)
}

fn keys(directory: &Path) -> Result<KeySet, AuthError> {
    let failed = |source| AuthError::Read { path: directory.to_owned(), source };
    let mut texts = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == "pub") {
            let text = read(&path)?;
            // Alone first, so that an error names the file.
            KeySet::from_pems([text.as_str()]).map_err(|source| AuthError::Key { path, source })?;
            texts.push(text);
        }
    }
    if texts.is_empty() {
        return Err(AuthError::NoKeys { path: directory.to_owned() });
    }
    let keys = KeySet::from_pems(texts.iter().map(String::as_str));
    keys.map_err(|source| AuthError::Key { path: directory.to_owned(), source })
}

fn read(path: &Path) -> Result<String, AuthError> {
    let failed = |source| AuthError::Read { path: path.to_owned(), source };
    if std::fs::metadata(path).map_err(failed)?.len() > FILE_BYTES_MAX {
        return Err(failed(io::Error::other(format!("the file is larger than {FILE_BYTES_MAX} bytes"))));
    }
    std::fs::read_to_string(path).map_err(failed)
}
