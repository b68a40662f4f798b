//! The token that a client shows with every call.

use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::transport::Error;

/// A file is read again after this time, so that a renewed token is used without a restart.
const FILE_INTERVAL: Duration = Duration::from_secs(1);

/// Provides the token of a client. The client asks it for every call and every new stream, so it may change at any time.
#[derive(Clone)]
pub struct TokenSource(Arc<dyn Fn() -> Option<String> + Send + Sync>);

impl fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenSource(secret)")
    }
}

impl TokenSource {
    /// One token.
    pub fn fixed(token: impl Into<String>) -> TokenSource {
        let token = token.into().trim().to_owned();
        TokenSource(Arc::new(move || Some(token.clone())))
    }

    /// The content of a file. It is read again when it may have changed. While it cannot be read, its last content is used.
    pub fn file(path: impl Into<PathBuf>) -> TokenSource {
        let path = path.into();
        let read: Mutex<Option<(Instant, Option<String>)>> = Mutex::new(None);
        TokenSource(Arc::new(move || {
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
        }))
    }

    /// A function that returns the current token, for example from a secret store. It must not block.
    pub fn callback(current: impl Fn() -> Option<String> + Send + Sync + 'static) -> TokenSource {
        TokenSource(Arc::new(current))
    }

    fn header(&self) -> Option<http::HeaderValue> {
        let mut value = http::HeaderValue::try_from(format!("Bearer {}", (self.0)()?)).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

/// A channel whose calls carry a token.
#[derive(Clone, Debug)]
pub struct AuthorizedChannel {
    channel: tonic::transport::Channel,
    token: Option<TokenSource>,
}

impl AuthorizedChannel {
    pub fn new(channel: tonic::transport::Channel, token: Option<TokenSource>) -> AuthorizedChannel {
        AuthorizedChannel { channel, token }
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
