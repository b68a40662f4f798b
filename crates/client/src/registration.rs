//! A registered member, as the application holds it.

use crate::client::{Client, send_command};
use crate::driver::Command;
use crate::log::LeaseTerms;
use crate::session::RegistrationId;
use crate::{Error, Update};
use tokio::sync::watch;

/// A member that this client has registered.
///
/// The SDK keeps it registered, at any node, until [`unregister`](Registration::unregister) is called, the client is
/// closed or another client takes the member over. Dropping this handle changes nothing.
#[derive(Debug)]
pub struct Registration {
    client: Client,
    id: String,
    registration: RegistrationId,
    standing: watch::Receiver<Standing>,
}

/// The state of a registration.
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

    /// Returns the version after the last write of this client that a node acknowledged; an attach is a write too.
    /// Other changes also raise the version of a member (a drain mark, `down` and `up` again): a view has the current
    /// one.
    pub fn version(&self) -> String {
        self.standing.borrow().version.clone()
    }

    /// Changes the metadata and returns the new version.
    ///
    /// While the client is disconnected, this waits, at most for the client's operation timeout. Dropping the future
    /// withdraws the update if it has not been sent yet.
    pub async fn update(&self, update: Update) -> Result<String, Error> {
        self.check()?;
        let (id, registration, timeout) = (self.id.clone(), self.registration, self.client.operation_timeout());
        send_command(&self.client, |reply| Command::Update { id, registration, update, timeout, reply }).await
    }

    /// Returns the terms of a lease that ends with this registration, for
    /// [`Locks::with_terms`](crate::log::Locks::with_terms) and [`Leases::grant`](crate::log::Leases::grant).
    ///
    /// The service then has one heartbeat for being found and for holding locks. No ttl protects a holder: only the
    /// fence does.
    pub fn lease_terms(&self) -> LeaseTerms {
        self.client.inner.lease_terms(self.id.clone())
    }

    /// Unregisters the member. The operation is performed even if the future is dropped.
    pub async fn unregister(self) -> Result<(), Error> {
        self.check()?;
        self.client.inner.process.unregistered(&self.id);
        let (id, registration, timeout) = (self.id.clone(), self.registration, self.client.operation_timeout());
        send_command(&self.client, |reply| Command::Unregister { id, registration, timeout, reply }).await.map(drop)
    }

    /// Returns why the member is no longer registered by this client, if it is not: `TAKEN_OVER` or `SUPERSEDED`. The
    /// SDK does not register it again, because two clients would take it from each other forever.
    pub fn ended(&self) -> Option<Error> {
        self.standing.borrow().ended.clone()
    }

    /// Waits until the member is no longer registered by this client.
    pub async fn lost(&self) -> Error {
        let mut standing = self.standing.clone();
        let lost = standing.wait_for(|standing| standing.ended.is_some()).await.map(|standing| standing.ended.clone());
        match lost {
            Ok(Some(error)) => error,
            // The client was closed, so the member can no longer be lost.
            _ => std::future::pending().await,
        }
    }

    fn check(&self) -> Result<(), Error> {
        self.ended().map_or(Ok(()), Err)
    }
}
