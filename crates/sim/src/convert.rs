//! Conversions between the wire types and the core's types: the server's, for messages that the SDK sends and receives.

use convoke_convert as shared;
pub use convoke_convert::{event, notice, resume};
use convoke_core::Rejection;
use convoke_core::member::MetadataUpdate;
use convoke_core::node::{Attach, AttachMember, Attached};
use convoke_core::version::Version;
use convoke_proto::{Error, v1};

pub fn error(rejection: Rejection) -> v1::Error {
    shared::error(rejection).into()
}

pub fn register(register: v1::Register) -> AttachMember {
    shared::attach_member(register).expect("the SDK sends members whose weight is in range")
}

pub fn attach(mut attach: v1::Attach) -> Attach {
    let members = std::mem::take(&mut attach.members).into_iter().map(register).collect();
    let unregistered = std::mem::take(&mut attach.unregistered);
    shared::attach(attach, members, unregistered)
}

pub fn attached(claim: u64, node: &str, attached: Attached) -> v1::Attached {
    let head = shared::attached(claim, node, &attached);
    let versions = attached.versions.into_iter().map(|(id, version)| shared::versioned(id, version));
    let rejected = attached.rejected.into_iter().map(|(id, rejection)| shared::rejected_member(id, rejection));
    v1::Attached { versions: versions.collect(), rejected: rejected.collect(), ..head }
}

pub fn update(update: v1::Update) -> Result<(String, MetadataUpdate, Option<Version>), Error> {
    shared::metadata_update(update)
}
