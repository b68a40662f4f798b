//! Writes members without a client, for all that the catalog of another system holds.

use super::Copied;
use crate::args::ImportConsulArgs;
use convoke_cli::{CommandError, ConnectArgs, Result, call, exit};
use convoke_core::member::MemberSpec;
use convoke_proto::{json, v1};

/// Registers a member, unless it is here already. `shown` names it in the report.
pub(super) async fn copy(arguments: &ImportConsulArgs, shown: String, spec: MemberSpec, copied: &mut Copied) -> Result {
    let spec = without_checks(spec);
    let connect = &arguments.inspect.connect;
    match held(connect, &spec.id).await? {
        Some(held) if is_same(&held, &spec) => copied.unchanged += 1,
        Some(_) if !arguments.overwrite => copied.conflicts.push(shown),
        _ if arguments.dry_run => copied.copied += 1,
        _ => {
            let request = v1::RegisterMemberRequest { member: Some(spec.into()) };
            match call(connect, async |node| node.admin().register_member(request.clone()).await).await {
                Ok(_) => copied.copied += 1,
                // This member is too large, or a client has its id. Others may be fine.
                Err(CommandError { exit: exit::USAGE | exit::REJECTED, message }) => copied.skip(&shown, message),
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// The catalog of Consul does not contain the definitions of checks.
fn without_checks(spec: MemberSpec) -> json::MemberSpec {
    let MemberSpec { id, service, locality, created, revision, address, endpoints, weight, metadata, checks: _ } = spec;
    let checks = Vec::new();
    json::MemberSpec { id, service, locality, created, revision, address, endpoints, weight, metadata, checks }
}

async fn held(connect: &ConnectArgs, id: &str) -> Result<Option<json::Member>> {
    let request = v1::GetRequest { id: id.to_owned() };
    match call(connect, async |node| node.registry().get(request.clone()).await).await {
        Ok(answer) => Ok(answer.member.map(json::Member::from)),
        Err(CommandError { exit: exit::NOT_FOUND, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_same(held: &json::Member, spec: &json::MemberSpec) -> bool {
    held.service == spec.service
        && held.address == spec.address
        && held.weight == spec.weight.max(1)
        && held.metadata == spec.metadata
}
