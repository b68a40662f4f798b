//! The directory of `convoke init`. It stays with the operator: `ca.key` and `signing.key` never go to a node.

use convoke_access::{Claims, SigningKey, operator_token};
use convoke_cli::{CommandError, Result};
use convoke_tls::{
    CertificateAuthority, CertificateInfo, CertificateRequest, Identity, Issued, Validity, create_private_dir, inspect,
};
use convoke_tls::{write_private, write_public};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Days for which a certificate authority is valid.
const AUTHORITY_DAYS: u32 = 3_650;

/// Validity from now on.
pub(super) fn days(days: u32) -> Validity {
    Validity { now: SystemTime::now(), lasts: Duration::from_secs(u64::from(days) * 24 * 3_600) }
}

#[derive(Debug)]
pub(super) struct Directory(pub(super) PathBuf);

impl Directory {
    pub(super) fn ca(&self) -> PathBuf {
        self.0.join("ca.pem")
    }

    pub(super) fn ca_key(&self) -> PathBuf {
        self.0.join("ca.key")
    }

    /// Signs tokens.
    pub(super) fn signing_key(&self) -> PathBuf {
        self.0.join("signing.key")
    }

    /// Verifies tokens. Every node has a copy.
    pub(super) fn signing_pub(&self) -> PathBuf {
        self.0.join("signing.pub")
    }

    pub(super) fn operator_token(&self) -> PathBuf {
        self.0.join("operator.token")
    }

    pub(super) fn node(&self, id: &str) -> PathBuf {
        self.0.join("nodes").join(id)
    }

    pub(super) fn client(&self, name: &str) -> PathBuf {
        self.0.join("clients").join(name)
    }

    /// Creates the directory with a new authority. Rejects a directory that has keys: they would be lost.
    pub(super) fn create(&self, cluster: &str) -> Result<CertificateAuthority> {
        if self.ca_key().exists() || self.ca().exists() {
            return Err(CommandError::rejected(format!(
                "{} contains a certificate authority already: use `convoke tls issue` or `convoke tls renew`, or another directory",
                self.0.display()
            )));
        }
        if self.signing_key().exists() {
            return Err(CommandError::rejected(format!(
                "{} exists: use another directory, or move the key",
                self.signing_key().display()
            )));
        }
        create_private_dir(&self.0).map_err(cannot("create", &self.0))?;
        let (authority, issued) =
            CertificateAuthority::create(cluster, days(AUTHORITY_DAYS)).map_err(|error| failed(&error))?;
        self.write_authority(&issued)?;
        Ok(authority)
    }

    pub(super) fn open(&self) -> Result<CertificateAuthority> {
        let (ca, key) = (read(&self.ca())?, read(&self.ca_key())?);
        CertificateAuthority::open(&ca, &key)
            .map_err(|error| CommandError::usage(format!("{}: {error}", self.ca_key().display())))
    }

    /// Adds a new authority, which issues from now on. Returns the certificates of both.
    pub(super) fn add_authority(&self, cluster: &str) -> Result<String> {
        self.open()?;
        let (_, new) = CertificateAuthority::create(cluster, days(AUTHORITY_DAYS)).map_err(|error| failed(&error))?;
        let both = format!("{}{}", read(&self.ca())?, new.certificate);
        self.write_authority(&Issued { certificate: both.clone(), key: new.key })?;
        Ok(both)
    }

    /// Removes the authorities that do not belong to `ca.key`. Returns the certificate of the other.
    pub(super) fn drop_old_authorities(&self) -> Result<String> {
        let (ca, key) = (read(&self.ca())?, read(&self.ca_key())?);
        const END: &str = "-----END CERTIFICATE-----\n";
        let own = ca.split_inclusive(END).find(|one| CertificateAuthority::open(one, &key).is_ok());
        let own = own.ok_or_else(|| {
            CommandError::usage(format!(
                "no certificate in {} belongs to {}",
                self.ca().display(),
                self.ca_key().display()
            ))
        })?;
        write_public(&self.ca(), own.as_bytes()).map_err(cannot("write", &self.ca()))?;
        Ok(own.to_owned())
    }

    fn write_authority(&self, issued: &Issued) -> Result {
        // The key first: certificates without their key are of no use, and the reverse is repaired by hand.
        write_private(&self.ca_key(), issued.key.as_bytes()).map_err(cannot("write", &self.ca_key()))?;
        write_public(&self.ca(), issued.certificate.as_bytes()).map_err(cannot("write", &self.ca()))
    }

    /// Writes a new key that signs tokens, and a token of the operator. Returns the claims of the token.
    pub(super) fn create_tokens(&self, cluster: &str, seed: [u8; 32], id: [u8; 16], now: u64) -> Result<Claims> {
        let key = SigningKey::from_seed(seed);
        let (token, claims) = operator_token(&key, cluster, now, id);
        let private = |path: PathBuf, text: &str| write_private(&path, text.as_bytes()).map_err(cannot("write", &path));
        private(self.signing_key(), &key.to_pem())?;
        private(self.operator_token(), &format!("{}\n", token.secret()))?;
        let path = self.signing_pub();
        write_public(&path, key.public_pem().as_bytes()).map_err(cannot("write", &path))?;
        Ok(claims)
    }

    /// Gives a node the public key that verifies tokens. A directory without one is of a cluster without tokens.
    pub(super) fn write_node_keys(&self, id: &str) -> Result {
        let from = self.signing_pub();
        if !from.exists() {
            return Ok(());
        }
        let keys = self.node(id).join("keys");
        create_private_dir(&keys).map_err(cannot("create", &keys))?;
        let path = keys.join("signing.pub");
        write_public(&path, read(&from)?.as_bytes()).map_err(cannot("write", &path))
    }

    /// Ids of the nodes that have a directory, sorted.
    pub(super) fn nodes(&self) -> Result<Vec<String>> {
        let path = self.0.join("nodes");
        let entries = match fs::read_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(cannot("read", &path))?,
        };
        let mut ids = Vec::new();
        for entry in entries {
            let entry = entry.map_err(cannot("read", &path))?;
            if entry.path().join("cert.pem").exists() {
                ids.extend(entry.file_name().into_string().ok());
            }
        }
        ids.sort();
        Ok(ids)
    }

    /// The cluster that the certificates of the nodes name.
    pub(super) fn cluster(&self) -> Result<String> {
        for id in self.nodes()? {
            if let Ok(identity) = identity(&certificate(&self.node(&id))?) {
                return Ok(identity.cluster);
            }
        }
        Err(CommandError::usage(format!(
            "{} has no certificate of a node: name the cluster with --cluster",
            self.0.display()
        )))
    }
}

/// Issues a certificate and writes it with its key and the authorities.
pub(super) fn write_certificate(
    authority: &CertificateAuthority,
    into: &Path,
    request: &CertificateRequest,
    validity: Validity,
) -> Result {
    create_private_dir(into).map_err(cannot("create", into))?;
    let issued = authority.issue(request, validity).map_err(|error| CommandError::usage(error.to_string()))?;
    for (name, text) in [("key.pem", &issued.key), ("cert.pem", &issued.certificate)] {
        let path = into.join(name);
        write_private(&path, text.as_bytes()).map_err(cannot("write", &path))?;
    }
    write_ca(into, authority.certificate())
}

pub(super) fn write_ca(into: &Path, certificates: &str) -> Result {
    let path = into.join("ca.pem");
    write_public(&path, certificates.as_bytes()).map_err(cannot("write", &path))
}

/// The first certificate of a directory.
pub(super) fn certificate(directory: &Path) -> Result<CertificateInfo> {
    let path = directory.join("cert.pem");
    let described = inspect(read(&path)?.as_bytes());
    let described = described.map_err(|error| CommandError::usage(format!("{}: {error}", path.display())))?;
    described.into_iter().next().ok_or_else(|| CommandError::usage(format!("{} is empty", path.display())))
}

pub(super) fn identity(info: &CertificateInfo) -> Result<Identity> {
    let uri = info.identity.as_deref().unwrap_or_default();
    Identity::parse(uri).map_err(|error| CommandError::usage(error.to_string()))
}

pub(super) fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(|error| {
        let hint =
            if error.kind() == io::ErrorKind::NotFound { ": use the directory that `convoke init` wrote" } else { "" };
        CommandError::usage(format!("cannot read {}: {error}{hint}", path.display()))
    })
}

pub(super) fn cannot(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CommandError {
    let path = path.to_owned();
    move |error| CommandError::failed(format!("cannot {what} {}: {error}", path.display()))
}

fn failed(error: &convoke_tls::IssueError) -> CommandError {
    CommandError::failed(error.to_string())
}
