//! The health of a member in English, as part of its explanation.

use convoke_core::member::{Health, Member, Status};

/// Explains the health of a member that has checks. `routed`: whether it gets traffic.
pub(crate) fn health(member: &Member, routed: bool) -> Option<String> {
    let checks = member.checks()?;
    let (check, result) = checks.iter().find(|(_, result)| result.status == member.health())?;
    let traffic = match (member.health(), routed) {
        (Health::Passing, _) => return Some(format!("Its {} checks pass.", checks.results().len())),
        (Health::Critical, true) => " It still gets traffic, because most members of its service are critical.",
        (Health::Critical, false) if member.status() == Status::Up => " It gets no traffic.",
        (Health::Warning | Health::Critical, _) => "",
    };
    let output: String = result.output.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let output = if output.is_empty() { "it has not run yet" } else { output.trim() };
    Some(format!("Check {:?}, run by node {}, is {}: {output}.{traffic}", check.id, member.owner().node, result.status))
}
