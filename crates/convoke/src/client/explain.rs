//! `convoke explain`: a member's status and the evidence for it, as the node explains it. Locks explain themselves, and so do
//! the grants of a token.

use super::coordination::explain_lock;
use crate::args::ExplainArgs;
use convoke_cli::output::{Palette, Style, print, print_json};
use convoke_cli::{Result, call};
use convoke_proto::v1::{self, ExplainResponse, Status};
use std::fmt::Write;

pub(crate) async fn explain(arguments: &ExplainArgs) -> Result {
    if let Some(grant) = &arguments.grant {
        return crate::grants::explain(grant, arguments.inspect.connect.token_file.as_deref(), arguments.inspect.json);
    }
    let place = arguments.lock.as_ref().map(|name| (name, false));
    if let Some((name, election)) = place.or(arguments.election.as_ref().map(|name| (name, true))) {
        return explain_lock(&arguments.inspect, name, election).await;
    }
    let request = v1::ExplainRequest { id: arguments.id.clone().unwrap_or_default() };
    let explanation =
        call(&arguments.inspect.connect, async |node| node.admin().explain(request.clone()).await).await?;
    if arguments.inspect.json { print_json(&explanation) } else { print(&render(&explanation, Palette::of_stdout())) }
}

fn render(explanation: &ExplainResponse, palette: Palette) -> String {
    let (word, style) = match explanation.status() {
        Status::Up => ("up", Style::Good),
        Status::Down | Status::Unspecified => ("down", Style::Bad),
        Status::Left => ("left", Style::Dim),
    };
    let verb = if explanation.status() == Status::Left { "has" } else { "is" };
    let mut text = format!("{} {verb} {}\n\n", palette.paint(Style::Bold, &explanation.id), palette.paint(style, word));
    for sentence in &explanation.sentences {
        let _ = writeln!(text, "  - {sentence}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use convoke_testkit::golden;

    #[test]
    fn the_sentences_of_the_node_are_listed() {
        let explanation = ExplainResponse {
            id: "orders-1".into(),
            status: Status::Up.into(),
            sentences: vec!["Its owner, node n1, reports it up.".into(), "Node n1 is this node.".into()],
            ..ExplainResponse::default()
        };
        golden!("golden/explain.txt", &render(&explanation, Palette::PLAIN));
    }
}
