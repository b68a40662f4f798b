//! Colours for terminals.

use std::io::{IsTerminal, stdout};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Plain,
    Good,
    Bad,
    Doubtful,
    Dim,
    Bold,
}

/// Whether output is coloured.
#[derive(Clone, Copy, Debug)]
pub struct Palette {
    coloured: bool,
}

impl Palette {
    /// Coloured on a terminal, unless `NO_COLOR` is set.
    pub fn of_stdout() -> Palette {
        Palette { coloured: wanted() && stdout().is_terminal() }
    }

    /// No colours.
    pub const PLAIN: Palette = Palette { coloured: false };

    /// Colours, wherever the output goes.
    pub const COLOURED: Palette = Palette { coloured: true };

    pub fn paint(self, style: Style, text: &str) -> String {
        let code = match style {
            Style::Plain => return text.to_owned(),
            _ if !self.coloured => return text.to_owned(),
            Style::Good => "32",
            Style::Bad => "31",
            Style::Doubtful => "33",
            Style::Dim => "2",
            Style::Bold => "1",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// Whether the environment allows colours (no-color.org).
pub fn wanted() -> bool {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    set("NO_COLOR").is_none() && set("TERM").is_none_or(|term| term != "dumb")
}
