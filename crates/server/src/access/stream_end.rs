//! Ends a response that outlives the rights of its caller (AU11).

use super::caller::Caller;
use crate::service::ClientConnection;
use crate::surface::Surface;
use ::http::{HeaderMap, HeaderValue};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Completes when a stream must end.
pub(crate) struct StreamEnd(Pin<Box<dyn Future<Output = ()> + Send>>);

impl std::fmt::Debug for StreamEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StreamEnd")
    }
}

impl StreamEnd {
    /// `None` if the rights of the caller cannot end.
    pub(crate) fn of(surface: &Arc<Surface>, connection: &Arc<ClientConnection>, caller: &Caller) -> Option<StreamEnd> {
        if caller.token.is_none() && caller.certificate.is_none() {
            return None;
        }
        let (surface, connection, caller) = (surface.clone(), connection.clone(), caller.clone());
        Some(StreamEnd(Box::pin(async move { surface.gate.loses_rights(&connection, &caller).await })))
    }

    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(context)
    }

    /// The trailers of a gRPC stream that ends so.
    pub(crate) fn trailers() -> HeaderMap {
        let status = tonic::Status::from(convoke_proto::Error::new(
            convoke_proto::ErrorCode::Unauthenticated,
            "the rights of this stream ended: its token expired or was revoked, or its grants changed; call again",
        ));
        let mut trailers = HeaderMap::new();
        if status.add_header(&mut trailers).is_err() {
            trailers.insert("grpc-status", HeaderValue::from_static("16"));
        }
        trailers
    }
}
