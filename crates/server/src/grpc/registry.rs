//! `convoke.v1.Registry`.

use super::attach::AttachStream;
use crate::access::Caller;
use crate::convert::{filter, wire_member};
use crate::error::{no_member, rejected};
use crate::listing::{Part, list};
use crate::service::ClientConnection;
use crate::surface::{Gates, Surface};
use convoke_proto::v1;
use convoke_proto::v1::registry_server;
use futures_util::stream::Empty;
use std::sync::Arc;
use tonic::{Request, Response, Status, Streaming};

#[derive(Debug)]
pub(crate) struct Registry(pub(crate) Arc<Surface>);

#[tonic::async_trait]
impl registry_server::Registry for Registry {
    type AttachStream = AttachStream;
    type WatchStream = Empty<Result<v1::WatchEvent, Status>>;

    async fn attach(&self, request: Request<Streaming<v1::ClientMessage>>) -> Result<Response<AttachStream>, Status> {
        let surface = &self.0;
        let permit = Gates::enter(&surface.gates.attaches, "attached clients", surface.config.limits.attaches)?;
        let caller = Caller::of(request.extensions())?;
        let connection = surface.node.connect().map_err(rejected)?;
        let arrived_on = request.extensions().get::<Arc<ClientConnection>>().cloned();
        let inbound = request.into_inner();
        Ok(Response::new(AttachStream::new(inbound, connection, arrived_on, surface.clone(), caller, permit)))
    }

    async fn watch(&self, _: Request<v1::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        // Calls of this method are routed to `watch::serve`.
        Err(Status::internal("a watch was not routed to its own service"))
    }

    async fn list(&self, request: Request<v1::ListRequest>) -> Result<Response<v1::ListResponse>, Status> {
        let caller = Caller::of(request.extensions())?;
        let v1::ListRequest { filter: text, limit, cursor, partial } = request.into_inner();
        let limit = usize::try_from(limit).ok().filter(|limit| *limit > 0);
        let cursor = Some(cursor).filter(|cursor| !cursor.is_empty());
        let part = Part { cursor, limit, partial };
        let filter = caller.readable(filter(&text)?);
        let page = list(&self.0, &filter, part, |member| wire_member(&member), prost::Message::encoded_len)?;
        let next_cursor = page.next.unwrap_or_default();
        Ok(Response::new(v1::ListResponse { members: page.members, next_cursor, complete: page.complete }))
    }

    async fn get(&self, request: Request<v1::GetRequest>) -> Result<Response<v1::GetResponse>, Status> {
        let caller = Caller::of(request.extensions())?;
        let id = request.into_inner().id;
        let found = self.0.readable()?.find_member(&id).map_err(rejected)?;
        let member = caller.visible(found).ok_or_else(|| no_member(&id))?;
        Ok(Response::new(v1::GetResponse { member: Some(wire_member(&member)) }))
    }
}
