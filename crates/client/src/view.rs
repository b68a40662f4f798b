//! A view: a local copy of the members that match a filter.

use crate::client::Client;
use crate::follow::{Target, Task, follow};
use crate::{Error, ErrorCode, Event, Filter, Member};
use convoke_filter::Subject;
use convoke_session::watch_state::WatchState;
use std::sync::{Arc, PoisonError, RwLock};
use tokio::sync::watch;

/// A local, eventually consistent copy of the members that match a filter. Reads need no network access and work while
/// the client is disconnected.
///
/// Cheap to clone. The copy is updated until all clones are dropped.
#[derive(Clone, Debug)]
pub struct View {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    copy: Arc<Copy>,
    progress: watch::Receiver<Progress>,
    _task: Task,
    _client: Client,
}

#[derive(Debug, Default)]
struct Copy {
    state: RwLock<WatchState>,
}

#[derive(Clone, Debug, Default)]
struct Progress {
    changes: u64,
    caught_up: bool,
    failure: Option<Error>,
}

struct ViewTarget {
    copy: Arc<Copy>,
    progress: watch::Sender<Progress>,
}

impl Target for ViewTarget {
    async fn change<T: Send>(
        &mut self,
        change: impl FnOnce(&mut WatchState, &mut Vec<Event>) -> T + Send,
    ) -> Option<T> {
        let mut events = Vec::new();
        let result = {
            let mut state = self.copy.state.write().unwrap_or_else(PoisonError::into_inner);
            change(&mut state, &mut events)
        };
        if !events.is_empty() {
            let caught_up = events.contains(&Event::CaughtUp);
            self.progress.send_modify(|progress| {
                progress.changes += 1;
                progress.caught_up |= caught_up;
            });
        }
        Some(result)
    }
}

impl View {
    pub(crate) fn start(client: Client, filter: &Filter) -> View {
        let copy = Arc::new(Copy::default());
        let (sender, progress) = watch::channel(Progress::default());
        let target = ViewTarget { copy: copy.clone(), progress: sender.clone() };
        let following = follow(client.inner.links.clone(), filter.to_string(), target);
        let task = tokio::spawn(async move {
            if let Some(error) = following.await {
                tracing::warn!(%error, "view ended");
                sender.send_modify(|progress| progress.failure = Some(error));
            }
        });
        View { inner: Arc::new(Inner { copy, progress, _task: Task(task), _client: client }) }
    }

    /// Returns one member of the view.
    pub fn get(&self, id: &str) -> Option<Arc<Member>> {
        self.read(|state| state.members().get(id).cloned())
    }

    /// Returns all members of the view, ordered by id.
    pub fn list(&self) -> Vec<Arc<Member>> {
        self.read(|state| state.members().values().cloned().collect())
    }

    /// Returns the members of the view that match a further filter.
    pub fn list_matching(&self, filter: &Filter) -> Vec<Arc<Member>> {
        let mut members = self.list();
        members.retain(|member| filter.matches(&subject(member)));
        members
    }

    pub fn len(&self) -> usize {
        self.read(|state| state.members().len())
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether the view has been complete once. While the client is disconnected, it stays readable and becomes
    /// stale.
    pub fn is_caught_up(&self) -> bool {
        self.inner.progress.borrow().caught_up
    }

    /// Waits until the view is complete. Fails if no node accepts it or the client is closed first.
    pub async fn wait_caught_up(&self) -> Result<(), Error> {
        let mut progress = self.inner.progress.clone();
        let settled = progress.wait_for(|progress| progress.caught_up || progress.failure.is_some()).await;
        let settled = settled.map_err(|_| Error::new(ErrorCode::FailedPrecondition, "this client is closed"))?;
        match &settled.failure {
            Some(error) if !settled.caught_up => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Returns a number that grows with every change of the view.
    pub fn changes(&self) -> u64 {
        self.inner.progress.borrow().changes
    }

    /// Waits until the view has changed since `changes` had this value. Returns false if it will not change any more.
    pub async fn changed_since(&self, changes: u64) -> bool {
        let mut progress = self.inner.progress.clone();
        progress.wait_for(|progress| progress.changes > changes).await.is_ok()
    }

    /// Waits for the next change.
    pub async fn changed(&self) -> bool {
        self.changed_since(self.changes()).await
    }

    fn read<T>(&self, read: impl FnOnce(&WatchState) -> T) -> T {
        read(&self.inner.copy.state.read().unwrap_or_else(PoisonError::into_inner))
    }
}

fn subject(member: &Member) -> Subject<'_> {
    Subject {
        id: &member.id,
        service: &member.service,
        locality: &member.locality,
        revision: &member.revision,
        status: member.status,
        drained: member.drained,
        health: member.health,
        client: &member.client,
        owner: &member.owner.node,
        metadata: &member.metadata,
    }
}
