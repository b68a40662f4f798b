//! Node states as each node reports them, polled continuously.

use convoke_cli::{NodeChannel, Result};
use convoke_proto::v1::{NodeState, NodesRequest};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;

const ASK_TIMEOUT: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(100);

/// By node, the states of the other nodes. Nodes that do not answer are missing.
type Views = BTreeMap<String, BTreeMap<String, NodeState>>;

#[derive(Debug)]
pub(crate) struct Links {
    views: watch::Receiver<Views>,
    _asking: JoinSet<()>,
}

impl Links {
    pub(crate) fn of(nodes: &[(String, SocketAddr)]) -> Result<Links> {
        let (sender, views) = watch::channel(Views::new());
        let mut asking = JoinSet::new();
        for (id, address) in nodes {
            let node = NodeChannel::lazy(&address.to_string(), ASK_TIMEOUT, None, None)?;
            asking.spawn(ask(id.clone(), node, sender.clone()));
        }
        Ok(Links { views, _asking: asking })
    }

    /// State of one node as another reports it; `None` if that one does not answer or does not know it.
    pub(crate) fn state(&self, at: &str, of: &str) -> Option<NodeState> {
        self.views.borrow().get(at).and_then(|view| view.get(of)).copied()
    }

    /// Waits for a condition. Returns the time it took, or `None` after the timeout.
    pub(crate) async fn until(&self, patience: Duration, holds: impl Fn(&Links) -> bool) -> Option<Duration> {
        let mut views = self.views.clone();
        super::watcher::within(patience, async || {
            while !holds(self) {
                if views.changed().await.is_err() {
                    return std::future::pending().await;
                }
            }
        })
        .await
    }
}

async fn ask(id: String, node: NodeChannel, sender: watch::Sender<Views>) {
    loop {
        let answer = node.clone().admin().nodes(NodesRequest {}).await;
        sender.send_modify(|views| match answer {
            Ok(answer) => {
                let nodes = answer.into_inner().nodes.into_iter().filter(|node| !node.self_);
                views.insert(id.clone(), nodes.map(|node| (node.id.clone(), node.state())).collect());
            }
            Err(_) => {
                views.remove(&id);
            }
        });
        tokio::time::sleep(PAUSE).await;
    }
}

/// The name of a state.
pub(crate) fn state_name(state: Option<NodeState>) -> &'static str {
    match state {
        Some(NodeState::Up) => "up",
        Some(NodeState::Lost) => "lost",
        Some(NodeState::Failed) => "failed",
        Some(NodeState::Left) => "left",
        Some(NodeState::Connecting) => "connecting",
        Some(NodeState::Distant) => "distant",
        Some(NodeState::Unspecified) | None => "unknown",
    }
}
