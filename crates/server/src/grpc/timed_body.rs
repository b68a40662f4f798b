//! Request bodies of gRPC calls that must arrive in time.

use crate::service::ClientConnection;
use bytes::{Buf, Bytes};
use convoke_proto::{Error, ErrorCode};
use http_body::{Body, Frame, SizeHint};
use std::error::Error as StdError;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Sleep;

/// Calls whose client sends messages for as long as it likes. Only the first one must arrive in time.
const STREAMS: [&str; 4] = [
    "/convoke.v1.Registry/Attach",
    "/convoke.v1.Log/Submit",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];
/// Compression flag and length before each message.
const PREFIX: usize = 5;

/// A request body. It fails if the request, or the first message of a stream, is not complete in time: a call that never
/// sends its request would hold its place for ever.
#[derive(Debug)]
pub(crate) struct TimedBody<B> {
    body: B,
    timeout: Duration,
    /// Created when the client has to be waited for.
    timer: Option<Pin<Box<Sleep>>>,
    first: Option<FirstMessage>,
    in_time: bool,
    /// Counts the bytes, for the rate limits.
    connection: Option<Arc<ClientConnection>>,
}

impl<B> TimedBody<B> {
    pub(super) fn new(path: &str, body: B, timeout: Duration, connection: Option<Arc<ClientConnection>>) -> Self {
        let first = STREAMS.contains(&path).then(FirstMessage::default);
        TimedBody { body, timeout, timer: None, first, in_time: false, connection }
    }

    fn arrived(&mut self, frame: &Frame<Bytes>) {
        if let (Some(connection), Some(data)) = (&self.connection, frame.data_ref()) {
            connection.received(data.len());
        }
        if let (Some(first), Some(data)) = (&mut self.first, frame.data_ref()) {
            self.in_time = first.take(data);
        }
        if self.in_time {
            self.timer = None;
        }
    }
}

/// Counts the bytes of the first message.
#[derive(Debug, Default)]
struct FirstMessage {
    prefix: Vec<u8>,
    /// Bytes after the prefix.
    received: usize,
}

impl FirstMessage {
    /// Returns whether the message is complete.
    fn take(&mut self, mut data: &[u8]) -> bool {
        let missing = (PREFIX - self.prefix.len()).min(data.len());
        self.prefix.extend_from_slice(&data[..missing]);
        data.advance(missing);
        self.received = self.received.saturating_add(data.len());
        let length = self.prefix.get(1..PREFIX).and_then(|length| length.try_into().ok()).map(u32::from_be_bytes);
        length.is_some_and(|length| self.received >= length as usize)
    }
}

impl<B> Body for TimedBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    type Data = Bytes;
    type Error = Box<dyn StdError + Send + Sync>;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.get_mut();
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(context) {
            if let Some(Ok(frame)) = &frame {
                this.arrived(frame);
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        if this.in_time {
            return Poll::Pending;
        }
        let timer = this.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(this.timeout)));
        match timer.as_mut().poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => {
                let error = Error::new(ErrorCode::Timeout, "the request did not arrive in time; nothing was executed");
                Poll::Ready(Some(Err(tonic::Status::from(error).into())))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_message_is_complete_with_its_last_byte() {
        let message = [&[0, 0, 0, 0, 3][..], b"abc", &[0, 0]].concat();
        for cut in 1..message.len() {
            let mut first = FirstMessage::default();
            let complete = message.chunks(cut).scan(0, |length, part| {
                *length += part.len();
                Some((*length, first.take(part)))
            });
            for (length, complete) in complete {
                assert_eq!(complete, length >= 8, "{cut} {length}");
            }
        }
    }
}
