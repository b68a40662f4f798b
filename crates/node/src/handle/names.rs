//! Names: registrations that a node makes on its own behalf, for example for actors in its process.

use super::NodeHandle;
use crate::watch::WatchHandle;
use convoke_core::Rejection;
use convoke_core::filter::Filter;
use convoke_core::member::Space;
use convoke_core::node::{NameView, Resume, WatchSelection};
use convoke_core::version::Version;

impl NodeHandle {
    /// Registers a name with a location, or changes the location. Rejected if another live node holds the name.
    pub async fn register(&self, name: &str, location: &str) -> Result<Version, Rejection> {
        let (name, location) = (name.to_owned(), location.to_owned());
        self.run_in_event_loop(move |event_loop, now| {
            let (core, out) = event_loop.core();
            let version = core.register_name(now, &name, &location, out)?;
            event_loop.names().insert(name, location);
            Ok(version)
        })
        .await?
    }

    /// Unregisters a name of this node.
    pub async fn unregister(&self, name: &str) -> Result<(), Rejection> {
        let name = name.to_owned();
        self.run_in_event_loop(move |event_loop, now| {
            event_loop.names().remove(&name);
            let (core, out) = event_loop.core();
            core.unregister_name(now, &name, out)
        })
        .await?
    }

    /// Returns the location of a name that this node holds, whether or not its node is reachable. Never waits. `None`
    /// means that there is no such name if [`NodeHandle::absence`] succeeded before.
    pub fn lookup(&self, name: &str) -> Option<NameView> {
        self.shared.view.name(name)
    }

    /// Watches names: a snapshot, then every change.
    pub async fn watch_names(&self, resume: Resume) -> Result<WatchHandle, Rejection> {
        self.watch(WatchSelection::new(Space::Name, Filter::all()), resume).await
    }

    /// Declares, after a restart, that the application has registered all its names. Names of the earlier incarnation
    /// that were not repeated are unregistered now instead of one `heartbeat_timeout` after the start (N2).
    pub async fn names_complete(&self) -> Result<(), Rejection> {
        self.run_in_event_loop(|event_loop, now| {
            let (core, out) = event_loop.core();
            core.names_complete(now, out);
        })
        .await
    }
}
