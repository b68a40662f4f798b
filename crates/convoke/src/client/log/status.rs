//! `convoke log status`

use convoke_cli::output::{Palette, Style, Table, counted, facts, print, print_json};
use convoke_cli::{ConnectArgs, NodeChannel, Result, call, tls, token};
use convoke_proto::v1;

pub(super) async fn status(connect: &ConnectArgs, json: bool) -> Result {
    let mut status = call(connect, async |node| node.log().status(v1::LogStatusRequest {}).await).await?;
    let asks_leader = !status.settled || status.level > 0;
    if let Some(leader) = at_leader(&status, connect).await.filter(|_| asks_leader) {
        if !status.settled && status.obstacle.is_empty() {
            status.obstacle = leader.obstacle;
        }
        status.level_obstacle = leader.level_obstacle;
    }
    if json { print_json(&status) } else { print(&render(&status, Palette::of_stdout())) }
}

/// Returns the status at the leader: only the leader knows why the group has not adopted its configuration, and which
/// replicas hold the feature level back.
async fn at_leader(status: &v1::LogStatusResponse, connect: &ConnectArgs) -> Option<v1::LogStatusResponse> {
    let leader = status.replicas.iter().find(|member| member.leader && member.node != status.node)?;
    let node = NodeChannel::lazy(&leader.address, connect.timeout, tls(connect).ok()?, token(connect).ok()?).ok()?;
    let leader = node.log().status(v1::LogStatusRequest {}).await.ok()?.into_inner();
    Some(leader).filter(|leader| leader.log == status.log)
}

fn render(status: &v1::LogStatusResponse, palette: Palette) -> String {
    let state = match (status.available, status.fault.as_str()) {
        (_, fault) if !fault.is_empty() => palette.paint(Style::Bad, &format!("stopped: {fault}")),
        (true, _) => palette.paint(Style::Good, "available"),
        (false, _) => palette.paint(Style::Bad, "no leader with a majority"),
    };
    let dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    let settled = match (status.settled, status.obstacle.as_str()) {
        (true, _) => String::new(),
        (false, "") => ", not adopted yet".to_owned(),
        (false, obstacle) => format!(", not adopted yet: {obstacle}"),
    };
    let mut shown = vec![
        ("Log", format!("{} ({state})", dash(&status.log))),
        ("Leader", format!("{}, epoch {}", dash(&status.leader), dash(&status.epoch))),
        ("Node", format!("{}, {}{}", status.node, status.role, removed_hint(status))),
    ];
    let failed = !status.fault.is_empty();
    // A node without a replica knows only what the leader reports.
    let unknown = failed || status.role == "outside" && !status.available;
    if status.settled && !status.obstacle.is_empty() {
        shown.push(("Obstacle", palette.paint(Style::Bad, &status.obstacle)));
    }
    if failed {
        shown.push(("Contents", "unknown: the log of this node has failed; ask another node".to_owned()));
        shown.push(("Group", "as last known to this node".to_owned()));
    } else {
        shown.extend([
            (
                "Entries",
                format!(
                    "{} in the log, {} committed, {} applied, snapshot at {}",
                    status.last, status.commit, status.applied, status.snapshot
                ),
            ),
            ("Keys", format!("{}, {} bytes, revision {}", counted(status.keys, "key"), status.bytes, status.revision)),
            ("Sessions", status.sessions.to_string()),
            ("Leases", status.leases.to_string()),
            ("Locks", locks(status)),
            ("Quota", quota(status, palette)),
            ("Group", format!("configuration {}{settled}", status.configuration)),
            ("Level", level(status)),
        ]);
    }
    for (name, problem) in [("Conflict", &status.conflict), ("Divergence", &status.divergence)] {
        if !problem.is_empty() {
            shown.push((name, palette.paint(Style::Bad, problem)));
        }
    }
    let lines = facts(&shown, palette);
    let mut table = Table::new(&["NODE", "REPLICA", "ROLE", "CLIENTS", "PEERS"]);
    for member in &status.replicas {
        let role = match (member.leader, member.voter, member.unreachable) {
            // A replica that has failed does not know how the others are.
            (_, true, _) if failed && member.node == status.node => ("voter, failed", Style::Bad),
            (_, false, _) if failed && member.node == status.node => ("learner, failed", Style::Bad),
            (_, true, false) if unknown => ("voter, state unknown", Style::Dim),
            (_, false, false) if unknown => ("learner, state unknown", Style::Dim),
            (true, _, _) => ("leader", Style::Good),
            (false, true, false) => ("voter", Style::Plain),
            (false, true, true) => ("voter, unreachable", Style::Bad),
            (false, false, false) => ("learner", Style::Dim),
            (false, false, true) => ("learner, unreachable", Style::Bad),
        };
        table.row(vec![
            (member.node.clone(), Style::Plain),
            (member.replica.to_string(), Style::Plain),
            (role.0.to_owned(), role.1),
            (member.address.clone(), Style::Plain),
            (member.peer_address.clone(), Style::Plain),
        ]);
    }
    format!("{lines}\n{}", table.render(palette))
}

/// Returns the locks and elections in use, with their holders and waiters.
fn locks(status: &v1::LogStatusResponse) -> String {
    format!("{} in use, {} held, {} waiting", status.locks, status.lock_holders, status.lock_waiters)
}

/// Returns the limits that are nearly reached.
fn quota(status: &v1::LogStatusResponse, palette: Palette) -> String {
    match status.quota.as_str() {
        "" => "below 80 % of every limit".to_owned(),
        nearly => palette.paint(Style::Bad, nearly),
    }
}

/// Returns the feature level and what holds it back.
fn level(status: &v1::LogStatusResponse) -> String {
    match (status.level, status.level_obstacle.as_str()) {
        (0, _) => "-".to_owned(),
        (level, "") => level.to_string(),
        (level, obstacle) => format!("{level}; {obstacle}"),
    }
}

/// Returns a hint for a node that was removed from the group.
fn removed_hint(status: &v1::LogStatusResponse) -> String {
    if status.role != "removed" {
        return String::new();
    }
    format!(
        " from the group; to add it again: stop it, move its log directory away, start it, run `convoke log add {}`",
        status.node
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use convoke_testkit::golden;

    #[test]
    fn the_status_of_the_log_is_rendered() {
        let replica = |replica: u64, node: &str, leader: bool, voter: bool| v1::Replica {
            replica,
            node: node.into(),
            address: format!("{node}.example:7700"),
            peer_address: format!("{node}.example:7701"),
            voter,
            leader,
            unreachable: false,
        };
        let status = v1::LogStatusResponse {
            leader: "n1".into(),
            voters: vec!["n1".into(), "n2".into()],
            learners: vec!["n3".into()],
            epoch: "4@1".into(),
            commit: 120,
            applied: 119,
            role: "follower".into(),
            node: "n2".into(),
            log: "00ff".into(),
            available: true,
            last: 121,
            snapshot: 100,
            purged: 90,
            revision: 77,
            keys: 1,
            bytes: 300,
            sessions: 2,
            configuration: 8,
            settled: true,
            replicas: vec![replica(1, "n1", true, true), replica(2, "n2", false, true), replica(3, "n3", false, false)],
            fault: String::new(),
            obstacle: String::new(),
            conflict: String::new(),
            divergence: String::new(),
            level: 1,
            level_obstacle: "level 2 is held back: node n3 supports level 1".into(),
            leases: 5,
            locks: 2,
            quota: String::new(),
            lock_holders: 2,
            lock_waiters: 4,
        };
        golden!("golden/log_status.txt", &render(&status, Palette::PLAIN));
        let waiting = v1::LogStatusResponse { settled: false, obstacle: "n3 is unreachable".into(), ..status.clone() };
        let text = render(&waiting, Palette::PLAIN);
        assert!(text.contains("configuration 8, not adopted yet: n3 is unreachable\n"), "{text}");
        let full = v1::LogStatusResponse { quota: "the log is nearly full: keys 9 of 10".into(), ..status.clone() };
        let text = render(&full, Palette::PLAIN);
        assert!(text.contains("Quota     the log is nearly full: keys 9 of 10\n"), "{text}");
        let mut dead = status.clone();
        dead.replicas[1].unreachable = true;
        assert!(render(&dead, Palette::PLAIN).contains("n2    2        voter, unreachable"));
        let failed = v1::LogStatusResponse {
            fault: "No space left on device".into(),
            role: "failed".into(),
            leader: String::new(),
            epoch: String::new(),
            available: false,
            last: 0,
            keys: 0,
            configuration: 0,
            ..status.clone()
        };
        golden!("golden/log_status_failed.txt", &render(&failed, Palette::PLAIN));
        let removed = v1::LogStatusResponse { role: "removed".into(), ..status };
        let text = render(&removed, Palette::PLAIN);
        assert!(text.contains("n2, removed from the group") && text.contains("`convoke log add n2`"), "{text}");
    }
}
