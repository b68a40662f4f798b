//! The HTTP client of the cluster manager.

use super::api::{Clusters, Manager, SERVICE, check_name};
use super::manager::directory;
use convoke_cli::http::{self, HttpAnswer, HttpClientError};
use convoke_cli::{CommandError, Result, exit};
use convoke_lab::StateDir;
use convoke_proto::json::ErrorBody;
use hyper::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Time for the manager to identify itself.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);
/// Time for the manager to end.
const END_TIMEOUT: Duration = Duration::from_secs(15);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) struct ManagerClient {
    port: u16,
    address: String,
}

impl ManagerClient {
    pub(crate) fn new(port: u16) -> ManagerClient {
        ManagerClient { port, address: format!("127.0.0.1:{port}") }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The manager, if it runs. Another service on its port is an error.
    pub(crate) async fn probe(&self) -> Result<Option<Manager>> {
        let asking = async {
            loop {
                match self.who().await {
                    // A manager that is ending still accepts connections, and closes them.
                    Err(HttpClientError::Broken(_)) => sleep(POLL_INTERVAL).await,
                    answer => return answer,
                }
            }
        };
        let body = match timeout(PROBE_TIMEOUT, asking).await {
            Ok(Ok(body)) => body,
            Ok(Err(_)) => return Ok(None),
            Err(_) => Vec::new(),
        };
        let manager: Option<Manager> = serde_json::from_slice(&body).ok();
        match manager.filter(|manager| manager.service == SERVICE) {
            Some(manager) => Ok(Some(manager)),
            None => Err(CommandError::unreachable(format!(
                "another service than a cluster manager listens at {}: choose another port with --port",
                self.address
            ))),
        }
    }

    async fn who(&self) -> Result<Vec<u8>, HttpClientError> {
        http::request(&self.address, Method::GET, "/healthz", None).await?.body().await
    }

    /// Removes the directory of a killed manager.
    fn clean_up(&self) {
        StateDir::sweep(&StateDir::root(), &directory(self.port));
    }

    pub(crate) async fn clusters(&self) -> Result<Clusters> {
        let deadline = Instant::now() + END_TIMEOUT;
        while self.probe().await?.is_some() {
            match self.get("/clusters").await {
                // The manager has ended meanwhile, or is about to.
                Err(error) if error.exit == exit::UNREACHABLE && Instant::now() < deadline => {
                    sleep(POLL_INTERVAL).await;
                }
                answer => return answer,
            }
        }
        self.clean_up();
        Ok(Clusters { clusters: Vec::new() })
    }

    /// The given name, or the name of the only cluster.
    pub(crate) async fn name(&self, given: Option<String>) -> Result<String> {
        if let Some(name) = &given {
            check_name(name).map_err(CommandError::usage)?;
        }
        let names: Vec<String> = self.clusters().await?.clusters.into_iter().map(|cluster| cluster.name).collect();
        match (given, names.as_slice()) {
            (Some(name), [_, ..]) => Ok(name),
            (None, [only]) => Ok(only.clone()),
            (None, [_, _, ..]) => {
                Err(CommandError::usage(format!("several clusters exist: name one of {}", names.join(", "))))
            }
            (_, []) => Err(CommandError::not_found("no clusters: create one with `convoke cluster create`")),
        }
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        self.ask(Method::GET, path, None).await
    }

    pub(crate) async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T> {
        self.ask(Method::POST, path, Some(json(body)?)).await
    }

    pub(crate) async fn put<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T> {
        self.ask(Method::PUT, path, Some(json(body)?)).await
    }

    pub(crate) async fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        self.ask(Method::DELETE, path, None).await
    }

    async fn ask<T: DeserializeOwned>(&self, method: Method, path: &str, body: Option<Vec<u8>>) -> Result<T> {
        let answer = self.open(method, path, body).await?;
        let body = answer.body().await.map_err(|why| self.error(why))?;
        serde_json::from_slice(&body).map_err(|error| self.error(HttpClientError::Broken(error.to_string())))
    }

    /// An answer whose body has not been read. Rejections are errors.
    pub(crate) async fn open(&self, method: Method, path: &str, body: Option<Vec<u8>>) -> Result<HttpAnswer> {
        let answer = http::request(&self.address, method, path, body).await.map_err(|why| self.error(why))?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status();
        let body = answer.body().await.map_err(|why| self.error(why))?;
        match serde_json::from_slice::<ErrorBody>(&body) {
            Ok(rejected) => Err(rejected.error.into()),
            Err(_) => Err(self.error(HttpClientError::Broken(status.to_string()))),
        }
    }

    pub(crate) fn error(&self, why: HttpClientError) -> CommandError {
        match why {
            HttpClientError::Refused => {
                CommandError::unreachable(format!("no cluster manager at {}: it has just ended", self.address))
            }
            HttpClientError::Broken(why) => {
                CommandError::unreachable(format!("the cluster manager at {} did not answer: {why}", self.address))
            }
        }
    }

    /// Waits for a manager without clusters to end, so that nothing is left when the command returns.
    pub(crate) async fn wait_ended(&self) -> Result {
        let deadline = Instant::now() + END_TIMEOUT;
        while let Some(manager) = self.probe().await? {
            if manager.clusters > 0 || Instant::now() >= deadline {
                return Ok(());
            }
            sleep(POLL_INTERVAL).await;
        }
        // The manager removes its directory after it has closed its port.
        while Instant::now() < deadline && StateDir::root().join(directory(self.port)).exists() {
            self.clean_up();
            sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }
}

pub(crate) fn json(body: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(body).map_err(|error| CommandError::failed(format!("cannot write JSON: {error}")))
}
