//! The explanation of a member's status in English. The command line and the dashboard show these sentences.

use convoke_core::member::Status;
use convoke_core::node::Explanation;
use convoke_core::version::NodeId;
use std::time::Duration;

/// Returns the explanation as a list of sentences. `own` is the id of this node.
pub(super) fn sentences(explanation: &Explanation, own: &NodeId) -> Vec<String> {
    let owner = &explanation.written.origin.node;
    let reported = match explanation.stated {
        Status::Up => "up",
        Status::Down => "down because its client timed out",
        Status::Left => "left because it was unregistered or its session expired",
    };
    let mut sentences = vec![format!("Its owner, node {owner}, reports it {reported}.")];
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

fn client(explanation: &Explanation) -> Vec<String> {
    let client = &explanation.client;
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
            owner_admitted: true,
            evidence: EvidenceView { liveness_counter: 9, age: Duration::ZERO, via: None },
            inferred: None,
            responsible: None,
            session: Some(SessionView {
                silence: Duration::from_millis(1_200),
                timeout: Duration::from_secs(20),
                connected: true,
                superseded: false,
            }),
        }
    }

    #[test]
    fn a_member_that_is_up_at_its_owner() {
        let found = sentences(&up(), &node("n1"));
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
        let found = sentences(&away, &node("n2"));
        assert_eq!(found[1], "It was registered by client shop.");
        assert_eq!(found[2], "Node n1 is alive: last evidence 0.0 s ago, received directly.");
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
            sentences(&silent, &node("n2"))[2..6],
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
        assert!(sentences(&back, &node("n2")).iter().any(|sentence| sentence == expected));
    }
}
