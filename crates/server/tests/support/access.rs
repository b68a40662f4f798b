//! Keys and tokens for nodes with access control.

use super::Served;
use super::http::Answer;
use super::log::LogCluster;
use convoke_access::{LEEWAY, NewToken, SigningKey, issue};
use convoke_server::AuthConfig;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tempfile::TempDir;

/// The signing key of a cluster, and the directory of public keys.
#[derive(Debug)]
pub struct Keys {
    key: SigningKey,
    directory: TempDir,
}

impl Keys {
    pub fn new() -> Keys {
        let mut keys = Keys { key: SigningKey::from_seed([1; 32]), directory: tempfile::tempdir().unwrap() };
        keys.add_key([1; 32], "signing.pub");
        keys
    }

    /// Signs with another key from now on, and adds it to the directory.
    pub fn add_key(&mut self, seed: [u8; 32], file: &str) {
        self.key = SigningKey::from_seed(seed);
        // Complete under its name at once: the node reads the directory at any time.
        let aside = self.path().join("aside");
        std::fs::write(&aside, self.key.public_pem()).unwrap();
        std::fs::rename(aside, self.path().join(file)).unwrap();
    }

    pub fn remove(&self, file: &str) {
        std::fs::remove_file(self.path().join(file)).unwrap();
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    pub fn private(&self) -> String {
        self.key.to_pem()
    }

    pub fn config(&self, anonymous: &[&str]) -> AuthConfig {
        AuthConfig {
            cluster: "convoke".to_owned(),
            keys: self.path().to_owned(),
            policy: None,
            anonymous: anonymous.iter().map(|grant| (*grant).to_owned()).collect(),
            max_token_ttl: Duration::from_secs(convoke_access::MAX_TOKEN_TTL),
            node_token: None,
            revocations: None,
        }
    }

    pub fn token(&self, subject: &str, grants: &[&str]) -> String {
        self.issued(subject, grants, now(), 3_600)
    }

    /// Returns a token that is accepted for so many seconds.
    pub fn expiring(&self, subject: &str, grants: &[&str], seconds: u64) -> String {
        self.issued(subject, grants, now() - LEEWAY - 10, 10 + seconds)
    }

    fn issued(&self, subject: &str, grants: &[&str], issued_at: u64, ttl: u64) -> String {
        let grants: Vec<String> = grants.iter().map(|grant| (*grant).to_owned()).collect();
        let id = fastrand::u128(..).to_le_bytes();
        let new = NewToken { subject, audience: "convoke", grants: &grants, issued_at, ttl, id };
        issue(&self.key, &new).unwrap().0.secret().to_owned()
    }

    /// Starts nodes with the log plane, which show each other a token of nodes.
    pub async fn log_cluster(&self, count: usize) -> LogCluster {
        self.log_cluster_with(count, convoke_server::Config::default()).await
    }

    pub async fn log_cluster_with(&self, count: usize, config: convoke_server::Config) -> LogCluster {
        self.log_cluster_open_to(&[], count, config).await
    }

    /// Starts nodes at which callers without credentials have these grants.
    pub async fn log_cluster_open_to(
        &self,
        anonymous: &[&str],
        count: usize,
        config: convoke_server::Config,
    ) -> LogCluster {
        let node_token = self.path().join("node.token");
        std::fs::write(&node_token, self.token("nodes", &["* *"])).unwrap();
        let auth = AuthConfig { node_token: Some(node_token), ..self.config(anonymous) };
        LogCluster::start_with(count, convoke_server::Config { auth: Some(auth), ..config }).await
    }

    pub async fn send(&self, served: &Served, token: &str, method: &str, path: &str, body: &str) -> Answer {
        let bearer = format!("Bearer {token}");
        served.send(method, path, &[("authorization", &bearer)], body.to_owned()).await
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// Starts a node with access control.
pub async fn restricted(keys: &Keys, anonymous: &[&str]) -> Served {
    let config = keys.config(anonymous);
    Served::start("n0", &[], |_| {}, |server| server.auth = Some(config)).await
}
