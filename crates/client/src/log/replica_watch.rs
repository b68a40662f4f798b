//! One stream of watches at one replica, for nodes that follow a replica on behalf of their own watchers.

use super::Ambassador;
use super::following::{next_message, open_request};
use crate::Error;
use convoke_proto::v1;
use convoke_proto::v1::key_watch_response::Message;

/// A stream of watches at one replica. It does not continue at another one.
#[doc(hidden)]
#[derive(Debug)]
pub struct ReplicaWatch {
    ambassador: Ambassador,
    address: String,
    stream: tonic::Streaming<v1::KeyWatchResponse>,
}

impl ReplicaWatch {
    /// Returns the next message. Fails if the replica ends the stream, or sends nothing for 15 s.
    pub async fn next(&mut self) -> Result<Message, Error> {
        let next = next_message(&mut self.stream, &self.address).await;
        next.inspect_err(|error| self.ambassador.learn_from(error))
    }
}

impl Ambassador {
    /// Returns the nodes that may have a replica, in random order, so that not every node follows the leader.
    #[doc(hidden)]
    pub fn replica_addresses(&self) -> Vec<String> {
        let mut addresses = self.shared.peers().all();
        fastrand::shuffle(&mut addresses);
        addresses
    }

    /// Opens a stream of watches at a replica. A rejection that names the replicas is remembered.
    #[doc(hidden)]
    pub async fn watch_at(&self, address: &str, request: v1::KeyWatchRequest) -> Result<ReplicaWatch, Error> {
        let opened = open_request(&self.shared, address, request).await;
        let (_, stream) = opened.inspect_err(|error| self.learn_from(error))?;
        Ok(ReplicaWatch { ambassador: self.clone(), address: address.to_owned(), stream })
    }

    fn learn_from(&self, error: &Error) {
        if let Some(log) = &error.log {
            self.shared.peers().learn(&log.replicas);
        }
    }
}
