//! Connections of the node's own ambassador: requests to this node stay in the process, those to others use TCP.

use super::{LogService, Sender, SharedFeeds, SubmitStream};
use crate::grpc;
use crate::net::NodeConnector;
use convoke_client::TokenSource;
use convoke_client::log::{Answers, Connect, Connecting, InProcessNode, Responding};
use convoke_proto::v1;
use convoke_tls::NodeTls;
use futures_util::stream;
use std::sync::{Arc, OnceLock, Weak};
use tokio::sync::mpsc;
use tonic::Status;
use tonic::body::Body;
use tonic::transport::Endpoint;

#[derive(Debug)]
pub(super) struct ConnectLocally {
    /// Client addresses of this node: the one it listens on and the one it advertises.
    addresses: [String; 2],
    node: Arc<OwnNode>,
    /// The token of this node, for clusters without TLS.
    token: Option<TokenSource>,
    connector: NodeConnector,
}

#[derive(Debug)]
struct OwnNode {
    service: Arc<LogService>,
    /// The feeds use the ambassador that uses this node.
    feeds: Arc<OnceLock<Weak<SharedFeeds>>>,
}

impl ConnectLocally {
    pub(super) fn new(
        addresses: [String; 2],
        service: &Arc<LogService>,
        feeds: Arc<OnceLock<Weak<SharedFeeds>>>,
        token: Option<TokenSource>,
        tls: Option<NodeTls>,
    ) -> Self {
        let node = Arc::new(OwnNode { service: service.clone(), feeds });
        ConnectLocally { addresses, node, token, connector: NodeConnector(tls) }
    }
}

impl Connect for ConnectLocally {
    fn connect<'a>(&'a self, endpoint: &'a Endpoint) -> Connecting<'a> {
        Box::pin(endpoint.connect_with_connector(self.connector.clone()))
    }

    fn token(&self) -> Option<TokenSource> {
        self.token.clone()
    }

    fn local(&self, address: &str) -> Option<Arc<dyn InProcessNode>> {
        self.addresses.iter().any(|own| own == address).then(|| self.node.clone() as Arc<dyn InProcessNode>)
    }
}

impl InProcessNode for OwnNode {
    fn call(&self, request: http::Request<Body>) -> Responding {
        let feeds = self.feeds.get().and_then(Weak::upgrade);
        let mut log = grpc::log_server(Some(self.service.clone()), feeds, grpc::Callers::Trusted);
        let responding = tower::Service::call(&mut log, request);
        Box::pin(async {
            let Ok(response) = responding.await;
            response
        })
    }

    fn submit(&self, mut requests: mpsc::UnboundedReceiver<v1::SubmitRequest>) -> Result<Answers, Status> {
        let incoming = stream::poll_fn(move |context| requests.poll_recv(context).map(|request| request.map(Ok)));
        let log = self.service.handle.log().ok();
        Ok(Box::pin(SubmitStream::open(&self.service, Box::pin(incoming), Sender::own_node(), log)?))
    }
}
