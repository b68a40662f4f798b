//! Tables with aligned columns.

use super::style::{Palette, Style};

/// A table with a header. Empty cells are printed as `-`, so that every row has all columns.
#[derive(Debug)]
pub struct Table {
    header: &'static [&'static str],
    rows: Vec<Vec<(String, Style)>>,
}

impl Table {
    pub fn new(header: &'static [&'static str]) -> Table {
        Table { header, rows: Vec::new() }
    }

    pub fn row(&mut self, cells: Vec<(String, Style)>) {
        debug_assert_eq!(cells.len(), self.header.len(), "one cell per column");
        let filled = cells.into_iter().map(|(text, style)| match text.as_str() {
            "" => ("-".to_owned(), Style::Dim),
            _ => (text, style),
        });
        self.rows.push(filled.collect());
    }

    pub fn render(&self, palette: Palette) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].0.chars().count());
            cells.chain([self.header[column].len()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.header.len()).map(width).collect();
        let mut out = String::new();
        line(&mut out, palette, &widths, self.header.iter().map(|name| (*name, Style::Bold)));
        for row in &self.rows {
            line(&mut out, palette, &widths, row.iter().map(|(text, style)| (text.as_str(), *style)));
        }
        out
    }
}

/// Names and values, one pair per line.
pub fn facts(facts: &[(&str, String)], palette: Palette) -> String {
    let width = facts.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let mut out = String::new();
    for (name, fact) in facts {
        line(&mut out, palette, &[width, 0], [(*name, Style::Bold), (fact.as_str(), Style::Plain)].into_iter());
    }
    out
}

fn line<'a>(out: &mut String, palette: Palette, widths: &[usize], cells: impl Iterator<Item = (&'a str, Style)>) {
    let last = widths.len() - 1;
    for (column, (text, style)) in cells.enumerate() {
        out.push_str(&palette.paint(style, text));
        if column < last {
            // The padding does not count colour codes.
            let pad = widths[column].saturating_sub(text.chars().count()) + 2;
            out.extend(std::iter::repeat_n(' ', pad));
        }
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&["ID", "STATUS", "WHERE"]);
        table.row(vec![("orders-1".into(), Style::Plain), ("up".into(), Style::Good), ("eu".into(), Style::Plain)]);
        table.row(vec![("ö".into(), Style::Plain), ("down".into(), Style::Bad), (String::new(), Style::Plain)]);
        table
    }

    #[test]
    fn columns_are_aligned_and_never_empty() {
        let text = table().render(Palette::PLAIN);
        assert_eq!(text, "ID        STATUS  WHERE\norders-1  up      eu\nö         down    -\n");
    }

    #[test]
    fn colours_do_not_move_columns() {
        let coloured = table().render(Palette::COLOURED);
        assert!(coloured.contains("\x1b[32mup\x1b[0m      eu"), "{coloured:?}");
        let mut plain = coloured;
        for code in ["\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m"] {
            plain = plain.replace(code, "");
        }
        assert_eq!(plain, table().render(Palette::PLAIN));
    }

    #[test]
    fn facts_are_aligned() {
        let text = facts(&[("Node", "n1".to_owned()), ("Cluster", "convoke".to_owned())], Palette::PLAIN);
        assert_eq!(text, "Node     n1\nCluster  convoke\n");
    }
}
