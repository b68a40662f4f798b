//! The token that a client shows with every call.

use convoke_proto::LowMemoryCodec;
use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::transport::Error;

/// A file is read again after this time, so that a renewed token is used without a restart.
const FILE_INTERVAL: Duration = Duration::from_secs(1);
/// Interval at which a source is asked for a new token while a connection is open.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(1);
const RENEWAL_TIMEOUT: Duration = Duration::from_secs(4);

/// Provides the token of a client. The client asks it for every call and every new stream, so it may change at any time.
#[derive(Clone)]
pub struct TokenSource {
    current: Arc<dyn Fn() -> Option<String> + Send + Sync>,
    fixed: bool,
}

impl fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenSource(secret)")
    }
}

impl TokenSource {
    /// One token.
    pub fn fixed(token: impl Into<String>) -> TokenSource {
        let token = token.into().trim().to_owned();
        TokenSource { current: Arc::new(move || Some(token.clone())), fixed: true }
    }

    /// The content of a file. It is read again when it may have changed. While it cannot be read, its last content is used.
    pub fn file(path: impl Into<PathBuf>) -> TokenSource {
        let path = path.into();
        let read: Mutex<Option<(Instant, Option<String>)>> = Mutex::new(None);
        TokenSource::callback(move || {
            let mut read = read.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((at, token)) = &*read
                && at.elapsed() < FILE_INTERVAL
            {
                return token.clone();
            }
            let last = read.take().and_then(|(_, token)| token);
            let token = std::fs::read_to_string(&path).ok().map(|text| text.trim().to_owned()).or(last);
            *read = Some((Instant::now(), token.clone()));
            token
        })
    }

    /// A function that returns the current token, for example from a secret store. It must not block.
    pub fn callback(current: impl Fn() -> Option<String> + Send + Sync + 'static) -> TokenSource {
        TokenSource { current: Arc::new(current), fixed: false }
    }

    /// Whether the source returns the same token for ever.
    fn is_fixed(&self) -> bool {
        self.fixed
    }

    fn header(&self) -> Option<http::HeaderValue> {
        // What cannot be a token is sent as an invalid one: without it, the caller would be anonymous (AU3).
        let token = http::HeaderValue::try_from(format!("Bearer {}", (self.current)()?));
        let mut value = token.unwrap_or(http::HeaderValue::from_static("Bearer unusable"));
        value.set_sensitive(true);
        Some(value)
    }
}

/// A channel whose calls carry a token.
#[derive(Clone, Debug)]
pub struct AuthorizedChannel {
    channel: tonic::transport::Channel,
    token: Option<TokenSource>,
    /// Ends with the last clone of the channel.
    _renewal: Option<Arc<Renewal>>,
}

/// Shows the node each new token, so that open streams continue when the old one expires (AU21).
#[derive(Debug)]
struct Renewal(JoinHandle<()>);

impl Drop for Renewal {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Renewal {
    fn start(channel: tonic::transport::Channel, token: TokenSource) -> Renewal {
        Renewal(tokio::spawn(async move {
            let mut shown = token.header();
            loop {
                tokio::time::sleep(RENEWAL_INTERVAL).await;
                let current = token.header();
                // A call that fails is repeated: the node may not have read the key of the new token yet.
                if current != shown && show(&channel, &token).await.is_ok() {
                    shown = current;
                }
            }
        }))
    }
}

/// Calls a method that needs no grant. The node reads the token of every call.
async fn show(channel: &tonic::transport::Channel, token: &TokenSource) -> Result<(), tonic::Status> {
    let channel = AuthorizedChannel::new(channel.clone(), Some(token.clone()));
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.map_err(|error| tonic::Status::unavailable(error.to_string()))?;
    let mut request = tonic::Request::new(());
    request.set_timeout(RENEWAL_TIMEOUT);
    let path = http::uri::PathAndQuery::from_static("/grpc.health.v1.Health/Check");
    grpc.unary(request, path, LowMemoryCodec::<(), ()>::default()).await.map(drop)
}

impl AuthorizedChannel {
    pub fn new(channel: tonic::transport::Channel, token: Option<TokenSource>) -> AuthorizedChannel {
        AuthorizedChannel { channel, token, _renewal: None }
    }

    /// A channel whose open streams continue when the token is replaced by a newer one (AU21), as long as the channel or a clone
    /// of it exists.
    pub fn renewing(channel: tonic::transport::Channel, token: Option<TokenSource>) -> AuthorizedChannel {
        let changing = token.clone().filter(|token| !token.is_fixed());
        let renewal = changing.map(|token| Arc::new(Renewal::start(channel.clone(), token)));
        AuthorizedChannel { _renewal: renewal, ..AuthorizedChannel::new(channel, token) }
    }
}

impl Service<http::Request<Body>> for AuthorizedChannel {
    type Response = http::Response<Body>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.channel.poll_ready(context)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        if let Some(token) = self.token.as_ref().and_then(TokenSource::header) {
            request.headers_mut().insert(http::header::AUTHORIZATION, token);
        }
        Box::pin(self.channel.call(request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_a_token_is_not_left_out() {
        let header = |token: &str| TokenSource::fixed(token).header().map(|value| value.as_bytes().to_vec());
        assert_eq!(header("abc"), Some(b"Bearer abc".to_vec()));
        assert_eq!(header("two\nlines"), Some(b"Bearer unusable".to_vec()));
        assert_eq!(TokenSource::callback(|| None).header(), None);
    }
}
