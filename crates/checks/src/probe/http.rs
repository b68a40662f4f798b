//! Checks by an HTTP request. Redirects are not followed: the new address would not be the registered one.

use super::{Network, ProbeError, host_of};
use crate::schedule::RunResult;
use ::http::header::{CONNECTION, HOST, USER_AGENT};
use ::http::{Method, Request, StatusCode, Uri};
use bytes::Bytes;
use convoke_core::member::{Health, HttpProbe, beginning};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

/// Bytes of a response body that are read.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a response body in the output of a failed check.
const SHOWN_BYTES_MAX: usize = 512;
/// Bytes of the headers of a response.
const HEADER_BYTES_MAX: usize = 16 * 1024;

impl Network {
    pub(super) async fn http(&self, probe: &HttpProbe) -> Result<RunResult, ProbeError> {
        let uri: Uri = probe.url.parse().map_err(|error| ProbeError::failed("the URL is not valid", error))?;
        let is_tls = uri.scheme_str() == Some("https");
        let authority = uri.authority().ok_or_else(|| ProbeError::Failed("the URL has no host".to_owned()))?;
        let port = authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let address = format!("{}:{port}", authority.host());
        let request = request(probe, &uri, authority.as_str())?;
        let socket = self.guard.connect(&address).await?;
        if is_tls {
            let secured = self.tls.connect(socket, host_of(&address), &probe.tls, "http/1.1").await;
            let secured = secured.map_err(|error| ProbeError::failed("TLS failed", error))?;
            exchange(secured, request, probe).await
        } else {
            exchange(socket, request, probe).await
        }
    }
}

fn request(probe: &HttpProbe, uri: &Uri, authority: &str) -> Result<Request<Full<Bytes>>, ProbeError> {
    let method = if probe.method.is_empty() { Method::GET } else { method(&probe.method)? };
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let mut request = Request::builder().method(method).uri(path);
    let given = |name: &str| probe.headers.keys().any(|key| key.eq_ignore_ascii_case(name));
    if !given("host") {
        request = request.header(HOST, authority);
    }
    if !given("user-agent") {
        request = request.header(USER_AGENT, "convoke-check");
    }
    for (name, value) in &probe.headers {
        request = request.header(name, value);
    }
    let request = request.header(CONNECTION, "close").body(Full::from(probe.body.clone()));
    // The error could contain the value of a header.
    request.map_err(|_| ProbeError::Failed("the request is not valid: see its method and headers".to_owned()))
}

fn method(name: &str) -> Result<Method, ProbeError> {
    name.parse().map_err(|error| ProbeError::failed("the method is not valid", error))
}

async fn exchange<S>(socket: S, request: Request<Full<Bytes>>, probe: &HttpProbe) -> Result<RunResult, ProbeError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let failed = |error: hyper::Error| ProbeError::failed("no valid response", error);
    let mut builder = http1::Builder::new();
    builder.max_buf_size(HEADER_BYTES_MAX);
    let (mut sender, connection) = builder.handshake(TokioIo::new(socket)).await.map_err(failed)?;
    let exchanging = async {
        let response = sender.send_request(request).await.map_err(failed)?;
        let status = response.status();
        // What is beyond the limit is not read. The status alone may be enough.
        let body = read_body(response.into_body()).await;
        Ok::<_, ProbeError>((status, body))
    };
    let mut exchanging = std::pin::pin!(exchanging);
    let mut connection = std::pin::pin!(connection);
    let (status, body) = tokio::select! {
        biased;
        answered = &mut exchanging => answered?,
        ended = &mut connection => {
            ended.map_err(failed)?;
            exchanging.await?
        }
    };
    Ok(judge(probe, status, &body))
}

/// The beginning of a body, up to the limit.
async fn read_body(body: hyper::body::Incoming) -> Vec<u8> {
    let mut body = Limited::new(body, BODY_BYTES_MAX);
    let mut bytes = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        if let Ok(data) = frame.into_data() {
            bytes.extend_from_slice(&data);
        }
    }
    bytes
}

/// The output of a passing check contains no body: it would change with every run, and each change is replicated.
fn judge(probe: &HttpProbe, status: StatusCode, body: &[u8]) -> RunResult {
    let code = status.as_u16();
    let expected = match probe.expected_status.as_slice() {
        [] if status == StatusCode::TOO_MANY_REQUESTS => Health::Warning,
        [] if status.is_success() => Health::Passing,
        ranges if ranges.iter().any(|(first, last)| (*first..=*last).contains(&code)) => Health::Passing,
        _ => Health::Critical,
    };
    let text = String::from_utf8_lossy(body);
    let contained = probe.body_contains.is_empty() || text.contains(&probe.body_contains);
    if expected != Health::Critical && contained {
        return RunResult { status: expected, output: format!("HTTP {status}") };
    }
    let shown = beginning(&text, SHOWN_BYTES_MAX);
    let reason = if expected == Health::Critical { "" } else { ", but the body lacks the expected text" };
    RunResult { status: Health::Critical, output: format!("HTTP {status}{reason}: {shown}") }
}
