//! `Log.Watch`: a feed of key watches as messages.

use crate::log::{Feed, LogService, SharedFeeds, Source, wanted};
use crate::service::ClientConnection;
use convoke_proto::v1::key_watch_response::Message;
use convoke_proto::{Error, v1};
use futures_core::Stream;
use futures_util::stream;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tonic::Status;

pub(crate) type KeyWatchStream = Pin<Box<dyn Stream<Item = Result<v1::KeyWatchResponse, Status>> + Send>>;

/// Starts the watches. The stream ends with an error.
pub(super) async fn watch(
    service: &Arc<LogService>,
    feeds: Option<&Arc<SharedFeeds>>,
    request: v1::KeyWatchRequest,
    connection: Option<&Arc<ClientConnection>>,
) -> Result<KeyWatchStream, Error> {
    let (wanted, progress) = (wanted(request.watches)?, Duration::from_millis(request.progress_ms));
    let source = Source::of(service, feeds.filter(|_| !request.replica_only), request.stale, &wanted).await?;
    source.check_named(service, request.log)?;
    let feed = Feed::open(service, source, wanted, progress, connection).await?;
    let started = v1::WatchStarted { log: Some(feed.log().into()), revision: feed.revision() };
    let first = stream::iter([Ok(response(Message::Started(started)))]);
    let rest = stream::unfold(Some(feed), async |feed| {
        let mut feed = feed?;
        match feed.next().await {
            Ok(message) => Some((Ok(response(message)), Some(feed))),
            Err(error) => Some((Err(error.into()), None)),
        }
    });
    Ok(Box::pin(stream::StreamExt::chain(first, rest)))
}

fn response(message: Message) -> v1::KeyWatchResponse {
    v1::KeyWatchResponse { message: Some(message) }
}
