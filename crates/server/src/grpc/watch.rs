//! `Registry.Watch`: the batches of the node's watch as single events, with snapshots in parts.

use crate::access::Caller;
use crate::convert::{self, filter, wire_member};
use crate::encoded::EncodedChanges;
use crate::error::rejected;
use crate::service::ClientConnection;
use crate::surface::Surface;
use crate::watchers::{Watcher, Watching};
use ::http::header::USER_AGENT;
use bytes::{BufMut, Bytes};
use convoke_core::member::{ChangeKind, Member};
use convoke_core::node::StreamEvent;
use convoke_node::WatchHandle;
use convoke_proto::v1::watch_event::{Event, Snapshot};
use convoke_proto::{Error, ErrorCode, LowMemoryCodec, LowMemoryEncoder, MESSAGE_BYTES_MAX, PART_BYTES, v1};
use futures_core::Stream;
use prost::Message as _;
use std::iter::Peekable;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::vec;
use tonic::body::Body;
use tonic::codec::{BufferSettings, Codec, EncodeBuf, Encoder};
use tonic::server::Grpc;
use tonic::{Request, Response, Status};

/// Called without the router and with its own codec, because a change is encoded once for all watchers.
pub(super) const PATH: &str = "/convoke.v1.Registry/Watch";

pub(super) async fn serve<B>(surface: Arc<Surface>, request: ::http::Request<B>) -> ::http::Response<Body>
where
    B: http_body::Body + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send,
{
    let watching = tower::service_fn(move |request| watch(surface.clone(), request));
    let grpc = Grpc::new(WatchCodec).apply_max_message_size_config(Some(MESSAGE_BYTES_MAX), None);
    { grpc }.server_streaming(watching, request).await
}

async fn watch(surface: Arc<Surface>, request: Request<v1::WatchRequest>) -> Result<Response<WatchStream>, Status> {
    let (metadata, extensions, v1::WatchRequest { filter: text, resume }) = request.into_parts();
    let interest = Caller::of(&extensions)?.watched(filter(&text)?);
    let connection = extensions.get::<Arc<ClientConnection>>().map(Arc::as_ref);
    let headers = metadata.into_headers();
    let watcher = Watcher::new("grpc", connection, headers.get(USER_AGENT), &interest.filter);
    let resume = convert::resume(resume)?;
    let watch = surface.node.watch(interest, resume).await.map_err(rejected)?;
    let watching = surface.watchers.enter(watcher);
    Ok(Response::new(WatchStream::new(watch, surface.encoded.clone(), watching)))
}

/// A message of a watch.
#[derive(Debug)]
pub(crate) enum Message {
    /// An event for this watcher only.
    Event(Box<v1::WatchEvent>),
    /// A change, encoded once for all watchers.
    Change(Bytes),
}

#[derive(Clone, Copy, Debug)]
struct WatchCodec;

type Plain = LowMemoryCodec<v1::WatchEvent, v1::WatchRequest>;

impl Codec for WatchCodec {
    type Encode = Message;
    type Decode = v1::WatchRequest;
    type Encoder = WatchEncoder;
    type Decoder = <Plain as Codec>::Decoder;

    fn encoder(&mut self) -> WatchEncoder {
        WatchEncoder(Plain::default().encoder())
    }

    fn decoder(&mut self) -> Self::Decoder {
        Plain::default().decoder()
    }
}

#[derive(Debug)]
struct WatchEncoder(LowMemoryEncoder<v1::WatchEvent>);

impl Encoder for WatchEncoder {
    type Item = Message;
    type Error = Status;

    fn encode(&mut self, message: Message, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        match message {
            Message::Event(event) => self.0.encode(*event, into),
            Message::Change(bytes) => {
                into.reserve(bytes.len());
                into.put(bytes);
                Ok(())
            }
        }
    }

    fn buffer_settings(&self) -> BufferSettings {
        self.0.buffer_settings()
    }
}

pub(crate) struct WatchStream {
    watch: WatchHandle,
    batch: Peekable<vec::IntoIter<StreamEvent>>,
    ended: bool,
    encoded: Arc<EncodedChanges>,
    _watching: Watching,
}

impl WatchStream {
    fn new(watch: WatchHandle, encoded: Arc<EncodedChanges>, watching: Watching) -> Self {
        let batch = Vec::new().into_iter().peekable();
        WatchStream { watch, batch, ended: false, encoded, _watching: watching }
    }

    /// Returns the next message of the current batch.
    fn take(&mut self) -> Option<Message> {
        let event = match self.batch.next()? {
            StreamEvent::Snapshot(member) => {
                let mut members = vec![wire_member(&member)];
                let mut bytes = members[0].encoded_len();
                while bytes < PART_BYTES
                    && let Some(StreamEvent::Snapshot(member)) =
                        self.batch.next_if(|event| matches!(event, StreamEvent::Snapshot(_)))
                {
                    let member = wire_member(&member);
                    bytes += member.encoded_len();
                    members.push(member);
                }
                v1::WatchEvent { event: Some(Event::Snapshot(Snapshot { members })) }
            }
            StreamEvent::Registered(member) => return self.change(ChangeKind::Registered, &member),
            StreamEvent::Updated(member) => return self.change(ChangeKind::Updated, &member),
            StreamEvent::StatusChanged(member) => return self.change(ChangeKind::StatusChanged, &member),
            StreamEvent::OwnerChanged(member) => return self.change(ChangeKind::OwnerChanged, &member),
            event @ (StreamEvent::CaughtUp
            | StreamEvent::Unregistered { .. }
            | StreamEvent::Reset(_)
            | StreamEvent::Mark(_)) => convert::event(event),
        };
        Some(Message::Event(Box::new(event)))
    }

    fn change(&self, kind: ChangeKind, member: &Member) -> Option<Message> {
        Some(Message::Change(self.encoded.event(kind, member)))
    }
}

impl Stream for WatchStream {
    type Item = Result<Message, Status>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            if this.ended {
                return Poll::Ready(None);
            }
            if let Some(event) = this.take() {
                return Poll::Ready(Some(Ok(event)));
            }
            match ready!(Pin::new(&mut this.watch).poll_next(context)) {
                Some(batch) => this.batch = batch.into_iter().peekable(),
                None => {
                    this.ended = true;
                    let message =
                        "the node ended this watch; resume it at this or another node with the last resume token";
                    return Poll::Ready(Some(Err(Error::new(ErrorCode::NotReady, message).into())));
                }
            }
        }
    }
}
