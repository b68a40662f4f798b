//! Members.

use convoke_core::member::Member;
use convoke_proto::v1;

pub fn member(member: &Member) -> v1::Member {
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
        status: v1::Status::from(member.status()).into(),
        drained: member.drained(),
        owner: Some(v1::Owner { node: owner.node.to_owned(), since: owner.since }),
        version: member.version().to_string(),
        client: member.client().to_owned(),
    }
}
