//! Connections of the node's own ambassador: requests to this node stay in the process, those to others use TCP.

use super::{LogService, Sender, SubmitStream};
use crate::grpc;
use crate::net::NodeConnector;
use convoke_client::TokenSource;
use convoke_client::log::{Answers, Connect, Connecting, InProcessNode, Responding};
use convoke_proto::v1;
use convoke_tls::NodeTls;
use futures_util::stream;
use std::sync::Arc;
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
struct OwnNode(Arc<LogService>);

impl ConnectLocally {
    pub(super) fn new(
        addresses: [String; 2],
        service: &Arc<LogService>,
        token: Option<TokenSource>,
        tls: Option<NodeTls>,
    ) -> Self {
        ConnectLocally { addresses, node: Arc::new(OwnNode(service.clone())), token, connector: NodeConnector(tls) }
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
        let mut log = grpc::log_server(Some(self.0.clone()), None, grpc::Callers::Trusted);
        let responding = tower::Service::call(&mut log, request);
        Box::pin(async {
            let Ok(response) = responding.await;
            response
        })
    }

    fn submit(&self, mut requests: mpsc::UnboundedReceiver<v1::SubmitRequest>) -> Result<Answers, Status> {
        let incoming = stream::poll_fn(move |context| requests.poll_recv(context).map(|request| request.map(Ok)));
        Ok(Box::pin(SubmitStream::open(&self.0, Box::pin(incoming), Sender::own_node(), self.0.handle.log().ok())?))
    }
}
