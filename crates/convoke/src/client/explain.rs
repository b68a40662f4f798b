//! `convoke explain`: the status of a member and the evidence for it.

use crate::args::Id;
use convoke_cli::output::{Palette, Style, ago, print, print_json};
use convoke_cli::{Result, call};
use convoke_proto::v1::{self, ExplainResponse, Status};
use std::fmt::Write;

pub(crate) async fn explain(arguments: &Id) -> Result {
    let request = v1::ExplainRequest { id: arguments.id.clone() };
    let told = call(&arguments.inspect.connect, async |node| node.admin().explain(request.clone()).await).await?;
    if arguments.inspect.json { print_json(&told) } else { print(&render(&told, Palette::of_stdout())) }
}

fn render(told: &ExplainResponse, palette: Palette) -> String {
    let (word, style) = match told.status() {
        Status::Up => ("up", Style::Good),
        Status::Down | Status::Unspecified => ("down", Style::Bad),
        Status::Left => ("left", Style::Dim),
    };
    let mut story = format!("{} is {}\n\n", palette.paint(Style::Bold, &told.id), palette.paint(style, word));
    for sentence in sentences(told) {
        let _ = writeln!(story, "  - {sentence}");
    }
    story
}

fn sentences(told: &ExplainResponse) -> Vec<String> {
    let owner = &told.owner;
    let mut story = vec![match told.stated() {
        Status::Up => format!("Its owner, node {owner}, says that it is up."),
        Status::Down | Status::Unspecified => {
            format!("Its owner, node {owner}, says that it is down: the client was silent for too long.")
        }
        Status::Left => {
            format!("Node {owner} says that it was unregistered, or silent for so long that it counts as that.")
        }
    }];
    if let Some(session) = &told.session {
        let link = if session.connected { "is connected" } else { "has no connection" };
        story.push(format!(
            "Its client {} {link} at this node, was last heard {} ago, and is down after {} of silence.",
            told.client,
            ago(session.silence_ms),
            ago(session.timeout_ms)
        ));
        if session.superseded {
            story.push("Another process with the id of that client took over.".to_owned());
        }
    } else {
        story.push(format!("It was registered by client {}.", told.client));
    }
    if let Some(evidence) = &told.evidence {
        let via = if evidence.via.is_empty() {
            "heard directly".to_owned()
        } else {
            format!("passed on by {}", evidence.via)
        };
        let age = ago(evidence.age_ms);
        story.push(if told.owner_admitted {
            format!("Node {owner} counts as alive: its last sign of life came {age} ago, {via}.")
        } else {
            format!("Node {owner} does not count as alive: its last sign of life came {age} ago, {via}. So what it said last no longer counts.")
        });
    }
    if let Some(inferred) = &told.inferred {
        let counts =
            if inferred.applies { "that counts" } else { "that no longer counts, because it was heard of since" };
        story.push(format!("Node {} wrote the members of {owner} off; {counts}.", inferred.by));
    }
    if !told.responsible.is_empty() {
        story.push(format!("While {owner} is silent, node {} looks after its members.", told.responsible));
    }
    story.push(format!("Version {}, written as {}, claim {}.", told.version, told.written, told.claim));
    story
}

#[cfg(test)]
mod tests {
    use super::*;
    use convoke_testkit::golden;
    use v1::explain_response::{Evidence, Inferred, Session};

    fn up() -> ExplainResponse {
        ExplainResponse {
            id: "orders-1".into(),
            status: Status::Up.into(),
            stated: Status::Up.into(),
            version: "3.1.0000abcd".into(),
            owner: "n1".into(),
            written: "n1@2:17".into(),
            client: "shop".into(),
            claim: 4,
            owner_admitted: true,
            evidence: Some(Evidence { life: 9, age_ms: 0, via: String::new() }),
            inferred: None,
            responsible: String::new(),
            session: Some(Session { silence_ms: 1_200, timeout_ms: 20_000, connected: true, superseded: false }),
            text: String::new(),
        }
    }

    #[test]
    fn the_story_of_a_living_member() {
        golden!("golden/explain_up.txt", &render(&up(), Palette::PLAIN));
    }

    #[test]
    fn the_story_of_a_lost_owner() {
        let told = ExplainResponse {
            status: Status::Left.into(),
            owner_admitted: false,
            evidence: Some(Evidence { life: 9, age_ms: 400_000, via: "n2".into() }),
            inferred: Some(Inferred { by: "n3".into(), life: 9, applies: true }),
            responsible: "n3".into(),
            session: None,
            ..up()
        };
        golden!("golden/explain_left.txt", &render(&told, Palette::PLAIN));
    }
}
