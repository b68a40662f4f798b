//! A Markdown page: prose, and `console` blocks with commands and their output.
//!
//! ```text
//! ```console              commands of the main terminal
//! $ convoke nodes         a command
//! ID  STATE  …            its output
//! ```
//! ```console watch        another terminal, in which one command keeps running
//! owner  web-1  …         without a command: its output since then
//! ```
//! ```

const FENCE: &str = "```";
const PROMPT: &str = "$ ";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    pub pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Lines that are not checked, including other blocks.
    Prose(Vec<String>),
    Block(Block),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Empty for the main terminal.
    pub terminal: String,
    pub steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// `None` for the output of a running command since the last step.
    pub command: Option<String>,
    pub output: Vec<String>,
    /// Line number in the page, from 1.
    pub line: usize,
}

impl Document {
    pub fn parse(text: &str) -> Document {
        let mut pieces = Vec::new();
        let (mut prose, mut block): (Vec<String>, Option<Block>) = (Vec::new(), None);
        // No console block begins inside another block.
        let mut other = false;
        for (index, line) in text.lines().enumerate() {
            match block.take() {
                Some(mut done) if line == FENCE => {
                    if done.steps.is_empty() {
                        done.steps.push(Step { command: None, output: Vec::new(), line: index + 1 });
                    }
                    pieces.push(Piece::Block(done));
                }
                Some(mut open) => {
                    open.take(line, index + 1);
                    block = Some(open);
                }
                None => match line.strip_prefix("```console") {
                    Some(terminal) if !other => {
                        pieces.push(Piece::Prose(std::mem::take(&mut prose)));
                        block = Some(Block { terminal: terminal.trim().to_owned(), steps: Vec::new() });
                    }
                    _ => {
                        other ^= line.starts_with(FENCE);
                        prose.push(line.to_owned());
                    }
                },
            }
        }
        assert!(block.is_none(), "a block is not closed");
        pieces.push(Piece::Prose(prose));
        Document { pieces }
    }

    pub fn render(&self) -> String {
        let mut lines: Vec<String> = Vec::new();
        for piece in &self.pieces {
            match piece {
                Piece::Prose(prose) => lines.extend(prose.iter().cloned()),
                Piece::Block(block) => {
                    lines.push(format!("{FENCE}console {}", block.terminal).trim_end().to_owned());
                    for step in &block.steps {
                        lines.extend(step.command.iter().map(|command| format!("{PROMPT}{command}")));
                        lines.extend(step.output.iter().cloned());
                    }
                    lines.push(FENCE.to_owned());
                }
            }
        }
        lines.join("\n") + "\n"
    }
}

impl Block {
    fn take(&mut self, line: &str, number: usize) {
        if let Some(command) = line.strip_prefix(PROMPT) {
            self.steps.push(Step { command: Some(command.to_owned()), output: Vec::new(), line: number });
            return;
        }
        match self.steps.last_mut() {
            Some(step) => step.output.push(line.to_owned()),
            None => self.steps.push(Step { command: None, output: vec![line.to_owned()], line: number }),
        }
    }
}

#[test]
fn a_page_round_trips() {
    let text = "# Title\n\n```console\n$ echo a\na\n$ echo\n\n```\n\n```sh\n```\n\n```console watch\nmore\n```\nend\n";
    let page = Document::parse(text);
    assert_eq!(page.render(), text);
    let blocks: Vec<&Block> = page
        .pieces
        .iter()
        .filter_map(|piece| if let Piece::Block(block) = piece { Some(block) } else { None })
        .collect();
    assert_eq!(blocks.len(), 2);
    assert_eq!(blocks[0].steps[1], Step { command: Some("echo".into()), output: vec![String::new()], line: 6 });
    assert_eq!((blocks[1].terminal.as_str(), &blocks[1].steps[0].command), ("watch", &None));
}
