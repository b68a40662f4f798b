//! Errors at the start of a server, and errors of the interface.

pub(crate) use convoke_convert::{error as rejected, invalid};
use convoke_proto::{Error, ErrorCode};

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(
        "cannot listen for clients on {address}: {source}; is another node running there? choose another address or port"
    )]
    Bind { address: String, source: std::io::Error },
    #[error(
        "cannot listen for Consul's HTTP API on {address}: {source}; is a Consul agent running there? choose another \
         consul.port"
    )]
    BindConsul { address: String, source: std::io::Error },
    #[error(
        "{address} is reachable from other machines and every process that can connect to it has full access: \
         bind to a loopback address; set tls.client and tls.peer to required and auth.enabled to true; \
         or allow it with insecure_public (--insecure-public)"
    )]
    Public { address: String },
    #[error("access control: {0}")]
    Auth(#[from] crate::access::AuthError),
    #[error(transparent)]
    Audit(#[from] crate::audit::AuditError),
    #[error(transparent)]
    Dns(#[from] convoke_dns::StartError),
    #[error("{0}")]
    Checks(String),
    #[error("{name} is 0: set it to at least 1")]
    Zero { name: &'static str },
}

pub(crate) fn not_ready() -> Error {
    Error::new(ErrorCode::NotReady, "this node does not accept clients now; try another node")
}

pub(crate) fn no_log_plane() -> Error {
    Error::new(ErrorCode::NotReady, "this node runs no log plane: set log.enabled, or use a node that does")
}

pub(crate) fn no_member(id: &str) -> Error {
    Error::new(ErrorCode::NotFound, format!("no member {id:?}")).field("id")
}
