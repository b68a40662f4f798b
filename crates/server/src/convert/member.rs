//! Members as shown.

use convoke_node::core::member::{Member, Status};
use convoke_proto::{json, v1};

pub(crate) fn wire_member(member: &Member) -> v1::Member {
    let owner = member.owner();
    v1::Member {
        id: member.id().to_owned(),
        service: member.service().to_owned(),
        locality: member.locality().to_owned(),
        revision: member.revision().to_owned(),
        created: member.created(),
        address: member.address().to_owned(),
        endpoints: member.endpoints().to_map(),
        weight: member.weight().into(),
        metadata: member.metadata().to_map(),
        status: wire_status(member.status()).into(),
        drained: member.drained(),
        owner: Some(v1::Owner { node: owner.node.to_owned(), since: owner.since }),
        version: member.version().to_string(),
        client: member.client().to_owned(),
    }
}

pub(crate) fn json_member(member: &Member) -> json::Member {
    wire_member(member).into()
}

pub(crate) fn wire_status(status: Status) -> v1::Status {
    match status {
        Status::Up => v1::Status::Up,
        Status::Down => v1::Status::Down,
        Status::Left => v1::Status::Left,
    }
}
