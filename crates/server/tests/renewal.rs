//! Streams that outlive their token (docs/access-control.md, AU11 and AU21).

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_client::{AuthorizedChannel, Client, MemberSpec, TokenSource};
use convoke_proto::v1;
use convoke_proto::v1::log_client::LogClient;
use convoke_proto::v1::registry_client::RegistryClient;
use convoke_testkit::eventually;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::Served;
use support::access::Keys;
use support::grpc::channel;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Streaming};

const GRANTS: [&str; 3] = ["read service:*", "register service:orders", "read key:orders/"];

/// The streams of one connection: each returns the code with which it ends.
struct Streams {
    seen: mpsc::UnboundedReceiver<v1::WatchEvent>,
    ending: Vec<JoinHandle<Code>>,
    _messages: mpsc::Sender<v1::ClientMessage>,
    /// Renewals end with the last clone of the channel.
    _channel: AuthorizedChannel,
}

/// Reads a stream to its end.
fn read<T: Send + 'static>(mut stream: Streaming<T>, mut seen: impl FnMut(T) + Send + 'static) -> JoinHandle<Code> {
    tokio::spawn(async move {
        loop {
            match stream.message().await {
                Ok(Some(message)) => seen(message),
                Ok(None) => return Code::Ok,
                Err(status) => return status.code(),
            }
        }
    })
}

impl Streams {
    /// Opens a stream of each kind: an attach, a watch of members and a watch of keys.
    async fn open(channel: AuthorizedChannel, client: &str) -> Streams {
        let (sender, messages) = mpsc::channel(4);
        let attach = v1::Attach { client: client.to_owned(), nonce: 7, claim: 1, ..v1::Attach::default() };
        let attach = v1::client_message::Message::Attach(attach);
        sender.send(v1::ClientMessage { message: Some(attach) }).await.unwrap();
        let mut registry = RegistryClient::new(channel.clone());
        let attached = registry.attach(ReceiverStream::new(messages)).await.unwrap().into_inner();
        let members = registry.watch(v1::WatchRequest::default()).await.unwrap().into_inner();
        let which = Some(v1::key_watch::Which::Key(b"orders/a".to_vec().into()));
        let watches = vec![v1::KeyWatch { id: 1, which, ..v1::KeyWatch::default() }];
        let request = v1::KeyWatchRequest { watches, ..v1::KeyWatchRequest::default() };
        let keys = LogClient::new(channel.clone()).watch(request).await.unwrap().into_inner();
        #[allow(clippy::disallowed_methods, reason = "the test makes few changes")]
        let (events, seen) = mpsc::unbounded_channel();
        let watching = read(members, move |event| drop(events.send(event)));
        Streams {
            seen,
            ending: vec![read(attached, drop), watching, read(keys, drop)],
            _messages: sender,
            _channel: channel,
        }
    }

    async fn shows(&mut self, id: &str) {
        while let Some(event) = self.seen.recv().await {
            if format!("{event:?}").contains(&format!("{id:?}")) {
                return;
            }
        }
        panic!("the watch ended before it showed {id}");
    }

    /// Returns the codes with which the streams end.
    async fn ends(self) -> Vec<Code> {
        let mut codes = Vec::new();
        for ending in self.ending {
            codes.push(tokio::time::timeout(Duration::from_secs(60), ending).await.unwrap().unwrap());
        }
        codes
    }
}

async fn rejects(keys: &Keys, served: &Served, token: &str) -> bool {
    keys.send(served, token, "GET", "/api/v1/members", "").await.status == 401
}

/// Streams end with their token, unless their connection shows a newer one of the same principal with the same grants. A
/// revocation ends them in any case.
#[tokio::test(flavor = "multi_thread")]
async fn a_newer_token_continues_open_streams() {
    let keys = Keys::new();
    let cluster = keys.log_cluster(1).await;
    let served = cluster.served(0);
    let first = keys.expiring("alice", &GRANTS, 6);
    let current = Arc::new(Mutex::new(first.clone()));
    let source = TokenSource::callback({
        let current = current.clone();
        move || Some(current.lock().unwrap().clone())
    });
    let renewing = AuthorizedChannel::renewing(channel(served).await, Some(source));
    let mut renewed = Streams::open(renewing, "renewed").await;
    let fixed = AuthorizedChannel::renewing(channel(served).await, Some(TokenSource::fixed(first.clone())));
    let expired = Streams::open(fixed, "expired").await;
    // A connection on which other principals, and the same one with other grants, show valid tokens.
    let raw = channel(served).await;
    let others =
        Streams::open(AuthorizedChannel::new(raw.clone(), Some(TokenSource::fixed(first.clone()))), "others").await;
    for (name, grants) in [("bob", &GRANTS[..]), ("alice", &GRANTS[..1])] {
        let token = TokenSource::fixed(keys.token(name, grants));
        let mut client = RegistryClient::new(AuthorizedChannel::new(raw.clone(), Some(token)));
        client.list(v1::ListRequest::default()).await.unwrap();
    }
    *current.lock().unwrap() = keys.token("alice", &GRANTS);

    assert_eq!(expired.ends().await, [Code::Unauthenticated; 3]);
    assert_eq!(others.ends().await, [Code::Unauthenticated; 3], "only the same principal with the same grants");
    eventually("the first token is over", async || rejects(&keys, served, &first).await).await;
    let operator = TokenSource::fixed(keys.token("operator", &["* *"]));
    let client = Client::builder().seeds([served.address().to_string()]).token(operator).connect().await.unwrap();
    client.register(MemberSpec::new("o-1", "orders")).await.unwrap();
    renewed.shows("o-1").await;
    assert!(renewed.ending.iter().all(|stream| !stream.is_finished()), "all streams of the connection continue");

    let revoker = keys.token("security", &["revoke cluster"]);
    keys.send(served, &revoker, "POST", "/api/v1/revocations", r#"{"principal":"alice"}"#).await.ok();
    assert_eq!(renewed.ends().await, [Code::Unauthenticated; 3]);
}
