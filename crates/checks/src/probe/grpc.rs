//! Checks by the health service of gRPC, `grpc.health.v1.Health/Check`.

use super::{Network, ProbeError, host_of};
use crate::schedule::RunResult;
use ::http::{Method, Request, header};
use bytes::{BufMut, Bytes, BytesMut};
use convoke_core::member::{Health, ProbeTls};
use tokio::io::{AsyncRead, AsyncWrite};

const PATH: &str = "/grpc.health.v1.Health/Check";
/// Bytes of a response that are read.
const RESPONSE_BYTES_MAX: usize = 4 * 1024;
/// Value of `ServingStatus` for a service that serves.
const SERVING: u64 = 1;

impl Network {
    pub(super) async fn grpc(
        &self,
        address: &str,
        service: &str,
        tls: Option<&ProbeTls>,
    ) -> Result<RunResult, ProbeError> {
        let socket = self.guard.connect(address).await?;
        match tls {
            Some(tls) => {
                let secured = self.tls.connect(socket, host_of(address), tls, "h2").await;
                let secured = secured.map_err(|error| ProbeError::failed("TLS failed", error))?;
                call(secured, "https", address, service).await
            }
            None => call(socket, "http", address, service).await,
        }
    }
}

async fn call<S>(socket: S, scheme: &str, address: &str, service: &str) -> Result<RunResult, ProbeError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let failed = |error: h2::Error| ProbeError::failed("no valid response", error);
    let (client, connection) = h2::client::handshake(socket).await.map_err(failed)?;
    let request = Request::builder()
        .method(Method::POST)
        .uri(format!("{scheme}://{address}{PATH}"))
        .header(header::CONTENT_TYPE, "application/grpc")
        .header(header::TE, "trailers")
        .body(())
        .map_err(|error| ProbeError::failed("the address is not valid", error))?;
    let calling = async {
        let mut client = client.ready().await.map_err(failed)?;
        let (response, mut stream) = client.send_request(request, false).map_err(failed)?;
        stream.send_data(encode(service), true).map_err(failed)?;
        let (parts, mut body) = response.await.map_err(failed)?.into_parts();
        let mut bytes = BytesMut::new();
        while let Some(data) = body.data().await {
            let data = data.map_err(failed)?;
            if bytes.len() + data.len() > RESPONSE_BYTES_MAX {
                return Err(ProbeError::Failed(format!("the response has more than {RESPONSE_BYTES_MAX} bytes")));
            }
            let _ = body.flow_control().release_capacity(data.len());
            bytes.extend_from_slice(&data);
        }
        let trailers = body.trailers().await.map_err(failed)?.unwrap_or_default();
        let code = trailers.get("grpc-status").or_else(|| parts.headers.get("grpc-status"));
        let code = code.and_then(|code| code.to_str().ok()?.parse::<u32>().ok());
        Ok((parts.status, code, bytes.freeze()))
    };
    // The connection is driven by this task as well, and ends with it.
    let (status, code, body) = tokio::select! {
        biased;
        answered = calling => answered?,
        ended = connection => {
            let reason = ended.err().map_or_else(|| "closed".to_owned(), |error| error.to_string());
            return Err(ProbeError::Failed(format!("the connection ended without a response: {reason}")));
        }
    };
    Ok(match (code, serving_status(&body)) {
        (Some(0), Some(SERVING)) => RunResult { status: Health::Passing, output: "gRPC SERVING".to_owned() },
        (Some(0), Some(other)) => {
            let name = if other == 2 { "NOT_SERVING" } else { "UNKNOWN" };
            RunResult { status: Health::Critical, output: format!("gRPC {name}") }
        }
        (Some(0), None) => RunResult { status: Health::Critical, output: "gRPC response without a status".to_owned() },
        (Some(code), _) => RunResult { status: Health::Critical, output: format!("gRPC status code {code}") },
        (None, _) => RunResult { status: Health::Critical, output: format!("HTTP {status} without a gRPC status") },
    })
}

/// A frame with a `HealthCheckRequest`, whose only field is the name of the service. Names have at most 256 bytes.
fn encode(service: &str) -> Bytes {
    let mut message = BytesMut::new();
    if !service.is_empty() {
        message.put_u8(0x0a);
        let mut length = service.len();
        while length >= 0x80 {
            message.put_u8((length & 0x7f) as u8 | 0x80);
            length >>= 7;
        }
        message.put_u8(length as u8);
        message.extend_from_slice(service.as_bytes());
    }
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(message.len() as u32);
    frame.extend_from_slice(&message);
    frame.freeze()
}

/// The status in a frame with a `HealthCheckResponse`: field 1. An absent one is 0, unknown.
fn serving_status(frame: &[u8]) -> Option<u64> {
    match frame.get(5..)? {
        [] => Some(0),
        [0x08, status, ..] if *status < 0x80 => Some(u64::from(*status)),
        _ => None,
    }
}
