//! The explanation of a member's status in English. The command line and the dashboard show these sentences.

use convoke_base::date_time;
use convoke_core::member::{AGENTLESS_CLIENT, Status};
use convoke_core::node::{Departure, Explanation, MaintenanceView};
use convoke_core::version::NodeId;
use std::time::Duration;

/// When this node received the changes that still hold, in UNIX milliseconds; `None` if it no longer keeps them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Since {
    /// The status that it shows.
    pub(super) shown: Option<u64>,
    /// The drain mark.
    pub(super) drained: Option<u64>,
}

/// Returns the explanation as a list of sentences. `own` is the id of this node.
pub(super) fn sentences(explanation: &Explanation, own: &NodeId, since: Since) -> Vec<String> {
    let owner = &explanation.written.origin.node;
    let mut sentences = vec![report(explanation)];
    let shown = match explanation.shown {
        Status::Up => "up",
        Status::Down => "down",
        Status::Left => "left",
    };
    sentences.extend(since.shown.map(|since| format!("This node shows it as {shown} since {}.", date_time(since))));
    if explanation.drained {
        sentences.push(match since.drained {
            Some(since) => format!("It is drained since {}: it stays listed and gets no traffic.", date_time(since)),
            None => "It is drained: it stays listed and gets no traffic.".to_owned(),
        });
        if let Some(MaintenanceView { reason, remaining }) = &explanation.maintenance {
            if !reason.is_empty() {
                sentences.push(format!("The reason of the drain: {reason}."));
            }
            sentences.extend(remaining.map(|left| format!("The drain ends by itself in {}.", minutes(left))));
        }
        sentences.push("The audit log of the node that took the request names the operator.".to_owned());
    }
    sentences.extend(client(explanation));
    let evidence = &explanation.evidence;
    let via = match &evidence.via {
        None => "received directly".to_owned(),
        Some(via) => format!("relayed by {via}"),
    };
    let age = seconds(evidence.age);
    if owner == own {
        sentences.push(format!("Node {owner} is this node."));
    } else if explanation.owner_admitted {
        sentences.push(format!("Node {owner} is alive: last evidence {age} ago, {via}."));
    } else {
        sentences.push(format!("Node {owner} is silent: last evidence {age} ago, {via}."));
        sentences.push(format!("The last report of {owner} no longer counts."));
    }
    if let Some(inferred) = &explanation.inferred {
        let by = &inferred.by;
        sentences.push(match inferred.applies {
            true => format!("Node {by} expired the members of {owner}."),
            false => format!("Node {by} expired the members of {owner}, but {owner} has returned since."),
        });
    }
    if let Some(responsible) = &explanation.responsible {
        sentences
            .push(format!("Node {responsible} is responsible for the members of {owner} while {owner} is silent."));
    }
    let Explanation { version, written, claim, .. } = explanation;
    sentences.push(format!("Version {version}, written as {written}, claim {claim}."));
    sentences
}

/// The last statement of the owner, or of the node that expired the member.
fn report(explanation: &Explanation) -> String {
    let owner = &explanation.written.origin.node;
    let reports = format!("Its owner, node {owner}, reports it");
    match (explanation.stated, explanation.departure) {
        (Status::Left, Some(Departure { expired: false, age })) => {
            format!("Its client unregistered it {} ago at node {owner}.", seconds(age))
        }
        (Status::Left, departure) => {
            let age = seconds(departure.map(|departure| departure.age).unwrap_or_default());
            format!("It expired {age} ago at node {owner}: its client did not return in time.")
        }
        (Status::Up, Some(Departure { age, .. })) => {
            format!("It expired {} ago, although its owner, node {owner}, last reported it up.", seconds(age))
        }
        (Status::Up, None) => format!("{reports} up."),
        (Status::Down, _) => match &explanation.session {
            Some(session) if session.cut => format!("{reports} down because the connection of its client was lost."),
            Some(_) => format!("{reports} down because its client timed out."),
            None => format!("{reports} down because its client timed out or lost its connection."),
        },
    }
}

fn client(explanation: &Explanation) -> Vec<String> {
    let client = &explanation.client;
    if client == AGENTLESS_CLIENT {
        return vec!["It was registered without a client, so it stays up until it is deregistered.".to_owned()];
    }
    let Some(session) = &explanation.session else { return vec![format!("It was registered by client {client}.")] };
    let connected = if session.connected { "is connected" } else { "is not connected" };
    let (silence, timeout) = (seconds(session.silence), seconds(session.timeout));
    let mut sentences =
        vec![format!("Its client {client} {connected} to this node: last heartbeat {silence} ago, timeout {timeout}.")];
    if session.superseded {
        sentences.push(format!("Another process with the client id {client} has superseded its client."));
    }
    sentences
}

/// Minutes are exact enough for an operator, except for the last ones.
fn minutes(duration: Duration) -> String {
    match duration.as_secs() {
        secs @ 0..600 => format!("{secs} s"),
        secs => format!("{} min", secs / 60),
    }
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use convoke_core::node::{EvidenceView, InferredView, SessionView};
    use convoke_core::version::{Dot, Incarnation, OriginId, Version};

    fn node(name: &str) -> NodeId {
        NodeId::new(name).unwrap()
    }

    fn up() -> Explanation {
        let origin = OriginId { node: node("n1"), incarnation: Incarnation { number: 2, nonce: 0xabcd } };
        Explanation {
            id: "orders-1".into(),
            shown: Status::Up,
            stated: Status::Up,
            version: Version { claim: 4, seq: 1, tag: 0xabcd, inferred: None },
            written: Dot { origin, n: 17 },
            client: "shop".into(),
            claim: 4,
            drained: false,
            maintenance: None,
            departure: None,
            owner_admitted: true,
            evidence: EvidenceView { liveness_counter: 9, age: Duration::ZERO, via: None },
            inferred: None,
            responsible: None,
            session: Some(SessionView {
                silence: Duration::from_millis(1_200),
                timeout: Duration::from_secs(20),
                connected: true,
                cut: false,
                superseded: false,
            }),
        }
    }

    #[test]
    fn a_member_that_is_up_at_its_owner() {
        let found = sentences(&up(), &node("n1"), Since::default());
        assert_eq!(
            found,
            [
                "Its owner, node n1, reports it up.",
                "Its client shop is connected to this node: last heartbeat 1.2 s ago, timeout 20.0 s.",
                "Node n1 is this node.",
                "Version 4.1.0000abcd, written as n1/2~abcd:17, claim 4.",
            ]
        );
        let away = Explanation { session: None, ..up() };
        let found = sentences(&away, &node("n2"), Since::default());
        assert_eq!(found[1], "It was registered by client shop.");
        let agentless = Explanation { client: AGENTLESS_CLIENT.into(), ..away.clone() };
        let found_agentless = sentences(&agentless, &node("n2"), Since::default());
        assert_eq!(found_agentless[1], "It was registered without a client, so it stays up until it is deregistered.");
        assert_eq!(found[2], "Node n1 is alive: last evidence 0.0 s ago, received directly.");
    }

    #[test]
    fn the_reason_of_a_lost_member_is_named() {
        let first =
            |explanation: &Explanation, own: &str| sentences(explanation, &node(own), Since::default()).swap_remove(0);
        let left = |expired| Explanation {
            shown: Status::Left,
            stated: Status::Left,
            departure: Some(Departure { expired, age: Duration::from_secs(34) }),
            session: None,
            ..up()
        };
        assert_eq!(first(&left(false), "n2"), "Its client unregistered it 34.0 s ago at node n1.");
        assert_eq!(first(&left(true), "n2"), "It expired 34.0 s ago at node n1: its client did not return in time.");
        let inferred = Explanation { stated: Status::Up, ..left(true) };
        assert_eq!(first(&inferred, "n2"), "It expired 34.0 s ago, although its owner, node n1, last reported it up.");
        let down = Explanation { shown: Status::Down, stated: Status::Down, ..up() };
        assert_eq!(first(&down, "n1"), "Its owner, node n1, reports it down because its client timed out.");
        let session = down.session.clone().map(|session| SessionView { connected: false, cut: true, ..session });
        let cut = Explanation { session, ..down.clone() };
        let lost = "Its owner, node n1, reports it down because the connection of its client was lost.";
        assert_eq!(first(&cut, "n1"), lost);
        let elsewhere = Explanation { session: None, ..down };
        assert!(first(&elsewhere, "n2").ends_with("timed out or lost its connection."));
    }

    #[test]
    fn drains_and_times_are_mentioned() {
        let drained = Explanation { drained: true, ..up() };
        let since = Since { shown: Some(1_794_895_854_999), drained: Some(1_794_895_914_999) };
        assert_eq!(
            sentences(&drained, &node("n1"), since)[1..4],
            [
                "This node shows it as up since 2026-11-17 06:10:54 UTC.",
                "It is drained since 2026-11-17 06:11:54 UTC: it stays listed and gets no traffic.",
                "The audit log of the node that took the request names the operator.",
            ]
        );
        let forgotten = &sentences(&drained, &node("n1"), Since::default())[1];
        assert_eq!(forgotten, "It is drained: it stays listed and gets no traffic.");
    }

    #[test]
    fn reason_and_end_of_a_drain_are_mentioned() {
        let maintenance = |reason: &str, remaining| Some(MaintenanceView { reason: reason.into(), remaining });
        let with =
            |maintenance| sentences(&Explanation { drained: true, maintenance, ..up() }, &node("n1"), Since::default());
        let half_an_hour = Duration::from_millis(1_799_900);
        let told = with(maintenance("new disk", Some(half_an_hour)));
        assert_eq!(told[2..4], ["The reason of the drain: new disk.", "The drain ends by itself in 29 min."]);
        assert_eq!(with(maintenance("", Some(Duration::from_secs(20))))[2], "The drain ends by itself in 20 s.");
        assert!(with(maintenance("new disk", None))[3].starts_with("The audit log"));
    }

    #[test]
    fn a_member_of_a_silent_owner() {
        let silent = Explanation {
            shown: Status::Left,
            owner_admitted: false,
            evidence: EvidenceView { liveness_counter: 9, age: Duration::from_secs(400), via: Some(node("n2")) },
            inferred: Some(InferredView { by: node("n3"), liveness_counter: 9, applies: true }),
            responsible: Some(node("n3")),
            session: None,
            ..up()
        };
        assert_eq!(
            sentences(&silent, &node("n2"), Since::default())[2..6],
            [
                "Node n1 is silent: last evidence 400.0 s ago, relayed by n2.",
                "The last report of n1 no longer counts.",
                "Node n3 expired the members of n1.",
                "Node n3 is responsible for the members of n1 while n1 is silent.",
            ]
        );
        let returned = InferredView { by: node("n3"), liveness_counter: 9, applies: false };
        let back = Explanation { inferred: Some(returned), ..up() };
        let expected = "Node n3 expired the members of n1, but n1 has returned since.";
        assert!(sentences(&back, &node("n2"), Since::default()).iter().any(|sentence| sentence == expected));
    }
}
