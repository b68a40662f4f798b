//! Addresses of nodes. A node that does not lead returns them to its clients.

use super::members;
use crate::error;
use convoke_core::member::NODE_ID_PREFIX;
use convoke_log::command::MemberBinding;
use convoke_node::NodeHandle;
use convoke_proto::{Error, ErrorCode};
use futures_util::future::BoxFuture;
use std::fmt::Debug;

/// Resolves node ids to addresses.
pub trait Directory: Debug + Send + Sync + 'static {
    /// Returns the id of this node.
    fn own(&self) -> String;

    /// Returns whether a node has this id, as far as this node knows.
    fn knows(&self, node: &str) -> bool;

    /// Returns the address at which clients connect to a node; empty if it is not known.
    fn client_address(&self, node: &str) -> String;

    /// Returns the address at which other replicas reach a node.
    fn peer_address<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Result<String, Error>>;

    /// Returns whether the registry shows a registration as up. Always true without a registry.
    fn is_registered(&self, _: &MemberBinding) -> bool {
        true
    }

    /// Waits until the registry shows a registration as up.
    fn registered<'a>(&'a self, _: &'a MemberBinding) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// Uses the node's view of its peers.
impl Directory for NodeHandle {
    fn own(&self) -> String {
        self.id().to_string()
    }

    fn knows(&self, node: &str) -> bool {
        node == self.id().as_str() || self.member(&format!("{NODE_ID_PREFIX}{node}")).is_some()
    }

    fn client_address(&self, node: &str) -> String {
        if node == self.id().as_str() {
            return NodeHandle::client_address(self).to_owned();
        }
        let member = self.member(&format!("{NODE_ID_PREFIX}{node}"));
        member.map(|member| member.address().to_owned()).unwrap_or_default()
    }

    fn peer_address<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Result<String, Error>> {
        Box::pin(async move {
            if node == self.id().as_str() {
                return Ok(NodeHandle::peer_address(self).to_owned());
            }
            let peers = self.nodes().await.map_err(error::rejected)?;
            let known = peers.into_iter().find(|peer| peer.node.as_str() == node && !peer.peer_address.is_empty());
            known.map(|peer| peer.peer_address).ok_or_else(|| {
                let message =
                    format!("this node knows no node {node:?}; start it with --join or give its peer address");
                Error::new(ErrorCode::NotFound, message).field("node")
            })
        })
    }

    fn is_registered(&self, bound: &MemberBinding) -> bool {
        members::is_registered(self, bound)
    }

    fn registered<'a>(&'a self, bound: &'a MemberBinding) -> BoxFuture<'a, ()> {
        Box::pin(members::registered(self, bound))
    }
}
