//! `convoke explain`: a member's status and the evidence for it, in the words of the node.

use super::connect::call;
use crate::args::Id;
use crate::failure::Outcome;
use crate::output::{Palette, Style, print, print_json};
use convoke_proto::v1::{self, ExplainResponse, Status};
use std::fmt::Write;

pub(crate) async fn explain(arguments: &Id) -> Outcome {
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
    for sentence in &told.sentences {
        let _ = writeln!(story, "  - {sentence}");
    }
    story
}

#[cfg(test)]
mod tests {
    use super::*;
    use convoke_testkit::golden;

    #[test]
    fn the_sentences_of_the_node_are_listed() {
        let told = ExplainResponse {
            id: "orders-1".into(),
            status: Status::Up.into(),
            sentences: vec!["Its owner, node n1, reports it up.".into(), "Node n1 is this node.".into()],
            ..ExplainResponse::default()
        };
        golden!("golden/explain.txt", &render(&told, Palette::PLAIN));
    }
}
