//! Names: what a node registers on its own behalf, like the actors that live in its process.

use super::NodeHandle;
use crate::subscription::Subscription;
use convoke_core::Refusal;
use convoke_core::filter::Filter;
use convoke_core::member::Space;
use convoke_core::node::{Interest, NameView, Resume};
use convoke_core::version::Version;

impl NodeHandle {
    /// Registers a name at a location; again = new location. A name held by another live node is refused.
    pub async fn register(&self, name: &str, location: &str) -> Result<Version, Refusal> {
        let (name, location) = (name.to_owned(), location.to_owned());
        self.ask(move |owner, now| {
            let (core, out) = owner.core();
            let version = core.register_name(now, &name, &location, out)?;
            owner.names().insert(name, location);
            Ok(version)
        })
        .await?
    }

    /// Unregisters a name of this node.
    pub async fn unregister(&self, name: &str) -> Result<(), Refusal> {
        let name = name.to_owned();
        self.ask(move |owner, now| {
            owner.names().remove(&name);
            let (core, out) = owner.core();
            core.unregister_name(now, &name, out)
        })
        .await?
    }

    /// Where a name is, whether or not its node can be reached right now. Never waits.
    pub fn lookup(&self, name: &str) -> Option<NameView> {
        self.shared.view.name(name)
    }

    /// Everything that happens to names: the stream starts with those there are.
    pub async fn subscribe_names(&self, resume: Resume) -> Result<Subscription, Refusal> {
        self.subscribe(Interest { space: Space::Name, filter: Filter::all() }, resume).await
    }

    /// After a restart: the application has registered all it has. Names of the earlier run that it did not repeat are
    /// unregistered now, and not only one heartbeat timeout after the start (N2).
    pub async fn names_complete(&self) -> Result<(), Refusal> {
        self.ask(|owner, now| {
            let (core, out) = owner.core();
            core.names_complete(now, out);
        })
        .await
    }
}
