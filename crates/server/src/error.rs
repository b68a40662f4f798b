//! Why a server cannot start, and how the core's refusals become errors of the interface.

use convoke_node::core::Refusal;
use convoke_proto::{Code, Error};

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(
        "cannot listen for clients on {address}: {source}; is another node running there? choose another address or port"
    )]
    Bind { address: String, source: std::io::Error },
    #[error(
        "{address} can be reached from other machines, and whoever reaches it may do everything: \
         bind to a loopback address, or allow it with insecure_public (--insecure-public)"
    )]
    Public { address: String },
    #[error(transparent)]
    Dns(#[from] convoke_dns::StartError),
    #[error("{name} is 0: set it to at least 1")]
    Zero { name: &'static str },
}

/// A refusal of the core, as clients see it.
pub(crate) fn refused(refusal: Refusal) -> Error {
    let code = Code::from_str_name(refusal.code.as_str()).unwrap_or(Code::Internal);
    Error {
        field: refusal.field.map(str::to_owned),
        limit: refusal.limit,
        known: refusal.known,
        ..Error::new(code, refusal.message)
    }
}

pub(crate) fn not_ready() -> Error {
    Error::new(Code::NotReady, "this node does not take clients now; try another")
}

pub(crate) fn no_log_plane() -> Error {
    Error::new(Code::NotReady, "this node runs no log plane: set log.enabled, or ask a node that does")
}

pub(crate) fn invalid(field: &str, message: impl Into<String>) -> Error {
    Error::new(Code::InvalidArgument, message).field(field)
}

pub(crate) fn no_member(id: &str) -> Error {
    Error::new(Code::NotFound, format!("no member {id:?}")).field("id")
}

#[cfg(test)]
mod tests {
    use super::*;
    use convoke_node::core::Code as Core;

    /// Every code of the core has its row in the interface's table.
    #[test]
    fn every_refusal_has_a_code_of_the_interface() {
        for code in [
            Core::InvalidMember,
            Core::InvalidFilter,
            Core::InvalidArgument,
            Core::PermissionDenied,
            Core::NotFound,
            Core::NotRegistered,
            Core::SessionGone,
            Core::AlreadyRegistered,
            Core::TakenOver,
            Core::Superseded,
            Core::StaleEpoch,
            Core::StaleVersion,
            Core::TooLarge,
            Core::ResourceExhausted,
            Core::NotReady,
        ] {
            let error = refused(Refusal::new(code, "m").field("id").limit(3_u64));
            assert_eq!(error.code.as_str(), code.as_str());
            assert_eq!((error.field.as_deref(), error.limit), (Some("id"), Some(3)));
        }
    }
}
