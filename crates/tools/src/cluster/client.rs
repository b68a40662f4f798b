//! Asking the cluster manager.

use super::api::{Clusters, Manager, SERVICE, check_name};
use super::manager::directory;
use crate::http::{self, Answer, Unanswered};
use convoke_cli::{CommandError, Result, exit};
use convoke_lab::StateDir;
use convoke_proto::json::ErrorBody;
use hyper::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// How long the manager may take to say who it is.
const KNOCK_TIMEOUT: Duration = Duration::from_secs(3);
/// How long it may take to end.
const END_TIMEOUT: Duration = Duration::from_secs(15);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) struct Asking {
    port: u16,
    address: String,
}

impl Asking {
    pub(crate) fn new(port: u16) -> Asking {
        Asking { port, address: format!("127.0.0.1:{port}") }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The manager, if there is one. Something else at its port is an error.
    pub(crate) async fn knock(&self) -> Result<Option<Manager>> {
        let asking = async {
            loop {
                match self.who().await {
                    // A manager that is ending still accepts, and closes.
                    Err(Unanswered::Broken(_)) => sleep(LOOK_AGAIN).await,
                    answer => return answer,
                }
            }
        };
        let body = match timeout(KNOCK_TIMEOUT, asking).await {
            Ok(Ok(body)) => body,
            Ok(Err(_)) => return Ok(None),
            Err(_) => Vec::new(),
        };
        let manager: Option<Manager> = serde_json::from_slice(&body).ok();
        match manager.filter(|manager| manager.service == SERVICE) {
            Some(manager) => Ok(Some(manager)),
            None => Err(CommandError::unreachable(format!(
                "something else than a cluster manager listens at {}: name another port with --port",
                self.address
            ))),
        }
    }

    async fn who(&self) -> Result<Vec<u8>, Unanswered> {
        http::request(&self.address, Method::GET, "/healthz", None).await?.body().await
    }

    /// What a manager that was killed left behind is removed, if there is none.
    fn clean_up(&self) {
        StateDir::sweep(&StateDir::root(), &directory(self.port));
    }

    pub(crate) async fn clusters(&self) -> Result<Clusters> {
        let deadline = Instant::now() + END_TIMEOUT;
        while self.knock().await?.is_some() {
            match self.get("/clusters").await {
                // It has ended in between, or is about to.
                Err(failure) if failure.exit == exit::UNREACHABLE && Instant::now() < deadline => {
                    sleep(LOOK_AGAIN).await;
                }
                answer => return answer,
            }
        }
        self.clean_up();
        Ok(Clusters { clusters: Vec::new() })
    }

    /// The name that was given, or that of the only cluster.
    pub(crate) async fn name(&self, given: Option<String>) -> Result<String> {
        if let Some(name) = &given {
            check_name(name).map_err(CommandError::usage)?;
        }
        let names: Vec<String> = self.clusters().await?.clusters.into_iter().map(|cluster| cluster.name).collect();
        match (given, names.as_slice()) {
            (Some(name), [_, ..]) => Ok(name),
            (None, [only]) => Ok(only.clone()),
            (None, [_, _, ..]) => {
                Err(CommandError::usage(format!("there are several clusters: name one of {}", names.join(", "))))
            }
            (_, []) => Err(CommandError::not_found("there is no cluster: `convoke cluster create` makes one")),
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
        let body = answer.body().await.map_err(|why| self.failure(why))?;
        serde_json::from_slice(&body).map_err(|error| self.failure(Unanswered::Broken(error.to_string())))
    }

    /// An answer whose body is still to come; refusals are errors.
    pub(crate) async fn open(&self, method: Method, path: &str, body: Option<Vec<u8>>) -> Result<Answer> {
        let answer = http::request(&self.address, method, path, body).await.map_err(|why| self.failure(why))?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status();
        let body = answer.body().await.map_err(|why| self.failure(why))?;
        match serde_json::from_slice::<ErrorBody>(&body) {
            Ok(refused) => Err(refused.error.into()),
            Err(_) => Err(self.failure(Unanswered::Broken(status.to_string()))),
        }
    }

    pub(crate) fn failure(&self, why: Unanswered) -> CommandError {
        match why {
            Unanswered::Refused => {
                CommandError::unreachable(format!("no cluster manager at {}: it has just ended", self.address))
            }
            Unanswered::Broken(why) => {
                CommandError::unreachable(format!("the cluster manager at {} did not answer: {why}", self.address))
            }
        }
    }

    /// Waits for the end of a manager that has nothing left to do, so that nothing of it is there when the command returns.
    pub(crate) async fn wait_ended(&self) -> Result {
        let deadline = Instant::now() + END_TIMEOUT;
        while let Some(manager) = self.knock().await? {
            if manager.clusters > 0 || Instant::now() >= deadline {
                return Ok(());
            }
            sleep(LOOK_AGAIN).await;
        }
        // It has closed its port; its directory goes last.
        while Instant::now() < deadline && StateDir::root().join(directory(self.port)).exists() {
            self.clean_up();
            sleep(LOOK_AGAIN).await;
        }
        Ok(())
    }
}

pub(crate) fn json(body: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(body).map_err(|error| CommandError::failed(format!("cannot write JSON: {error}")))
}
