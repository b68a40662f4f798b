//! Forgetting nodes that will not return, as gRPC and HTTP request it (D15).

use crate::access::Caller;
use crate::error::{invalid, rejected};
use crate::surface::Surface;
use convoke_access::{Resource, Verb};
use convoke_core::version::NodeId;
use convoke_proto::{Error, ErrorCode};

impl Surface {
    /// Forgets a node that is not up.
    pub(crate) async fn forget(&self, caller: &Caller, id: &str) -> Result<(), Error> {
        caller.check(Verb::Forget, Resource::Node(id))?;
        let node = NodeId::new(id).map_err(|error| invalid("id", error.to_string()))?;
        if node == *self.node.id() {
            let message = format!("node {node} cannot forget itself: stop it, then send the request to another node");
            return Err(Error::new(ErrorCode::FailedPrecondition, message).field("id"));
        }
        self.node.forget(&node).await.map_err(rejected)
    }
}
