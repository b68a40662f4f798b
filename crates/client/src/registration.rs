//! A registered member, in the hands of the application.

use crate::client::{Client, ask};
use crate::driver::Command;
use crate::session::RegistrationId;
use crate::{Error, Update};
use tokio::sync::watch;

/// A member this client has registered.
///
/// The SDK keeps it registered, at whatever node, until [`unregister`](Registration::unregister) is called, the client is closed or
/// another client takes the member over. Dropping this handle changes nothing.
#[derive(Debug)]
pub struct Registration {
    client: Client,
    id: String,
    registration: RegistrationId,
    standing: watch::Receiver<Standing>,
}

/// How a registration stands.
#[derive(Clone, Debug, Default)]
pub(crate) struct Standing {
    pub(crate) version: String,
    pub(crate) ended: Option<Error>,
}

impl Registration {
    pub(crate) fn new(
        client: Client,
        id: String,
        registration: RegistrationId,
        standing: watch::Receiver<Standing>,
    ) -> Registration {
        Registration { client, id, registration, standing }
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    /// The version after the last write of this client that a node acknowledged; attaching is one, too. Whatever else changes a member raises
    /// its version as well (a drain mark, `down` and `up` again): a view has the present one.
    pub fn version(&self) -> String {
        self.standing.borrow().version.clone()
    }

    /// Changes the metadata; returns the new version.
    ///
    /// While disconnected this waits, at most for the client's operation timeout. Dropping the future takes the update back
    /// if it has not been sent yet.
    pub async fn update(&self, update: Update) -> Result<String, Error> {
        self.check()?;
        let (id, registration, timeout) = (self.id.clone(), self.registration, self.client.operation_timeout());
        ask(&self.client, |reply| Command::Update { id, registration, update, timeout, reply }).await
    }

    /// Unregisters the member. Once asked for it is carried out, even if nobody waits for the answer.
    pub async fn unregister(self) -> Result<(), Error> {
        self.check()?;
        let (id, registration, timeout) = (self.id.clone(), self.registration, self.client.operation_timeout());
        ask(&self.client, |reply| Command::Unregister { id, registration, timeout, reply }).await.map(drop)
    }

    /// Why the member is no longer this client's, if it is not: `TAKEN_OVER` or `SUPERSEDED`. The SDK does not register it again by
    /// itself: two clients would take it from each other for ever.
    pub fn ended(&self) -> Option<Error> {
        self.standing.borrow().ended.clone()
    }

    /// Waits until the member is no longer this client's.
    pub async fn lost(&self) -> Error {
        let mut standing = self.standing.clone();
        let lost = standing.wait_for(|standing| standing.ended.is_some()).await.map(|standing| standing.ended.clone());
        match lost {
            Ok(Some(error)) => error,
            // The client was closed: nothing is lost any more.
            _ => std::future::pending().await,
        }
    }

    fn check(&self) -> Result<(), Error> {
        self.ended().map_or(Ok(()), Err)
    }
}
