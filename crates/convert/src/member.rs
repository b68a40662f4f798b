//! Members.

use convoke_core::member::{Check, CheckResult, Member};
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
        maintenance: member
            .maintenance()
            .map(|maintenance| v1::Maintenance { reason: maintenance.reason().to_owned(), until: maintenance.until() }),
        owner: Some(v1::Owner { node: owner.node.to_owned(), since: owner.since }),
        version: member.version().to_string(),
        client: member.client().to_owned(),
        health: v1::Health::from(member.health()).into(),
        checks: member.checks().map_or_else(Vec::new, |checks| checks.iter().map(check_status).collect()),
    }
}

/// A check as shown: without what it sends.
fn check_status((check, result): (&Check, &CheckResult)) -> v1::CheckStatus {
    v1::CheckStatus {
        id: check.id.clone(),
        name: check.name.clone(),
        notes: check.notes.clone(),
        r#type: check.probe.kind().to_owned(),
        target: check.probe.target(),
        status: v1::Health::from(result.status).into(),
        output: result.output.clone(),
        since: result.since,
        interval_ms: check.interval_ms,
        timeout_ms: check.timeout_ms,
        ttl_ms: check.probe.ttl_ms().unwrap_or_default(),
    }
}
