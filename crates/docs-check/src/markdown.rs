//! A Markdown page as the checks need it: headings, links, code blocks and lines of prose.

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Stands for a piece of inline code in the visible text of a line.
pub(crate) const CODE: char = '\u{fffc}';

#[derive(Debug, Default)]
pub(crate) struct Page {
    /// Identifiers of headings, as GitHub and mdBook derive them.
    pub(crate) anchors: BTreeSet<String>,
    pub(crate) links: Vec<Link>,
    pub(crate) blocks: Vec<CodeBlock>,
    /// Lines that belong to paragraphs and list items, by line number. Tables, code and headings are not among them.
    pub(crate) prose: BTreeMap<usize, Line>,
}

#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) line: usize,
    pub(crate) target: String,
}

#[derive(Debug)]
pub(crate) struct CodeBlock {
    pub(crate) line: usize,
    /// The words behind the fence; `None` for an indented block.
    pub(crate) info: Option<String>,
}

#[derive(Debug, Default)]
pub(crate) struct Line {
    /// The text without markup and link targets; [`CODE`] for inline code.
    pub(crate) text: String,
    /// Characters of link targets in the source of this line.
    pub(crate) link_columns: usize,
    /// Whether the paragraph continues in the next line.
    pub(crate) continued: bool,
}

/// Parses a page.
pub(crate) fn parse(source: &str) -> Page {
    let lines = LineNumbers::of(source);
    let mut page = Page::default();
    let mut heading: Option<String> = None;
    // Depth of elements whose text is not prose.
    let mut no_prose = 0_usize;
    for (event, range) in Parser::new_ext(source, Options::ENABLE_TABLES).into_offset_iter() {
        let line = lines.at(range.start);
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => {
                let slug = slug(&heading.take().unwrap_or_default());
                let number = (0..).find(|number| !page.anchors.contains(&numbered(&slug, *number)));
                page.anchors.insert(numbered(&slug, number.unwrap_or_default()));
            }
            Event::Start(Tag::CodeBlock(kind)) => {
                no_prose += 1;
                let info = match kind {
                    CodeBlockKind::Fenced(info) => Some(info.into_string()),
                    CodeBlockKind::Indented => None,
                };
                page.blocks.push(CodeBlock { line, info });
            }
            Event::Start(Tag::Table(_) | Tag::HtmlBlock) => no_prose += 1,
            Event::End(TagEnd::Table | TagEnd::HtmlBlock | TagEnd::CodeBlock) => no_prose -= 1,
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                if heading.is_none() && no_prose == 0 {
                    let last = lines.at(range.end.saturating_sub(1));
                    page.prose.entry(last).or_default().link_columns += dest_url.chars().count();
                }
                page.links.push(Link { line, target: dest_url.into_string() });
            }
            Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => {
                let anchors = html_anchors(&source[valid(source, &range)]);
                page.anchors.extend(anchors);
                match &mut heading {
                    Some(heading) => heading.push_str(&text),
                    None if no_prose == 0 => page.prose.entry(line).or_default().text.push_str(&text),
                    None => {}
                }
            }
            Event::Code(code) => match &mut heading {
                Some(heading) => heading.push_str(&code),
                None if no_prose == 0 => {
                    let last = lines.at(range.end.saturating_sub(1));
                    page.prose.entry(last).or_default().text.push(CODE);
                }
                None => {}
            },
            Event::SoftBreak if heading.is_none() && no_prose == 0 => {
                page.prose.entry(line).or_default().continued = true;
            }
            _ => {}
        }
    }
    page
}

fn valid(source: &str, range: &Range<usize>) -> Range<usize> {
    range.start..range.end.min(source.len())
}

/// `<a id="…">` and `<a name="…">`.
fn html_anchors(html: &str) -> Vec<String> {
    let mut anchors = Vec::new();
    for attribute in ["<a id=\"", "<a name=\""] {
        for piece in html.split(attribute).skip(1) {
            anchors.extend(piece.split_once('"').map(|(name, _)| name.to_owned()));
        }
    }
    anchors
}

/// The identifier of a heading: lower case, hyphens for blanks, no punctuation.
fn slug(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// The second heading with the same text has `-1` behind its identifier.
fn numbered(slug: &str, number: usize) -> String {
    if number == 0 { slug.to_owned() } else { format!("{slug}-{number}") }
}

struct LineNumbers(Vec<usize>);

impl LineNumbers {
    fn of(source: &str) -> Self {
        LineNumbers(source.match_indices('\n').map(|(position, _)| position).collect())
    }

    /// The line, from 1, that a byte is in.
    fn at(&self, position: usize) -> usize {
        self.0.partition_point(|end| *end < position) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_have_the_anchors_of_github() {
        let page = parse("# The `log` plane, in short\n\n## A_b\n\n## Keys\n\n## Keys\n\n<a id=\"old\"></a>\n");
        let anchors: Vec<_> = page.anchors.iter().map(String::as_str).collect();
        assert_eq!(anchors, ["a_b", "keys", "keys-1", "old", "the-log-plane-in-short"]);
    }

    #[test]
    fn prose_is_what_is_not_code_or_table() {
        let page = parse("One `x` [two](three.md)\nmore.\n\n| a | b |\n|---|---|\n| c | d |\n\n```text\nno\n```\n");
        assert_eq!(page.prose.len(), 2);
        assert_eq!(page.prose[&1].text, format!("One {CODE} two"));
        assert_eq!((page.prose[&1].link_columns, page.prose[&1].continued), (8, true));
        assert_eq!(page.prose[&2].text, "more.");
        assert_eq!(page.blocks[0].info.as_deref(), Some("text"));
        assert_eq!((page.links[0].line, page.links[0].target.as_str()), (1, "three.md"));
    }
}
